//! Association of UDP flows: the client repeats its preamble until the server replies from a socket dedicated
//! to that flow.

use std::{
    io::{self, ErrorKind, Read},
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::FlowConfig,
};
use socket2::{SockRef, Socket};

use super::{
    connect::beside_one_another,
    listen::FLOW_TIMEOUT,
    open::{self, Part},
};
use crate::{
    data::Gate,
    preamble::{PREAMBLE_BYTES, Secret},
};

/// Retransmission interval of the client's preamble, and poll interval of the server.
const PREAMBLE_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum wait for the server's reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Copies of each reply, since a reply may be lost, too.
const REPLY_COPIES: usize = 3;
/// Receive timeout of data sockets, after which the thread checks for the end of the test.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(200);

fn internal(error: io::Error) -> Failure {
    Failure::of_system("set a UDP socket up", &error)
}

/// The server's socket that receives preambles.
#[derive(Debug)]
pub(super) struct Association {
    socket: UdpSocket,
    address: SocketAddr,
    config: FlowConfig,
    secret: Secret,
    part: Part,
}

impl Association {
    /// Binds the socket.
    pub(super) fn open(
        config: &FlowConfig,
        address: Option<IpAddr>,
        secret: Secret,
        part: Part,
    ) -> Result<Self, Failure> {
        let family = address.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into());
        let socket = open::open(config, family, part)?;
        // Here the port must be exclusive: with SO_REUSEADDR the kernel would let two sockets bind it.
        socket.set_reuse_address(false).map_err(internal)?;
        let address = open::bind_server(&socket, address, config)?;
        socket.set_reuse_address(true).map_err(internal)?;
        socket.set_read_timeout(Some(PREAMBLE_INTERVAL)).map_err(internal)?;
        Ok(Self { socket: socket.into(), address, config: config.clone(), secret, part })
    }

    /// Local address.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replies to preambles until every flow has a socket.
    pub(super) fn accept_all(self, gate: &Gate) -> Result<Vec<Arc<Socket>>, Failure> {
        let mut until = Instant::now() + FLOW_TIMEOUT;
        let mut flows: Vec<Option<Socket>> = (0..self.config.flows).map(|_| None).collect();
        while flows.iter().any(Option::is_none) {
            if gate.is_stopped() || Instant::now() >= until {
                let associated = flows.iter().flatten().count();
                let message = format!(
                    "{associated} of {} flows sent a preamble over UDP, and no further one within {} s",
                    flows.len(),
                    FLOW_TIMEOUT.as_secs()
                );
                return Err(Failure::new(FailureKind::Connection, message));
            }
            let Some((flow, client)) = self.receive_preamble() else { continue };
            let place = usize::try_from(flow).ok().and_then(|flow| flows.get_mut(flow));
            // An unknown flow number, or a flow that is connected already.
            if let Some(place @ None) = place {
                let socket = self.open_flow_socket(client)?;
                for _ in 0..REPLY_COPIES {
                    // May be lost like any datagram.
                    drop(socket.send(&self.secret.reply(flow)));
                }
                *place = Some(socket);
                until = Instant::now() + FLOW_TIMEOUT;
            }
        }
        flows.into_iter().flatten().map(|socket| ready(socket).map(Arc::new)).collect()
    }

    fn receive_preamble(&self) -> Option<(u32, SocketAddr)> {
        // One extra byte detects datagrams that are too long.
        let mut preamble = [0; PREAMBLE_BYTES + 1];
        let (length, client) = self.socket.recv_from(&mut preamble).ok()?;
        Some((self.secret.flow_of(&preamble[..length])?, client))
    }

    /// Opens a socket for one flow, on the same port and connected to the client: the kernel delivers that
    /// client's datagrams to it.
    fn open_flow_socket(&self, client: SocketAddr) -> Result<Socket, Failure> {
        let socket = open::open(&self.config, self.address.ip(), self.part)?;
        socket.bind(&self.address.into()).map_err(internal)?;
        socket.connect(&client.into()).map_err(internal)?;
        Ok(socket)
    }
}

fn ready(socket: Socket) -> Result<Socket, Failure> {
    SockRef::from(&socket).set_read_timeout(Some(RECEIVE_TIMEOUT)).map_err(internal)?;
    Ok(socket)
}

/// Connects a socket to the server for every flow.
pub(super) fn connect_all(
    config: &FlowConfig,
    server: SocketAddr,
    secret: Secret,
    part: Part,
) -> Result<Vec<Arc<Socket>>, Failure> {
    beside_one_another(config.flows, |flow| {
        let socket = open::open(config, server.ip(), part)?;
        open::bind_client(&socket, server, config, flow)?;
        socket.connect(&server.into()).map_err(|error| {
            Failure::of_connect(&format!("flow {flow}: no path to {server}"), "UDP", &error)
        })?;
        socket.set_read_timeout(Some(PREAMBLE_INTERVAL)).map_err(internal)?;
        associate(&socket, server, secret, flow)?;
        ready(socket)
    })
}

fn associate(mut socket: &Socket, server: SocketAddr, secret: Secret, flow: u32) -> Result<(), Failure> {
    let until = Instant::now() + REPLY_TIMEOUT;
    while Instant::now() < until {
        let mut reply = [0; PREAMBLE_BYTES + 1];
        let received = socket.send(&secret.preamble(flow)).and_then(|_| socket.read(&mut reply));
        match received {
            Ok(length) if reply[..length] == secret.reply(flow) => return Ok(()),
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(error) => {
                let what = format!("flow {flow}: {server} cannot be reached over UDP");
                return Err(Failure::of_connect(&what, "UDP", &error));
            }
        }
    }
    let silent = io::Error::from(ErrorKind::TimedOut);
    Err(Failure::of_connect(
        &format!("flow {flow}: {server} does not respond over UDP within {} s", REPLY_TIMEOUT.as_secs()),
        "UDP",
        &silent,
    ))
}
