//! What a call failed with.

use std::ffi::CStr;
use std::os::raw::c_char;

use attn_c_sys as sys;

/// The kind of a failure; the C header says which functions give which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// The caller's mistake.
    InvalidArgument,
    /// A legal request that no engine serves.
    Unsupported,
    /// An interface or a struct that is newer than the library.
    Version,
    /// No driver, device or compiler library.
    Unavailable,
    /// No plan fits the call: prepare first.
    NotPrepared,
    /// Not possible while the stream captures.
    Capture,
    /// A one-at-a-time object is in use elsewhere.
    Busy,
    /// Memory could not be had.
    OutOfMemory,
    /// A kernel did not compile.
    Compile,
    /// The driver or the device reported an error.
    Device,
    /// The session is poisoned by a device fault.
    Fault,
    /// A defect of the library.
    Internal,
    /// A status of a newer library.
    Other(i32),
}

const STATUSES: [(i32, Status); 12] = [
    (sys::ATTN_INVALID_ARGUMENT, Status::InvalidArgument),
    (sys::ATTN_UNSUPPORTED, Status::Unsupported),
    (sys::ATTN_VERSION, Status::Version),
    (sys::ATTN_UNAVAILABLE, Status::Unavailable),
    (sys::ATTN_NOT_PREPARED, Status::NotPrepared),
    (sys::ATTN_CAPTURE, Status::Capture),
    (sys::ATTN_BUSY, Status::Busy),
    (sys::ATTN_OUT_OF_MEMORY, Status::OutOfMemory),
    (sys::ATTN_COMPILE, Status::Compile),
    (sys::ATTN_DEVICE, Status::Device),
    (sys::ATTN_FAULT, Status::Fault),
    (sys::ATTN_INTERNAL, Status::Internal),
];

impl Status {
    pub(crate) fn from_code(code: i32) -> Self {
        let known = STATUSES.iter().find(|(one, _)| *one == code);
        known.map_or(Status::Other(code), |(_, status)| *status)
    }

    /// The number of the C interface, `ATTN_...`.
    pub fn code(self) -> i32 {
        match self {
            Status::Other(code) => code,
            known => STATUSES.iter().find(|(_, one)| *one == known).map_or(0, |(code, _)| *code),
        }
    }
}

/// A call that failed. Its text names operator, argument, what came and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of failure.
    pub status: Status,
    /// The code of the driver, the compiler or the system; 0 is none.
    pub native_code: i64,
    /// Whose that code is, `ATTN_DOMAIN_...`.
    pub native_domain: u32,
    /// The device context is lost: retrying cannot help.
    pub sticky: bool,
    /// What went wrong, in words.
    pub message: String,
}

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        let message = message.into();
        Error { status, native_code: 0, native_domain: 0, sticky: false, message }
    }

    /// A mistake that shows before the library is asked.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Error::new(Status::InvalidArgument, message)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The text in an array of the library's, which it terminates.
pub(crate) fn text_in(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text that the library points to; empty for null.
///
/// # Safety
/// `text` is null or points to a terminated text.
pub(crate) unsafe fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The words of a list of the library's, which joins them with ","; none of an empty text.
pub(crate) fn words(list: &str) -> Vec<String> {
    list.split(',').filter(|word| !word.is_empty()).map(str::to_string).collect()
}

/// Runs `call` with an error to fill, and turns what it returns into a result.
pub(crate) fn check(call: impl FnOnce(*mut sys::attn_error) -> sys::attn_status) -> Result<()> {
    let mut error = sys::attn_error {
        struct_size: size_of::<sys::attn_error>() as u32,
        status: 0,
        native_code: 0,
        native_domain: 0,
        flags: 0,
        message: [0; 1000],
    };
    let status = call(&mut error);
    if status == sys::ATTN_OK {
        return Ok(());
    }
    Err(Error {
        status: Status::from_code(status),
        native_code: error.native_code,
        native_domain: error.native_domain,
        sticky: error.flags & sys::ATTN_ERROR_STICKY as u32 != 0,
        message: text_in(&error.message),
    })
}

/// Structs of the C interface that begin with their size.
///
/// # Safety
/// The type is plain C data that begins with its size as a `u32` and may be all zero.
pub(crate) unsafe trait Sized32: Copy {
    /// Zeroes, and the size: the C header's `ATTN_..._INIT`.
    fn init() -> Self {
        let mut value = std::mem::MaybeUninit::<Self>::zeroed();
        // SAFETY: the type is plain data that may be zero and begins with its size.
        unsafe {
            value.as_mut_ptr().cast::<u32>().write(size_of::<Self>() as u32);
            value.assume_init()
        }
    }
}

macro_rules! sized {
    ($($name:ident),*) => {
        // SAFETY: the headers declare these as structs of numbers and pointers, size first.
        $(unsafe impl Sized32 for sys::$name {})*
    };
}
sized!(
    attn_tensor,
    attn_logger,
    attn_allocator,
    attn_executor,
    attn_device_info,
    attn_context_desc,
    attn_context_info,
    attn_context_stats,
    attn_operator_info,
    attn_slot_info,
    attn_attribute_info,
    attn_op_desc,
    attn_query_desc,
    attn_support,
    attn_prepare_desc,
    attn_plan_info,
    attn_execute_desc,
    attn_session_desc,
    attn_fault_info
);

/// A struct that `call` fills.
pub(crate) fn filled<T: Sized32>(
    call: impl FnOnce(*mut T, *mut sys::attn_error) -> sys::attn_status,
) -> Result<T> {
    let mut value = T::init();
    check(|error| call(&mut value, error))?;
    Ok(value)
}

/// A text by the two-call rule; `call` gets buffer, capacity and where to say what is needed.
pub(crate) fn text(
    mut call: impl FnMut(*mut c_char, usize, *mut usize, *mut sys::attn_error) -> sys::attn_status,
) -> Result<String> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut needed = 256_usize;
    while bytes.len() < needed {
        bytes.resize(needed, 0);
        check(|error| call(bytes.as_mut_ptr().cast(), bytes.len(), &mut needed, error))?;
    }
    bytes.truncate(needed.saturating_sub(1));
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
