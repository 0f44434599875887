//! Recording of what readers read from a host: files, links, names, errors and driver state.

use std::{collections::BTreeMap, io};

use crate::{drivers::DriverState, memory::MemoryTree};

/// A recorded host.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Files, links and names by resolved path.
    pub(crate) tree: MemoryTree,
    pub(super) errors: BTreeMap<String, i32>,
    pub(super) drivers: BTreeMap<String, DriverState>,
}

impl Recording {
    /// Records a file that exists but could not be read.
    pub(crate) fn record_error(&mut self, rel: &str, error: &io::Error) {
        if let Some(code) = error.raw_os_error() {
            self.errors.insert(rel.to_owned(), code);
        }
    }

    /// Records the state reported by a driver.
    pub(crate) fn record_driver(&mut self, interface: &str, state: &DriverState) {
        self.drivers.insert(interface.to_owned(), state.clone());
    }
}
