//! Host help: memory, streams and graphs for programs that bring none of their own.

use std::os::raw::c_void;

use attn_c_sys as sys;

use crate::error::check;
use crate::{Context, Element, Error, Library, Result};

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MemoryKind {
    /// The host's.
    Host = sys::ATTN_MEMORY_HOST as u32,
    /// The device's.
    Device = sys::ATTN_MEMORY_DEVICE as u32,
    /// The host's, pinned for the device.
    Pinned = sys::ATTN_MEMORY_PINNED as u32,
}

/// Memory on a context's device; the CPU gives host memory of every kind.
pub struct Memory<'c> {
    context: &'c Context,
    kind: MemoryKind,
    bytes: u64,
    address: *mut c_void,
}

// SAFETY: memory belongs to no thread; its contents are reached through calls that borrow it.
unsafe impl Send for Memory<'_> {}
// SAFETY: as above.
unsafe impl Sync for Memory<'_> {}

impl<'c> Memory<'c> {
    /// Allocates bytes with arbitrary content.
    pub fn new(context: &'c Context, bytes: u64, kind: MemoryKind) -> Result<Self> {
        let mut address = std::ptr::null_mut();
        // SAFETY: the context is live.
        check(|error| unsafe {
            let api = context.library.api;
            api.attn_host_memory_alloc(context.handle, kind as u32, bytes, &mut address, error)
        })?;
        Ok(Memory { context, kind, bytes, address })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.address
    }

    /// The same tensor, on this memory's device.
    pub(crate) fn describe(&self, mut raw: sys::attn_tensor) -> sys::attn_tensor {
        // The CPU's memory is the host's, whatever it was asked for.
        if let Ok((device_type, device_id)) = self.context.device() {
            if device_type == sys::ATTN_DEVICE_CUDA {
                raw.device_id = device_id;
                raw.device_type = match self.kind {
                    MemoryKind::Host => sys::ATTN_DEVICE_CPU,
                    MemoryKind::Device => sys::ATTN_DEVICE_CUDA,
                    MemoryKind::Pinned => sys::ATTN_DEVICE_CUDA_HOST,
                };
            }
        }
        raw
    }

    /// Copies a slice to its begin and waits until that is done. The stream is one of its context.
    pub fn write<T: Element>(&mut self, data: &[T], stream: &Stream<'_>) -> Result<()> {
        self.check_size(size_of_val(data))?;
        copy(self.context, self.address, data.as_ptr().cast(), size_of_val(data), stream)
    }

    /// Copies its begin to a slice and waits until that is done, on a stream of its context.
    pub fn read<T: Element>(&self, data: &mut [T], stream: &Stream<'_>) -> Result<()> {
        self.check_size(size_of_val(data))?;
        let size = size_of_val(data);
        copy(self.context, data.as_mut_ptr().cast(), self.address, size, stream)
    }

    fn check_size(&self, bytes: usize) -> Result<()> {
        if bytes as u64 <= self.bytes {
            return Ok(());
        }
        let has = self.bytes;
        Err(Error::invalid(format!("a copy of {bytes} bytes; the memory has {has}")))
    }
}

/// Copies in the order of a stream and waits: a slice may go away as soon as this returns.
fn copy(
    context: &Context,
    target: *mut c_void,
    source: *const c_void,
    bytes: usize,
    stream: &Stream<'_>,
) -> Result<()> {
    if context.handle != stream.context.handle {
        // Waiting for it would end nothing of this context.
        return Err(Error::invalid("a copy on a stream of another context than the memory's"));
    }
    // SAFETY: both ranges are live and of that size; the wait ends their use.
    check(|error| unsafe {
        let api = context.library.api;
        api.attn_host_memory_copy(context.handle, target, source, bytes as u64, stream.raw(), error)
    })?;
    stream.synchronize()
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let api = self.context.library.api;
        let (context, kind) = (self.context.handle, self.kind as u32);
        // SAFETY: the memory is this object's. A failure leaves nothing to do.
        unsafe { api.attn_host_memory_free(context, kind, self.address, std::ptr::null_mut()) };
    }
}

/// A stream of a context's device; the CPU's is null.
pub struct Stream<'c> {
    context: &'c Context,
    stream: *mut c_void,
}

// SAFETY: a stream may be used by any one thread; its captures are bound to none.
unsafe impl Send for Stream<'_> {}

impl<'c> Stream<'c> {
    /// Creates a stream.
    pub fn new(context: &'c Context) -> Result<Self> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the context is live.
        check(|error| unsafe {
            context.library.api.attn_host_stream_create(context.handle, &mut stream, error)
        })?;
        Ok(Stream { context, stream })
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        self.stream
    }

    fn api(&self) -> &'static sys::AttnC {
        self.context.library.api
    }

    /// Waits until everything in the stream has ended.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: context and stream are live.
        check(|error| unsafe {
            self.api().attn_host_stream_synchronize(self.context.handle, self.stream, error)
        })
    }

    /// Begins to capture what is launched in the stream.
    pub fn begin_capture(&self) -> Result<()> {
        // SAFETY: as above.
        check(|error| unsafe {
            self.api().attn_host_graph_begin_capture(self.context.handle, self.stream, error)
        })
    }

    /// Ends the capture and makes a graph.
    pub fn end_capture(&self) -> Result<Graph> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: as above.
        check(|error| unsafe {
            let (context, stream) = (self.context.handle, self.stream);
            self.api().attn_host_graph_end_capture(context, stream, &mut handle, error)
        })?;
        Ok(Graph { library: self.context.library, handle })
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        let context = self.context.handle;
        // SAFETY: the stream is this object's. A failure leaves nothing to do.
        unsafe {
            self.api().attn_host_stream_release(context, self.stream, std::ptr::null_mut());
        }
    }
}

/// An instantiated graph of captured executions; one thread at a time.
pub struct Graph {
    library: Library,
    handle: *mut sys::attn_host_graph,
}

// SAFETY: the C interface allows any one thread for graphs.
unsafe impl Send for Graph {}

impl Graph {
    /// Launches the graph in a stream.
    ///
    /// # Safety
    /// The memory that it captured is still there, and nobody else uses it until the launch has
    /// ended.
    pub unsafe fn launch(&mut self, stream: &Stream<'_>) -> Result<()> {
        // SAFETY: the handles are live; the rest is as the caller promises.
        check(|error| unsafe {
            self.library.api.attn_host_graph_launch(self.handle, stream.raw(), error)
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is this object's reference.
        unsafe { self.library.api.attn_host_graph_release(self.handle) }
    }
}
