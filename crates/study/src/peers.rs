//! The bench of real runs: two agents, and perhaps the lab they are in.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::atomic::AtomicBool};

use clearstream_control::{Peer, PeerError};
use clearstream_flow::{FlowError, FlowEvent};
use clearstream_host::calls::{Inspect, fetch_capture};
use clearstream_lab::{LabError, RunningLab};
use clearstream_record::Side;
use clearstream_schema::{
    CoreList,
    control::{Failure, FailureKind},
    flow::{Direction, FlowConfig, FlowSummary, Notice},
    gateways::{GatewayConfig, GatewaySummary},
    host::HostReport,
    lab::{DelayLineStats, LabFile},
    probe::{ProbeConfig, ProbeSummary},
    record::Treatments,
};

use crate::{
    Bench, BenchEvent, Environment, RoutesOver, Steering, StudyError, Treatment, TrialError,
    gateways::{self, LabRoutes},
    treatment,
};

/// Two agents and the addresses between them.
#[derive(Debug)]
pub struct PeerBench<'a> {
    client: &'a mut Peer,
    server: &'a mut Peer,
    server_address: IpAddr,
    client_address: Option<IpAddr>,
    lab: Option<&'a RunningLab>,
    /// The lab as it is now, where that is not as its file says.
    mtus: BTreeMap<usize, u32>,
    steering: BTreeMap<(String, String), Option<CoreList>>,
    /// Addresses of the lab interface that is measured over, where one was chosen.
    chosen: Option<(Option<IpAddr>, IpAddr)>,
    /// Routes over the lab's gateways, where some were put.
    routes: Option<(RoutesOver, LabRoutes<'a>)>,
    /// This program, for watches on the lab's hosts.
    program: PathBuf,
    treated: Option<Treated>,
}

/// The commands of both treatments.
#[derive(Debug)]
struct Treated {
    commands: Treatments,
    /// A command was run: the state before has to be restored.
    begun: bool,
    /// The treatment that is in force; absent before the first and after a command that failed.
    last: Option<Treatment>,
}

impl<'a> PeerBench<'a> {
    /// A bench on two agents. In a lab the agents' names are those of its
    /// hosts. Where the server's way to the client is not known
    /// (`client_address`), delay is measured from the client only.
    pub fn new(
        client: &'a mut Peer,
        server: &'a mut Peer,
        server_address: IpAddr,
        client_address: Option<IpAddr>,
        lab: Option<&'a RunningLab>,
    ) -> Self {
        Self {
            client,
            server,
            server_address,
            client_address,
            lab,
            mtus: BTreeMap::new(),
            steering: BTreeMap::new(),
            chosen: None,
            routes: None,
            program: PathBuf::from("clearstream"),
            treated: None,
        }
    }

    /// Names the program that is started as `route watch` on hosts of a lab.
    #[must_use]
    pub fn with_program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
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

    fn set_routes(&mut self, lab: &'a RunningLab, wanted: Option<RoutesOver>) -> Result<(), TrialError> {
        if self.routes.as_ref().map(|(over, _)| *over) == wanted {
            return Ok(());
        }
        self.routes = None;
        if let Some(over) = wanted {
            self.routes = Some((over, gateways::route(lab, over)?));
        }
        Ok(())
    }

    fn peer(&mut self, side: Side) -> &mut Peer {
        match side {
            Side::Client => self.client,
            Side::Server => self.server,
        }
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
        direction: Direction,
    ) -> Result<(), TrialError> {
        let receivers = match direction {
            Direction::Forward => vec![self.server.name()],
            Direction::Reverse => vec![self.client.name()],
            Direction::Both => vec![self.client.name(), self.server.name()],
        };
        let receivers: Vec<String> = receivers.into_iter().map(str::to_owned).collect();
        for end in lab.file().ends() {
            let wanted = match wanted.filter(|_| receivers.contains(&end.host)) {
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
    fn choose(&mut self, lab: &RunningLab, interface: Option<&str>) -> Option<Notice> {
        let interface = interface?;
        let (client, server) = (self.client.name(), self.server.name());
        let found = lab.file().links.iter().find_map(|link| {
            let there = link.ends.iter().find(|end| end.host == server && end.interface == interface)?;
            let here = link.ends.iter().find(|end| end.host == client);
            let server_address = address_like(&there.addresses, self.server_address)?;
            Some((here.and_then(|end| address_like(&end.addresses, server_address)), server_address))
        });
        self.chosen = found;
        found.is_none().then(|| Notice {
            id: "lab-interface-missing".to_owned(),
            message: format!(
                "the lab {} has no interface {interface} on {server}: measured to {} instead",
                lab.file().name,
                self.server_address
            ),
        })
    }

    fn addresses(&self) -> (Option<IpAddr>, IpAddr) {
        self.chosen.unwrap_or((self.client_address, self.server_address))
    }
}

/// However a run ends, a lab that goes on is left as its file says.
impl Drop for PeerBench<'_> {
    fn drop(&mut self) {
        drop(self.set(&Environment::default(), Direction::Forward));
    }
}

/// The first address of the same family.
fn address_like(addresses: &[String], other: IpAddr) -> Option<IpAddr> {
    let parsed = addresses.iter().filter_map(|text| text.split('/').next()?.parse::<IpAddr>().ok());
    parsed.into_iter().find(|address| address.is_ipv4() == other.is_ipv4())
}

impl Bench for PeerBench<'_> {
    fn describe(&mut self, side: Side) -> Result<HostReport, StudyError> {
        let in_lab = self.lab.is_some();
        let peer = self.peer(side);
        match peer.call(&Inspect {}) {
            Ok(mut host) => {
                // A lab's hosts are called as its file calls them.
                if in_lab {
                    host.name = peer.name().to_owned();
                }
                Ok(host)
            }
            Err(PeerError::Refused { name, failure }) => Err(StudyError::Describe { host: name, failure }),
            Err(error) => Err(StudyError::Lost { reason: error.to_string() }),
        }
    }

    fn capture(&mut self, side: Side) -> Result<Vec<u8>, TrialError> {
        fetch_capture(self.peer(side)).map_err(peer_error)
    }

    fn lab(&self) -> Option<&LabFile> {
        self.lab.map(RunningLab::file)
    }

    fn treatments(&self) -> Option<&Treatments> {
        self.treated.as_ref().map(|treated| &treated.commands)
    }

    fn set(&mut self, environment: &Environment, direction: Direction) -> Result<Vec<Notice>, TrialError> {
        self.chosen = None;
        self.set_treatment(environment.treatment)?;
        let Some(lab) = self.lab else { return Ok(Vec::new()) };
        self.set_mtus(lab, environment.mtu_bytes)?;
        self.set_steering(lab, environment.receive_steering.as_ref(), direction)?;
        self.set_routes(lab, environment.routes_over)?;
        Ok(self.choose(lab, environment.interface.as_deref()).into_iter().collect())
    }

    fn flow(
        &mut self,
        config: &FlowConfig,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(BenchEvent),
    ) -> Result<FlowSummary, TrialError> {
        let (_, address) = self.addresses();
        let result =
            clearstream_flow::run(
                self.client,
                self.server,
                address,
                config,
                stop,
                &mut |event| match event {
                    FlowEvent::Interval(interval) => on_event(BenchEvent::Interval(Box::new(interval))),
                    FlowEvent::Notice(notice) => on_event(BenchEvent::Notice(notice)),
                    FlowEvent::Ready { .. } => {}
                },
            );
        result.map_err(flow_error)
    }

    fn probe(&mut self, config: &ProbeConfig, stop: &AtomicBool) -> Result<ProbeSummary, TrialError> {
        let (client_address, server_address) = self.addresses();
        clearstream_probe::run(self.client, self.server, client_address, server_address, config, stop)
            .map_err(peer_error)
    }

    fn gateways(&mut self, config: &GatewayConfig, stop: &AtomicBool) -> Result<GatewaySummary, TrialError> {
        let lab = self.lab.ok_or_else(|| Failure {
            kind: FailureKind::Unsupported,
            message: "gateways fail on purpose in a lab only".to_owned(),
        })?;
        gateways::run(lab, &self.program, config, stop)
    }

    fn reset_delay_lines(&mut self) {
        if let Some(lab) = self.lab {
            // A lab that does not answer fails the trial itself.
            drop(lab.reset_delay_line_stats());
        }
    }

    fn delay_lines(&mut self) -> Vec<DelayLineStats> {
        self.lab.and_then(|lab| lab.delay_line_stats().ok()).unwrap_or_default()
    }
}

fn peer_error(error: PeerError) -> TrialError {
    match error {
        PeerError::Refused { failure, name } => {
            Failure { kind: failure.kind, message: format!("{name}: {}", failure.message) }.into()
        }
        // Both are there: the next trial may need none of that.
        error @ PeerError::Skew { .. } => {
            Failure { kind: FailureKind::Internal, message: error.to_string() }.into()
        }
        error => TrialError::lost(error.to_string()),
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

/// What was measured before a test broke off is in its samples already.
fn flow_error(error: FlowError) -> TrialError {
    match error {
        FlowError::Invalid(failure) => failure.into(),
        FlowError::Peer(error) => peer_error(error),
        FlowError::PeerLost { source, .. } => TrialError::lost(source.to_string()),
        FlowError::Failed { name, failure, .. } => {
            Failure { kind: failure.kind, message: format!("{name}: {}", failure.message) }.into()
        }
    }
}
