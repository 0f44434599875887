//! The real bench: two agents.

use std::{net::IpAddr, sync::atomic::AtomicBool, time::Duration};

use clearstream_control::{Peer, PeerError};
use clearstream_diagnose::GatherEvent;
use clearstream_host::calls::Inspect;
use clearstream_plan::calls::{ApplyPending, Keep, Read, Revert};
use clearstream_schema::{
    BitRate,
    diagnosis::{Diagnosis, End},
    flow::{FlowConfig, FlowSummary},
    host::HostReport,
    plan::{PLAN_SCHEMA, Plan, PlanHost, Setting, Step},
};

use crate::{Bench, ImproveError};

/// Time that starting, connecting and stopping a run takes beside measuring.
const OVERHEAD: Duration = Duration::from_millis(600);

/// Two agents and the address between them.
pub struct PeersBench<'a> {
    client: &'a mut Peer,
    server: &'a mut Peer,
    client_address: Option<IpAddr>,
    server_address: IpAddr,
    hosts: (PlanHost, PlanHost),
    diagnosis_budget: Duration,
    goal: Option<BitRate>,
    line_rate: Option<BitRate>,
}

impl<'a> PeersBench<'a> {
    /// Looks at both hosts first. `goal` is the rate that is wanted, as much as
    /// the path carries when absent.
    ///
    /// # Errors
    /// When an agent is lost.
    pub fn open(
        client: &'a mut Peer,
        server: &'a mut Peer,
        client_address: Option<IpAddr>,
        server_address: IpAddr,
        diagnosis_budget: Duration,
        goal: Option<BitRate>,
    ) -> Result<Self, ImproveError> {
        let hosts = (plan_host(client)?, plan_host(server)?);
        Ok(Self {
            client,
            server,
            client_address,
            server_address,
            hosts,
            diagnosis_budget,
            goal,
            line_rate: None,
        })
    }

    /// Sets the rate of the line between the hosts, where a lab says it.
    #[must_use]
    pub fn with_line_rate(mut self, line_rate: Option<BitRate>) -> Self {
        self.line_rate = line_rate;
        self
    }

    fn peer(&mut self, end: End) -> (&mut Peer, &PlanHost) {
        match end {
            End::Client => (self.client, &self.hosts.0),
            End::Server => (self.server, &self.hosts.1),
        }
    }
}

fn plan_host(peer: &mut Peer) -> Result<PlanHost, PeerError> {
    let HostReport { name, kernel, .. } = peer.call(&Inspect {})?;
    Ok(PlanHost { name, kernel: kernel.release.unwrap_or_default() })
}

impl Bench for PeersBench<'_> {
    fn names(&self) -> (String, String) {
        (self.client.name().to_owned(), self.server.name().to_owned())
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
        let plan = clearstream_diagnose::Plan {
            flow: config.clone(),
            budget: self.diagnosis_budget.min(budget),
            goal: self.goal,
            line_rate: self.line_rate,
            client_address: self.client_address,
        };
        let mut last = String::new();
        let evidence = clearstream_diagnose::gather(
            self.client,
            self.server,
            self.server_address,
            &plan,
            stop,
            &mut |event| match event {
                GatherEvent::Step { what, left } => {
                    on_step(&what, left);
                    last = what;
                }
                GatherEvent::Interval { left, .. } => on_step(&last, left),
                GatherEvent::FlowStarting | GatherEvent::FlowEnded { .. } => {}
            },
        )?;
        Ok(clearstream_diagnose::explain(&evidence))
    }

    fn flow(&mut self, config: &FlowConfig, stop: &AtomicBool) -> Result<FlowSummary, ImproveError> {
        let address = self.server_address;
        Ok(clearstream_flow::run(self.client, self.server, address, config, stop, &mut |_| {})?)
    }

    fn read(&mut self, end: End, setting: &Setting) -> Result<Option<String>, ImproveError> {
        let read = self.peer(end).0.call(&Read { settings: vec![setting.clone()] })?;
        Ok(read.values.into_iter().next().map(|(_, value)| value))
    }

    fn apply(&mut self, end: End, steps: &[Step]) -> Result<Option<String>, ImproveError> {
        let (peer, host) = self.peer(end);
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
        self.peer(end).0.call(&Keep { journal: journal.to_owned() })?;
        Ok(())
    }

    fn revert(&mut self, end: End, journal: &str) -> Result<(), ImproveError> {
        self.peer(end).0.call(&Revert { journal: journal.to_owned(), force: false })?;
        Ok(())
    }
}
