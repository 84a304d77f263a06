//! Bindings: an operator's tensors tied to a session.

use std::marker::PhantomData;

use attn_c_sys as sys;

use crate::context::c_text;
use crate::error::{check, filled, text};
use crate::plan::{ExecuteOptions, PlanInfo, PrepareOptions};
use crate::{Arguments, Library, Op, Result, Session, Tensor, TensorMut};

/// An operator's tensors tied to a session, with the plan that fits them. It borrows the memory of
/// the tensors ('m) and the session ('s), and stays on the session's thread.
pub struct Binding<'s, 'm> {
    library: Library,
    handle: *mut sys::attn_binding,
    session: PhantomData<&'s Session>,
    memory: PhantomData<&'m mut [u8]>,
}

impl<'s, 'm> Binding<'s, 'm> {
    /// Ties an operator to a session; both must be of one context.
    pub fn new(op: &Op, session: &'s Session) -> Result<Self> {
        let library = op.library;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handles are live.
        check(|error| unsafe {
            library.api.attn_binding_create(op.handle, session.handle, &mut handle, error)
        })?;
        Ok(Binding { library, handle, session: PhantomData, memory: PhantomData })
    }

    /// Binds one input; `None` unbinds.
    pub fn set_input(&mut self, slot: u32, tensor: Option<Tensor<'m>>) -> Result<()> {
        let raw = tensor.as_ref().map_or(std::ptr::null(), |tensor| &raw const tensor.raw);
        // SAFETY: the description lives until the call ends, its memory while the binding does.
        check(|error| unsafe {
            self.library.api.attn_binding_set_input(self.handle, slot, raw, error)
        })
    }

    /// Binds one output; `None` unbinds.
    pub fn set_output(&mut self, slot: u32, tensor: Option<TensorMut<'m>>) -> Result<()> {
        let raw = tensor.as_ref().map_or(std::ptr::null(), |tensor| &raw const tensor.raw);
        // SAFETY: as above.
        check(|error| unsafe {
            self.library.api.attn_binding_set_output(self.handle, slot, raw, error)
        })
    }

    /// Replaces all tensors at once. On failure the old ones stay.
    pub fn set_tensors(&mut self, arguments: Arguments<'m>) -> Result<()> {
        let Arguments { inputs, outputs, .. } = &arguments;
        // SAFETY: the lists are copied; their memory lives as long as the binding.
        check(|error| unsafe {
            self.library.api.attn_binding_set_tensors(
                self.handle,
                inputs.data(),
                inputs.len(),
                outputs.data(),
                outputs.len(),
                error,
            )
        })
    }

    /// Finds or makes the plan for what is bound.
    pub fn prepare(&mut self, options: &PrepareOptions) -> Result<()> {
        let engine = c_text(options.engine.as_deref())?;
        let desc = options.desc(&engine);
        // SAFETY: the handle is live, and so is the engine's name.
        check(|error| unsafe { self.library.api.attn_binding_prepare(self.handle, &desc, error) })
    }

    /// Runs what is bound.
    pub fn execute(&mut self, options: ExecuteOptions<'_>) -> Result<()> {
        // SAFETY: the handle is live, and so is the memory of its tensors.
        check(|error| unsafe {
            self.library.api.attn_binding_execute(self.handle, &options.desc, error)
        })
    }

    /// Facts of its plan; that there is none yet.
    pub fn capture_support(&self) -> Result<PlanInfo> {
        // SAFETY: the handle is live.
        let info: sys::attn_plan_info = filled(|info, error| unsafe {
            self.library.api.attn_binding_capture_support(self.handle, info, error)
        })?;
        Ok(info.into())
    }

    /// As [`crate::Plan::describe`].
    pub fn describe(&self) -> Result<String> {
        // SAFETY: the handle is live, the buffer is as large as is said.
        text(|buffer, capacity, needed, error| unsafe {
            self.library.api.attn_binding_describe(self.handle, buffer, capacity, needed, error)
        })
    }
}

impl Drop for Binding<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this object's reference.
        unsafe { self.library.api.attn_binding_release(self.handle) }
    }
}
