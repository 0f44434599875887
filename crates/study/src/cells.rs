//! The product of an experiment's factors.

use std::collections::BTreeMap;

use clearstream_schema::{
    CoreList, TimeSpan,
    flow::{Direction, FlowConfig},
    gateways::GatewayConfig,
    host::HostReport,
    probe::ProbeConfig,
    record::TREATMENT,
    study::{Experiment, Levels, Workload},
};
use serde_json::Value;

use crate::{
    StudyError, cores,
    factor::{self, EVERY_CORE, Environment, Factor, Steering, Treatment},
    variant::Effective,
};

/// One combination of levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Number within the experiment.
    pub number: u32,
    /// Level of each factor.
    pub factors: BTreeMap<String, Value>,
    /// The flow test, for the flow workload.
    pub flow: FlowConfig,
    /// The probe, for the probe workload.
    pub probe: ProbeConfig,
    /// The experiment, for the gateways workload.
    pub gateways: GatewayConfig,
    /// What has to be set around it.
    pub environment: Environment,
    /// Time that one trial measures, warm-up included, without setting up.
    pub time: TimeSpan,
}

/// Most cells of an experiment: every pair of cores of a 128-core host fits.
const MAX_CELLS: usize = 20_000;

const TREATED: [Option<Treatment>; 2] = [Some(Treatment::Before), Some(Treatment::After)];

/// What is known while cells are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) client: &'a HostReport,
    pub(crate) server: &'a HostReport,
    pub(crate) in_lab: bool,
    /// Each cell is measured with both treatments.
    pub(crate) treated: bool,
}

/// All cells, those of the last factor next to each other.
pub(crate) fn cells(
    experiment: &Experiment,
    effective: &Effective,
    around: Surroundings<'_>,
) -> Result<Vec<Cell>, StudyError> {
    if experiment.workload == Workload::Gateways && !around.in_lab {
        return Err(StudyError::LabWorkload { experiment: experiment.name.clone() });
    }
    let mut product = vec![BTreeMap::new()];
    for name in in_order(&effective.factors) {
        if factor::is_lab_only(name) && !around.in_lab {
            return Err(StudyError::LabOnly { experiment: experiment.name.clone(), factor: name.clone() });
        }
        let mut longer = Vec::new();
        for partial in &product {
            for level in resolve(experiment, effective, around, name, partial)? {
                let mut cell: BTreeMap<String, Value> = partial.clone();
                cell.insert(name.clone(), level);
                longer.push(cell);
            }
        }
        if longer.len() > MAX_CELLS {
            let (cell_count, limit) = (longer.len(), MAX_CELLS);
            return Err(StudyError::TooLarge { experiment: experiment.name.clone(), cell_count, limit });
        }
        product = longer;
    }
    let treatments: &[Option<Treatment>] =
        if around.treated && experiment.workload != Workload::Inspect { &TREATED } else { &[None] };
    let treated =
        product.into_iter().flat_map(|levels| treatments.iter().map(move |one| (levels.clone(), *one)));
    treated
        .zip(0..)
        .map(|((mut levels, treatment), number)| {
            let mut cell = cell(experiment, effective, number, levels.clone())?;
            if let Some(treatment) = treatment {
                levels.insert(TREATMENT.to_owned(), treatment.level().into());
                cell.environment.treatment = Some(treatment);
                cell.factors = levels;
            }
            Ok(cell)
        })
        .collect()
}

/// What decides about other levels comes first: which host receives, and where its packets go.
fn in_order(factors: &BTreeMap<String, Levels>) -> Vec<&String> {
    let mut names: Vec<_> = factors.keys().collect();
    names.sort_by_key(|name| match name.as_str() {
        "direction" => 0,
        factor::RECEIVE_STEERING => 1,
        _ => 2,
    });
    names
}

fn resolve(
    experiment: &Experiment,
    effective: &Effective,
    around: Surroundings<'_>,
    name: &str,
    partial: &BTreeMap<String, Value>,
) -> Result<Vec<Value>, StudyError> {
    let fail =
        |message| StudyError::Level { experiment: experiment.name.clone(), factor: name.to_owned(), message };
    let kind = Factor::of(experiment.workload, name);
    let hosts = hosts_of(kind, direction(effective, partial).map_err(fail)?, around);
    match &effective.factors[name] {
        Levels::Listed(levels) => {
            for level in levels {
                check_cores(kind, level, &hosts).map_err(fail)?;
            }
            Ok(levels.clone())
        }
        Levels::Named(word) => {
            let Some((first, others)) = hosts.split_first() else { return Ok(Vec::new()) };
            let mut found = if word == EVERY_CORE {
                cores::usable(first)
            } else {
                cores::representative(first, &interrupt_cores(kind, effective, first))
            };
            found.retain(|core| others.iter().all(|host| cores::usable(host).contains(core)));
            if found.is_empty() {
                let message =
                    format!("\"{word}\" finds no core on {}: its cores could not be read", first.name);
                return Err(fail(message));
            }
            Ok(found.into_iter().map(Value::from).collect())
        }
    }
}

fn direction(effective: &Effective, partial: &BTreeMap<String, Value>) -> Result<Direction, String> {
    match partial.get("direction").or_else(|| effective.flow.get("direction")) {
        Some(value) => Ok(factor::with_flow(&FlowConfig::default(), "direction", value)?.direction),
        None => Ok(Direction::default()),
    }
}

/// Hosts on which the threads or packets of a core factor run.
fn hosts_of(kind: Factor, direction: Direction, around: Surroundings<'_>) -> Vec<&HostReport> {
    let sends = kind == Factor::SenderCores;
    match (kind.takes_cores(), direction) {
        (false, _) => Vec::new(),
        (true, Direction::Both) => vec![around.client, around.server],
        (true, Direction::Forward) if sends => vec![around.client],
        (true, Direction::Reverse) if !sends => vec![around.client],
        (true, _) => vec![around.server],
    }
}

fn check_cores(kind: Factor, level: &Value, hosts: &[&HostReport]) -> Result<(), String> {
    let wanted = match kind {
        Factor::SenderCores | Factor::ReceiverCores => {
            serde_json::from_value::<CoreList>(level.clone()).map_err(|error| error.to_string())?
        }
        Factor::ReceiveSteering => match factor::steering(level)? {
            Steering::Cores(cores) => cores,
            Steering::Off => return Ok(()),
        },
        Factor::Mtu | Factor::RoutesOver | Factor::Option => return Ok(()),
    };
    hosts.iter().try_for_each(|host| cores::check(host, &wanted))
}

/// Cores that will take the interrupts: where packets are steered to, else
/// where the host's have gone so far.
fn interrupt_cores(kind: Factor, effective: &Effective, host: &HostReport) -> Vec<u32> {
    if kind == Factor::ReceiverCores
        && let Some(Levels::Listed(levels)) = effective.factors.get(factor::RECEIVE_STEERING)
    {
        let steered = levels.iter().filter_map(|level| match factor::steering(level) {
            Ok(Steering::Cores(cores)) => Some(cores.0),
            _ => None,
        });
        return steered.flatten().collect();
    }
    cores::interrupt_core(host).into_iter().collect()
}

fn cell(
    experiment: &Experiment,
    effective: &Effective,
    number: u32,
    levels: BTreeMap<String, Value>,
) -> Result<Cell, StudyError> {
    let mut cell = Cell {
        number,
        factors: BTreeMap::new(),
        flow: FlowConfig::default(),
        probe: ProbeConfig::default(),
        gateways: GatewayConfig::default(),
        environment: Environment { interface: effective.interface.clone(), ..Environment::default() },
        time: TimeSpan::default(),
    };
    let fixed = match experiment.workload {
        Workload::Flow => &effective.flow,
        Workload::Probe => &effective.probe,
        Workload::Gateways => &effective.gateways,
        Workload::Inspect => &BTreeMap::new(),
    };
    for (name, level) in fixed.iter().chain(&levels) {
        cell.set(experiment.workload, name, level).map_err(|message| StudyError::Level {
            experiment: experiment.name.clone(),
            factor: name.clone(),
            message,
        })?;
    }
    cell.time = cell.measuring_time(experiment.workload);
    cell.factors = levels;
    Ok(cell)
}

/// Rate assumed for the time of a flow that ends after a number of bytes.
const ASSUMED_BYTES_PER_SECOND: u64 = 1_250_000_000;

impl Cell {
    fn set(&mut self, workload: Workload, name: &str, level: &Value) -> Result<(), String> {
        match (Factor::of(workload, name), workload) {
            (Factor::Mtu, _) => self.environment.mtu_bytes = Some(factor::mtu(level)?),
            (Factor::ReceiveSteering, _) => {
                self.environment.receive_steering = Some(factor::steering(level)?);
            }
            (Factor::RoutesOver, _) => self.environment.routes_over = Some(factor::routes_over(level)?),
            (_, Workload::Probe) => self.probe = factor::with_option(&self.probe, name, level)?,
            (_, Workload::Gateways) => self.gateways = factor::with_option(&self.gateways, name, level)?,
            (_, Workload::Flow | Workload::Inspect) => {
                self.flow = factor::with_flow(&self.flow, name, level)?;
            }
        }
        Ok(())
    }

    fn measuring_time(&self, workload: Workload) -> TimeSpan {
        let nanoseconds = match workload {
            Workload::Inspect => 0,
            Workload::Flow => {
                let measured = match self.flow.bytes {
                    Some(bytes) => bytes
                        .0
                        .saturating_mul(u64::from(self.flow.flows))
                        .div_ceil(ASSUMED_BYTES_PER_SECOND)
                        .saturating_mul(1_000_000_000),
                    None => self.flow.duration.0,
                };
                self.flow.warm_up.0.saturating_add(measured)
            }
            // UDP and TCP one after the other, from both sides.
            Workload::Probe => {
                self.probe.interval.0.saturating_mul(u64::from(self.probe.count)).saturating_mul(4)
            }
            Workload::Gateways => self.gateways.time().0,
        };
        TimeSpan(nanoseconds)
    }
}
