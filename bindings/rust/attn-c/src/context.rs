//! Contexts: a device with its options and caches.

use std::ffi::CString;
use std::os::raw::{c_char, c_void};

use attn_c_sys as sys;

use crate::callbacks::Callbacks;
use crate::error::{check, filled, text_at, words, Sized32};
use crate::{Allocator, Error, Executor, Library, Log, Result, Severity};

/// Options of a context. What is left out is the default.
#[derive(Default)]
pub struct ContextOptions {
    /// The number of a CUDA device; `None` is the CPU.
    pub cuda_device: Option<i32>,
    /// CPU: threads that one execute may use, 0 is all that the process may.
    pub thread_count: i32,
    /// CPU: a name of [`ContextInfo::simd_levels`].
    pub simd_level: Option<String>,
    /// Forced for every plan: a name of [`ContextInfo::engines`].
    pub engine: Option<String>,
    /// CUDA: the context to work in; `None` is the current one if it is on the device, else the
    /// primary one.
    pub native_context: Option<NativeContext>,
    /// CUDA: libcuda.
    pub driver_path: Option<String>,
    /// CUDA: libnvrtc.
    pub nvrtc_path: Option<String>,
    /// CUDA: the kernels' disk cache.
    pub cache_folder: Option<String>,
    /// CUDA: its limit; 0 is the default.
    pub cache_limit_bytes: u64,
    /// CUDA: kernels are neither read from nor kept on disk.
    pub no_disk_cache: bool,
    /// No `ATTN_C_...` variable counts.
    pub ignore_environment: bool,
    /// Receives the log from `minimum_severity` on.
    pub log: Option<Log>,
    /// Warnings, where it is left out.
    pub minimum_severity: Option<Severity>,
    /// Gives memory of sessions.
    pub allocator: Option<Box<dyn Allocator>>,
    /// CPU: runs tasks on threads of the program.
    pub executor: Option<Box<dyn Executor>>,
}

/// A `CUcontext` of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeContext(*mut c_void);

// SAFETY: a CUDA context belongs to no thread.
unsafe impl Send for NativeContext {}
// SAFETY: as above.
unsafe impl Sync for NativeContext {}

impl NativeContext {
    /// Names it.
    ///
    /// # Safety
    /// `context` is a `CUcontext` and lives until everything has gone that is made in it.
    pub unsafe fn new(context: *mut c_void) -> Self {
        NativeContext(context)
    }
}

/// What a context runs on. What does not apply is empty.
#[derive(Clone, Debug)]
pub struct ContextInfo {
    /// CPU: threads of one execute.
    pub thread_count: i32,
    /// The device's name.
    pub device_name: String,
    /// "x86-64", "sm_90"
    pub architecture: String,
    /// CPU: in use.
    pub simd_level: String,
    /// CPU: all that this machine has, best first.
    pub simd_levels: Vec<String>,
    /// Names that may be forced.
    pub engines: Vec<String>,
    /// CUDA: of the driver, "13.0".
    pub driver_version: String,
    /// CUDA: libcuda, as it was opened.
    pub driver_path: String,
    /// CUDA: of NVRTC; empty where none can be opened.
    pub nvrtc_version: String,
    /// CUDA: libnvrtc, as it was opened.
    pub nvrtc_path: String,
    /// CUDA: of the kernels' disk cache.
    pub cache_folder: String,
    /// CUDA: the device's UUID.
    pub uuid: String,
    /// CUDA: the device's PCI address.
    pub pci_id: String,
}

/// Counters of a context, as the C header has them.
pub type ContextStats = sys::attn_context_stats;

/// A device with its options and caches; any threads at once. Operators, sessions, plans and
/// bindings keep what they need, so it may be dropped before them.
pub struct Context {
    pub(crate) library: Library,
    pub(crate) handle: *mut sys::attn_context,
}

// SAFETY: the C interface allows any thread, and any number of them, for contexts.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A text for C; `None` is null.
pub(crate) fn c_text(text: Option<&str>) -> Result<Option<CString>> {
    text.map(CString::new).transpose().map_err(|_| Error::invalid("a text contains a zero byte"))
}

pub(crate) fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
}

impl Context {
    /// The CPU with defaults.
    pub fn cpu(library: Library) -> Result<Self> {
        Context::new(library, ContextOptions::default())
    }

    /// Opens a device.
    pub fn new(library: Library, options: ContextOptions) -> Result<Self> {
        let texts = [
            &options.simd_level,
            &options.engine,
            &options.driver_path,
            &options.nvrtc_path,
            &options.cache_folder,
        ];
        let texts = texts.map(|text| c_text(text.as_deref()));
        let [level, engine, driver, nvrtc, folder] = texts;
        let (level, engine, driver, nvrtc, folder) = (level?, engine?, driver?, nvrtc?, folder?);
        let mut desc = sys::attn_context_desc::init();
        desc.device_type = sys::ATTN_DEVICE_CPU;
        if let Some(id) = options.cuda_device {
            (desc.device_type, desc.device_id) = (sys::ATTN_DEVICE_CUDA, id);
        }
        let flag = |set, bit: i32| if set { bit as u32 } else { 0 };
        desc.flags = flag(options.ignore_environment, sys::ATTN_CONTEXT_IGNORE_ENVIRONMENT)
            | flag(options.no_disk_cache, sys::ATTN_CONTEXT_NO_DISK_CACHE);
        desc.thread_count = options.thread_count;
        desc.simd_level = pointer(&level);
        desc.engine = pointer(&engine);
        desc.native_context = options.native_context.map_or(std::ptr::null_mut(), |one| one.0);
        desc.driver_path = pointer(&driver);
        desc.nvrtc_path = pointer(&nvrtc);
        desc.cache_folder = pointer(&folder);
        desc.cache_limit_bytes = options.cache_limit_bytes;
        let callbacks = Callbacks::new(
            options.log,
            options.minimum_severity,
            options.allocator,
            options.executor,
        );
        callbacks.set(&mut desc);
        let mut handle = std::ptr::null_mut();
        // SAFETY: everything that the struct points to lives until the call has ended.
        check(|error| unsafe { library.api.attn_context_create(&desc, &mut handle, error) })?;
        callbacks.give_away();
        Ok(Context { library, handle })
    }

    /// The library that it belongs to.
    pub fn library(&self) -> Library {
        self.library
    }

    /// What the context runs on.
    pub fn info(&self) -> Result<ContextInfo> {
        // SAFETY: the handle is live; the texts live as long as the context.
        unsafe {
            let info: sys::attn_context_info = filled(|info, error| {
                self.library.api.attn_context_get_info(self.handle, info, error)
            })?;
            Ok(ContextInfo {
                thread_count: info.thread_count,
                device_name: text_at(info.device_name),
                architecture: text_at(info.architecture),
                simd_level: text_at(info.simd_level),
                simd_levels: words(&text_at(info.simd_levels)),
                engines: words(&text_at(info.engines)),
                driver_version: text_at(info.driver_version),
                driver_path: text_at(info.driver_path),
                nvrtc_version: text_at(info.nvrtc_version),
                nvrtc_path: text_at(info.nvrtc_path),
                cache_folder: text_at(info.cache_folder),
                uuid: text_at(info.uuid),
                pci_id: text_at(info.pci_id),
            })
        }
    }

    /// `ATTN_DEVICE_...` and the number of the device.
    pub(crate) fn device(&self) -> Result<(i32, i32)> {
        // SAFETY: the handle is live.
        let info: sys::attn_context_info = filled(|info, error| unsafe {
            self.library.api.attn_context_get_info(self.handle, info, error)
        })?;
        Ok((info.device_type, info.device_id))
    }

    /// Counters since its creation, and of what lives now.
    pub fn stats(&self) -> Result<ContextStats> {
        // SAFETY: the handle is live.
        filled(|stats, error| unsafe {
            self.library.api.attn_context_get_stats(self.handle, stats, error)
        })
    }

    /// Frees cached plans that nobody holds and scratch of idle sessions.
    pub fn trim(&self) -> Result<()> {
        // SAFETY: the handle is live.
        check(|error| unsafe { self.library.api.attn_context_trim(self.handle, error) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the handle is this object's reference.
        unsafe { self.library.api.attn_context_release(self.handle) }
    }
}
