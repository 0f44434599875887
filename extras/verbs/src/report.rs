//! Errors as C programs see them, and messages on standard error.

use std::{collections::HashSet, ffi::c_int, sync::Mutex};

use crate::handle::locked;

/// Sets `errno` and returns -1.
pub fn failed(code: c_int) -> c_int {
    set_errno(code);
    -1
}

/// Sets `errno` and returns NULL.
pub fn null<T>(code: c_int) -> *mut T {
    set_errno(code);
    std::ptr::null_mut()
}

/// Sets `errno`.
pub fn set_errno(code: c_int) {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = code };
}

/// Writes a line to standard error.
pub fn write_line(line: &str) {
    let text = format!("clearstream-verbs: {line}\n");
    // Nothing can be done about a closed standard error.
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
}

/// Writes a line to standard error, once per process.
pub fn notice(line: &str) {
    static WRITTEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let mut written = locked(&WRITTEN);
    if written.get_or_insert_default().insert(line.to_owned()) {
        write_line(line);
    }
}

/// Reports that a function or option is not offered, once, with what to use.
pub fn not_offered(what: &str, instead: &str) -> c_int {
    notice(&format!("{what} is not offered: {instead}"));
    libc::EOPNOTSUPP
}
