//! Both sides over real connections, of which one is wrong: damage, miscounts,
//! strangers, a side that ends.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::AtomicBool,
    thread,
};

use crate::overlap::{OverlapConfig, OverlapMethod, OverlapPoint, OverlapTransport};
use clearstream_schema::{
    ByteCount, TimeSpan,
    control::{Cookie, FailureKind},
    rdma::RdmaProgress,
};
use clearstream_workload::two_sided::Hold;

use crate::{
    Costs, ProcessCosts, Traffic,
    connection::Secret,
    overlap::{
        connect::{Connections, Waiting, connect},
        engine::{EngineError, Frame, Iwarp, Session, measure, serve},
    },
};

const METHODS: [OverlapMethod; 2] = [OverlapMethod::Polling, OverlapMethod::PostWorkWait];
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn secret(digit: char) -> Secret {
    Secret::parse(&Cookie(digit.to_string().repeat(32))).unwrap()
}

fn config(transport: OverlapTransport, method: OverlapMethod) -> OverlapConfig {
    OverlapConfig {
        transport,
        method,
        work: "100".parse().unwrap(),
        size: ByteCount(3000),
        window: 5,
        iterations: Some(30),
        warm_up: TimeSpan(0),
        verify: true,
        ..OverlapConfig::default()
    }
}

/// Transports and progress: who moves the bytes is part of what is tested.
fn cases() -> Vec<OverlapConfig> {
    let progresses = [RdmaProgress::Inline, RdmaProgress::Offloaded, RdmaProgress::Adaptive];
    let of_method = |method| {
        let iwarp = move |progress| OverlapConfig { progress, ..config(OverlapTransport::Iwarp, method) };
        [config(OverlapTransport::Tcp, method)].into_iter().chain(progresses.map(iwarp))
    };
    METHODS.into_iter().flat_map(of_method).collect()
}

/// Addresses that a server waits at.
fn addresses(waiting: &Waiting) -> Vec<SocketAddr> {
    waiting.ports().into_iter().map(|port| SocketAddr::new(HERE, port)).collect()
}

/// Connects both sides and lets each run on a thread of its own.
fn both<S: Send>(
    client_config: &OverlapConfig,
    server_config: &OverlapConfig,
    server: impl FnOnce(&mut Session<'_>) -> S + Send,
) -> (Result<Vec<OverlapPoint>, EngineError>, S) {
    let waiting = Waiting::open(server_config, Some(HERE), secret('a')).unwrap();
    let addresses = addresses(&waiting);
    thread::scope(|scope| {
        let serving = scope.spawn(move || {
            let connections = waiting.accept(server_config, &Hold::default()).unwrap().unwrap();
            with_session(connections, server_config, server)
        });
        let connections = connect(client_config, &addresses, secret('a'), &Hold::default()).unwrap();
        let measured = with_session(connections, client_config, |session| {
            let mut points = Vec::new();
            measure(session, |point| points.push(point)).map(|()| points)
        });
        (measured, serving.join().unwrap())
    })
}

fn with_session<S>(
    connections: Connections,
    config: &OverlapConfig,
    side: impl FnOnce(&mut Session<'_>) -> S,
) -> S {
    let stop = AtomicBool::new(false);
    let Connections { control, data, .. } = connections;
    let (control, costs) = (Box::new(control), ProcessCosts::of_processors());
    side(&mut Session { control, data, costs, stop: &stop, config })
}

#[test]
fn verified_messages_arrive_and_the_counts_agree() {
    for config in cases() {
        let (measured, served) = both(&config, &config, serve);
        served.unwrap();
        let points = measured.unwrap();
        assert_eq!(points.len(), 1);
        assert_eq!(points[0].server_received_count, points[0].client_received_count, "{config:?}");
    }
}

#[test]
fn a_client_finds_messages_that_are_not_those_of_the_server() {
    for config in cases() {
        // Sends what was in its memory: zeros.
        let plain = OverlapConfig { verify: false, ..config.clone() };
        let (measured, served) = both(&config, &plain, serve);
        let error = measured.unwrap_err();
        let EngineError::Damaged(damage) = &error else { panic!("{config:?}: {error}") };
        assert_eq!((damage.message, damage.size, damage.found), (0, 3000, 0), "{config:?}");
        assert!(served.unwrap_err().is_closed_by_peer(), "{config:?}: the client has the cause");
    }
}

#[test]
fn a_server_finds_messages_that_are_not_those_of_the_client() {
    for config in cases() {
        let plain = OverlapConfig {
            verify: false,
            iterations: None,
            duration: TimeSpan::from_seconds(60),
            warm_up: TimeSpan::from_seconds(60),
            ..config.clone()
        };
        let (measured, served) = both(&plain, &config, serve);
        let error = served.unwrap_err();
        assert!(matches!(&error, EngineError::Damaged(damage) if damage.found == 0), "{config:?}: {error}");
        assert!(measured.unwrap_err().is_closed_by_peer(), "{config:?}: the server has the cause");
    }
}

/// A server that sends the contents of its fourth message as the third.
fn reordering(session: &mut Session<'_>) -> Result<(), EngineError> {
    session.data.top_up()?;
    assert_eq!(session.control.receive()?, Frame::Begin { cycles: 1 });
    session.control.send(Frame::Ready)?;
    let mut traffic = Traffic::verified(1);
    for number in 0..5 {
        let mut other = Traffic::verified(1);
        (0..=number).for_each(|_| other.fill(&mut []));
        let traffic = if number == 2 { &mut other } else { &mut traffic };
        session.data.post_send(traffic)?;
    }
    loop {
        session.data.poll()?;
        session.control.has_arrived()?;
    }
}

#[test]
fn a_message_of_another_number_is_found_and_named() {
    for mut config in cases() {
        config.iterations = Some(1);
        let (measured, served) = both(&config, &config, reordering);
        let error = measured.unwrap_err();
        assert!(matches!(&error, EngineError::Damaged(damage) if damage.message == 2), "{config:?}: {error}");
        assert!(error.to_string().starts_with("message 2 of 3000 bytes: byte "), "{error}");
        assert!(served.unwrap_err().is_closed_by_peer());
    }
}

/// A server that counts one message too few.
fn miscounting(session: &mut Session<'_>) -> Result<(), EngineError> {
    session.data.top_up()?;
    session.control.receive()?;
    session.control.send(Frame::Ready)?;
    let mut traffic = Traffic::verified(1);
    session.cycle(&mut traffic, 0, |_| Ok(()))?;
    session.control.expect(Frame::Finish, "no end")?;
    session.control.send(Frame::Report { received: traffic.received_count() - 1, costs: Costs::default() })
}

#[test]
fn a_report_of_another_number_of_messages_is_an_error() {
    for mut config in cases().into_iter().filter(|config| config.method == OverlapMethod::PostWorkWait) {
        config.iterations = Some(1);
        let (measured, served) = both(&config, &config, miscounting);
        served.unwrap();
        let error = measured.unwrap_err();
        assert!(matches!(error, EngineError::Miscounted { found: 4, expected: 5 }), "{error}");
    }
}

#[test]
fn a_peer_that_ends_in_the_middle_ends_the_other_side() {
    for config in cases() {
        let endless = OverlapConfig {
            iterations: None,
            duration: TimeSpan::from_seconds(3600),
            warm_up: TimeSpan::from_seconds(3600),
            ..config
        };
        let (measured, ()) = both(&endless, &endless, |session| {
            session.data.top_up().unwrap();
            session.control.receive().unwrap();
            session.control.send(Frame::Ready).unwrap();
        });
        assert!(measured.unwrap_err().is_closed_by_peer(), "{endless:?}");
    }
}

/// More bytes in flight than any socket buffer holds, in both directions at once.
#[test]
fn windows_larger_than_any_buffer_do_not_deadlock() {
    for config in cases() {
        let large = OverlapConfig { size: ByteCount(3 << 20), window: 4, iterations: Some(2), ..config };
        let (measured, served) = both(&large, &large, serve);
        served.unwrap();
        measured.unwrap();
    }
}

#[test]
fn a_queue_pair_of_another_test_is_rejected_and_the_client_still_admitted() {
    let config = config(OverlapTransport::Iwarp, OverlapMethod::Polling);
    let waiting = Waiting::open(&config, Some(HERE), secret('a')).unwrap();
    let addresses = addresses(&waiting);
    let queue_pair = addresses[1];
    thread::scope(|scope| {
        let config = &config;
        let serving = scope.spawn(move || waiting.accept(config, &Hold::default()));
        // It knows no cookie of the control connection either: the queue pair alone.
        let stranger = scope.spawn(move || Iwarp::connect(config, queue_pair, secret('b')).map(drop));
        let connected = connect(config, &addresses, secret('a'), &Hold::default());
        let failure = stranger.join().unwrap().unwrap_err();
        assert_eq!(failure.kind, FailureKind::Connection);
        connected.unwrap();
        serving.join().unwrap().unwrap().unwrap();
    });
}
