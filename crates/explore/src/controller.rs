//! Controller part of ranks that the agents run: rank 1 on the server, rank 0 on the client.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::document::{ExplorationConfig, Explored};
use clearstream_control::{CallEvent as _, Peer, PeerError};
use clearstream_schema::{
    TimeSpan,
    control::{Cookie, Failure},
};
use clearstream_workload::{HostSet, TrialError};

use crate::calls::{Finished, Listen, Run, Side, Stop};

/// Interval of checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time of an exploration: it reports nothing until its end.
const EXPLORED_WITHIN: Duration = Duration::from_secs(86_400);

/// Ranks that the agents run. The controller may use the agents for something else meanwhile.
#[must_use = "ranks run until they are ended"]
pub(crate) struct Exploring {
    test: u64,
}

impl Exploring {
    /// Starts both ranks, which explore once, or repeatedly with a pause in between.
    ///
    /// # Errors
    /// A host is missing; an agent cannot start its rank.
    pub(crate) fn start(
        hosts: &mut HostSet<'_>,
        config: &ExplorationConfig,
        pause: Option<TimeSpan>,
    ) -> Result<Self, TrialError> {
        let (client, server) = hosts.client_and_server()?;
        let address = server.known_address()?;
        let test = rand::random();
        let cookie = Cookie(format!("{:032x}", rand::random::<u128>()));
        let config = config.clone();
        let listen = Listen { test, cookie: cookie.clone(), address: Some(address), config: config.clone() };
        let port = server.peer.call(&listen)?.address.port();
        let run = Run { test, cookie, server: SocketAddr::new(address, port), config, pause };
        if let Err(error) = client.peer.call(&run) {
            // The server may have the cause. If stopping fails too, the first error is the one to report.
            let reason = server.peer.call(&Stop { test }).ok().and_then(|side| side.failure);
            return Err(reason.map_or_else(|| error.into(), |failure| named(server.peer, &failure).into()));
        }
        Ok(Self { test })
    }

    /// Waits until rank 0 has ended, or until `stop` is set.
    ///
    /// # Errors
    /// The agent is lost.
    pub(crate) fn follow(&self, hosts: &mut HostSet<'_>, stop: &AtomicBool) -> Result<(), TrialError> {
        let (client, _) = hosts.client_and_server()?;
        let begun = Instant::now();
        while !stop.load(Relaxed) {
            let Some(event) = client.peer.next_event(POLL_INTERVAL)? else {
                client.peer.check_silence(Finished::NAME, begun, EXPLORED_WITHIN)?;
                continue;
            };
            if event.read()?.is_some_and(|Finished { test }| test == self.test) {
                break;
            }
        }
        Ok(())
    }

    /// Ends both ranks, rank 0 first, which tells the other; what they did.
    ///
    /// # Errors
    /// A rank failed, or an agent is lost.
    pub(crate) fn end(self, hosts: &mut HostSet<'_>) -> Result<Explored, TrialError> {
        let (client, server) = hosts.client_and_server()?;
        let stop = Stop { test: self.test };
        let sides: [Result<Side, PeerError>; 2] = [client.peer.call(&stop), server.peer.call(&stop)];
        let [first, second] = sides;
        let (first, second) = (first?, second?);
        let failed = [(&*client.peer, &first), (&*server.peer, &second)];
        // A rank that lost the other one does not have the cause.
        let cause = failed.iter().find(|(_, side)| side.failure.is_some() && !side.peer_closed);
        let cause = cause.or_else(|| failed.iter().find(|(_, side)| side.failure.is_some()));
        if let Some((peer, failure)) = cause.and_then(|(peer, side)| Some((peer, side.failure.as_ref()?))) {
            return Err(named(peer, failure).into());
        }
        Ok(first.explored)
    }
}

fn named(peer: &Peer, failure: &Failure) -> Failure {
    Failure { kind: failure.kind, message: format!("{}: {}", peer.name(), failure.message) }
}
