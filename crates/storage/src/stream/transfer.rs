//! The transfers of one rank to one file, by each back end.

use std::{
    fs::File,
    io,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use clearstream_schema::storage::{StreamBackend, StreamConfig, StreamPhase};
use clearstream_sys::{
    file::close,
    file_map::SharedFileMap,
    memory::Buffer,
    uring::{Direction, UringFile},
};
use quanta::Instant;

use super::{
    layout::Layout,
    memory::Memory,
    mix::Mix,
    pattern::{Difference, Pattern},
};
use crate::{
    data::{self, Source},
    kept::Piece,
    latency::Latency,
    live::Count,
    operations_log::{Operation, Record, Records},
};

/// What a rank does in a phase.
pub(super) struct Task<'a> {
    pub(super) config: &'a StreamConfig,
    pub(super) phase: StreamPhase,
    pub(super) layout: Layout,
    pub(super) piece: Piece,
    /// Number of transfers that a random order is of.
    pub(super) order_of: u64,
    pub(super) pattern: Option<Pattern>,
    /// Which transfers read, where some of them write.
    pub(super) mix: Option<Mix>,
    pub(super) stop: &'a AtomicBool,
    pub(super) deadline: Option<Instant>,
    pub(super) live: Count<'a>,
    /// Transfers of files before this one.
    pub(super) before: u64,
}

/// Why transfers ended before their end.
#[derive(Debug)]
pub(super) enum TransferError {
    System { offset: u64, error: io::Error },
    Damaged(Difference),
}

/// Time of the transfers, by direction where they are mixed.
#[derive(Debug, Default)]
pub(super) struct Times {
    pub(super) all: Latency,
    /// Of those that read.
    pub(super) mixed_reads: Option<Latency>,
}

impl Times {
    pub(super) fn new(phase: StreamPhase) -> Self {
        let mixed_reads = (phase == StreamPhase::Mixed).then(Latency::default);
        Self { all: Latency::default(), mixed_reads }
    }

    /// `all` has those that write, where there is a mix.
    fn add(&mut self, time: std::time::Duration, is_read: bool) {
        match &mut self.mixed_reads {
            Some(reads) if is_read => reads.add(time),
            _ => self.all.add(time),
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.all.merge(&other.all);
        if let (Some(own), Some(other)) = (&mut self.mixed_reads, &other.mixed_reads) {
            own.merge(other);
        }
    }
}

/// Transfers of a rank so far.
pub(super) struct Transfers<'a> {
    task: Task<'a>,
    access: Access,
    source: Option<Source>,
    times: Times,
    count: u64,
}

/// Transfers whose file is closed.
pub(super) struct Closed {
    pub(super) count: u64,
    pub(super) bytes: u64,
    times: Times,
    /// Freed with it, when the clock has stopped.
    _memory: (Vec<Buffer>, Option<Source>),
}

impl Closed {
    /// Latency of the transfers.
    pub(super) fn times(&self) -> &Times {
        &self.times
    }
}

/// Back end with its memory.
enum Access {
    Posix { file: File, buffer: Buffer },
    Mmap { file: File, buffer: Buffer, window: Option<Window> },
    Uring { file: File, ring: Box<UringFile>, begun: Vec<Begun> },
}

/// A block of a file that is mapped.
struct Window {
    start: u64,
    map: SharedFileMap,
    /// Bytes that the file had. Behind its end a page reads as zeros, without an error (mmap(2)).
    file_bytes: u64,
}

/// A transfer of a ring.
#[derive(Clone, Copy)]
struct Begun {
    at: Instant,
    offset: u64,
    is_read: bool,
}

impl<'a> Transfers<'a> {
    pub(super) fn new(file: File, mut memory: Memory, task: Task<'a>) -> io::Result<Self> {
        let access = match task.config.backend {
            StreamBackend::Posix => Access::Posix { file, buffer: memory.one()? },
            StreamBackend::Mmap => {
                if task.phase.writes() {
                    reserve(&file, task.layout.file_bytes())?;
                }
                Access::Mmap { file, buffer: memory.one()?, window: None }
            }
            StreamBackend::IoUring => {
                let none = Begun { at: Instant::now(), offset: 0, is_read: false };
                let begun = vec![none; memory.buffers.len()];
                let ring = Box::new(UringFile::new(file.try_clone()?.into(), memory.buffers)?);
                Access::Uring { file, ring, begun }
            }
        };
        Ok(Self { task, access, source: memory.source, times: memory.times, count: 0 })
    }

    /// Transfers done.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Closes the file: quotas and servers without space report there (close(2)).
    pub(super) fn close(self) -> (Closed, io::Result<()>) {
        let Self { task, access, source, times, count } = self;
        let (result, buffer) = match access {
            Access::Posix { file, buffer } => (close(file), Some(buffer)),
            Access::Mmap { file, buffer, window } => {
                drop(window);
                (close(file), Some(buffer))
            }
            Access::Uring { file, ring, .. } => {
                // It has the file open, too.
                drop(ring);
                (close(file), None)
            }
        };
        let memory = buffer.into_iter().collect();
        (Closed { count, bytes: count * task.config.transfer.0, times, _memory: (memory, source) }, result)
    }

    /// The file, to flush it.
    pub(super) fn file(&self) -> &File {
        match &self.access {
            Access::Posix { file, .. } | Access::Mmap { file, .. } | Access::Uring { file, .. } => file,
        }
    }

    /// Goes on until so many transfers are done, the deadline has passed or it is stopped.
    pub(super) fn run(
        &mut self,
        limit: u64,
        use_deadline: bool,
        log: &mut Option<Records>,
    ) -> Result<(), TransferError> {
        let deadline = self.task.deadline.filter(|_| use_deadline);
        if matches!(self.access, Access::Uring { .. }) {
            return self.run_ring(limit, deadline, log);
        }
        let mut now = Instant::now();
        while self.count < limit && !self.is_over(now, deadline) {
            if let Some(source) = self.source.as_mut().filter(|source| source.is_used()) {
                source.renew();
                now = Instant::now();
            }
            let is_read = self.task.is_read(self.count);
            self.one(is_read)?;
            let end = Instant::now();
            self.times.add(end - now, is_read);
            if let Some(log) = log {
                log.add(self.task.record(self.task.offset(self.count), is_read, now, end));
            }
            self.count += 1;
            self.task.live.set(self.task.before + self.count);
            // Neither the log nor the counter is in the time of the next one, where there is a log.
            now = if log.is_some() { Instant::now() } else { end };
        }
        Ok(())
    }

    fn is_over(&self, now: Instant, deadline: Option<Instant>) -> bool {
        self.task.stop.load(Relaxed) || deadline.is_some_and(|deadline| now >= deadline)
    }

    /// One transfer by a system call, or by memory.
    fn one(&mut self, is_read: bool) -> Result<(), TransferError> {
        let Self { task, access, source, count, .. } = self;
        let offset = task.offset(*count);
        let failed = |error| TransferError::System { offset, error };
        match access {
            Access::Posix { file, buffer } => match is_read {
                false => {
                    task.write(file, task.contents(offset, source, buffer), offset).map_err(failed)?;
                    match task.config.fsync_per_write {
                        true => file.sync_all().map_err(failed),
                        false => Ok(()),
                    }
                }
                true => {
                    task.read(file, buffer, offset).map_err(failed)?;
                    task.check(offset, buffer)
                }
            },
            Access::Mmap { file, buffer, window } => {
                let start = offset - offset % task.layout.block();
                if window.as_ref().is_none_or(|window| window.start != start) {
                    *window = None;
                    *window = Some(task.window(file, start).map_err(failed)?);
                }
                let Some(Window { map, file_bytes, .. }) = window else { return Ok(()) };
                if is_read && offset + buffer.len() as u64 > *file_bytes {
                    return Err(failed(io::ErrorKind::UnexpectedEof.into()));
                }
                let within = usize::try_from(offset - start).unwrap_or(usize::MAX);
                let is_writing = !is_read;
                // Without its page a copy would end the process (SIGBUS).
                let there = map.populate(within, buffer.len(), is_writing);
                there.map_err(|error| failed(cause_of_missing_page(file, offset, error)))?;
                match is_writing {
                    true => {
                        map.write(within, task.contents(offset, source, buffer));
                        let flush = task.config.fsync_per_write;
                        if flush { file.sync_all().map_err(failed) } else { Ok(()) }
                    }
                    false => {
                        map.read(within, buffer);
                        task.check(offset, buffer)
                    }
                }
            }
            Access::Uring { .. } => Ok(()),
        }
    }

    /// As many transfers in flight as the ring has buffers.
    fn run_ring(
        &mut self,
        limit: u64,
        deadline: Option<Instant>,
        log: &mut Option<Records>,
    ) -> Result<(), TransferError> {
        let Self { task, access: Access::Uring { file, ring, begun }, times, count, .. } = self else {
            return Ok(());
        };
        let (mut started, depth) = (*count, task.config.queue_depth as usize);
        let mut problem = None;
        loop {
            let is_over = |now| task.stop.load(Relaxed) || deadline.is_some_and(|deadline| now >= deadline);
            while problem.is_none() && started < limit && ring.in_flight() < depth && !is_over(Instant::now())
            {
                let Some(slot) = ring.free() else { break };
                let offset = task.offset(started);
                let failed = |error| TransferError::System { offset, error };
                let is_read = task.is_read(started);
                if !is_read && let Some(buffer) = ring.buffer(slot) {
                    task.refill(offset, started, buffer);
                }
                begun[slot] = Begun { at: Instant::now(), offset, is_read };
                let direction = if is_read { Direction::Receive } else { Direction::Send };
                ring.start(slot, direction, offset).map_err(failed)?;
                started += 1;
            }
            if ring.in_flight() == 0 {
                return problem.map_or(Ok(()), Err);
            }
            let mut done = Vec::new();
            ring.wait(|slot, result| done.push((slot, result)))
                .map_err(|error| TransferError::System { offset: 0, error })?;
            let now = Instant::now();
            for (slot, result) in done {
                let begun = begun[slot];
                times.add(now - begun.at, begun.is_read);
                if let Some(log) = log {
                    log.add(task.record(begun.offset, begun.is_read, begun.at, now));
                }
                match task.complete(file, ring, slot, begun, result) {
                    Ok(()) => *count += 1,
                    Err(error) => drop(problem.get_or_insert(error)),
                }
            }
            task.live.set(task.before + *count);
        }
    }
}

impl Task<'_> {
    /// Place of a transfer in its file.
    fn offset(&self, number: u64) -> u64 {
        self.layout.offset(self.piece.owner, self.piece.first + number, self.order_of)
    }

    fn window(&self, file: &File, start: u64) -> io::Result<Window> {
        let length = usize::try_from(self.layout.block()).unwrap_or(usize::MAX);
        let map = SharedFileMap::at(file.as_fd(), start, length)?;
        Ok(Window { start, map, file_bytes: file.metadata()?.len() })
    }

    /// Whether a transfer reads.
    fn is_read(&self, number: u64) -> bool {
        match &self.mix {
            Some(mix) => mix.reads(number),
            None => self.phase == StreamPhase::Read,
        }
    }

    /// Of the log of operations.
    fn record(&self, place: u64, is_read: bool, begin: Instant, end: Instant) -> Record {
        Record {
            begin,
            end,
            place,
            file: u32::try_from(self.piece.owner).unwrap_or(u32::MAX),
            // At most 1 GiB.
            bytes: u32::try_from(self.config.transfer.0).unwrap_or(u32::MAX),
            operation: if is_read { Operation::Read } else { Operation::Write },
        }
    }

    /// What a transfer writes: the next piece of the source, or the pattern of its place.
    fn contents<'b>(&self, offset: u64, source: &'b mut Option<Source>, buffer: &'b mut Buffer) -> &'b [u8] {
        match (source, self.pattern) {
            (Some(source), _) => source.next(),
            (None, Some(pattern)) => {
                pattern.fill(offset, buffer);
                buffer
            }
            (None, None) => buffer,
        }
    }

    /// What the next transfer of the ring writes.
    fn refill(&self, offset: u64, number: u64, buffer: &mut [u8]) {
        match self.pattern {
            Some(pattern) => pattern.fill(offset, buffer),
            None => data::renew_buffer(self.config.data, number ^ offset.rotate_left(32), buffer),
        }
    }

    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if !self.config.single_attempt {
            return file.write_all_at(bytes, offset);
        }
        whole(file.write_at(bytes, offset)?, bytes.len(), "pwrite(2)")
    }

    fn read(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if !self.config.single_attempt {
            return file.read_exact_at(bytes, offset);
        }
        whole(file.read_at(bytes, offset)?, bytes.len(), "pread(2)")
    }

    fn check(&self, offset: u64, buffer: &[u8]) -> Result<(), TransferError> {
        let difference = self.pattern.and_then(|pattern| pattern.difference(offset, buffer));
        difference.map_or(Ok(()), |difference| Err(TransferError::Damaged(difference)))
    }

    /// A transfer of the ring that has ended; what a short one left is done by system calls.
    fn complete(
        &self,
        file: &File,
        ring: &mut UringFile,
        slot: usize,
        Begun { offset, is_read, .. }: Begun,
        result: io::Result<usize>,
    ) -> Result<(), TransferError> {
        let failed = |error| TransferError::System { offset, error };
        let done = result.map_err(failed)?;
        let Some(buffer) = ring.buffer(slot) else { return Ok(()) };
        let behind = offset + done as u64;
        if self.config.single_attempt {
            whole(done, buffer.len(), "io_uring").map_err(failed)?;
        }
        match is_read {
            false => file.write_all_at(&buffer[done..], behind).map_err(failed),
            true => {
                file.read_exact_at(&mut buffer[done..], behind).map_err(failed)?;
                self.check(offset, buffer)
            }
        }
    }
}

/// With `--single-attempt` a part is an error.
fn whole(done: usize, asked: usize, call: &str) -> io::Result<()> {
    match done == asked {
        true => Ok(()),
        false => Err(io::Error::other(format!("{call} did {done} of {asked} bytes"))),
    }
}

/// Why a page of a mapping cannot be had: what reading it says, else what the kernel said of the page.
fn cause_of_missing_page(file: &File, offset: u64, error: io::Error) -> io::Error {
    match file.read_at(&mut [0], offset) {
        Err(cause) => cause,
        Ok(0) => io::ErrorKind::UnexpectedEof.into(),
        Ok(_) => error,
    }
}

/// Space for what is written through a mapping: a full disk would otherwise end the process (SIGBUS).
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        // Not every file system can.
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let length = file.metadata()?.len().max(bytes);
            file.set_len(length)
        }
        Err(error) => Err(error.into()),
    }
}
