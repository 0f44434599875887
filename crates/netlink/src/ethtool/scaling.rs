//! What the numbers of receive side scaling mean (linux/ethtool.h,
//! linux/ethtool_netlink.h).

use std::collections::BTreeMap;

use super::message::{attributes, number};

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

/// `ETH_RSS_HASH_*`.
pub(super) fn hash_function(bits: u32) -> Option<String> {
    named(bits, &[(1, "toeplitz"), (2, "xor"), (4, "crc32")])
}

/// `RXH_XFRM_*`.
pub(super) fn input_transform(bits: u32) -> Option<String> {
    named(bits, &[(1, "symmetric-xor"), (2, "symmetric-or-xor")])
}

fn named(bits: u32, names: &[(u32, &str)]) -> Option<String> {
    let known = || names.iter().find(|(value, _)| *value == bits).map(|(_, name)| (*name).to_owned());
    (bits != 0).then(|| known().unwrap_or_else(|| format!("unknown ({bits:#x})")))
}

/// Fields hashed, by kind of packet.
pub(super) fn fields(nested: &[u8]) -> BTreeMap<String, String> {
    attributes(nested)
        .filter_map(|(kind, value)| {
            let (_, name) = KINDS.iter().find(|(known, _)| *known == kind)?;
            let bits = number(value)?;
            let letters =
                LETTERS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| letter).collect();
            Some(((*name).to_owned(), letters))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethtool::message::put;

    /// As a driver that hashes UDP by address alone tells it.
    #[test]
    fn the_letters_are_those_of_ethtool() {
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
