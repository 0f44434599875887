//! Samples and summaries of a synthetic trial.

use clearstream_schema::{
    ByteCount, CoreList, TimeSpan,
    counters::{CoreCounters, InterfaceCounters},
    flow::{FlowConfig, FlowInterval, FlowSettings, FlowSummary, Interval, SideInterval, SocketSettings},
    probe::ProbeSummary,
    tcp_info::TcpInfo,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::model::{Cell, Noise, RTT_NS, Shape};

const SECOND_NS: u64 = 1_000_000_000;
const WARM_UP_SECONDS: u32 = 1;

/// The series of one trial, generated one interval at a time.
#[derive(Debug)]
pub(super) struct Series<'a> {
    cell: &'a Cell,
    sampled_cores: u32,
    /// This trial's level: the cell's with the scatter between repetitions.
    goodput_bps: f64,
    rtt_ns: u64,
    config: FlowConfig,
    received_bytes: u64,
    measured_ns: u64,
}

impl<'a> Series<'a> {
    pub(super) fn new(cell: &'a Cell, shape: &Shape, noise: &mut Noise) -> Self {
        let window = cell.factors.get("window").and_then(|text| text.as_str()?.parse::<ByteCount>().ok());
        let config = FlowConfig {
            flows: cell.flows,
            duration: TimeSpan::from_seconds(u64::from(shape.seconds.saturating_sub(WARM_UP_SECONDS))),
            window,
            burst_flows: if cell.bursty { 2 } else { 0 },
            sender_cores: Some(CoreList(vec![cell.sender_core])),
            receiver_cores: Some(CoreList(vec![cell.receiver_core])),
            source_port: Some(50_000),
            ..FlowConfig::default()
        };
        Self {
            cell,
            sampled_cores: shape.sampled_cores,
            goodput_bps: cell.goodput_bps * noise.factor(0.01),
            rtt_ns: if cell.wide_area { RTT_NS } else { 150_000 },
            config,
            received_bytes: 0,
            measured_ns: 0,
        }
    }

    pub(super) fn interval(&mut self, index: u32, noise: &mut Noise) -> Interval {
        let warm_up = index < WARM_UP_SECONDS;
        let mut goodput_bps = self.goodput_bps * noise.factor(0.02);
        if self.cell.bursty {
            // Bulk at 8 Gb/s; the message passing adds up to 11 on top.
            goodput_bps = 8e9 * noise.factor(0.02) + 11e9 * (noise.below(100) as f64 / 100.0);
        }
        let bytes = (goodput_bps / 8.0) as u64;
        if !warm_up {
            self.received_bytes += bytes;
            self.measured_ns += SECOND_NS;
        }
        Interval {
            index,
            warm_up,
            goodput_bps,
            directions: Vec::new(),
            client: self.side(index, bytes, true, noise),
            server: self.side(index, bytes, false, noise),
        }
    }

    fn side(&self, index: u32, bytes: u64, sends: bool, noise: &mut Noise) -> SideInterval {
        let flows = (0..self.cell.flows).map(|flow| self.flow(flow, bytes, sends)).collect();
        let counted = InterfaceCounters {
            name: "eth40".to_owned(),
            send_bytes: if sends { bytes * 103 / 100 } else { bytes / 500 },
            receive_bytes: if sends { bytes / 500 } else { bytes * 103 / 100 },
            send_packet_count: bytes / 9000,
            receive_packet_count: bytes / 18_000,
            ..InterfaceCounters::default()
        };
        let busy = if sends { self.cell.sender_core } else { self.cell.receiver_core };
        SideInterval {
            index,
            start_ns: u64::from(index) * SECOND_NS,
            end_ns: u64::from(index + 1) * SECOND_NS,
            flows,
            cores: self.cores(busy, sends, noise),
            interfaces: vec![counted],
            thread_cpu_ns: 800_000_000 + noise.below(50_000_000),
            cycle_count: None,
            tcp_counters: std::collections::BTreeMap::new(),
            process_load: None,
            cpu_throttling: None,
            driver_counters: Vec::new(),
        }
    }

    fn flow(&self, flow: u32, bytes: u64, sends: bool) -> FlowInterval {
        let per_flow = bytes / u64::from(self.cell.flows.max(1));
        let tcp = TcpInfo {
            returned_bytes: 248,
            state: 1,
            send_mss_bytes: 8948,
            path_mtu_bytes: 9000,
            rtt_ns: self.rtt_ns,
            rtt_variation_ns: 200_000,
            congestion_window_count: (self.goodput_bps / 8.0 * self.rtt_ns as f64 / 1e9 / 8948.0) as u32 + 10,
            min_rtt_ns: Some(self.rtt_ns),
            delivery_rate_bps: Some(self.goodput_bps as u64),
            ..TcpInfo::default()
        };
        FlowInterval {
            flow,
            sent_bytes: if sends { per_flow } else { 0 },
            received_bytes: if sends { 0 } else { per_flow },
            sender_core: sends.then_some(self.cell.sender_core),
            receiver_core: (!sends).then_some(self.cell.receiver_core),
            incoming_core: (!sends).then_some(self.cell.interrupt_core),
            tcp: Some(tcp),
            ..FlowInterval::default()
        }
    }

    /// The first cores of the host and, in addition, the two busy ones.
    fn cores(&self, busy: u32, sends: bool, noise: &mut Noise) -> Vec<CoreCounters> {
        let interrupt = self.cell.interrupt_core;
        let mut listed: Vec<u32> = (0..self.sampled_cores).chain([busy, interrupt]).collect();
        listed.sort_unstable();
        listed.dedup();
        listed
            .into_iter()
            .map(|core| {
                let system_ns = if core == busy { 850_000_000 } else { noise.below(1_000_000) };
                let softirq_ns = if core == interrupt && !sends { 400_000_000 } else { 0 };
                CoreCounters {
                    core,
                    user_ns: if core == busy { 10_000_000 } else { 0 },
                    system_ns,
                    softirq_ns,
                    idle_ns: SECOND_NS.saturating_sub(system_ns + softirq_ns),
                    net_rx_count: if softirq_ns > 0 { 40_000 } else { noise.below(20) },
                    interrupt_count: if softirq_ns > 0 { 38_000 } else { noise.below(5) },
                    softnet_processed_count: if softirq_ns > 0 { 300_000 } else { 0 },
                    ..CoreCounters::default()
                }
            })
            .collect()
    }

    pub(super) fn summary(&self) -> FlowSummary {
        let seconds = self.measured_ns as f64 / 1e9;
        let goodput_bps = if seconds > 0.0 { self.received_bytes as f64 * 8.0 / seconds } else { 0.0 };
        let settings = |core| FlowSettings {
            flows: (0..self.cell.flows)
                .map(|flow| SocketSettings {
                    local: format!("10.0.0.1:{}", 50_000 + flow),
                    remote: "10.0.0.2:5001".to_owned(),
                    send_buffer_bytes: self.config.window.map_or(4 << 20, |window| 2 * window.0),
                    receive_buffer_bytes: self.config.window.map_or(6 << 20, |window| 2 * window.0),
                    congestion_control: Some("htcp".to_owned()),
                    receive_low_water_bytes: 1,
                    pinned_core: Some(core),
                    transfer_bytes: self.config.transfer().0,
                    segment_bytes: 8948,
                    ..SocketSettings::default()
                })
                .collect(),
            ..FlowSettings::default()
        };
        parsed(json!({
            "requested": self.config,
            "client_settings": settings(self.cell.sender_core),
            "server_settings": settings(self.cell.receiver_core),
            "measured_ns": self.measured_ns,
            "received_bytes": self.received_bytes,
            "goodput_bps": goodput_bps,
            "flow_goodput_bps": vec![goodput_bps / f64::from(self.cell.flows.max(1)); self.cell.flows as usize],
            "retransmit_count": 0,
            "rtt_ns": self.rtt_ns,
            "min_rtt_ns": self.rtt_ns,
            "client_cpu_seconds_per_gb": 0.31,
            "server_cpu_seconds_per_gb": 0.36,
            "interrupt_core": {
                "core": self.cell.interrupt_core, "softirq_share_percent": 98, "confirmed": true
            },
            "complete": true,
        }))
    }
}

/// The 17 ms path of the papers: 0.2 ms jitter, no loss.
pub(super) fn probe(noise: &mut Noise) -> ProbeSummary {
    let mut delay = |clock: &str| {
        json!({
            "answered_count": 100,
            "sent_count": 100,
            "loss_ratio": 0.0,
            "min_ns": RTT_NS - 150_000 + noise.below(1000),
            "mean_ns": RTT_NS,
            "p50_ns": RTT_NS + noise.below(2000),
            "p90_ns": RTT_NS + 120_000,
            "p99_ns": RTT_NS + 180_000,
            "max_ns": RTT_NS + 210_000,
            "jitter_ns": 200_000,
            "clock": clock,
        })
    };
    let mut direction = |from: &str, to: &str| {
        json!({
            "from": from,
            "to": to,
            "udp": delay("kernel"),
            "tcp": delay("application"),
            "path_mtu_bytes": 9000,
            "hop_count": 1,
        })
    };
    parsed(json!({
        "requested": {},
        "directions": [direction("geneva", "amsterdam"), direction("amsterdam", "geneva")],
        "bandwidth_delay_product_bytes": 40_375_000,
    }))
}

/// Parsed from JSON, so that a record of this version stays one when fields are added.
fn parsed<T: DeserializeOwned>(document: Value) -> T {
    clearstream_schema::json::from_value(document).expect("the shape of this version")
}
