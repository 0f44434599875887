//! Interface names and indexes.

use std::{collections::BTreeMap, sync::Arc};

use crate::{NetlinkError, RouteSocket};

/// Snapshot of the names and indexes of all interfaces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    by_index: Arc<BTreeMap<u32, String>>,
}

impl Names {
    /// Name of an interface; one removed meanwhile is `if7`, as in `ip`.
    pub(crate) fn of(&self, index: u32) -> String {
        self.by_index.get(&index).cloned().unwrap_or_else(|| format!("if{index}"))
    }

    /// Index of an interface.
    pub(crate) fn index(&self, name: &str) -> Result<u32, NetlinkError> {
        let found = self.by_index.iter().find(|(_, known)| known.as_str() == name);
        found.map(|(index, _)| *index).ok_or_else(|| NetlinkError::NoInterface { name: name.to_owned() })
    }
}

impl FromIterator<(u32, String)> for Names {
    fn from_iter<I: IntoIterator<Item = (u32, String)>>(interfaces: I) -> Self {
        Self { by_index: Arc::new(interfaces.into_iter().collect()) }
    }
}

impl RouteSocket {
    /// Of now, or those that [`carriers`](Self::carriers) read last.
    pub(crate) fn names(&mut self) -> Result<Names, NetlinkError> {
        if let Some(names) = &self.names {
            return Ok(names.clone());
        }
        let interfaces = self.interfaces()?;
        Ok(interfaces.into_iter().map(|interface| (interface.index, interface.name)).collect())
    }
}
