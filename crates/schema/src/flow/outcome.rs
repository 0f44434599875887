//! A finished flow test as the outcome of a trial.

use std::net::SocketAddr;

use serde_json::Value;

use super::{
    Direction, FLOW_SUMMARY_SCHEMA, FlowConfig, FlowSettings, FlowSummary, Protocol, SocketSettings,
};
use crate::{
    ByteCount, CoreList,
    outcome::{MetricKind, Outcome, SettingValue, Unit},
};

const GOODPUT: MetricKind = MetricKind::higher("goodput", Unit::BitsPerSecond);
const CLIENT_CPU: MetricKind = MetricKind::lower("client-cpu", Unit::SecondsPerGigabyte);
const SERVER_CPU: MetricKind = MetricKind::lower("server-cpu", Unit::SecondsPerGigabyte);
const RTT: MetricKind = MetricKind::lower("rtt", Unit::Nanoseconds);
const MIN_RTT: MetricKind = MetricKind::lower("min-rtt", Unit::Nanoseconds);
const RETRANSMITS: MetricKind = MetricKind::lower("retransmits", Unit::Count);
const LOSS: MetricKind = MetricKind::lower("loss", Unit::Ratio);
const FORWARD_GOODPUT: MetricKind = MetricKind::higher("forward-goodput", Unit::BitsPerSecond);
const REVERSE_GOODPUT: MetricKind = MetricKind::higher("reverse-goodput", Unit::BitsPerSecond);
const JITTER: MetricKind = MetricKind::lower("jitter", Unit::Nanoseconds);

impl FlowConfig {
    /// Metrics that a trial of this configuration can have, the headline first.
    pub fn metrics(&self) -> Vec<MetricKind> {
        let mut kinds = vec![GOODPUT, CLIENT_CPU, SERVER_CPU];
        kinds.extend_from_slice(match self.protocol {
            Protocol::Tcp | Protocol::Mptcp => &[RTT, MIN_RTT, RETRANSMITS],
            Protocol::Udp => &[LOSS, JITTER],
        });
        if self.direction == Direction::Both {
            kinds.extend([FORWARD_GOODPUT, REVERSE_GOODPUT]);
        }
        kinds
    }
}

impl FlowSummary {
    /// As the outcome of a trial.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        let mut metrics = vec![
            GOODPUT.of(self.goodput_bps),
            CLIENT_CPU.of(self.client_cpu_seconds_per_gb),
            SERVER_CPU.of(self.server_cpu_seconds_per_gb),
        ];
        metrics.extend(self.rtt_ns.map(|ns| RTT.of(ns as f64)));
        metrics.extend(self.min_rtt_ns.map(|ns| MIN_RTT.of(ns as f64)));
        metrics.extend(self.retransmit_count.map(|count| RETRANSMITS.of(count as f64)));
        metrics.extend(self.loss_ratio.map(|ratio| LOSS.of(ratio)));
        if self.directions.len() > 1 {
            metrics.extend(self.directions.iter().map(|one| {
                let kind = match one.direction {
                    Direction::Reverse => REVERSE_GOODPUT,
                    Direction::Forward | Direction::Both => FORWARD_GOODPUT,
                };
                kind.of(one.goodput_bps)
            }));
        }
        let jitter = self.directions.iter().filter_map(|one| one.jitter_ns).max();
        metrics.extend(jitter.map(|ns| JITTER.of(ns as f64)));
        let outcome = Outcome {
            complete: self.complete,
            settings: self.settings(),
            notices: self.notices.clone(),
            ..Outcome::of(metrics)
        };
        outcome.with_detail(FLOW_SUMMARY_SCHEMA, 1, self)
    }

    /// Settings of both hosts, each with what it does: the sockets of all flows are made alike.
    fn settings(&self) -> Vec<SettingValue> {
        let direction = self.requested.direction;
        let forward = direction != Direction::Reverse;
        let reverse = direction != Direction::Forward;
        let client = Side { role: "client", sends: forward, receives: reverse };
        let server = Side { role: "server", sends: reverse, receives: forward };
        let mut all = client.settings(&self.requested, &self.client_settings);
        all.append(&mut server.settings(&self.requested, &self.server_settings));
        all.append(&mut self.seen());
        all
    }

    /// What was seen of the path and the cores, which no option requests: figures place and mark trials by it.
    fn seen(&self) -> Vec<SettingValue> {
        let (sender, receiver) = match self.requested.direction {
            Direction::Reverse => ("server", "client"),
            Direction::Forward | Direction::Both => ("client", "server"),
        };
        let first = self.seen_cores.first();
        let remote = self.client_settings.flows.first();
        let remote = remote.and_then(|flow| flow.remote.parse::<SocketAddr>().ok()).map(|socket| socket.ip());
        let boots = self.client_settings.boot_id.as_ref().zip(self.server_settings.boot_id.as_ref());
        let bursts = Some(self.requested.burst_flows).filter(|flows| *flows > 0);
        let core = |name, role, core| SettingValue::of(name).at(role).effective(core);
        let all = [
            SettingValue::of("burst-flows").requested(bursts),
            SettingValue::of("destination-address").at("client").effective(remote),
            SettingValue::of("same-kernel").effective(boots.map(|(client, server)| client == server)),
            core("sender-core-seen", sender, first.and_then(|seen| seen.1)),
            core("receiver-core-seen", receiver, first.and_then(|seen| seen.2)),
            core("interrupt-core", receiver, self.interrupt_core.as_ref().map(|found| found.core)),
        ];
        all.into_iter().filter(SettingValue::is_known).collect()
    }
}

/// What one host does in a test.
struct Side {
    role: &'static str,
    sends: bool,
    receives: bool,
}

impl Side {
    /// Each setting that an option of [`FlowConfig`] requests and the host has read back.
    fn settings(&self, requested: &FlowConfig, effective: &FlowSettings) -> Vec<SettingValue> {
        let Some(socket) = effective.flows.first() else { return Vec::new() };
        let mut all = self.of_both(requested, effective, socket);
        if self.sends {
            all.extend(of_sender(requested, effective, socket));
        }
        if self.receives {
            all.extend(of_receiver(requested, effective, socket));
        }
        if self.role == "client" {
            all.extend(of_client(requested, effective, socket));
        } else {
            let port = port(&socket.local);
            all.push(
                SettingValue::of("destination-port").requested(requested.destination_port).effective(port),
            );
        }
        all.into_iter().map(|setting| setting.at(self.role)).filter(SettingValue::is_known).collect()
    }

    fn of_both(
        &self,
        requested: &FlowConfig,
        effective: &FlowSettings,
        socket: &SocketSettings,
    ) -> Vec<SettingValue> {
        let (segment, size) = match requested.protocol {
            Protocol::Udp => ("datagram", requested.datagram),
            Protocol::Tcp | Protocol::Mptcp => ("mss", requested.mss),
        };
        vec![
            SettingValue::of("flows").requested(Some(requested.flows)).effective(Some(effective.flows.len())),
            SettingValue::of("memory-node").requested(requested.memory_node).effective(socket.memory_node),
            SettingValue {
                chosen: requested.transfer.is_none(),
                ..bytes("transfer", requested.transfer, socket.transfer_bytes)
            },
            bytes(segment, size, socket.segment_bytes),
        ]
        .into_iter()
        .chain(of_options(requested, socket))
        .collect()
    }
}

/// Socket options that have no field of their own.
fn of_options(requested: &FlowConfig, socket: &SocketSettings) -> Vec<SettingValue> {
    let keys = crate::json::to_value(requested).unwrap_or_default();
    let of = |(name, value): (&String, &Value)| {
        SettingValue::of(name).requested(keys.get(name).filter(|key| !key.is_null())).effective(Some(value))
    };
    socket.options.iter().map(of).collect()
}

fn of_sender(requested: &FlowConfig, effective: &FlowSettings, socket: &SocketSettings) -> [SettingValue; 5] {
    let pacing = SettingValue::of("pacing").unit(Unit::BitsPerSecond);
    [
        buffer("send-buffer", requested, requested.send_buffer, socket.send_buffer_bytes),
        SettingValue::of("congestion-control")
            .requested(requested.congestion_control.as_ref())
            .effective(socket.congestion_control.as_ref()),
        pacing.requested(requested.pacing.map(|rate| rate.0)).effective(socket.pacing_rate_bps),
        cores("sender-cores", requested, requested.sender_cores.as_ref(), effective, |flow| flow.pinned_core),
        SettingValue::of("method").requested(Some(requested.method)).effective(socket.method),
    ]
}

fn of_receiver(
    requested: &FlowConfig,
    effective: &FlowSettings,
    socket: &SocketSettings,
) -> [SettingValue; 4] {
    let low_water = socket.receive_low_water_bytes;
    [
        buffer("receive-buffer", requested, requested.receive_buffer, socket.receive_buffer_bytes),
        SettingValue {
            // socket(7): the kernel's is 1.
            chosen: requested.receive_low_water.is_none() && low_water > 1,
            ..bytes("receive-low-water", requested.receive_low_water, low_water)
        },
        cores("receiver-cores", requested, requested.receiver_cores.as_ref(), effective, |flow| {
            if requested.direction == Direction::Both { flow.pinned_receiver_core } else { flow.pinned_core }
        }),
        SettingValue::of("receive").requested(Some(requested.receive)).effective(socket.receive),
    ]
}

/// What the client binds its sockets to.
fn of_client(requested: &FlowConfig, effective: &FlowSettings, socket: &SocketSettings) -> Vec<SettingValue> {
    let address = socket.local.parse::<SocketAddr>().ok().map(|address| address.ip());
    let ports = || effective.flows.iter().filter_map(|flow| port(&flow.local)).collect::<Vec<_>>();
    let source = match &requested.source_ports {
        Some(ports_requested) => {
            SettingValue::of("source-ports").requested(Some(ports_requested)).effective(Some(ports()))
        }
        None => {
            SettingValue::of("source-port").requested(requested.source_port).effective(port(&socket.local))
        }
    };
    vec![
        source,
        SettingValue::of("bind-address").requested(requested.bind_address).effective(address),
        SettingValue::of("bind-interface")
            .requested(requested.bind_interface.as_ref())
            .effective(socket.interface.as_ref()),
    ]
}

fn bytes(name: &str, requested: Option<ByteCount>, effective: u64) -> SettingValue {
    let setting = SettingValue::of(name).unit(Unit::Bytes);
    setting.requested(requested.map(|bytes| bytes.0)).effective(Some(effective))
}

/// A socket buffer, requested by its own option or by that of both. Those of UDP are set in any case.
fn buffer(name: &str, requested: &FlowConfig, own: Option<ByteCount>, effective: u64) -> SettingValue {
    let by_window = own.is_none() && requested.window.is_some();
    SettingValue {
        requested_by: by_window.then(|| "window".to_owned()),
        chosen: requested.protocol == Protocol::Udp && own.or(requested.window).is_none(),
        doubled: true,
        ..bytes(name, own.or(requested.window), effective)
    }
}

/// The core of each flow's thread.
fn cores(
    name: &str,
    requested: &FlowConfig,
    list: Option<&CoreList>,
    effective: &FlowSettings,
    core: impl Fn(&SocketSettings) -> Option<u32>,
) -> SettingValue {
    let of_flows = |CoreList(cores): &CoreList| {
        cores.iter().copied().cycle().take(requested.flows as usize).collect::<Vec<u32>>()
    };
    let pinned: Vec<Option<u32>> = effective.flows.iter().map(core).collect();
    let pinned = pinned.iter().any(Option::is_some).then_some(pinned);
    SettingValue {
        chosen: list.is_none() && pinned.is_some(),
        ..SettingValue::of(name).requested(list.map(of_flows)).effective(pinned)
    }
}

fn port(address: &str) -> Option<u16> {
    address.parse::<SocketAddr>().ok().map(|address| address.port())
}
