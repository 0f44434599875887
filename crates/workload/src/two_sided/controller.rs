//! Controller part: starts the server, then the client, and collects the client's results.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use clearstream_control::{CallEvent as _, Peer, PeerError, PeerEvent};
use clearstream_schema::{
    control::{Cookie, Failure},
    notice::Notice,
    outcome::Outcome,
};

use super::{Finished, Listen, PointMeasured, Run, Side, Stop, TwoSided};
use crate::{HostSet, TrialError};

/// Interval of checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What was collected of a measurement, whole or not.
#[derive(Debug)]
pub struct Collected<W: TwoSided> {
    /// Results in the order in which they came.
    pub points: Vec<W::Point>,
    /// The connecting side.
    pub client: Side<W::Report>,
    /// The listening side.
    pub server: Side<W::Report>,
    /// Whether the client has measured all that it was to measure, and both sides have confirmed it.
    pub is_finished: bool,
    /// The agent that was lost, did not reply or could not be stopped after results had come.
    pub broken: Option<PeerError>,
}

impl<W: TwoSided> Collected<W> {
    /// The notices of both sides, with the side before each.
    pub fn notices(&self) -> Vec<Notice> {
        let sides = [("client", &self.client), ("server", &self.server)];
        let of = |(role, side): (&'static str, &Side<W::Report>)| {
            side.notices.clone().into_iter().map(move |mut notice| {
                notice.message = format!("{role}: {}", notice.message);
                notice
            })
        };
        let [client, server] = sides.map(of);
        client.chain(server).collect()
    }
}

/// The outcome of a measurement, from the document that was made of what was collected.
///
/// # Errors
/// The agent that was lost on the way, with the outcome until then.
pub fn outcome(outcome: Outcome, broken: Option<PeerError>) -> Result<Outcome, TrialError> {
    match broken {
        None => Ok(outcome),
        Some(error) => Err(TrialError::from(error).after(outcome)),
    }
}

/// Measures between the client and the server of a set of hosts, and passes each result to `on_point`. `point_within`
/// is the most that one of them takes. When `stop` is set, what was measured until then is returned.
///
/// # Errors
/// As of [`Started::start`], and a measurement that failed at an agent; an agent that was lost before the first result.
pub fn measure<W: TwoSided>(
    hosts: &mut HostSet<'_>,
    config: &W::Config,
    point_within: Duration,
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(&W::Point),
) -> Result<Collected<W>, TrialError> {
    let started = Started::<W>::start(hosts, config)?;
    let mut points = Vec::new();
    let followed = started.follow(hosts, point_within, stop, &mut |point| {
        on_point(&point);
        points.push(point);
    });
    // Both are stopped in any case.
    let collected = collect(points, followed, started.end(hosts)?);
    if collected.broken.is_none()
        && let Some((error, peer_closed)) = cause(hosts, [&collected.client, &collected.server])?
        // When both sides are stopped, one sees the other close the connection.
        && (collected.is_finished || !peer_closed)
    {
        return Err(error);
    }
    match collected.broken {
        Some(error) if collected.points.is_empty() => Err(error.into()),
        _ => Ok(collected),
    }
}

/// A measurement that both agents have started; they may be used for something else meanwhile.
#[derive(Debug)]
#[must_use = "both sides run until they are ended"]
pub struct Started<W: TwoSided> {
    test: u64,
    of: W,
}

impl<W: TwoSided> Started<W> {
    /// Starts the server, then the client.
    ///
    /// # Errors
    /// Invalid options, a set without these hosts, an agent that rejects a call.
    pub fn start(hosts: &mut HostSet<'_>, config: &W::Config) -> Result<Self, TrialError> {
        W::check(config)?;
        let (client, server) = hosts.client_and_server()?;
        let server_address = server.known_address()?;
        let (client, server) = (&mut *client.peer, &mut *server.peer);
        let (test, of) = (rand::random(), W::default());
        let cookie = Cookie(format!("{:032x}", rand::random::<u128>()));
        let (address, config) = (Some(server_address), config.clone());
        let listen = Listen::<W> { test, cookie: cookie.clone(), address, config: config.clone() };
        let ports = server.call(&listen)?.ports;
        let addresses = ports.into_iter().map(|port| SocketAddr::new(server_address, port)).collect();
        if let Err(error) = client.call(&Run::<W> { test, cookie, server: addresses, config }) {
            // The server may have the cause, such as a limit of its host. If stopping fails too, the first error is
            // the one to return.
            let reason = server.call(&Stop { test, of }).ok().and_then(|side| side.failure);
            return Err(reason.map_or_else(|| error.into(), |failure| failed(server, &failure)));
        }
        Ok(Self { test, of })
    }

    /// Processes events until the client has finished: true; or until `stop` is set.
    ///
    /// # Errors
    /// A lost agent, or one that tells nothing for so long.
    pub fn follow(
        &self,
        hosts: &mut HostSet<'_>,
        within: Duration,
        stop: &AtomicBool,
        on_point: &mut dyn FnMut(W::Point),
    ) -> Result<bool, PeerError> {
        // The set had both when it was started.
        let Ok((client, _)) = hosts.client_and_server() else { return Ok(false) };
        let mut heard = Instant::now();
        loop {
            if stop.load(Relaxed) {
                return Ok(false);
            }
            let Some(event) = client.peer.next_event(POLL_INTERVAL)? else {
                client.peer.check_silence(PointMeasured::<W>::NAME, heard, within)?;
                continue;
            };
            heard = Instant::now();
            if self.take(&event, on_point)? {
                return Ok(true);
            }
        }
    }

    /// Processes an event; true for the last one. Events of other tests are ignored.
    fn take(&self, event: &PeerEvent, on_point: &mut dyn FnMut(W::Point)) -> Result<bool, PeerError> {
        if let Some(PointMeasured::<W> { test, point }) = event.read()?
            && test == self.test
        {
            on_point(point);
        }
        Ok(event.read()?.is_some_and(|Finished::<W> { test, .. }| test == self.test))
    }

    /// Stops both sides, the client first: it closes the connection. What is known of each.
    ///
    /// # Errors
    /// A set without these hosts.
    pub fn end(self, hosts: &mut HostSet<'_>) -> Result<Ended<W>, TrialError> {
        let (client, server) = hosts.client_and_server()?;
        let stop = Stop { test: self.test, of: self.of };
        Ok([client.peer.call(&stop), server.peer.call(&stop)])
    }
}

/// What is known of the client and of the server at the end.
pub type Ended<W> = [Result<Side<<W as TwoSided>::Report>, PeerError>; 2];

/// What was lost first, and what is known of both sides.
fn collect<W: TwoSided>(
    points: Vec<W::Point>,
    followed: Result<bool, PeerError>,
    ended: Ended<W>,
) -> Collected<W> {
    let (is_finished, mut broken) = match followed {
        Ok(is_finished) => (is_finished, None),
        Err(error) => (false, Some(error)),
    };
    let [client, server] = ended.map(|side| {
        side.unwrap_or_else(|error| {
            broken.get_or_insert(error);
            Side::default()
        })
    });
    // What a lost side did not confirm is not known to be whole.
    Collected { points, client, server, is_finished: is_finished && broken.is_none(), broken }
}

/// A failure of one side, with its name.
fn failed(peer: &Peer, failure: &Failure) -> TrialError {
    Failure { kind: failure.kind, message: format!("{}: {}", peer.name(), failure.message) }.into()
}

/// Selects the failure of client and server with the cause: where one side only saw the connection close, the other has
/// it. True when both only saw that.
///
/// # Errors
/// A set without these hosts.
pub fn cause<R>(
    hosts: &mut HostSet<'_>,
    sides: [&Side<R>; 2],
) -> Result<Option<(TrialError, bool)>, TrialError> {
    let (client, server) = hosts.client_and_server()?;
    let peers: [&Peer; 2] = [client.peer, server.peer];
    let failures = || {
        peers
            .iter()
            .zip(sides)
            .filter_map(|(peer, side)| Some((failed(peer, side.failure.as_ref()?), side.peer_closed)))
    };
    Ok(failures().find(|(_, peer_closed)| !peer_closed).or_else(|| failures().next()))
}
