//! Our own program: built beside this one.

use std::path::PathBuf;

/// `clearstream` in the folder of the running program, else as found in PATH.
pub(crate) fn path() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|own| {
        let folder = own.parent()?.to_path_buf();
        // Tests live one folder deeper.
        [folder.join("clearstream"), folder.join("../clearstream")].into_iter().find(|path| path.exists())
    });
    beside.unwrap_or_else(|| PathBuf::from("clearstream"))
}
