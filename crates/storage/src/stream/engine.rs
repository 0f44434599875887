//! Phases of all ranks: barriers, what each is to do, verdicts on their reports, and the removal of the files.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use clearstream_ranks::{RankError, World};
use clearstream_schema::{
    control::{Failure, FailureKind},
    notice::Notice,
    storage::{StreamConfig, StreamPhase, StreamPoint},
};
use quanta::Instant;
use serde::{Deserialize, Serialize};

use super::{
    files::Files,
    kept::{Kept, Plan, seed},
    layout::Layout,
    memory::Memory,
    phase::{Part, Report},
    point::point,
    share::owner,
};
use crate::{
    clock::{Clocks, Spans},
    collective::{gather, share},
    folder::Folder,
    kept::{self, Piece, shared, whole},
    live::{Count, Live, LivePhase},
    operations_log::{Item, LoggedPhase, OperationsLog, Record, Records},
};

/// Interval of checks of the stop flag in a pause.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why a rank, and with it all of them, cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    /// Between the ranks.
    #[error(transparent)]
    Ranks(#[from] RankError),
    /// A rank's own problem.
    #[error(transparent)]
    OfRank(Failure),
}

/// What rank 0 answers: transfers written by each rank, or the first problem.
#[derive(Debug, Serialize, Deserialize)]
struct Verdict {
    written: Vec<u64>,
    problem: Option<Failure>,
}

/// What an earlier run left, as far as all ranks need it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FromEarlier {
    record: Kept,
    /// Of what is read; nothing of files that are written over.
    plan: Option<Plan>,
}

/// One rank's view of a test.
pub(super) struct Test<'a> {
    pub(super) world: &'a mut dyn World,
    pub(super) config: &'a StreamConfig,
    pub(super) folder: &'a Folder,
    pub(super) stop: &'a AtomicBool,
    pub(super) files: Files<'a>,
    clocks: Clocks,
    live: &'a Live,
    log: Option<OperationsLog>,
    /// Phases that have begun.
    phases: u64,
    /// Host of each rank.
    pub(super) hosts: Vec<String>,
    /// Files of an earlier run, where they have a record.
    pub(super) kept: Option<FromEarlier>,
    /// Transfers that each rank has written in this iteration.
    written: Vec<u64>,
    /// What failed between phases, as the removal of a file: a problem of the next one.
    pub(super) between: Option<Failure>,
}

impl<'a> Test<'a> {
    pub(super) fn new(
        world: &'a mut dyn World,
        config: &'a StreamConfig,
        folder: &'a Folder,
        stop: &'a AtomicBool,
        live: &'a Live,
    ) -> Result<Self, StreamError> {
        let own = world.host().to_owned();
        let all = gather(world, &own)?;
        let all = (world.rank() == 0).then_some(all);
        let hosts = share(world, all.as_ref())?;
        let clocks = Clocks::join(world)?;
        let kept = from_earlier(world, config, folder)?;
        let written = vec![config.transfer_count(); world.size()];
        let is_per_process = kept.as_ref().map_or(config.file_per_process, |it| it.record.file_per_process);
        let files = Files::new(folder, config, is_per_process);
        let log = OperationsLog::open(world, config.operations.as_deref())?.map_err(StreamError::OfRank)?;
        Ok(Self {
            world,
            config,
            folder,
            stop,
            files,
            clocks,
            live,
            log,
            phases: 0,
            hosts,
            kept,
            written,
            between: None,
        })
    }

    /// What to know of files of an earlier run, and at the end of the log.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let differs =
            |it: &&FromEarlier| it.plan.is_some() && it.record.differs(self.config, self.world.size());
        let shape = |it: &FromEarlier| Notice {
            id: "kept-shape".to_owned(),
            message: format!(
                "the files are read in the shape in which they were written: {}",
                it.record.shape()
            ),
        };
        let log = self.log.as_ref().and_then(OperationsLog::notice);
        self.kept.as_ref().filter(differs).map(shape).into_iter().chain(log).collect()
    }

    /// All iterations. Points are passed on at rank 0.
    pub(super) fn run(&mut self, on_point: &mut dyn FnMut(StreamPoint)) -> Result<(), StreamError> {
        for iteration in 0..self.config.iterations {
            let is_last = iteration + 1 == self.config.iterations;
            let result = self.iteration(iteration, on_point);
            let is_over = matches!(self.is_stopped(), Ok(true));
            // What is kept, for a later run or to be looked at after a failure, is one set of files.
            if !(self.config.keep && (is_last || is_over || result.is_err())) {
                self.remove();
            }
            self.world.barrier()?;
            result?;
            if is_over {
                return Ok(());
            }
        }
        Ok(())
    }

    fn iteration(
        &mut self,
        iteration: u32,
        on_point: &mut dyn FnMut(StreamPoint),
    ) -> Result<(), StreamError> {
        for phase in self.config.phases() {
            self.pause();
            if phase.reads() && self.config.drop_caches {
                self.drop_caches(iteration, *phase);
            }
            if self.is_stopped()? {
                return Ok(());
            }
            if let Some(point) = self.phase(iteration, *phase)? {
                on_point(point);
            }
        }
        Ok(())
    }

    /// Whether any rank was stopped; the same at all of them.
    fn is_stopped(&mut self) -> Result<bool, StreamError> {
        let own = u64::from(self.stop.load(Relaxed));
        Ok(self.world.reduce(&[own], u64::max)?.first().is_some_and(|stopped| *stopped != 0))
    }

    fn pause(&self) {
        let deadline = Instant::now() + self.config.pause.to_std().min(Duration::from_secs(86_400));
        while Instant::now() < deadline && !self.stop.load(Relaxed) {
            thread::sleep(POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now())));
        }
    }

    /// What this rank has to do in a phase.
    fn part(&self, iteration: u32, phase: StreamPhase) -> Part {
        let rank = self.world.rank();
        let own = || Plan {
            layout: Layout::new(self.config, self.world.size(), seed(self.config.seed, iteration)),
            written: self.written.clone(),
            is_as_written: true,
        };
        let plan = self.kept.as_ref().and_then(|kept| kept.plan.clone()).unwrap_or_else(own);
        let pieces = match phase {
            StreamPhase::Write | StreamPhase::Mixed => {
                vec![Piece::new(rank, 0, self.config.transfer_count())]
            }
            StreamPhase::Read => {
                let share = owner(self.config, rank, &self.hosts, iteration);
                shared(&whole(&plan.written), plan.written.len(), self.world.size(), share)
            }
        };
        let (number, iteration) = (iteration, self.number(iteration));
        let name = match &self.kept {
            Some(kept) if !self.config.existing => kept.record.folder.clone(),
            _ => self.name(),
        };
        let pattern = self.config.verify.then_some((name, iteration));
        Part { phase, iteration, number, plan, pieces, pattern }
    }

    /// One phase; the point at rank 0, none where it was stopped.
    fn phase(&mut self, iteration: u32, phase: StreamPhase) -> Result<Option<StreamPoint>, StreamError> {
        let part = self.part(iteration, phase);
        let recorded = self.record(part.iteration, phase, None);
        self.between = self.between.take().or(recorded.err());
        let memory = part.pieces.iter().map(|_| Memory::new(self.config, phase)).collect();
        // Besides the transfers each file is opened, flushed and closed.
        let calls =
            part.pieces.iter().map(|piece| piece.count.saturating_add(3)).fold(0, u64::saturating_add);
        let mut records = self.log.as_ref().map(|log| log.records(calls));
        let live = self.count(&part);
        let begun = self.clocks.begin(self.world)?;
        let report = self.measured(&part, memory, &mut records, live)?;
        let spans = self.clocks.end(self.world, &begun, Some(report.times))?;
        let logged = self.write_log(&part, spans.as_ref(), records)?;
        let was_stopped = self.is_stopped()?;
        let reports = gather(self.world, &report)?;
        let verdict = (self.world.rank() == 0).then(|| self.verdict(&part, &reports, logged));
        let verdict = share(self.world, verdict.as_ref())?;
        self.written = verdict.written;
        if let Some(problem) = verdict.problem {
            return Err(StreamError::OfRank(problem));
        }
        let transfer = self.config.transfer.0;
        let point = spans.map(|spans| point(iteration, phase, transfer, reports, spans));
        Ok(point.filter(|_| !was_stopped))
    }

    /// Where this rank counts its transfers for those who look on.
    fn count(&mut self, part: &Part) -> Count<'a> {
        self.phases += 1;
        let all = match part.phase {
            StreamPhase::Read => part.plan.written.iter().copied().fold(0, u64::saturating_add),
            _ => self.config.transfer_count().saturating_mul(self.world.size() as u64),
        };
        let phase = || LivePhase {
            name: part.phase.name().to_owned(),
            iteration: part.number,
            expected: all,
            bytes_each: self.config.transfer.0,
            stonewall: self.config.stonewall.map(|time| time.to_std()),
        };
        self.live.begin(self.world.rank(), self.phases, phase)
    }

    /// What the ranks did, into the log of operations.
    fn write_log(
        &mut self,
        part: &Part,
        spans: Option<&Spans>,
        records: Option<Records>,
    ) -> Result<Option<Failure>, RankError> {
        if self.world.rank() == 0 {
            self.live.end();
        }
        let (Some(log), Some(records)) = (&mut self.log, records) else { return Ok(None) };
        let phase = LoggedPhase { name: part.phase.name(), iteration: part.number };
        let files = &self.files;
        let item = |record: &Record| Item {
            file: files.shown(part.iteration, record.file as usize),
            offset: record.operation.is_transfer().then_some(record.place),
        };
        Ok(log.write(self.world, spans, phase, &records, item)?.err())
    }

    /// Of rank 0, for all.
    fn verdict(&self, part: &Part, reports: &[Report], logged: Option<Failure>) -> Verdict {
        let written: Vec<u64> = match part.phase {
            StreamPhase::Write | StreamPhase::Mixed => reports.iter().map(|report| report.count).collect(),
            StreamPhase::Read => self.written.clone(),
        };
        let recorded = self.record(part.iteration, part.phase, Some(&written));
        Verdict { written, problem: first_problem(reports).or(recorded.err()).or(logged) }
    }

    /// The record beside files that are to stay, before and behind their writing. Rank 0 has it.
    fn record(&self, iteration: u32, phase: StreamPhase, written: Option<&Vec<u64>>) -> Result<(), Failure> {
        let stays = self.config.keep || self.config.existing;
        if !phase.writes() || !stays || self.world.rank() != 0 {
            return Ok(());
        }
        let mut record = Kept::new(self.config, &self.name(), iteration, self.world.size());
        record.written = written.cloned();
        kept::store(&record, self.folder)
    }

    /// Name of the folder: the seed of the pattern.
    fn name(&self) -> String {
        self.folder.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Number in the names of an iteration's files: of an earlier run there is one set, which every iteration uses.
    fn number(&self, iteration: u32) -> u32 {
        match &self.kept {
            Some(kept) => kept.record.iteration,
            None if uses_earlier(self.config) => 0,
            None => iteration,
        }
    }

    /// Files that this rank wrote and will read: flushed, and their pages dropped on this host.
    fn drop_caches(&mut self, iteration: u32, phase: StreamPhase) {
        let part = self.part(iteration, phase);
        for owner in part.pieces.iter().map(|piece| piece.owner).chain([self.world.rank()]) {
            self.files.drop_caches(part.iteration, owner);
        }
    }

    /// Removes what this rank has made in the iteration.
    fn remove(&mut self) {
        if let Err((path, error)) = self.files.remove() {
            let what = format!("remove {}", path.display());
            self.between = Some(Failure::of_file(&what, &error.into()));
        }
    }
}

/// Whether the files are those of an earlier run, with a record of it or without.
pub(super) fn uses_earlier(config: &StreamConfig) -> bool {
    config.existing || !config.phases().iter().any(|phase| phase.writes())
}

/// The record of an earlier run with its plan, read by rank 0 for all.
fn from_earlier(
    world: &mut dyn World,
    config: &StreamConfig,
    folder: &Folder,
) -> Result<Option<FromEarlier>, StreamError> {
    if !uses_earlier(config) {
        return Ok(None);
    }
    let size = world.size();
    let read = || {
        let record = match kept::load::<Kept>(folder)? {
            Some(record) => record,
            None if config.existing => return Err(not_kept(folder)),
            None => return Ok(None),
        };
        let files = Files::new(folder, config, record.file_per_process);
        if config.mix_reads.is_some() {
            let name = folder.path.file_name().map(|name| name.to_string_lossy().into_owned());
            record.check_mix(config, size, &name.unwrap_or_default(), &files)?;
        }
        let plan = if config.existing { None } else { Some(record.plan(config, &files)?) };
        Ok(Some(FromEarlier { record, plan }))
    };
    let found: Option<Result<Option<FromEarlier>, Failure>> = (world.rank() == 0).then(read);
    share(world, found.as_ref())?.map_err(StreamError::OfRank)
}

/// Only files of ours are written over.
fn not_kept(folder: &Folder) -> Failure {
    let path = folder.path.display();
    let message = format!(
        "{path} has no record of files that an earlier run with --keep left: --existing writes over nothing else"
    );
    Failure { kind: FailureKind::Invalid, message }
}

/// With its rank.
fn first_problem(reports: &[Report]) -> Option<Failure> {
    reports.iter().enumerate().find_map(|(rank, report)| {
        let problem = report.problem.as_ref()?;
        let message = format!("rank {rank} on {}: {problem}", report.host);
        Some(Failure { message, ..problem.clone() })
    })
}
