//! Shared libraries of this project that other programs load: beside this program, as a build leaves them, or in the
//! folder of a package (`packaging/install`).

use std::path::{Path, PathBuf};

/// Folder of a package's libraries, from the folder above that of the program.
const FOLDER: &str = "lib/clearstream";

/// Finds a library; `own` is the path of this program.
pub fn find(own: &Path, name: &str) -> Option<PathBuf> {
    let folder = own.parent()?;
    let installed = folder.parent().map(|above| above.join(FOLDER));
    let folders = [Some(folder.to_owned()), installed];
    folders.into_iter().flatten().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Where [`find`] looks, for an error: "neither in" these.
pub fn places(own: &Path) -> String {
    let folder = own.parent().unwrap_or(Path::new("/"));
    let above = folder.parent().unwrap_or(folder);
    format!("{} nor in {}", folder.display(), above.join(FOLDER).display())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_library_beside_the_program_comes_before_an_installed_one() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("bin/clearstream");
        let [bin, lib] = ["bin", FOLDER].map(|folder| root.path().join(folder));
        [&bin, &lib].iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
        assert_eq!(find(&own, "lib.so"), None);
        fs::write(lib.join("lib.so"), "").unwrap();
        assert_eq!(find(&own, "lib.so"), Some(lib.join("lib.so")));
        fs::write(bin.join("lib.so"), "").unwrap();
        assert_eq!(find(&own, "lib.so"), Some(bin.join("lib.so")));
        assert!(places(&own).contains("bin nor in ") && places(&own).ends_with(FOLDER));
    }
}
