//! Connection setup of both sides: the control connection, then the one that
//! carries the messages. Both open with the test's cookie.

use std::net::{IpAddr, SocketAddr};

use clearstream_message::connection::{self, Listener, Secret, SocketOptions};
use clearstream_schema::{
    control::Failure,
    overlap::{OverlapConfig, OverlapSideSettings, OverlapTransport},
};
use socket2::Socket;

use crate::{
    calls::Listening,
    engine::{Control, Iwarp, IwarpServer, Tcp, Transport},
};

/// Connections of one side.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) control: Control,
    pub(crate) data: Box<dyn Transport>,
    pub(crate) settings: OverlapSideSettings,
}

/// A server that waits for its client.
#[derive(Debug)]
pub(crate) struct Waiting {
    listener: Listener,
    iwarp: Option<IwarpServer>,
}

/// Keeps sockets so that a stop can shut them down.
pub(crate) trait Hold {
    /// Whether the test was stopped.
    fn is_stopped(&self) -> bool;

    /// Keeps a connection.
    fn hold(&self, socket: &Socket) -> Result<(), Failure>;
}

impl Waiting {
    /// Listens for the connections of one test.
    pub(crate) fn open(
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

    /// Returns the ports that it listens on.
    pub(crate) fn listening(&self) -> Listening {
        Listening {
            port: self.listener.address().port(),
            iwarp_port: self.iwarp.as_ref().map(IwarpServer::port),
        }
    }

    /// Waits for the client; `None` when stopped before.
    pub(crate) fn accept(
        mut self,
        config: &OverlapConfig,
        hold: &impl Hold,
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

/// Client side: connects, and waits until the server has admitted it.
pub(crate) fn connect(
    config: &OverlapConfig,
    server: SocketAddr,
    iwarp_port: Option<u16>,
    secret: Secret,
    hold: &impl Hold,
) -> Result<Connections, Failure> {
    let options = options(config);
    let control = control(connection::connect(&options, server, secret)?, hold)?;
    let (data, settings) = match iwarp_port {
        None => tcp(connection::connect(&options, server, secret)?, config, hold)?,
        Some(port) => boxed(Iwarp::connect(config, SocketAddr::new(server.ip(), port), secret)?),
    };
    Ok(Connections { control, data, settings })
}

fn options(config: &OverlapConfig) -> SocketOptions {
    SocketOptions { port: config.port, ..SocketOptions::default() }
}

fn control(socket: Socket, hold: &impl Hold) -> Result<Control, Failure> {
    connection::settle(&socket, false)?;
    hold.hold(&socket)?;
    Ok(Control::new(socket))
}

fn tcp(
    socket: Socket,
    config: &OverlapConfig,
    hold: &impl Hold,
) -> Result<(Box<dyn Transport>, OverlapSideSettings), Failure> {
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

fn boxed((data, settings): (Iwarp, OverlapSideSettings)) -> (Box<dyn Transport>, OverlapSideSettings) {
    (Box::new(data), settings)
}
