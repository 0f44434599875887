//! Receive queue of a packet as a function of the source port alone: all other fields
//! of a flow are fixed while its port is searched.

/// Reduction of a hash to a queue or a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reduction {
    /// The indirection table's entry at hash modulo its length.
    Table(Vec<u32>),
    /// Hash modulo a count.
    Modulo(u32),
}

impl Reduction {
    fn of(&self, hash: u32) -> Option<u32> {
        match self {
            Self::Table(table) => {
                let index = (hash as usize).checked_rem(table.len())?;
                table.get(index).copied()
            }
            Self::Modulo(count) => hash.checked_rem(*count),
        }
    }
}

/// Marks a port that leads nowhere known.
const UNKNOWN: u32 = u32::MAX;

/// The queue or member that each source port leads to.
#[derive(Debug, Clone)]
pub enum Landing {
    /// The hash is linear over GF(2) but for a constant, as Toeplitz, XOR and
    /// CRC are: one table entry per value of each half of the port, and one XOR per port.
    Affine {
        /// Entries of the upper byte of the port, the constant in each.
        upper: Box<[u32; 256]>,
        /// Entries of the lower byte.
        lower: Box<[u32; 256]>,
        /// From hash to queue.
        reduction: Reduction,
    },
    /// One entry per port.
    Listed(Vec<u32>),
}

impl Landing {
    /// From a hash that is linear over GF(2) in the bits of the port, but for
    /// a constant. It is evaluated 17 times.
    pub fn affine(hash: impl Fn(u16) -> u32, reduction: Reduction) -> Self {
        let constant = hash(0);
        let columns: [u32; 16] = std::array::from_fn(|bit| hash(1 << bit) ^ constant);
        let combine = |value: usize, first: usize| {
            (0..8).filter(|bit| value >> bit & 1 == 1).fold(0, |all, bit| all ^ columns[first + bit])
        };
        Self::Affine {
            upper: Box::new(std::array::from_fn(|value| combine(value, 8) ^ constant)),
            lower: Box::new(std::array::from_fn(|value| combine(value, 0))),
            reduction,
        }
    }

    /// From any function.
    pub fn listed(of: impl Fn(u16) -> Option<u32>) -> Self {
        Self::Listed((0..=u16::MAX).map(|port| of(port).unwrap_or(UNKNOWN)).collect())
    }

    /// Target of this source port, when known.
    pub fn of(&self, port: u16) -> Option<u32> {
        match self {
            Self::Affine { reduction, .. } => reduction.of(self.hash(port)?),
            Self::Listed(entries) => {
                entries.get(usize::from(port)).copied().filter(|entry| *entry != UNKNOWN)
            }
        }
    }

    /// The hash itself, where one is computed.
    pub fn hash(&self, port: u16) -> Option<u32> {
        match self {
            Self::Affine { upper, lower, .. } => {
                let [high, low] = port.to_be_bytes();
                Some(upper[usize::from(high)] ^ lower[usize::from(low)])
            }
            Self::Listed(_) => None,
        }
    }
}
