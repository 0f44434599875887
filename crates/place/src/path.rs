//! Which of several equal paths, or which member of a link aggregate, a flow
//! takes, where that can be computed or was observed.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use crate::{
    hash::{Fields, Hash, HashFunction, InputTransform, Tuple, parse_key},
    landing::{Landing, Reduction},
    siphash::siphash,
};

/// How a router, or this host, picks a member from the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathHash {
    /// Linux with `net.ipv4.fib_multipath_hash_policy` 1 and a seed of its own
    /// in `net.ipv4.fib_multipath_hash_seed` (Linux 6.11): SipHash of the flow
    /// keys, compared with the weights' thresholds. Without a seed the kernel
    /// takes a random one that nobody can read.
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
    /// What was seen: source port and member. Ports that are not listed are not used.
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
    /// The member that each source port leads to; the port in `tuple` is not looked at.
    pub fn landing(&self, tuple: Tuple) -> Landing {
        let with = |port: u16| {
            let mut tuple = tuple;
            tuple.source.set_port(port);
            tuple
        };
        match self {
            Self::Linux { seed, weights } => {
                let thresholds = thresholds(weights);
                Landing::listed(|port| member(linux_hash(*seed, with(port)) >> 1, &thresholds))
            }
            Self::Modulo { hash, member_count } => {
                Landing::affine(|port| hash.of(with(port)), Reduction::Modulo(*member_count))
            }
            Self::Crc32 { member_count } => {
                Landing::affine(|port| crc32(&four_tuple(with(port))), Reduction::Modulo(*member_count))
            }
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

/// `fib_nh_upper_bound` of each next hop: 2^31 split by weight, rounded to the
/// nearest (net/ipv4/fib_semantics.c, `fib_rebalance`).
fn thresholds(weights: &[u32]) -> Vec<u32> {
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let mut sum = 0;
    weights
        .iter()
        .map(|weight| {
            sum += u64::from(*weight);
            let bound = ((sum << 31) + total / 2) / total;
            u32::try_from(bound - 1).unwrap_or(u32::MAX)
        })
        .collect()
}

fn member(hash: u32, thresholds: &[u32]) -> Option<u32> {
    let at = thresholds.iter().position(|bound| hash <= *bound)?;
    u32::try_from(at).ok()
}

/// `flow_hash_from_keys_seed` over the keys that `fib_multipath_hash` fills in
/// for policy 1: protocol, ports and addresses, each pair in ascending order of
/// its raw bytes read by the host. Little-endian hosts are assumed.
fn linux_hash(seed: u32, tuple: Tuple) -> u32 {
    const PROTOCOL_TCP: u8 = 6;
    let half = u64::from(seed);
    let key = half << 32 | half;
    let mut keys = vec![0, 0, PROTOCOL_TCP, 0];
    // Flow label, two VLAN tags, key id: zero for a routed packet.
    keys.resize(4 + 4 + 8 + 8 + 4, 0);
    let mut ports = [tuple.source.port().to_be_bytes(), tuple.destination.port().to_be_bytes()];
    if u16::from_le_bytes(ports[1]) < u16::from_le_bytes(ports[0]) {
        ports.reverse();
    }
    keys.extend(ports.concat());
    keys.extend([0; 4]); // ICMP
    match (tuple.source.ip().to_canonical(), tuple.destination.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut both = [source.octets(), destination.octets()];
            if u32::from_le_bytes(both[1]) < u32::from_le_bytes(both[0]) {
                both.reverse();
            }
            keys.extend(both.concat());
        }
        (source, destination) => {
            let mut both = [octets(source), octets(destination)];
            // `memcmp` of the two addresses.
            if both[1] < both[0] {
                both.reverse();
            }
            keys.extend(both.concat());
        }
    }
    // The length hashed counts what aligns the structure to 8 bytes at its end.
    keys.extend([0; 4]);
    // The kernel keeps the lower half, and never zero.
    (siphash([key, key], &keys) as u32).max(1)
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
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

fn crc32(bytes: &[u8]) -> u32 {
    const REFLECTED_POLYNOMIAL: u32 = 0xedb8_8320;
    !bytes.iter().fold(!0u32, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ REFLECTED_POLYNOMIAL } else { crc >> 1 };
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_crc_32() {
        // "CRC-32/ISO-HDLC" of the catalogue of parametrised CRC algorithms.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn descriptions_are_read_and_refused() {
        assert_eq!("linux:7:1+2".parse(), Ok(PathHash::Linux { seed: 7, weights: vec![1, 2] }),);
        assert_eq!("crc32:4".parse(), Ok(PathHash::Crc32 { member_count: 4 }));
        for text in ["", "linux", "linux:0:1+1", "linux:1:1+0", "xor:0", "toeplitz:6d5:4", "md5:4"] {
            assert!(text.parse::<PathHash>().is_err(), "{text}");
        }
    }

    #[test]
    fn members_get_their_share() {
        assert_eq!(thresholds(&[1, 1]), [(1 << 30) - 1, (1u32 << 31) - 1]);
        assert_eq!(member(1 << 30, &thresholds(&[1, 1])), Some(1));
    }
}
