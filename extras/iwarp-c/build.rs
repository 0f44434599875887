//! How the shared library is linked: symbols with versions, and a name with
//! the version of its interface.

use std::env;

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed=clearstream_iwarp.map");
    // The compiler gives the linker a list of exported symbols, without
    // versions. LLD, the compiler's own linker on x86-64, takes a second one;
    // GNU ld refuses (anonymous and named versions), so LLD is asked for.
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|architecture| architecture != "x86_64") {
        println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={here}/clearstream_iwarp.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libclearstream_iwarp.so.1");
}
