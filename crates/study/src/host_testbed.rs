//! The testbed of real runs: hosts with agents, and perhaps the lab they are in.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, atomic::AtomicBool},
};

use clearstream_control::PeerError;
use clearstream_host::calls::{Inspect, fetch_capture};
use clearstream_lab::{LabError, RunningLab};
use clearstream_schema::{
    CoreList,
    control::{Failure, FailureKind},
    lab::{DelayLineStats, LabFile},
    notice::Notice,
    outcome::Outcome,
    record::{RunHost, Treatments},
};
use clearstream_workload::{
    AnyWorkload, Context, EnvironmentFactor, Event, Guard, HostSet, Registry, SERVER, TrialError,
};
use serde_json::Value;

use crate::{Environment, Steering, StudyError, Testbed, Treatment, treatment};

/// Hosts with agents.
#[derive(Debug)]
pub struct HostTestbed<'a> {
    hosts: HostSet<'a>,
    registry: Registry,
    /// Addresses as they were given, in the order of the hosts.
    addresses: Vec<Option<IpAddr>>,
    /// Current state of the lab, where it differs from its file.
    mtus: BTreeMap<usize, u32>,
    steering: BTreeMap<(String, String), Option<CoreList>>,
    /// States of the lab that registered factors hold, by factor.
    held: BTreeMap<String, (Value, Box<dyn Guard + 'a>)>,
    treated: Option<Treated>,
}

/// The commands of both treatments.
#[derive(Debug)]
struct Treated {
    commands: Treatments,
    /// A command was run: the state before has to be restored.
    begun: bool,
    /// The treatment that was applied last; absent before the first and after a command that failed.
    last: Option<Treatment>,
}

impl<'a> HostTestbed<'a> {
    /// A testbed on these hosts. In a lab the agents' names are those of its hosts.
    pub fn new(hosts: HostSet<'a>, registry: Registry) -> Self {
        let addresses = hosts.iter().map(|host| host.address).collect();
        Self {
            hosts,
            registry,
            addresses,
            mtus: BTreeMap::new(),
            steering: BTreeMap::new(),
            held: BTreeMap::new(),
            treated: None,
        }
    }

    /// Measures each cell between these two commands.
    #[must_use]
    pub fn with_treatments(mut self, treatments: Option<Treatments>) -> Self {
        self.treated = treatments.map(|commands| Treated { commands, begun: false, last: None });
        self
    }

    /// Hosts are left as `before` makes them, but not touched before anything was measured.
    fn set_treatment(&mut self, wanted: Option<Treatment>) -> Result<(), TrialError> {
        let Some(treated) = &mut self.treated else { return Ok(()) };
        if wanted.is_none() && !treated.begun {
            return Ok(());
        }
        let wanted = wanted.unwrap_or(Treatment::Before);
        if treated.last == Some(wanted) {
            return Ok(());
        }
        treated.begun = true;
        treated.last = None;
        treatment::run(match wanted {
            Treatment::Before => &treated.commands.before,
            Treatment::After => &treated.commands.after,
        })?;
        treated.last = Some(wanted);
        Ok(())
    }

    /// Holds the states that registered factors are to have, and no others.
    fn hold(&mut self, lab: &'a RunningLab, wanted: &BTreeMap<String, Value>) -> Result<(), TrialError> {
        self.held.retain(|name, (level, _)| wanted.get(name) == Some(level));
        for (name, level) in wanted {
            if self.held.contains_key(name) {
                continue;
            }
            let factor: Arc<dyn EnvironmentFactor> = self
                .registry
                .factor(name)
                .ok_or_else(|| TrialError::internal(format!("no factor of labs is called {name}")))?;
            self.held.insert(name.clone(), (level.clone(), factor.set(lab, level)?));
        }
        Ok(())
    }

    fn set_mtus(&mut self, lab: &RunningLab, wanted: Option<u32>) -> Result<(), TrialError> {
        let links = lab.file().links.iter().map(|link| link.mtu);
        let mtus = links.chain(lab.file().switches.iter().map(|switch| switch.mtu));
        for (number, usual) in mtus.enumerate() {
            let wanted = wanted.unwrap_or(usual);
            if *self.mtus.get(&number).unwrap_or(&usual) != wanted {
                lab.set_mtu(number, wanted).map_err(lab_error)?;
                self.mtus.insert(number, wanted);
            }
        }
        Ok(())
    }

    /// Steers on every interface of the hosts that receive.
    fn set_steering(
        &mut self,
        lab: &RunningLab,
        wanted: Option<&Steering>,
        receivers: &[&str],
    ) -> Result<(), TrialError> {
        let names: Vec<String> = self
            .hosts
            .iter()
            .filter(|host| receivers.contains(&host.role.as_str()))
            .map(|host| host.peer.name().to_owned())
            .collect();
        for end in lab.file().ends() {
            let wanted = match wanted.filter(|_| names.contains(&end.host)) {
                None => end.receive_cores.clone(),
                Some(Steering::Off) => None,
                Some(Steering::Cores(cores)) => Some(cores.clone()),
            };
            let place = (end.host.clone(), end.interface.clone());
            if *self.steering.get(&place).unwrap_or(&end.receive_cores) != wanted {
                lab.set_receive_cores(&end.host, &end.interface, wanted.as_ref()).map_err(lab_error)?;
                self.steering.insert(place, wanted);
            }
        }
        Ok(())
    }

    /// Measures over the link that ends in this interface of the server.
    fn choose(&mut self, lab: &RunningLab, interface: Option<&str>) -> Result<Option<Notice>, TrialError> {
        for (host, address) in self.hosts.iter_mut().zip(&self.addresses) {
            host.address = *address;
        }
        let Some(interface) = interface else { return Ok(None) };
        let (client, server) = self.hosts.client_and_server()?;
        let usual = server.address;
        let found = lab.file().links.iter().find_map(|link| {
            let there =
                link.ends.iter().find(|end| end.host == server.peer.name() && end.interface == interface)?;
            let here = link.ends.iter().find(|end| end.host == client.peer.name());
            let server_address = address_like(&there.addresses, usual?)?;
            Some((here.and_then(|end| address_like(&end.addresses, server_address)), server_address))
        });
        if let Some((client_address, server_address)) = found {
            (client.address, server.address) = (client_address, Some(server_address));
            return Ok(None);
        }
        Ok(Some(Notice {
            id: "lab-interface-missing".to_owned(),
            message: format!(
                "the lab {} has no interface {interface} on {}: measured to {} instead",
                lab.file().name,
                server.peer.name(),
                usual.map_or_else(|| "its first address".to_owned(), |address| address.to_string())
            ),
        }))
    }
}

/// After any end of a run, a persistent lab is restored to its file.
impl Drop for HostTestbed<'_> {
    fn drop(&mut self) {
        drop(self.set(&Environment::default(), &[SERVER]));
    }
}

/// The first address of the same family.
fn address_like(addresses: &[String], other: IpAddr) -> Option<IpAddr> {
    let parsed = addresses.iter().filter_map(|text| text.split('/').next()?.parse::<IpAddr>().ok());
    parsed.into_iter().find(|address| address.is_ipv4() == other.is_ipv4())
}

impl Testbed for HostTestbed<'_> {
    fn describe(&mut self) -> Result<Vec<RunHost>, StudyError> {
        let in_lab = self.hosts.lab().is_some();
        let describe = |host: &mut clearstream_workload::Host<'_>| {
            let peer = &mut *host.peer;
            match peer.call(&Inspect {}) {
                Ok(mut report) => {
                    // A lab's hosts are called as its file calls them.
                    if in_lab {
                        report.name = peer.name().to_owned();
                    }
                    let name = report.name.clone();
                    Ok(RunHost { name, role: host.role.clone(), report, capture: None })
                }
                Err(PeerError::Refused { name, failure }) => {
                    Err(StudyError::Describe { host: name, failure })
                }
                Err(error) => Err(StudyError::Lost { reason: error.to_string() }),
            }
        };
        self.hosts.iter_mut().map(describe).collect()
    }

    fn capture(&mut self, host: usize) -> Result<Vec<u8>, TrialError> {
        let host = self.hosts.iter_mut().nth(host);
        let host = host.ok_or_else(|| TrialError::internal("a host too many"))?;
        Ok(fetch_capture(host.peer)?)
    }

    fn lab(&self) -> Option<&LabFile> {
        self.hosts.lab().map(RunningLab::file)
    }

    fn treatments(&self) -> Option<&Treatments> {
        self.treated.as_ref().map(|treated| &treated.commands)
    }

    fn set(&mut self, environment: &Environment, receivers: &[&str]) -> Result<Vec<Notice>, TrialError> {
        self.set_treatment(environment.treatment)?;
        let Some(lab) = self.hosts.lab() else { return Ok(Vec::new()) };
        self.set_mtus(lab, environment.mtu_bytes)?;
        self.set_steering(lab, environment.receive_steering.as_ref(), receivers)?;
        self.hold(lab, &environment.registered)?;
        Ok(self.choose(lab, environment.interface.as_deref())?.into_iter().collect())
    }

    fn measure(
        &mut self,
        workload: &dyn AnyWorkload,
        config: &Value,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrialError> {
        workload.run(&mut Context { hosts: &mut self.hosts, stop, on_event }, config)
    }

    fn reset_delay_lines(&mut self) {
        // A lab that does not reply fails the trial itself.
        drop(self.hosts.reset_delay_lines());
    }

    fn delay_lines(&mut self) -> Vec<DelayLineStats> {
        self.hosts.delay_lines().unwrap_or_default()
    }
}

fn lab_error(error: LabError) -> TrialError {
    let message = error.to_string();
    match error {
        // Its agents are in it.
        LabError::NotRunning { .. } => TrialError::lost(message),
        _ => Failure { kind: FailureKind::Unsupported, message }.into(),
    }
}
