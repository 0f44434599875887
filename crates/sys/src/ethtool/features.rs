//! Features of a device by name (linux/ethtool.h, `ETHTOOL_GFEATURES`): the
//! kernel has one list of names for all devices.

use std::io;

use super::{DriverSocket, beyond, put, request, u32_at};

const GET_STRINGS: u32 = 0x1b;
const GET_STRING_COUNTS: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// `ETH_SS_FEATURES`.
const FEATURE_NAMES: u32 = 4;
/// `ETH_GSTRING_LEN`.
const NAME_BYTES: usize = 32;
/// Octets of `struct ethtool_gstrings` and of the features' structures before the variable part.
const STRINGS_HEADER: usize = 12;
const FEATURES_HEADER: usize = 8;
/// `struct ethtool_get_features_block`: available, requested, active, never changed.
const BLOCK: usize = 16;
const ACTIVE: usize = 8;
/// `struct ethtool_set_features_block`: valid, requested.
const SET_BLOCK: usize = 8;
/// Maximum names read: kernels have about 64.
const MOST_NAMES: usize = 1024;

/// A feature of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name: `rx-gro`.
    pub name: String,
    /// Whether it is on.
    pub is_on: bool,
}

impl DriverSocket {
    /// Every feature named by the kernel.
    ///
    /// # Errors
    /// `ENODEV`; `InvalidData` for an implausible list.
    pub fn features(&self, interface: &str) -> io::Result<Vec<Feature>> {
        let names = self.feature_names(interface)?;
        let blocks = names.len().div_ceil(32);
        let mut request = request(GET_FEATURES, FEATURES_HEADER + BLOCK * blocks);
        put(&mut request, 4, u32::try_from(blocks).unwrap_or(u32::MAX));
        self.call(interface, &mut request)?;
        let is_on = |at: usize| {
            let active = u32_at(&request, FEATURES_HEADER + BLOCK * (at / 32) + ACTIVE);
            active & 1 << (at % 32) != 0
        };
        let named = names.into_iter().enumerate().filter(|(_, name)| !name.is_empty());
        Ok(named.map(|(at, name)| Feature { is_on: is_on(at), name }).collect())
    }

    /// Requests a feature on or off. Unsupported changes are ignored by the device: the caller reads the
    /// state back.
    ///
    /// # Errors
    /// `NotFound` for an unknown name, `EPERM`, `ENODEV`.
    pub fn set_feature(&self, interface: &str, name: &str, on: bool) -> io::Result<()> {
        let names = self.feature_names(interface)?;
        let at = names.iter().position(|known| known == name).ok_or(io::ErrorKind::NotFound)?;
        let blocks = names.len().div_ceil(32);
        let mut request = request(SET_FEATURES, FEATURES_HEADER + SET_BLOCK * blocks);
        put(&mut request, 4, u32::try_from(blocks).unwrap_or(u32::MAX));
        let (place, bit) = (FEATURES_HEADER + SET_BLOCK * (at / 32), 1 << (at % 32));
        put(&mut request, place, bit);
        put(&mut request, place + 4, if on { bit } else { 0 });
        self.call(interface, &mut request)
    }

    /// Names by bit; empty for bits without one.
    fn feature_names(&self, interface: &str) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: the mask of lists at 8, counts from 16 on.
        let mut sizes = request(GET_STRING_COUNTS, 20);
        sizes[8..16].copy_from_slice(&(1u64 << FEATURE_NAMES).to_ne_bytes());
        self.call(interface, &mut sizes)?;
        let count = u32_at(&sizes, 16) as usize;
        if count == 0 || count > MOST_NAMES {
            return Err(beyond("a list of features"));
        }
        // The kernel writes as many names as it has, independent of the request; the list is a constant of
        // the running kernel.
        let mut strings = request(GET_STRINGS, STRINGS_HEADER + NAME_BYTES * count);
        put(&mut strings, 4, FEATURE_NAMES);
        put(&mut strings, 8, u32::try_from(count).unwrap_or(u32::MAX));
        self.call(interface, &mut strings)?;
        let name = |octets: &[u8]| {
            let octets = octets.split(|octet| *octet == 0).next().unwrap_or_default();
            String::from_utf8_lossy(octets).into_owned()
        };
        Ok(strings[STRINGS_HEADER..].chunks_exact(NAME_BYTES).map(name).collect())
    }
}
