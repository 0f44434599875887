//! Linking of the shared library: versioned symbols, and a soname with the
//! version of the interface.

use std::env;

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed=clearstream_iwarp.map");
    // The compiler passes the linker a version script of exported symbols,
    // without versions. LLD, the default linker on x86-64, accepts a second
    // one; GNU ld rejects it (anonymous and named versions), so LLD is
    // requested.
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|architecture| architecture != "x86_64") {
        println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={here}/clearstream_iwarp.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libclearstream_iwarp.so.1");
}
