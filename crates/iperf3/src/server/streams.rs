//! Streams of a test at the server: accepted in connection order, with the requested options set on each.

use std::{
    collections::HashSet,
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    sync::mpsc::Receiver,
    time::{Duration, Instant},
};

use crate::document::Iperf3Role;
use clearstream_flow::engine::{self, Engine, Role};
use clearstream_schema::{
    BitRate, ByteCount, CoreList, TimeSpan,
    control::{Failure, FailureKind},
    flow::{Direction, FlowConfig, Protocol, ReceiveMethod, SendMethod},
    notice::Notice,
};
use clearstream_sys::socket as options;
use socket2::{Socket, TcpKeepalive};

use super::listener::Connection;
use crate::{
    client::connect::{add_datagrams, shape},
    parameters::{DURATION_MAX_S, Parameters},
    protocol::{UDP_HELLO, UDP_REPLY, is_udp_hello},
    summary::{notice, role_of},
    tally::Stream,
};

/// Maximum wait for all streams.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a wait polls the control connection.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Abort time for unacknowledged data of a vanished client.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);
/// The server's own interval.
const INTERVAL: TimeSpan = TimeSpan::from_seconds(1);

/// Configuration of the engine. The client decides when the test ends.
pub(super) fn config(parameters: &Parameters) -> FlowConfig {
    let tcp = parameters.protocol != Protocol::Udp;
    let core = parameters.server_core.map(|core| CoreList(vec![core]));
    let defaults = FlowConfig::default();
    FlowConfig {
        protocol: parameters.protocol,
        direction: parameters.direction,
        flows: parameters.streams,
        duration: TimeSpan::from_seconds(2 * DURATION_MAX_S),
        warm_up: TimeSpan::from_seconds(parameters.omit_s.into()),
        interval: INTERVAL,
        transfer: if tcp { Some(ByteCount(parameters.length_bytes)) } else { defaults.transfer },
        method: if tcp && parameters.send_file { SendMethod::Sendfile } else { SendMethod::Copy },
        receive: if tcp && parameters.discard { ReceiveMethod::Discard } else { ReceiveMethod::Copy },
        window: parameters.window_bytes.map(|bytes| ByteCount(bytes.into())),
        pacing: rate(parameters).map(BitRate),
        // A slow client's bytes are counted when they arrive.
        receive_low_water: tcp.then_some(ByteCount(1)),
        sender_cores: core.clone(),
        receiver_cores: core,
        ..defaults
    }
}

fn rate(parameters: &Parameters) -> Option<u64> {
    // The kernel paces by whole bytes per second.
    parameters.kernel_rate_bps.or(parameters.rate_bps).map(|rate| rate.max(8))
}

/// Streams of both directions.
pub(super) fn count(parameters: &Parameters) -> usize {
    let directions = if parameters.direction == Direction::Both { 2 } else { 1 };
    parameters.streams as usize * directions
}

/// Callback that fails when the client has gone.
pub(super) type Watch<'a> = &'a mut dyn FnMut() -> Result<(), Failure>;

fn missing(have: usize, want: usize) -> Failure {
    let message = format!(
        "{have} of {want} streams were connected within {} s: does a firewall drop them?",
        CONNECT_TIMEOUT.as_secs()
    );
    Failure::new(FailureKind::Connection, message)
}

/// Accepts the TCP connections of a test. `watch` fails when the client has gone.
pub(super) fn accept(
    parameters: &Parameters,
    config: &FlowConfig,
    connections: &Receiver<Connection>,
    engine: &mut Engine,
    notices: &mut Vec<Notice>,
    watch: Watch<'_>,
) -> Result<Vec<Stream>, Failure> {
    let (want, until) = (count(parameters), Instant::now() + CONNECT_TIMEOUT);
    let mut arrived: Vec<Connection> = Vec::new();
    while arrived.len() < want {
        watch()?;
        if Instant::now() >= until {
            return Err(missing(arrived.len(), want));
        }
        arrived.extend(connections.recv_timeout(POLL_INTERVAL));
    }
    // Cookies may arrive in another order than connections.
    arrived.sort_by_key(|connection| connection.number);
    arrived
        .into_iter()
        .enumerate()
        .map(|(index, connection)| {
            let role = role_of(Iperf3Role::Server, parameters.direction, parameters.streams, index);
            let socket = Socket::from(connection.stream);
            set_up(&socket, role, parameters, config, notices)
                .map_err(|error| Failure::of_system("set up a stream", &error))?;
            engine.stream(socket, role)?;
            Ok(Stream::new(role, None))
        })
        .collect()
}

fn set_up(
    socket: &Socket,
    role: Role,
    parameters: &Parameters,
    config: &FlowConfig,
    notices: &mut Vec<Notice>,
) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    let keepalive = TcpKeepalive::new().with_time(UNACKNOWLEDGED / 4).with_interval(UNACKNOWLEDGED / 8);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    if parameters.no_delay {
        socket.set_tcp_nodelay(true)?;
    }
    set_type_of_service(socket, parameters.type_of_service)?;
    if role == Role::Receive {
        return Ok(());
    }
    if let Some(rate) = config.pacing {
        options::set_pacing(socket, rate.0 / 8)?;
    }
    let Some(name) = &parameters.congestion_control else { return Ok(()) };
    let is_set =
        engine::is_congestion_control_loaded(name) && socket.set_tcp_congestion(name.as_bytes()).is_ok();
    if !is_set && !notices.iter().any(|notice| notice.id == "congestion-control-refused") {
        notices.push(notice(
            "congestion-control-refused",
            format!(
                "the client requested the congestion control {name}, which is not loaded or not allowed here"
            ),
        ));
    }
    Ok(())
}

fn set_type_of_service(socket: &Socket, byte: Option<u8>) -> std::io::Result<()> {
    let Some(byte) = byte.map(u32::from) else { return Ok(()) };
    if socket.local_addr()?.is_ipv4() {
        return socket.set_tos_v4(byte);
    }
    // An IPv6 socket may have an IPv4 peer, to whose packets this option applies.
    drop(socket.set_tos_v4(byte));
    socket.set_tclass_v6(byte)
}

/// A UDP port that receives the hellos of a test's streams.
#[derive(Debug)]
pub(super) struct Hellos {
    socket: UdpSocket,
    local: SocketAddr,
    client: SocketAddr,
}

impl Hellos {
    /// Opens it at the address of the control connection.
    pub(super) fn open(config: &FlowConfig, local: SocketAddr, client: SocketAddr) -> Result<Self, Failure> {
        let socket = engine::open_socket(config, local.ip(), Role::Receive)?;
        let step = |error: std::io::Error| match error.kind() {
            ErrorKind::AddrInUse => {
                Failure::new(FailureKind::InUse, format!("UDP port {} is in use on this host", local.port()))
            }
            _ => Failure::of_system(&format!("open UDP port {}", local.port()), &error),
        };
        socket.bind(&local.into()).map_err(step)?;
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(POLL_INTERVAL)).map_err(step)?;
        Ok(Self { socket, local, client })
    }

    /// Accepts the streams of a test. Only datagrams of the client's host are accepted: UDP streams carry no
    /// cookie.
    pub(super) fn accept(
        self,
        parameters: &Parameters,
        config: &FlowConfig,
        engine: &mut Engine,
        notices: &mut Vec<Notice>,
        watch: Watch<'_>,
    ) -> Result<Vec<Stream>, Failure> {
        let (want, until) = (count(parameters), Instant::now() + CONNECT_TIMEOUT);
        let (mut streams, mut known) = (Vec::new(), HashSet::new());
        while streams.len() < want {
            watch()?;
            if Instant::now() >= until {
                return Err(missing(streams.len(), want));
            }
            // One extra byte detects datagrams that are too long.
            let mut hello = [0; UDP_HELLO.len() + 1];
            let Ok((length, from)) = self.socket.recv_from(&mut hello) else { continue };
            let is_stream = hello.get(..length).is_some_and(is_udp_hello) && from.ip() == self.client.ip();
            if !is_stream || !known.insert(from) {
                continue;
            }
            let index = streams.len();
            let role = role_of(Iperf3Role::Server, parameters.direction, parameters.streams, index);
            let socket = self.reply(config, from, role)?;
            set_type_of_service(&socket, parameters.type_of_service)
                .map_err(|error| Failure::of_system("set the type of service", &error))?;
            let shape = shape(&socket, role, parameters, notices);
            streams.push(add_datagrams(engine, socket, role, shape)?);
        }
        Ok(streams)
    }

    /// A socket for one stream, on the same port and connected to the client: the kernel delivers datagrams
    /// of that client port to it.
    fn reply(&self, config: &FlowConfig, client: SocketAddr, role: Role) -> Result<Socket, Failure> {
        let step = |error: std::io::Error| Failure::of_system("connect a UDP stream", &error);
        let socket = engine::open_socket(config, self.local.ip(), role)?;
        socket.bind(&self.local.into()).map_err(step)?;
        socket.connect(&client.into()).map_err(step)?;
        socket.send(&UDP_REPLY).map_err(step)?;
        Ok(socket)
    }
}
