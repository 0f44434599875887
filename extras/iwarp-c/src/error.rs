//! Results: codes, and words for each thread's last error.

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

/// Done.
pub const IWARP_OK: i32 = 0;
/// An argument is NULL where something is needed, or has no meaning.
pub const IWARP_ERROR_ARGUMENT: i32 = -1;
/// The system refused a descriptor, a thread, a core or a socket.
pub const IWARP_ERROR_SYSTEM: i32 = -2;
/// A number is outside of what the RNIC's attributes allow.
pub const IWARP_ERROR_RANGE: i32 = -3;
/// Objects of two RNICs, or of two domains where one is needed.
pub const IWARP_ERROR_FOREIGN: i32 = -4;
/// The queue pair is in another state than this needs.
pub const IWARP_ERROR_STATE: i32 = -5;
/// There is not as much memory, or no steering tag left.
pub const IWARP_ERROR_NO_MEMORY: i32 = -6;
/// The system refused to keep pages in memory.
pub const IWARP_ERROR_NOT_PINNED: i32 = -7;
/// Something still uses it: windows are bound to the region.
pub const IWARP_ERROR_BUSY: i32 = -8;
/// The steering tag names nothing valid.
pub const IWARP_ERROR_STAG: i32 = -9;
/// The steering tag exists and does not allow this.
pub const IWARP_ERROR_ACCESS: i32 = -10;
/// The queue is full: poll completions first.
pub const IWARP_ERROR_QUEUE_FULL: i32 = -11;
/// A request has too many segments or bytes, or a sink of the wrong length.
pub const IWARP_ERROR_REQUEST: i32 = -12;
/// The completion queue got more completions than it holds and is lost.
pub const IWARP_ERROR_OVERRUN: i32 = -13;
/// The peer did not answer in time.
pub const IWARP_ERROR_TIMED_OUT: i32 = -14;
/// The peer closed the connection before it was set up.
pub const IWARP_ERROR_CLOSED: i32 = -15;
/// The peer's program refused; iwarp_rejection() has what it said.
pub const IWARP_ERROR_REJECTED: i32 = -16;
/// Both sides do not agree on how to speak.
pub const IWARP_ERROR_SETUP: i32 = -17;
/// TCP could not connect.
pub const IWARP_ERROR_CONNECT: i32 = -18;
/// A mistake of this library. The object concerned is not to be used further.
pub const IWARP_ERROR_INTERNAL: i32 = -19;

/// Why a call is refused.
pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) message: String,
    /// What a peer said when it rejected.
    private_data: Vec<u8>,
}

impl Refusal {
    pub(crate) fn new(code: i32, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), private_data: Vec::new() }
    }

    pub(crate) fn argument(message: impl ToString) -> Self {
        Self::new(IWARP_ERROR_ARGUMENT, message)
    }
}

impl From<VerbsError> for Refusal {
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

impl From<ConnectError> for Refusal {
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

impl From<MemoryError> for Refusal {
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
        // A refused tag has a reason of its own.
        let message = match &error {
            MemoryError::NoMemory { source, .. } | MemoryError::NotPinned { source, .. } => {
                format!("{error}: {source}")
            }
            _ => error.to_string(),
        };
        Self::new(code, message)
    }
}

impl From<ListError> for Refusal {
    fn from(error: ListError) -> Self {
        let code = match error.error {
            PostError::Full => IWARP_ERROR_QUEUE_FULL,
            PostError::NotConnected | PostError::NoReads | PostError::SharedReceives => IWARP_ERROR_STATE,
            _ => IWARP_ERROR_REQUEST,
        };
        Self::new(code, error)
    }
}

impl From<Overrun> for Refusal {
    fn from(error: Overrun) -> Self {
        Self::new(IWARP_ERROR_OVERRUN, error)
    }
}

/// What is told of a thread's last refused call.
#[derive(Default)]
struct Last {
    message: CString,
    rejection: Vec<u8>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Carries a function out: nothing unwinds into C, and a refusal is kept in
/// words.
pub(crate) fn run(act: impl FnOnce() -> Result<i32, Refusal>) -> i32 {
    // What a panic leaves half done is behind locks that are used on whole
    // values (`rnic`), and the caller is told not to use the object again.
    let outcome = catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(told(&*panic)));
    outcome.unwrap_or_else(|refusal| {
        let code = refusal.code;
        LAST.with_borrow_mut(|last| {
            last.message = text(refusal.message);
            last.rejection = refusal.private_data;
        });
        code
    })
}

fn told(panic: &(dyn Any + Send)) -> Refusal {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it gave no reason");
    Refusal::new(IWARP_ERROR_INTERNAL, format!("mistake of this library, please report it: {words}"))
}

fn text(words: String) -> CString {
    let bytes: Vec<u8> = words.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

/// Makes one function of the interface: gives its symbol a version, and lets
/// no panic out of it.
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

/// Why this thread's last refused call was refused, in one line of English that
/// says what to do instead. Empty before the first. The text stays until the
/// thread's next refused call.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn iwarp_error_message() -> *const c_char {
    let mut message = c"".as_ptr();
    verb!("iwarp_error_message", || {
        // The string on the heap stays where it is until it is replaced.
        message = LAST.with_borrow(|last| last.message.as_ptr());
        Ok(IWARP_OK)
    });
    message
}

/// What a code means, in general. For every number.
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

/// What the peer said when it rejected this thread's last refused
/// iwarp_connect() or iwarp_advance(): copies up to `room` bytes into `into`
/// and returns how many there are.
///
/// # Safety
/// `into` has `room` bytes, or `room` is 0.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_rejection(into: *mut u8, room: usize) -> i32 {
    verb!("iwarp_rejection", || {
        LAST.with_borrow(|last| {
            let said = &last.rejection;
            if room > 0 && into.is_null() {
                return Err(Refusal::argument("`into` is NULL"));
            }
            // SAFETY: the caller's.
            unsafe { into.copy_from_nonoverlapping(said.as_ptr(), said.len().min(room)) };
            Ok(said.len() as i32)
        })
    })
}

fn named(code: i32) -> &'static CStr {
    match code {
        0.. => c"success",
        IWARP_ERROR_ARGUMENT => c"an argument has no meaning",
        IWARP_ERROR_SYSTEM => c"refused by the system",
        IWARP_ERROR_RANGE => c"out of range",
        IWARP_ERROR_FOREIGN => c"belongs to another RNIC or domain",
        IWARP_ERROR_STATE => c"wrong state of the queue pair",
        IWARP_ERROR_NO_MEMORY => c"no memory or steering tag left",
        IWARP_ERROR_NOT_PINNED => c"memory can not be pinned",
        IWARP_ERROR_BUSY => c"still in use",
        IWARP_ERROR_STAG => c"invalid steering tag",
        IWARP_ERROR_ACCESS => c"not allowed by the steering tag",
        IWARP_ERROR_QUEUE_FULL => c"queue is full",
        IWARP_ERROR_REQUEST => c"request is too long",
        IWARP_ERROR_OVERRUN => c"completion queue overran",
        IWARP_ERROR_TIMED_OUT => c"timed out",
        IWARP_ERROR_CLOSED => c"closed by the peer",
        IWARP_ERROR_REJECTED => c"rejected by the peer",
        IWARP_ERROR_SETUP => c"connection set-up failed",
        IWARP_ERROR_CONNECT => c"TCP could not connect",
        IWARP_ERROR_INTERNAL => c"mistake of this library",
        _ => c"no code of this library",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may end by panic")]
mod tests {
    use std::ffi::CStr;

    use super::{IWARP_ERROR_INTERNAL, IWARP_ERROR_RANGE, Refusal, iwarp_error_message, run};

    fn message() -> String {
        // SAFETY: a text of this library, until the next refusal.
        unsafe { CStr::from_ptr(iwarp_error_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_code_and_words() {
        let number = 7;
        assert_eq!(run(|| panic!("out of {number}")), IWARP_ERROR_INTERNAL);
        assert!(message().ends_with("please report it: out of 7"), "{}", message());
    }

    #[test]
    fn words_belong_to_the_thread_and_stay_until_the_next_refusal() {
        assert_eq!(run(|| Err(Refusal::new(IWARP_ERROR_RANGE, "too\0many"))), IWARP_ERROR_RANGE);
        assert_eq!(run(|| Ok(3)), 3);
        assert_eq!(message(), "toomany");
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
    }
}
