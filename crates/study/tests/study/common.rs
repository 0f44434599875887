//! Hosts of the papers, and a testbed without hosts.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use clearstream_explore::live_traffic::document::LiveTrafficConfig;
use clearstream_explore::{Explore, LiveTraffic};
use clearstream_failover::{Failover, RoutesOver};
use clearstream_flow::Flow;
use clearstream_messages::{Message, Overlap};
use clearstream_probe::Probe;
use clearstream_rdma::{Rdma, VerbsCalls};
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::{FlowConfig, FlowSummary, Interval, SideInterval},
    host::{HOST_SCHEMA, HostReport, Interrupt, LlcGroup, Nic, NumaNode, Package, ProcessingUnit},
    lab::{DelayLineStats, LAB_SCHEMA, LabFile},
    notice::Notice,
    outcome::{Metric, Outcome, Unit},
    record::{RunHost, Treatments},
};
use clearstream_storage::{StorageMetadataWorkload, StorageStream, semantics::StorageSemanticsWorkload};
use clearstream_study::{Environment, StudyError, Testbed};
use clearstream_workload::{AnyWorkload, Event, Inspect, Registry, Sample, TrialError};
use serde::Deserialize;
use serde_json::{Value, json};

/// The workloads of the program.
pub(crate) fn registry() -> Registry {
    Registry::default()
        .with(Flow)
        .with(Probe)
        .with(Inspect)
        .with(Failover)
        .with(Message)
        .with(Overlap)
        .with(Explore)
        .with(LiveTraffic)
        .with(Rdma)
        .with(VerbsCalls)
        .with(StorageStream)
        .with(StorageMetadataWorkload)
        .with(StorageSemanticsWorkload)
        .with_factor(RoutesOver)
}

/// Two hosts as a run has them.
pub(crate) fn pair(client: &HostReport, server: &HostReport) -> Vec<RunHost> {
    vec![run_host("client", client), run_host("server", server)]
}

fn run_host(role: &str, report: &HostReport) -> RunHost {
    RunHost { name: report.name.clone(), role: role.to_owned(), report: report.clone(), capture: None }
}

/// A host whose cores are on the node and package that `place` returns.
pub(crate) fn host(
    name: &str,
    cores: u32,
    place: impl Fn(u32) -> (u32, u32),
    interrupt_core: u32,
) -> HostReport {
    let all: Vec<u32> = (0..cores).collect();
    let nodes: BTreeSet<u32> = all.iter().map(|core| place(*core).0).collect();
    let packages: BTreeSet<u32> = all.iter().map(|core| place(*core).1).collect();
    let of_node = |node: u32| all.iter().copied().filter(|core| place(*core).0 == node).collect::<Vec<_>>();
    HostReport {
        schema: HOST_SCHEMA.to_owned(),
        version: 1,
        name: name.to_owned(),
        nodes: nodes
            .iter()
            .map(|node| NumaNode {
                node: *node,
                cores: of_node(*node),
                memory_bytes: 1 << 30,
                free_bytes: 1 << 29,
                distances: Vec::new(),
            })
            .collect(),
        packages: packages
            .iter()
            .map(|package| Package {
                package: *package,
                cores: all.iter().copied().filter(|core| place(*core).1 == *package).collect(),
            })
            .collect(),
        llc_groups: nodes
            .iter()
            .map(|node| LlcGroup { level: 3, size_bytes: 6 << 20, cores: of_node(*node) })
            .collect(),
        processing_units: all
            .iter()
            .map(|core| ProcessingUnit {
                core: *core,
                online: true,
                package: Some(place(*core).1),
                node: Some(place(*core).0),
                core_id: Some(*core),
                siblings: vec![*core],
                allowed: true,
            })
            .collect(),
        nics: vec![Nic {
            name: "eth40".to_owned(),
            speed_bps: Some(40_000_000_000),
            operational_state: Some("up".to_owned()),
            interrupts: vec![100],
            ..Nic::default()
        }],
        interrupts: vec![
            serde_json::from_value::<Interrupt>(json!({
                "interrupt": 100, "action": "mlx4-0", "counts": { interrupt_core.to_string(): 5000, "1": 3 },
            }))
            .unwrap(),
        ],
        ..HostReport::default()
    }
}

/// Two packages of four cores, one node each; interrupts on core 7 (TNC 2011, section 3).
pub(crate) fn nehalem(name: &str) -> HostReport {
    host(name, 8, |core| (core / 4, core / 4), 7)
}

/// Core i on package i mod 4; a package's first six cores are one node, the
/// other six the next (TNC 2011, section 3). Interrupts on core 0.
pub(crate) fn magny_cours(name: &str) -> HostReport {
    host(name, 48, |core| (core % 4 * 2 + core / 4 / 6, core % 4), 0)
}

/// One package, two cores, no interrupts: a small virtual machine.
pub(crate) fn small(name: &str) -> HostReport {
    HostReport { nics: Vec::new(), interrupts: Vec::new(), ..host(name, 2, |_| (0, 0), 0) }
}

pub(crate) fn lab(name: &str) -> LabFile {
    LabFile {
        schema: LAB_SCHEMA.to_owned(),
        version: 1,
        name: name.to_owned(),
        title: String::new(),
        hosts: Vec::new(),
        links: Vec::new(),
        switches: Vec::new(),
    }
}

/// Calls of the testbed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Call {
    Flow(Box<FlowConfig>),
    Probe,
    Set(Environment),
}

type ResultOf = Rc<dyn Fn(usize, &FlowConfig) -> Result<f64, TrialError>>;

/// A testbed that replies at once.
#[derive(Clone)]
pub(crate) struct FakeTestbed {
    pub(crate) client: HostReport,
    pub(crate) server: HostReport,
    /// More hosts, all of one role.
    pub(crate) others: Vec<HostReport>,
    pub(crate) lab: Option<LabFile>,
    /// Counters of the lab's delay line after each trial.
    pub(crate) line: DelayLineStats,
    /// Goodput of the n-th flow, or its error.
    pub(crate) result: ResultOf,
    pub(crate) calls: Rc<RefCell<Vec<Call>>>,
    /// Raises the stop flag within this flow.
    pub(crate) stop_in: Option<usize>,
    pub(crate) intervals: u32,
    pub(crate) treatments: Option<Treatments>,
}

impl FakeTestbed {
    pub(crate) fn new() -> Self {
        Self {
            client: small("alpha"),
            server: small("beta"),
            others: Vec::new(),
            lab: None,
            line: DelayLineStats::default(),
            result: Rc::new(|place, _| Ok(20e9 + place as f64)),
            calls: Rc::default(),
            stop_in: None,
            intervals: 6,
            treatments: None,
        }
    }

    pub(crate) fn flows(&self) -> Vec<FlowConfig> {
        let flow = |call: &Call| match call {
            Call::Flow(config) => Some(FlowConfig::clone(config)),
            _ => None,
        };
        self.calls.borrow().iter().filter_map(flow).collect()
    }
}

pub(crate) fn failed(message: &str) -> TrialError {
    Failure { kind: FailureKind::InUse, message: message.to_owned() }.into()
}

pub(crate) fn interval(index: u32, goodput_bps: f64) -> Interval {
    let side = SideInterval { index, ..SideInterval::default() };
    Interval {
        index,
        warm_up: index == 0,
        goodput_bps,
        directions: Vec::new(),
        client: side.clone(),
        server: side,
    }
}

impl Testbed for FakeTestbed {
    fn describe(&mut self) -> Result<Vec<RunHost>, StudyError> {
        let others = self.others.iter().map(|report| run_host("host", report));
        Ok(pair(&self.client, &self.server).into_iter().chain(others).collect())
    }

    fn capture(&mut self, host: usize) -> Result<Vec<u8>, TrialError> {
        match host {
            0 => Ok(b"bundle".to_vec()),
            _ => Err(failed("no room for the bundle")),
        }
    }

    fn lab(&self) -> Option<&LabFile> {
        self.lab.as_ref()
    }

    fn treatments(&self) -> Option<&Treatments> {
        self.treatments.as_ref()
    }

    fn set(&mut self, environment: &Environment, _: &[&str]) -> Result<Vec<Notice>, TrialError> {
        self.calls.borrow_mut().push(Call::Set(environment.clone()));
        Ok(Vec::new())
    }

    fn reset_delay_lines(&mut self) {}

    fn measure(
        &mut self,
        workload: &dyn AnyWorkload,
        config: &Value,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrialError> {
        match workload.name() {
            "flow" => self.flow(&FlowConfig::deserialize(config).unwrap(), stop, on_event),
            "live-traffic" => {
                self.flow(&LiveTrafficConfig::deserialize(config).unwrap().bulk(), stop, on_event)
            }
            "probe" => {
                self.calls.borrow_mut().push(Call::Probe);
                Ok(Outcome::of([Metric::lower("udp-delay-p50", Unit::Nanoseconds, 17e6)]))
            }
            "inspect" => Ok(Outcome::default()),
            other => Err(failed(&format!("no {other} here"))),
        }
    }

    fn delay_lines(&mut self) -> Vec<DelayLineStats> {
        if self.lab.is_some() { vec![self.line.clone()] } else { Vec::new() }
    }
}

impl FakeTestbed {
    fn flow(
        &mut self,
        config: &FlowConfig,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrialError> {
        let place = self.flows().len();
        self.calls.borrow_mut().push(Call::Flow(Box::new(config.clone())));
        let goodput_bps = (self.result)(place, config)?;
        let mut complete = true;
        for index in 0..self.intervals {
            if self.stop_in == Some(place) && index == 2 {
                stop.store(true, Ordering::Relaxed);
            }
            if stop.load(Ordering::Relaxed) {
                complete = false;
                break;
            }
            let goodput = Metric::higher("goodput", Unit::BitsPerSecond, goodput_bps);
            let headline = (index > 0).then_some(goodput);
            let sample = Sample::new(&interval(index, goodput_bps), headline).unwrap();
            on_event(Event::Sample(sample.ending_at(u64::from(index + 1) * 1_000_000_000)));
        }
        let summary: FlowSummary = serde_json::from_value(json!({
            "requested": config,
            "client_settings": {"flows": []},
            "server_settings": {"flows": []},
            "measured_ns": 1_000_000_000u64,
            "received_bytes": 1,
            "goodput_bps": goodput_bps,
            "flow_goodput_bps": [goodput_bps],
            "client_cpu_seconds_per_gb": 0.1,
            "server_cpu_seconds_per_gb": 0.1,
            "complete": complete,
        }))
        .unwrap();
        Ok(summary.outcome().unwrap())
    }
}

impl std::fmt::Debug for FakeTestbed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakeTestbed")
    }
}
