//! The product of an experiment's factors.

use std::collections::BTreeMap;

use clearstream_schema::{
    CoreList, TimeSpan,
    host::HostReport,
    outcome::Factors,
    record::{RunHost, TREATMENT},
    study::{Experiment, Levels},
};
use serde_json::Value;

use crate::{
    StudyError, cores,
    factor::{self, EVERY_CORE, Environment, Factor, Known, Steering, Treatment},
    variant::Effective,
};

/// One combination of levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Number within the experiment.
    pub number: u32,
    /// Level of each factor.
    pub factors: Factors,
    /// Configuration of the workload, every option.
    pub config: Value,
    /// Environment to set for it.
    pub environment: Environment,
    /// Roles of the hosts that receive.
    pub receivers: Vec<&'static str>,
    /// Time that one trial measures, warm-up included, without setting up.
    pub time: TimeSpan,
}

/// Most cells of a study: every pair of cores of a 128-core host fits, twice.
pub(crate) const MAX_CELLS: usize = 32_768;

const TREATED: [Option<Treatment>; 2] = [Some(Treatment::Before), Some(Treatment::After)];

/// Context in which cells are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) hosts: &'a [RunHost],
    pub(crate) in_lab: bool,
    /// Each cell is measured with both treatments.
    pub(crate) treated: bool,
    /// Cells that the experiments before have left.
    pub(crate) cells_left: usize,
}

/// An experiment whose cells are made.
struct Maker<'a> {
    experiment: &'a Experiment,
    effective: &'a Effective,
    known: Known<'a>,
    around: Surroundings<'a>,
}

/// All cells, those of the last factor next to each other.
pub(crate) fn cells(
    experiment: &Experiment,
    effective: &Effective,
    known: Known<'_>,
    around: Surroundings<'_>,
) -> Result<Vec<Cell>, StudyError> {
    let maker = Maker { experiment, effective, known, around };
    maker.check_hosts()?;
    let treatments: &[Option<Treatment>] =
        if around.treated && known.workload.varies() { &TREATED } else { &[None] };
    let product = maker.product(treatments.len())?;
    let treated =
        product.into_iter().flat_map(|levels| treatments.iter().map(move |one| (levels.clone(), *one)));
    treated
        .zip(0..)
        .map(|((mut levels, treatment), number)| {
            let mut cell = maker.cell(number, levels.clone())?;
            if let Some(treatment) = treatment {
                levels.insert(TREATMENT.to_owned(), treatment.level().into());
                cell.environment.treatment = Some(treatment);
                cell.factors = levels;
            }
            Ok(cell)
        })
        .collect()
}

impl Maker<'_> {
    /// The workload can be run where the study is.
    fn check_hosts(&self) -> Result<(), StudyError> {
        let experiment = self.experiment.name.clone();
        if let Some(reason) = self.known.workload.needs_lab().filter(|_| !self.around.in_lab) {
            return Err(StudyError::LabWorkload { experiment, reason: reason.to_owned() });
        }
        let is_missing = |role: &&&str| !self.around.hosts.iter().any(|host| host.role == **role);
        match self.known.workload.roles().iter().find(is_missing) {
            None => Ok(()),
            Some(role) => Err(StudyError::Role { experiment, role: (*role).to_owned() }),
        }
    }

    /// All combinations of levels, each measured `treatments` times. None is made before their number is known: that of
    /// listed levels from the file, that of cores as they are found.
    fn product(&self, treatments: usize) -> Result<Vec<Factors>, StudyError> {
        let listed = self.effective.factors.values().map(|levels| match levels {
            Levels::Listed(levels) => levels.len(),
            Levels::Named(_) => 1,
        });
        self.check_count(listed.fold(treatments, usize::saturating_mul))?;
        let mut product = vec![BTreeMap::new()];
        for name in in_order(&self.effective.factors) {
            if self.known.is_lab_only(name) && !self.around.in_lab {
                let (experiment, factor) = (self.experiment.name.clone(), name.clone());
                return Err(StudyError::LabOnly { experiment, factor });
            }
            let mut longer = Vec::new();
            for partial in &product {
                let levels = self.resolve(name, partial)?;
                self.check_count((longer.len() + levels.len()).saturating_mul(treatments))?;
                for level in levels {
                    let mut cell: Factors = partial.clone();
                    cell.insert(name.clone(), level);
                    longer.push(cell);
                }
            }
            product = longer;
        }
        Ok(product)
    }

    fn check_count(&self, cell_count: usize) -> Result<(), StudyError> {
        let limit = self.around.cells_left;
        if cell_count <= limit {
            return Ok(());
        }
        Err(StudyError::TooLarge { experiment: self.experiment.name.clone(), cell_count, limit })
    }

    fn fail(&self, factor: &str, message: String) -> StudyError {
        StudyError::Level { experiment: self.experiment.name.clone(), factor: factor.to_owned(), message }
    }

    fn resolve(&self, name: &str, partial: &Factors) -> Result<Vec<Value>, StudyError> {
        let kind = self.known.factor(name);
        let hosts = self.hosts_of(kind, name, partial)?;
        match &self.effective.factors[name] {
            Levels::Listed(levels) => {
                for level in levels {
                    check_cores(kind, level, &hosts).map_err(|message| self.fail(name, message))?;
                }
                Ok(levels.clone())
            }
            Levels::Named(set) => {
                let Some((first, others)) = hosts.split_first() else { return Ok(Vec::new()) };
                let mut found = if set == EVERY_CORE {
                    cores::usable(first)
                } else {
                    cores::representative(first, &self.interrupt_cores(kind, first))
                };
                found.retain(|core| others.iter().all(|host| cores::usable(host).contains(core)));
                if found.is_empty() {
                    let message =
                        format!("\"{set}\" finds no core on {}: its cores could not be read", first.name);
                    return Err(self.fail(name, message));
                }
                Ok(found.into_iter().map(Value::from).collect())
            }
        }
    }

    /// Hosts on which the threads or packets of a core factor run.
    fn hosts_of(&self, kind: Factor, name: &str, partial: &Factors) -> Result<Vec<&HostReport>, StudyError> {
        if !kind.takes_cores() {
            return Ok(Vec::new());
        }
        let config = self.config(partial)?;
        let roles = match kind {
            Factor::Cores { .. } => {
                self.known.workload.placement(&config, name).map_or_else(Vec::new, |found| found.roles)
            }
            _ => self.known.workload.receivers(&config),
        };
        let hosts = self.around.hosts.iter().filter(|host| roles.contains(&host.role.as_str()));
        Ok(hosts.map(|host| &host.report).collect())
    }

    /// The configuration of these levels.
    fn config(&self, levels: &Factors) -> Result<Value, StudyError> {
        let is_option = |name: &str| matches!(self.known.factor(name), Factor::Option | Factor::Cores { .. });
        let mut config = self.known.workload.defaults();
        let chosen = levels.iter().filter(|(name, _)| is_option(name));
        for (name, value) in self.effective.options.iter().chain(chosen) {
            config = self.known.with(&config, name, value).map_err(|message| self.fail(name, message))?;
        }
        Ok(config)
    }

    /// Cores that will take the interrupts: where packets are steered to, else
    /// where the host's have gone so far.
    fn interrupt_cores(&self, kind: Factor, host: &HostReport) -> Vec<u32> {
        if kind == (Factor::Cores { receives: true })
            && let Some(Levels::Listed(levels)) = self.effective.factors.get(factor::RECEIVE_STEERING)
        {
            let steered = levels.iter().filter_map(|level| match factor::steering(level) {
                Ok(Steering::Cores(cores)) => Some(cores.0),
                _ => None,
            });
            return steered.flatten().collect();
        }
        cores::interrupt_core(host).into_iter().collect()
    }

    fn cell(&self, number: u32, levels: Factors) -> Result<Cell, StudyError> {
        let config = self.config(&levels)?;
        let environment = self.environment(&levels)?;
        let workload = self.known.workload;
        workload
            .check(&config)
            .map_err(|failure| StudyError::Options { experiment: self.experiment.name.clone(), failure })?;
        let (time, receivers) = (workload.time(&config), workload.receivers(&config));
        Ok(Cell { number, factors: levels, config, environment, receivers, time })
    }

    fn environment(&self, levels: &Factors) -> Result<Environment, StudyError> {
        let mut environment =
            Environment { interface: self.effective.interface.clone(), ..Environment::default() };
        for (name, level) in levels {
            let fail = |message| self.fail(name, message);
            match self.known.factor(name) {
                Factor::Mtu => environment.mtu_bytes = Some(factor::mtu(level).map_err(fail)?),
                Factor::ReceiveSteering => {
                    environment.receive_steering = Some(factor::steering(level).map_err(fail)?);
                }
                Factor::Registered => {
                    environment.registered.insert(name.clone(), level.clone());
                }
                Factor::Cores { .. } | Factor::Option => {}
            }
        }
        Ok(environment)
    }
}

/// Levels that decide about others come first: which host receives, and where its packets go.
fn in_order(factors: &BTreeMap<String, Levels>) -> Vec<&String> {
    let mut names: Vec<_> = factors.keys().collect();
    names.sort_by_key(|name| match name.as_str() {
        "direction" => 0,
        factor::RECEIVE_STEERING => 1,
        _ => 2,
    });
    names
}

fn check_cores(kind: Factor, level: &Value, hosts: &[&HostReport]) -> Result<(), String> {
    let wanted = match kind {
        Factor::Cores { .. } => clearstream_schema::json::from_value::<CoreList>(level.clone())
            .map_err(|error| error.to_string())?,
        Factor::ReceiveSteering => match factor::steering(level)? {
            Steering::Cores(cores) => cores,
            Steering::Off => return Ok(()),
        },
        Factor::Mtu | Factor::Registered | Factor::Option => return Ok(()),
    };
    hosts.iter().try_for_each(|host| cores::check(host, &wanted))
}
