//! Programs that must not compile, each beside one that does and differs in one thing. The tests
//! compile all of them.
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
//! A plan may be shared, a binding stays on its session's thread:
//!
//! ```no_run
//! fn share<T: Send + Sync>(_: &T) {}
//! fn of_plan(plan: &attn_c::Plan, op: &attn_c::Op, context: &attn_c::Context) {
//!     share(plan);
//!     share(op);
//!     share(context);
//! }
//! ```
//!
//! ```compile_fail,E0277
//! fn send<T: Send>(_: &T) {}
//! fn of_binding(binding: &attn_c::Binding<'_, '_>) {
//!     send(binding);
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
//! binding.execute(&attn_c::ExecuteOptions::new())?;
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
//! println!("{}", out[0]);
//! binding.execute(&attn_c::ExecuteOptions::new())?;
//! # Ok(())
//! # }
//! ```
//!
//! so its memory may not go away before it:
//!
//! ```compile_fail,E0597
//! # fn call(op: &attn_c::Op, session: &attn_c::Session) -> attn_c::Result<()> {
//! let mut binding = attn_c::Binding::new(op, session)?;
//! {
//!     let query = [0.0_f32; 8];
//!     binding.set_input(0, Some(attn_c::Tensor::new(&query, &[1, 1, 8])?))?;
//! }
//! binding.execute(&attn_c::ExecuteOptions::new())?;
//! # Ok(())
//! # }
//! ```
//!
//! nor its session:
//!
//! ```compile_fail,E0505
//! # fn call(op: &attn_c::Op, session: attn_c::Session) -> attn_c::Result<()> {
//! let mut binding = attn_c::Binding::new(op, &session)?;
//! drop(session);
//! binding.execute(&attn_c::ExecuteOptions::new())?;
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
//! let tensor = attn_c::TensorMut::new(&mut cache, &[1, 1, 8, 8])?;
//! let call = attn_c::Arguments::new().in_place(3, 1, tensor, None);
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
//! ```compile_fail,E0596
//! let out = [0.0_f32; 8];
//! let tensor = attn_c::TensorMut::new(&mut out, &[1, 1, 8]);
//! ```
//!
//! Device memory does not outlive its context:
//!
//! ```compile_fail,E0505
//! # fn call(context: attn_c::Context) -> attn_c::Result<()> {
//! let memory = attn_c::Memory::new(&context, 64, attn_c::MemoryKind::Device)?;
//! drop(context);
//! println!("{}", memory.bytes());
//! # Ok(())
//! # }
//! ```
