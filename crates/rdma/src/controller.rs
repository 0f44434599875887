//! Controller part: one agent serves, the other measures.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_control::{CallEvent as _, Peer, PeerError, encoding};
use clearstream_schema::{
    control::{Cookie, Failure, FailureKind},
    rdma::{RdmaConfig, RdmaOperation, RdmaSummary},
};

use clearstream_workload::{HostSet, TrialError};

use crate::{
    VerbsConfig, VerbsSummary,
    calls::{Listening, Measure, Progress, Serve, Stop, TimeVerbs},
    error::AgentError,
};

/// Interval at which the stop flag is polled.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time without a sample, which come several times a second: registering large memory takes long.
const SILENCE_MOST: Duration = Duration::from_secs(60);

/// The agents of a test and the addresses between them.
#[derive(Debug)]
pub struct Agents<'a> {
    /// The agent that connects.
    pub client: &'a mut Peer,
    /// The agent that listens.
    pub server: &'a mut Peer,
    /// Source address of the client's connections; a paired server determines
    /// it itself.
    pub client_address: Option<IpAddr>,
    /// Address of the server as seen by the client.
    pub server_address: IpAddr,
    /// Port that the server listens on; any free one when absent.
    pub port: Option<u16>,
}

impl<'a> Agents<'a> {
    /// Returns the agents of the client and the server of a host set.
    ///
    /// # Errors
    /// The set has no such hosts, or the server's address is unknown.
    pub fn of(hosts: &'a mut HostSet<'_>) -> Result<Self, TrialError> {
        let (client, server) = hosts.client_and_server()?;
        let server_address = server.known_address()?;
        Ok(Self {
            client: &mut *client.peer,
            server: &mut *server.peer,
            client_address: client.address,
            server_address,
            port: None,
        })
    }

    /// Measures from the client to the server. The stop flag ends it early,
    /// with the results up to then. `on_event` gets all events but the last.
    ///
    /// # Errors
    /// A lost agent, a rejected call, or a failed measurement.
    pub fn measure(
        &mut self,
        operation: RdmaOperation,
        config: &RdmaConfig,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(&Progress),
    ) -> Result<RdmaSummary, AgentError> {
        self.with_server(|client, server, cookie| {
            let config = config.clone();
            client.call(&Measure { server, cookie, operation, config })?;
            let (mut stopped, mut heard) = (false, Instant::now());
            loop {
                match client.next_event_of::<Progress>(STOP_POLL_INTERVAL)? {
                    Some(Progress::Finished(summary)) => return Ok(summary),
                    Some(Progress::Failed(_)) if stopped => return Err(AgentError::Stopped),
                    Some(Progress::Failed(failure)) => {
                        return Err(AgentError::Failed { name: client.name().to_owned(), failure });
                    }
                    Some(event) => {
                        on_event(&event);
                        heard = Instant::now();
                    }
                    None => client.check_silence(Progress::NAME, heard, SILENCE_MOST)?,
                }
                if !stopped && stop.load(Ordering::Relaxed) {
                    stopped = true;
                    client.call(&Stop {})?;
                }
            }
        })
    }

    /// Times a verbs call on the client, with the server as its peer where the call
    /// connects.
    ///
    /// # Errors
    /// As for [`Agents::measure`].
    pub fn time_verbs(
        &mut self,
        config: &VerbsConfig,
        stop: &AtomicBool,
    ) -> Result<VerbsSummary, AgentError> {
        let time = |client: &mut Peer, server, cookie| {
            let config = config.clone();
            Ok(client.call_unless(&TimeVerbs { server, cookie, config }, stop)?)
        };
        match config.call.connects() {
            true => self.with_server(|client, server, cookie| time(client, Some(server), cookie)),
            false => time(self.client, None, fresh_cookie()),
        }
    }

    /// Opens a server for one test, and closes it in any case.
    fn with_server<T>(
        &mut self,
        test: impl FnOnce(&mut Peer, SocketAddr, Cookie) -> Result<T, AgentError>,
    ) -> Result<T, AgentError> {
        let cookie = fresh_cookie();
        let server = self.serve(&cookie)?;
        let result = test(self.client, server, cookie);
        // When closing fails too, the first error is the one to return.
        let closed = self.server.call(&Stop {});
        let result = result?;
        closed?;
        Ok(result)
    }

    /// Binds the address that the client connects to, so that replies leave
    /// from it on multi-homed hosts. Where the host does not have that address
    /// (NAT on the path), binds all.
    fn serve(&mut self, cookie: &Cookie) -> Result<SocketAddr, PeerError> {
        let port = self.port;
        let on = |address, peer| Serve { address, port, cookie: Some(cookie.clone()), peer };
        let (address, mut from) = (self.server_address, self.client_address);
        let mut called = self.server.call(&on(address, from));
        if kind(&called) == Some(FailureKind::Forbidden) {
            // A paired host that sees this one by another address (NAT)
            // determines it.
            from = None;
            called = self.server.call(&on(address, from));
        }
        if kind(&called) == Some(FailureKind::Invalid) {
            called = self.server.call(&on(unspecified_address(address), from));
        }
        let Listening { address: bound } = called?;
        Ok(SocketAddr::new(address, bound.port()))
    }
}

fn kind<T>(called: &Result<T, PeerError>) -> Option<FailureKind> {
    match called {
        Err(PeerError::Refused { failure: Failure { kind, .. }, .. }) => Some(*kind),
        _ => None,
    }
}

fn unspecified_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::from([0u8; 4]),
        IpAddr::V6(_) => IpAddr::from([0u16; 8]),
    }
}

fn fresh_cookie() -> Cookie {
    Cookie(encoding::hex(&rand::random::<[u8; 16]>()))
}
