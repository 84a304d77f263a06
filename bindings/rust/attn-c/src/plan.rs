//! Plans and how to run them.

use std::ffi::CString;
use std::marker::PhantomData;
use std::os::raw::c_void;

use attn_c_sys as sys;

use crate::context::pointer;
use crate::error::{check, filled, text, text_in, Sized32};
use crate::host::{Memory, Stream};
use crate::{Arguments, Library, Result, Session};

/// What a plan is asked to serve beyond the tensors; zeros are defaults.
#[derive(Clone, Debug, Default)]
pub struct PrepareOptions {
    /// A sequence's result does not depend on its batch.
    pub batch_invariant: bool,
    /// float32 products may be rounded to TF32.
    pub allow_tf32: bool,
    /// Lengths on the device are checked by the host: slow.
    pub check_on_host: bool,
    /// Forced by name in the stage that has it.
    pub engine: Option<String>,
    /// The range that the plan serves; 0 is what the tensors have.
    pub max_batch: i64,
    /// Likewise, of query rows.
    pub max_query_length: i64,
    /// Likewise, of the keys of one sequence.
    pub max_total_length: i64,
}

impl PrepareOptions {
    /// `engine` is this struct's, as C has it.
    pub(crate) fn desc(&self, engine: &Option<CString>) -> sys::attn_prepare_desc {
        let flag = |set, bit: i32| if set { bit as u32 } else { 0 };
        let mut desc = sys::attn_prepare_desc::init();
        desc.flags = flag(self.batch_invariant, sys::ATTN_PREPARE_BATCH_INVARIANT)
            | flag(self.allow_tf32, sys::ATTN_PREPARE_ALLOW_TF32)
            | flag(self.check_on_host, sys::ATTN_PREPARE_CHECK_ON_HOST);
        desc.engine = pointer(engine);
        desc.max_batch = self.max_batch;
        desc.max_query_length = self.max_query_length;
        desc.max_total_length = self.max_total_length;
        desc
    }
}

/// How to run once; by default on the default stream with the session's scratch. An execution takes
/// it, so that no two have one workspace at a time.
#[derive(Debug)]
pub struct ExecuteOptions<'a> {
    pub(crate) desc: sys::attn_execute_desc,
    borrowed: PhantomData<&'a ()>,
}

impl Default for ExecuteOptions<'_> {
    fn default() -> Self {
        ExecuteOptions { desc: sys::attn_execute_desc::init(), borrowed: PhantomData }
    }
}

impl<'a> ExecuteOptions<'a> {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bindings: prepare when no plan fits, outside a capture.
    pub fn prepare(mut self) -> Self {
        self.desc.flags |= sys::ATTN_EXECUTE_PREPARE as u32;
        self
    }

    /// A capture may fix lengths that lie in host memory.
    pub fn bake_host_values(mut self) -> Self {
        self.desc.flags |= sys::ATTN_EXECUTE_BAKE_HOST_VALUES as u32;
        self
    }

    /// On a stream.
    pub fn on(mut self, stream: &'a Stream<'_>) -> Self {
        self.desc.stream = stream.raw();
        self
    }

    /// The driver is not asked whether the stream captures and whether the context is the current
    /// one: it gets the launches and no other call.
    ///
    /// # Safety
    /// On a CUDA device the stream is not being captured, and the context's CUDA context is current
    /// in this thread.
    pub unsafe fn eager(mut self) -> Self {
        self.desc.flags |= sys::ATTN_EXECUTE_EAGER as u32;
        self
    }

    /// With scratch of the caller, which must be as large as the plan says.
    pub fn workspace(mut self, memory: &'a mut Memory<'_>) -> Self {
        self.desc.workspace = memory.address();
        self.desc.workspace_bytes = memory.bytes();
        self
    }

    /// On a stream of somebody else.
    ///
    /// # Safety
    /// `stream` is a `CUstream` of the context, or null, and lives until the execution has ended.
    pub unsafe fn on_raw(mut self, stream: *mut c_void) -> Self {
        self.desc.stream = stream;
        self
    }
}

/// Facts of a plan.
#[derive(Clone, Debug)]
pub struct PlanInfo {
    /// `ATTN_CAPTURE_...`
    pub capture_flags: u32,
    /// Scratch of one execute, whoever gives it.
    pub workspace_bytes: u64,
    /// Of the workspace's address.
    pub workspace_alignment: u64,
    /// The range that the plan serves: sequences of a batch,
    pub max_batch: i64,
    /// query rows of one sequence,
    pub max_query_length: i64,
    /// keys of one sequence.
    pub max_total_length: i64,
    /// Host inputs whose values a capture would fix.
    pub baked_slots: Vec<u32>,
    /// Why it cannot be captured, or what a capture fixes.
    pub reason: String,
}

impl From<sys::attn_plan_info> for PlanInfo {
    fn from(info: sys::attn_plan_info) -> Self {
        let baked = (info.baked_slot_count as usize).min(info.baked_slots.len());
        PlanInfo {
            capture_flags: info.capture_flags,
            workspace_bytes: info.workspace_bytes,
            workspace_alignment: info.workspace_alignment,
            max_batch: info.max_batch,
            max_query_length: info.max_query_length,
            max_total_length: info.max_total_length,
            baked_slots: info.baked_slots[..baked].to_vec(),
            reason: text_in(&info.reason),
        }
    }
}

/// How a shape class of an operator runs; any threads at once. Made by [`crate::Op::prepare`].
pub struct Plan {
    pub(crate) library: Library,
    pub(crate) handle: *mut sys::attn_plan,
}

// SAFETY: the C interface allows any thread, and any number of them, for plans.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    /// Workspace, capture facts and the range that it serves.
    pub fn info(&self) -> Result<PlanInfo> {
        // SAFETY: the handle is live.
        let info: sys::attn_plan_info = filled(|info, error| unsafe {
            self.library.api.attn_plan_get_info(self.handle, info, error)
        })?;
        Ok(info.into())
    }

    /// JSON for people and logs.
    pub fn describe(&self) -> Result<String> {
        // SAFETY: the handle is live, the buffer is as large as is said.
        text(|buffer, capacity, needed, error| unsafe {
            self.library.api.attn_plan_describe(self.handle, buffer, capacity, needed, error)
        })
    }

    /// Runs the plan on these tensors. CPU: returns when done. CUDA: returns when launched; memory
    /// that is freed meanwhile waits for the device. The arguments are this call's alone: what it
    /// calls back cannot run them a second time meanwhile.
    pub fn execute(
        &self,
        session: &Session,
        arguments: &mut Arguments<'_>,
        options: ExecuteOptions<'_>,
    ) -> Result<()> {
        let Arguments { inputs, outputs, .. } = arguments;
        // SAFETY: the handles are live; the arguments and the workspace borrow the memory that they
        // describe and are borrowed alone, and the session does not leave this thread.
        check(|error| unsafe {
            self.library.api.attn_plan_execute(
                self.handle,
                session.handle,
                inputs.data(),
                inputs.len(),
                outputs.data(),
                outputs.len(),
                &options.desc,
                error,
            )
        })
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the handle is this object's reference.
        unsafe { self.library.api.attn_plan_release(self.handle) }
    }
}
