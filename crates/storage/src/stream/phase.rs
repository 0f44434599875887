//! A rank's own part of a phase: open, transfers, flush and close, with their times.

use std::{io, path::Path, time::Duration};

use clearstream_ranks::RankError;
use clearstream_schema::{
    control::{Failure, FailureKind},
    storage::StreamPhase,
};
use quanta::Instant;
use serde::{Deserialize, Serialize};

use super::{
    engine::{Test, uses_earlier},
    kept::Plan,
    memory::Memory,
    mix::Mix,
    pattern::Pattern,
    transfer::{Task, Times as TransferTimes, TransferError, Transfers},
};
use crate::{
    clock::{self, Times},
    data::mixed,
    kept::Piece,
    latency::LatencyCounts,
    live::Count,
    operations_log::{Operation, Record, Records},
};

/// What a rank reports of a phase, to rank 0.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) host: String,
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) open_ns: u64,
    pub(super) transfer_ns: u64,
    pub(super) close_ns: u64,
    pub(super) times: Times,
    /// Transfers when the stonewall's time was over, and the time since the begin.
    pub(super) at_wall: Option<(u64, u64)>,
    /// Of a mix: of the transfers that write.
    pub(super) latency: LatencyCounts,
    /// Of a mix: of those that read.
    pub(super) mixed_reads: Option<LatencyCounts>,
    pub(super) problem: Option<Failure>,
}

/// What a rank is to do in a phase.
pub(super) struct Part {
    pub(super) phase: StreamPhase,
    /// Number in the names of the files.
    pub(super) iteration: u32,
    /// Number of the repetition.
    pub(super) number: u32,
    pub(super) plan: Plan,
    pub(super) pieces: Vec<Piece>,
    /// Name of the folder and iteration, of which the pattern is.
    pub(super) pattern: Option<(String, u32)>,
}

/// What is measured of a part, over its files.
struct Meters<'m> {
    open: Duration,
    transfer: Duration,
    close: Duration,
    times: TransferTimes,
    log: &'m mut Option<Records>,
    live: Count<'m>,
}

impl Meters<'_> {
    /// A call on a whole file.
    fn log(&mut self, operation: Operation, owner: usize, begin: Instant, end: Instant) {
        if let Some(log) = self.log {
            let file = u32::try_from(owner).unwrap_or(u32::MAX);
            log.add(Record { begin, end, place: 0, file, bytes: 0, operation });
        }
    }
}

impl Test<'_> {
    /// Carries out a part. Barriers are kept also by a rank that has failed, or has nothing to do.
    pub(super) fn measured(
        &mut self,
        part: &Part,
        memory: Vec<io::Result<Memory>>,
        log: &mut Option<Records>,
        live: Count<'_>,
    ) -> Result<Report, RankError> {
        let mut report = Report { host: self.world.host().to_owned(), ..Report::default() };
        let none = Duration::ZERO;
        let times = TransferTimes::new(part.phase);
        let mut meters = Meters { open: none, transfer: none, close: none, times, log, live };
        let mut memory = memory.into_iter();
        meters.log.iter_mut().for_each(Records::begin);
        let (begin, begun) = (clock::now(), Instant::now());
        let none = [Piece::new(self.world.rank(), 0, 0)];
        let pieces = if part.pieces.is_empty() { &none[..] } else { &part.pieces };
        for (number, piece) in pieces.iter().enumerate() {
            let is_idle = part.pieces.is_empty() || report.problem.is_some();
            let ends = (number == 0, number + 1 == pieces.len());
            let one = memory.next().unwrap_or_else(|| Err(io::ErrorKind::OutOfMemory.into()));
            let file = OneFile { part, piece: *piece, is_idle, ends, begun };
            self.one_file(&file, one, &mut meters, &mut report)?;
        }
        report.times = Times { begin, end: clock::now() };
        meters.log.iter_mut().for_each(Records::end);
        // Nothing of this is in the times. A folder that is out of reach was measured by its descriptor alone.
        report.problem =
            self.between.take().or(report.problem).or_else(|| self.folder.missing().map(of_files));
        report.open_ns = nanoseconds(meters.open);
        report.transfer_ns = nanoseconds(meters.transfer);
        report.close_ns = nanoseconds(meters.close);
        report.latency = meters.times.all.counts();
        report.mixed_reads = meters.times.mixed_reads.map(|reads| reads.counts());
        Ok(report)
    }

    fn one_file(
        &mut self,
        file: &OneFile<'_>,
        memory: io::Result<Memory>,
        meters: &mut Meters<'_>,
        report: &mut Report,
    ) -> Result<(), RankError> {
        let OneFile { part, piece, is_idle, ends: (is_first, is_last), begun } = *file;
        let path = self.files.path(part.iteration, piece.owner);
        let fail = |what: &'static str| {
            let what = format!("{what} {}", path.display());
            move |error: io::Error| Failure::of_file(&what, &error)
        };
        let before = Instant::now();
        let opened = match is_idle {
            true => None,
            false => {
                let opened = self.files.open(part.iteration, piece.owner, part.phase);
                Some(opened.map_err(|error| {
                    let hint = self.folder.hint(&error);
                    let failure = fail("open")(error);
                    Failure { message: format!("{}{hint}", failure.message), ..failure }
                }))
            }
        };
        let now = Instant::now();
        meters.open += now - before;
        if opened.is_some() {
            meters.log(Operation::Open, piece.owner, before, now);
        }
        self.optional_barrier(is_first)?;
        let before = Instant::now();
        let pattern = part.pattern.as_ref();
        let task = Task {
            config: self.config,
            phase: part.phase,
            layout: part.plan.layout,
            piece,
            order_of: part.plan.of(piece.owner),
            pattern: pattern.map(|(name, iteration)| Pattern::new(name, *iteration, piece.owner)),
            mix: self.mix(part, piece.owner),
            stop: self.stop,
            deadline: self.config.stonewall.map(|time| before + time.to_std()),
            live: meters.live,
            before: report.count,
        };
        let mut transfers = opened.map(|opened| {
            let file = opened?;
            memory
                .and_then(|memory| Transfers::new(file, memory, task))
                .map_err(|error| self.cannot_prepare(&path, &error))
        });
        let mut problem = self.transfer(&mut transfers, (part, piece, begun), &path, meters.log, report)?;
        let flushes = part.phase.writes() && self.config.fsync;
        if let (Some(Ok(transfers)), true) = (&transfers, flushes) {
            let begin = Instant::now();
            problem = problem.or(transfers.file().sync_all().map_err(fail("flush")).err());
            meters.log(Operation::Flush, piece.owner, begin, Instant::now());
        }
        meters.transfer += before.elapsed();
        self.optional_barrier(is_last)?;
        let before = Instant::now();
        let closed = transfers.map(|transfers| transfers.map(Transfers::close));
        let now = Instant::now();
        meters.close += now - before;
        if let Some(Ok(_)) = &closed {
            meters.log(Operation::Close, piece.owner, before, now);
        }
        match closed {
            Some(Ok((transfers, result))) => {
                report.count += transfers.count;
                report.bytes += transfers.bytes;
                meters.times.merge(transfers.times());
                problem = problem.or(result.map_err(fail("close")).err());
            }
            Some(Err(error)) => problem = Some(error),
            None => {}
        }
        report.problem = report.problem.take().or(problem);
        Ok(())
    }

    /// The transfers, and with `--wear-out` those up to the number of the fastest rank.
    fn transfer(
        &mut self,
        transfers: &mut Option<Result<Transfers<'_>, Failure>>,
        (part, piece, begun): (&Part, Piece, Instant),
        path: &Path,
        log: &mut Option<Records>,
        report: &mut Report,
    ) -> Result<Option<Failure>, RankError> {
        let (is_own, bytes) = (!uses_earlier(self.config), self.config.transfer.0);
        let mut run = |limit, use_deadline| {
            let Some(Ok(transfers)) = transfers else { return (0, None) };
            let problem = transfers.run(limit, use_deadline, log).err();
            let problem = problem.map(|error| of_transfer(&error, path, transfers.file(), bytes, is_own));
            (transfers.count(), problem)
        };
        let (count, problem) = run(piece.count, true);
        // Parts of several files have no common number.
        let is_even = part.plan.written.len() == self.world.size();
        if !(self.config.wear_out && self.config.stonewall.is_some() && is_even) {
            return Ok(problem);
        }
        report.at_wall = Some((count, nanoseconds(begun.elapsed())));
        let most = self.world.reduce(&[count], u64::max)?.first().copied().unwrap_or(0);
        if problem.is_some() {
            return Ok(problem);
        }
        Ok(run(most.min(piece.count), false).1)
    }

    /// Which transfers of a rank read, in a phase that mixes them.
    fn mix(&self, part: &Part, owner: usize) -> Option<Mix> {
        let percent = self.config.mix_reads.filter(|_| part.phase == StreamPhase::Mixed)?;
        Some(Mix::new(percent, mixed(self.config.seed ^ (u64::from(part.number) << 32) ^ owner as u64)))
    }

    fn optional_barrier(&mut self, is_here: bool) -> Result<(), RankError> {
        if self.config.barriers && is_here {
            self.world.barrier()?;
        }
        Ok(())
    }

    fn cannot_prepare(&self, path: &Path, error: &io::Error) -> Failure {
        Failure::of_file(&format!("prepare transfers to {}", path.display()), error)
    }
}

/// One file of a part.
#[derive(Clone, Copy)]
struct OneFile<'p> {
    part: &'p Part,
    piece: Piece,
    /// Nothing is done in it.
    is_idle: bool,
    /// Whether it is the first one, and the last one.
    ends: (bool, bool),
    /// Begin of the phase.
    begun: Instant,
}

fn of_files(message: String) -> Failure {
    Failure { kind: FailureKind::File, message }
}

/// `is_own` says that this run wrote the file.
fn of_transfer(
    error: &TransferError,
    path: &Path,
    file: &std::fs::File,
    bytes: u64,
    is_own: bool,
) -> Failure {
    let path = path.display();
    let message = match error {
        TransferError::System { offset, error } if error.kind() == io::ErrorKind::UnexpectedEof => {
            let there = file.metadata().map_or(0, |found| found.len());
            let end = offset.saturating_add(bytes);
            // The part of the transfer that is not there.
            let lost = there.clamp(*offset, end);
            match (lost == end, is_own) {
                (true, _) => format!(
                    "{path} at offset {offset}: the file system returns less than {bytes} bytes, though the file has {there}"
                ),
                (false, true) => format!(
                    "{path} has {there} bytes: what this run wrote at offset {lost} was acknowledged, and is lost"
                ),
                (false, false) => format!(
                    "{path} has {there} bytes and ends before offset {end}: it is shorter than what was written, or of \
                     another shape than the options say"
                ),
            }
        }
        TransferError::System { offset, error } => {
            let message = format!("{path} at offset {offset}: {error}{}", hint(error, file));
            return Failure { kind: FailureKind::of_file(error), message };
        }
        TransferError::Damaged(difference) => format!(
            "{path} differs at offset {}: {:#04x} instead of {:#04x}",
            difference.offset, difference.found, difference.expected
        ),
    };
    of_files(message)
}

/// What to do about an error that does not say it.
fn hint(error: &io::Error, file: &std::fs::File) -> String {
    let is_direct =
        rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::DIRECT));
    if is_direct && error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) {
        let block = file.metadata().map_or(4096, |found| std::os::unix::fs::MetadataExt::blksize(&found));
        return format!(
            " (--direct needs transfers, blocks and offsets that are a multiple of what the disk has: try a multiple \
             of {block})"
        );
    }
    String::new()
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
