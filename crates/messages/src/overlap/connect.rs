//! Connection setup of both sides: the control connection, then the one that
//! carries the messages. Both open with the test's cookie.

use std::net::{IpAddr, SocketAddr};

use crate::overlap::{OverlapConfig, OverlapSideSettings, OverlapTransport};
use clearstream_schema::control::Failure;
use clearstream_workload::two_sided::Hold;
use socket2::Socket;

use super::engine::{Iwarp, IwarpServer, SocketControl, Tcp, Transport};
use crate::connection::{self, Listener, Secret, SocketOptions};

/// Connections of one side.
#[derive(Debug)]
pub struct Connections {
    pub(super) control: SocketControl,
    pub(super) data: Box<dyn Transport + Send>,
    pub(super) settings: OverlapSideSettings,
}

/// A server that waits for its client.
#[derive(Debug)]
pub struct Waiting {
    listener: Listener,
    iwarp: Option<IwarpServer>,
}

impl Waiting {
    /// Listens for the connections of one test.
    pub(super) fn open(
        config: &OverlapConfig,
        address: Option<IpAddr>,
        secret: Secret,
    ) -> Result<Self, Failure> {
        let listener = Listener::open(&options(config), address, secret)?;
        let iwarp = match config.transport {
            OverlapTransport::Iwarp => {
                // Where the host does not have the address itself (NAT), the
                // listener has bound any.
                let bound = listener.address().ip();
                let port = config.port.map_or(0, |port| port + 1);
                Some(IwarpServer::open(config, SocketAddr::new(bound, port), secret)?)
            }
            // Ranks of MPI have connections of their own.
            OverlapTransport::Tcp | OverlapTransport::Mpi | OverlapTransport::MpiIwarp => None,
        };
        Ok(Self { listener, iwarp })
    }

    /// Returns the ports that it listens on: that of TCP, then that of the queue pair.
    pub(super) fn ports(&self) -> Vec<u16> {
        let tcp = self.listener.address().port();
        [tcp].into_iter().chain(self.iwarp.as_ref().map(IwarpServer::port)).collect()
    }

    /// Waits for the client; `None` when stopped before.
    pub(super) fn accept(
        mut self,
        config: &OverlapConfig,
        hold: &Hold,
    ) -> Result<Option<Connections>, Failure> {
        let Some(socket) = self.listener.accept(|| hold.is_stopped())? else { return Ok(None) };
        let client = socket.peer_addr().ok().and_then(|address| address.as_socket());
        let client = client.map(|address| address.ip());
        let control = control(socket, hold)?;
        let data = match self.iwarp {
            None => match self.listener.accept(|| hold.is_stopped())? {
                Some(socket) => Some(tcp(socket, config, hold)?),
                None => None,
            },
            Some(server) => server.accept(config, client, || hold.is_stopped())?.map(boxed),
        };
        Ok(data.map(|(data, settings)| Connections { control, data, settings }))
    }
}

/// Client side: connects to the server's addresses, that of TCP first, and waits until it has admitted this one.
pub(super) fn connect(
    config: &OverlapConfig,
    server: &[SocketAddr],
    secret: Secret,
    hold: &Hold,
) -> Result<Connections, Failure> {
    let (options, tcp_address) = (options(config), server[0]);
    let control = control(connection::connect(&options, tcp_address, secret)?, hold)?;
    let (data, settings) = match server.get(1) {
        None => tcp(connection::connect(&options, tcp_address, secret)?, config, hold)?,
        Some(address) => boxed(Iwarp::connect(config, *address, secret)?),
    };
    Ok(Connections { control, data, settings })
}

fn options(config: &OverlapConfig) -> SocketOptions {
    SocketOptions { port: config.port, ..SocketOptions::default() }
}

fn control(socket: Socket, hold: &Hold) -> Result<SocketControl, Failure> {
    connection::settle(&socket, false)?;
    hold.hold(&socket)?;
    Ok(SocketControl::new(socket))
}

fn tcp(
    socket: Socket,
    config: &OverlapConfig,
    hold: &Hold,
) -> Result<(Box<dyn Transport + Send>, OverlapSideSettings), Failure> {
    let found = connection::settle(&socket, false)?;
    hold.hold(&socket)?;
    let settings = OverlapSideSettings {
        send_buffer_bytes: found.send_buffer_bytes,
        receive_buffer_bytes: found.receive_buffer_bytes,
        congestion_control: found.congestion_control,
        segment_bytes: found.segment_bytes,
        ..OverlapSideSettings::default()
    };
    let size = usize::try_from(config.size.0).unwrap_or(usize::MAX);
    Ok((Box::new(Tcp::new(socket, size, config.window)), settings))
}

fn boxed((data, settings): (Iwarp, OverlapSideSettings)) -> (Box<dyn Transport + Send>, OverlapSideSettings) {
    (Box::new(data), settings)
}
