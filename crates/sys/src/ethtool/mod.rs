//! Driver requests by interface ioctl (`SIOCETHTOOL`, linux/ethtool.h): what the ethtool netlink family of a
//! kernel lacks. The family was added in Linux 5.6, `ETHTOOL_MSG_RSS_GET` in 6.3, the driver's name and
//! version never.

mod counts;
mod features;
mod statistics;
mod strings;

use std::{
    io, mem,
    net::UdpSocket,
    os::fd::{AsRawFd, FromRawFd},
};

pub use self::{counts::Counts, features::Feature};

const SIOCETHTOOL: libc::c_ulong = 0x8946;

// Commands of linux/ethtool.h.
const GET_DRIVER: u32 = 0x03;
const GET_COALESCING: u32 = 0x0e;
const GET_HASH_FIELDS: u32 = 0x29;
const GET_RECEIVE_RINGS: u32 = 0x2d;
const GET_INDIRECTION: u32 = 0x38;
const SET_INDIRECTION: u32 = 0x39;
const GET_RECEIVE_HASH: u32 = 0x46;

/// Octets of `struct ethtool_drvinfo` and of each text in it.
const DRIVER_BYTES: usize = 196;
const TEXT_BYTES: usize = 32;
/// Values of `struct ethtool_coalesce` after its command.
const COALESCING_COUNT: usize = 22;
/// Octets of `struct ethtool_rxnfc` (192), whose `data` is at 8.
const CLASSIFIER_BYTES: usize = 256;
const CLASSIFIER_DATA: usize = 8;
/// Octets of `struct ethtool_rxfh` and `struct ethtool_rxfh_indir` before the variable part.
const HASH_HEADER: usize = 24;
const INDIRECTION_HEADER: usize = 8;
/// Maximum table entries and key octets read: several times those of any device (4096 entries, 52 octets).
const MOST_ENTRIES: usize = 1 << 16;
const MOST_KEY_BYTES: usize = 1 << 12;
/// Attempts at a table whose size changes between the two requests.
const ATTEMPTS: usize = 3;

/// `struct ethtool_drvinfo`; texts that the driver does not set are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Driver {
    /// Driver name.
    pub name: String,
    /// Driver version; the kernel's for drivers without their own.
    pub version: String,
    /// Firmware version.
    pub firmware_version: String,
    /// Address on its bus: `0000:3b:00.0`.
    pub bus: String,
}

/// `struct ethtool_rxfh`, of the default context.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceiveHash {
    /// `ETH_RSS_HASH_*`; 0 where the kernel does not report it.
    pub function: u32,
    /// `RXH_XFRM_*` (Linux 6.8), 0 before.
    pub input_transform: u32,
    /// Queue of each entry.
    pub indirection: Vec<u32>,
    /// Key.
    pub key: Vec<u8>,
}

/// Kinds of packets whose hashed fields can be read (`TCP_V4_FLOW` and the like).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FlowKind {
    /// TCP over IPv4.
    TcpV4 = 1,
    /// UDP over IPv4.
    UdpV4 = 2,
    /// TCP over IPv6.
    TcpV6 = 5,
    /// UDP over IPv6.
    UdpV6 = 6,
}

/// A socket for these requests, in the network namespace of the thread that
/// opened it.
#[derive(Debug)]
pub struct DriverSocket {
    socket: UdpSocket,
}

impl DriverSocket {
    /// Opens the socket. It is never bound: it cannot receive.
    ///
    /// # Errors
    /// Where the kernel has no IPv4.
    pub fn open() -> io::Result<Self> {
        // SAFETY: plain numbers; the result is checked before it is used.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor without another owner.
        Ok(Self { socket: unsafe { UdpSocket::from_raw_fd(fd) } })
    }

    /// Name and versions of the driver.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for interfaces without a driver (loopback), `ENODEV`.
    pub fn driver(&self, interface: &str) -> io::Result<Driver> {
        let mut request = request(GET_DRIVER, DRIVER_BYTES);
        self.call(interface, &mut request)?;
        Ok(read_driver(&request))
    }

    /// Interrupt coalescing, in the order of `struct ethtool_coalesce` from
    /// `rx_coalesce_usecs` on. Unsupported values are 0.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `ENODEV`.
    pub fn coalescing(&self, interface: &str) -> io::Result<[u32; COALESCING_COUNT]> {
        let mut request = request(GET_COALESCING, 4 + 4 * COALESCING_COUNT);
        self.call(interface, &mut request)?;
        Ok(std::array::from_fn(|place| u32_at(&request, 4 + 4 * place)))
    }

    /// Receive queues that packets can be hashed to.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `ENODEV`.
    pub fn receive_rings(&self, interface: &str) -> io::Result<u32> {
        let mut request = request(GET_RECEIVE_RINGS, CLASSIFIER_BYTES);
        self.call(interface, &mut request)?;
        Ok(u32_at(&request, CLASSIFIER_DATA + if cfg!(target_endian = "big") { 4 } else { 0 }))
    }

    /// Hashed fields of packets of a kind, as `RXH_*` bits.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EINVAL` for kinds that the device does not support, `ENODEV`.
    pub fn hash_fields(&self, interface: &str, kind: FlowKind) -> io::Result<u32> {
        let mut request = request(GET_HASH_FIELDS, CLASSIFIER_BYTES);
        put(&mut request, 4, kind as u32);
        self.call(interface, &mut request)?;
        Ok(u32_at(&request, CLASSIFIER_DATA + if cfg!(target_endian = "big") { 4 } else { 0 }))
    }

    /// Hash function, key and indirection table. Drivers that predate reading the key return the table alone.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `ENODEV`; `InvalidData` for implausible sizes.
    pub fn receive_hash(&self, interface: &str) -> io::Result<ReceiveHash> {
        match self.sized(interface, &[0; HASH_HEADER], hash_request) {
            Ok(response) => read_hash(&response),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                let response = self.sized(interface, &[0; INDIRECTION_HEADER], indirection_request)?;
                let indirection = u32s_at(&response, INDIRECTION_HEADER, u32_at(&response, 4) as usize)?;
                Ok(ReceiveHash { indirection, ..ReceiveHash::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// Sets the indirection table; an empty one resets it to the kernel's default, which the driver may
    /// update by itself.
    ///
    /// # Errors
    /// `EINVAL` for another size or a missing queue, `EPERM`, `EOPNOTSUPP`, `ENODEV`.
    pub fn set_indirection(&self, interface: &str, queues: &[u32]) -> io::Result<()> {
        let mut request = request(SET_INDIRECTION, INDIRECTION_HEADER + 4 * queues.len());
        put(&mut request, 4, u32::try_from(queues.len()).unwrap_or(u32::MAX));
        for (place, queue) in queues.iter().enumerate() {
            put(&mut request, INDIRECTION_HEADER + 4 * place, *queue);
        }
        self.call(interface, &mut request)
    }

    /// A request in two steps: the sizes first, then the content of that size.
    fn sized(
        &self,
        interface: &str,
        empty: &[u8],
        build: fn(&[u8]) -> io::Result<Vec<u8>>,
    ) -> io::Result<Vec<u8>> {
        let mut attempts = 0;
        loop {
            let mut sizes = build(empty)?;
            self.call(interface, &mut sizes)?;
            let mut request = build(&sizes)?;
            match self.call(interface, &mut request) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && attempts < ATTEMPTS => {
                    attempts += 1;
                }
                other => return other.map(|()| request),
            }
        }
    }

    /// One ioctl. `request` holds a structure of linux/ethtool.h, and room after it for as many entries as
    /// its sizes announce.
    fn call(&self, interface: &str, request: &mut [u8]) -> io::Result<()> {
        if interface.is_empty() || interface.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        // SAFETY: an all-zero `ifreq` is valid; it is plain data.
        let mut outer: libc::ifreq = unsafe { mem::zeroed() };
        for (to, from) in outer.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        outer.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
        // SAFETY: `outer` and `request` live until the call returns. The
        // kernel writes the structure of the command, for which every request
        // built here has room, and behind it at most the entries that the
        // sizes in the request admit (it refuses other sizes).
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut outer) } {
            // Above 0 are flags of `ETHTOOL_SFEATURES`.
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn request(command: u32, bytes: usize) -> Vec<u8> {
    let mut request = vec![0; bytes];
    put(&mut request, 0, command);
    request
}

fn put(request: &mut [u8], place: usize, value: u32) {
    request[place..place + 4].copy_from_slice(&value.to_ne_bytes());
}

/// Returns the `u32` at an offset; 0 beyond the end.
fn u32_at(response: &[u8], place: usize) -> u32 {
    let octets = response.get(place..).and_then(|rest| rest.first_chunk());
    octets.map_or(0, |octets| u32::from_ne_bytes(*octets))
}

fn beyond(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the driver reports {what} of an implausible size"))
}

/// `struct ethtool_rxfh` with room for the table and the key that `sizes`, one
/// such structure, announces.
fn hash_request(sizes: &[u8]) -> io::Result<Vec<u8>> {
    let (entries, key) = (u32_at(sizes, 8), u32_at(sizes, 12));
    if entries as usize > MOST_ENTRIES || key as usize > MOST_KEY_BYTES {
        return Err(beyond("a hash table or key"));
    }
    let mut request = request(GET_RECEIVE_HASH, HASH_HEADER + 4 * entries as usize + key as usize);
    put(&mut request, 8, entries);
    put(&mut request, 12, key);
    Ok(request)
}

/// As [`hash_request`] for `struct ethtool_rxfh_indir`.
fn indirection_request(sizes: &[u8]) -> io::Result<Vec<u8>> {
    let entries = u32_at(sizes, 4);
    if entries as usize > MOST_ENTRIES {
        return Err(beyond("an indirection table"));
    }
    let mut request = request(GET_INDIRECTION, INDIRECTION_HEADER + 4 * entries as usize);
    put(&mut request, 4, entries);
    Ok(request)
}

fn read_hash(response: &[u8]) -> io::Result<ReceiveHash> {
    let (entries, key_bytes) = (u32_at(response, 8) as usize, u32_at(response, 12) as usize);
    let indirection = u32s_at(response, HASH_HEADER, entries)?;
    let key = response.get(HASH_HEADER + 4 * entries..).and_then(|rest| rest.get(..key_bytes));
    let octet = |place: usize| response.get(place).map_or(0, |octet| u32::from(*octet));
    Ok(ReceiveHash {
        function: octet(16),
        input_transform: octet(17),
        indirection,
        key: key.ok_or_else(|| beyond("a hash key"))?.to_vec(),
    })
}

fn u32s_at(response: &[u8], place: usize, count: usize) -> io::Result<Vec<u32>> {
    let octets = response.get(place..).and_then(|rest| rest.get(..count.checked_mul(4)?));
    let octets = octets.ok_or_else(|| beyond("an indirection table"))?;
    Ok(octets.chunks_exact(4).map(|chunk| u32_at(chunk, 0)).collect())
}

fn read_driver(response: &[u8]) -> Driver {
    let text = |place: usize| {
        let octets = response.get(4 + place * TEXT_BYTES..).and_then(|rest| rest.get(..TEXT_BYTES));
        let octets = octets.unwrap_or_default().split(|octet| *octet == 0).next().unwrap_or_default();
        String::from_utf8_lossy(octets).trim().to_owned()
    };
    Driver { name: text(0), version: text(1), firmware_version: text(2), bus: text(3) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn octets(hexadecimal: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            hexadecimal.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// Structures as a C program with linux/ethtool.h read them from Linux
    /// 6.1.0-56-amd64 (Debian 12, virtio_net) after `ethtool -X IFACE weight 3 2 1 1`.
    #[cfg(target_endian = "little")]
    #[test]
    fn structures_of_linux_6_1_are_read() {
        let key = "2c5e9912741e3abe218b413c6f2c7b90bb8d7fa6459c5180ce3dffc70fd0f2df1f7a4c44257acb9f";
        let runs = [(0u32, 54), (1, 37), (2, 18), (3, 19)];
        let entries: Vec<u32> =
            runs.iter().flat_map(|(queue, length)| std::iter::repeat_n(*queue, *length)).collect();
        let table: Vec<u8> = entries.iter().flat_map(|queue| queue.to_le_bytes()).collect();
        let mut response = octets("46000000 00000000 80000000 28000000 01000000 00000000");
        response.extend_from_slice(&table);
        response.extend_from_slice(&octets(key));
        let found = read_hash(&response).unwrap();
        assert_eq!((found.function, found.input_transform), (1, 0));
        assert_eq!((found.indirection, found.key), (entries.clone(), octets(key)));
        // The request for it, after the sizes were read.
        let request = hash_request(&response[..HASH_HEADER]).unwrap();
        assert_eq!(request[..HASH_HEADER], octets("46000000 00000000 80000000 28000000 00000000 00000000"));
        assert_eq!(request.len(), response.len());
        let mut response = octets("38000000 80000000");
        response.extend_from_slice(&table);
        assert_eq!(u32s_at(&response, INDIRECTION_HEADER, 128).unwrap(), entries);
        assert_eq!(indirection_request(&response).unwrap().len(), response.len());
        // `struct ethtool_drvinfo` of e1000e.
        let mut response = octets("03000000 6531303030650000");
        response.resize(4 + 32, 0);
        response.extend_from_slice(b"6.1.0-56-amd64");
        response.resize(4 + 64, 0);
        response.extend_from_slice(b"2.1-0");
        response.resize(4 + 96, 0);
        response.extend_from_slice(b"0000:00:05.0");
        response.resize(DRIVER_BYTES, 0);
        let found = read_driver(&response);
        assert_eq!([found.name, found.version], ["e1000e", "6.1.0-56-amd64"]);
        assert_eq!([found.firmware_version, found.bus], ["2.1-0", "0000:00:05.0"]);
    }

    #[test]
    fn implausible_sizes_and_short_structures_are_rejected() {
        let mut sizes = vec![0; HASH_HEADER];
        put(&mut sizes, 8, u32::MAX);
        assert_eq!(hash_request(&sizes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        put(&mut sizes, 8, 4);
        assert_eq!(read_hash(&sizes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        put(&mut sizes, 8, 0);
        put(&mut sizes, 12, 40);
        assert_eq!(read_hash(&sizes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        put(&mut sizes, 4, u32::MAX);
        assert!(indirection_request(&sizes).is_err());
    }

    #[test]
    fn loopback_has_no_driver_and_other_names_no_interface() {
        let socket = DriverSocket::open().unwrap();
        for refused in [
            socket.driver("lo").unwrap_err(),
            socket.receive_hash("lo").unwrap_err(),
            socket.coalescing("lo").unwrap_err(),
            socket.receive_rings("lo").unwrap_err(),
        ] {
            assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
        }
        for name in ["no.such0", "", "a-name-longer-than-the-kernel-takes"] {
            assert_eq!(socket.driver(name).unwrap_err().raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }
}
