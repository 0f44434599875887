//! `clearstream study`

mod check;
pub(super) mod compare;
mod schedule;
mod served;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use clap::Subcommand;
use clearstream_dashboard::{Content, Dashboard};
use clearstream_record::Reader;
use clearstream_schema::{
    TimeSpan,
    notice::Notice,
    record::{Treatments, TrialDocument, TrialOutcome},
    study::StudyFile,
};
use clearstream_study::{
    EndReason, HostTestbed, Mode, ResumeOptions, RunEnd, RunRequest, Runner, Schedule, ScheduleOptions,
    ScheduledTrial, StudyEvent, run_id,
};

use clearstream_schema::JsonSchema;
use clearstream_workload::{Registry, Sample};
use serde::Serialize;
use serde_json::Value;

use crate::{
    endpoints::{Endpoints, MeshArgs, PathArgs},
    exit::CommandError,
    files, interrupt,
    output::{
        self, Output, Paint,
        quantity::{factor_level, long_time, time},
        table::table,
    },
    workloads::registry,
};
use served::StudyPage;

/// Seed of the order of trials, unless given.
const SEED: u64 = 1;
/// Folder for runs, unless given.
pub(super) const RUNS: &str = "runs";

/// Run, list, compare, check and schedule studies.
#[derive(Debug, Subcommand)]
pub enum StudyVerb {
    /// Run a study, write its record and its report
    Run(Box<RunArgs>),
    /// Show the built-in studies
    List,
    /// Compare two levels of one run, or the runs of two sides
    Compare(compare::CompareArgs),
    /// Check a run against the last good one; exit code 10 where it is worse
    Check(check::CheckArgs),
    /// Write systemd units that run a study regularly
    Schedule(schedule::ScheduleArgs),
}

/// Run a study.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Name of a built-in study, or a study file
    study: String,
    #[command(flatten)]
    hosts: MeshArgs,
    #[command(flatten)]
    path: PathArgs,
    /// Trials of seconds, on representative cores
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Trials of the published durations, on every core
    #[arg(long)]
    full: bool,
    /// Only this experiment; may be repeated
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
    /// Resume an interrupted run, with its original trials
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    /// Time for the whole run; repetitions that do not fit are left out
    #[arg(long, value_name = "TIME")]
    budget: Option<TimeSpan>,
    /// Measure each cell in pairs, after this shell command and after that of --after, in random
    /// order; it runs on this machine before every trial that needs it, and at the end
    #[arg(long, value_name = "COMMAND", requires = "after")]
    before: Option<String>,
    /// Shell command of the other trial of each pair
    #[arg(long, value_name = "COMMAND", requires = "before")]
    after: Option<String>,
    /// Where to write the report [default: report.html in the run folder]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Serve a page that follows the run, and print its link (default address: a free port of loopback)
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:0", require_equals = true, conflicts_with = "dry_run")]
    web: Option<SocketAddr>,
}

/// How a run of a study ended.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StudyEnd<'a> {
    /// The run folder.
    folder: &'a Path,
    /// The report that was written.
    report: &'a Path,
    /// Trials planned.
    planned_trial_count: usize,
    /// Trials with a result, those of earlier sessions included.
    done_trial_count: usize,
    /// Trials that could not be run, or were cut short, in this session.
    failed_trial_count: usize,
    /// Trials left out by precision or budget.
    skipped_trial_count: usize,
    /// What to know before the figures are believed.
    notices: &'a [Notice],
}

/// The built-in studies.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StudyList {
    /// By name.
    studies: Vec<ListedStudy>,
}

/// A built-in study.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedStudy {
    /// Its name, for `study run`.
    name: String,
    /// One line for people.
    title: String,
}

fn list(out: &Output) -> Result<(), CommandError> {
    let mut studies = Vec::new();
    for name in clearstream_study::file::built_in() {
        let title = clearstream_study::file::load(name, &registry())?.title;
        studies.push(ListedStudy { name: name.to_owned(), title });
    }
    let document = StudyList { studies };
    let rows =
        || document.studies.iter().map(|study| vec![study.name.clone(), study.title.clone()]).collect();
    Ok(out.result(&document, || table(&["study", "what it is"], rows()))?)
}

impl StudyVerb {
    /// Runs the subcommand.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Run(args) => args.run(out),
            Self::List => list(out),
            Self::Compare(args) => args.run(out),
            Self::Check(args) => args.run(out),
            Self::Schedule(args) => args.run(out),
        }
    }
}

impl RunArgs {
    fn run(self, out: &Output) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        let registry = registry();
        let study = clearstream_study::file::load(&self.study, &registry)?;
        if let Some(folder) = &self.resume {
            self.check_resume(folder)?;
        }
        let mut ends = Endpoints::open_all(&self.hosts, &self.path, is_mesh(&study, &registry))?;
        out.set_hosts(ends.identities());
        let options = ScheduleOptions {
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
            return dry_run(&request, &mut testbed, out);
        }
        // Before the record begins: an address that cannot be bound leaves none.
        let page = self.serve(&request.study.title, out)?;
        let runner = match &self.resume {
            Some(folder) => Runner::resume(folder, Some(&request.study), &registry, testbed)?,
            None => {
                let runs = self.runs.as_deref().unwrap_or(Path::new(RUNS));
                Runner::start(&runs.join(run_id(&request.study)), request, testbed)?
            }
        };
        let mut page = page.map(|page| StudyPage::new(page, runner.folder(), runner.schedule()));
        let mut view = View::new(runner.schedule(), out);
        let end = runner.run(&stop, &mut |event| {
            if let Some(page) = &mut page {
                page.show(&event);
            }
            view.show(event);
        })?;
        drop(view);
        self.finish(&end, stop.load(Ordering::Relaxed), page, out)
    }

    /// Starts the page, if one is requested, and reports its link.
    fn serve(&self, title: &str, out: &Output) -> Result<Option<Dashboard>, CommandError> {
        let Some(address) = self.web else { return Ok(None) };
        let page = Dashboard::start(
            address,
            Content::Study { title: title.to_owned(), script_hash: clearstream_report::script_hash() },
        )?;
        let link = page.link();
        out.state("page", Some(Value::String(link.clone())), || Some(format!("page: {link}")));
        Ok(Some(page))
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
    /// may differ: it changes no trial.
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

    /// Writes the report and prints the results and the reason of the end.
    fn finish(
        &self,
        end: &RunEnd,
        stopped: bool,
        page: Option<StudyPage>,
        out: &Output,
    ) -> Result<(), CommandError> {
        let reader = Reader::open(&end.folder)?;
        let path = self.report.clone().unwrap_or_else(|| end.folder.join("report.html"));
        let report = clearstream_report::Report::diagnosed(&reader, &super::report::diagnose)?;
        let html = report.html()?;
        files::write(&path, &html)?;
        let counts = format!(
            "{} of {} trials done, {} failed, {} skipped",
            end.done_count, end.scheduled_count, end.failed_count, end.skipped_count
        );
        if let Some(page) = page {
            page.finish(html, &counts);
        }
        let resume = format!("resume with --resume {}", end.folder.display());
        out.document(&StudyEnd {
            folder: &end.folder,
            report: &path,
            planned_trial_count: end.scheduled_count,
            done_trial_count: end.done_count,
            failed_trial_count: end.failed_count,
            skipped_trial_count: end.skipped_count,
            notices: &reader.run().notices,
        })?;
        if out.is_human() {
            for figure in report.headlines() {
                output::line(&Paint::for_stdout().figure(&figure))?;
            }
            if reader.run().treatments.is_some() {
                compare::treatments(&reader)?;
            }
            for notice in reader.run().notices.iter().filter(|notice| notice.id == "proves-nothing") {
                output::line(&format!("note: {}", notice.message))?;
            }
            output::line(&format!("{counts}; record: {}", end.folder.display()))?;
            output::line(&format!("report: {}", path.display()))?;
        }
        match &end.reason {
            _ if stopped => Err(CommandError::Interrupted(format!("trials done so far are kept; {resume}"))),
            EndReason::Lost(reason) => Err(CommandError::StudyLost(format!("{reason}; {resume}"))),
            _ if end.failed_count > 0 => Err(CommandError::Partial(format!(
                "{} trials failed; the report lists them",
                end.failed_count
            ))),
            _ => Ok(()),
        }
    }
}

/// Whether an experiment is over all hosts, in whatever role.
fn is_mesh(study: &StudyFile, registry: &Registry) -> bool {
    let workloads = study.experiments.iter().filter_map(|one| registry.workload(&one.workload));
    let mut any_host = workloads.filter(|workload| workload.roles().is_empty());
    any_host.any(|workload| workload.needs_lab().is_none())
}

fn dry_run(request: &RunRequest, testbed: &mut HostTestbed<'_>, out: &Output) -> Result<(), CommandError> {
    let schedule = clearstream_study::schedule_on(request, testbed)?.table();
    if !out.is_human() {
        return Ok(out.document(&schedule)?);
    }
    let rows = schedule.experiments.iter().map(|row| {
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
    for trial in &schedule.trials {
        let factors: Vec<String> =
            trial.factors.iter().map(|(name, level)| factor_level(name, level)).collect();
        output::line(&format!(
            "  {:>5}  {} #{}  {}",
            trial.trial,
            trial.experiment,
            trial.repetition,
            factors.join(" ")
        ))?;
    }
    for notice in &schedule.notices {
        output::line(&format!("note: {}", notice.message))?;
    }
    Ok(output::line(&format!(
        "{} trials, {}",
        schedule.trial_count,
        long_time(schedule.time.0 / 1_000_000_000)
    ))?)
}

/// What is reported while a study runs.
struct View<'a> {
    out: &'a Output,
    label: String,
    left: TimeSpan,
}

impl<'a> View<'a> {
    fn new(schedule: &Schedule, out: &'a Output) -> Self {
        Self { out, label: String::new(), left: schedule.time() }
    }

    fn show(&mut self, event: StudyEvent<'_>) {
        match event {
            StudyEvent::Scheduled { schedule, left, .. } => {
                self.left = left;
                for notice in &schedule.notices {
                    self.out.notice(notice);
                }
            }
            StudyEvent::TrialStarted { trial, schedule, position, left } => {
                self.label = label(trial, schedule, position);
                self.left = left;
                let (experiment, cell) = (schedule.experiment(trial), schedule.cell(trial));
                self.out.set_trial(Some((trial.trial, experiment.workload.name().to_owned())));
                let detail = serde_json::json!({ "experiment": experiment.name, "factors": cell.factors });
                self.out.state("trial-started", Some(detail), || None);
            }
            StudyEvent::Sample { sample, .. } => return self.live(sample),
            StudyEvent::Notice(notice) => self.out.notice(notice),
            StudyEvent::TrialEnded { document, left, .. } => {
                self.left = left;
                self.out.note(&format!("{}: {}", self.label, result(document)));
                self.out.state("trial-ended", clearstream_schema::json::to_value(document).ok(), || None);
                self.out.set_trial(None);
            }
            StudyEvent::TrialSkipped { .. } => {}
        }
        self.out.progress(self.left.to_std(), &self.label);
    }

    /// The sample that the record keeps, and its headline.
    fn live(&mut self, sample: &Sample) {
        if self.out.is_stream() {
            let document: Value = clearstream_schema::json::from_str(&sample.json).unwrap_or_default();
            return self.out.interval(&document, || None);
        }
        let value = sample.headline.as_ref().map(|metric| metric.unit.text(metric.value)).unwrap_or_default();
        self.out.progress(self.left.to_std(), &format!("{}  {value}", self.label));
    }
}

fn label(trial: &ScheduledTrial, schedule: &Schedule, position: usize) -> String {
    let factors: Vec<String> =
        schedule.cell(trial).factors.iter().map(|(name, level)| factor_level(name, level)).collect();
    format!("{position}/{} {} {}", schedule.trials.len(), schedule.experiment(trial).name, factors.join(" "))
}

/// The first metrics of a trial: the headline alone, or with what else decides.
fn result(document: &TrialDocument) -> String {
    let outcome = match &document.outcome {
        TrialOutcome::Measured(outcome) => outcome,
        TrialOutcome::Failed(failure) => return format!("failed: {failure}"),
    };
    let headline = match outcome.headline() {
        Some(headline) => format!("{} {}", headline.name, headline.unit.text(headline.value)),
        None => "described".to_owned(),
    };
    // Its last notice says what is missing.
    match outcome.notices.last().filter(|_| !outcome.complete) {
        Some(notice) => format!("{headline}; incomplete: {}", notice.message),
        None => headline,
    }
}
