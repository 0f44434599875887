//! List of drained gateways, kept across restarts of the watch (not across a boot:
//! the folder is in memory).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clearstream_sys::{document, file};

use super::control::namespace_number;

/// The drained gateways of one network namespace, one name per line.
#[derive(Debug)]
pub(super) struct DrainedList {
    path: PathBuf,
    names: Vec<String>,
}

impl DrainedList {
    /// Reads the list; empty without a file.
    pub(super) fn open(folder: &Path) -> Self {
        let path = folder.join(format!("route-watch-drained-{}", namespace_number()));
        let text = document::read_own_text(&path, document::DOCUMENT_BYTES).unwrap_or_default();
        let names = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        Self { path, names }
    }

    /// The names.
    pub(super) fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Adds or removes one.
    pub(super) fn set(&mut self, name: &str, drained: bool) -> io::Result<()> {
        self.names.retain(|known| known != name);
        if drained {
            self.names.push(name.to_owned());
        }
        if self.names.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        if let Some(folder) = self.path.parent() {
            file::make_folders(folder, 0o700)?;
        }
        // A reader finds the old list or the new one.
        file::replace(&self.path, (self.names.join("\n") + "\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_persists_across_instances() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("state");
        let mut list = DrainedList::open(&folder);
        assert_eq!(list.names(), Vec::<String>::new());
        list.set("gw1", true).unwrap();
        list.set("gw2", true).unwrap();
        list.set("gw1", true).unwrap();
        let mut list = DrainedList::open(&folder);
        assert_eq!(list.names(), ["gw2", "gw1"]);
        list.set("gw2", false).unwrap();
        list.set("gw1", false).unwrap();
        assert_eq!(DrainedList::open(&folder).names(), Vec::<String>::new());
        fs::remove_dir(&folder).unwrap();
        // A list of somebody else is none.
        if rustix::process::geteuid().is_root() {
            let mut list = DrainedList::open(&folder);
            list.set("gw1", true).unwrap();
            let path = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert_eq!(DrainedList::open(&folder).names(), Vec::<String>::new());
        }
    }
}
