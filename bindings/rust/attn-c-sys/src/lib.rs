//! The C interface of attn_c as bindgen reads it from `attn_c.h` and `attn_c_host.h`, opened at run
//! time: [`AttnC::new`] takes the library's path and finds its functions. The headers are the
//! reference of every item here; the crate `attn-c` is the safe interface.
//!
//! `bindings.rs` is committed, so that neither bindgen nor libclang is needed to build. In a
//! checkout `cargo run -p xtask -- generate` writes it again.

#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    clippy::undocumented_unsafe_blocks,
    unsafe_op_in_unsafe_fn
)]
mod bindings;

pub use bindings::*;
/// What opens the library.
pub use libloading;
