//! TUN devices that pass packets aggregated by segmentation offload (Documentation/networking/tuntap.rst,
//! linux/if_tun.h).

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
};

// linux/if_tun.h; libc lacks the USO bits; the others are listed for completeness.
const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;
const TUN_F_TSO_ECN: libc::c_uint = 0x08;
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;

/// Bytes of `struct virtio_net_hdr` in front of each packet.
pub const PACKET_HEADER_BYTES: usize = 10;
/// Largest packet with its header: an IP packet is at most 65535 bytes, an IPv6 one has its header of 40 in
/// addition.
pub const PACKET_MAX_BYTES: usize = PACKET_HEADER_BYTES + 65_535 + 40;

/// A TUN device in the network namespace it was opened in. It is removed when the value is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    udp_segmentation: bool,
}

impl Tun {
    /// Creates the device `name` (at most 15 bytes) in the calling thread's network namespace. Reads do not
    /// block. Needs `CAP_NET_ADMIN` and /dev/net/tun.
    pub fn open(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an interface name has 1 to 15 bytes"));
        }
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        // SAFETY: an all-zero `ifreq` is valid; it is plain data.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives here.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut tun = Self { file, udp_segmentation: false };
        let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        // UDP segmentation was added in Linux 6.2; older kernels reject the bits.
        match tun.set_offload(tcp | TUN_F_USO4 | TUN_F_USO6) {
            Ok(()) => tun.udp_segmentation = true,
            Err(_) => tun.set_offload(tcp)?,
        }
        Ok(tun)
    }

    fn set_offload(&self, bits: libc::c_uint) -> io::Result<()> {
        // SAFETY: TUNSETOFFLOAD takes its bits by value.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(bits)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether aggregated UDP datagrams are passed as one, too.
    pub fn udp_segmentation(&self) -> bool {
        self.udp_segmentation
    }

    /// Receives the next packet sent by the host, header first; `WouldBlock` when there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Sends a packet, header first, to the host.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{Holder, NamespaceSet};

    #[test]
    fn root_device_exists_as_long_as_its_value() {
        let holder = Holder::start().expect("namespaces");
        let set = NamespaceSet::of_process(holder.pid()).expect("proc");
        let interfaces = || {
            let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("procfs");
            text.contains("wan0:")
        };
        let tun = set.run(|| Tun::open("wan0")).expect("entered").expect("device");
        assert!(set.run(interfaces).expect("entered"));
        let mut buffer = [0; 64];
        assert_eq!(tun.receive(&mut buffer).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
        drop(tun);
        assert!(!set.run(interfaces).expect("entered"));
    }

    #[test]
    fn name_that_is_too_long_is_rejected() {
        let error = Tun::open("a-name-of-sixteen").expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
