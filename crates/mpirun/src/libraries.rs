//! Libraries and programs of this project that other programs load or start: beside this program, as a build leaves
//! them, or in the folder of a package (`packaging/install`). Those that a site builds with its own MPI come as sources.

use std::path::{Path, PathBuf};

/// Folder of a package's libraries, from the folder above that of the program.
const FOLDER: &str = "lib/clearstream";
/// A package's sources of what is built with the MPI of the site, from the same folder.
const MPI_SOURCES: &str = "share/clearstream/mpi";

/// Finds a library or program; `own` is the path of this program.
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

/// How a person builds what needs the MPI of the site: from the sources of the package that this program is of, else
/// from the tree.
pub fn build_with_mpi(own: &Path) -> String {
    let sources =
        own.parent().and_then(Path::parent).map(|above| (above.join(MPI_SOURCES), above.join(FOLDER)));
    match sources {
        Some((sources, folder)) if sources.is_dir() => {
            format!("`sudo {}/build --all {}`", sources.display(), folder.display())
        }
        _ => "`make extras`".to_owned(),
    }
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
        assert_eq!(build_with_mpi(&own), "`make extras`");
        fs::create_dir_all(root.path().join(MPI_SOURCES)).unwrap();
        let prefix = root.path().display();
        assert_eq!(
            build_with_mpi(&own),
            format!("`sudo {prefix}/share/clearstream/mpi/build --all {prefix}/lib/clearstream`")
        );
    }
}
