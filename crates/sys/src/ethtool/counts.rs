//! Ring sizes and channel counts: `struct ethtool_ringparam` and `struct
//! ethtool_channels`, which have the same layout.

use std::io;

use super::{DriverSocket, put, request, u32_at};

/// Numbers after the command: four maxima, and the four current values.
const COUNT: usize = 8;

/// Kind of counts. Order of the numbers: for rings receive, receive mini, receive jumbo, transmit; for
/// channels receive, transmit, other, combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// Descriptors of rings.
    Rings,
    /// Channels.
    Channels,
}

impl Counts {
    /// `ETHTOOL_GRINGPARAM`, `ETHTOOL_GCHANNELS`.
    fn read(self) -> u32 {
        match self {
            Self::Rings => 0x10,
            Self::Channels => 0x3c,
        }
    }

    /// `ETHTOOL_SRINGPARAM`, `ETHTOOL_SCHANNELS`.
    fn write(self) -> u32 {
        self.read() + 1
    }
}

impl DriverSocket {
    /// The four maxima, then the four current values; 0 for unsupported ones.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `ENODEV`.
    pub fn counts(&self, interface: &str, counts: Counts) -> io::Result<[u32; COUNT]> {
        let mut request = request(counts.read(), 4 + 4 * COUNT);
        self.call(interface, &mut request)?;
        Ok(std::array::from_fn(|place| u32_at(&request, 4 + 4 * place)))
    }

    /// Sets the four current values; the maxima are the device's.
    ///
    /// # Errors
    /// `EINVAL` beyond a maximum, `EPERM`, `EOPNOTSUPP`, `ENODEV`.
    pub fn set_counts(&self, interface: &str, counts: Counts, values: [u32; COUNT]) -> io::Result<()> {
        let mut request = request(counts.write(), 4 + 4 * COUNT);
        for (place, value) in values.into_iter().enumerate() {
            put(&mut request, 4 + 4 * place, value);
        }
        self.call(interface, &mut request)
    }
}
