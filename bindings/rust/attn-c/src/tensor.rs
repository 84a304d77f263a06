//! Tensors in borrowed memory, and lists of them.

use std::marker::PhantomData;
use std::os::raw::c_void;

use attn_c_sys as sys;

use crate::error::Sized32;
use crate::host::Memory;
use crate::{Error, Result};

const INT: u8 = sys::ATTN_DTYPE_INT as u8;
const UINT: u8 = sys::ATTN_DTYPE_UINT as u8;
const FLOAT: u8 = sys::ATTN_DTYPE_FLOAT as u8;
const BFLOAT: u8 = sys::ATTN_DTYPE_BFLOAT as u8;

/// An element type, by DLPack's code and its size in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementType {
    /// `ATTN_DTYPE_...`
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
}

impl ElementType {
    /// IEEE half precision.
    pub const FLOAT16: ElementType = ElementType { code: FLOAT, bits: 16 };
    /// The upper half of a float32.
    pub const BFLOAT16: ElementType = ElementType { code: BFLOAT, bits: 16 };
    /// IEEE single precision.
    pub const FLOAT32: ElementType = ElementType { code: FLOAT, bits: 32 };
    /// IEEE double precision.
    pub const FLOAT64: ElementType = ElementType { code: FLOAT, bits: 64 };
    /// Signed, 32 bits.
    pub const INT32: ElementType = ElementType { code: INT, bits: 32 };
    /// Signed, 64 bits.
    pub const INT64: ElementType = ElementType { code: INT, bits: 64 };
    /// One byte, zero is false.
    pub const BOOL: ElementType = ElementType { code: sys::ATTN_DTYPE_BOOL as u8, bits: 8 };
}

/// The bits of a half precision number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The bits of a bfloat16 number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// Rust types that tensors may have as elements.
///
/// # Safety
/// `TYPE` says the type's size, and every bit pattern that the library may write is a value.
pub unsafe trait Element: Copy + 'static {
    /// What the library calls it.
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($name:ty: $code:expr),*) => {
        // SAFETY: numbers of that size; every bit pattern is one.
        $(unsafe impl Element for $name {
            const TYPE: ElementType =
                ElementType { code: $code, bits: 8 * size_of::<$name>() as u8 };
        })*
    };
}
elements!(f32: FLOAT, f64: FLOAT, F16: FLOAT, Bf16: BFLOAT, i8: INT, i16: INT, i32: INT, i64: INT,
          u8: UINT, u16: UINT, u32: UINT, u64: UINT);

/// What a tensor in the caller's memory is described by.
fn described(kind: ElementType, shape: &[i64]) -> Result<sys::attn_tensor> {
    let mut raw = sys::attn_tensor::init();
    if shape.len() > raw.shape.len() {
        let (most, got) = (raw.shape.len(), shape.len());
        return Err(Error::invalid(format!("a tensor has at most {most} axes; got {got}")));
    }
    raw.dtype = sys::attn_dtype { code: kind.code, bits: kind.bits, lanes: 1 };
    raw.ndim = shape.len() as i32;
    raw.shape[..shape.len()].copy_from_slice(shape);
    Ok(raw)
}

/// Row-major strides; none where a size is negative or the product overflows.
fn row_major(shape: &[i64]) -> Result<Vec<i64>> {
    if let Some(size) = shape.iter().find(|size| **size < 0) {
        return Err(Error::invalid(format!(
            "a tensor in memory of sizes {shape:?}: {size} is none"
        )));
    }
    let mut strides = vec![1; shape.len()];
    let mut step = 1_i64;
    for (stride, size) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.checked_mul((*size).max(1)).ok_or_else(|| {
            Error::invalid(format!("a tensor of sizes {shape:?}: more than 2^63 elements"))
        })?;
    }
    Ok(strides)
}

fn in_memory(
    kind: ElementType,
    shape: &[i64],
    strides: &[i64],
    place: (*mut c_void, u64, u64),
) -> Result<sys::attn_tensor> {
    let mut raw = described(kind, shape)?;
    if strides.len() != shape.len() {
        return Err(Error::invalid(format!(
            "a tensor needs a stride for each axis; got {} for {}",
            strides.len(),
            shape.len()
        )));
    }
    raw.flags = sys::ATTN_TENSOR_BROADCAST as u32; // strides are always stated
    raw.device_type = sys::ATTN_DEVICE_CPU;
    raw.strides[..strides.len()].copy_from_slice(strides);
    (raw.data, raw.data_bytes, raw.byte_offset) = place;
    if raw.data_bytes == 0 {
        // Zero bytes would mean that the size is unknown: say so where elements are wanted.
        if !shape.contains(&0) {
            return Err(Error::invalid("a tensor with elements lies in an empty slice"));
        }
    }
    Ok(raw)
}

fn place_of<T: Element>(
    data: *const T,
    length: usize,
    first: usize,
) -> Result<(*mut c_void, u64, u64)> {
    if first > length {
        return Err(Error::invalid(format!(
            "element (0, ..., 0) has the index {first}; the slice has {length} elements"
        )));
    }
    // Neither overflows: a slice has at most isize::MAX bytes.
    let size = size_of::<T>();
    Ok((data.cast_mut().cast(), (length * size) as u64, (first * size) as u64))
}

/// A tensor that is only read.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    pub(crate) raw: sys::attn_tensor,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Tensor<'a> {
    /// Row-major without gaps, from the begin of `data`.
    pub fn new<T: Element>(data: &'a [T], shape: &[i64]) -> Result<Self> {
        Tensor::strided(data, shape, &row_major(shape)?, 0)
    }

    /// With strides in elements, which may be 0 or negative; `first` is the index of element
    /// (0, ..., 0) in `data`. The library checks that all lies in `data`.
    pub fn strided<T: Element>(
        data: &'a [T],
        shape: &[i64],
        strides: &[i64],
        first: usize,
    ) -> Result<Self> {
        let place = place_of(data.as_ptr(), data.len(), first)?;
        let mut raw = in_memory(T::TYPE, shape, strides, place)?;
        raw.flags |= sys::ATTN_TENSOR_READ_ONLY as u32;
        Ok(Tensor { raw, memory: PhantomData })
    }

    /// Truth values, one byte each.
    pub fn of_bools(data: &'a [bool], shape: &[i64]) -> Result<Self> {
        let place = (data.as_ptr().cast_mut().cast(), data.len() as u64, 0);
        let mut raw = in_memory(ElementType::BOOL, shape, &row_major(shape)?, place)?;
        raw.flags |= sys::ATTN_TENSOR_READ_ONLY as u32;
        Ok(Tensor { raw, memory: PhantomData })
    }

    /// Row-major in device memory, from its begin.
    pub fn in_device(memory: &'a Memory<'_>, kind: ElementType, shape: &[i64]) -> Result<Self> {
        let mut raw = memory.describe(in_memory(
            kind,
            shape,
            &row_major(shape)?,
            (memory.address(), memory.bytes(), 0),
        )?);
        raw.flags |= sys::ATTN_TENSOR_READ_ONLY as u32;
        Ok(Tensor { raw, memory: PhantomData })
    }

    /// A type and a shape without memory, -1 for any size: for queries and inference.
    pub fn shape(kind: ElementType, shape: &[i64]) -> Result<Tensor<'static>> {
        Ok(Tensor { raw: described(kind, shape)?, memory: PhantomData })
    }

    /// Any memory: `bytes` of it at `address`, element (0, ..., 0) `byte_offset` behind that.
    ///
    /// # Safety
    /// The memory lives, and nobody writes to it meanwhile, as long as 'a and until executions that
    /// use it have ended.
    pub unsafe fn from_raw(
        kind: ElementType,
        shape: &[i64],
        strides: &[i64],
        address: *const c_void,
        bytes: u64,
        byte_offset: u64,
    ) -> Result<Self> {
        let raw = in_memory(kind, shape, strides, (address.cast_mut(), bytes, byte_offset))?;
        Ok(Tensor { raw, memory: PhantomData })
    }
}

/// A tensor that a call writes.
#[derive(Debug)]
pub struct TensorMut<'a> {
    pub(crate) raw: sys::attn_tensor,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> TensorMut<'a> {
    /// Row-major without gaps, from the begin of `data`.
    pub fn new<T: Element>(data: &'a mut [T], shape: &[i64]) -> Result<Self> {
        let strides = row_major(shape)?;
        TensorMut::strided(data, shape, &strides, 0)
    }

    /// With strides in elements; `first` is the index of element (0, ..., 0) in `data`.
    pub fn strided<T: Element>(
        data: &'a mut [T],
        shape: &[i64],
        strides: &[i64],
        first: usize,
    ) -> Result<Self> {
        let place = place_of(data.as_mut_ptr(), data.len(), first)?;
        Ok(TensorMut { raw: in_memory(T::TYPE, shape, strides, place)?, memory: PhantomData })
    }

    /// Row-major in device memory, from its begin.
    pub fn in_device(memory: &'a mut Memory<'_>, kind: ElementType, shape: &[i64]) -> Result<Self> {
        let place = (memory.address(), memory.bytes(), 0);
        let raw = in_memory(kind, shape, &row_major(shape)?, place)?;
        Ok(TensorMut { raw: memory.describe(raw), memory: PhantomData })
    }

    /// Any memory, as [`Tensor::from_raw`].
    ///
    /// # Safety
    /// The memory lives, and nobody else reads or writes it, as long as 'a and until executions
    /// that use it have ended, but for arguments of the same call that the library accepts beside
    /// it.
    pub unsafe fn from_raw(
        kind: ElementType,
        shape: &[i64],
        strides: &[i64],
        address: *mut c_void,
        bytes: u64,
        byte_offset: u64,
    ) -> Result<Self> {
        let raw = in_memory(kind, shape, strides, (address, bytes, byte_offset))?;
        Ok(TensorMut { raw, memory: PhantomData })
    }
}

/// Descriptions with the list that points to them.
#[derive(Debug, Default)]
pub(crate) struct List {
    // Boxed, because growing the vector must not move what the arguments point to.
    #[allow(clippy::vec_box)]
    tensors: Vec<Box<sys::attn_tensor>>,
    args: Vec<sys::attn_arg>,
}

impl List {
    fn add(&mut self, slot: u32, raw: sys::attn_tensor) {
        self.tensors.push(Box::new(raw));
        let tensor: *const sys::attn_tensor =
            self.tensors.last().map_or(std::ptr::null(), |t| &**t);
        self.args.push(sys::attn_arg { slot, reserved: 0, tensor });
    }

    pub(crate) fn data(&self) -> *const sys::attn_arg {
        self.args.as_ptr()
    }

    pub(crate) fn len(&self) -> u32 {
        self.args.len() as u32
    }
}

/// The tensors of a call by slot. It borrows their memory: what is an output is borrowed alone, so
/// that no other part of the program can look at it while the call may write it.
#[derive(Debug, Default)]
pub struct Arguments<'a> {
    pub(crate) inputs: List,
    pub(crate) outputs: List,
    pub(crate) aliases: Vec<sys::attn_alias>,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Arguments<'a> {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an input.
    pub fn input(mut self, slot: u32, tensor: Tensor<'a>) -> Self {
        self.inputs.add(slot, tensor.raw);
        self
    }

    /// Adds an output.
    pub fn output(mut self, slot: u32, tensor: TensorMut<'a>) -> Self {
        self.outputs.add(slot, tensor.raw);
        self
    }

    /// Adds an output without memory whose shape follows from the inputs: for queries and plans.
    pub fn want(mut self, slot: u32) -> Self {
        self.outputs.args.push(sys::attn_arg { slot, reserved: 0, tensor: std::ptr::null() });
        self
    }

    /// Adds one tensor as an output and as the input whose memory it may share: a cache in place.
    /// `rows` are what the input's axis 2 says, where it is shorter than the buffer: of tensors
    /// with more than two axes, and at most what the buffer has.
    pub fn in_place(
        mut self,
        input: u32,
        output: u32,
        tensor: TensorMut<'a>,
        rows: Option<i64>,
    ) -> Result<Self> {
        let mut seen = tensor.raw;
        if let Some(rows) = rows {
            let shape = &seen.shape[..seen.ndim as usize];
            if shape.len() < 3 || !(0..=shape[2]).contains(&rows) {
                return Err(Error::invalid(format!(
                    "{rows} rows of a tensor of sizes {shape:?}: rows are axis 2, and lie in it"
                )));
            }
            seen.shape[2] = rows;
        }
        self.inputs.add(input, seen);
        self.outputs.add(output, tensor.raw);
        if tensor.raw.data.is_null() {
            self.aliases.push(sys::attn_alias { input_slot: input, output_slot: output });
        }
        Ok(self)
    }
}
