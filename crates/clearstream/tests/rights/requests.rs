//! One request of every type, as a hostile controller would send it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearstream_schema::{
    control::{Cookie, FlowPrepare, FlowRole, Request},
    flow::FlowConfig,
    plan::{Plan, PlanHost, PlanRequest, Setting, Step},
    probe::ProbeConfig,
    wire::{FlowLookup, RouteRequest, WireFlows, WireListen, WireObserve, WirePathMtu, WireProtocol},
};

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
            setting,
            current: None,
            desired: desired.map(str::to_owned),
            reason: "hostile".to_owned(),
            effect: clearstream_schema::plan::Effect::Now,
        }],
        advice: Vec::new(),
    }
}

/// Every request, the end of the session last.
pub(crate) fn samples() -> Vec<Request> {
    let nobody = SocketAddr::new(HERE, 9);
    let hostile = || plan(Setting::Sysctl("kernel.core_pattern".to_owned()), Some(PROGRAM));
    let journal = || "20261122T000000Z".to_owned();
    let prepare = FlowPrepare {
        test: 1,
        cookie: cookie(),
        role: FlowRole::Server { address: Some(HERE) },
        config: FlowConfig::default(),
    };
    let lookup = FlowLookup {
        source: HERE,
        destination: HERE,
        protocol: WireProtocol::Tcp,
        mark: None,
        ports: vec![(1, 2)],
    };
    let flows = WireFlows {
        source: HERE,
        server: nobody,
        ports: vec![40_000],
        cookie: cookie(),
        patience_ms: 50,
        at_once: 1,
    };
    let plans = [
        PlanRequest::Read(vec![Setting::NetfilterTable { name: "clearstream; flush ruleset".to_owned() }]),
        PlanRequest::Apply(hostile()),
        PlanRequest::ApplyPending(hostile()),
        PlanRequest::Keep { journal: journal() },
        PlanRequest::Verify(hostile()),
        PlanRequest::Revert { journal: journal(), force: true },
        PlanRequest::History,
        PlanRequest::Recover,
    ];
    let routes = [
        RouteRequest::Facts,
        RouteRequest::Lookup(lookup),
        RouteRequest::Listen(WireListen { addresses: vec![HERE], port: None, cookie: cookie() }),
        RouteRequest::Connect(flows),
        RouteRequest::Observe(WireObserve { ports: vec![9], interfaces: Vec::new(), seconds: 1 }),
        RouteRequest::Observed,
        RouteRequest::Counters,
        RouteRequest::PathMtu(WirePathMtu {
            source: SocketAddr::new(HERE, 0),
            destination: nobody,
            cookie: cookie(),
            patience_ms: 50,
        }),
        RouteRequest::Close,
    ];
    let probe = ProbeConfig { count: 1, ..ProbeConfig::default() };
    let mut all = vec![
        Request::Inspect,
        Request::Capture,
        Request::FlowPrepare(prepare),
        Request::FlowStart { test: 1 },
        Request::FlowStop { test: 1 },
        Request::ProbeListen { address: Some(HERE), port: None, cookie: cookie() },
        Request::ProbeRun { config: probe, udp: nobody, tcp: nobody, cookie: cookie() },
        Request::ProbeClose,
        Request::RdmaServe { address: HERE, cookie: Some(cookie()), peer: Some([192, 0, 2, 1].into()) },
    ];
    all.extend(plans.map(Request::Plan));
    all.extend(routes.map(Request::Route));
    all.push(Request::Shutdown);
    all
}
