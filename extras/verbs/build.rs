//! Linking of the shared library: its own socket calls reach the kernel by
//! names that no other preloaded library replaces (`src/kernel.rs`).

/// Functions of the C library that librspreload replaces in a process.
const REPLACED: [&str; 24] = [
    "accept",
    "accept4",
    "bind",
    "close",
    "connect",
    "fcntl",
    "getpeername",
    "getsockname",
    "getsockopt",
    "listen",
    "poll",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmsg",
    "send",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "socket",
    "write",
    "writev",
];

fn main() {
    for name in REPLACED {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
