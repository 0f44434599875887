//! One call of every type, as a hostile controller would send it.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use clearstream_control::{Call, Peer, PeerError, Shutdown};
use clearstream_diagnose::passive::{ExplainSockets, ObserveSockets};
use clearstream_explore::document::ExplorationConfig;
use clearstream_explore::ranks::{self, RanksConfig};
use clearstream_flow::{Open, calls as flow};
use clearstream_host::calls as host;
use clearstream_live::{CollectorOptions, ReadLive};
use clearstream_messages::message::MessageConfig;
use clearstream_messages::overlap::OverlapConfig;
use clearstream_messages::{message, overlap};
use clearstream_plan::calls as plans;
use clearstream_probe::calls as probe;
use clearstream_prove::calls as route;
use clearstream_rdma::{VerbsCall, VerbsConfig, calls as rdma};
use clearstream_schema::{
    control::Cookie,
    flow::{AdaptationStage, FlowConfig},
    plan::{Plan, PlanHost, Setting, Step, Value},
    probe::ProbeConfig,
    rdma::{RdmaConfig, RdmaOperation},
    scope::Right,
};
use clearstream_workload::two_sided::{Listen, Run, Stop, TwoSided};

/// A name that would be a program if it were written where programs are named.
pub(crate) const PROGRAM: &str = "|/tmp/rights-test-program";

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn cookie() -> Cookie {
    Cookie("00".repeat(16))
}

/// A plan for this host of one setting.
pub(crate) fn plan(setting: Setting, desired: Option<&str>) -> Plan {
    let text = |path: &str| std::fs::read_to_string(path).unwrap().trim().to_owned();
    Plan {
        schema: clearstream_schema::plan::PLAN_SCHEMA.to_owned(),
        version: 1,
        purpose: "hostile".to_owned(),
        host: PlanHost {
            name: text("/proc/sys/kernel/hostname"),
            kernel: text("/proc/sys/kernel/osrelease"),
        },
        steps: vec![Step {
            current: None,
            desired: desired.map(|text| Value::of(&setting, text)),
            setting,
            reason: "hostile".to_owned(),
            effect: clearstream_schema::plan::Effect::Now,
        }],
        advice: Vec::new(),
    }
}

/// Sends a call and drops its reply.
type SendCall = dyn Fn(&mut Peer) -> Result<(), PeerError>;

/// A call that can be sent.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) needs: Right,
    /// The time for its reply.
    pub(crate) within: Duration,
    send: Box<SendCall>,
}

impl Sample {
    fn of<C: Call + 'static>(call: C) -> Self {
        let within = call.reply_within();
        let send = Box::new(move |peer: &mut Peer| peer.call(&call).map(drop));
        Self { name: C::NAME, needs: C::NEEDS, within, send }
    }

    pub(crate) fn send(&self, peer: &mut Peer) -> Result<(), PeerError> {
        (self.send)(peer)
    }
}

/// Every call, the end of the session last.
pub(crate) fn samples() -> Vec<Sample> {
    let mut all = measuring();
    all.extend(plans());
    all.extend(routes());
    all.push(Sample::of(Shutdown {}));
    all
}

fn measuring() -> Vec<Sample> {
    let nobody = SocketAddr::new(HERE, 9);
    let config = FlowConfig::default();
    let open = Open::default();
    let listen =
        flow::Listen { test: 1, cookie: cookie(), address: Some(HERE), config: config.clone(), open };
    let probes = ProbeConfig { count: 1, ..ProbeConfig::default() };
    let peer = Some([192, 0, 2, 1].into());
    let operation = RdmaOperation::Write;
    let measure =
        rdma::Measure { server: nobody, cookie: cookie(), operation, config: RdmaConfig::default() };
    let connects = VerbsConfig { call: VerbsCall::Connect, ..VerbsConfig::default() };
    let own = vec![
        Sample::of(host::Inspect {}),
        Sample::of(host::Capture {}),
        Sample::of(ExplainSockets {
            filter: "all".to_owned(),
            count: 1,
            duration_ns: 1,
            namespaces: vec![1],
        }),
        Sample::of(ObserveSockets { filter: "all".to_owned(), ends: Vec::new(), duration_ns: 1 }),
        Sample::of(ReadLive {
            host: "here".to_owned(),
            options: CollectorOptions { interval_ns: 50_000_000, connection_count: 5 },
        }),
        Sample::of(listen),
        Sample::of(flow::Start { test: 1 }),
        Sample::of(flow::Stop { test: 1 }),
        Sample::of(flow::Connect { test: 2, cookie: cookie(), server: nobody, config, open }),
        Sample::of(flow::Adopt { test: 1, stage: AdaptationStage::Transfer, candidate: 0 }),
        Sample::of(probe::Listen { address: Some(HERE), port: None, cookie: cookie() }),
        Sample::of(probe::Run {
            config: probes,
            udp: nobody,
            tcp: nobody,
            cookie: cookie(),
            udp_only: false,
        }),
        Sample::of(probe::Close {}),
        Sample::of(rdma::Serve { address: HERE, port: None, cookie: Some(cookie()), peer }),
        Sample::of(measure),
        Sample::of(rdma::TimeVerbs { server: Some(nobody), cookie: cookie(), config: connects }),
        Sample::of(rdma::Stop {}),
    ];
    let message = two_sided::<message::Sides>(MessageConfig::default());
    let overlap = two_sided::<overlap::Sides>(OverlapConfig::default());
    let exploration = RanksConfig { exploration: ExplorationConfig::default(), pause: None };
    let explore = two_sided::<ranks::Sides>(exploration);
    own.into_iter().chain(message).chain(overlap).chain(explore).collect()
}

/// The calls of a measurement between two sides.
fn two_sided<W: TwoSided>(config: W::Config) -> [Sample; 3] {
    let (server, address) = (vec![SocketAddr::new(HERE, 9)], Some(HERE));
    [
        Sample::of(Listen::<W> { test: 1, cookie: cookie(), address, config: config.clone() }),
        Sample::of(Stop::<W> { test: 1, of: W::default() }),
        Sample::of(Run::<W> { test: 2, cookie: cookie(), server, config }),
    ]
}

fn plans() -> Vec<Sample> {
    let hostile = || plan(Setting::Sysctl("kernel.core_pattern".to_owned()), Some(PROGRAM));
    let journal = || "20261122T000000Z".to_owned();
    let foreign = Setting::NetfilterTable { name: "clearstream; flush ruleset".to_owned() };
    vec![
        Sample::of(plans::Read { settings: vec![foreign] }),
        Sample::of(plans::Apply { plan: hostile() }),
        Sample::of(plans::ApplyPending { plan: hostile() }),
        Sample::of(plans::Keep { journal: journal() }),
        Sample::of(plans::Verify { plan: hostile() }),
        Sample::of(plans::Revert { journal: journal(), force: true }),
        Sample::of(plans::History {}),
        Sample::of(plans::Recover {}),
    ]
}

fn routes() -> Vec<Sample> {
    let lookup = route::Lookup {
        source: HERE,
        destination: HERE,
        protocol: route::WireProtocol::Tcp,
        mark: None,
        ports: vec![(1, 2)],
        input: None,
        explain: false,
    };
    let connect = route::Connect {
        source: HERE,
        server: SocketAddr::new(HERE, 9),
        ports: vec![40_000],
        cookie: cookie(),
        timeout_ms: 50,
        at_once: 1,
    };
    let path_mtu = route::PathMtu {
        source: SocketAddr::new(HERE, 0),
        destination: SocketAddr::new(HERE, 9),
        cookie: cookie(),
        timeout_ms: 50,
    };
    vec![
        Sample::of(route::Facts {}),
        Sample::of(lookup),
        Sample::of(route::Listen { addresses: vec![HERE], port: None, cookie: cookie() }),
        Sample::of(connect),
        Sample::of(route::Observe { ports: vec![9], interfaces: Vec::new(), seconds: 1 }),
        Sample::of(route::Observed {}),
        Sample::of(route::Counters {}),
        Sample::of(path_mtu),
        Sample::of(route::Close {}),
    ]
}
