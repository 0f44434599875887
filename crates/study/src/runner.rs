//! Carries out a schedule and records it.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use clearstream_record::{Reader, RecordError, Writer};
use clearstream_schema::{
    notice::Notice,
    outcome::Outcome,
    record::{RECORD_VERSION, RUN_SCHEMA, RunDocument, RunHost, TRIAL_SCHEMA, TrialDocument, TrialOutcome},
    study::StudyFile,
};
use clearstream_stats::steady;
use clearstream_workload::{Event, Registry, SERVER, Sample, TrialError};
use jiff::{Timestamp, Unit};

use crate::{
    EndReason, Environment, Mode, RunEnd, RunRequest, Schedule, ScheduleOptions, ScheduledTrial, SkipReason,
    StudyError, StudyEvent, Testbed, event::run_id, headline::Headline, progress::Progress, resume,
    schedule::schedule,
};

/// The schedule of a run, without running it: what a dry run shows.
///
/// # Errors
/// The hosts cannot be described, or the study does not fit them.
pub fn schedule_on<T: Testbed>(request: &RunRequest, testbed: &mut T) -> Result<Schedule, StudyError> {
    Ok(describe_and_schedule(request, testbed)?.1)
}

fn describe_and_schedule<T: Testbed>(
    request: &RunRequest,
    testbed: &mut T,
) -> Result<(Vec<RunHost>, Schedule), StudyError> {
    let hosts = testbed.describe()?;
    let options = ScheduleOptions {
        in_lab: testbed.lab().is_some(),
        treated: testbed.treatments().is_some(),
        ..request.options.clone()
    };
    let schedule = schedule(&request.study, &options, &hosts, &request.registry)?;
    Ok((hosts, schedule))
}

/// A run that is ready to go.
#[derive(Debug)]
pub struct Runner<T> {
    testbed: T,
    writer: Writer,
    schedule: Schedule,
    progress: Progress,
    done_count: usize,
}

impl<T: Testbed> Runner<T> {
    /// Describes the hosts, makes the schedule ([`schedule_on`]) and starts a record in `folder`,
    /// which must not hold one. Nothing is measured yet.
    ///
    /// # Errors
    /// The study does not fit the hosts, or the folder cannot be written.
    pub fn start(folder: &Path, request: RunRequest, mut testbed: T) -> Result<Self, StudyError> {
        let (hosts, schedule) = describe_and_schedule(&request, &mut testbed)?;
        let host_count = hosts.len();
        let (options, lab) = (request.options, testbed.lab().cloned());
        let run = RunDocument {
            schema: RUN_SCHEMA.to_owned(),
            version: RECORD_VERSION,
            id: folder
                .file_name()
                .map_or_else(|| run_id(&request.study), |name| name.to_string_lossy().into_owned()),
            started: now(),
            ended: None,
            program_version: request.program_version,
            mode: options.mode.to_string(),
            seed: options.seed,
            study: request.study,
            only: options.only,
            budget: options.budget,
            lab,
            hosts,
            planned_trial_count: u32::try_from(schedule.trials.len()).unwrap_or(u32::MAX),
            treatments: testbed.treatments().cloned(),
            notices: schedule.notices.clone(),
        };
        let writer = Writer::create(folder, run)?;
        let mut runner = Self { testbed, writer, progress: Progress::new(), schedule, done_count: 0 };
        for host in 0..host_count {
            runner.capture(host)?;
        }
        Ok(runner)
    }

    /// Goes on with a run: done trials are kept, failed and missing ones are
    /// run, in the same order. `study` is the study requested by name; it
    /// must be what the run was started with.
    ///
    /// # Errors
    /// The study, the lab or a host has changed (named in the error), or the
    /// folder cannot be read or written.
    pub fn resume(
        folder: &Path,
        study: Option<&StudyFile>,
        registry: &Registry,
        mut testbed: T,
    ) -> Result<Self, StudyError> {
        let run = Reader::open(folder)?.run().clone();
        let hosts = testbed.describe()?;
        let changes = resume::changes(&run, study, (testbed.lab(), testbed.treatments()), &hosts);
        if !changes.is_empty() {
            return Err(StudyError::Changed { folder: folder.to_owned(), changes });
        }
        let mode: Mode = run.mode.parse().map_err(|message| RecordError::Malformed {
            path: folder.join("run.json"),
            line: 1,
            message,
        })?;
        let options = ScheduleOptions {
            mode,
            seed: run.seed,
            in_lab: run.lab.is_some(),
            only: run.only,
            budget: run.budget,
            treated: run.treatments.is_some(),
        };
        let schedule = schedule(&run.study, &options, &run.hosts, registry)?;
        let mut progress = Progress::new();
        let mut done_count = 0;
        let writer = Writer::resume(folder, &mut |trial| {
            progress.restore(&schedule, &trial);
            done_count += 1;
        })?;
        Ok(Self { testbed, writer, schedule, progress, done_count })
    }

    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The run folder.
    pub fn folder(&self) -> &Path {
        self.writer.folder()
    }

    /// Runs all trials that are not done. Raising `stop` ends the running
    /// trial and then the run; what was measured is kept. The flag is also
    /// raised from here when recording fails, so that the running trial ends.
    ///
    /// # Errors
    /// Only when the record cannot be written (disk full); all trials written
    /// so far are kept and the run can be resumed.
    pub fn run(
        mut self,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(StudyEvent<'_>),
    ) -> Result<RunEnd, StudyError> {
        on_event(StudyEvent::Scheduled {
            schedule: &self.schedule,
            done_count: self.done_count,
            left: self.progress.left(&self.schedule),
        });
        let (mut failed_count, mut skipped_count) = (0, 0);
        let mut reason = EndReason::Complete;
        for place in 0..self.schedule.trials.len() {
            let trial = self.schedule.trials[place];
            if self.progress.is_settled(&trial) {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                reason = EndReason::Stopped;
                break;
            }
            if let Some(why) = self.progress.skip(&self.schedule, &trial) {
                self.skip(&trial, why, on_event)?;
                skipped_count += 1;
                continue;
            }
            match self.trial(&trial, stop, on_event)? {
                TrialEnd::Done => self.done_count += 1,
                TrialEnd::Failed => failed_count += 1,
                TrialEnd::CutShort => {
                    failed_count += 1;
                    reason = EndReason::Stopped;
                    break;
                }
                TrialEnd::Lost(why) => {
                    failed_count += 1;
                    reason = EndReason::Lost(why);
                    break;
                }
            }
        }
        let (scheduled_count, done_count) = (self.schedule.trials.len(), self.done_count);
        let folder = self.finish(&reason, on_event)?;
        Ok(RunEnd { folder, reason, scheduled_count, done_count, failed_count, skipped_count })
    }

    fn capture(&mut self, host: usize) -> Result<(), StudyError> {
        match self.testbed.capture(host) {
            Ok(bundle) => self.writer.capture(host, &bundle)?,
            Err(error) if error.lost => return Err(StudyError::Lost { reason: error.failure.message }),
            Err(error) => {
                let host = resume::called(&self.writer.run().hosts, host);
                let message = format!("{host} was not captured: {}", error.failure);
                self.writer.notice(Notice { id: "capture-missing".to_owned(), message })?;
            }
        }
        Ok(())
    }

    fn skip(
        &mut self,
        trial: &ScheduledTrial,
        reason: SkipReason,
        on_event: &mut dyn FnMut(StudyEvent<'_>),
    ) -> Result<(), StudyError> {
        self.progress.skipped(trial);
        on_event(StudyEvent::TrialSkipped { trial, reason });
        let experiment = self.schedule.experiment(trial);
        let notice = match reason {
            SkipReason::Budget => Notice {
                id: "budget-spent".to_owned(),
                message: format!(
                    "{}: no time for repetition {} and later",
                    experiment.name,
                    trial.repetition + 1
                ),
            },
            SkipReason::Precise => Notice {
                id: "precise-enough".to_owned(),
                message: format!(
                    "{}: cells were not repeated once their interval was narrow enough",
                    experiment.name
                ),
            },
        };
        // One per experiment and reason, not one per trial.
        let noted = self.writer.run().notices.iter().any(|other| {
            other.id == notice.id && other.message.starts_with(&format!("{}:", experiment.name))
        });
        if !noted {
            on_event(StudyEvent::Notice(&notice));
            self.writer.notice(notice)?;
        }
        Ok(())
    }

    fn trial(
        &mut self,
        trial: &ScheduledTrial,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(StudyEvent<'_>),
    ) -> Result<TrialEnd, StudyError> {
        on_event(StudyEvent::TrialStarted {
            trial,
            schedule: &self.schedule,
            position: self.progress.settled_count() + 1,
            left: self.progress.left(&self.schedule),
        });
        let (started, clock) = (now(), Instant::now());
        let measured = self.measure(trial, stop, on_event)?;
        let (end, outcome) = match measured.outcome {
            Ok(outcome) => {
                let end = match (outcome.complete, stop.load(Ordering::Relaxed)) {
                    (true, _) => TrialEnd::Done,
                    (false, true) => TrialEnd::CutShort,
                    (false, false) => TrialEnd::Failed,
                };
                (end, TrialOutcome::Measured(Box::new(outcome)))
            }
            Err(error) if error.lost => {
                (TrialEnd::Lost(error.failure.message.clone()), TrialOutcome::Failed(error.failure))
            }
            Err(error) => {
                let stopped = stop.load(Ordering::Relaxed);
                let end = if stopped { TrialEnd::CutShort } else { TrialEnd::Failed };
                (end, TrialOutcome::Failed(error.failure))
            }
        };
        let cell = self.schedule.cell(trial);
        let document = TrialDocument {
            schema: TRIAL_SCHEMA.to_owned(),
            version: RECORD_VERSION,
            trial: trial.trial,
            experiment: self.schedule.experiment(trial).name.clone(),
            workload: self.schedule.experiment(trial).workload.name().to_owned(),
            cell: cell.number,
            repetition: trial.repetition,
            factors: cell.factors.clone(),
            started,
            steady: steady(measured.headline.values()),
            outcome,
            samples: measured.samples,
            delay_lines: measured.delay_lines,
        };
        self.writer.trial(&document)?;
        self.progress.ended(&self.schedule, trial, &document, clock.elapsed(), true);
        on_event(StudyEvent::TrialEnded {
            document: &document,
            estimate: self.progress.estimate(trial),
            left: self.progress.left(&self.schedule),
        });
        Ok(end)
    }

    fn measure(
        &mut self,
        trial: &ScheduledTrial,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(StudyEvent<'_>),
    ) -> Result<Measured, StudyError> {
        let cell = self.schedule.cell(trial);
        let workload = self.schedule.experiment(trial).workload.clone();
        let mut measured = Measured::default();
        if !workload.varies() {
            measured.outcome = self.testbed.measure(workload.as_ref(), &cell.config, stop, &mut |_| {});
            return Ok(measured);
        }
        match self.testbed.set(&cell.environment, &cell.receivers) {
            Ok(notices) => {
                // Each is true of every trial of its kind and noted once.
                for notice in notices {
                    if !self.writer.run().notices.contains(&notice) {
                        on_event(StudyEvent::Notice(&notice));
                        self.writer.notice(notice)?;
                    }
                }
            }
            Err(error) => {
                measured.outcome = Err(error);
                return Ok(measured);
            }
        }
        self.testbed.reset_delay_lines();
        let mut samples = None;
        let mut broken = None;
        let (writer, headline) = (&self.writer, &mut measured.headline);
        let config = &self.schedule.experiments[trial.experiment].cells[trial.cell].config;
        let result = self.testbed.measure(workload.as_ref(), config, stop, &mut |event| match event {
            Event::Sample(sample) => {
                headline.add(&sample);
                if broken.is_none() {
                    broken = keep(writer, trial.trial, &mut samples, &sample).err();
                }
                if broken.is_some() {
                    stop.store(true, Ordering::Relaxed);
                }
                on_event(StudyEvent::Sample { trial, sample: &sample });
            }
            Event::Notice(notice) => on_event(StudyEvent::Notice(&notice)),
        });
        if let Some(error) = broken {
            return Err(error.into());
        }
        measured.samples = samples.map(clearstream_record::SampleWriter::finish).transpose()?;
        measured.outcome = result;
        measured.add_series();
        measured.delay_lines = self.testbed.delay_lines();
        measured.mark_delay_line_limit();
        Ok(measured)
    }

    /// Restores the lab to its file and closes the record.
    fn finish(
        mut self,
        reason: &EndReason,
        on_event: &mut dyn FnMut(StudyEvent<'_>),
    ) -> Result<PathBuf, StudyError> {
        let restored = self.testbed.set(&Environment::default(), &[SERVER]);
        let notices = [
            restored.err().filter(|error| !error.lost).map(|error| Notice {
                id: "lab-not-restored".to_owned(),
                message: format!("the lab or the state before was not restored: {}", error.failure),
            }),
            match reason {
                EndReason::Complete => None,
                EndReason::Stopped => Some(Notice {
                    id: "stopped".to_owned(),
                    message: "stopped before its end; the trials done are kept and the run can be resumed"
                        .to_owned(),
                }),
                EndReason::Lost(why) => Some(Notice { id: "peer-lost".to_owned(), message: why.clone() }),
            },
        ];
        for notice in notices.into_iter().flatten() {
            on_event(StudyEvent::Notice(&notice));
            self.writer.notice(notice)?;
        }
        Ok(self.writer.finish(now())?)
    }
}

/// Result of one trial.
#[derive(Debug)]
struct Measured {
    outcome: Result<Outcome, TrialError>,
    headline: Headline,
    samples: Option<String>,
    delay_lines: Vec<clearstream_schema::lab::DelayLineStats>,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            outcome: Ok(Outcome::default()),
            headline: Headline::default(),
            samples: None,
            delay_lines: Vec::new(),
        }
    }
}

impl Measured {
    /// A trial without series of its own gets that of its samples.
    fn add_series(&mut self) {
        if let Ok(outcome) = &mut self.outcome
            && outcome.series.is_empty()
        {
            outcome.series.extend(self.headline.series());
        }
    }

    /// Marks the trial's result where a delay line of the lab, not the path
    /// that it models, was the limit.
    fn mark_delay_line_limit(&mut self) {
        if let (Ok(outcome), Some(notice)) =
            (&mut self.outcome, clearstream_lab::limit::notice(&self.delay_lines))
        {
            outcome.notices.push(notice);
        }
    }
}

#[derive(Debug)]
enum TrialEnd {
    Done,
    Failed,
    /// By the stop flag.
    CutShort,
    Lost(String),
}

fn keep(
    writer: &Writer,
    trial: u32,
    samples: &mut Option<clearstream_record::SampleWriter>,
    sample: &Sample,
) -> Result<(), RecordError> {
    let file = match samples {
        Some(file) => file,
        None => samples.insert(writer.samples(trial)?),
    };
    file.write(&sample.json)
}

/// Now, RFC 3339 in UTC to the millisecond.
fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Millisecond).unwrap_or(now).to_string()
}
