//! Data sockets with all options that must be set before they connect or listen (the window scale is fixed at
//! the handshake, RFC 7323).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use clearstream_host::HostRoot;
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::{FlowConfig, Protocol, SendMethod},
};
use clearstream_sys::socket as options;
use socket2::{Domain, Socket, TcpKeepalive, Type};

/// TCP keepalive: an established connection whose peer vanished is aborted after this.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for data to stay unacknowledged (`TCP_USER_TIMEOUT`).
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Roles of this host in a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Its threads send.
    pub(super) sends: bool,
    /// Its threads receive.
    pub(super) receives: bool,
}

/// The failure of a step on a socket.
pub(super) fn step<'a>(what: &'a str) -> impl Fn(io::Error) -> Failure + 'a {
    move |error| Failure::of_system(what, &error)
}

/// A socket for `peer_family`, not yet bound.
pub(super) fn open(config: &FlowConfig, family: IpAddr, part: Part) -> Result<Socket, Failure> {
    let domain = if family.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let (kind, protocol) = match config.protocol {
        Protocol::Tcp => (Type::STREAM, socket2::Protocol::TCP),
        Protocol::Udp => (Type::DGRAM, socket2::Protocol::UDP),
        Protocol::Mptcp => (Type::STREAM, socket2::Protocol::MPTCP),
    };
    let socket = Socket::new(domain, kind, Some(protocol)).map_err(|error| match config.protocol {
        // EPROTONOSUPPORT, EINVAL: not built in; ENOPROTOOPT: disabled.
        Protocol::Mptcp => Failure::new(
            FailureKind::Unsupported,
            format!("this host has no MPTCP ({error}): it needs Linux 5.6 with net.mptcp.enabled=1"),
        ),
        _ => step("create a socket")(error),
    })?;
    socket.set_reuse_address(true).map_err(step("set SO_REUSEADDR"))?;
    super::window::set_buffers(&socket, config)?;
    if config.protocol != Protocol::Udp {
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_TIMEOUT / 2)
            .with_interval(Duration::from_secs(1))
            .with_retries(3);
        socket.set_tcp_keepalive(&keepalive).map_err(step("set SO_KEEPALIVE"))?;
        // MPTCP has no such option.
        if config.protocol == Protocol::Tcp {
            socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED)).map_err(step("set TCP_USER_TIMEOUT"))?;
        }
        if let Some(mss) = config.mss {
            // Both ends: the smaller of two is in effect (RFC 9293 section 3.7.1).
            let bytes = u32::try_from(mss.0).unwrap_or(u32::MAX);
            socket.set_tcp_mss(bytes).map_err(step("set TCP_MAXSEG"))?;
        }
        choose_congestion_control(&socket, config, part)?;
        if part.sends && config.method == SendMethod::Zerocopy {
            options::enable_zerocopy(&socket).map_err(|error| {
                Failure::new(
                    FailureKind::Unsupported,
                    format!("this socket cannot send by zerocopy: {error}"),
                )
            })?;
        }
    }
    if let Some(rate) = config.pacing.filter(|_| part.sends) {
        options::set_pacing(&socket, rate.0 / 8).map_err(step("set the pacing rate"))?;
    }
    super::options::set(&socket, config)?;
    Ok(socket)
}

/// Sets the requested congestion control, where this host sends. A route may name one (`congctl`,
/// ip-route(8)), which overrides the socket's when the connection is established, so it is set once more
/// then.
pub(super) fn choose_congestion_control(
    socket: &Socket,
    config: &FlowConfig,
    part: Part,
) -> Result<(), Failure> {
    let requested = config.congestion_control.as_deref();
    let Some(name) = requested.filter(|_| part.sends && config.protocol != Protocol::Udp) else {
        return Ok(());
    };
    match socket.set_tcp_congestion(name.as_bytes()) {
        // Reserved for root: the host's default stays effective, which is reported afterwards.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(_) => Err(Failure::new(
            FailureKind::Invalid,
            format!(
                "congestion control {name} is not available on this host; available: {} (modprobe tcp_{name} may add it)",
                congestion_controls(&HostRoot::live(), "available")
            ),
        )),
        Ok(()) => Ok(()),
    }
}

/// The host's `available` or `allowed` congestion controls, for messages.
pub(super) fn congestion_controls(root: &HostRoot, which: &str) -> String {
    let text = root.read(&format!("proc/sys/net/ipv4/tcp_{which}_congestion_control"));
    text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().replace(' ', ", "))
}

/// Binds to an address, port and interface. `option` names the option of the port.
pub(super) fn bind(
    socket: &Socket,
    address: SocketAddr,
    interface: Option<&str>,
    option: &str,
) -> Result<(), Failure> {
    if let Some(name) = interface {
        socket.bind_device(Some(name.as_bytes())).map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::PermissionDenied => FailureKind::Unsupported,
                // SO_BINDTODEVICE's only other error (socket(7)): there is no such interface.
                _ => FailureKind::Name,
            };
            Failure::new(
                kind,
                format!("cannot bind to interface {name}: {error}; `ip link` lists the interfaces"),
            )
        })?;
    }
    socket.bind(&address.into()).map_err(|error| {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::AddrInUse => (
                FailureKind::InUse,
                format!("port {} is in use on this host: choose another {option}", address.port()),
            ),
            io::ErrorKind::AddrNotAvailable => (
                FailureKind::Invalid,
                format!("{} is no address of this host: `ip address` lists them", address.ip()),
            ),
            io::ErrorKind::PermissionDenied => (
                FailureKind::Unsupported,
                format!("port {} is reserved for root: choose a {option} above 1023", address.port()),
            ),
            _ => return Failure::of_system(&format!("bind to {address}"), &error),
        };
        Failure::new(kind, advice)
    })
}

/// The wildcard address of `family`.
pub(super) fn unspecified(family: IpAddr) -> IpAddr {
    match family {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Binds the server's socket: to its own address when the host has it, to the wildcard address behind address
/// translation (strangers are dropped by the cookie).
pub(super) fn bind_server(
    socket: &Socket,
    address: Option<IpAddr>,
    config: &FlowConfig,
) -> Result<SocketAddr, Failure> {
    let port = config.destination_port.unwrap_or(0);
    let any = unspecified(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
    let wanted = SocketAddr::new(address.unwrap_or(any), port);
    match socket.bind(&wanted.into()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            bind(socket, SocketAddr::new(any, port), None, "port (--port)")?;
        }
        Err(_) => bind(socket, wanted, None, "port (--port)")?,
    }
    local_address(socket)
}

/// Binds a client's socket as configured.
pub(super) fn bind_client(
    socket: &Socket,
    server: SocketAddr,
    config: &FlowConfig,
    flow: u32,
) -> Result<(), Failure> {
    let port = config.source_port_of(flow);
    if port.is_none() && config.bind_address.is_none() && config.bind_interface.is_none() {
        return Ok(());
    }
    let address = config.bind_address.unwrap_or(unspecified(server.ip()));
    if address.is_ipv4() != server.is_ipv4() {
        let message =
            format!("bind-address {address} is of another family than the server's {}", server.ip());
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    let address = SocketAddr::new(address, port.unwrap_or(0));
    bind(socket, address, config.bind_interface.as_deref(), "source-port")
}

/// The local address of a socket.
pub(super) fn local_address(socket: &Socket) -> Result<SocketAddr, Failure> {
    let address = socket.local_addr().map_err(step("read the socket's address"))?;
    address.as_socket().ok_or_else(|| Failure::new(FailureKind::Internal, "the socket has no IP address"))
}
