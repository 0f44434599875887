//! Socket addresses: of interfaces, of names, and in the form of the C library.

use std::{
    ffi::{CStr, c_char},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs, UdpSocket},
    ptr,
};

/// What the caller of `fi_getinfo` gave.
pub struct Given {
    /// Own address.
    pub source: Option<SocketAddrV4>,
    /// Address of a peer.
    pub destination: Option<SocketAddrV4>,
}

/// Returns an address in the form of the C library.
pub fn raw(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// Reads an address of the C library; `None` if it is NULL or of another family.
///
/// # Safety
/// NULL, or a valid address.
pub unsafe fn parse(address: *const libc::sockaddr_in) -> Option<SocketAddrV4> {
    // SAFETY: as required of the caller; programs do not align it.
    let address = unsafe { (!address.is_null()).then(|| address.read_unaligned()) }?;
    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
    (i32::from(address.sin_family) == libc::AF_INET)
        .then(|| SocketAddrV4::new(ip, u16::from_be(address.sin_port)))
}

/// Writes an address, as much of it as there is room for; returns whether all of it fitted.
///
/// # Safety
/// `into` has room for `length` bytes.
pub unsafe fn write(address: SocketAddrV4, into: *mut u8, length: *mut usize) -> bool {
    let raw = raw(address);
    // SAFETY: as required of the caller.
    unsafe {
        let room = length.read();
        ptr::copy_nonoverlapping(ptr::from_ref(&raw).cast::<u8>(), into, room.min(size_of_val(&raw)));
        length.write(size_of_val(&raw));
        room >= size_of_val(&raw)
    }
}

/// A name has no IPv4 address, or a service is no port.
#[derive(Clone, Copy, Debug)]
pub struct Unresolved;

/// Resolves node and service; `None` if both are NULL.
///
/// # Safety
/// NULL, or valid strings.
pub unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
) -> Result<Option<SocketAddrV4>, Unresolved> {
    // SAFETY: as required of the caller.
    let string = |text: *const c_char| unsafe {
        (!text.is_null()).then(|| CStr::from_ptr(text).to_str().map_err(|_| Unresolved)).transpose()
    };
    let (node, service) = (string(node)?, string(service)?);
    let port = service.map_or(Ok(0), |service| service.parse().map_err(|_| Unresolved))?;
    let Some(node) = node else {
        return Ok(service.map(|_| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)));
    };
    let v4 = |address| if let SocketAddr::V4(address) = address { Some(address) } else { None };
    (node, port).to_socket_addrs().map_err(|_| Unresolved)?.find_map(v4).map(Some).ok_or(Unresolved)
}

/// Returns the addresses of this host to offer, the best one first.
pub fn sources(given: &Given) -> Vec<SocketAddrV4> {
    match (given.source, given.destination) {
        (Some(source), _) if !source.ip().is_unspecified() => vec![source],
        (source, Some(destination)) => {
            let port = source.map_or(0, |source| source.port());
            towards(destination).map(|ip| SocketAddrV4::new(ip, port)).into_iter().collect()
        }
        (source, None) => {
            let port = source.map_or(0, |source| source.port());
            interfaces().into_iter().map(|ip| SocketAddrV4::new(ip, port)).collect()
        }
    }
}

/// The address from which the kernel reaches a peer; nothing is sent.
fn towards(peer: SocketAddrV4) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((*peer.ip(), peer.port().max(1))).ok()?;
    if let SocketAddr::V4(local) = socket.local_addr().ok()? { Some(*local.ip()) } else { None }
}

/// Addresses of interfaces that are up; the one of `CLEARSTREAM_FABRIC_ADDRESS` alone, if set.
fn interfaces() -> Vec<Ipv4Addr> {
    if let Some(address) = std::env::var("CLEARSTREAM_FABRIC_ADDRESS").ok().and_then(|text| text.parse().ok())
    {
        return vec![address];
    }
    let mut found: Vec<Ipv4Addr> = Vec::new();
    let mut list = ptr::null_mut();
    // SAFETY: `list` is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return found;
    }
    let mut next = list;
    // SAFETY: a list of the C library.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: NULL or an address; the family is read first.
        if entry.ifa_flags & libc::IFF_UP as u32 != 0
            // SAFETY: as above.
            && let Some(address) = unsafe { parse(entry.ifa_addr.cast()) }
        {
            found.push(*address.ip());
        }
        next = entry.ifa_next;
    }
    // SAFETY: of getifaddrs.
    unsafe { libc::freeifaddrs(list) };
    offered(found)
}

/// Loopback only where nothing else is: MPI libraries take any of the addresses, and ranks may be on several hosts.
fn offered(mut addresses: Vec<Ipv4Addr>) -> Vec<Ipv4Addr> {
    if addresses.iter().any(|address| !address.is_loopback()) {
        addresses.retain(|address| !address.is_loopback());
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_offered_only_where_nothing_else_is() {
        let host = Ipv4Addr::new(10, 0, 0, 1);
        assert_eq!(offered(vec![Ipv4Addr::LOCALHOST, host]), [host]);
        assert_eq!(offered(vec![Ipv4Addr::LOCALHOST]), [Ipv4Addr::LOCALHOST]);
    }
}
