//! Controller part: starts the server, then the client, and collects the
//! client's results.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use clearstream_control::{CallEvent as _, Peer, PeerError, PeerEvent};
use clearstream_schema::{
    control::{Cookie, Failure},
    message::{MessageConfig, MessagePoint, MessageSummary},
    notice::Notice,
};
use clearstream_workload::{HostSet, TrialError};

use crate::{
    calls::{Finished, Listen, Run, Side, SizeMeasured, Stop},
    check::check,
    mpi,
};

/// Interval of checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Number of messages below which a distribution is not significant.
const SIGNIFICANT_MESSAGES: u64 = 10;

/// Events of [`run_on`].
#[derive(Debug, Clone, PartialEq)]
pub enum MessageEvent {
    /// One size is measured.
    Point(MessagePoint),
}

/// Errors of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The configuration is invalid on any host; nothing was started.
    #[error("{0}")]
    Invalid(Failure),
    /// An agent rejected a call, or was lost.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// An agent was lost, did not reply or could not be stopped after results had come.
    #[error("{source}")]
    Broken {
        /// What happened.
        source: PeerError,
        /// The results until then.
        partial: Box<MessageSummary>,
    },
    /// A measurement failed at an agent.
    #[error("{name}: {failure}")]
    Failed {
        /// Name of the agent.
        name: String,
        /// Cause.
        failure: Failure,
    },
}

impl MessageError {
    /// Returns the failure that a host reported, for the exit code.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Invalid(failure) | Self::Failed { failure, .. } => Some(failure),
            Self::Peer(error) | Self::Broken { source: error, .. } => error.failure(),
        }
    }
}

/// Measures messages between the client and the server of a set of hosts. When
/// `stop` is set the summary contains the sizes measured until then and is marked
/// incomplete.
///
/// # Errors
/// [`MessageError`]; [`MessageError::Invalid`] also for a set without these hosts.
pub fn run_on(
    hosts: &mut HostSet<'_>,
    config: &MessageConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(MessageEvent),
) -> Result<MessageSummary, MessageError> {
    check(config).map_err(MessageError::Invalid)?;
    if mpi::is_requested(config) {
        return mpi::run_on(hosts, config, stop, on_event);
    }
    let invalid = |error: TrialError| MessageError::Invalid(error.failure);
    let (client, server) = hosts.client_and_server().map_err(invalid)?;
    let server_address = server.known_address().map_err(invalid)?;
    let (client, server) = (&mut *client.peer, &mut *server.peer);
    let test = rand::random();
    let cookie = Cookie(format!("{:032x}", rand::random::<u128>()));
    let config = config.clone();
    let listen =
        Listen { test, cookie: cookie.clone(), address: Some(server_address), config: config.clone() };
    let port = server.call(&listen)?.address.port();
    let address = SocketAddr::new(server_address, port);
    if let Err(error) = client.call(&Run { test, cookie, server: address, config: config.clone() }) {
        // The server may have the cause, such as a limit of its host. If
        // stopping fails too, return the first error.
        let reason = server.call(&Stop { test }).ok().and_then(|side| side.failure);
        return Err(reason.map_or_else(|| error.into(), |failure| failed(server, failure)));
    }
    let mut points = Vec::new();
    let followed = follow(client, (test, mpi::size_timeout(&config)), stop, &mut |point| {
        points.push(point.clone());
        on_event(MessageEvent::Point(point));
    });
    // Both are stopped in any case, the client first: it closes the connection.
    let client_side = client.call(&Stop { test });
    let server_side = server.call(&Stop { test });
    let is_finished = *followed.as_ref().unwrap_or(&false);
    let (broken, client_side, server_side) = parts(followed, client_side, server_side);
    if let Some((error, peer_closed)) = reason(client, &client_side, server, &server_side)
        && broken.is_none()
        // When both sides are stopped, one sees the other close the connection.
        && (is_finished || !peer_closed)
    {
        return Err(error);
    }
    let notices = notices(&config, &points, &client_side, &server_side);
    let summary = MessageSummary {
        complete: broken.is_none() && is_finished && points.len() == config.message_sizes().len(),
        client: client_side.settings,
        server: server_side.settings,
        mpi: None,
        points,
        notices,
        requested: config,
    };
    match broken {
        None => Ok(summary),
        Some(source) if summary.points.is_empty() => Err(source.into()),
        Some(source) => Err(MessageError::Broken { source, partial: Box::new(summary) }),
    }
}

/// Processes events until the client has finished: true; or until `stop` is
/// set.
fn follow(
    client: &mut Peer,
    (test, within): (u64, Duration),
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(MessagePoint),
) -> Result<bool, PeerError> {
    let mut heard = Instant::now();
    loop {
        if stop.load(Relaxed) {
            return Ok(false);
        }
        let Some(event) = client.next_event(POLL_INTERVAL)? else {
            client.check_silence(SizeMeasured::NAME, heard, within)?;
            continue;
        };
        heard = Instant::now();
        if take(&event, test, on_point)? {
            return Ok(true);
        }
    }
}

/// What was lost first, and what is known of both sides.
fn parts(
    followed: Result<bool, PeerError>,
    client: Result<Side, PeerError>,
    server: Result<Side, PeerError>,
) -> (Option<PeerError>, Side, Side) {
    let mut broken = followed.err();
    let mut side = |side: Result<Side, PeerError>| {
        side.unwrap_or_else(|error| {
            broken.get_or_insert(error);
            Side::default()
        })
    };
    let (client, server) = (side(client), side(server));
    (broken, client, server)
}

/// Processes an event; true for the last one. Events of other tests are
/// ignored.
fn take(event: &PeerEvent, ours: u64, on_point: &mut dyn FnMut(MessagePoint)) -> Result<bool, PeerError> {
    if let Some(SizeMeasured { test, point }) = event.read()?
        && test == ours
    {
        on_point(point);
    }
    Ok(event.read()?.is_some_and(|Finished { test }| test == ours))
}

fn failed(peer: &Peer, failure: Failure) -> MessageError {
    MessageError::Failed { name: peer.name().to_owned(), failure }
}

/// Selects the failure with the cause: where one side only saw the connection
/// close, the other has it. True when both only saw that.
fn reason(
    client: &Peer,
    client_side: &Side,
    server: &Peer,
    server_side: &Side,
) -> Option<(MessageError, bool)> {
    let sides = [(client, client_side), (server, server_side)];
    let own = sides.iter().find(|(_, side)| side.failure.is_some() && !side.peer_closed);
    let (peer, side) = own.or_else(|| sides.iter().find(|(_, side)| side.failure.is_some()))?;
    Some((failed(peer, side.failure.clone()?), side.peer_closed))
}

fn notices(config: &MessageConfig, points: &[MessagePoint], client: &Side, server: &Side) -> Vec<Notice> {
    let of = |role: &str, side: &Side| -> Vec<Notice> {
        let named = |notice: &Notice| Notice {
            id: notice.id.clone(),
            message: format!("{role}: {}", notice.message),
        };
        side.notices.iter().map(named).collect()
    };
    let mut notices = of("client", client);
    notices.extend(of("server", server));
    notices.extend(notices_of_points(config, points));
    notices
}

/// Caveats that follow from the configuration and the results.
pub(crate) fn notices_of_points(config: &MessageConfig, points: &[MessagePoint]) -> Vec<Notice> {
    let mut notices = Vec::new();
    if config.verify {
        notices.push(Notice {
            id: "verified".to_owned(),
            message:
                "every byte was generated and checked within the measured time: compare times and rates only with \
                      those of other verified runs"
                    .to_owned(),
        });
    }
    let few = |point: &&MessagePoint| point.server_received_count < SIGNIFICANT_MESSAGES;
    if config.iterations.is_none()
        && let Some(point) = points.iter().find(few)
    {
        notices.push(Notice {
            id: "few-iterations".to_owned(),
            message: format!(
                "only {} iterations of {} bytes fit into ten times the duration: a longer duration gives more",
                point.iteration_count, point.size_bytes
            ),
        });
    }
    notices
}

#[cfg(test)]
mod tests {
    use clearstream_control::{Services, memory_pair};
    use clearstream_schema::{
        ByteCount, TimeSpan,
        control::FailureKind,
        message::{MessageKind, MessageMethod},
    };
    use clearstream_workload::{CLIENT, Host};

    use super::*;
    use crate::MessageAgent;

    fn agent() -> Peer {
        memory_pair(Services::new().with(MessageAgent::default())).unwrap()
    }

    fn hosts<'a>(client: &'a mut Peer, server: &'a mut Peer) -> HostSet<'a> {
        HostSet::pair((client, None), (server, [127, 0, 0, 1].into()), None)
    }

    fn quick() -> MessageConfig {
        MessageConfig {
            sizes: "1B-64KiB".parse().unwrap(),
            iterations: Some(5),
            warm_up: TimeSpan(0),
            verify: true,
            window: 7,
            ..MessageConfig::default()
        }
    }

    fn measure(config: &MessageConfig) -> Result<MessageSummary, MessageError> {
        let (mut client, mut server) = (agent(), agent());
        run_on(&mut hosts(&mut client, &mut server), config, &AtomicBool::new(false), &mut |_| {})
    }

    #[test]
    fn every_kind_and_method_delivers_every_message() {
        for method in [MessageMethod::Blocking, MessageMethod::BusyPoll, MessageMethod::IoUring] {
            for (kind, server, client) in [
                (MessageKind::PingPong, 5, 5),
                (MessageKind::Stream, 35, 0),
                (MessageKind::Bidirectional, 35, 35),
            ] {
                let config = MessageConfig { kind, method, ..quick() };
                let summary = measure(&config).unwrap();
                assert!(summary.complete, "{kind:?} {method:?}");
                assert_eq!(summary.points.len(), config.message_sizes().len());
                for point in &summary.points {
                    assert_eq!(
                        (point.server_received_count, point.client_received_count),
                        (server, client),
                        "{kind:?} {method:?} {} bytes",
                        point.size_bytes
                    );
                }
                let outcome = summary.outcome().unwrap();
                let headline = if kind == MessageKind::PingPong { "latency" } else { "bandwidth" };
                assert_eq!(outcome.headline().map(|metric| metric.name.as_str()), Some(headline));
                assert_eq!(outcome.series[0].points.len(), summary.points.len());
                assert!(summary.notices.iter().any(|notice| notice.id == "verified"));
            }
        }
    }

    #[test]
    fn effective_settings_are_read_from_both_sockets() {
        let config = MessageConfig {
            size: Some(ByteCount(64)),
            nagle: true,
            send_buffer: Some(ByteCount(1 << 40)),
            ..quick()
        };
        let summary = measure(&config).unwrap();
        for side in [&summary.client, &summary.server] {
            assert_eq!(side.no_delay, Some(false));
            assert!(side.congestion_control.as_ref().is_some_and(|name| !name.is_empty()));
        }
        let capped = summary.notices.iter().filter(|notice| notice.id == "send-buffer-capped").count();
        assert_eq!(capped, 2, "no host has a limit of a TiB: {:?}", summary.notices);
    }

    #[test]
    fn a_core_that_is_not_there_is_named_by_its_side() {
        for config in [
            MessageConfig { server_core: Some(4095), ..quick() },
            MessageConfig { client_core: Some(4095), ..quick() },
        ] {
            let error = measure(&config).unwrap_err();
            let failure = error.failure().unwrap();
            assert_eq!(failure.kind, FailureKind::Invalid);
            assert!(failure.message.contains("core 4095"), "{failure}");
        }
    }

    #[test]
    fn a_stop_interrupts_transfers_and_the_agents_continue() {
        let (mut client, mut server) = (agent(), agent());
        let mut hosts = hosts(&mut client, &mut server);
        for method in [MessageMethod::Blocking, MessageMethod::BusyPoll, MessageMethod::IoUring] {
            // Would take an hour.
            let config =
                MessageConfig { duration: TimeSpan::from_seconds(3600), iterations: None, method, ..quick() };
            let stop = AtomicBool::new(true);
            let summary = run_on(&mut hosts, &config, &stop, &mut |_| {}).unwrap();
            assert!(!summary.complete && summary.points.is_empty(), "{method:?}");
            let whole = MessageConfig { method, size: Some(ByteCount(8)), ..quick() };
            let none = AtomicBool::new(false);
            assert!(run_on(&mut hosts, &whole, &none, &mut |_| {}).unwrap().complete);
        }
    }

    #[test]
    fn sizes_measured_before_a_stop_are_kept() {
        let stop = AtomicBool::new(false);
        let (mut client, mut server) = (agent(), agent());
        let summary = run_on(&mut hosts(&mut client, &mut server), &quick(), &stop, &mut |_| {
            stop.store(true, Relaxed);
        })
        .unwrap();
        assert!(!summary.complete);
        assert_eq!(summary.points.first().map(|point| point.size_bytes), Some(1));
    }

    /// Clients name no peers: a set has the client and the address that it connects to.
    #[test]
    fn a_set_without_a_server_is_named() {
        let mut peer = agent();
        let client = Host { role: CLIENT.to_owned(), peer: &mut peer, address: None };
        let mut hosts = HostSet::new(vec![client], None);
        let stop = AtomicBool::new(false);
        let error = run_on(&mut hosts, &quick(), &stop, &mut |_| {}).unwrap_err();
        assert!(matches!(error, MessageError::Invalid(_)), "{error}");
        assert_eq!(error.to_string(), "no host has the role \"server\"");
    }

    #[test]
    fn invalid_options_are_rejected_before_anything_is_done() {
        let config = MessageConfig { window: 0, ..quick() };
        assert!(matches!(measure(&config), Err(MessageError::Invalid(_))));
    }
}
