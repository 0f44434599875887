//! The log of single operations (`--operations FILE`): rank, place, begin and end of each as a line of CSV.
//!
//! Ranks keep records in memory, up to a bound, and make text of them between phases: nothing is written while a phase
//! runs, and an operation's time ends before it is recorded. Times are taken by the counter that latencies are of, put on
//! `CLOCK_MONOTONIC` by both ends of the phase, and on rank 0's by where the clocks stood there ([`crate::clock`]).
//! Rank 0 has the file, and asks one rank after the other for its lines.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use clearstream_ranks::{RankError, THREADS_TRANSPORT, Tag, World};
use clearstream_schema::{control::Failure, human, notice::Notice};
use clearstream_sys::file;
use quanta::Instant;

use crate::{
    clock::{self, Shift, Spans},
    collective::share,
};

/// The columns.
const HEAD: &str = "rank,phase,iteration,operation,file,offset,bytes,begin_ns,end_ns";
/// Tag of lines on their way to rank 0.
const LINES: Tag = Tag(u8::MAX - 2);
/// Bytes of one message of lines.
const PIECE_BYTES: usize = 64 << 10;
/// Records of a phase in one process, of 40 bytes each; what is more is counted, and lost.
const RECORDS_MAX: usize = 8 << 20;
/// Of both clocks at each end of a phase.
const READINGS: usize = 5;
/// Of a process of an MPI job, which has others beside it on its host.
const RECORDS_MAX_OF_PROCESS: usize = 1 << 20;

/// Memory for so many operations of a phase, of each of so many ranks of one process.
pub(crate) fn room_bytes(ranks: usize, expected: u64) -> u64 {
    let max = (RECORDS_MAX / ranks.max(1)) as u64;
    expected.min(max).saturating_mul(size_of::<Record>() as u64)
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
    /// Offset in the file, or number of the item.
    pub(crate) place: u64,
    /// Number of the file, as the caller counts them.
    pub(crate) file: u32,
    /// At most 1 GiB.
    pub(crate) bytes: u32,
    pub(crate) operation: Operation,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Open,
    Write,
    Read,
    Flush,
    Close,
    Create,
    Stat,
    Rename,
    Remove,
}

impl Operation {
    /// Whether it is of a part of a file.
    pub(crate) fn is_transfer(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Write => "write",
            Self::Read => "read",
            Self::Flush => "fsync",
            Self::Close => "close",
            Self::Create => "create",
            Self::Stat => "stat",
            Self::Rename => "rename",
            Self::Remove => "remove",
        }
    }
}

/// What a rank did in one phase.
#[derive(Debug)]
pub(crate) struct Records {
    all: Vec<Record>,
    max: usize,
    lost: u64,
    /// Around the phase.
    ends: (Anchor, Anchor),
}

/// An instant of the counter, and the kernel's clock then.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    at: Instant,
    clock: u64,
}

impl Anchor {
    /// The closest of some readings: others may be interrupted.
    fn now() -> Self {
        let reading = || {
            let (before, clock, behind) = (Instant::now(), clock::now(), Instant::now());
            let within = behind.saturating_duration_since(before);
            (within, Self { at: before + within / 2, clock })
        };
        let (mut within, mut found) = reading();
        for _ in 1..READINGS {
            let other = reading();
            if other.0 < within {
                (within, found) = other;
            }
        }
        found
    }
}

impl Records {
    /// Adds one, behind the end of its time.
    pub(crate) fn add(&mut self, record: Record) {
        if self.all.len() < self.max {
            self.all.push(record);
        } else {
            self.lost += 1;
        }
    }

    /// The phase begins behind this.
    pub(crate) fn begin(&mut self) {
        self.ends.0 = Anchor::now();
    }

    /// The phase has ended before this.
    pub(crate) fn end(&mut self) {
        self.ends.1 = Anchor::now();
    }
}

/// Which phase lines are of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoggedPhase<'a> {
    /// As in the document: `write`, `file create`.
    pub(crate) name: &'a str,
    pub(crate) iteration: u32,
}

/// What the columns `file`, `offset` and `bytes` say of a record.
#[derive(Debug)]
pub(crate) struct Item {
    /// Path from the directory of the measurement.
    pub(crate) file: String,
    /// Absent where the operation is on the whole file.
    pub(crate) offset: Option<u64>,
}

/// The log, as each rank has it.
#[derive(Debug)]
pub(crate) struct OperationsLog {
    /// At rank 0.
    out: Option<Out>,
    /// Rank 0's clock when the run began: times are since then.
    zero: u64,
    lost: u64,
    max: usize,
}

#[derive(Debug)]
struct Out {
    path: PathBuf,
    file: BufWriter<File>,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl OperationsLog {
    /// Makes the file at rank 0, where one was requested; all ranks call it together.
    ///
    /// # Errors
    /// Of the ranks; and, the same one at every rank, why there is no file.
    pub(crate) fn open(
        world: &mut dyn World,
        path: Option<&str>,
    ) -> Result<Result<Option<Self>, Failure>, RankError> {
        let Some(path) = path else { return Ok(Ok(None)) };
        let mut out = None;
        let made = (world.rank() == 0).then(|| {
            let made = Out::create(Path::new(path));
            made.map(|made| out = Some(made)).map(|()| clock::now())
        });
        let zero = share(world, made.as_ref())?;
        let max = match world.transport() == THREADS_TRANSPORT {
            true => RECORDS_MAX / world.size(),
            false => RECORDS_MAX_OF_PROCESS,
        };
        Ok(zero.map(|zero| Some(Self { out, zero, lost: 0, max })))
    }

    /// Room for a phase of so many operations. Its pages are taken when they are written.
    pub(crate) fn records(&self, expected: u64) -> Records {
        let now = Anchor::now();
        let room = usize::try_from(expected).unwrap_or(usize::MAX).min(self.max);
        Records { all: Vec::with_capacity(room), max: self.max, lost: 0, ends: (now, now) }
    }

    /// Writes what all ranks did in a phase; they call it together, rank 0 with the spans of the phase.
    ///
    /// # Errors
    /// Of the ranks; and at rank 0 why the file cannot be written.
    pub(crate) fn write(
        &mut self,
        world: &mut dyn World,
        spans: Option<&Spans>,
        phase: LoggedPhase<'_>,
        records: &Records,
        item: impl Fn(&Record) -> Item,
    ) -> Result<Result<(), Failure>, RankError> {
        self.lost += world.reduce(&[records.lost], |one, other| one + other)?.first().copied().unwrap_or(0);
        let shifts = share(world, spans.map(|spans| &spans.shifts))?;
        let rank = world.rank();
        let of_rank = shifts.get(rank).copied().unwrap_or_default();
        let lines = Lines { rank, phase, records, zero: self.zero, shift: of_rank, item };
        let Some(out) = &mut self.out else {
            world.receive_next(LINES)?;
            let mut sent = Ok(());
            lines.each_piece(|piece| {
                if sent.is_ok() {
                    sent = world.send(0, LINES, piece.to_vec());
                }
            });
            sent?;
            world.send(0, LINES, Vec::new())?;
            return Ok(Ok(()));
        };
        lines.each_piece(|piece| out.write(piece));
        for rank in 1..world.size() {
            world.send(rank, LINES, Vec::new())?;
            loop {
                let piece = world.receive_next(LINES)?.bytes;
                if piece.is_empty() {
                    break;
                }
                out.write(&piece);
            }
        }
        Ok(out.flush())
    }

    /// What to know of it at the end.
    pub(crate) fn notice(&self) -> Option<Notice> {
        let message = format!(
            "{} are not in the log of operations: a rank keeps {} of a phase in memory",
            human::count(self.lost, "operation"),
            self.max
        );
        (self.lost > 0).then(|| Notice { id: "operations-lost".to_owned(), message })
    }
}

impl Out {
    fn create(path: &Path) -> Result<Self, Failure> {
        let file = file::create(path);
        let file = file.map_err(|error| Failure::of_file(&format!("make {}", path.display()), &error))?;
        let mut out = Self { path: path.to_owned(), file: BufWriter::new(file), failed: None };
        out.write(HEAD.as_bytes());
        out.write(b"\n");
        out.flush().map(|()| out)
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(bytes).err();
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.failed.is_none() {
            self.failed = self.file.flush().err();
        }
        let what = || format!("write {}", self.path.display());
        self.failed.as_ref().map_or(Ok(()), |error| Err(Failure::of_file(&what(), error)))
    }
}

/// What becomes the lines of a rank.
struct Lines<'a, F> {
    rank: usize,
    phase: LoggedPhase<'a>,
    records: &'a Records,
    zero: u64,
    shift: Shift,
    item: F,
}

impl<F: Fn(&Record) -> Item> Lines<'_, F> {
    fn each_piece(&self, mut take: impl FnMut(&[u8])) {
        let mut text = String::with_capacity(PIECE_BYTES + 256);
        for record in &self.records.all {
            self.line(record, &mut text);
            if text.len() >= PIECE_BYTES {
                take(text.as_bytes());
                text.clear();
            }
        }
        if !text.is_empty() {
            take(text.as_bytes());
        }
    }

    fn line(&self, record: &Record, text: &mut String) {
        use std::fmt::Write as _;
        let Item { file, offset } = (self.item)(record);
        let (phase, iteration) = (self.phase.name, self.phase.iteration);
        let _ = write!(text, "{},{phase},{iteration},{},", self.rank, record.operation.name());
        field(&file, text);
        text.push(',');
        if let Some(offset) = offset {
            let _ = write!(text, "{offset}");
        }
        let (begin, end) = (self.time(record.begin), self.time(record.end));
        let _ = writeln!(text, ",{},{begin},{end}", record.bytes);
    }

    /// Nanoseconds of rank 0's clock since the run began.
    fn time(&self, at: Instant) -> i64 {
        let (first, last) = self.records.ends;
        let since = at.saturating_duration_since(first.at).as_nanos() as f64;
        let whole = last.at.saturating_duration_since(first.at).as_nanos() as f64;
        // The counter's rate is known to some parts in a million: both ends of the phase are of the kernel's clock.
        let part = if whole > 0.0 { since / whole } else { 0.0 };
        let own = (last.clock.saturating_sub(first.clock) as f64 * part).round() as i64;
        let since_zero = i128::from(first.clock) - i128::from(self.zero);
        i64::try_from(since_zero).unwrap_or(i64::MAX) + own - self.shift.at(part)
    }
}

/// A field as RFC 4180 has it (section 2, rules 5 to 7).
fn field(text: &str, out: &mut String) {
    if text.contains([',', '"', '\n', '\r']) {
        out.push('"');
        out.push_str(&text.replace('"', "\"\""));
        out.push('"');
    } else {
        out.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use clearstream_ranks::threads;

    use super::*;

    /// Three ranks, the third with a clock a thousand seconds ahead that gains a microsecond in the phase.
    #[test]
    fn lines_of_all_ranks_are_on_the_clock_of_the_first_and_what_has_no_room_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operations.csv");
        let ahead = 1_000_000_000_000;
        let notices = threads(3, |world| {
            let mut log = OperationsLog::open(world, path.to_str()).unwrap().unwrap().unwrap();
            let rank = world.rank();
            let mut records = log.records(10);
            records.max = 2;
            let first = Instant::now();
            let at = |us: u64| first + Duration::from_micros(us);
            for number in 0..=u32::from(rank == 1) + 1 {
                let begin = at(u64::from(number) * 10);
                let operation = if number == 0 { Operation::Open } else { Operation::Write };
                let (file, place) = (rank as u32, u64::from(number) * 512);
                let end = begin + Duration::from_micros(5);
                records.add(Record { begin, end, place, file, bytes: 512 * number, operation });
            }
            let of_rank = |us: u64| log.zero + us * 1000 + if rank == 2 { ahead } else { 0 };
            let begin = Anchor { at: at(0), clock: of_rank(1) };
            let end = Anchor { at: at(100), clock: of_rank(101) + u64::from(rank == 2) * 1000 };
            records.ends = (begin, end);
            let shifts = vec![
                Shift::default(),
                Shift::default(),
                Shift {
                    begin_ns: i64::try_from(ahead).unwrap(),
                    end_ns: i64::try_from(ahead).unwrap() + 1000,
                },
            ];
            let spans = Spans { shifts, ..Spans::default() };
            let phase = LoggedPhase { name: "write", iteration: 7 };
            let spans = (rank == 0).then_some(&spans);
            let item = |record: &Record| Item {
                file: format!("a \"b\",{}", record.file),
                offset: (record.operation != Operation::Open).then_some(record.place),
            };
            log.write(world, spans, phase, &records, item).unwrap().unwrap();
            log.notice()
        });
        let lines = |rank: u32| {
            format!(
                "{rank},write,7,open,\"a \"\"b\"\",{rank}\",,0,1000,6000\n\
                 {rank},write,7,write,\"a \"\"b\"\",{rank}\",512,512,11000,16000\n"
            )
        };
        let expected = format!("{HEAD}\n{}{}{}", lines(0), lines(1), lines(2));
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        for notice in notices.unwrap() {
            assert!(notice.unwrap().message.starts_with("1 operation"));
        }
    }

    #[test]
    fn a_file_that_cannot_be_made_or_written_is_named_at_every_rank_that_knows_it() {
        let failures = threads(2, |world| {
            OperationsLog::open(world, Some("/nowhere/operations.csv")).unwrap().unwrap_err()
        });
        for failure in failures.unwrap() {
            assert!(failure.message.contains("/nowhere/operations.csv"), "{failure}");
        }
        let failures =
            threads(2, |world| OperationsLog::open(world, Some("/dev/full")).unwrap().map(drop).unwrap_err());
        for failure in failures.unwrap() {
            assert!(failure.message.contains("No space left"), "{failure}");
        }
    }
}
