//! The real testbed: a client and a server with agents.

use std::{sync::atomic::AtomicBool, time::Duration};

use clearstream_control::{Peer, PeerError};
use clearstream_diagnose::GatherEvent;
use clearstream_host::calls::Inspect;
use clearstream_plan::calls::{ApplyPending, Keep, Read, Revert};
use clearstream_schema::{
    BitRate,
    diagnosis::{Diagnosis, End},
    flow::{FlowConfig, FlowSummary},
    host::HostReport,
    plan::{PLAN_SCHEMA, Plan, PlanHost, Setting, Step, Value},
};
use clearstream_workload::{CLIENT, HostSet, SERVER};

use crate::{ImproveError, Testbed};

/// Time that starting, connecting and stopping a run takes in addition to measuring.
const OVERHEAD: Duration = Duration::from_millis(600);

/// The client and the server of a set of hosts.
pub struct PeersTestbed<'a> {
    hosts: HostSet<'a>,
    /// Both as plans name them.
    ends: (PlanHost, PlanHost),
    diagnosis_budget: Duration,
    goal: Option<BitRate>,
}

impl<'a> PeersTestbed<'a> {
    /// Inspects both hosts first. `goal` is the desired rate, the maximum that
    /// the path carries when absent.
    ///
    /// # Errors
    /// When an agent is lost, or there is no client or no server.
    pub fn open(
        mut hosts: HostSet<'a>,
        diagnosis_budget: Duration,
        goal: Option<BitRate>,
    ) -> Result<Self, ImproveError> {
        let (client, server) = hosts.client_and_server()?;
        let ends = (plan_host(client.peer)?, plan_host(server.peer)?);
        Ok(Self { hosts, ends, diagnosis_budget, goal })
    }

    fn peer(&mut self, end: End) -> Result<(&mut Peer, &PlanHost), ImproveError> {
        let (client, server) = self.hosts.client_and_server()?;
        Ok(match end {
            End::Client => (client.peer, &self.ends.0),
            End::Server => (server.peer, &self.ends.1),
        })
    }
}

fn plan_host(peer: &mut Peer) -> Result<PlanHost, PeerError> {
    let HostReport { name, kernel, .. } = peer.call(&Inspect {})?;
    Ok(PlanHost { name, kernel: kernel.release.unwrap_or_default() })
}

impl Testbed for PeersTestbed<'_> {
    fn names(&self) -> (String, String) {
        let name = |role: &str| {
            let host = self.hosts.iter().find(|host| host.role == role);
            host.map_or_else(|| role.to_owned(), |host| host.peer.name().to_owned())
        };
        (name(CLIENT), name(SERVER))
    }

    fn run_time(&self, config: &FlowConfig) -> Duration {
        config.warm_up.to_std() + config.duration.to_std() + OVERHEAD
    }

    fn diagnose(
        &mut self,
        config: &FlowConfig,
        budget: Duration,
        stop: &AtomicBool,
        on_step: &mut dyn FnMut(&str, Duration),
    ) -> Result<Diagnosis, ImproveError> {
        let options = clearstream_diagnose::GatherOptions {
            flow: config.clone(),
            budget: self.diagnosis_budget.min(budget),
            goal: self.goal,
        };
        let mut last = String::new();
        let evidence =
            clearstream_diagnose::gather(&mut self.hosts, &options, stop, &mut |event| match event {
                GatherEvent::Step { what, left } => {
                    on_step(&what, left);
                    last = what;
                }
                GatherEvent::Interval { left, .. } => on_step(&last, left),
                // The next call to it fails.
                GatherEvent::Lost(_) => {}
            })?;
        Ok(clearstream_diagnose::explain(&evidence))
    }

    fn flow(&mut self, config: &FlowConfig, stop: &AtomicBool) -> Result<FlowSummary, ImproveError> {
        Ok(clearstream_flow::run_on(&mut self.hosts, config, stop, &mut |_| {})?)
    }

    fn read(&mut self, end: End, setting: &Setting) -> Result<Option<Value>, ImproveError> {
        let read = self.peer(end)?.0.call(&Read { settings: vec![setting.clone()] })?;
        Ok(read.values.into_iter().next().map(|(setting, text)| Value::of(&setting, &text)))
    }

    fn apply(&mut self, end: End, steps: &[Step]) -> Result<Option<String>, ImproveError> {
        let (peer, host) = self.peer(end)?;
        let plan = Plan {
            schema: PLAN_SCHEMA.to_owned(),
            version: 1,
            purpose: "improve a path, one change at a time".to_owned(),
            host: host.clone(),
            steps: steps.to_vec(),
            advice: Vec::new(),
        };
        Ok(peer.call(&ApplyPending { plan })?.journal)
    }

    fn keep(&mut self, end: End, journal: &str) -> Result<(), ImproveError> {
        self.peer(end)?.0.call(&Keep { journal: journal.to_owned() })?;
        Ok(())
    }

    fn revert(&mut self, end: End, journal: &str) -> Result<(), ImproveError> {
        self.peer(end)?.0.call(&Revert { journal: journal.to_owned(), force: false })?;
        Ok(())
    }
}
