//! How UDP flows find together: the client says its preamble until the server
//! answers from a socket of that flow alone.

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
    listen::CONNECT_PATIENCE,
    open::{self, Part},
};
use crate::{
    data::Gate,
    failure,
    preamble::{PREAMBLE_BYTES, Secret},
};

/// How often the client repeats itself and the server looks around.
const REPEAT: Duration = Duration::from_millis(100);
/// How long the server may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// The answer may get lost, too.
const ANSWERS: usize = 3;
/// How long a data thread waits before it looks whether the test is over.
const LOOK: Duration = Duration::from_millis(200);

fn internal(error: io::Error) -> Failure {
    Failure::of_system("set a UDP socket up", &error)
}

/// The socket that hears first words.
#[derive(Debug)]
pub(super) struct Association {
    socket: UdpSocket,
    address: SocketAddr,
    config: FlowConfig,
    secret: Secret,
    part: Part,
}

impl Association {
    /// Binds it.
    pub(super) fn open(
        config: &FlowConfig,
        address: Option<IpAddr>,
        secret: Secret,
        part: Part,
    ) -> Result<Self, Failure> {
        let family = address.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into());
        let socket = open::open(config, family, part)?;
        // Here the port must be ours alone: the kernel would let two sockets
        // with SO_REUSEADDR share it.
        socket.set_reuse_address(false).map_err(internal)?;
        let address = open::bind_server(&socket, address, config)?;
        socket.set_reuse_address(true).map_err(internal)?;
        socket.set_read_timeout(Some(REPEAT)).map_err(internal)?;
        Ok(Self { socket: socket.into(), address, config: config.clone(), secret, part })
    }

    /// Where it waits.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until every flow has a socket.
    pub(super) fn accept_all(self, gate: &Gate) -> Result<Vec<Arc<Socket>>, Failure> {
        let until = Instant::now() + CONNECT_PATIENCE;
        let mut flows: Vec<Option<Socket>> = (0..self.config.flows).map(|_| None).collect();
        while flows.iter().any(Option::is_none) {
            if gate.is_stopped() || Instant::now() >= until {
                let heard = flows.iter().flatten().count();
                let message = format!("{heard} of {} flows were heard of over UDP", flows.len());
                return Err(failure(FailureKind::Connection, message));
            }
            let Some((flow, client)) = self.hear() else { continue };
            let place = usize::try_from(flow).ok().and_then(|flow| flows.get_mut(flow));
            // A number that is none of ours, or a flow that is there already.
            if let Some(place @ None) = place {
                let socket = self.answer_from(client)?;
                for _ in 0..ANSWERS {
                    // Lost like any datagram.
                    drop(socket.send(&self.secret.answer(flow)));
                }
                *place = Some(socket);
            }
        }
        flows.into_iter().flatten().map(|socket| ready(socket).map(Arc::new)).collect()
    }

    fn hear(&self) -> Option<(u32, SocketAddr)> {
        // One byte more, so that something longer is seen to be longer.
        let mut said = [0; PREAMBLE_BYTES + 1];
        let (length, client) = self.socket.recv_from(&mut said).ok()?;
        Some((self.secret.flow_of(&said[..length])?, client))
    }

    /// A socket for one flow, on the same port and connected to the client:
    /// the kernel prefers it for what that client sends.
    fn answer_from(&self, client: SocketAddr) -> Result<Socket, Failure> {
        let socket = open::open(&self.config, self.address.ip(), self.part)?;
        socket.bind(&self.address.into()).map_err(internal)?;
        socket.connect(&client.into()).map_err(internal)?;
        Ok(socket)
    }
}

fn ready(socket: Socket) -> Result<Socket, Failure> {
    SockRef::from(&socket).set_read_timeout(Some(LOOK)).map_err(internal)?;
    Ok(socket)
}

/// Finds the server's socket of every flow.
pub(super) fn connect_all(
    config: &FlowConfig,
    server: SocketAddr,
    secret: Secret,
    part: Part,
) -> Result<Vec<Arc<Socket>>, Failure> {
    (0..config.flows)
        .map(|flow| {
            let socket = open::open(config, server.ip(), part)?;
            open::bind_client(&socket, server, config, flow)?;
            socket.connect(&server.into()).map_err(|error| {
                Failure::of_connect(&format!("flow {flow}: no path to {server}"), "UDP", &error)
            })?;
            socket.set_read_timeout(Some(REPEAT)).map_err(internal)?;
            introduce(&socket, server, secret, flow)?;
            ready(socket).map(Arc::new)
        })
        .collect()
}

fn introduce(mut socket: &Socket, server: SocketAddr, secret: Secret, flow: u32) -> Result<(), Failure> {
    let until = Instant::now() + ANSWER_PATIENCE;
    while Instant::now() < until {
        let mut said = [0; PREAMBLE_BYTES + 1];
        let heard = socket.send(&secret.preamble(flow)).and_then(|_| socket.read(&mut said));
        match heard {
            Ok(length) if said[..length] == secret.answer(flow) => return Ok(()),
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
    Err(Failure::of_connect(&format!("flow {flow}: {server} does not answer over UDP"), "UDP", &silent))
}
