//! What the library calls back: a log, an allocator, an executor. Nobody's panic crosses the C
//! frames of the library.

use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

use attn_c_sys as sys;

use crate::error::{text_at, Sized32};
use crate::MemoryKind;

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Severity {
    /// For those who look for a defect.
    Debug = sys::ATTN_LOG_DEBUG,
    /// What was done.
    Info = sys::ATTN_LOG_INFO,
    /// What may be unwanted.
    Warning = sys::ATTN_LOG_WARNING,
    /// What went wrong.
    Error = sys::ATTN_LOG_ERROR,
}

impl Severity {
    fn from_code(code: i32) -> Self {
        match code {
            sys::ATTN_LOG_DEBUG => Severity::Debug,
            sys::ATTN_LOG_INFO => Severity::Info,
            sys::ATTN_LOG_WARNING => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

/// Receives lines of the log, from any thread inside a call, from several at once. A panic loses
/// its line alone.
pub type Log = Box<dyn Fn(Severity, &str) + Send + Sync>;

/// Gives memory of sessions: scratch, and on a CUDA device the words of their faults; any threads
/// at once. The C header says which kinds are asked for, and in which order streams use them.
///
/// # Safety
/// What `allocate` returns, unless null, is memory of that kind and size at an address that is a
/// multiple of `alignment`, nobody else's until `deallocate` takes it back.
pub unsafe trait Allocator: Send + Sync {
    /// Memory of a size in bytes at an address that is a multiple of `alignment`, a power of 2;
    /// null for none. `stream` is the one that device memory is ordered on. A null or a panic fails
    /// the call around it with [`crate::Status::OutOfMemory`].
    fn allocate(
        &self,
        kind: MemoryKind,
        bytes: u64,
        alignment: u64,
        stream: *mut c_void,
    ) -> *mut c_void;

    /// Takes back what `allocate` gave. A panic is dropped.
    ///
    /// # Safety
    /// `memory` is what `allocate` gave for this kind and size, once.
    unsafe fn deallocate(
        &self,
        kind: MemoryKind,
        memory: *mut c_void,
        bytes: u64,
        stream: *mut c_void,
    );
}

/// Runs tasks on threads of the program; several threads call it where sessions run at once.
/// Results never depend on it.
pub trait Executor: Send + Sync {
    /// Threads that it may use, at least 1; asked once, while a context is made.
    fn concurrency(&self) -> i32;

    /// Calls `task(i)` for every `i` below `count`, on any threads, and returns when all have
    /// ended. What it leaves out, the calling thread does itself, after a panic too; calls with
    /// another index, or with one again, do nothing.
    fn parallel_for(&self, count: usize, task: &(dyn Fn(usize) + Sync));
}

struct Pool {
    executor: Box<dyn Executor>,
    concurrency: i32,
}

/// The callback structs of a context that is being made.
pub(crate) struct Callbacks {
    logger: Option<sys::attn_logger>,
    allocator: Option<sys::attn_allocator>,
    executor: Option<sys::attn_executor>,
}

impl Callbacks {
    pub(crate) fn new(
        log: Option<Log>,
        minimum_severity: Option<Severity>,
        allocator: Option<Box<dyn Allocator>>,
        executor: Option<Box<dyn Executor>>,
    ) -> Self {
        // Asked before anything is held: a panic here is the caller's own.
        let pool = executor.map(|executor| Pool { concurrency: executor.concurrency(), executor });
        let logger = log.map(|log| {
            let mut logger = sys::attn_logger::init();
            logger.minimum_severity = minimum_severity.map_or(0, |severity| severity as i32);
            logger.user = hold(log);
            logger.release_user = Some(release::<Log>);
            logger.log = Some(log_line);
            logger
        });
        let allocator = allocator.map(|allocator| {
            let mut callbacks = sys::attn_allocator::init();
            callbacks.user = hold(allocator);
            callbacks.release_user = Some(release::<Box<dyn Allocator>>);
            callbacks.allocate = Some(allocate);
            callbacks.deallocate = Some(deallocate);
            callbacks
        });
        let executor = pool.map(|pool| {
            let mut callbacks = sys::attn_executor::init();
            callbacks.user = hold(pool);
            callbacks.release_user = Some(release::<Pool>);
            callbacks.concurrency = Some(concurrency);
            callbacks.parallel_for = Some(parallel_for);
            callbacks
        });
        Callbacks { logger, allocator, executor }
    }

    /// Names them in a desc, which may be used as long as they are there.
    pub(crate) fn set(&self, desc: &mut sys::attn_context_desc) {
        desc.logger = self.logger.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        desc.allocator = self.allocator.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        desc.executor = self.executor.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    }

    /// A context was made: the library lets go of them.
    pub(crate) fn give_away(mut self) {
        (self.logger, self.allocator, self.executor) = (None, None, None);
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        // SAFETY: the objects are still this struct's, and nobody uses them.
        unsafe {
            if let Some(logger) = &self.logger {
                release::<Log>(logger.user);
            }
            if let Some(allocator) = &self.allocator {
                release::<Box<dyn Allocator>>(allocator.user);
            }
            if let Some(executor) = &self.executor {
                release::<Pool>(executor.user);
            }
        }
    }
}

fn hold<T>(object: T) -> *mut c_void {
    Box::into_raw(Box::new(object)).cast()
}

/// What `call` returns; `None` where it panics. What it panicked with goes too, and may panic as it
/// does: only what that leaves is leaked, since dropping it could go on for ever.
fn caught<R>(call: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|payload| {
            if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(another);
            }
        })
        .ok()
}

/// # Safety
/// `user` is what `hold` made of a `T`, and nobody uses it any more.
unsafe extern "C" fn release<T>(user: *mut c_void) {
    // SAFETY: as above.
    let object = unsafe { Box::from_raw(user.cast::<T>()) };
    caught(|| drop(object));
}

/// # Safety
/// `user` is a held `Log`, `text` a terminated text.
unsafe extern "C" fn log_line(user: *mut c_void, severity: i32, text: *const c_char) {
    // SAFETY: as above.
    let (log, line) = unsafe { (&*user.cast::<Log>(), text_at(text)) };
    caught(|| log(Severity::from_code(severity), &line));
}

fn memory_kind(kind: u32) -> Option<MemoryKind> {
    [MemoryKind::Host, MemoryKind::Device, MemoryKind::Pinned]
        .into_iter()
        .find(|known| *known as u32 == kind)
}

/// # Safety
/// `user` is a held allocator.
unsafe extern "C" fn allocate(
    user: *mut c_void,
    kind: u32,
    bytes: u64,
    alignment: u64,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: as above.
    let allocator = unsafe { &*user.cast::<Box<dyn Allocator>>() };
    let Some(kind) = memory_kind(kind) else { return std::ptr::null_mut() };
    caught(|| allocator.allocate(kind, bytes, alignment, stream)).unwrap_or(std::ptr::null_mut())
}

/// # Safety
/// `user` is a held allocator, the rest what `allocate` was asked for and gave.
unsafe extern "C" fn deallocate(
    user: *mut c_void,
    kind: u32,
    memory: *mut c_void,
    bytes: u64,
    stream: *mut c_void,
) {
    // SAFETY: as above.
    let allocator = unsafe { &*user.cast::<Box<dyn Allocator>>() };
    let Some(kind) = memory_kind(kind) else { return };
    caught(|| {
        // SAFETY: the library gives back what it was given, once.
        unsafe { allocator.deallocate(kind, memory, bytes, stream) }
    });
}

/// # Safety
/// `user` is a held pool.
unsafe extern "C" fn concurrency(user: *mut c_void) -> i32 {
    // SAFETY: as above.
    unsafe { &*user.cast::<Pool>() }.concurrency
}

/// The tasks of one loop: each runs once, whatever the executor does with them.
struct Tasks {
    taken: Vec<AtomicBool>,
    task: unsafe extern "C" fn(*mut c_void, i32),
    context: *mut c_void,
}

// SAFETY: the C interface lets tasks run on any threads.
unsafe impl Sync for Tasks {}

impl Tasks {
    fn run(&self, index: usize) {
        let Some(taken) = self.taken.get(index) else { return };
        if taken.swap(true, Ordering::Relaxed) {
            return;
        }
        // SAFETY: the index is one of the loop's, for the first time, and the loop has not ended:
        // it lasts as long as this object.
        unsafe { (self.task)(self.context, index as i32) }
    }
}

/// # Safety
/// `user` is a held pool; `task` may be called with `context` and each index below `count` until
/// this returns.
unsafe extern "C" fn parallel_for(
    user: *mut c_void,
    count: i32,
    task: Option<unsafe extern "C" fn(*mut c_void, i32)>,
    context: *mut c_void,
) {
    let (Some(task), Ok(count)) = (task, usize::try_from(count)) else { return };
    // SAFETY: as above.
    let pool = unsafe { &*user.cast::<Pool>() };
    let taken = (0..count).map(|_| AtomicBool::new(false)).collect();
    let tasks = Tasks { taken, task, context };
    caught(|| pool.executor.parallel_for(count, &|index| tasks.run(index)));
    // Nobody else has them any more: the executor had them as a borrow alone.
    for index in 0..count {
        tasks.run(index);
    }
}
