//! The header is generated from the sources, and accepted by C and C++
//! compilers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Section of each function of the interface.
const SAFETY: &str = "//\n// # Safety\n// [The contract of this library](crate#safety).\n";

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// `UPDATE_HEADER=1 cargo test -p clearstream-iwarp-c --test header`
/// regenerates it.
#[test]
fn the_header_is_generated_from_the_sources() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let mut generated = Vec::new();
    cbindgen::Builder::new().with_crate(here()).with_config(config).generate().unwrap().write(&mut generated);
    // The contract that the sections about safety refer to is the head of the header.
    let generated = String::from_utf8(generated).unwrap().replace(SAFETY, "");
    assert!(!generated.contains("# Safety"), "state what a C program has to guarantee in the text above it");
    let path = here().join("include/clearstream_iwarp.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "regenerate it: UPDATE_HEADER=1 cargo test -p clearstream-iwarp-c --test header"
    );
}

/// Compiles a program that includes the header twice and uses a structure.
fn compiles(compiler: &str, standard: &str, suffix: &str) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join(format!("uses_header.{suffix}"));
    let text = "#include \"clearstream_iwarp.h\"\n#include \"clearstream_iwarp.h\"\n\
                struct iwarp_completion completion;\n\
                int main(void) { return completion.status == IWARP_SUCCESS ? IWARP_OK : 1; }\n";
    fs::write(&source, text).unwrap();
    let output = Command::new(compiler)
        .args([standard, "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-c", "-o"])
        .arg(folder.path().join("uses_header.o"))
        .arg("-I")
        .arg(include())
        .arg(&source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{compiler} {standard}: {}", String::from_utf8_lossy(&output.stderr));
}

fn include() -> PathBuf {
    here().join(Path::new("include"))
}

#[test]
fn c_compilers_accept_the_header() {
    for standard in ["-std=c99", "-std=c11"] {
        compiles("cc", standard, "c");
    }
}

#[test]
fn cpp_compilers_accept_the_header() {
    for standard in ["-std=c++11", "-std=c++17"] {
        compiles("c++", standard, "cpp");
    }
}
