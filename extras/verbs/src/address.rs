//! Addresses: of C programs, of this host, and of GIDs.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    ptr,
};

use socket2::SockAddr;

/// Reads a socket address; `None` for NULL and other families.
///
/// # Safety
/// `address` is NULL or a valid address of its family's length.
pub unsafe fn read(address: *const libc::sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: as required of the caller: the family decides the length.
    match c_int_of(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: as above.
            let four = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr));
            Some((ip, u16::from_be(four.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let six = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(six.sin6_addr.s6_addr);
            let port = u16::from_be(six.sin6_port);
            Some(SocketAddrV6::new(ip, port, six.sin6_flowinfo, six.sin6_scope_id).into())
        }
        _ => None,
    }
}

fn c_int_of(family: libc::sa_family_t) -> libc::c_int {
    family.into()
}

/// Converts an address for a program.
pub fn storage(address: SocketAddr) -> libc::sockaddr_storage {
    let address = SockAddr::from(address);
    // SAFETY: all zero is a valid address of no family.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: an address is at most as long as the storage.
    unsafe {
        ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            address.len() as usize,
        );
    }
    storage
}

/// Returns the local address, without a port, that the kernel uses to reach a peer: with the scope of a link-local one,
/// without which no socket is bound to it (ipv6(7)).
pub fn local_towards(peer: SocketAddr, from: Option<SocketAddr>) -> std::io::Result<SocketAddr> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let port = |mut address: SocketAddr, port: u16| {
        address.set_port(port);
        address
    };
    // Connecting a datagram socket selects a route and sends nothing.
    let socket = UdpSocket::bind(port(from.unwrap_or(any), 0))?;
    socket.connect(if peer.port() == 0 { port(peer, 9) } else { peer })?;
    Ok(port(socket.local_addr()?, 0))
}

/// Scope of an IPv6 address, 0 without one.
pub fn scope(address: SocketAddr) -> u32 {
    if let SocketAddr::V6(six) = address { six.scope_id() } else { 0 }
}

/// Returns the address of the first interface that is up and not loopback;
/// loopback's when there is none.
pub fn of_this_host() -> IpAddr {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: gives a list, freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Ipv4Addr::LOCALHOST.into();
    }
    let mut found: Option<IpAddr> = None;
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of the list.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        let up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        let loopback = entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0;
        // SAFETY: the address of an entry is NULL or valid.
        let address = unsafe { read(entry.ifa_addr) }.map(|address| address.ip());
        match (address, found) {
            (Some(ip @ IpAddr::V4(_)), None | Some(IpAddr::V6(_))) if up && !loopback => found = Some(ip),
            (Some(IpAddr::V6(ip)), None) if up && !loopback && !ip.is_unicast_link_local() => {
                found = Some(ip.into());
            }
            _ => {}
        }
    }
    // SAFETY: the list from above.
    unsafe { libc::freeifaddrs(list) };
    found.unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// GID of an address: IPv4 addresses are mapped.
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}
