//! Hash of a packet by a network card: the Toeplitz and XOR functions
//! over addresses and ports, and the symmetric variants of their input.

use std::net::{IpAddr, SocketAddr};

/// Bytes that the Toeplitz function takes of the key beyond its input: the
/// window of 32 bits over the last input bit.
const WINDOW_BYTES: usize = 4;

/// A packet's ends, as the card that hashes it receives it: for data at the
/// receiver, the source is the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    /// Sender of the packet.
    pub source: SocketAddr,
    /// Whom it is for.
    pub destination: SocketAddr,
}

impl Tuple {
    /// Packets of the other direction of the same connection.
    pub fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source }
    }

    fn addresses(self) -> (Vec<u8>, Vec<u8>) {
        match (self.source.ip().to_canonical(), self.destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                (source.octets().to_vec(), destination.octets().to_vec())
            }
            (source, destination) => (six(source).to_vec(), six(destination).to_vec()),
        }
    }
}

fn six(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Parts of a packet that are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fields {
    /// Both addresses: what is left for fragments, and for UDP on many cards.
    Addresses,
    /// Both addresses and both ports.
    AddressesAndPorts,
}

/// Transform that makes the input insensitive to the direction
/// (Documentation/networking/scaling.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InputTransform {
    /// As in the packet.
    #[default]
    None,
    /// `symmetric-xor`: source XOR destination, twice.
    SymmetricXor,
    /// `symmetric-or-xor`: source OR destination, then source XOR destination.
    SymmetricOrXor,
}

/// The function over the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashFunction {
    /// The Toeplitz function with its key ("RSS Hashing Types", Microsoft).
    Toeplitz(Vec<u8>),
    /// All bytes of the input XORed into one, inverted on mlx5
    /// (`MLX5_RX_HASH_FUNC_INVERTED_XOR8`). The vendor does not publish how
    /// mlx4 folds its input: there, only the queue's counter is proof.
    Xor {
        /// The result is inverted.
        inverted: bool,
    },
}

/// A hash as a card computes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hash {
    /// Function.
    pub function: HashFunction,
    /// Transform of the input.
    pub transform: InputTransform,
    /// Fields of the input.
    pub fields: Fields,
}

impl Hash {
    /// The hash of a packet.
    pub fn of(&self, tuple: Tuple) -> u32 {
        let input = self.input(tuple);
        match &self.function {
            HashFunction::Toeplitz(key) => toeplitz(key, &input),
            HashFunction::Xor { inverted } => {
                let folded = input.iter().fold(0, |all, byte| all ^ byte);
                u32::from(if *inverted { !folded } else { folded })
            }
        }
    }

    /// The key's length in bytes and the length that packets of this family
    /// need, when it is too short.
    pub fn short_key(&self, tuple: Tuple) -> Option<(usize, usize)> {
        let HashFunction::Toeplitz(key) = &self.function else { return None };
        let needed = self.input(tuple).len() + WINDOW_BYTES;
        (key.len() < needed).then_some((key.len(), needed))
    }

    /// The bytes hashed, in network order.
    fn input(&self, tuple: Tuple) -> Vec<u8> {
        let (source, destination) = tuple.addresses();
        let mut input = self.transformed(&source, &destination);
        if self.fields == Fields::AddressesAndPorts {
            let (source, destination) = (tuple.source.port(), tuple.destination.port());
            input.extend(self.transformed(&source.to_be_bytes(), &destination.to_be_bytes()));
        }
        input
    }

    fn transformed(&self, source: &[u8], destination: &[u8]) -> Vec<u8> {
        let both = |combine: fn(u8, u8) -> u8| -> Vec<u8> {
            source.iter().zip(destination).map(|(a, b)| combine(*a, *b)).collect()
        };
        let xor = both(|a, b| a ^ b);
        match self.transform {
            InputTransform::None => [source, destination].concat(),
            InputTransform::SymmetricXor => [xor.clone(), xor].concat(),
            InputTransform::SymmetricOrXor => [both(|a, b| a | b), xor].concat(),
        }
    }
}

/// The Toeplitz function: the XOR, over the set bits i of the input, of the
/// key's bits i to i+31. Bits beyond the key's end are zero; a card's key is
/// longer than its input ([`Hash::short_key`]).
pub fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let byte = |at: usize| u64::from(key.get(at).copied().unwrap_or(0));
    let mut window = (0..8).fold(0, |window, at| window << 8 | byte(at));
    let mut hash = 0u32;
    for (at, &value) in input.iter().enumerate() {
        for bit in 0..8 {
            if value & (0x80 >> bit) != 0 {
                // The upper half of what is left after `bit` shifts.
                hash ^= (window << bit >> 32) as u32;
            }
        }
        window = window << 8 | byte(at + 8);
    }
    hash
}

/// A key as `ethtool -x` prints it (`6d:5a:...`) or in plain hexadecimal.
pub fn parse_key(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    digits.chunks_exact(2).map(|pair| u8::try_from(value(pair[0])? << 4 | value(pair[1])?).ok()).collect()
}
