//! Compiles the BPF program with clang; no binary is kept in the tree.

use std::{env, path::Path, process::Command};

fn main() {
    let output = env::var_os("OUT_DIR").unwrap_or_default();
    let object = Path::new(&output).join("htcp.bpf.o");
    for file in ["htcp.bpf.c", "htcp_arithmetic.h", "kernel.h"] {
        println!("cargo::rerun-if-changed=bpf/{file}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    // -g emits BTF, by which the loader finds the kernel's fields. `v3` has
    // 32-bit jumps and is supported by every kernel that can load this program.
    let status = Command::new(&clang)
        .args([
            "-target",
            "bpf",
            "-mcpu=v3",
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-c",
            "bpf/htcp.bpf.c",
        ])
        .arg("-o")
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => println!("cargo::error={clang} -target bpf: {status}"),
        Err(error) => println!(
            "cargo::error=cannot run {clang}: {error}; `.ci/install extras` installs it, or set CLANG to another one"
        ),
    }
}
