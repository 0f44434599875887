//! What is in a directory, and which processes there are: before and behind a run that is to leave both as they were.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Every file below a directory: inode, size, time of the last change and contents.
pub(crate) fn inventory(directory: &Path) -> BTreeMap<PathBuf, (u64, u64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let (path, about) = (entry.path(), entry.metadata().unwrap());
        let contents = if about.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(path.clone(), (about.ino(), about.len(), about.mtime_nsec(), contents));
        if about.is_dir() {
            found.extend(inventory(&path));
        }
    }
    found
}

/// A process and all that it started, the last ones first.
pub(crate) fn descendants(process: u32) -> Vec<u32> {
    let parent = |id: u32| {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let children = all.filter(|id| parent(*id) == Some(process));
    let mut found: Vec<u32> = children.flat_map(descendants).collect();
    found.push(process);
    found
}
