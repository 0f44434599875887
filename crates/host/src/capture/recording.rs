//! What readers saw of a host: files, links, names, refusals and answers.

use std::{collections::BTreeMap, io};

use crate::{drivers::Answers, memory::MemoryTree};

/// A recorded host.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Files, links and names by resolved path.
    pub(crate) tree: MemoryTree,
    pub(super) refused: BTreeMap<String, i32>,
    pub(super) answers: BTreeMap<String, Answers>,
}

impl Recording {
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
