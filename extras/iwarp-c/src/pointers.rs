//! What crosses the boundary: pointers, text, times.

use std::{
    ffi::{CStr, c_char},
    net::SocketAddr,
    time::Duration,
};

use crate::error::Refusal;

/// Longest text of an address, with its terminating zero.
pub const IWARP_ADDRESS_BYTES: usize = 64;
/// Longest private data.
pub const IWARP_PRIVATE_DATA_BYTES: usize = 512;

/// What a handle or structure is.
///
/// # Safety
/// `pointer` is NULL or points to a live `T` that nobody changes meanwhile.
pub(crate) unsafe fn at<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Refusal> {
    // SAFETY: the caller's.
    unsafe { pointer.as_ref() }.ok_or_else(|| Refusal::argument(format!("`{what}` is NULL")))
}

/// Gives a result out.
///
/// # Safety
/// `pointer` is NULL or has room for a `T`.
pub(crate) unsafe fn give<T>(pointer: *mut T, value: T, what: &str) -> Result<(), Refusal> {
    if pointer.is_null() {
        return Err(Refusal::argument(format!("`{what}` is NULL")));
    }
    // SAFETY: the caller's; what is there before is not read.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Gives a new handle out.
///
/// # Safety
/// `pointer` is NULL or has room for a pointer.
pub(crate) unsafe fn give_handle<T>(pointer: *mut *mut T, value: T, what: &str) -> Result<i32, Refusal> {
    if pointer.is_null() {
        return Err(Refusal::argument(format!("`{what}` is NULL")));
    }
    // SAFETY: the caller's.
    unsafe { pointer.write(Box::into_raw(Box::new(value))) };
    Ok(crate::error::IWARP_OK)
}

/// Takes a handle back to end it. NULL is nothing.
///
/// # Safety
/// `pointer` is NULL or came from [`give_handle`] and is not used again.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// A list that the caller lends.
///
/// # Safety
/// `first` has `count` elements, or `count` is 0.
pub(crate) unsafe fn list<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], Refusal> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Refusal::argument(format!("`{what}` is NULL or its count has no meaning")));
    }
    // SAFETY: the caller's.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Text that the caller lends.
///
/// # Safety
/// `text` is NULL or ends with a zero.
pub(crate) unsafe fn address(text: *const c_char, what: &str) -> Result<SocketAddr, Refusal> {
    if text.is_null() {
        return Err(Refusal::argument(format!("`{what}` is NULL")));
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    text.parse().map_err(|_| {
        let like = "write address and port, like 192.0.2.1:7174 or [2001:db8::1]:7174";
        Refusal::argument(format!("`{what}` is \"{text}\": {like}"))
    })
}

/// Text for the caller, cut to what there is room for.
pub(crate) fn words<const ROOM: usize>(text: impl ToString) -> [c_char; ROOM] {
    let mut words = [0; ROOM];
    let text = text.to_string();
    let most = ROOM.saturating_sub(1);
    for (place, byte) in words.iter_mut().zip(text.bytes().take(most)) {
        *place = byte as c_char;
    }
    words
}

/// Private data for the caller, with its length.
pub(crate) fn private_data(data: &[u8]) -> ([u8; IWARP_PRIVATE_DATA_BYTES], u32) {
    let mut bytes = [0; IWARP_PRIVATE_DATA_BYTES];
    let length = data.len().min(bytes.len());
    bytes[..length].copy_from_slice(&data[..length]);
    (bytes, length as u32)
}

/// How long to wait; `None` for ever.
pub(crate) fn timeout(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}
