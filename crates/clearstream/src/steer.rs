//! `flow --steer`: ports before a test, and where the flows landed after it.

use std::collections::BTreeMap;

use clearstream_place::document::{SteeredPorts, SteeringReport};
use clearstream_place::landed::{Seen, landed};
use clearstream_schema::{
    flow::{Direction, FlowConfig, FlowSummary, Interval},
    host::{HostReport, Nic},
    notice::Notice,
};

use clearstream_workload::HostSet;

use crate::{exit::CommandError, verbs::place::steer_test};

/// Source ports of a steered test, or why it is not steered.
#[derive(Debug)]
pub struct Steering {
    chosen: Result<Chosen, String>,
    seen: BTreeMap<u32, Seen>,
}

/// Ports that were found, and for whom.
#[derive(Debug)]
pub struct Chosen {
    /// The receiver.
    pub receiver: HostReport,
    /// Its interface.
    pub nic: Nic,
    /// The ports.
    pub ports: SteeredPorts,
    /// Port that the receiver must listen on.
    pub port: u16,
}

impl Steering {
    /// Finds the ports and returns the test as the engine is to run it: with
    /// them, or unsteered where the receiver's NIC does not expose its RSS state.
    pub fn prepare(hosts: &mut HostSet<'_>, config: &FlowConfig) -> Result<(Self, FlowConfig), CommandError> {
        if config.direction != Direction::Forward {
            return Err(CommandError::usage(
                "--steer places flows on the other host's receive queues: use --direction forward, or start from \
                 the other host",
            ));
        }
        let mut engine = FlowConfig { steer: false, steer_interface: None, ..config.clone() };
        let chosen = steer_test(hosts, config)?;
        if let Ok(chosen) = &chosen {
            engine.source_ports = Some(chosen.ports.flows.iter().map(|flow| flow.source_port).collect());
            engine.destination_port = Some(chosen.port);
        }
        Ok((Self { chosen, seen: BTreeMap::new() }, engine))
    }

    /// Keeps the last values of the receiving sockets.
    pub fn watch(&mut self, interval: &Interval) {
        for flow in &interval.server.flows {
            let seen = self.seen.entry(flow.flow).or_default();
            seen.core = flow.incoming_core.or(seen.core);
            seen.napi_id = flow.incoming_napi_id.or(seen.napi_id);
        }
    }

    /// Adds the result to the summary's notices; the full report is for `--json`.
    pub fn conclude(self, config: &FlowConfig, summary: &mut FlowSummary) -> Option<SteeringReport> {
        summary.requested.steer = true;
        summary.requested.steer_interface.clone_from(&config.steer_interface);
        let mut notify = |id: &str, message| summary.notices.push(Notice { id: id.to_owned(), message });
        let chosen = match self.chosen {
            Ok(chosen) => chosen,
            Err(reason) => {
                notify("steer-unavailable", format!("flows were not steered: {reason}"));
                return None;
            }
        };
        let mut report = SteeringReport { ports: chosen.ports, landed: Vec::new() };
        for flow in &report.ports.flows {
            let seen = self.seen.get(&flow.flow).copied().unwrap_or_default();
            let found = landed(flow, seen, &chosen.receiver, &chosen.nic);
            let queue =
                |queue: Option<u32>| queue.map_or_else(|| "unknown".to_owned(), |queue| queue.to_string());
            let (id, verdict) = match found.confirmed {
                Some(true) => ("steered", "as requested"),
                Some(false) => ("steered-elsewhere", "NOT as requested"),
                None => ("steered-unproven", "not proven"),
            };
            notify(
                id,
                format!(
                    "flow {} from port {}: queue {} requested, {} in effect, {verdict} ({})",
                    flow.flow,
                    flow.source_port,
                    queue(found.asked_queue),
                    queue(found.effective_queue),
                    found.evidence
                ),
            );
            report.landed.push(found);
        }
        Some(report)
    }
}
