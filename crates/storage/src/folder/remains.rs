//! Why a folder stays, and whose that is.

use std::{os::fd::OwnedFd, sync::PoisonError};

use rustix::fs::{Dir, Mode, OFlags, openat};

use super::{FOLDER_FLAGS, Folder, is_name_of_test};
use crate::made::{Marks, look_up};

/// Why a folder stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Something of the run cannot be removed.
    Own(String),
    /// Files of others are in it.
    Others(String),
}

impl std::fmt::Display for Remains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(text) | Self::Others(text) => f.write_str(text),
        }
    }
}

/// Beginnings of names that clients give to files which are removed and still open: NFS, libfuse, CIFS, AFS.
const OF_OPEN_FILES: [&str; 4] = [".nfs", ".fuse_hidden", ".smb", ".__afs"];

impl Folder {
    /// Whether something that is left goes away by itself.
    pub(crate) fn has_names_of_open_files(&self) -> bool {
        let left = first_leaf(&self.own, "");
        let name = left.as_deref().map(|path| path.rsplit_once('/').map_or(path, |(_, name)| name));
        name.is_some_and(|name| OF_OPEN_FILES.iter().any(|begin| name.starts_with(begin)))
    }

    /// Whose entries keep the folder.
    pub(super) fn whose(&self) -> Remains {
        let path = self.path.display();
        if let Some(why) = self.unremoved.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Remains::Own(format!("the folder {path} remains: {why}"));
        }
        let noted = || self.foreign.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let others = |name: &str| {
            Remains::Others(format!("the folder {path} remains: files of others are in it ({name})"))
        };
        if let Some(name) = first_of_others(&self.own, &self.marks, "").or_else(noted) {
            return others(&name);
        }
        match names(&self.own).first() {
            Some(own) => Remains::Own(format!("the folder {path} remains: {own} of this run is still in it")),
            None => others("gone now"),
        }
    }
}

fn names(folder: &OwnedFd) -> Vec<String> {
    let entries = Dir::read_from(folder).into_iter().flat_map(Iterator::flatten);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "." && name != "..").collect()
}

/// The first entry that no test makes so, in the folder or in directories of the test.
fn first_of_others(folder: &OwnedFd, marks: &Marks, above: &str) -> Option<String> {
    let all = names(folder);
    let is_own = |name: &str| {
        is_name_of_test(name) && look_up(folder, name).is_ok_and(|found| marks.is_marked(&found))
    };
    if let Some(name) = all.iter().find(|name| !is_own(name)) {
        return Some(format!("{above}{name}"));
    }
    all.iter().find_map(|name| {
        let inner = openat(folder, name.as_str(), FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        first_of_others(&inner, marks, &format!("{above}{name}/"))
    })
}

/// The first entry that is no directory with entries of its own.
pub(super) fn first_leaf(folder: &OwnedFd, above: &str) -> Option<String> {
    let name = names(folder).into_iter().next()?;
    let path = format!("{above}{name}");
    let inner = openat(folder, name.as_str(), FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty()).ok();
    Some(inner.and_then(|inner| first_leaf(&inner, &format!("{path}/"))).unwrap_or(path))
}
