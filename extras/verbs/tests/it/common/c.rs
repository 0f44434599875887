//! C programs, compiled against the installed headers.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// What the programs share.
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c");

/// A compiled program in a folder that is removed with it.
pub(crate) struct Compiled {
    _folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

/// Compiles a program; `link` are the options that follow the source.
pub(crate) fn compile(source: &str, link: &[&str]) -> Compiled {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("program{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let file = path.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", HEADERS, "-o"])
        .arg(&path)
        .arg(&file)
        .args(link);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "apt-get install librdmacm-dev libibverbs-dev: {errors}");
    Compiled { _folder: folder, path }
}
