//! Workload `explore`: the time that a model's states take two ranks, one on each host: of an MPI job, or run by
//! the agents.

use std::{sync::atomic::AtomicBool, time::Duration};

use crate::document::{Exploration, ExplorationConfig, ExplorationTransport, Explored};
use clearstream_control::Services;
use clearstream_mpirun::{Ended, Ending, JobConfig, JobError, Line, Ranks, ending_notice};
use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    event::{Event as JobEvent, EventKind},
    outcome::{MetricKind, Outcome},
};
use clearstream_workload::{
    Context, Event, TrialError, Workload,
    two_sided::{Started, TwoSidedAgent},
};

use crate::{
    MODELS, Program,
    ranks::{self, RanksConfig, Sides},
};

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Explore;

/// Maximum time of an exploration by agents: it tells nothing until its end.
const EXPLORED_WITHIN: Duration = Duration::from_secs(86_400);
/// Maximum time between two lines of the ranks, which report every two seconds while they explore.
const LINE_TIMEOUT: Duration = Duration::from_secs(600);

impl Workload for Explore {
    type Config = ExplorationConfig;

    fn name(&self) -> &'static str {
        "explore"
    }

    fn title(&self) -> &'static str {
        "Distributed exploration of a model's states over MPI or TCP"
    }

    fn check(&self, config: &ExplorationConfig) -> Result<(), Failure> {
        check(config)
    }

    fn time(&self, _: &ExplorationConfig) -> TimeSpan {
        // Nobody knows how many states there are.
        TimeSpan::from_seconds(2)
    }

    fn overhead(&self) -> TimeSpan {
        // The launcher, and two processes that find each other.
        TimeSpan::from_millis(1500)
    }

    fn metrics(&self, _: &ExplorationConfig) -> Vec<MetricKind> {
        ExplorationConfig::metrics()
    }

    fn serve(&self, services: Services) -> Services {
        services.with(TwoSidedAgent::<Sides>::default())
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &ExplorationConfig) -> Result<Outcome, TrialError> {
        self.check(config)?;
        let found = match config.transport {
            ExplorationTransport::Tcp => by_agents(context, config)?,
            ExplorationTransport::Mpi | ExplorationTransport::MpiIwarp => by_job(context, config)?,
        };
        match found {
            Some(exploration) => Ok(exploration.outcome()?),
            // It was stopped before it had counted anything.
            None => Ok(Outcome { complete: false, ..Outcome::of(Vec::new()) }),
        }
    }
}

fn by_agents(
    context: &mut Context<'_, '_>,
    config: &ExplorationConfig,
) -> Result<Option<Exploration>, TrialError> {
    let config = RanksConfig { exploration: config.clone(), pause: None };
    let started = Started::<Sides>::start(context.hosts, &config)?;
    let followed = started.follow(context.hosts, EXPLORED_WITHIN, context.stop, &mut |()| ());
    let Explored { best, .. } = ranks::end(started, context.hosts)?;
    Ok(followed.map(|_| best)?)
}

fn by_job(
    context: &mut Context<'_, '_>,
    config: &ExplorationConfig,
) -> Result<Option<Exploration>, TrialError> {
    let mut found = None;
    let Ended { ending, .. } = job(config)
        .run(context.hosts, context.stop, &mut |exploration: Exploration| found = Some(exploration))
        .map_err(reason)?;
    if let Some(notice) = ending_notice(ending) {
        (context.on_event)(Event::Notice(notice));
    }
    if found.is_none() && ending != Ending::Stopped {
        return Err(Failure::new(FailureKind::Connection, "the ranks ended without a result").into());
    }
    Ok(found)
}

pub(crate) fn check(config: &ExplorationConfig) -> Result<(), Failure> {
    let options = [("mpirun", &config.mpirun), ("mpi-library", &config.mpi_library)];
    if config.transport == ExplorationTransport::Tcp
        && let Some((option, _)) = options.iter().find(|(_, value)| value.is_some())
    {
        let message = format!("{option} is an option of MPI: leave it out with the transport tcp");
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    program(config).map(|_| ())
}

/// The job of its ranks.
pub(crate) fn job(config: &ExplorationConfig) -> JobConfig<'_, Exploration> {
    JobConfig {
        mpirun: config.mpirun.as_deref(),
        read: line,
        over_iwarp: config.transport == ExplorationTransport::MpiIwarp,
        arguments: arguments(config),
        point_timeout: LINE_TIMEOUT,
        awaited: "result",
    }
}

/// Explores once, or until it is stopped; what it found until then may be nothing. A rank that failed before that is a
/// failure.
pub(crate) fn explore(
    config: &ExplorationConfig,
    ranks: &Ranks<'_>,
    stop: &AtomicBool,
) -> Result<Option<Exploration>, Failure> {
    let mut found = None;
    let ended = job(config).run_with(ranks, stop, &mut |exploration| found = Some(exploration));
    ended.map_err(reason)?.reported.map_or(Ok(found), Err)
}

fn reason(error: JobError) -> Failure {
    match error {
        JobError::Invalid(failure) | JobError::Failed(failure) => failure,
    }
}

/// The model with its parameters.
pub(crate) fn program(config: &ExplorationConfig) -> Result<Program, Failure> {
    let invalid = |message: String| Failure::new(FailureKind::Invalid, message);
    let (_, text) = MODELS.iter().find(|(name, _)| *name == config.model).ok_or_else(|| {
        let known: Vec<&str> = MODELS.iter().map(|(name, _)| *name).collect();
        invalid(format!("there is no model `{}` (known: {})", config.model, known.join(", ")))
    })?;
    let define = definitions(config)
        .map(|text| {
            let (name, value) = text.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect::<Option<Vec<(String, i64)>>>()
        .ok_or_else(|| {
            invalid(format!("define is \"{}\": write NAME=VALUE, as in \"N=8\"", config.define))
        })?;
    let program =
        Program::read(text, &define).map_err(|error| invalid(format!("{}: {error}", config.model)))?;
    if config.cycles && !program.has_accepting() {
        return Err(invalid(format!("{} has no accepting states: leave cycles out", config.model)));
    }
    Ok(program)
}

fn definitions(config: &ExplorationConfig) -> impl Iterator<Item = &str> {
    config.define.split_whitespace()
}

/// Command line of each rank.
fn arguments(config: &ExplorationConfig) -> Vec<String> {
    let mut arguments = ["explore", "--mpi", "--json-stream", &config.model].map(str::to_owned).to_vec();
    arguments.extend(["--message-size".to_owned(), config.message_size.to_string()]);
    for definition in definitions(config) {
        arguments.extend(["-D".to_owned(), definition.to_owned()]);
    }
    if let Some(library) = &config.mpi_library {
        arguments.extend(["--mpi-library".to_owned(), library.clone()]);
    }
    arguments.extend(config.cycles.then(|| "--cycles".to_owned()));
    arguments
}

/// Reads an event of rank 0.
fn line(text: &str) -> Option<Line<Exploration>> {
    let event: JobEvent<Exploration> = clearstream_schema::json::from_str(text).ok()?;
    Some(match event.kind {
        EventKind::Result(exploration) => Line::Result(Box::new(exploration)),
        _ => Line::Running,
    })
}
