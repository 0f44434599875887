//! Ranks that agents run, joined by TCP: two agents in memory, with real connections over loopback.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::AtomicBool,
};

use clearstream_control::{Call, CallContext, Done, Peer, Registration, Service, Services, memory_pair};
use clearstream_explore::document::{Exploration, ExplorationConfig, ExplorationTransport};
use clearstream_explore::live_traffic::document::LiveTrafficConfig;
use clearstream_explore::{
    Explore, ExploreConfig, LiveTraffic, MODELS, Program, explore,
    ranks::{RanksConfig, Sides},
};
use clearstream_flow::FlowAgent;
use clearstream_ranks::threads;
use clearstream_schema::{
    ByteCount, TimeSpan,
    control::{Cookie, Failure, FailureKind},
    outcome::Outcome,
};
use clearstream_workload::{
    Context, HostSet, TrialError, Workload,
    two_sided::{self, Side, TwoSidedAgent},
};

type Listen = two_sided::Listen<Sides>;
type Run = two_sided::Run<Sides>;
type Stop = two_sided::Stop<Sides>;

fn agent() -> Peer {
    memory_pair(Services::new().with(FlowAgent::default()).with(TwoSidedAgent::<Sides>::default())).unwrap()
}

fn measured<W: Workload>(
    workload: &W,
    config: &W::Config,
    agents: (&mut Peer, &mut Peer),
    stop: bool,
) -> Result<Outcome, TrialError> {
    let mut hosts = HostSet::pair((agents.0, None), (agents.1, Ipv4Addr::LOCALHOST.into()), None);
    let stop = AtomicBool::new(stop);
    workload.run(&mut Context { hosts: &mut hosts, stop: &stop, on_event: &mut |_| () }, config)
}

fn exploration(define: &str) -> ExplorationConfig {
    ExplorationConfig {
        define: define.to_owned(),
        transport: ExplorationTransport::Tcp,
        message_size: ByteCount(1024),
        ..ExplorationConfig::default()
    }
}

fn beside(define: &str, duration_ms: u64) -> LiveTrafficConfig {
    LiveTrafficConfig {
        flows: 1,
        duration: TimeSpan::from_millis(duration_ms),
        warm_up: TimeSpan::from_millis(50),
        interval: TimeSpan::from_millis(50),
        define: define.to_owned(),
        pause: TimeSpan::from_millis(10),
        ..LiveTrafficConfig::default()
    }
}

fn value(outcome: &Outcome, name: &str) -> Option<f64> {
    outcome.metric(name).map(|metric| metric.value)
}

#[test]
fn agents_find_what_threads_find() {
    let text = MODELS.iter().find(|(name, _)| *name == "philosophers").unwrap().1;
    let program = Program::read(text, &[("N".to_owned(), 7)]).unwrap();
    let limits = ExploreConfig { message_bytes: 1024, memory_bytes: 1 << 30, cycles: false };
    let stop = AtomicBool::new(false);
    let by_threads = threads(2, |world| explore(world, &program, &limits, &stop, &mut |_| ()).unwrap());
    let by_threads = by_threads.unwrap().swap_remove(0).unwrap();
    let (mut one, mut other) = (agent(), agent());
    // The same agents, twice.
    for _ in 0..2 {
        let outcome = measured(&Explore, &exploration("N=7"), (&mut one, &mut other), false).unwrap();
        assert!(outcome.complete);
        let found: Exploration = serde_json::from_value(outcome.detail.unwrap().document).unwrap();
        assert_eq!(found.transport, "TCP");
        let counts = |of: &Exploration| (of.state_count, of.transition_count, of.deadlock_count);
        assert_eq!(counts(&found), counts(&by_threads));
        assert!(
            found.ranks.len() == 2 && found.ranks.iter().all(|rank| rank.sent_bytes.iter().sum::<u64>() > 0)
        );
    }
}

#[test]
fn explorations_beside_flows_are_counted_and_agents_are_free_afterwards() {
    let (mut one, mut other) = (agent(), agent());
    for _ in 0..2 {
        let outcome = measured(&LiveTraffic, &beside("N=4", 700), (&mut one, &mut other), false).unwrap();
        assert!(outcome.complete);
        assert!(value(&outcome, "explorations") >= Some(2.0), "{:?}", outcome.metrics);
        assert!(value(&outcome, "application-rate") > Some(0.0));
        assert!(value(&outcome, "goodput") > Some(0.0));
    }
}

#[test]
fn an_exploration_that_does_not_end_within_the_trial_is_called_so() {
    let outcome = measured(&LiveTraffic, &beside("N=20", 300), (&mut agent(), &mut agent()), false).unwrap();
    assert_eq!(value(&outcome, "explorations"), Some(0.0), "zero means zero");
    assert_eq!(value(&outcome, "application-rate"), None, "not measured");
    assert!(outcome.notices.iter().any(|notice| notice.id == "application-unfinished"));
    // Stopped by the operator: the counts up to then.
    let outcome = measured(&Explore, &exploration("N=20"), (&mut agent(), &mut agent()), true).unwrap();
    assert!(!outcome.complete);
}

/// An agent whose rank fails, begins and then is lost, or that has none at all.
#[derive(Default)]
struct Faulty {
    listener: Option<std::net::TcpListener>,
    begins: bool,
}

impl Service for Faulty {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::listen).on(|_, Stop { .. }, _| {
            Ok(Side {
                failure: Some(Failure {
                    kind: FailureKind::Internal,
                    message: "the rank was killed".to_owned(),
                }),
                ..Side::default()
            })
        });
        calls.on(|_, _: Run, _| Ok(Done {}));
    }
}

impl Faulty {
    fn listen(&mut self, call: Listen, _: &CallContext<'_>) -> Result<<Listen as Call>::Reply, Failure> {
        if !self.begins {
            return Err(Failure { kind: FailureKind::Unsupported, message: "no ranks here".to_owned() });
        }
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let own = listener.try_clone().unwrap();
        self.listener = Some(listener);
        // Admits rank 0, and ends before it has explored anything.
        std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            let (mut stream, _) = own.accept().unwrap();
            stream.read_exact(&mut [0; 16]).unwrap();
            stream.write_all(&[6]).unwrap();
        });
        let _ = call;
        Ok(two_sided::Listening { ports: vec![address.port()] })
    }
}

/// Whatever keeps the application from running: the flows alone are no result.
#[test]
fn without_its_application_a_trial_has_failed() {
    let flows = || Services::new().with(FlowAgent::default());
    let begun = Faulty { begins: true, ..Faulty::default() };
    let faults = [
        ("explore-listen", flows()),
        ("no ranks here", flows().with(Faulty::default())),
        ("the rank was killed", flows().with(begun)),
    ];
    for (expected, services) in faults {
        let mut server = memory_pair(services).unwrap();
        let config = beside("N=5", 200);
        let error = measured(&LiveTraffic, &config, (&mut agent(), &mut server), false).unwrap_err();
        let message = &error.failure.message;
        assert!(message.contains("the application beside the flows failed"), "{message}");
        assert!(message.contains(expected) && !error.lost, "{error:?}");
    }
    // Of MPI: no launcher, and a launcher whose ranks do not start.
    for (mpirun, expected) in [("no-such-mpirun", "no-such-mpirun"), ("/bin/false", "mpirun ended")] {
        let config = LiveTrafficConfig {
            transport: ExplorationTransport::Mpi,
            mpirun: Some(mpirun.to_owned()),
            ..beside("N=5", 200)
        };
        let error = measured(&LiveTraffic, &config, (&mut agent(), &mut agent()), false).unwrap_err();
        assert!(error.failure.message.contains(expected), "{error}");
        assert!(error.failure.message.contains("the application beside the flows failed"), "{error}");
    }
}

#[test]
fn options_of_mpi_are_refused_where_they_have_no_effect() {
    let config = LiveTrafficConfig { mpirun: Some("mpirun".to_owned()), ..LiveTrafficConfig::default() };
    let failure = LiveTraffic.check(&config).unwrap_err();
    assert!(failure.kind == FailureKind::Invalid && failure.message.contains("mpirun is an option of MPI"));
    let config = LiveTrafficConfig { transport: ExplorationTransport::MpiIwarp, ..config };
    LiveTraffic.check(&config).unwrap();
}

#[test]
fn strangers_do_not_become_ranks() {
    let mut server = agent();
    let cookie = Cookie("00112233445566778899aabbccddeeff".to_owned());
    let listen = Listen {
        test: 1,
        cookie: cookie.clone(),
        address: Some(Ipv4Addr::LOCALHOST.into()),
        config: RanksConfig { exploration: exploration("N=4"), pause: None },
    };
    let port = server.call(&listen).unwrap().ports[0];
    let server_address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let run = |cookie: &str, test| Run {
        test,
        cookie: Cookie(cookie.to_owned()),
        server: vec![server_address],
        config: RanksConfig { exploration: exploration("N=4"), pause: None },
    };
    let refused = agent().call(&run(&"f".repeat(32), 1)).unwrap_err();
    assert!(refused.to_string().contains("closed the connection"), "{refused}");
    let mut client = agent();
    client.call(&run(&cookie.0, 1)).unwrap();
    let side = client.call(&Stop { test: 1, of: Sides }).unwrap();
    assert_eq!(side.failure, None);
    assert_eq!(server.call(&Stop { test: 1, of: Sides }).unwrap().failure, None);
}
