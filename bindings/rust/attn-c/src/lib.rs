//! Attention operators of language models, by the plugin attn_c, which is opened at run time.
//!
//! ```
//! # fn main() -> attn_c::Result<()> {
//! use attn_c::{Arguments, Context, ExecuteOptions, Library, Op, PrepareOptions, Session, Tensor,
//!              TensorMut};
//!
//! let context = Context::cpu(Library::open()?)?;
//! let heads = [("num_heads", 2.into()), ("kv_num_heads", 1.into())];
//! let op = Op::new(&context, "com.microsoft", "GroupQueryAttention", 1, &heads, "layer 0")?;
//! let session = Session::new(&context, "")?;
//!
//! // One token: two queries, a key and a value of four channels each.
//! let qkv = [0.0_f32, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0];
//! let (last, total) = ([0_i32], [1_i32]);
//! let mut out = [0.0_f32; 8];
//! let mut call = Arguments::new()
//!     .input(0, Tensor::new(&qkv, &[1, 1, 16])?)
//!     .input(5, Tensor::new(&last, &[1])?)
//!     .input(6, Tensor::new(&total, &[])?)
//!     .output(0, TensorMut::new(&mut out, &[1, 1, 8])?);
//! let plan = op.prepare(&call, &PrepareOptions::default())?;
//! plan.execute(&session, &mut call, ExecuteOptions::new())?;
//! assert_eq!(out, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
//! # Ok(())
//! # }
//! ```
//!
//! Types have the thread rules of the C interface: [`Context`], [`Op`] and [`Plan`] serve any
//! threads at once, a [`Session`] one at a time, a [`Binding`] stays where its session is. Tensors
//! borrow their memory; the module [`misuse`] shows what therefore does not compile.

mod binding;
mod callbacks;
mod context;
mod error;
mod host;
mod library;
pub mod misuse;
mod op;
mod plan;
mod session;
mod tensor;

pub use attn_c_sys as sys;
pub use binding::Binding;
pub use callbacks::{Allocator, Executor, Log, Severity};
pub use context::{Context, ContextInfo, ContextOptions, ContextStats, NativeContext};
pub use error::{Error, Result, Status};
pub use host::{Graph, Memory, MemoryKind, Stream};
pub use library::{AttributeInfo, DeviceInfo, Library, OperatorInfo, SlotInfo};
pub use op::{Attribute, Inferred, Op, Support};
pub use plan::{ExecuteOptions, Plan, PlanInfo, PrepareOptions};
pub use session::{FaultInfo, Session};
pub use tensor::{Arguments, Bf16, Element, ElementType, Tensor, TensorMut, F16};
