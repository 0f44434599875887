//! The provider in a folder of its own, as `FI_PROVIDER_PATH` names it.

/// A folder that holds the provider alone: libfabric loads all that it finds.
pub(crate) struct Provider {
    folder: tempfile::TempDir,
}

impl Provider {
    pub(crate) fn new() -> Self {
        let beside = std::env::current_exe().unwrap().parent().unwrap().join("libclearstream_fi.so");
        assert!(beside.exists(), "no {}: cargo build -p clearstream-libfabric makes it", beside.display());
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(beside, folder.path().join("libclearstream-fi.so")).unwrap();
        Self { folder }
    }

    /// Variables of a program that is to use it.
    pub(crate) fn settings(&self) -> [(&str, &str); 2] {
        [("FI_PROVIDER_PATH", self.folder.path().to_str().unwrap()), ("FI_PROVIDER", "clearstream")]
    }
}
