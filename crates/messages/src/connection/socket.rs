//! Data sockets: options that must be set before they connect or listen, and
//! their effective values.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use crate::message::{MessageConfig, MessageSideSettings};
use clearstream_schema::{
    ByteCount,
    control::{Failure, FailureKind},
    notice::Notice,
};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// Keepalive idle time; a connection to a dead peer is closed after about twice
/// this.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Maximum time that data may stay unacknowledged (`TCP_USER_TIMEOUT`).
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of a data socket that are fixed when it connects or listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketOptions {
    /// `SO_SNDBUF`; autotuned when absent.
    pub send_buffer: Option<ByteCount>,
    /// `SO_RCVBUF`; autotuned when absent.
    pub receive_buffer: Option<ByteCount>,
    /// Port that the server listens on; any free one when absent.
    pub port: Option<u16>,
}

impl From<&MessageConfig> for SocketOptions {
    fn from(config: &MessageConfig) -> Self {
        let MessageConfig { send_buffer, receive_buffer, port, .. } = *config;
        Self { send_buffer, receive_buffer, port }
    }
}

fn step<'a>(what: &'a str) -> impl Fn(io::Error) -> Failure + 'a {
    move |error| Failure::of_system(what, &error)
}

/// Creates an unbound TCP socket of this family. Buffers are set here because
/// the window scale is fixed at the handshake (RFC 7323 section 2.2).
pub(super) fn open(options: &SocketOptions, family: IpAddr) -> Result<Socket, Failure> {
    let domain = if family.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(step("make a socket"))?;
    socket.set_reuse_address(true).map_err(step("set SO_REUSEADDR"))?;
    let size = |bytes: ByteCount| usize::try_from(bytes.0).unwrap_or(usize::MAX).min(i32::MAX as usize);
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer_size(size(bytes)).map_err(step("set SO_SNDBUF"))?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(size(bytes)).map_err(step("set SO_RCVBUF"))?;
    }
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(Duration::from_secs(1)).with_retries(3);
    socket.set_tcp_keepalive(&keepalive).map_err(step("set SO_KEEPALIVE"))?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT)).map_err(step("set TCP_USER_TIMEOUT"))?;
    Ok(socket)
}

/// Creates a listening socket at the address, or at any where the host does not
/// have it itself (NAT): other connections lack the cookie.
pub(super) fn listen(
    options: &SocketOptions,
    address: Option<IpAddr>,
) -> Result<(Socket, SocketAddr), Failure> {
    let port = options.port.unwrap_or(0);
    let any: IpAddr = match address {
        Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        Some(IpAddr::V4(_)) | None => Ipv4Addr::UNSPECIFIED.into(),
    };
    let socket = open(options, any)?;
    let bind = |address| socket.bind(&SocketAddr::new(address, port).into());
    let in_use = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(
            FailureKind::InUse,
            format!("port {port} is in use on this host: choose another port"),
        ),
        io::ErrorKind::PermissionDenied => Failure::new(
            FailureKind::Unsupported,
            format!("port {port} is reserved for root: choose a port above 1023"),
        ),
        _ => Failure::of_system("listen for the data connection", &error),
    };
    match bind(address.unwrap_or(any)) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => bind(any),
        result => result,
    }
    .and_then(|()| socket.listen(64))
    .and_then(|()| socket.set_nonblocking(true))
    .map_err(in_use)?;
    let bound = socket.local_addr().map_err(step("read the socket's address"))?;
    let bound = bound
        .as_socket()
        .ok_or_else(|| Failure::new(FailureKind::Internal, "the socket has no IP address"))?;
    Ok((socket, bound))
}

/// Applies the options of the connected socket, and reads the effective
/// settings.
///
/// # Errors
/// An option that the kernel rejects.
pub fn settle(socket: &Socket, nagle: bool) -> Result<MessageSideSettings, Failure> {
    socket.set_nonblocking(false).map_err(step("make the socket blocking"))?;
    socket.set_read_timeout(None).map_err(step("clear SO_RCVTIMEO"))?;
    socket.set_tcp_nodelay(!nagle).map_err(step("set TCP_NODELAY"))?;
    let name = socket.tcp_congestion().ok();
    Ok(MessageSideSettings {
        send_buffer_bytes: socket.send_buffer_size().ok().map(|bytes| bytes as u64),
        receive_buffer_bytes: socket.recv_buffer_size().ok().map(|bytes| bytes as u64),
        no_delay: socket.tcp_nodelay().ok(),
        congestion_control: name.map(|name| String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()),
        segment_bytes: socket.tcp_mss().ok(),
        core: None,
    })
}

/// Reports requested buffers that the kernel capped (socket(7): `rmem_max`,
/// `wmem_max`; it doubles the requested value, for its bookkeeping).
pub(crate) fn capped(config: &MessageConfig, settings: &MessageSideSettings) -> Vec<Notice> {
    let buffers = [
        ("send-buffer", "net.core.wmem_max", config.send_buffer, settings.send_buffer_bytes),
        ("receive-buffer", "net.core.rmem_max", config.receive_buffer, settings.receive_buffer_bytes),
    ];
    let notices = buffers.into_iter().filter_map(|(option, sysctl, requested, effective)| {
        let (requested, effective) = (requested?.0, effective? / 2);
        (effective < requested).then(|| Notice {
            id: format!("{option}-capped"),
            message: format!(
                "{option}: {requested} bytes requested, {effective} effective; {sysctl} is the limit"
            ),
        })
    });
    notices.collect()
}
