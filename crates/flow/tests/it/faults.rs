//! Premature ends: results so far are kept, and nothing hangs.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use clearstream_control::{CallContext, Controller, EventSender, Peer, agent, spawn};
use clearstream_flow::{
    FlowAgent, FlowError, FlowEvent, Open,
    calls::{Connect, Finished, Listen},
    run,
};
use clearstream_schema::{
    ByteCount, TimeSpan,
    control::{Cookie, FailureKind},
    flow::{Direction, FlowConfig, Protocol},
    scope::Scope,
};
use clearstream_testkit::again::one_test;

use crate::common::{measure_with, peers, services, short};

/// Set when this test program is to act as an agent.
const AGENT: &str = "CLEARSTREAM_TEST_FLOW_AGENT";

/// Not a test of its own: the agent that the following tests start and kill.
#[test]
fn agent_process() {
    if std::env::var_os(AGENT).is_some() {
        agent::serve_stdio(services()).unwrap();
        std::process::exit(0);
    }
}

/// An agent in its own process, and its process id.
fn agent_in_a_process() -> (Peer, u32) {
    let folder = std::env::temp_dir().join(format!(
        "clearstream-flow-{}-{:?}",
        std::process::id(),
        thread::current().id()
    ));
    // An inner shell prints its process id and becomes the agent. The first two lines of the test harness
    // must not enter the session.
    let inner = format!("echo $$ > '{}'; exec \"$@\" --quiet", folder.display());
    let script = "sh -c \"$0\" sh \"$@\" | { read -r _; read -r _; exec cat; }";
    let mut command = Command::new("sh");
    command.args(["-c", script, &inner]).args(one_test(module_path!(), "agent_process"));
    command.env(AGENT, "1").stderr(Stdio::null());
    let peer = spawn(command, "victim").unwrap();
    let pid = std::fs::read_to_string(&folder).unwrap().trim().parse().unwrap();
    std::fs::remove_file(folder).unwrap();
    (peer, pid)
}

fn long() -> FlowConfig {
    FlowConfig { duration: TimeSpan::from_seconds(30), ..short() }
}

#[test]
fn a_test_that_is_stopped_keeps_its_results() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let (mut client, mut server) = peers();
        let stop = AtomicBool::new(false);
        let started = Instant::now();
        let config = FlowConfig { protocol, direction: Direction::Both, ..long() };
        let mut count = 0;
        let summary = run(
            &mut client,
            &mut server,
            Ipv4Addr::LOCALHOST.into(),
            &config,
            Open::default(),
            &stop,
            &mut |event| {
                count += u32::from(matches!(event, FlowEvent::Interval(_)));
                stop.store(count >= 3, Relaxed);
            },
        )
        .unwrap();
        assert!(!summary.complete && summary.received_bytes > 0, "{protocol:?}");
        assert!(started.elapsed() < Duration::from_secs(5), "{protocol:?}");
        // Both agents are free for the next test.
        let (summary, _) = measure_with(&mut client, &mut server, &short(), |_| {}).unwrap();
        assert!(summary.complete);
    }
}

#[test]
fn an_agent_that_dies_leaves_the_results_so_far() {
    for direction in [Direction::Forward, Direction::Reverse] {
        let (mut client, _kept) = peers();
        let (mut server, pid) = agent_in_a_process();
        let config = FlowConfig { direction, ..long() };
        let started = Instant::now();
        let mut count = 0;
        let error = measure_with(&mut client, &mut server, &config, |event| {
            count += u32::from(matches!(event, FlowEvent::Interval(_)));
            if count == 3 {
                let status = Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
                assert!(status.success());
                count += 1;
            }
        })
        .unwrap_err();
        assert!(matches!(error, FlowError::PeerLost { .. }), "{direction:?}: {error:?}");
        let partial = error.partial().unwrap();
        assert!(!partial.complete && partial.received_bytes > 0, "{direction:?}");
        assert!(partial.measured_ns >= 250_000_000, "{direction:?}: {}", partial.measured_ns);
        assert!(started.elapsed() < Duration::from_secs(6), "{direction:?}");
    }
}

fn cookie() -> Cookie {
    Cookie("0123456789abcdef0123456789abcdef".into())
}

fn listen(config: &FlowConfig) -> Listen {
    let address = Some(Ipv4Addr::LOCALHOST.into());
    Listen { test: 1, cookie: cookie(), address, config: config.clone(), open: Open::default() }
}

fn connect(server: SocketAddr, config: &FlowConfig) -> Connect {
    Connect { test: 1, cookie: cookie(), server, config: config.clone(), open: Open::default() }
}

#[test]
fn a_dropped_agent_ends_its_threads() {
    let (events, received) = EventSender::channel();
    let context = CallContext::new(&events, None);
    let mut server = FlowAgent::new();
    let config = FlowConfig { bytes: Some(ByteCount(u64::MAX)), flows: 2, ..short() };
    let address = server.listen(listen(&config), &context).unwrap().address;
    let busy = server.listen(listen(&config), &context).unwrap_err();
    assert_eq!(busy.kind, FailureKind::Busy);
    let (client_events, _client_received) = EventSender::channel();
    let mut client = FlowAgent::new();
    client.connect(connect(address, &config), &CallContext::new(&client_events, None)).unwrap();
    server.start(1).unwrap();
    client.start(1).unwrap();
    thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    drop(client);
    // The server ends by itself: its streams have ended.
    let finished = received.iter().find(|event| event.is::<Finished>());
    assert!(finished.is_some() && started.elapsed() < Duration::from_secs(5));
    assert_eq!(server.start(2).unwrap_err().kind, FailureKind::Invalid);
    assert!(server.stop(1).is_ok(), "a test that has ended can be stopped");
}

#[test]
fn a_client_that_never_connects_can_be_stopped() {
    let (events, _received) = EventSender::channel();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let mut server = FlowAgent::new();
        let call = listen(&FlowConfig { protocol, ..short() });
        server.listen(call, &CallContext::new(&events, None)).unwrap();
        let started = Instant::now();
        server.stop(1).unwrap();
        assert!(started.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn a_closed_port_is_reported_at_once() {
    let (events, _received) = EventSender::channel();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, nobody.port()));
        let config = FlowConfig { protocol, ..short() };
        let context = CallContext::new(&events, None);
        let failure = FlowAgent::new().connect(connect(server, &config), &context).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unreachable);
        assert!(failure.message.contains(&server.to_string()), "{failure}");
        assert!(failure.message.contains("--port"), "{failure}");
    }
}

#[test]
fn no_congestion_control_is_loaded_for_a_paired_controller() {
    let (events, _received) = EventSender::channel();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let alice = Controller { name: "alice".into(), address, scope: Scope::Measure };
    let config = FlowConfig { congestion_control: Some("no_such_one".into()), ..short() };
    let context = CallContext::new(&events, Some(&alice));
    let failure = FlowAgent::new().listen(listen(&config), &context).unwrap_err();
    assert!(failure.message.contains("over TLS none is loaded by name"), "{failure}");
    let failure = FlowAgent::new().connect(connect(address, &config), &context).unwrap_err();
    assert!(failure.message.contains("over TLS none is loaded by name"), "{failure}");
}
