//! What has been read so far, and the names that files may use for numbers.

use std::collections::BTreeMap;

use clearstream_schema::{
    prefix::Prefix,
    routing::{HostRouting, Located, Nexthop, Place, RouteAction, RouteEntry, RoutingInterface, RuleEntry},
};

use super::Unread;

/// Names of tables and protocols (`/etc/iproute2/rt_tables`, `rt_protos`).
#[derive(Debug)]
pub(crate) struct Names {
    tables: BTreeMap<String, u32>,
    protocols: BTreeMap<String, u8>,
}

impl Default for Names {
    fn default() -> Self {
        // The kernel's own tables and iproute2's etc/iproute2/rt_protos.
        let tables = [("unspec", 0), ("default", 253), ("main", 254), ("local", 255)];
        let protocols = [
            ("unspec", 0),
            ("redirect", 1),
            ("kernel", 2),
            ("boot", 3),
            ("static", 4),
            ("gated", 8),
            ("ra", 9),
            ("mrt", 10),
            ("zebra", 11),
            ("bird", 12),
            ("dnrouted", 13),
            ("xorp", 14),
            ("ntk", 15),
            ("dhcp", 16),
            ("keepalived", 18),
            ("babel", 42),
            ("bgp", 186),
            ("isis", 187),
            ("ospf", 188),
            ("rip", 189),
            ("eigrp", 192),
        ];
        Self {
            tables: tables.map(|(name, number)| (name.to_owned(), number)).into(),
            protocols: protocols.map(|(name, number)| (name.to_owned(), number)).into(),
        }
    }
}

impl Names {
    /// A table by number or name.
    pub(crate) fn table(&self, text: &str) -> Option<u32> {
        super::values::number(text).or_else(|| self.tables.get(text).copied())
    }

    /// A protocol by number or name.
    pub(crate) fn protocol(&self, text: &str) -> Option<u8> {
        text.parse().ok().or_else(|| self.protocols.get(text).copied())
    }

    /// Reads `rt_tables`: `7001  storage-1`.
    pub(crate) fn read_tables(&mut self, text: &str) {
        for (number, name) in pairs(text) {
            if let Some(number) = super::values::number(number) {
                self.tables.insert(name.to_owned(), number);
            }
        }
    }

    /// Reads `rt_protos`.
    pub(crate) fn read_protocols(&mut self, text: &str) {
        for (number, name) in pairs(text) {
            if let Some(number) =
                super::values::number::<u32>(number).and_then(|number| u8::try_from(number).ok())
            {
                self.protocols.insert(name.to_owned(), number);
            }
        }
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let mut tokens = line.split('#').next()?.split_whitespace();
        Some((tokens.next()?, tokens.next()?))
    })
}

/// What has been read of one host.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub(crate) routing: HostRouting,
    pub(crate) names: Names,
    /// Interfaces of `.network` files by the files' names.
    pub(crate) networks: BTreeMap<String, String>,
    unread: Vec<Unread>,
}

impl Gathering {
    pub(crate) fn finish(self) -> (HostRouting, Vec<Unread>) {
        (self.routing, self.unread)
    }

    pub(crate) fn interface(&mut self, name: &str) -> &mut RoutingInterface {
        let interfaces = &mut self.routing.interfaces;
        let at = interfaces.iter().position(|known| known.name == name).unwrap_or_else(|| {
            interfaces.push(RoutingInterface { name: name.to_owned(), ..RoutingInterface::default() });
            interfaces.len() - 1
        });
        #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "it was found, or is there by now"))]
        &mut interfaces[at]
    }

    /// An address; a repeated one is held once.
    pub(crate) fn address(&mut self, interface: &str, prefix: Prefix, place: Place) {
        let addresses = &mut self.interface(interface).addresses;
        if addresses.iter().all(|known| known.value != prefix) {
            addresses.push(Located { value: prefix, place: Some(place) });
        }
    }

    pub(crate) fn mtu(&mut self, interface: &str, bytes: u32, place: Place) {
        self.interface(interface).mtu = Some(Located { value: bytes, place: Some(place) });
    }

    pub(crate) fn sysctl(&mut self, key: &str, value: &str, place: Place) {
        let located = Located { value: value.to_owned(), place: Some(place) };
        self.routing.sysctls.insert(key.to_owned(), located);
    }

    pub(crate) fn route(&mut self, route: RouteEntry) {
        self.routing.routes.push(route);
    }

    /// A route whose gateways the files give one by one: joins the one of the
    /// same destination, table and metric that has gateways.
    pub(crate) fn join_route(&mut self, route: RouteEntry) {
        let RouteAction::Gateways(more) = &route.action else { return self.route(route) };
        let known = self.routing.routes.iter_mut().find(|known| {
            (known.destination, known.table, known.metric) == (route.destination, route.table, route.metric)
                && matches!(known.action, RouteAction::Gateways(_))
        });
        match known {
            Some(RouteEntry { action: RouteAction::Gateways(hops), .. }) => hops.extend(more.iter().cloned()),
            _ => self.route(route),
        }
    }

    pub(crate) fn rule(&mut self, rule: RuleEntry) {
        self.routing.rules.push(rule);
    }

    /// A nexthop object; `replace` of one that is there takes its place.
    pub(crate) fn nexthop(&mut self, nexthop: Nexthop, replaces: bool) {
        let known = &mut self.routing.nexthops;
        match known.iter_mut().find(|known| replaces && known.id == nexthop.id) {
            Some(known) => *known = nexthop,
            None => known.push(nexthop),
        }
    }

    /// Options of a line that have no field.
    pub(crate) fn left_out(&mut self, file: &str, left_out: &[(u32, String)]) {
        for (line, text) in left_out {
            let reason = "has no place in a routing plan; the rest of the line is read";
            self.unread(file, *line, text, reason);
        }
    }

    pub(crate) fn unread(&mut self, file: &str, line: u32, text: &str, reason: impl Into<String>) {
        self.unread.push(Unread {
            place: Place { file: file.to_owned(), line: Some(line) },
            text: shortened(text),
            reason: reason.into(),
        });
    }
}

/// Text for a message: without control characters, not too long.
fn shortened(text: &str) -> String {
    let plain: String = text.trim().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    match plain.char_indices().nth(100) {
        Some((end, _)) => format!("{}...", &plain[..end]),
        None => plain,
    }
}

/// Place in a file.
pub(crate) fn place(file: &str, line: u32) -> Place {
    Place { file: file.to_owned(), line: Some(line) }
}
