//! Conversion of arguments and results: pointers, text, times.

use std::{
    ffi::{CStr, c_char},
    net::SocketAddr,
    time::Duration,
};

use crate::error::CallError;

/// Maximum length of an address as text, including its terminating zero.
pub const IWARP_ADDRESS_BYTES: usize = 64;
/// Maximum length of private data.
pub const IWARP_PRIVATE_DATA_BYTES: usize = 512;

/// Dereferences a handle or structure.
///
/// # Safety
/// `pointer` is NULL or points to a live `T` that is not modified meanwhile.
pub(crate) unsafe fn at<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, CallError> {
    // SAFETY: upheld by the caller.
    unsafe { pointer.as_ref() }.ok_or_else(|| CallError::argument(format!("`{what}` is NULL")))
}

/// Stores a result.
///
/// # Safety
/// `pointer` is NULL or has room for a `T`.
pub(crate) unsafe fn give<T>(pointer: *mut T, value: T, what: &str) -> Result<(), CallError> {
    if pointer.is_null() {
        return Err(CallError::argument(format!("`{what}` is NULL")));
    }
    // SAFETY: upheld by the caller; the previous value is not read.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Stores a new handle.
///
/// # Safety
/// `pointer` is NULL or has room for a pointer.
pub(crate) unsafe fn give_handle<T>(pointer: *mut *mut T, value: T, what: &str) -> Result<i32, CallError> {
    if pointer.is_null() {
        return Err(CallError::argument(format!("`{what}` is NULL")));
    }
    // SAFETY: upheld by the caller.
    unsafe { pointer.write(Box::into_raw(Box::new(value))) };
    Ok(crate::error::IWARP_OK)
}

/// Takes ownership of a handle to release it. `None` for NULL.
///
/// # Safety
/// `pointer` is NULL or was created by [`give_handle`] and is not used again.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: upheld by the caller.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// Returns a list owned by the caller.
///
/// # Safety
/// `first` has `count` elements, or `count` is 0.
pub(crate) unsafe fn list<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], CallError> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(CallError::argument(format!("`{what}` is NULL or its count is invalid")));
    }
    // SAFETY: upheld by the caller.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Parses an address as text owned by the caller.
///
/// # Safety
/// `text` is NULL or ends with a zero.
pub(crate) unsafe fn address(text: *const c_char, what: &str) -> Result<SocketAddr, CallError> {
    if text.is_null() {
        return Err(CallError::argument(format!("`{what}` is NULL")));
    }
    // SAFETY: upheld by the caller.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    text.parse().map_err(|_| {
        let like = "write address and port, like 192.0.2.1:7174 or [2001:db8::1]:7174";
        CallError::argument(format!("`{what}` is \"{text}\": {like}"))
    })
}

/// Converts to text for the caller, truncated to the buffer.
pub(crate) fn fixed_text<const ROOM: usize>(text: impl ToString) -> [c_char; ROOM] {
    let mut fixed_text = [0; ROOM];
    let text = text.to_string();
    let most = ROOM.saturating_sub(1);
    for (place, byte) in fixed_text.iter_mut().zip(text.bytes().take(most)) {
        *place = byte as c_char;
    }
    fixed_text
}

/// Converts private data for the caller, with its length.
pub(crate) fn private_data(data: &[u8]) -> ([u8; IWARP_PRIVATE_DATA_BYTES], u32) {
    let mut bytes = [0; IWARP_PRIVATE_DATA_BYTES];
    let length = data.len().min(bytes.len());
    bytes[..length].copy_from_slice(&data[..length]);
    (bytes, length as u32)
}

/// Converts a timeout; `None` is without limit.
pub(crate) fn timeout(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}
