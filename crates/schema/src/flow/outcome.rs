//! A finished flow test as the outcome of a trial.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Direction, FLOW_SUMMARY_SCHEMA, FlowConfig, FlowSettings, FlowSummary, Protocol};
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
        let sends = |direction: Direction| direction != Direction::Reverse;
        let receives = |direction: Direction| direction != Direction::Forward;
        let client = Side { role: "client", sends: sends(direction), receives: receives(direction) };
        let server = Side { role: "server", sends: receives(direction), receives: sends(direction) };
        let mut all = client.settings(&self.requested, &self.client_settings);
        all.append(&mut server.settings(&self.requested, &self.server_settings));
        all
    }
}

/// What one host does in a test.
struct Side {
    role: &'static str,
    sends: bool,
    receives: bool,
}

impl Side {
    fn settings(&self, requested: &FlowConfig, effective: &FlowSettings) -> Vec<SettingValue> {
        let Some(socket) = effective.flows.first() else { return Vec::new() };
        let both = |name: &str, requested: Option<Value>, effective: Option<Value>| {
            SettingValue::of_host(self.role, name, requested, effective)
        };
        let send = |name, requested, effective| both(name, requested, effective).filter(|_| self.sends);
        let receive = |name, requested, effective| both(name, requested, effective).filter(|_| self.receives);
        let bytes = |count: Option<ByteCount>| count.map(|count| json!(count.0));
        let segment = match requested.protocol {
            Protocol::Udp => requested.datagram,
            Protocol::Tcp | Protocol::Mptcp => requested.mss,
        };
        let all = [
            both("flows", Some(json!(requested.flows)), Some(json!(effective.flows.len()))),
            send(
                "send-buffer-bytes",
                bytes(requested.send_buffer.or(requested.window)),
                Some(json!(socket.send_buffer_bytes)),
            ),
            receive(
                "receive-buffer-bytes",
                bytes(requested.receive_buffer.or(requested.window)),
                Some(json!(socket.receive_buffer_bytes)),
            ),
            receive(
                "receive-low-water-bytes",
                bytes(requested.receive_low_water),
                Some(json!(socket.receive_low_water_bytes)),
            ),
            send(
                "congestion-control",
                requested.congestion_control.as_ref().map(value),
                socket.congestion_control.as_ref().map(value),
            ),
            send(
                "pacing-bps",
                requested.pacing.map(|rate| json!(rate.0)),
                socket.pacing_rate_bps.map(Value::from),
            ),
            both("cores", self.cores(requested), pinned(effective)),
            both("memory-node", requested.memory_node.map(Value::from), socket.memory_node.map(Value::from)),
            both("transfer-bytes", bytes(requested.transfer), Some(json!(socket.transfer_bytes))),
            both("segment-bytes", bytes(segment), Some(json!(socket.segment_bytes))),
            send("method", Some(value(requested.method)), socket.method.map(value)),
            receive("receive", Some(value(requested.receive)), socket.receive.map(value)),
        ];
        all.into_iter().flatten().collect()
    }

    /// The core of each flow's thread.
    fn cores(&self, requested: &FlowConfig) -> Option<Value> {
        let (sender, receiver) = (requested.sender_cores.as_ref(), requested.receiver_cores.as_ref());
        let sender = sender.filter(|_| self.sends);
        let CoreList(cores) = sender.or(receiver.filter(|_| self.receives))?;
        let of_flow = cores.iter().cycle().take(requested.flows as usize);
        Some(json!(of_flow.collect::<Vec<_>>()))
    }
}

/// The core of each flow's thread, where one is pinned.
fn pinned(effective: &FlowSettings) -> Option<Value> {
    let cores: Vec<Option<u32>> = effective.flows.iter().map(|flow| flow.pinned_core).collect();
    cores.iter().any(Option::is_some).then(|| json!(cores))
}

/// A plain value is always JSON.
fn value(value: impl Serialize) -> Value {
    crate::json::to_value(value).unwrap_or_default()
}
