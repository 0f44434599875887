//! A client's connections: control, then the streams in iperf3's order.

use std::{
    io::{self, ErrorKind, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::document::Iperf3Role;
use clearstream_flow::engine::{self, Engine, Role};
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::{FlowConfig, Protocol},
    notice::Notice,
};
use clearstream_sys::connect::connect_within;
use socket2::Socket;

use super::request;
use crate::{
    control::Control,
    parameters::Parameters,
    protocol::Cookie,
    summary::role_of,
    tally::Stream,
    udp::{self, Counts, Shape},
};

/// Timeout of one connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum wait for a server's reply to a UDP stream.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of sending the cookie.
const COOKIE_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the control connection to the first address that accepts it.
pub(super) fn control(host: &str, addresses: &[SocketAddr], config: &FlowConfig) -> Result<Control, Failure> {
    let mut last = Failure::new(FailureKind::Unreachable, format!("{host} has no address"));
    for address in addresses {
        match connect(*address, config) {
            Ok(stream) => {
                return Control::new(stream)
                    .map_err(|error| Failure::of_system("set up the control connection", &error));
            }
            Err(Refusal::Local(failure)) => return Err(failure),
            Err(Refusal::Remote(error)) => last = unreachable(host, *address, &error),
        }
    }
    Err(last)
}

enum Refusal {
    /// An option that this host rejects.
    Local(Failure),
    Remote(io::Error),
}

fn connect(address: SocketAddr, config: &FlowConfig) -> Result<TcpStream, Refusal> {
    // Source ports apply to the streams.
    let control = FlowConfig {
        source_port: None,
        source_ports: None,
        bind_address: config.bind_address,
        bind_interface: config.bind_interface.clone(),
        ..FlowConfig::default()
    };
    let socket = engine::open_socket(&control, address.ip(), Role::Send).map_err(Refusal::Local)?;
    engine::bind_client(&socket, address, &control, 0).map_err(Refusal::Local)?;
    connect_within(&socket, address, CONNECT_TIMEOUT).map_err(Refusal::Remote)?;
    Ok(socket.into())
}

fn unreachable(host: &str, address: SocketAddr, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::ConnectionRefused => {
            "nothing listens there: start `iperf3 -s` on that host, or give its port as HOST:PORT".to_owned()
        }
        ErrorKind::TimedOut => {
            format!(
                "no reply within {} s: is the host up, and the port open in its firewall?",
                CONNECT_TIMEOUT.as_secs()
            )
        }
        _ => error.to_string(),
    };
    Failure::new(FailureKind::Unreachable, format!("no iperf3 server at {host} ({address}): {advice}"))
}

/// A test whose streams are being connected.
#[derive(Debug)]
pub(super) struct Streams<'a> {
    pub(super) config: &'a FlowConfig,
    pub(super) parameters: &'a Parameters,
    pub(super) server: SocketAddr,
    pub(super) cookie: &'a Cookie,
}

impl Streams<'_> {
    /// Connects every stream and starts its thread, which waits at the start barrier.
    pub(super) fn connect_all(
        &self,
        engine: &mut Engine,
        notices: &mut Vec<Notice>,
    ) -> Result<Vec<Stream>, Failure> {
        let Parameters { direction, streams, .. } = *self.parameters;
        let (sends, receives) = request::roles(direction);
        let count = streams as usize * (usize::from(sends) + usize::from(receives));
        (0..count)
            .map(|index| {
                let role = role_of(Iperf3Role::Client, direction, streams, index);
                let number = u32::try_from(index).unwrap_or(u32::MAX);
                match self.parameters.protocol {
                    Protocol::Udp => self.datagrams(engine, role, number, notices),
                    _ => self.stream(engine, role, number),
                }
            })
            .collect()
    }

    fn stream(&self, engine: &mut Engine, role: Role, number: u32) -> Result<Stream, Failure> {
        let mut socket = engine::connect(self.config, self.server, role, number)?;
        let lost = |error: io::Error| {
            let message = format!("flow {number}: {} closed the connection: {error}", self.server);
            Failure::new(FailureKind::Connection, message)
        };
        socket.set_write_timeout(Some(COOKIE_TIMEOUT)).map_err(lost)?;
        socket.write_all(self.cookie.bytes()).map_err(lost)?;
        socket.set_write_timeout(None).map_err(lost)?;
        engine.stream(socket, role)?;
        Ok(Stream::new(role, None))
    }

    fn datagrams(
        &self,
        engine: &mut Engine,
        role: Role,
        number: u32,
        notices: &mut Vec<Notice>,
    ) -> Result<Stream, Failure> {
        let socket = engine::open_socket(self.config, self.server.ip(), role)?;
        engine::bind_client(&socket, self.server, self.config, number)?;
        let lost = |error: io::Error| self.no_reply(number, &error);
        socket.connect(&self.server.into()).map_err(lost)?;
        udp::handshake(&socket, Instant::now() + REPLY_TIMEOUT).map_err(lost)?;
        let shape = shape(&socket, role, self.parameters, notices);
        let shape = Shape { limit: self.config.bytes.map(|bytes| bytes.0), ..shape };
        add_datagrams(engine, socket, role, shape)
    }

    fn no_reply(&self, number: u32, error: &io::Error) -> Failure {
        let message = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => format!(
                "flow {number}: {} does not reply over UDP within {} s: does a firewall drop it?",
                self.server,
                REPLY_TIMEOUT.as_secs()
            ),
            _ => format!("flow {number}: {} cannot be reached over UDP: {error}", self.server),
        };
        Failure::new(FailureKind::Connection, message)
    }
}

/// Datagram parameters of a connected socket.
pub(crate) fn shape(
    socket: &Socket,
    role: Role,
    parameters: &Parameters,
    notices: &mut Vec<Notice>,
) -> Shape {
    let size = usize::try_from(parameters.length_bytes).unwrap_or(1460);
    let rate_bps = parameters.rate_bps.or(parameters.kernel_rate_bps);
    if role == Role::Receive
        && let Err(error) = clearstream_sys::socket::enable_udp_gro(socket)
        && !notices.iter().any(|notice| notice.id == "gro-lost")
    {
        notices.push(crate::summary::notice(
            "gro-lost",
            format!("UDP receive offload (UDP_GRO, Linux 5.0) is not available ({error}): one system call per datagram"),
        ));
    }
    let size = match role {
        Role::Send => udp::batch(socket, size, rate_bps, notices),
        Role::Receive => engine::DatagramSize { size_bytes: size, batch_bytes: size },
    };
    Shape { size, wide: parameters.wide_counters, rate_bps, limit: None }
}

/// Starts the thread of a UDP stream, which waits at the start barrier.
pub(crate) fn add_datagrams(
    engine: &mut Engine,
    socket: Socket,
    role: Role,
    shape: Shape,
) -> Result<Stream, Failure> {
    let counts = Arc::new(Counts::default());
    let own = Arc::clone(&counts);
    engine.datagrams(socket, role, shape.size, move |socket, progress| match role {
        Role::Send => udp::send(socket, progress, shape, &own),
        Role::Receive => udp::receive(socket, progress, shape, &own),
    })?;
    Ok(Stream::new(role, Some(counts)))
}
