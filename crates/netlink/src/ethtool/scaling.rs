//! Receive side scaling of the default context (linux/ethtool.h,
//! linux/ethtool_netlink.h): by netlink from Linux 6.3 on, by ioctl before.

use std::{collections::BTreeMap, io};

use clearstream_schema::host::Rss;
use clearstream_sys::ethtool::FlowKind;

use super::{
    Ethtool, EthtoolError, Query, control_error,
    message::{attributes, number},
    unchangeable,
};

const RSS: Query = Query { command: 38, what: "receive side scaling" };

/// Kinds of packets whose fields are read by ioctl, by ethtool's names.
const FLOW_KINDS: [(FlowKind, &str); 4] = [
    (FlowKind::TcpV4, "tcp4"),
    (FlowKind::TcpV6, "tcp6"),
    (FlowKind::UdpV4, "udp4"),
    (FlowKind::UdpV6, "udp6"),
];

/// `ETHTOOL_A_FLOW_*`, by ethtool's names.
const KINDS: [(u16, &str); 4] = [(4, "tcp4"), (5, "tcp6"), (6, "udp4"), (7, "udp6")];

/// `RXH_*` and the letters of `ethtool -N IFACE rx-flow-hash`, in its order.
const LETTERS: [(u32, char); 8] = [
    (1 << 1, 'm'),
    (1 << 2, 'v'),
    (1 << 3, 't'),
    (1 << 4, 's'),
    (1 << 5, 'd'),
    (1 << 6, 'f'),
    (1 << 7, 'n'),
    (1 << 31, 'r'),
];

impl Ethtool {
    /// Receive side scaling of the default context: over netlink, and by ioctl what this kernel lacks there
    /// (everything before 6.3, the hashed fields before 6.17).
    ///
    /// # Errors
    /// `NotSupported` for interfaces without hash key and indirection table.
    pub fn rss(&mut self, interface: &str) -> Result<Rss, EthtoolError> {
        let mut rss = match self.rss_by_netlink(interface) {
            Err(EthtoolError::NotSupported { .. } | EthtoolError::NoFamily) => {
                self.rss_by_ioctl(interface)?
            }
            other => other?,
        };
        // The kernel adds a hash function to drivers that have neither.
        if rss.key.is_none() && rss.indirection.is_empty() {
            return Err(EthtoolError::NotSupported { interface: interface.to_owned(), what: RSS.what });
        }
        rss.queue_count = self.queue_count(interface);
        if rss.fields.is_empty() {
            rss.fields = self.hash_fields(interface);
        }
        Ok(rss)
    }

    /// Function, key, table and fields as `ETHTOOL_MSG_RSS_GET` has them.
    ///
    /// # Errors
    /// `NotSupported` before Linux 6.3 and for drivers without any.
    pub fn rss_by_netlink(&mut self, interface: &str) -> Result<Rss, EthtoolError> {
        const FUNCTION: u16 = 3;
        const TABLE: u16 = 4;
        const KEY: u16 = 5;
        const INPUT_TRANSFORM: u16 = 6;
        const FLOW_FIELDS: u16 = 8;
        let body = self.query(interface, RSS)?;
        let mut rss = Rss::default();
        for (kind, value) in attributes(&body) {
            match kind {
                FUNCTION => rss.hash_function = number(value).and_then(hash_function),
                TABLE => rss.indirection = value.chunks_exact(4).filter_map(number).collect(),
                KEY => rss.key = Some(hexadecimal(value)),
                INPUT_TRANSFORM => rss.input_transform = number(value).and_then(input_transform),
                FLOW_FIELDS => rss.fields = fields(value),
                _ => {}
            }
        }
        Ok(rss)
    }

    /// Function, key and table as `ETHTOOL_GRSSH` has them.
    ///
    /// # Errors
    /// `NotSupported` for drivers without any.
    pub fn rss_by_ioctl(&mut self, interface: &str) -> Result<Rss, EthtoolError> {
        let found = self.control.receive_hash(interface).map_err(control_error(interface, RSS.what))?;
        Ok(Rss {
            hash_function: hash_function(found.function),
            key: (!found.key.is_empty()).then(|| hexadecimal(&found.key)),
            indirection: found.indirection,
            input_transform: input_transform(found.input_transform),
            ..Rss::default()
        })
    }

    /// Receive queues that packets can be hashed to.
    pub(super) fn queue_count(&self, interface: &str) -> Option<u32> {
        self.control.receive_rings(interface).ok()
    }

    /// Sets the indirection table; an empty one resets it to the kernel's default, which the driver updates
    /// when its channels change.
    ///
    /// # Errors
    /// `NotSupported` for drivers without a settable table.
    pub(super) fn set_indirection(&self, interface: &str, queues: &[u32]) -> Result<(), EthtoolError> {
        let what = "indirection table";
        let result = self.control.set_indirection(interface, queues);
        result.map_err(control_error(interface, what)).map_err(unchangeable)
    }

    /// `ETHTOOL_GRXFH` of each kind; unsupported kinds are omitted.
    fn hash_fields(&self, interface: &str) -> BTreeMap<String, String> {
        let read = |kind| -> io::Result<String> { Ok(letters(self.control.hash_fields(interface, kind)?)) };
        FLOW_KINDS
            .iter()
            .filter_map(|(kind, name)| Some(((*name).to_owned(), read(*kind).ok()?)))
            // No field at all: the kind is not hashed, or the driver does not fill in the value.
            .filter(|(_, letters)| !letters.is_empty())
            .collect()
    }
}

fn hexadecimal(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `ETH_RSS_HASH_*`.
fn hash_function(bits: u32) -> Option<String> {
    named(bits, &[(1, "toeplitz"), (2, "xor"), (4, "crc32")])
}

/// `RXH_XFRM_*`.
fn input_transform(bits: u32) -> Option<String> {
    named(bits, &[(1, "symmetric-xor"), (2, "symmetric-or-xor")])
}

fn named(bits: u32, names: &[(u32, &str)]) -> Option<String> {
    let known = || names.iter().find(|(value, _)| *value == bits).map(|(_, name)| (*name).to_owned());
    (bits != 0).then(|| known().unwrap_or_else(|| format!("unknown ({bits:#x})")))
}

/// Fields hashed, by kind of packet.
fn fields(nested: &[u8]) -> BTreeMap<String, String> {
    attributes(nested)
        .filter_map(|(kind, value)| {
            let (_, name) = KINDS.iter().find(|(known, _)| *known == kind)?;
            Some(((*name).to_owned(), letters(number(value)?)))
        })
        .collect()
}

fn letters(bits: u32) -> String {
    LETTERS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethtool::message::put;

    /// As reported by a driver that hashes UDP by address alone.
    #[test]
    fn the_letters_match_ethtool() {
        let mut nested = Vec::new();
        put(&mut nested, 4, &0xf0u32.to_ne_bytes());
        put(&mut nested, 6, &0x30u32.to_ne_bytes());
        put(&mut nested, 2, &0x30u32.to_ne_bytes());
        let found = fields(&nested);
        assert_eq!((found["tcp4"].as_str(), found["udp4"].as_str(), found.len()), ("sdfn", "sd", 2));
        assert_eq!(hash_function(2).as_deref(), Some("xor"));
        assert_eq!(hash_function(0), None);
        assert_eq!(hash_function(8).as_deref(), Some("unknown (0x8)"));
        assert_eq!(input_transform(2).as_deref(), Some("symmetric-or-xor"));
    }
}
