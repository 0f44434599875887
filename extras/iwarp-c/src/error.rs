//! Results: codes, and the error message of each thread.

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CStr, CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

use clearstream_iwarp::{
    memory::{AccessError, MemoryError},
    verbs::{ConnectError, Overrun, PostError, VerbsError, raw::ListError},
};

/// Success.
pub const IWARP_OK: i32 = 0;
/// Invalid argument, or an argument is NULL where a value is required.
pub const IWARP_ERROR_ARGUMENT: i32 = -1;
/// A system call for a descriptor, a thread, a core or a socket failed.
pub const IWARP_ERROR_SYSTEM: i32 = -2;
/// A value is outside the range of the RNIC's attributes.
pub const IWARP_ERROR_RANGE: i32 = -3;
/// An object of another RNIC or domain.
pub const IWARP_ERROR_FOREIGN: i32 = -4;
/// The queue pair is in the wrong state.
pub const IWARP_ERROR_STATE: i32 = -5;
/// Memory or steering tags are exhausted.
pub const IWARP_ERROR_NO_MEMORY: i32 = -6;
/// The pages could not be locked in memory.
pub const IWARP_ERROR_NOT_PINNED: i32 = -7;
/// The object is in use: windows are bound to the region.
pub const IWARP_ERROR_BUSY: i32 = -8;
/// Invalid steering tag.
pub const IWARP_ERROR_STAG: i32 = -9;
/// The steering tag does not grant this access.
pub const IWARP_ERROR_ACCESS: i32 = -10;
/// The queue is full: poll completions first.
pub const IWARP_ERROR_QUEUE_FULL: i32 = -11;
/// A request has too many segments or bytes, or a sink of the wrong length.
pub const IWARP_ERROR_REQUEST: i32 = -12;
/// The completion queue overran and is unusable.
pub const IWARP_ERROR_OVERRUN: i32 = -13;
/// The peer did not respond in time.
pub const IWARP_ERROR_TIMED_OUT: i32 = -14;
/// The peer closed the connection during the setup.
pub const IWARP_ERROR_CLOSED: i32 = -15;
/// The peer's application rejected the connection; iwarp_rejection() returns
/// its private data.
pub const IWARP_ERROR_REJECTED: i32 = -16;
/// The two sides have no common connection parameters.
pub const IWARP_ERROR_SETUP: i32 = -17;
/// The TCP connection failed.
pub const IWARP_ERROR_CONNECT: i32 = -18;
/// Internal error of this library. The object must not be used further.
pub const IWARP_ERROR_INTERNAL: i32 = -19;

/// Error of a call.
pub(crate) struct CallError {
    pub(crate) code: i32,
    pub(crate) message: String,
    /// Private data of a rejection.
    private_data: Vec<u8>,
}

impl CallError {
    pub(crate) fn new(code: i32, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), private_data: Vec::new() }
    }

    pub(crate) fn argument(message: impl ToString) -> Self {
        Self::new(IWARP_ERROR_ARGUMENT, message)
    }
}

impl From<VerbsError> for CallError {
    fn from(error: VerbsError) -> Self {
        let code = match error {
            VerbsError::Range { .. } => IWARP_ERROR_RANGE,
            VerbsError::Foreign { .. } => IWARP_ERROR_FOREIGN,
            VerbsError::Transition { .. } => IWARP_ERROR_STATE,
            _ => IWARP_ERROR_SYSTEM,
        };
        Self::new(code, error)
    }
}

impl From<ConnectError> for CallError {
    fn from(error: ConnectError) -> Self {
        let code = match error {
            ConnectError::State(_) => IWARP_ERROR_STATE,
            ConnectError::Option(_) => IWARP_ERROR_RANGE,
            ConnectError::Tcp { .. } => IWARP_ERROR_CONNECT,
            ConnectError::TimedOut { .. } => IWARP_ERROR_TIMED_OUT,
            ConnectError::Closed { .. } => IWARP_ERROR_CLOSED,
            ConnectError::Rejected { .. } => IWARP_ERROR_REJECTED,
            ConnectError::System { .. } => IWARP_ERROR_SYSTEM,
            _ => IWARP_ERROR_SETUP,
        };
        let message = error.to_string();
        let private_data = match error {
            ConnectError::Rejected { private_data, .. } => private_data,
            _ => Vec::new(),
        };
        Self { code, message, private_data }
    }
}

impl From<MemoryError> for CallError {
    fn from(error: MemoryError) -> Self {
        let code = match &error {
            MemoryError::NoTagLeft | MemoryError::NoMemory { .. } | MemoryError::TooLong(_) => {
                IWARP_ERROR_NO_MEMORY
            }
            MemoryError::NotPinned { .. } => IWARP_ERROR_NOT_PINNED,
            MemoryError::WindowsBound(..) | MemoryError::DomainInUse(..) => IWARP_ERROR_BUSY,
            MemoryError::AddressWrap { .. } => IWARP_ERROR_RANGE,
            MemoryError::UnknownDomain(_) => IWARP_ERROR_FOREIGN,
            MemoryError::Access(_, AccessError::InvalidStag) => IWARP_ERROR_STAG,
            MemoryError::Access(..)
            | MemoryError::WrongKind(_)
            | MemoryError::Exclusive
            | MemoryError::WindowRights => IWARP_ERROR_ACCESS,
        };
        // An access error has a reason of its own.
        let message = match &error {
            MemoryError::NoMemory { source, .. } | MemoryError::NotPinned { source, .. } => {
                format!("{error}: {source}")
            }
            _ => error.to_string(),
        };
        Self::new(code, message)
    }
}

impl From<ListError> for CallError {
    fn from(error: ListError) -> Self {
        let code = match error.error {
            PostError::Full => IWARP_ERROR_QUEUE_FULL,
            PostError::NotConnected | PostError::NoReads | PostError::SharedReceives => IWARP_ERROR_STATE,
            _ => IWARP_ERROR_REQUEST,
        };
        Self::new(code, error)
    }
}

impl From<Overrun> for CallError {
    fn from(error: Overrun) -> Self {
        Self::new(IWARP_ERROR_OVERRUN, error)
    }
}

/// Last error of a thread.
#[derive(Default)]
struct Last {
    message: CString,
    rejection: Vec<u8>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Runs a function: no panic unwinds into C, and an error is stored with its
/// message.
pub(crate) fn run(act: impl FnOnce() -> Result<i32, CallError>) -> i32 {
    // State that a panic leaves half updated is behind locks that are used on
    // whole values (`rnic`), and the code notifies the caller not to use the
    // object again.
    let outcome = catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(panic_message(&*panic)));
    outcome.unwrap_or_else(|failure| {
        let code = failure.code;
        LAST.with_borrow_mut(|last| {
            last.message = text(failure.message);
            last.rejection = failure.private_data;
        });
        code
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> CallError {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
    CallError::new(IWARP_ERROR_INTERNAL, format!("internal error, please report it: {message}"))
}

fn text(message: String) -> CString {
    let bytes: Vec<u8> = message.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

/// Defines one function of the interface: versions its symbol, and catches
/// panics.
macro_rules! verb {
    ($name:literal, $act:expr) => {{
        // SAFETY: a directive of the assembler, no instruction.
        #[cfg(not(test))]
        unsafe {
            std::arch::asm!(
                concat!(".symver ", $name, ", ", $name, "@@@CLEARSTREAM_IWARP_1.0"),
                options(nomem, nostack, preserves_flags)
            );
        }
        $crate::error::run($act)
    }};
}
pub(crate) use verb;

/// Returns the message of this thread's last error: one line of English with a
/// suggested correction. Empty before the first. The text is valid until the
/// thread's next error.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn iwarp_error_message() -> *const c_char {
    let mut message = c"".as_ptr();
    verb!("iwarp_error_message", || {
        // The heap string is not moved until it is replaced.
        message = LAST.with_borrow(|last| last.message.as_ptr());
        Ok(IWARP_OK)
    });
    message
}

/// Returns a general description of a code. Valid for every number.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn iwarp_error_name(code: i32) -> *const c_char {
    let mut name = c"".as_ptr();
    verb!("iwarp_error_name", || {
        name = named(code).as_ptr();
        Ok(IWARP_OK)
    });
    name
}

/// Returns the private data with which the peer rejected this thread's last
/// failed iwarp_connect() or iwarp_advance(): copies up to `room` bytes into
/// `into` and returns their total number.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_rejection(into: *mut u8, room: usize) -> i32 {
    verb!("iwarp_rejection", || {
        LAST.with_borrow(|last| {
            let data = &last.rejection;
            if room > 0 && into.is_null() {
                return Err(CallError::argument("`into` is NULL"));
            }
            // SAFETY: upheld by the caller.
            unsafe { into.copy_from_nonoverlapping(data.as_ptr(), data.len().min(room)) };
            Ok(data.len() as i32)
        })
    })
}

fn named(code: i32) -> &'static CStr {
    match code {
        0.. => c"success",
        IWARP_ERROR_ARGUMENT => c"invalid argument",
        IWARP_ERROR_SYSTEM => c"system call failed",
        IWARP_ERROR_RANGE => c"out of range",
        IWARP_ERROR_FOREIGN => c"belongs to another RNIC or domain",
        IWARP_ERROR_STATE => c"wrong state of the queue pair",
        IWARP_ERROR_NO_MEMORY => c"no memory or steering tag left",
        IWARP_ERROR_NOT_PINNED => c"memory cannot be pinned",
        IWARP_ERROR_BUSY => c"still in use",
        IWARP_ERROR_STAG => c"invalid steering tag",
        IWARP_ERROR_ACCESS => c"not allowed by the steering tag",
        IWARP_ERROR_QUEUE_FULL => c"queue is full",
        IWARP_ERROR_REQUEST => c"request is too long",
        IWARP_ERROR_OVERRUN => c"completion queue overran",
        IWARP_ERROR_TIMED_OUT => c"timed out",
        IWARP_ERROR_CLOSED => c"closed by the peer",
        IWARP_ERROR_REJECTED => c"rejected by the peer",
        IWARP_ERROR_SETUP => c"connection setup failed",
        IWARP_ERROR_CONNECT => c"TCP could not connect",
        IWARP_ERROR_INTERNAL => c"internal error",
        _ => c"unknown code",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may end by panic")]
mod tests {
    use std::ffi::CStr;

    use super::{CallError, IWARP_ERROR_INTERNAL, IWARP_ERROR_RANGE, iwarp_error_message, run};

    fn message() -> String {
        // SAFETY: a string of this library, valid until the next error.
        unsafe { CStr::from_ptr(iwarp_error_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_code_and_a_message() {
        let number = 7;
        assert_eq!(run(|| panic!("out of {number}")), IWARP_ERROR_INTERNAL);
        assert!(message().ends_with("please report it: out of 7"), "{}", message());
    }

    #[test]
    fn messages_are_per_thread_and_valid_until_the_next_error() {
        assert_eq!(run(|| Err(CallError::new(IWARP_ERROR_RANGE, "too\0many"))), IWARP_ERROR_RANGE);
        assert_eq!(run(|| Ok(3)), 3);
        assert_eq!(message(), "toomany");
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
    }
}
