//! Evidence with the numbers that were measured elsewhere: socket states per
//! interval on Linux 6.18 over 20 ms, as ratios.

use std::collections::BTreeMap;

use clearstream_diagnose::{Evidence, FlowObservation};
use clearstream_schema::{
    ByteCount,
    counters::{
        CoreCounters, CpuThrottling, DriverCounters, InterfaceCounters, ProcessKind, ProcessLoad, ProcessTime,
    },
    diagnosis::ExperimentKind,
    flow::{
        FlowConfig, FlowInterval, FlowSettings, FlowSummary, Interval, SideInterval, SocketMemory,
        SocketSettings, ThreadTime,
    },
    host::{HostReport, NumaNode, ProcessingUnit},
    tcp_info::TcpInfo,
};
use clearstream_testkit::flow::summary;

/// Length of an interval.
pub const INTERVAL_NS: u64 = 200_000_000;

/// Socket state of one flow, the same in every interval.
#[derive(Debug, Clone)]
pub struct Shown {
    pub config: FlowConfig,
    pub goodput_bps: f64,
    pub rtt_ns: u64,
    pub min_rtt_ns: u64,
    /// Fractions of the time, 0 to 1.
    pub busy: f64,
    pub window_limited: f64,
    pub buffer_limited: f64,
    pub unacked: u32,
    pub window: u32,
    pub mss: u32,
    pub not_sent: u32,
    /// Write queue / send buffer, and the send buffer.
    pub buffer_fill: f64,
    pub buffer: u32,
    /// Receive memory / receive buffer, and the receive buffer.
    pub receive_fill: f64,
    pub receive_buffer: u32,
    pub offered: u32,
    pub app_limited: bool,
    pub loss: f64,
    /// Bytes retransmitted in this interval, in addition to that fraction.
    pub bursts: Vec<(u32, u64)>,
    pub max_pacing: Option<u64>,
    /// Threads: on a core, waiting for one, fraction in user mode.
    pub writer: (f64, f64, f64),
    pub reader: (f64, f64, f64),
    pub writer_core: u32,
    pub reader_core: u32,
    pub incoming_core: u32,
    /// Busy and softirq fraction of the reader's core.
    pub reader_core_busy: (f64, f64),
    pub receiver_counters: Vec<(&'static str, u64)>,
    pub interface: &'static str,
    /// Driver counters that rise in every interval, of the sender and of the receiver.
    pub driver_counters: [Vec<(&'static str, u64)>; 2],
    pub one_machine: bool,
    /// Other processes: name, fraction of a core, core.
    pub processes: Vec<(&'static str, f64, u32)>,
    /// Quota in thousandths of a core, fraction of the throttled periods.
    pub throttled: Option<(u64, f64)>,
    pub congestion_control: &'static str,
    /// Round trip and congestion window, interval for interval in turn, instead of
    /// those above.
    pub swings: Vec<(u64, u32)>,
    /// Reordering events of each interval.
    pub reorderings: u32,
    /// Fraction of the time that each idle core had load that no scan shows.
    pub unseen: f64,
    /// The core of the packets: busy and softirq fraction.
    pub packet_core_busy: (f64, f64),
}

impl Shown {
    /// A veth pair of one machine at its full rate.
    pub fn veth() -> Self {
        Self {
            goodput_bps: 20e9,
            rtt_ns: 90_000,
            min_rtt_ns: 30_000,
            busy: 0.6,
            unacked: 0,
            window: 3729,
            buffer_fill: 0.1,
            one_machine: true,
            ..Self::default()
        }
    }

    /// A joined packet of many segments is dropped now and then.
    pub fn losses_in_bursts() -> Self {
        Self {
            goodput_bps: 700e6,
            rtt_ns: 17_600_000,
            min_rtt_ns: 17_000_000,
            unacked: 150,
            window: 150,
            not_sent: 3 << 20,
            buffer_fill: 1.0,
            bursts: vec![(3, 2_000_000), (9, 2_000_000), (15, 2_000_000)],
            ..Self::default()
        }
    }

    /// SO_RCVBUF of 1 MiB over 20.2 ms: a window of 1484960 bytes, 574 Mb/s measured.
    pub fn small_receive_buffer() -> Self {
        Self {
            config: FlowConfig { receive_buffer: Some(ByteCount(1 << 20)), ..FlowConfig::default() },
            goodput_bps: 574e6,
            window_limited: 0.98,
            unacked: 166,
            window: 332,
            not_sent: 8 << 20,
            buffer_fill: 0.86,
            receive_buffer: 2 << 20,
            receive_fill: 0.0,
            offered: 1_484_960,
            ..Self::default()
        }
    }
}

impl Default for Shown {
    /// A flow of 1 Gb/s without any signature.
    fn default() -> Self {
        Self {
            config: FlowConfig::default(),
            goodput_bps: 1e9,
            rtt_ns: 20_100_000,
            min_rtt_ns: 20_000_000,
            busy: 1.0,
            window_limited: 0.0,
            buffer_limited: 0.0,
            unacked: 300,
            window: 600,
            mss: 8948,
            not_sent: 0,
            buffer_fill: 0.6,
            buffer: 8 << 20,
            receive_fill: 0.02,
            receive_buffer: 32 << 20,
            offered: 16 << 20,
            app_limited: false,
            loss: 0.0,
            bursts: Vec::new(),
            max_pacing: None,
            writer: (0.1, 0.01, 0.1),
            reader: (0.2, 0.01, 0.1),
            writer_core: 0,
            reader_core: 1,
            incoming_core: 2,
            reader_core_busy: (0.3, 0.0),
            receiver_counters: Vec::new(),
            interface: "eth0",
            one_machine: false,
            driver_counters: [Vec::new(), Vec::new()],
            processes: Vec::new(),
            throttled: None,
            congestion_control: "cubic",
            swings: Vec::new(),
            reorderings: 0,
            unseen: 0.0,
            packet_core_busy: (0.0, 0.0),
        }
    }
}

fn nanos(share: f64, at: u32) -> u64 {
    (share * INTERVAL_NS as f64) as u64 * u64::from(at + 1)
}

fn thread((run, wait, user): (f64, f64, f64)) -> ThreadTime {
    let of = |share: f64| (share * INTERVAL_NS as f64) as u64;
    ThreadTime { run_ns: of(run), wait_ns: of(wait), user_ns: of(run * user) }
}

impl Shown {
    fn bytes(&self) -> u64 {
        (self.goodput_bps / 8.0 * INTERVAL_NS as f64 / 1e9) as u64
    }

    fn sending(&self, at: u32) -> FlowInterval {
        let sent = self.bytes() * u64::from(at + 1);
        let swing = self.swings.get(at as usize % self.swings.len().max(1)).copied();
        let (rtt_ns, window) = swing.unwrap_or((self.rtt_ns, self.window));
        FlowInterval {
            sent_bytes: self.bytes(),
            sender_core: Some(self.writer_core),
            sender_time: Some(thread(self.writer)),
            tcp: Some(TcpInfo {
                returned_bytes: 280,
                state: 1,
                send_mss_bytes: self.mss,
                unacked_count: if swing.is_some() { window } else { self.unacked },
                congestion_window_count: window,
                send_ssthresh_count: 100,
                path_mtu_bytes: 9000,
                rtt_ns,
                reorder_seen_count: Some(self.reorderings * (at + 1)),
                min_rtt_ns: Some(self.min_rtt_ns),
                not_sent_bytes: Some(self.not_sent),
                busy_ns: Some(nanos(self.busy, at)),
                receive_window_limited_ns: Some(nanos(self.window_limited, at)),
                send_buffer_limited_ns: Some(nanos(self.buffer_limited, at)),
                sent_bytes: Some(sent),
                retransmitted_bytes: Some((sent as f64 * self.loss) as u64 + self.bursts_until(at)),
                send_window_bytes: Some(self.offered),
                max_pacing_rate_bps: self.max_pacing,
                delivery_rate_app_limited: self.app_limited,
                ..TcpInfo::default()
            }),
            memory: Some(SocketMemory {
                send_limit_bytes: self.buffer,
                send_queued_bytes: (f64::from(self.buffer) * self.buffer_fill) as u32,
                ..SocketMemory::default()
            }),
            ..FlowInterval::default()
        }
    }

    fn bursts_until(&self, at: u32) -> u64 {
        self.bursts.iter().filter(|(when, _)| *when <= at).map(|(_, bytes)| bytes).sum()
    }

    fn receiving(&self) -> FlowInterval {
        FlowInterval {
            received_bytes: self.bytes(),
            receiver_core: Some(self.reader_core),
            receiver_time: Some(thread(self.reader)),
            incoming_core: Some(self.incoming_core),
            tcp: Some(TcpInfo { receive_window_scale: 11, ..TcpInfo::default() }),
            memory: Some(SocketMemory {
                receive_limit_bytes: self.receive_buffer,
                receive_used_bytes: (f64::from(self.receive_buffer) * self.receive_fill) as u32,
                ..SocketMemory::default()
            }),
            ..FlowInterval::default()
        }
    }

    /// Report of the agent with this number.
    fn load(&self, agent: u32) -> ProcessLoad {
        let process = |pid, name: &str, kind, share: f64, core| ProcessTime {
            pid,
            name: name.to_owned(),
            kind,
            run_ns: (share * INTERVAL_NS as f64) as u64,
            core,
        };
        let kind = |pid| if pid == agent { ProcessKind::Agent } else { ProcessKind::Other };
        // On one machine each end observes the other's agent.
        let agents: &[u32] = if self.one_machine { &[100, 200] } else { &[agent] };
        let mut processes: Vec<ProcessTime> = agents
            .iter()
            .map(|pid| process(*pid, "clearstream", kind(*pid), 0.5, self.writer_core))
            .collect();
        for (pid, (name, share, core)) in (300..).zip(&self.processes) {
            let kind = match *name {
                "rustc" => ProcessKind::Background,
                "clearstream-lab" => ProcessKind::PathEmulation,
                _ => ProcessKind::Other,
            };
            processes.push(process(pid, name, kind, *share, *core));
        }
        ProcessLoad { elapsed_ns: INTERVAL_NS, processes, remaining_run_ns: 0 }
    }

    /// Four cores without load of the flow, but for the packets.
    fn idle_cores(&self) -> Vec<CoreCounters> {
        let of = |share: f64| (share * INTERVAL_NS as f64) as u64;
        let core = |core| {
            let (busy, softirq) = if core == self.incoming_core { self.packet_core_busy } else { (0.0, 0.0) };
            let user_ns = of(self.unseen) + of(busy - softirq);
            let softirq_ns = of(softirq);
            let idle_ns = INTERVAL_NS.saturating_sub(user_ns + softirq_ns);
            CoreCounters { core, user_ns, softirq_ns, idle_ns, ..CoreCounters::default() }
        };
        (0..4).map(core).collect()
    }

    /// The reader's core among idle ones.
    fn cores(&self, own: CoreCounters) -> Vec<CoreCounters> {
        self.idle_cores()
            .into_iter()
            .map(|idle| if idle.core == own.core { own.clone() } else { idle })
            .collect()
    }

    fn side(&self, at: u32, sends: bool) -> SideInterval {
        let (busy, softirq) = self.reader_core_busy;
        let of = |share: f64| (share * INTERVAL_NS as f64) as u64;
        let core = CoreCounters {
            core: self.reader_core,
            system_ns: of(busy - softirq),
            softirq_ns: of(softirq),
            idle_ns: of(1.0 - busy),
            ..CoreCounters::default()
        };
        let counters: BTreeMap<String, u64> =
            self.receiver_counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        SideInterval {
            index: at,
            start_ns: u64::from(at) * INTERVAL_NS,
            end_ns: u64::from(at + 1) * INTERVAL_NS,
            flows: vec![if sends { self.sending(at) } else { self.receiving() }],
            cores: if sends { self.idle_cores() } else { self.cores(core) },
            interfaces: vec![InterfaceCounters {
                name: self.interface.to_owned(),
                send_bytes: if sends { self.bytes() } else { 1 },
                receive_bytes: if sends { 1 } else { self.bytes() },
                ..InterfaceCounters::default()
            }],
            driver_counters: vec![DriverCounters {
                interface: self.interface.to_owned(),
                counters: self.driver_counters[usize::from(!sends)]
                    .iter()
                    .map(|(name, count)| ((*name).to_owned(), *count))
                    .collect(),
            }],
            tcp_counters: if sends { BTreeMap::new() } else { counters },
            process_load: Some(self.load(if sends { 100 } else { 200 })),
            cpu_throttling: self.throttled.map(|(quota_millicores, share)| CpuThrottling {
                group: "/job".to_owned(),
                quota_millicores,
                period_count: 2,
                throttled_count: (2.0 * share).round() as u64,
                throttled_ns: of(share / 2.0),
            }),
            ..SideInterval::default()
        }
    }

    /// The flow as an observation.
    pub fn flow(&self) -> FlowObservation {
        let intervals = (0..20).map(|at| Interval {
            index: at,
            warm_up: at < 2,
            goodput_bps: self.goodput_bps,
            directions: Vec::new(),
            client: self.side(at, true),
            server: self.side(at, false),
        });
        let sockets = SocketSettings {
            congestion_control: Some(self.congestion_control.to_owned()),
            ..SocketSettings::default()
        };
        let settings = |id: &str| FlowSettings { flows: vec![sockets.clone()], boot_id: Some(id.to_owned()) };
        FlowObservation {
            kind: ExperimentKind::AsRequested,
            config: self.config.clone(),
            intervals: intervals.collect(),
            summary: Some(FlowSummary {
                client_settings: settings("one"),
                server_settings: settings(if self.one_machine { "one" } else { "two" }),
                rtt_ns: Some(self.rtt_ns),
                min_rtt_ns: Some(self.min_rtt_ns),
                ..summary(&self.config, self.goodput_bps, 18 * INTERVAL_NS)
            }),
            failure: None,
        }
    }

    /// The flow as an experiment of this kind.
    pub fn experiment(&self, kind: ExperimentKind) -> FlowObservation {
        FlowObservation { kind, ..self.flow() }
    }

    /// Evidence of this flow between two hosts of four cores.
    pub fn evidence(&self) -> Evidence {
        Evidence {
            client: host("alpha"),
            server: host("beta"),
            flows: vec![self.flow()],
            ..Evidence::default()
        }
    }
}

/// Flows that ran side by side, as one test of them all.
pub fn together(flows: &[Shown]) -> FlowObservation {
    let each: Vec<FlowObservation> = flows.iter().map(Shown::flow).collect();
    let mut all = each[0].clone();
    all.config.flows = u32::try_from(flows.len()).unwrap();
    for (number, one) in (0..).zip(&each) {
        for (sum, interval) in all.intervals.iter_mut().zip(&one.intervals) {
            for (sum, side) in [(&mut sum.client, &interval.client), (&mut sum.server, &interval.server)] {
                if number == 0 {
                    sum.flows.clear();
                }
                sum.flows
                    .extend(side.flows.iter().cloned().map(|flow| FlowInterval { flow: number, ..flow }));
            }
        }
    }
    let summary = all.summary.as_mut().unwrap();
    summary.goodput_bps = flows.iter().map(|flow| flow.goodput_bps).sum();
    all
}

/// A host of 64 GiB and four cores with the buffers of Linux 6.18.
pub fn host(name: &str) -> HostReport {
    let mut host = HostReport { name: name.to_owned(), ..HostReport::default() };
    host.kernel.page_bytes = 4096;
    for (key, value) in [
        ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
        ("net.ipv4.tcp_mem", "769821 1026430 1539642"),
    ] {
        host.kernel.sysctls.insert(key.to_owned(), value.to_owned());
    }
    host.kernel.congestion_controls = ["reno", "cubic", "bbr"].map(str::to_owned).to_vec();
    host.nodes.push(NumaNode {
        node: 0,
        cores: (0..4).collect(),
        memory_bytes: 64 << 30,
        free_bytes: 32 << 30,
        distances: vec![10],
    });
    host.processing_units = (0..4)
        .map(|core| ProcessingUnit {
            core,
            online: true,
            package: Some(0),
            node: Some(0),
            core_id: Some(core),
            siblings: vec![core],
            allowed: true,
        })
        .collect();
    host
}
