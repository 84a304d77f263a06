//! Operators: attributes, the claim gate, inference, plans.

use std::ffi::CString;

use attn_c_sys as sys;

use crate::context::{c_text, pointer};
use crate::error::{check, filled, text_in, Sized32};
use crate::plan::{Plan, PrepareOptions};
use crate::{Arguments, Context, Error, Library, Result, Status};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// INT
    Int(i64),
    /// FLOAT
    Float(f64),
    /// STRING
    Text(String),
    /// INTS
    Ints(Vec<i64>),
    /// FLOATS
    Floats(Vec<f32>),
}

macro_rules! attribute_from {
    ($($name:ty => $kind:ident),*) => {
        $(impl From<$name> for Attribute {
            fn from(value: $name) -> Self {
                Attribute::$kind(value.into())
            }
        })*
    };
}
attribute_from!(i32 => Int, i64 => Int, f32 => Float, f64 => Float, &str => Text, String => Text,
                Vec<i64> => Ints, Vec<f32> => Floats);

/// The claim gate's answer.
#[derive(Clone, Debug)]
pub struct Support {
    /// Whether the operator would run.
    pub supported: bool,
    /// What prepare would fail with.
    pub status: Option<Status>,
    /// `ATTN_CAPTURE_...`
    pub capture_flags: u32,
    /// Argument, what came, what is accepted; empty when supported.
    pub reason: String,
}

/// What an output will be.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// DLPack's code and bits of its elements.
    pub kind: crate::ElementType,
    /// Sizes; -1 where a value decides.
    pub shape: Vec<i64>,
    /// Some size is -1, since it depends on a value that is not at hand.
    pub depends_on_value: bool,
}

/// An operator with its attributes; any threads at once.
pub struct Op {
    pub(crate) library: Library,
    pub(crate) handle: *mut sys::attn_op,
}

// SAFETY: the C interface allows any thread, and any number of them, for operators.
unsafe impl Send for Op {}
// SAFETY: as above.
unsafe impl Sync for Op {}

/// An attribute as C has it; `name` and `value` must outlive it.
fn raw_attribute(name: &CString, value: &Attribute) -> sys::attn_attribute {
    let mut raw = sys::attn_attribute {
        name: name.as_ptr(),
        type_: 0,
        count: 0,
        i: 0,
        f: 0.0,
        data: std::ptr::null(),
    };
    let mut list = |kind: i32, data: *const std::os::raw::c_void, count: usize| {
        raw.type_ = kind as u32;
        raw.data = data;
        raw.count = count as u32;
    };
    match value {
        Attribute::Int(number) => {
            list(sys::ATTN_ATTRIBUTE_INT, std::ptr::null(), 0);
            raw.i = *number;
        }
        Attribute::Float(number) => {
            list(sys::ATTN_ATTRIBUTE_FLOAT, std::ptr::null(), 0);
            raw.f = *number;
        }
        // An empty text must not read as terminated by a zero that Rust's lack.
        Attribute::Text(text) if text.is_empty() => {
            list(sys::ATTN_ATTRIBUTE_STRING, c"".as_ptr().cast(), 0);
        }
        Attribute::Text(text) => {
            list(sys::ATTN_ATTRIBUTE_STRING, text.as_ptr().cast(), text.len());
        }
        Attribute::Ints(values) => {
            list(sys::ATTN_ATTRIBUTE_INTS, values.as_ptr().cast(), values.len());
        }
        Attribute::Floats(values) => {
            list(sys::ATTN_ATTRIBUTE_FLOATS, values.as_ptr().cast(), values.len());
        }
    }
    raw
}

impl Op {
    /// Creates an operator: checks name, version and every attribute. `label` is the node's name
    /// for messages, and may be empty.
    pub fn new(
        context: &Context,
        domain: &str,
        name: &str,
        version: i32,
        attributes: &[(&str, Attribute)],
        label: &str,
    ) -> Result<Self> {
        let names: Vec<CString> = attributes
            .iter()
            .map(|(name, _)| CString::new(*name))
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| Error::invalid("an attribute's name contains a zero byte"))?;
        let raw: Vec<sys::attn_attribute> = names
            .iter()
            .zip(attributes)
            .map(|(name, (_, value))| raw_attribute(name, value))
            .collect();
        let (domain, name) = (c_text(Some(domain))?, c_text(Some(name))?);
        let label = c_text(Some(label).filter(|label| !label.is_empty()))?;
        let mut desc = sys::attn_op_desc::init();
        desc.domain = pointer(&domain);
        desc.type_ = pointer(&name);
        desc.label = pointer(&label);
        desc.attributes = raw.as_ptr();
        desc.attribute_count = raw.len() as u32;
        desc.version = version;
        let library = context.library;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is live, and everything that the struct points to is too.
        check(|error| unsafe {
            library.api.attn_op_create(context.handle, &desc, &mut handle, error)
        })?;
        Ok(Op { library, handle })
    }

    /// The claim gate: whether the operator would run with these arguments. No data is touched.
    pub fn query(&self, arguments: &Arguments<'_>, engine: Option<&str>) -> Result<Support> {
        let engine = c_text(engine)?;
        let mut desc = sys::attn_query_desc::init();
        desc.inputs = arguments.inputs.data();
        desc.input_count = arguments.inputs.len();
        desc.outputs = arguments.outputs.data();
        desc.output_count = arguments.outputs.len();
        desc.aliases = arguments.aliases.as_ptr();
        desc.alias_count = arguments.aliases.len() as u32;
        desc.engine = pointer(&engine);
        // SAFETY: the handle is live, and the lists live until the call has ended.
        let answer: sys::attn_support = filled(|answer, error| unsafe {
            self.library.api.attn_op_query(self.handle, &desc, answer, error)
        })?;
        Ok(Support {
            supported: answer.supported != 0,
            status: (answer.status != sys::ATTN_OK).then(|| Status::from_code(answer.status)),
            capture_flags: answer.capture_flags,
            reason: text_in(&answer.reason),
        })
    }

    /// Type and shape of the output in `slot` for these inputs.
    pub fn infer_output(&self, arguments: &Arguments<'_>, slot: u32) -> Result<Inferred> {
        let mut depends = 0;
        let inputs = &arguments.inputs;
        // SAFETY: as above.
        let output: sys::attn_tensor = filled(|output, error| unsafe {
            self.library.api.attn_op_infer_output(
                self.handle,
                inputs.data(),
                inputs.len(),
                slot,
                output,
                &mut depends,
                error,
            )
        })?;
        let rank = usize::try_from(output.ndim).unwrap_or(0).min(output.shape.len());
        Ok(Inferred {
            kind: crate::ElementType { code: output.dtype.code, bits: output.dtype.bits },
            shape: output.shape[..rank].to_vec(),
            depends_on_value: depends != 0,
        })
    }

    /// Plans the operator for a shape class; equal classes of equal operators share one plan.
    pub fn prepare(&self, arguments: &Arguments<'_>, options: &PrepareOptions) -> Result<Plan> {
        let engine = c_text(options.engine.as_deref())?;
        let mut desc = options.desc(&engine);
        desc.inputs = arguments.inputs.data();
        desc.input_count = arguments.inputs.len();
        desc.outputs = arguments.outputs.data();
        desc.output_count = arguments.outputs.len();
        desc.aliases = arguments.aliases.as_ptr();
        desc.alias_count = arguments.aliases.len() as u32;
        let mut handle = std::ptr::null_mut();
        // SAFETY: as above.
        check(|error| unsafe {
            self.library.api.attn_op_prepare(self.handle, &desc, &mut handle, error)
        })?;
        Ok(Plan { library: self.library, handle })
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        // SAFETY: the handle is this object's reference.
        unsafe { self.library.api.attn_op_release(self.handle) }
    }
}
