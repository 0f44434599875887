//! Our own program: in the build folder of this program.

use std::path::{Path, PathBuf};

/// `clearstream` in the folder of the running program, else as found in PATH.
pub(crate) fn path() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|own| {
        let folder = own.parent()?.to_path_buf();
        // Tests live one folder deeper.
        [folder.join("clearstream"), folder.join("../clearstream")].into_iter().find(|path| path.exists())
    });
    beside.unwrap_or_else(|| PathBuf::from("clearstream"))
}

/// Whether a program of others is in PATH.
pub(crate) fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder: PathBuf| Path::new(&folder).join(program).exists())
}
