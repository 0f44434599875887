//! `clearstream study`

mod compare;

use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use clap::Subcommand;
use clearstream_record::Reader;
use clearstream_schema::{
    TimeSpan,
    outcome::Metric,
    record::{Treatments, TrialDocument, TrialOutcome},
};
use clearstream_study::{
    EndReason, HostTestbed, Mode, Plan, PlanOptions, PlannedTrial, ResumeOptions, RunEnd, RunRequest, Runner,
    StudyEvent, run_id,
};

use crate::{
    endpoints::{Endpoints, PathArgs},
    exit::CommandError,
    files, interrupt,
    output::{
        self, Paint,
        progress::Progress,
        quantity::{long_time, time},
        table::table,
    },
    workloads::registry,
};

/// Seed of the order of trials, unless given.
const SEED: u64 = 1;
/// Folder for runs, unless given.
const RUNS: &str = "runs";

/// Run, list and compare studies.
#[derive(Debug, Subcommand)]
pub enum StudyVerb {
    /// Run a study, write its record and its report
    Run(Box<RunArgs>),
    /// Show the built-in studies
    List,
    /// Compare two levels of one run, or the runs of two sides
    Compare {
        /// Run folder, or a folder of runs of the first side
        first: PathBuf,
        /// The other side's run or folder of runs; or a level of the run, as in flows=1
        second: String,
        /// The level that is compared with that, as in flows=2
        level: Option<String>,
        /// Compare this metric, such as rtt or server-cpu, instead of each workload's headline
        #[arg(long, value_name = "METRIC")]
        metric: Option<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

/// Run a study.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Name of a built-in study, or a study file
    study: String,
    /// The other host: as ssh knows it, `localhost`, or ADDRESS[:PORT] with --pairing
    #[arg(long, value_name = "HOST")]
    to: Option<String>,
    #[command(flatten)]
    path: PathArgs,
    /// Seconds per trial and representative cores
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The published durations and every core
    #[arg(long)]
    full: bool,
    /// Only these experiments; may be given more than once
    #[arg(long = "experiment", value_name = "NAME")]
    experiments: Vec<String>,
    /// Print the trials and the time needed, run nothing
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    /// Seed of the order of trials [default: 1]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Folder for runs [default: runs]
    #[arg(long, value_name = "FOLDER")]
    runs: Option<PathBuf>,
    /// Go on with an interrupted run, with the trials that it was started with
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    /// Time for the whole run; repetitions that do not fit are left out
    #[arg(long, value_name = "TIME")]
    budget: Option<TimeSpan>,
    /// Measure each cell in pairs, after this command and after that of --after, in a random
    /// order; the shell of this machine runs it before every trial that needs it, and at the end
    #[arg(long, value_name = "COMMAND", requires = "after")]
    before: Option<String>,
    /// The other command of the pairs
    #[arg(long, value_name = "COMMAND", requires = "before")]
    after: Option<String>,
    /// Print one JSON document: the plan with --dry-run, else how the run ended
    #[arg(long)]
    json: bool,
    /// Where to write the report [default: report.html in the run folder]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl StudyVerb {
    /// Runs the subcommand.
    pub fn run(self) -> Result<(), CommandError> {
        match self {
            Self::Run(args) => args.run(),
            Self::List => {
                let mut rows = Vec::new();
                for name in clearstream_study::file::built_in() {
                    rows.push(vec![name.to_owned(), clearstream_study::file::load(name, &registry())?.title]);
                }
                Ok(output::line(&table(&["study", "what it is"], rows))?)
            }
            Self::Compare { first, second, level, metric, json } => {
                compare::run(&first, &second, level.as_deref(), metric.as_deref(), json)
            }
        }
    }
}

impl RunArgs {
    fn run(self) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        let registry = registry();
        let study = clearstream_study::file::load(&self.study, &registry)?;
        if let Some(folder) = &self.resume {
            self.check_resume(folder)?;
        }
        let mut ends = Endpoints::open(self.to.as_deref(), &self.path)?;
        let options = PlanOptions {
            mode: self.mode().unwrap_or_default(),
            seed: self.seed.unwrap_or(SEED),
            in_lab: ends.in_lab(),
            only: self.experiments.clone(),
            budget: self.budget,
            treated: false,
        };
        let request = RunRequest {
            study,
            options,
            registry: registry.clone(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut testbed =
            HostTestbed::new(ends.hosts()?, registry.clone()).with_treatments(self.treatments());
        if self.dry_run {
            return dry_run(&request, &mut testbed, self.json);
        }
        let runner = match &self.resume {
            Some(folder) => Runner::resume(folder, Some(&request.study), &registry, testbed)?,
            None => {
                let runs = self.runs.as_deref().unwrap_or(Path::new(RUNS));
                Runner::start(&runs.join(run_id(&request.study)), request, testbed)?
            }
        };
        let mut view = View::new(runner.plan());
        let end = runner.run(&stop, &mut |event| view.show(event))?;
        drop(view);
        self.finish(&end, stop.load(Ordering::Relaxed))
    }

    /// The mode, where one was given.
    fn mode(&self) -> Option<Mode> {
        match (self.quick, self.full) {
            (true, _) => Some(Mode::Quick),
            (_, true) => Some(Mode::Full),
            _ => None,
        }
    }

    /// Refuses options that the record of the run contradicts. Where to report, and how,
    /// may be chosen again: it changes no trial.
    fn check_resume(&self, folder: &Path) -> Result<(), CommandError> {
        let options = ResumeOptions {
            mode: self.mode(),
            seed: self.seed,
            only: self.experiments.clone(),
            budget: self.budget,
        };
        options.check(folder)?;
        let parent = folder.canonicalize().ok().and_then(|folder| Some(folder.parent()?.to_owned()));
        match &self.runs {
            Some(runs) if runs.canonicalize().ok() != parent => Err(CommandError::Usage(format!(
                "{} is not in {}: leave --runs out, a resumed run stays in its folder",
                folder.display(),
                runs.display()
            ))),
            _ => Ok(()),
        }
    }

    fn treatments(&self) -> Option<Treatments> {
        let (before, after) = self.before.clone().zip(self.after.clone())?;
        Some(Treatments { before, after })
    }

    /// Writes the report, prints the figures and says how it ended.
    fn finish(&self, end: &RunEnd, stopped: bool) -> Result<(), CommandError> {
        let reader = Reader::open(&end.folder)?;
        let path = self.report.clone().unwrap_or_else(|| end.folder.join("report.html"));
        files::write(&path, &clearstream_report::html(&reader)?)?;
        let resume = format!("resume with --resume {}", end.folder.display());
        if self.json {
            let document = serde_json::json!({
                "schema": "clearstream.study-end", "version": 1,
                "folder": end.folder, "report": path,
                "planned_trial_count": end.planned_count, "done_trial_count": end.done_count,
                "failed_trial_count": end.failed_count, "skipped_trial_count": end.skipped_count,
                "notices": reader.run().notices,
            });
            output::json(&document, true)?;
        } else {
            for figure in clearstream_report::headlines(&reader)? {
                output::line(&Paint::for_stdout().figure(&figure))?;
            }
            if reader.run().treatments.is_some() {
                compare::treatments(&reader)?;
            }
            for notice in reader.run().notices.iter().filter(|notice| notice.id == "proves-nothing") {
                output::line(&format!("note: {}", notice.message))?;
            }
            output::line(&format!(
                "{} of {} trials done, {} failed, {} left out; record: {}",
                end.done_count,
                end.planned_count,
                end.failed_count,
                end.skipped_count,
                end.folder.display()
            ))?;
            output::line(&format!("report: {}", path.display()))?;
        }
        match &end.reason {
            _ if stopped => Err(CommandError::Interrupted(format!("trials done so far are kept; {resume}"))),
            EndReason::Lost(reason) => Err(CommandError::StudyLost(format!("{reason}; {resume}"))),
            _ if end.failed_count > 0 => Err(CommandError::Partial(format!(
                "{} trials failed; the report says which",
                end.failed_count
            ))),
            _ => Ok(()),
        }
    }
}

fn dry_run(request: &RunRequest, testbed: &mut HostTestbed<'_>, json: bool) -> Result<(), CommandError> {
    let plan = clearstream_study::plan_on(request, testbed)?.table();
    if json {
        return Ok(output::json(&plan, true)?);
    }
    let rows = plan.experiments.iter().map(|row| {
        vec![
            row.name.clone(),
            row.cell_count.to_string(),
            row.repetitions.to_string(),
            row.trial_count.to_string(),
            time(row.trial_time.0),
            long_time(row.time.0 / 1_000_000_000),
            row.title.clone(),
        ]
    });
    output::line(&table(
        &["experiment", ">cells", ">repetitions", ">trials", ">a trial", ">all", "what it is"],
        rows.collect(),
    ))?;
    for trial in &plan.trials {
        let factors: Vec<String> =
            trial.factors.iter().map(|(name, level)| format!("{name}={level}")).collect();
        output::line(&format!(
            "  {:>5}  {} #{}  {}",
            trial.trial,
            trial.experiment,
            trial.repetition,
            factors.join(" ")
        ))?;
    }
    for notice in &plan.notices {
        output::line(&format!("note: {}", notice.message))?;
    }
    Ok(output::line(&format!("{} trials, {}", plan.trial_count, long_time(plan.time.0 / 1_000_000_000)))?)
}

/// What the person sees while a study runs.
struct View {
    progress: Progress,
    paint: Paint,
    label: String,
    left: TimeSpan,
}

impl View {
    fn new(plan: &Plan) -> Self {
        Self {
            progress: Progress::start(plan.time().to_std()),
            paint: Paint::for_stderr(),
            label: String::new(),
            left: plan.time(),
        }
    }

    fn show(&mut self, event: StudyEvent<'_>) {
        match event {
            StudyEvent::Planned { plan, left, .. } => {
                self.left = left;
                for notice in &plan.notices {
                    self.progress.note(&self.paint.warning(&format!("note: {}", notice.message)));
                }
            }
            StudyEvent::TrialStarted { trial, plan, position, left } => {
                self.label = label(trial, plan, position);
                self.left = left;
            }
            StudyEvent::Sample { sample, .. } => return self.live(sample.headline.as_ref()),
            StudyEvent::Notice(notice) => {
                self.progress.note(&self.paint.warning(&format!("note: {}", notice.message)));
            }
            StudyEvent::TrialEnded { document, left, .. } => {
                self.left = left;
                self.progress.note(&format!("{}: {}", self.label, result(document)));
            }
            StudyEvent::TrialSkipped { .. } => {}
        }
        self.progress.update(self.left.to_std(), &self.label);
    }

    fn live(&mut self, headline: Option<&Metric>) {
        let value = headline.map(|metric| metric.unit.text(metric.value)).unwrap_or_default();
        self.progress.update(self.left.to_std(), &format!("{}  {value}", self.label));
    }
}

fn label(trial: &PlannedTrial, plan: &Plan, position: usize) -> String {
    let factors: Vec<String> =
        plan.cell(trial).factors.iter().map(|(name, level)| format!("{name}={level}")).collect();
    format!("{position}/{} {} {}", plan.trials.len(), plan.experiment(trial).name, factors.join(" "))
}

/// The first metrics of a trial: the headline alone, or with what else decides.
fn result(document: &TrialDocument) -> String {
    let outcome = match &document.outcome {
        TrialOutcome::Measured(outcome) => outcome,
        TrialOutcome::Failed(failure) => return format!("failed: {failure}"),
    };
    match outcome.headline() {
        Some(headline) => format!("{} {}", headline.name, headline.unit.text(headline.value)),
        None => "described".to_owned(),
    }
}
