//! Lists of names (linux/ethtool.h, `ETHTOOL_GSTRINGS`).

use std::io;

use super::{DriverSocket, beyond, put, request, u32_at};

const GET_STRINGS: u32 = 0x1b;
const GET_STRING_COUNTS: u32 = 0x37;
/// `ETH_GSTRING_LEN`.
const NAME_BYTES: usize = 32;
/// Octets of `struct ethtool_gstrings` before the names.
const HEADER: usize = 12;

/// Maximum counters read: drivers with hundreds of queues have some ten thousand.
pub(super) const MOST_STATISTICS: usize = 1 << 16;

impl DriverSocket {
    /// The names of a list (`ETH_SS_*`), at most `most`; empty for places without one.
    pub(super) fn strings(&self, interface: &str, list: u32, most: usize) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: the mask of lists at 8, counts from 16 on.
        let mut sizes = request(GET_STRING_COUNTS, 20);
        sizes[8..16].copy_from_slice(&(1u64 << list).to_ne_bytes());
        self.call(interface, &mut sizes)?;
        let mask = u64::from_ne_bytes(std::array::from_fn(|at| sizes[8 + at]));
        if mask & 1 << list == 0 {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let count = u32_at(&sizes, 16) as usize;
        if count == 0 || count > most {
            return Err(beyond("a list of names"));
        }
        // The kernel writes as many names as it has now, independent of the request: room for the maximum.
        let mut strings = request(GET_STRINGS, HEADER + NAME_BYTES * most);
        put(&mut strings, 4, list);
        put(&mut strings, 8, u32::try_from(count).unwrap_or(u32::MAX));
        self.call(interface, &mut strings)?;
        let count = (u32_at(&strings, 8) as usize).min(most);
        let name = |octets: &[u8]| {
            let octets = octets.split(|octet| *octet == 0).next().unwrap_or_default();
            String::from_utf8_lossy(octets).into_owned()
        };
        Ok(strings[HEADER..].chunks_exact(NAME_BYTES).take(count).map(name).collect())
    }
}
