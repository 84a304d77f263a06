//! Programs that must not compile, each beside one that does and differs in a line or two. The
//! tests compile all of them, and compare the codes of the compiler's errors.
//!
//! A session may move to another thread:
//!
//! ```no_run
//! # let library = attn_c::Library::open().unwrap();
//! # let context = attn_c::Context::cpu(library).unwrap();
//! let session = attn_c::Session::new(&context, "").unwrap();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || session.poll_faults());
//! });
//! ```
//!
//! but two threads may not share it:
//!
//! ```compile_fail,E0277
//! # let library = attn_c::Library::open().unwrap();
//! # let context = attn_c::Context::cpu(library).unwrap();
//! let session = attn_c::Session::new(&context, "").unwrap();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| session.poll_faults());
//! });
//! ```
//!
//! A plan may be shared:
//!
//! ```no_run
//! fn share<T: Send + Sync>(_: &T) {}
//! fn of(shared: &(attn_c::Plan, attn_c::Op, attn_c::Context)) {
//!     share(shared);
//! }
//! ```
//!
//! a binding stays on its session's thread:
//!
//! ```compile_fail,E0277
//! fn share<T: Send>(_: &T) {}
//! fn of(shared: &attn_c::Binding<'_, '_>) {
//!     share(shared);
//! }
//! ```
//!
//! What is bound is borrowed until the binding has gone:
//!
//! ```no_run
//! # fn call(op: &attn_c::Op, session: &attn_c::Session) -> attn_c::Result<()> {
//! let mut out = [0.0_f32; 8];
//! let mut binding = attn_c::Binding::new(op, session)?;
//! binding.set_output(0, Some(attn_c::TensorMut::new(&mut out, &[1, 1, 8])?))?;
//! binding.execute(attn_c::ExecuteOptions::new())?;
//! drop(binding);
//! println!("{}", out[0]);
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0502
//! # fn call(op: &attn_c::Op, session: &attn_c::Session) -> attn_c::Result<()> {
//! let mut out = [0.0_f32; 8];
//! let mut binding = attn_c::Binding::new(op, session)?;
//! binding.set_output(0, Some(attn_c::TensorMut::new(&mut out, &[1, 1, 8])?))?;
//! binding.execute(attn_c::ExecuteOptions::new())?;
//! println!("{}", out[0]);
//! drop(binding);
//! # Ok(())
//! # }
//! ```
//!
//! so its memory may not go away before it:
//!
//! ```no_run
//! # fn call(op: &attn_c::Op, session: &attn_c::Session) -> attn_c::Result<()> {
//! let query = [0.0_f32; 8];
//! let mut binding = attn_c::Binding::new(op, session)?;
//! binding.set_input(0, Some(attn_c::Tensor::new(&query, &[1, 1, 8])?))?;
//! binding.execute(attn_c::ExecuteOptions::new())?;
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0597
//! # fn call(op: &attn_c::Op, session: &attn_c::Session) -> attn_c::Result<()> {
//! let mut binding = attn_c::Binding::new(op, session)?;
//! let query = [0.0_f32; 8];
//! binding.set_input(0, Some(attn_c::Tensor::new(&query, &[1, 1, 8])?))?;
//! binding.execute(attn_c::ExecuteOptions::new())?;
//! # Ok(())
//! # }
//! ```
//!
//! nor its session:
//!
//! ```no_run
//! # fn call(op: &attn_c::Op, session: attn_c::Session) -> attn_c::Result<()> {
//! let mut binding = attn_c::Binding::new(op, &session)?;
//! binding.execute(attn_c::ExecuteOptions::new())?;
//! drop(binding);
//! drop(session);
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0505
//! # fn call(op: &attn_c::Op, session: attn_c::Session) -> attn_c::Result<()> {
//! let mut binding = attn_c::Binding::new(op, &session)?;
//! drop(session);
//! binding.execute(attn_c::ExecuteOptions::new())?;
//! drop(binding);
//! # Ok(())
//! # }
//! ```
//!
//! An output is borrowed alone, so it can be no input of the same call by accident, but for
//! [`crate::Arguments::in_place`]:
//!
//! ```no_run
//! # fn call() -> attn_c::Result<()> {
//! let mut cache = [0.0_f32; 64];
//! let call = attn_c::Arguments::new()
//!     .in_place(3, 1, attn_c::TensorMut::new(&mut cache, &[1, 1, 8, 8])?, None)?;
//! # let _ = call; Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0502
//! # fn call() -> attn_c::Result<()> {
//! let mut cache = [0.0_f32; 64];
//! let call = attn_c::Arguments::new()
//!     .output(1, attn_c::TensorMut::new(&mut cache, &[1, 1, 8, 8])?)
//!     .input(3, attn_c::Tensor::new(&cache, &[1, 1, 8, 8])?);
//! # let _ = call; Ok(())
//! # }
//! ```
//!
//! and what is only read cannot be an output:
//!
//! ```no_run
//! let mut out = [0.0_f32; 8];
//! let tensor = attn_c::TensorMut::new(&mut out, &[1, 1, 8]);
//! ```
//!
//! ```compile_fail,E0596
//! let out = [0.0_f32; 8];
//! let tensor = attn_c::TensorMut::new(&mut out, &[1, 1, 8]);
//! ```
//!
//! An execution has its arguments alone: what it calls back, an executor for example, cannot have
//! them at the same time, whatever keeps them.
//!
//! ```no_run
//! use std::{cell::RefCell, rc::Rc};
//! fn call(
//!     plan: &attn_c::Plan,
//!     session: &attn_c::Session,
//!     kept: Rc<RefCell<attn_c::Arguments<'static>>>,
//! ) -> attn_c::Result<()> {
//!     plan.execute(session, &mut kept.borrow_mut(), attn_c::ExecuteOptions::new())
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use std::{cell::RefCell, rc::Rc};
//! fn call(
//!     plan: &attn_c::Plan,
//!     session: &attn_c::Session,
//!     kept: Rc<RefCell<attn_c::Arguments<'static>>>,
//! ) -> attn_c::Result<()> {
//!     plan.execute(session, &kept.borrow(), attn_c::ExecuteOptions::new())
//! }
//! ```
//!
//! and its workspace too:
//!
//! ```no_run
//! fn call(
//!     binding: &mut attn_c::Binding<'_, '_>,
//!     scratch: &mut attn_c::Memory<'_>,
//! ) -> attn_c::Result<()> {
//!     binding.execute(attn_c::ExecuteOptions::new().workspace(scratch))?;
//!     let again = attn_c::ExecuteOptions::new().workspace(scratch);
//!     binding.execute(again)
//! }
//! ```
//!
//! ```compile_fail,E0382
//! fn call(
//!     binding: &mut attn_c::Binding<'_, '_>,
//!     scratch: &mut attn_c::Memory<'_>,
//! ) -> attn_c::Result<()> {
//!     let again = attn_c::ExecuteOptions::new().workspace(scratch);
//!     binding.execute(again)?;
//!     binding.execute(again)
//! }
//! ```
//!
//! Device memory does not outlive its context:
//!
//! ```no_run
//! # fn call(context: attn_c::Context) -> attn_c::Result<()> {
//! let memory = attn_c::Memory::new(&context, 64, attn_c::MemoryKind::Device)?;
//! println!("{}", memory.bytes());
//! drop(memory);
//! drop(context);
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0505
//! # fn call(context: attn_c::Context) -> attn_c::Result<()> {
//! let memory = attn_c::Memory::new(&context, 64, attn_c::MemoryKind::Device)?;
//! drop(context);
//! println!("{}", memory.bytes());
//! drop(memory);
//! # Ok(())
//! # }
//! ```
