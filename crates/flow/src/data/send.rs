//! Stream send loops, by method.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    net::Shutdown,
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::flow::SendMethod;
use clearstream_sys::{memory::Buffer, socket, splice::Pipe, uring::Direction, uring::UringStream};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};

use super::{
    gate::Outcome,
    worker::{BurstPacer, Loop},
};

/// Concurrent sends with io_uring.
const IN_FLIGHT: usize = 4;
/// Zero-copy sends between two reads of the error queue.
const SENDS_PER_ERROR_QUEUE_READ: u64 = 16;
/// Maximum wait for outstanding zero-copy completions at the end.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends until stopped or complete, then shuts the stream down.
pub(super) fn stream(context: &Loop<'_>, method: SendMethod, buffer: Buffer) -> Outcome {
    let outcome = match method {
        SendMethod::Copy => copy(context, &buffer),
        SendMethod::Zerocopy => zerocopy(context, &buffer),
        SendMethod::Sendfile => from_file(context, &buffer),
        SendMethod::Splice => through_pipe(context, &buffer),
        SendMethod::IoUring => ring(context, buffer),
    };
    match outcome {
        Ok(outcome) => {
            // Fails when the connection has ended meanwhile: nothing is left to do.
            drop(context.socket.shutdown(Shutdown::Write));
            outcome
        }
        Err(error) => context.failed(error),
    }
}

/// Performs one transfer after the other.
#[inline]
fn repeat(context: &Loop<'_>, mut transfer: impl FnMut(usize) -> io::Result<usize>) -> io::Result<Outcome> {
    let Loop { task, counters, gate, .. } = context;
    let limit = task.limit.unwrap_or(u64::MAX);
    let mut total = 0u64;
    let mut burst_pacer = BurstPacer::start(gate, task.burst);
    gate.begin();
    while !gate.is_expired() {
        let length = usize::try_from(limit - total).unwrap_or(usize::MAX).min(task.transfer.get());
        match transfer(length) {
            Ok(sent) => total += sent as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        counters.moved(total);
        if total == limit {
            return Ok(Outcome::Sent);
        }
        burst_pacer.after_transfer();
    }
    Ok(Outcome::Stopped)
}

fn copy(context: &Loop<'_>, buffer: &Buffer) -> io::Result<Outcome> {
    repeat(context, |length| context.socket.send_with_flags(&buffer[..length], libc_flags::NO_SIGNAL))
}

/// Flags of send(2).
mod libc_flags {
    /// `MSG_NOSIGNAL`: a closed connection is an error, not a signal.
    pub(super) const NO_SIGNAL: i32 = rustix::net::SendFlags::NOSIGNAL.bits() as i32;
}

fn zerocopy(context: &Loop<'_>, buffer: &Buffer) -> io::Result<Outcome> {
    let mut sends = 0u64;
    let take = || -> io::Result<bool> {
        let mut any = false;
        while let Some(count) = socket::take_zerocopy_completions(context.socket)? {
            context.counters.completed(count);
            any = true;
        }
        Ok(any)
    };
    let outcome = repeat(context, |length| {
        loop {
            match socket::send_zerocopy(context.socket, &buffer[..length]) {
                // msg_zerocopy.rst: too many completions outstanding for
                // net.core.optmem_max or locked memory.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                    if !take()? {
                        thread::sleep(Duration::from_micros(50));
                    }
                    if context.gate.is_expired() {
                        return Ok(0);
                    }
                }
                Ok(sent) => {
                    sends += 1;
                    if sends.is_multiple_of(SENDS_PER_ERROR_QUEUE_READ) {
                        take()?;
                    }
                    return Ok(sent);
                }
                Err(error) => return Err(error),
            }
        }
    });
    let until = Instant::now() + COMPLETION_TIMEOUT;
    while outcome.is_ok() && context.counters.completions() < sends && Instant::now() < until {
        if !take()? {
            thread::sleep(Duration::from_millis(1));
        }
    }
    outcome
}

fn from_file(context: &Loop<'_>, buffer: &Buffer) -> io::Result<Outcome> {
    let mut file = File::from(memfd_create("clearstream-data", MemfdFlags::CLOEXEC)?);
    file.write_all(buffer)?;
    repeat(context, |length| {
        let mut offset = 0;
        Ok(sendfile(context.socket, &file, Some(&mut offset), length)?)
    })
}

fn through_pipe(context: &Loop<'_>, buffer: &Buffer) -> io::Result<Outcome> {
    let pipe = Pipe::open()?;
    repeat(context, |length| pipe.send(buffer, length, context.socket))
}

fn ring(context: &Loop<'_>, first: Buffer) -> io::Result<Outcome> {
    let Loop { task, counters, gate, .. } = context;
    let limit = task.limit.unwrap_or(u64::MAX);
    let mut buffers = vec![first];
    while buffers.len() < IN_FLIGHT {
        buffers.push(Buffer::new(task.transfer.get(), task.node)?);
    }
    let mut stream = UringStream::new(context.descriptor()?, Direction::Send, buffers)?;
    let mut burst_pacer = BurstPacer::start(gate, task.burst);
    let (mut total, mut failed) = (0u64, None);
    gate.begin();
    stream.start(limit)?;
    loop {
        let in_flight = stream.wait(|result| match result {
            Ok(sent) => {
                total += sent as u64;
                !gate.is_expired()
            }
            Err(error) => {
                failed.get_or_insert(error);
                false
            }
        })?;
        counters.moved(total);
        if in_flight == 0 {
            break;
        }
        burst_pacer.after_transfer();
    }
    match failed {
        Some(error) => Err(error),
        None if total >= limit => Ok(Outcome::Sent),
        None => Ok(Outcome::Stopped),
    }
}
