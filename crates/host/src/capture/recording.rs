//! What readers saw of a tree: files, links, names and refusals.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use crate::drivers::Answers;

/// One path of a recorded tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A name that was listed or asked for; nothing more is known of it.
    Name,
    /// A file as read.
    File(Vec<u8>),
    /// A link with its target.
    Link(String),
}

/// A recorded tree, by path below its root.
#[derive(Debug)]
pub(crate) struct Recording {
    base: PathBuf,
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) refused: BTreeMap<String, i32>,
    pub(super) answers: BTreeMap<String, Answers>,
}

impl Recording {
    pub(super) fn new(base: &Path) -> Self {
        Self {
            base: base.to_owned(),
            entries: BTreeMap::new(),
            refused: BTreeMap::new(),
            answers: BTreeMap::new(),
        }
    }

    /// The path below the root. Links were walked before: it has none.
    fn rel(&self, path: &Path) -> Option<String> {
        path.strip_prefix(&self.base).ok()?.to_str().map(str::to_owned)
    }

    /// A file with what was read of it.
    pub(crate) fn file(&mut self, path: &Path, bytes: &[u8]) {
        if let Some(rel) = self.rel(path) {
            self.entries.insert(rel, Entry::File(bytes.to_owned()));
        }
    }

    /// A link.
    pub(crate) fn link(&mut self, path: &Path, target: &Path) {
        if let (Some(rel), Some(target)) = (self.rel(path), target.to_str()) {
            self.entries.insert(rel, Entry::Link(target.to_owned()));
        }
    }

    /// A directory with its names.
    pub(crate) fn directory(&mut self, path: &Path, names: &[String]) {
        for name in names {
            self.presence(&path.join(name));
        }
    }

    /// Something that is there.
    pub(crate) fn presence(&mut self, path: &Path) {
        if let Some(rel) = self.rel(path) {
            self.entries.entry(rel).or_insert(Entry::Name);
        }
    }

    /// A file that is there and was not given.
    pub(crate) fn refused(&mut self, rel: &str, error: &io::Error) {
        if let Some(code) = error.raw_os_error() {
            self.refused.insert(rel.to_owned(), code);
        }
    }

    /// What a driver answered.
    pub(crate) fn answers(&mut self, interface: &str, answers: &Answers) {
        self.answers.insert(interface.to_owned(), answers.clone());
    }
}
