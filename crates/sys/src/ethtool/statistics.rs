//! Counters of a driver (linux/ethtool.h, `ETHTOOL_GSTATS`): what `ethtool -S` prints.

use std::io;

use super::{DriverSocket, put, request, strings::MOST_STATISTICS, u32_at};

const GET_STATISTICS: u32 = 0x1d;
/// `ETH_SS_STATS`.
const STATISTIC_NAMES: u32 = 1;
/// Octets of `struct ethtool_stats` before the counters.
const HEADER: usize = 8;

impl DriverSocket {
    /// All counters by the driver's names, in the driver's order.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for drivers without any, `ENODEV`; `InvalidData` where the list changed meanwhile.
    pub fn statistics(&self, interface: &str) -> io::Result<Vec<(String, u64)>> {
        let names = self.strings(interface, STATISTIC_NAMES, MOST_STATISTICS)?;
        // The driver writes as many counters as it has now, which changes with its channels: room for the maximum.
        let mut request = request(GET_STATISTICS, HEADER + 8 * MOST_STATISTICS);
        put(&mut request, 4, u32::try_from(names.len()).unwrap_or(u32::MAX));
        self.call(interface, &mut request)?;
        if u32_at(&request, 4) as usize != names.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the driver's list of counters changed"));
        }
        let counters = request[HEADER..].as_chunks::<8>().0.iter().map(|octets| u64::from_ne_bytes(*octets));
        Ok(names.into_iter().zip(counters).filter(|(name, _)| !name.is_empty()).collect())
    }
}
