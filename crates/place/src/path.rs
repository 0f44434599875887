//! Path of several equal ones, or member of a link aggregate, that a flow
//! takes, where that can be computed or was observed.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use clearstream_routing::multipath::{FlowKey, HashKey, choose, multipath_hash, thresholds};
use clearstream_schema::fabric::HashPolicy;
use crc_fast::crc32_iso_hdlc;

use crate::{
    hash::{Fields, Hash, HashFunction, InputTransform, Tuple, parse_key},
    landing::{Landing, Reduction},
};

/// TCP.
const PROTOCOL_TCP: u8 = 6;

/// Method by which a router, or this host, picks a member from the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathHash {
    /// Linux with `net.ipv4.fib_multipath_hash_policy` 1 and a seed of its own
    /// in `net.ipv4.fib_multipath_hash_seed` (Linux 6.11): SipHash of the flow
    /// keys, compared with the weights' thresholds. Without a seed the kernel
    /// takes a random one that cannot be read.
    Linux {
        /// The seed, not zero.
        seed: u32,
        /// Weight of each next hop, in the order of the route.
        weights: Vec<u32>,
    },
    /// A hash of the 4-tuple modulo the number of members.
    Modulo {
        /// The hash.
        hash: Hash,
        /// Members.
        member_count: u32,
    },
    /// CRC-32 (IEEE 802.3) of the 4-tuple in network order, modulo the number of members.
    Crc32 {
        /// Members.
        member_count: u32,
    },
    /// Observed members by source port. Ports that are not listed are not used.
    Observed(Vec<(u16, u32)>),
}

/// A description that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read a path hash from \"{text}\": write linux:SEED:WEIGHT+WEIGHT.., toeplitz:KEY:MEMBERS, xor:MEMBERS \
     or crc32:MEMBERS, as in linux:7:1+1"
)]
pub struct ParsePathHashError {
    text: String,
}

impl FromStr for PathHash {
    type Err = ParsePathHashError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParsePathHashError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<PathHash> {
    let count = |text: &str| text.parse::<u32>().ok().filter(|count| *count > 0);
    let modulo = |function, members: &str| {
        let hash = Hash { function, transform: InputTransform::None, fields: Fields::AddressesAndPorts };
        Some(PathHash::Modulo { hash, member_count: count(members)? })
    };
    let (kind, rest) = text.split_once(':')?;
    match kind {
        "linux" => {
            let (seed, weights) = rest.split_once(':')?;
            let seed = seed.parse().ok().filter(|seed| *seed != 0)?;
            Some(PathHash::Linux { seed, weights: weights.split('+').map(count).collect::<Option<_>>()? })
        }
        "toeplitz" => {
            let (key, members) = rest.rsplit_once(':')?;
            let key = parse_key(key).filter(|key| key.len() >= 16)?;
            modulo(HashFunction::Toeplitz(key), members)
        }
        "xor" => modulo(HashFunction::Xor { inverted: false }, rest),
        "crc32" => Some(PathHash::Crc32 { member_count: count(rest)? }),
        _ => None,
    }
}

impl PathHash {
    /// The member that each source port leads to; the port in `tuple` is ignored.
    pub fn landing(&self, tuple: Tuple) -> Landing {
        let with = |port: u16| {
            let mut tuple = tuple;
            tuple.source.set_port(port);
            tuple
        };
        match self {
            Self::Linux { seed, weights } => {
                let (key, thresholds) = (HashKey::of_seed(*seed), thresholds(weights));
                Landing::listed(|port| {
                    let hash = multipath_hash(&flow_key(with(port)), HashPolicy::Layer4, key);
                    u32::try_from(choose(&thresholds, hash)).ok()
                })
            }
            Self::Modulo { hash, member_count } => {
                Landing::affine(|port| hash.of(with(port)), Reduction::Modulo(*member_count))
            }
            Self::Crc32 { member_count } => Landing::affine(
                |port| crc32_iso_hdlc(&four_tuple(with(port))),
                Reduction::Modulo(*member_count),
            ),
            Self::Observed(seen) => Landing::listed(|port| {
                seen.iter().find(|(listed, _)| *listed == port).map(|(_, member)| *member)
            }),
        }
    }

    /// Number of members, where the description has it.
    pub fn member_count(&self) -> Option<u32> {
        match self {
            Self::Linux { weights, .. } => u32::try_from(weights.len()).ok(),
            Self::Modulo { member_count, .. } | Self::Crc32 { member_count } => Some(*member_count),
            Self::Observed(_) => None,
        }
    }
}

fn flow_key(tuple: Tuple) -> FlowKey {
    FlowKey {
        source: tuple.source.ip().to_canonical(),
        destination: tuple.destination.ip().to_canonical(),
        protocol: PROTOCOL_TCP,
        source_port: tuple.source.port(),
        destination_port: tuple.destination.port(),
    }
}

fn four_tuple(tuple: Tuple) -> Vec<u8> {
    let address = |end: SocketAddr| match end.ip().to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut bytes = [address(tuple.source), address(tuple.destination)].concat();
    bytes.extend(tuple.source.port().to_be_bytes());
    bytes.extend(tuple.destination.port().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_crc_32() {
        // "CRC-32/ISO-HDLC" of the catalogue of parametrised CRC algorithms.
        assert_eq!(crc32_iso_hdlc(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn descriptions_are_read_and_refused() {
        assert_eq!("linux:7:1+2".parse(), Ok(PathHash::Linux { seed: 7, weights: vec![1, 2] }),);
        assert_eq!("crc32:4".parse(), Ok(PathHash::Crc32 { member_count: 4 }));
        for text in ["", "linux", "linux:0:1+1", "linux:1:1+0", "xor:0", "toeplitz:6d5:4", "md5:4"] {
            assert!(text.parse::<PathHash>().is_err(), "{text}");
        }
    }
}
