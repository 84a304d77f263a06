//! Sessions: one order of executions.

use std::cell::Cell;
use std::marker::PhantomData;

use attn_c_sys as sys;

use crate::context::{c_text, pointer};
use crate::error::{check, filled, text_in, Sized32};
use crate::host::Stream;
use crate::{Context, Library, Result};

/// The faults of a session.
#[derive(Clone, Debug)]
pub struct FaultInfo {
    /// All `ATTN_FAULT_...` raised since the last clear; 0 is none.
    pub bits: u32,
    /// The batch row of the first fault.
    pub batch: i64,
    /// The value that broke the rule.
    pub value: i64,
    /// The first fault's operator.
    pub label: String,
    /// The rules in words.
    pub text: String,
}

/// One order of executions; it may move to another thread, but serves one at a time.
pub struct Session {
    library: Library,
    pub(crate) handle: *mut sys::attn_session,
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: the C interface allows any one thread for sessions.
unsafe impl Send for Session {}

impl Session {
    /// Creates an order of executions; `label` is for messages, and may be empty.
    pub fn new(context: &Context, label: &str) -> Result<Self> {
        let label = c_text(Some(label).filter(|label| !label.is_empty()))?;
        let mut desc = sys::attn_session_desc::init();
        desc.label = pointer(&label);
        let library = context.library;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is live, and so is the label.
        check(|error| unsafe {
            library.api.attn_session_create(context.handle, &desc, &mut handle, error)
        })?;
        Ok(Session { library, handle, one_thread: PhantomData })
    }

    /// The faults that reached the host so far, without synchronising.
    pub fn poll_faults(&self) -> Result<FaultInfo> {
        // SAFETY: the handle is live.
        let info: sys::attn_fault_info = filled(|info, error| unsafe {
            self.library.api.attn_session_poll_faults(self.handle, info, error)
        })?;
        Ok(FaultInfo {
            bits: info.bits,
            batch: info.batch,
            value: info.value,
            label: text_in(&info.label),
            text: text_in(&info.text),
        })
    }

    /// Ends a poisoning, in the order of a stream.
    pub fn clear_faults(&self, stream: Option<&Stream<'_>>) -> Result<()> {
        let stream = stream.map_or(std::ptr::null_mut(), |stream| stream.raw());
        // SAFETY: the handles are live.
        check(|error| unsafe {
            self.library.api.attn_session_clear_faults(self.handle, stream, error)
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the handle is this object's reference.
        unsafe { self.library.api.attn_session_release(self.handle) }
    }
}
