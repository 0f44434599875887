//! Hashes and searches against the published vectors and an independent
//! implementation, bit by bit.

use std::net::{IpAddr, SocketAddr};

use clearstream_place::{
    hash::{Fields, Hash, HashFunction, InputTransform, Tuple, parse_key, toeplitz},
    landing::{Landing, Reduction},
    path::PathHash,
    search::{Constraint, PortSpace, find},
};
use proptest::prelude::*;

/// "Verifying the RSS hash calculation", Microsoft.
const KEY: &str = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";

const VECTORS: [(&str, &str, u32, u32); 8] = [
    ("66.9.149.187:2794", "161.142.100.80:1766", 0x323e_8fc2, 0x51cc_c178),
    ("199.92.111.2:14230", "65.69.140.83:4739", 0xd718_262a, 0xc626_b0ea),
    ("24.19.198.95:12898", "12.22.207.184:38024", 0xd2d0_a5de, 0x5c2b_394a),
    ("38.27.205.30:48228", "209.142.163.6:2217", 0x8298_9176, 0xafc7_327f),
    ("153.39.163.191:44251", "202.188.127.2:1303", 0x5d18_09c5, 0x10e8_28a2),
    ("[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x2cc1_8cd5, 0x4020_7d3d),
    ("[3ffe:501:8::260:97ff:fe40:efab]:14230", "[ff02::1]:4739", 0x0f0c_461c, 0xdde5_1bbf),
    (
        "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
        "[fe80::200:f8ff:fe21:67cf]:38024",
        0x4b61_e985,
        0x02d1_feef,
    ),
];

fn tuple(source: &str, destination: &str) -> Tuple {
    Tuple { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn with(key: Vec<u8>, fields: Fields) -> Hash {
    Hash { function: HashFunction::Toeplitz(key), transform: InputTransform::None, fields }
}

/// The definition, one bit at a time and sharing nothing with the crate:
/// a string of bits, and a window of 32 that slides over it.
fn by_definition(key: &[u8], input: &[u8]) -> u32 {
    let bits = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:08b}")).collect() };
    let key = bits(key) + &"0".repeat(8 * input.len() + 32);
    let mut hash = 0;
    for (at, bit) in bits(input).chars().enumerate() {
        if bit == '1' {
            hash ^= u32::from_str_radix(&key[at..at + 32], 2).unwrap();
        }
    }
    hash
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn four_tuple_bytes(tuple: Tuple) -> Vec<u8> {
    let mut input = [bytes(tuple.source.ip()), bytes(tuple.destination.ip())].concat();
    input.extend(tuple.source.port().to_be_bytes());
    input.extend(tuple.destination.port().to_be_bytes());
    input
}

#[test]
fn all_published_vectors() {
    let key = parse_key(KEY).unwrap();
    for (source, destination, two, four) in VECTORS {
        let tuple = tuple(source, destination);
        assert_eq!(with(key.clone(), Fields::Addresses).of(tuple), two, "{source} by address");
        assert_eq!(with(key.clone(), Fields::AddressesAndPorts).of(tuple), four, "{source} with ports");
        assert_eq!(by_definition(&key, &four_tuple_bytes(tuple)), four, "the test's own definition");
    }
}

#[test]
fn a_mapped_address_is_an_ipv4_address() {
    let key = parse_key(KEY).unwrap();
    let mapped = tuple("[::ffff:66.9.149.187]:2794", "[::ffff:161.142.100.80]:1766");
    assert_eq!(with(key, Fields::AddressesAndPorts).of(mapped), 0x51cc_c178);
}

/// Woo and Park, "Scalable TCP Session Monitoring with Symmetric RSS", 2012:
/// a key that repeats 0x6d5a hashes both directions equally.
#[test]
fn the_repeated_key_is_symmetric() {
    let hash = with(parse_key(&"6d5a".repeat(20)).unwrap(), Fields::AddressesAndPorts);
    let tuple = tuple("66.9.149.187:2794", "161.142.100.80:1766");
    assert_eq!((hash.of(tuple), hash.of(tuple.reversed())), (0x9fcc_9fcc, 0x9fcc_9fcc));
}

/// Measured vector: table of 128 entries over 8 queues.
#[test]
fn the_first_ports_of_each_queue() {
    let hash = with(parse_key(KEY).unwrap(), Fields::AddressesAndPorts);
    let of = |port: u16| {
        let source = SocketAddr::new("192.0.2.1".parse().unwrap(), port);
        hash.of(Tuple { source, destination: "198.51.100.2:5201".parse().unwrap() })
    };
    assert_eq!(of(0), 0xa08c_6d98);
    let landing = Landing::affine(of, Reduction::Table((0..128).map(|entry| entry % 8).collect()));
    let mut space = PortSpace::new(32_768, 60_999);
    let first = |queue: u32, space: &mut PortSpace| {
        find(space, &[Constraint { name: "receive queue", landing: &landing, wanted: queue }]).unwrap().port
    };
    let expected = [
        (5, 32_768),
        (4, 32_769),
        (1, 32_772),
        (0, 32_773),
        (7, 32_776),
        (6, 32_777),
        (3, 32_780),
        (2, 32_781),
    ];
    for (queue, port) in expected {
        assert_eq!(first(queue, &mut space), port, "queue {queue}");
    }
    let mut counts = [0; 8];
    for port in 32_768..=60_999 {
        counts[landing.of(port).unwrap() as usize] += 1;
    }
    assert!(counts.iter().all(|count| (3528..=3530).contains(count)), "{counts:?}");
}

#[test]
fn keys_are_read_as_ethtool_prints_them() {
    assert_eq!(parse_key("6d:5a:56"), Some(vec![0x6d, 0x5a, 0x56]));
    for text in ["", "6d5", "6g", "-1", "+1+1"] {
        assert_eq!(parse_key(text), None, "{text}");
    }
}

#[test]
fn xor_folds_to_one_byte() {
    let hash = |inverted| Hash {
        function: HashFunction::Xor { inverted },
        transform: InputTransform::None,
        fields: Fields::AddressesAndPorts,
    };
    let tuple = tuple("10.0.0.1:256", "10.0.0.2:2");
    // 10^0^0^1 ^ 10^0^0^2 ^ 1^0 ^ 0^2
    assert_eq!(hash(false).of(tuple), 0);
    assert_eq!(hash(true).of(tuple), 0xff);
}

#[test]
fn nobody_is_named_with_what_each_constraint_leaves() {
    let landing = Landing::affine(u32::from, Reduction::Modulo(4));
    let mut space = PortSpace::new(100, 107);
    let constraint = |wanted| Constraint { name: "receive queue", landing: &landing, wanted };
    assert_eq!(find(&mut space, &[constraint(1)]).unwrap().port, 101);
    assert_eq!(find(&mut space, &[constraint(1)]).unwrap().port, 105);
    let message = find(&mut space, &[constraint(1), constraint(2)]).unwrap_err().to_string();
    assert!(message.contains("of the 6 free ones leads to receive queue 1 (0 do"), "{message}");
    assert!(
        message.contains("receive queue 2 (2 do") && message.contains("ip_local_port_range"),
        "{message}"
    );
}

fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let four = (any::<[u8; 4]>(), any::<[u8; 4]>(), any::<u16>(), any::<u16>())
        .prop_map(|(a, b, p, q)| (SocketAddr::new(a.into(), p), SocketAddr::new(b.into(), q)));
    // Addresses of the mapped range are IPv4 ones, which the test's own input does not know.
    let six = (any::<[u8; 15]>(), any::<[u8; 15]>(), any::<u16>(), any::<u16>()).prop_map(|(a, b, p, q)| {
        let address = |rest: [u8; 15]| -> IpAddr {
            let mut octets = [0x20; 16];
            octets[1..].copy_from_slice(&rest);
            octets.into()
        };
        (SocketAddr::new(address(a), p), SocketAddr::new(address(b), q))
    });
    prop_oneof![four, six]
}

fn transforms() -> impl Strategy<Value = InputTransform> {
    prop_oneof![
        Just(InputTransform::None),
        Just(InputTransform::SymmetricXor),
        Just(InputTransform::SymmetricOrXor)
    ]
}

proptest! {
    #[test]
    fn linear_over_gf_2(key in prop::collection::vec(any::<u8>(), 0..320), pair in prop::collection::vec(any::<(u8, u8)>(), 0..64)) {
        let (x, y): (Vec<u8>, Vec<u8>) = pair.into_iter().unzip();
        let both: Vec<u8> = x.iter().zip(&y).map(|(a, b)| a ^ b).collect();
        prop_assert_eq!(toeplitz(&key, &both), toeplitz(&key, &x) ^ toeplitz(&key, &y));
        prop_assert_eq!(toeplitz(&key, &x), by_definition(&key, &x));
    }

    #[test]
    fn symmetric_transforms_do_not_see_the_direction(
        key in prop::collection::vec(any::<u8>(), 40..=40), ends in addresses(), transform in transforms()
    ) {
        prop_assume!(transform != InputTransform::None);
        let hash = Hash { function: HashFunction::Toeplitz(key), transform, fields: Fields::AddressesAndPorts };
        let tuple = Tuple { source: ends.0, destination: ends.1 };
        prop_assert_eq!(hash.of(tuple), hash.of(tuple.reversed()));
    }

    /// The entries per half of the port give the value of the whole hash, whatever the
    /// function and wherever the port is.
    #[test]
    fn one_xor_per_port_is_enough(
        key in prop::collection::vec(any::<u8>(), 52..=52), ends in addresses(), transform in transforms(),
        port in any::<u16>(), members in 1u32..9
    ) {
        let tuple = Tuple { source: ends.0, destination: ends.1 };
        let hash = Hash { function: HashFunction::Toeplitz(key), transform, fields: Fields::AddressesAndPorts };
        let there = |port| { let mut tuple = tuple; tuple.source.set_port(port); hash.of(tuple) };
        let reply = |port| { let mut tuple = tuple.reversed(); tuple.destination.set_port(port); hash.of(tuple) };
        prop_assert_eq!(Landing::affine(there, Reduction::Modulo(128)).hash(port), Some(there(port)));
        prop_assert_eq!(Landing::affine(reply, Reduction::Modulo(128)).hash(port), Some(reply(port)));
        let crc = PathHash::Crc32 { member_count: members }.landing(tuple);
        prop_assert!(crc.of(port).is_some_and(|member| member < members));
    }

    /// A found port really hashes to the wanted queue, by the test's own arithmetic.
    #[test]
    fn a_found_port_hashes_to_its_queues(
        keys in prop::collection::vec(any::<u8>(), 80..=80), ends in addresses(),
        wanted in 0u32..16, acknowledged in 0u32..8, queues in prop::collection::vec(0u32..16, 128..=128)
    ) {
        let (key, other) = keys.split_at(40);
        let tuple = Tuple { source: ends.0, destination: ends.1 };
        let hash = |key: &[u8]| with(key.to_vec(), Fields::AddressesAndPorts);
        let (here, there) = (hash(key), hash(other));
        let data = Landing::affine(
            |port| { let mut tuple = tuple; tuple.source.set_port(port); here.of(tuple) },
            Reduction::Table(queues.clone()),
        );
        let replies = Landing::affine(
            |port| { let mut tuple = tuple.reversed(); tuple.destination.set_port(port); there.of(tuple) },
            Reduction::Modulo(8),
        );
        let mut space = PortSpace::new(32_768, 60_999);
        let constraints = [
            Constraint { name: "receive queue", landing: &data, wanted },
            Constraint { name: "acknowledgement queue", landing: &replies, wanted: acknowledged },
        ];
        if let Ok(found) = find(&mut space, &constraints) {
            let mut packet = tuple;
            packet.source.set_port(found.port);
            let index = by_definition(key, &four_tuple_bytes(packet)) % 128;
            prop_assert_eq!(queues[index as usize], wanted);
            prop_assert_eq!(by_definition(other, &four_tuple_bytes(packet.reversed())) % 8, acknowledged);
            prop_assert!((32_768..=60_999).contains(&found.port));
            prop_assert!(!space.ports().any(|port| port == found.port), "given out once");
        }
    }
}
