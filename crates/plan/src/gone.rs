//! What a setting needs and what is no more: its interface, its interrupt, its queue, the
//! next hop of a route. The kernel ends a change together with the object that it was made
//! on, so that nothing is left to restore. What is out of reach only (a file system that is
//! not mounted, a name that was changed) is not gone.

use std::{collections::BTreeMap, fs, path::Path};

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::plan::Gone;

use crate::{Host, Target as _};

/// An object of the kernel without which a setting cannot hold a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// An interface, by its name; it may have another name now.
    Interface(String),
    /// Any other, as an operator names it: `interrupt 42`, `queue rx-3 of eth0`.
    Other(String),
}

impl Host {
    /// An interface that does not exist.
    pub(crate) fn gone_interface(&self, name: &str) -> Option<Needed> {
        let is_gone = if self.is_live() {
            let found = RouteSocket::open().and_then(|mut socket| socket.interface(name));
            matches!(found, Err(NetlinkError::NoInterface { .. }))
        } else {
            !self.lacks("sys/class/net") && self.lacks(&format!("sys/class/net/{name}"))
        };
        is_gone.then(|| Needed::Interface(name.to_owned()))
    }

    /// Whether the file system is there that a missing file would be in: where none is mounted
    /// the folder is empty.
    pub(crate) fn is_mounted(&self, path: &str) -> bool {
        let ancestors =
            Path::new(path).ancestors().skip(1).map(|folder| self.files().path(&folder.to_string_lossy()));
        let mut there =
            ancestors.take_while(|folder| *folder != self.files().path("")).filter(|folder| folder.is_dir());
        let entries = there.next().and_then(|folder| fs::read_dir(folder).ok());
        entries.is_some_and(|mut entries| entries.next().is_some())
    }

    /// Whether there is certainly no such file.
    pub(crate) fn lacks(&self, path: &str) -> bool {
        matches!(self.files().path(path).try_exists(), Ok(false))
    }

    /// Interfaces by name, each with what stays when it gets another name.
    pub(crate) fn live_interfaces(&self) -> BTreeMap<String, String> {
        if !self.is_live() {
            return BTreeMap::new();
        }
        let all = RouteSocket::open().and_then(|mut socket| socket.interfaces()).unwrap_or_default();
        all.into_iter()
            .map(|found| (found.name, format!("{} {}", found.index, found.link_address.unwrap_or_default())))
            .collect()
    }
}

/// Changes that went, by what they went with.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn add_all(&mut self, needed: Option<Needed>) {
        if let Some(Needed::Interface(what) | Needed::Other(what)) = needed {
            *self.0.entry(what).or_default() += 1;
        }
    }

    pub(crate) fn all(self) -> Vec<Gone> {
        self.0.into_iter().map(|(what, change_count)| Gone { what, change_count }).collect()
    }
}
