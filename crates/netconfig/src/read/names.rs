//! The names that files may use for numbers of tables and protocols.

use std::collections::BTreeMap;

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
            ("none", 0),
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

    /// How many names are known.
    pub(crate) fn count(&self) -> usize {
        self.tables.len() + self.protocols.len()
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
