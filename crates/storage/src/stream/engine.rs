//! Phases of all ranks: barriers, times, reports, and the removal of the files.

use std::{
    fs::File,
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use clearstream_ranks::{RankError, World};
use clearstream_schema::{
    control::{Failure, FailureKind},
    storage::{RankSpan, StreamBackend, StreamConfig, StreamPhase, StreamPoint, StreamRank, StreamReorder},
};
use quanta::Instant;
use rustix::{
    fs::{Advice, AtFlags, OFlags, fadvise},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{
    layout::{Layout, mixed, permuted},
    pattern::Pattern,
    transfer::{Memory, Task, TransferError, Transfers},
};
use crate::{
    clock::{self, Clocks, Spans, Times},
    collective::{gather, share},
    folder::Folder,
    latency::{Latency, LatencyCounts},
};

/// Name of the files in the folder; with `--file-per-process` the rank follows.
const FILE: &str = "data";
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

/// What a rank reports of a phase, to rank 0.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Report {
    host: String,
    count: u64,
    bytes: u64,
    open_ns: u64,
    transfer_ns: u64,
    close_ns: u64,
    times: Times,
    latency: LatencyCounts,
    problem: Option<Failure>,
}

/// What rank 0 answers: transfers written by each rank, or the first problem.
#[derive(Debug, Serialize, Deserialize)]
struct Verdict {
    written: Vec<u64>,
    problem: Option<Failure>,
}

/// One rank's view of a test.
pub(super) struct Test<'a> {
    world: &'a mut dyn World,
    config: &'a StreamConfig,
    folder: &'a Folder,
    stop: &'a AtomicBool,
    clocks: Clocks,
    /// Host of each rank.
    pub(super) hosts: Vec<String>,
    /// Transfers that each rank has written in this iteration.
    written: Vec<u64>,
    /// Why this rank could not remove a file of the last iteration as it was: a problem of the next phase.
    unremoved: Option<Failure>,
}

impl<'a> Test<'a> {
    pub(super) fn new(
        world: &'a mut dyn World,
        config: &'a StreamConfig,
        folder: &'a Folder,
        stop: &'a AtomicBool,
    ) -> Result<Self, StreamError> {
        let own = world.host().to_owned();
        let all = gather(world, &own)?;
        let all = (world.rank() == 0).then_some(all);
        let hosts = share(world, all.as_ref())?;
        let clocks = Clocks::join(world)?;
        let written = vec![config.transfer_count(); world.size()];
        Ok(Self { world, config, folder, stop, clocks, hosts, written, unremoved: None })
    }

    /// All iterations. Points are passed on at rank 0.
    pub(super) fn run(&mut self, on_point: &mut dyn FnMut(StreamPoint)) -> Result<(), StreamError> {
        for iteration in 0..self.config.iterations {
            let is_last = iteration + 1 == self.config.iterations;
            let result = self.iteration(iteration, on_point);
            // What is kept, for a later run or to be looked at after a failure, is one set of files.
            if !(self.config.keep && (is_last || result.is_err())) {
                self.remove(iteration);
            }
            self.world.barrier()?;
            result?;
            if self.is_stopped()? {
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
            if *phase == StreamPhase::Read && self.config.drop_caches {
                self.drop_caches(iteration);
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
        Ok(self.world.reduce(&[own], u64::max)?[0] != 0)
    }

    fn pause(&self) {
        let deadline = Instant::now() + self.config.pause.to_std().min(Duration::from_secs(86_400));
        while Instant::now() < deadline && !self.stop.load(Relaxed) {
            thread::sleep(POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now())));
        }
    }

    /// One phase; the point at rank 0, none where it was stopped.
    fn phase(&mut self, iteration: u32, phase: StreamPhase) -> Result<Option<StreamPoint>, StreamError> {
        let owner = match phase {
            StreamPhase::Write => self.world.rank(),
            StreamPhase::Read => owner(self.config.reorder, self.world.rank(), &self.hosts, iteration),
        };
        let memory = Memory::new(self.config);
        let begun = self.clocks.begin(self.world)?;
        let report = self.measured(iteration, phase, owner, memory)?;
        let spans = self.clocks.end(self.world, &begun, Some(report.times))?;
        let was_stopped = self.is_stopped()?;
        let reports = gather(self.world, &report)?;
        let problem = reports.iter().enumerate().find_map(|(rank, report)| {
            let problem = report.problem.as_ref()?;
            let message = format!("rank {rank} on {}: {problem}", report.host);
            Some(Failure { message, ..problem.clone() })
        });
        let written = match phase {
            StreamPhase::Write => reports.iter().map(|report| report.count).collect(),
            StreamPhase::Read => self.written.clone(),
        };
        let verdict = (self.world.rank() == 0).then_some(Verdict { written, problem });
        let verdict = share(self.world, verdict.as_ref())?;
        if let Some(problem) = verdict.problem {
            return Err(StreamError::OfRank(problem));
        }
        self.written = verdict.written;
        Ok(spans.filter(|_| !was_stopped).map(|spans| point(iteration, phase, reports, spans)))
    }

    /// A rank's own part. Barriers are kept also by one that has failed.
    fn measured(
        &mut self,
        iteration: u32,
        phase: StreamPhase,
        owner: usize,
        memory: io::Result<Memory>,
    ) -> Result<Report, StreamError> {
        let (begin, begun) = (clock::now(), Instant::now());
        let file_name = self.file_name(iteration, owner);
        let path = self.folder.path.join(&file_name);
        let fail = |what: &'static str, path: &Path| {
            let what = format!("{what} {}", path.display());
            move |error: io::Error| Failure::of_file(&what, &error)
        };
        let opened = self.open(&file_name, phase).map_err(fail("open", &path));
        let task = Task {
            config: self.config,
            phase,
            layout: Layout::new(self.config, self.world.size(), mixed(u64::from(iteration))),
            owner,
            pattern: self.config.verify.then(|| Pattern::new(&self.name(), iteration, owner)),
            stop: self.stop,
            deadline: None,
        };
        let open = begun.elapsed();
        self.optional_barrier()?;
        let begun_transfers = Instant::now();
        let deadline = match phase {
            StreamPhase::Write => self.config.stonewall.map(|time| begun_transfers + time.to_std()),
            StreamPhase::Read => None,
        };
        let mut transfers = opened.and_then(|file| {
            memory
                .and_then(|memory| Transfers::new(file, memory, Task { deadline, ..task }))
                .map_err(fail("prepare transfers to", &path))
        });
        let limit = match phase {
            StreamPhase::Write => self.config.transfer_count(),
            StreamPhase::Read => self.written[owner],
        };
        let mut problem = self.transfer(&mut transfers, limit, &path)?;
        if let (Ok(transfers), true) = (&transfers, phase == StreamPhase::Write && self.config.fsync) {
            let flushed = transfers.file().sync_all().map_err(fail("flush", &path));
            problem = problem.or(flushed.err());
        }
        let transfer = begun_transfers.elapsed();
        self.optional_barrier()?;
        let begun_close = Instant::now();
        let closed = transfers.map(Transfers::close);
        let (close, end) = (begun_close.elapsed(), clock::now());
        // Nothing of this is in the times.
        let mut report = Report { host: self.world.host().to_owned(), ..Report::default() };
        match closed {
            Ok((transfers, result)) => {
                (report.count, report.bytes, report.latency) =
                    (transfers.count, transfers.bytes, transfers.latency());
                problem = problem.or(result.map_err(fail("close", &path)).err());
            }
            Err(error) => problem = Some(error),
        }
        // A folder that is out of reach was measured by its descriptor alone.
        report.problem = self.unremoved.take().or(problem).or_else(|| self.folder.missing().map(of_files));
        report.open_ns = nanoseconds(open);
        report.transfer_ns = nanoseconds(transfer);
        report.close_ns = nanoseconds(close);
        report.times = Times { begin, end };
        Ok(report)
    }

    /// The transfers, and with `--wear-out` those up to the number of the fastest rank.
    fn transfer(
        &mut self,
        transfers: &mut Result<Transfers<'_>, Failure>,
        limit: u64,
        path: &Path,
    ) -> Result<Option<Failure>, StreamError> {
        let mut run = |limit, use_deadline| {
            let Ok(transfers) = transfers else { return (0, None) };
            let problem = transfers.run(limit, use_deadline).err().map(|error| of_transfer(&error, path));
            (transfers.count(), problem)
        };
        let (count, problem) = run(limit, true);
        if !(self.config.wear_out && self.config.stonewall.is_some()) {
            return Ok(problem);
        }
        let most = self.world.reduce(&[count], u64::max)?[0];
        if problem.is_some() {
            return Ok(problem);
        }
        Ok(run(most.min(limit), false).1)
    }

    fn optional_barrier(&mut self) -> Result<(), StreamError> {
        if self.config.barriers {
            self.world.barrier()?;
        }
        Ok(())
    }

    /// Name of the folder: the seed of the pattern.
    fn name(&self) -> String {
        self.folder.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn file_name(&self, iteration: u32, owner: usize) -> String {
        match (self.config.file_per_process, iteration) {
            (false, 0) => FILE.to_owned(),
            (false, iteration) => format!("{FILE}.{iteration}"),
            (true, iteration) => format!("{FILE}.{iteration}.{owner:08}"),
        }
    }

    fn open(&self, name: &str, phase: StreamPhase) -> io::Result<File> {
        let mut flags = match (phase, self.config.backend) {
            (StreamPhase::Write, _) => OFlags::RDWR | OFlags::CREATE,
            // A shared mapping for reading is one for writing, too.
            (StreamPhase::Read, StreamBackend::Mmap) => OFlags::RDWR,
            (StreamPhase::Read, _) => OFlags::RDONLY,
        };
        if self.config.direct {
            flags |= OFlags::DIRECT;
        }
        self.folder.open(name, flags)
    }

    /// Files that this rank wrote and will read: flushed, and their pages dropped on this host.
    fn drop_caches(&mut self, iteration: u32) {
        let other = owner(self.config.reorder, self.world.rank(), &self.hosts, iteration);
        for owner in [self.world.rank(), other] {
            if let Ok(file) = self.folder.open(&self.file_name(iteration, owner), OFlags::RDONLY) {
                // A file system that cannot is one that caches nothing here.
                let _ = file.sync_all();
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        }
    }

    /// Removes this rank's file; rank 0 removes the shared one.
    fn remove(&mut self, iteration: u32) {
        if !self.config.file_per_process && self.world.rank() != 0 {
            return;
        }
        let name = self.file_name(iteration, self.world.rank());
        // It may not have been created.
        if let Err(error) = self.folder.unlink(&name)
            && error != Errno::NOENT
        {
            let _ = self.folder.remove(&name, AtFlags::empty());
            let what = format!("remove {}", self.folder.path.join(&name).display());
            self.unremoved = Some(Failure::of_file(&what, &error.into()));
        }
    }
}

/// Rank whose data a rank reads.
fn owner(reorder: StreamReorder, rank: usize, hosts: &[String], iteration: u32) -> usize {
    let count = hosts.len().max(1);
    match reorder {
        StreamReorder::None => rank,
        StreamReorder::Constant => {
            // As IOR: by the ranks of a host.
            let of_host = hosts.iter().filter(|host| Some(*host) == hosts.first()).count();
            (rank + of_host) % count
        }
        StreamReorder::Random => {
            permuted(rank as u64, count as u64, mixed(u64::from(iteration) + 1)) as usize
        }
    }
}

/// Whether a rank reads what its own host wrote.
pub(super) fn reads_own_host(reorder: StreamReorder, hosts: &[String], iteration: u32) -> bool {
    (0..hosts.len()).any(|rank| hosts[owner(reorder, rank, hosts, iteration)] == hosts[rank])
}

fn of_files(message: String) -> Failure {
    Failure { kind: FailureKind::File, message }
}

fn of_transfer(error: &TransferError, path: &Path) -> Failure {
    let path = path.display();
    let message = match error {
        TransferError::System { offset, error } if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!("{path} ends before offset {offset}: it is not what a run with the same options wrote")
        }
        TransferError::System { offset, error } => {
            let message = format!("{path} at offset {offset}: {error}");
            return Failure { kind: FailureKind::of_file(error), message };
        }
        TransferError::Damaged(difference) => format!(
            "{path} differs at offset {}: {:#04x} instead of {:#04x}",
            difference.offset, difference.found, difference.expected
        ),
    };
    of_files(message)
}

fn point(iteration: u32, phase: StreamPhase, reports: Vec<Report>, spans: Spans) -> StreamPoint {
    let (bytes, count) =
        reports.iter().fold((0, 0), |(bytes, count), report| (bytes + report.bytes, count + report.count));
    let total_ns = spans.total_ns.max(1);
    let seconds = total_ns as f64 / 1e9;
    let latency = Latency::of(reports.iter().map(|report| &report.latency));
    let rank = |(report, span): (Report, RankSpan)| StreamRank {
        host: report.host,
        bytes: report.bytes,
        open_ns: report.open_ns,
        transfer_ns: report.transfer_ns,
        close_ns: report.close_ns,
        span,
    };
    StreamPoint {
        iteration,
        phase,
        bytes,
        operation_count: count,
        total_ns,
        clock: spans.clock,
        bandwidth_bps: bytes as f64 * 8.0 / seconds,
        operations_per_second: count as f64 / seconds,
        latency,
        ranks: reports.into_iter().zip(spans.ranks).map(rank).collect(),
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_reorder_reads_from_the_next_host_and_random_from_everybody_once() {
        let hosts: Vec<String> = ["a", "a", "b", "b"].map(str::to_owned).to_vec();
        let of = |reorder, iteration| {
            (0..4).map(|rank| owner(reorder, rank, &hosts, iteration)).collect::<Vec<_>>()
        };
        assert_eq!(of(StreamReorder::None, 0), [0, 1, 2, 3]);
        assert_eq!(of(StreamReorder::Constant, 0), [2, 3, 0, 1]);
        for iteration in 0..5 {
            let mut owners = of(StreamReorder::Random, iteration);
            owners.sort_unstable();
            assert_eq!(owners, [0, 1, 2, 3], "nothing is read twice");
        }
        assert!(!reads_own_host(StreamReorder::Constant, &hosts, 0));
        // Ranks in turns on the hosts, and ranks of one host.
        let cyclic: Vec<String> = ["a", "b", "a", "b"].map(str::to_owned).to_vec();
        assert!(reads_own_host(StreamReorder::Constant, &cyclic, 0));
        assert!(reads_own_host(StreamReorder::Constant, &hosts[..2], 0));
    }
}
