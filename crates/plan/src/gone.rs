//! What a setting needs and what is no more: its interface, its interrupt, its queue, the
//! next hop of a route. The kernel ends a change together with the object that it was made
//! on, so that nothing is left to restore. What is out of reach only (a file system that is
//! not mounted, a name that was changed) is not gone.

use std::{collections::BTreeMap, fs, path::Path};

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{
    plan::{Gone, Setting, Value},
    routing::{NexthopTarget, RouteAction},
};

use crate::files::{self, Files};

/// An object of the kernel without which a setting cannot hold a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// An interface, by its name; it may have another name now.
    Interface(String),
    /// Any other, as an operator names it: `interrupt 42`, `queue rx-3 of eth0`.
    Other(String),
}

/// Where objects of the kernel are looked up.
pub(crate) struct Present<'a> {
    pub(crate) files: &'a Files,
    /// Netlink knows the interfaces; otherwise they are folders.
    pub(crate) is_live: bool,
}

impl Present<'_> {
    /// What is gone that a setting needs to hold a text, or, without a text, to be there.
    /// `None` when nothing is gone, or when that cannot be told.
    pub(crate) fn gone(&self, setting: &Setting, text: Option<&str>) -> Option<Needed> {
        let other = |what: String| Some(Needed::Other(what));
        match setting {
            Setting::Sysctl(key) => {
                let path = files::of_sysctl(setting, key).ok()?;
                if !self.lacks(&path) || self.lacks("proc/sys/kernel/osrelease") {
                    return None;
                }
                // Its value was in the object that registered it: an interface, or a module.
                self.interface(interface_of_sysctl(&path)).or_else(|| other(setting.to_string()))
            }
            Setting::File(path) => self.file(path, setting),
            Setting::Link { interface, .. }
            | Setting::Qdisc { interface }
            | Setting::Ethtool { interface, .. }
            | Setting::Address { interface, .. } => self.interface(Some(interface)),
            Setting::Nexthop { .. } | Setting::Route { .. } => self.next_hop(setting, text?),
            // They outlive the interfaces that they name (fib_rules_event, net/core/fib_rules.c).
            Setting::Rule { .. } | Setting::NetfilterTable { .. } => None,
        }
    }

    fn file(&self, path: &str, setting: &Setting) -> Option<Needed> {
        if !self.lacks(path) {
            return None;
        }
        match path.split('/').collect::<Vec<_>>()[..] {
            ["proc", "irq", number, _] => {
                let is_gone = !self.lacks("proc/irq") && self.lacks(&format!("proc/irq/{number}"));
                is_gone.then(|| Needed::Other(format!("interrupt {number}")))
            }
            ["sys", "class", "net", name, ref rest @ ..] => {
                if let Some(needed) = self.interface(Some(name)) {
                    return Some(needed);
                }
                // A sysfs of another network namespace has other interfaces.
                if self.lacks(&format!("sys/class/net/{name}")) {
                    return None;
                }
                Some(Needed::Other(match rest {
                    ["queues", queue, ..] => format!("queue {queue} of {name}"),
                    _ => setting.to_string(),
                }))
            }
            ["sys", ..] if self.is_mounted(path) => Some(Needed::Other(setting.to_string())),
            _ => None,
        }
    }

    /// With an interface the kernel removes its addresses, its next hops and the routes over
    /// them (fib_sync_down_dev, nexthop_flush_dev); with a next hop the routes that use it.
    fn next_hop(&self, setting: &Setting, text: &str) -> Option<Needed> {
        let (interfaces, nexthops) = match Value::of(setting, text).ok()? {
            Value::Nexthop(value) => match value.target {
                NexthopTarget::Gateway { interface, .. } => (vec![interface], vec![]),
                NexthopTarget::Group { members, .. } => {
                    (vec![], members.iter().map(|member| member.id).collect())
                }
                NexthopTarget::Blackhole => return None,
            },
            Value::Route(value) => match value.action {
                RouteAction::Link { interface } => (vec![interface], vec![]),
                RouteAction::Gateways(hops) => {
                    (hops.into_iter().filter_map(|hop| hop.interface).collect(), vec![])
                }
                RouteAction::Nexthop(id) => (vec![], vec![id]),
                _ => return None,
            },
            _ => return None,
        };
        let interface = interfaces.iter().find_map(|name| self.interface(Some(name)));
        interface.or_else(|| {
            let all = RouteSocket::open().and_then(|mut socket| socket.nexthops()).ok()?;
            let id = nexthops.into_iter().find(|id| !all.iter().any(|found| found.entry.id == *id))?;
            Some(Needed::Other(format!("nexthop {id}")))
        })
    }

    /// An interface that does not exist.
    fn interface(&self, name: Option<&str>) -> Option<Needed> {
        let name = name?;
        let is_gone = if self.is_live {
            let found = RouteSocket::open().and_then(|mut socket| socket.interface(name));
            matches!(found, Err(NetlinkError::NoInterface { .. }))
        } else {
            !self.lacks("sys/class/net") && self.lacks(&format!("sys/class/net/{name}"))
        };
        is_gone.then(|| Needed::Interface(name.to_owned()))
    }

    /// Whether the file system is there that a missing file would be in: where none is mounted
    /// the folder is empty.
    fn is_mounted(&self, path: &str) -> bool {
        let ancestors =
            Path::new(path).ancestors().skip(1).map(|folder| self.files.path(&folder.to_string_lossy()));
        let mut there =
            ancestors.take_while(|folder| *folder != self.files.path("")).filter(|folder| folder.is_dir());
        let entries = there.next().and_then(|folder| fs::read_dir(folder).ok());
        entries.is_some_and(|mut entries| entries.next().is_some())
    }

    fn lacks(&self, path: &str) -> bool {
        matches!(self.files.path(path).try_exists(), Ok(false))
    }

    /// Interfaces by name, each with what stays when it gets another name.
    pub(crate) fn interfaces(&self) -> BTreeMap<String, String> {
        if !self.is_live {
            return BTreeMap::new();
        }
        let all = RouteSocket::open().and_then(|mut socket| socket.interfaces()).unwrap_or_default();
        all.into_iter()
            .map(|found| (found.name, format!("{} {}", found.index, found.link_address.unwrap_or_default())))
            .collect()
    }
}

/// The interface that a setting is of.
pub(crate) fn interface_of(setting: &Setting) -> Option<String> {
    match setting {
        Setting::Sysctl(key) => interface_of_sysctl(&files::of_sysctl(setting, key).ok()?).map(str::to_owned),
        Setting::File(path) => Some(path.strip_prefix("sys/class/net/")?.split('/').next()?.to_owned()),
        Setting::Link { interface, .. }
        | Setting::Qdisc { interface }
        | Setting::Ethtool { interface, .. }
        | Setting::Address { interface, .. } => Some(interface.clone()),
        Setting::Nexthop { .. }
        | Setting::Route { .. }
        | Setting::Rule { .. }
        | Setting::NetfilterTable { .. } => None,
    }
}

/// ip-sysctl.rst: `conf/interface/*`, `neigh/interface/*`, and two names that are none.
fn interface_of_sysctl(path: &str) -> Option<&str> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["proc", "sys", "net", _, "conf" | "neigh", name, ..] if !matches!(name, "all" | "default") => {
            Some(name)
        }
        _ => None,
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
