//! The library itself: opening it, and what can be asked without a context.

use std::ffi::{OsStr, OsString};
use std::sync::Mutex;

use attn_c_sys as sys;

use crate::error::{check, filled, text, text_at, text_in, words};
use crate::{Error, Result, Status};

/// The name that the loader searches for where no path is given.
const SONAME: &str = "libattn_c.so.0";

/// The interface that this crate was written against.
const ABI: u32 = sys::ATTN_ABI_VERSION as u32;

/// Libraries that were opened. They stay: callbacks of graphs may run after everything else.
static OPENED: Mutex<Vec<(OsString, &'static sys::AttnC)>> = Mutex::new(Vec::new());

/// The opened library; any threads at once.
#[derive(Clone, Copy)]
pub struct Library {
    pub(crate) api: &'static sys::AttnC,
}

/// A device of this machine.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// A context can be made; otherwise `reason` says why not.
    pub available: bool,
    /// `ATTN_DEVICE_...`
    pub device_type: i32,
    /// The number among devices of its type.
    pub device_id: i32,
    /// For people.
    pub name: String,
    /// With every place that was tried; empty where available.
    pub reason: String,
}

/// An input or output of an operator.
#[derive(Clone, Debug)]
pub struct SlotInfo {
    /// The number by which it is bound.
    pub slot: u32,
    /// It may be absent.
    pub optional: bool,
    /// Accepted `ATTN_MEMORY_...` bits of a CUDA context; the CPU takes host memory.
    pub memory: u32,
    /// Of outputs: the input whose memory it may share.
    pub may_alias: Option<u32>,
    /// Its name in the operator's contract.
    pub name: String,
    /// Accepted element types.
    pub types: Vec<String>,
    /// Its shape, with the letters of the documentation.
    pub shape: String,
}

/// An attribute of an operator.
#[derive(Clone, Debug)]
pub struct AttributeInfo {
    /// `ATTN_ATTRIBUTE_...`
    pub kind: u32,
    /// There is no default.
    pub required: bool,
    /// Its name.
    pub name: String,
    /// Empty for required ones.
    pub default_text: String,
    /// What it does.
    pub summary: String,
}

/// An operator that the library knows.
#[derive(Clone, Debug)]
pub struct OperatorInfo {
    /// The domain of the operator set.
    pub domain: String,
    /// The operator's name.
    pub name: String,
    /// The first version of the domain's operator set that means this contract.
    pub version_first: i32,
    /// The last one.
    pub version_last: i32,
    /// What it computes.
    pub summary: String,
    /// Its inputs, optional ones included.
    pub inputs: Vec<SlotInfo>,
    /// Its outputs, optional ones included.
    pub outputs: Vec<SlotInfo>,
    /// Its attributes.
    pub attributes: Vec<AttributeInfo>,
}

/// An error with what caused it: the loader's words stand there.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}

fn abi_text(abi: u32) -> String {
    format!("{}.{}", abi >> 16, abi & 0xffff)
}

/// The major number must be this crate's, the minor one not below it.
fn check_abi(place: &str, has: u32) -> Result<()> {
    if has >> 16 == ABI >> 16 && has & 0xffff >= ABI & 0xffff {
        return Ok(());
    }
    let (has, wants) = (abi_text(has), abi_text(ABI));
    let what = format!("{place} has the ABI {has}; this crate needs {wants} or a later minor");
    Err(Error::new(Status::Version, what))
}

impl std::fmt::Debug for Library {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Library({})", self.version())
    }
}

impl Library {
    /// Opens the library that `ATTN_C_LIBRARY` names, or else `libattn_c.so.0` where the system's
    /// loader finds it. It is never closed; opening it again gives the same one. What is opened
    /// must be attn_c: its code runs in this process.
    pub fn open() -> Result<Self> {
        let path = std::env::var_os("ATTN_C_LIBRARY").unwrap_or_else(|| SONAME.into());
        // SAFETY: the user of the process names the library, as for every dynamic dependency.
        unsafe { Library::open_at(path) }
    }

    /// Opens the library at a path, or by a name that the loader searches for.
    ///
    /// # Safety
    /// What lies there is the attn_c library: its code runs in this process.
    pub unsafe fn open_at(path: impl AsRef<OsStr>) -> Result<Self> {
        let path = path.as_ref();
        let mut opened = OPENED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, api)) = opened.iter().find(|(known, _)| known == path) {
            return Ok(Library { api });
        }
        let place = path.to_string_lossy();
        // SAFETY: as the caller promises.
        let loaded = unsafe { sys::libloading::Library::new(path) }.map_err(|error| {
            let why = with_causes(&error);
            Error::new(Status::Unavailable, format!("cannot open {place}: {why}"))
        })?;
        // SAFETY: functions of that name are of that type in every version of attn_c.
        let has = unsafe { loaded.get::<unsafe extern "C" fn() -> u32>(c"attn_abi_version") }
            // SAFETY: it takes nothing.
            .map(|abi_version| unsafe { abi_version() })
            .map_err(|_| {
                Error::new(Status::Unavailable, format!("{place} is no attn_c library"))
            })?;
        check_abi(&place, has)?;
        // SAFETY: the functions of this ABI are of the types that the bindings have.
        let api = unsafe { sys::AttnC::from_library(loaded) }.map_err(|error| {
            let (abi, why) = (abi_text(has), with_causes(&error));
            let what = format!("{place} has the ABI {abi}, but not all of its functions: {why}");
            Error::new(Status::Version, what)
        })?;
        let api: &'static sys::AttnC = Box::leak(Box::new(api));
        opened.push((path.to_os_string(), api));
        Ok(Library { api })
    }

    /// The library's version, "major.minor.patch".
    pub fn version(self) -> String {
        // SAFETY: the function takes nothing and returns a static text.
        unsafe { text_at(self.api.attn_version()) }
    }

    /// The interface that the library has: major number in the high 16 bits.
    pub fn abi_version(self) -> u32 {
        // SAFETY: the function takes nothing.
        unsafe { self.api.attn_abi_version() }
    }

    /// The devices of this machine; those that cannot be used say why.
    pub fn devices(self) -> Result<Vec<DeviceInfo>> {
        let mut count = 0;
        // SAFETY: the pointers are valid for the call; so they are below.
        check(|error| unsafe { self.api.attn_device_count(&mut count, error) })?;
        (0..count)
            .map(|index| {
                let info: sys::attn_device_info = filled(|info, error| {
                    // SAFETY: as above.
                    unsafe { self.api.attn_device_get_info(index, info, error) }
                })?;
                Ok(DeviceInfo {
                    available: info.available != 0,
                    device_type: info.device_type,
                    device_id: info.device_id,
                    name: text_in(&info.name),
                    reason: text_in(&info.reason),
                })
            })
            .collect()
    }

    /// The operators that the library knows.
    pub fn operators(self) -> Result<Vec<OperatorInfo>> {
        let mut count = 0;
        // SAFETY: the pointers are valid for the call.
        check(|error| unsafe { self.api.attn_operator_count(&mut count, error) })?;
        (0..count).map(|index| self.operator(index)).collect()
    }

    fn operator(self, index: u32) -> Result<OperatorInfo> {
        let api = self.api;
        // SAFETY: the pointers are valid for each call; texts are static.
        unsafe {
            let info: sys::attn_operator_info =
                filled(|info, error| api.attn_operator_get_info(index, info, error))?;
            let input =
                |at| filled(|info, error| api.attn_operator_get_input(index, at, info, error));
            let output =
                |at| filled(|info, error| api.attn_operator_get_output(index, at, info, error));
            let attribute =
                |at| filled(|info, error| api.attn_operator_get_attribute(index, at, info, error));
            Ok(OperatorInfo {
                domain: text_at(info.domain),
                name: text_at(info.type_),
                version_first: info.version_first,
                version_last: info.version_last,
                summary: text_at(info.summary),
                inputs: (0..info.input_count)
                    .map(|at| input(at).map(|slot| slot_info(&slot)))
                    .collect::<Result<_>>()?,
                outputs: (0..info.output_count)
                    .map(|at| output(at).map(|slot| slot_info(&slot)))
                    .collect::<Result<_>>()?,
                attributes: (0..info.attribute_count)
                    .map(|at| attribute(at).map(|one| attribute_info(&one)))
                    .collect::<Result<_>>()?,
            })
        }
    }

    /// The rules behind fault bits in words, joined with "; ".
    pub fn fault_text(self, bits: u32) -> Result<String> {
        // SAFETY: the pointers are valid for the call.
        text(|buffer, capacity, needed, error| unsafe {
            self.api.attn_fault_text(bits, buffer, capacity, needed, error)
        })
    }
}

/// # Safety
/// The texts are the library's.
unsafe fn slot_info(info: &sys::attn_slot_info) -> SlotInfo {
    // SAFETY: as the caller promises.
    let (name, types, shape) =
        unsafe { (text_at(info.name), text_at(info.types), text_at(info.shape)) };
    SlotInfo {
        slot: info.slot,
        optional: info.optional != 0,
        memory: info.memory,
        may_alias: u32::try_from(info.may_alias).ok(),
        name,
        types: words(&types),
        shape,
    }
}

/// # Safety
/// The texts are the library's.
unsafe fn attribute_info(info: &sys::attn_attribute_info) -> AttributeInfo {
    // SAFETY: as the caller promises.
    let (name, default_text, summary) =
        unsafe { (text_at(info.name), text_at(info.default_text), text_at(info.summary)) };
    AttributeInfo { kind: info.type_, required: info.required != 0, name, default_text, summary }
}
