//! One io_uring with the table of held memory: each call submits requests that the kernel carries out within it.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use io_uring::{IoUring, opcode, squeue, types::Fd};
use rustix::pipe::{PipeFlags, pipe_with};
use smallvec::SmallVec;

use super::super::exchange::{EXCHANGE_BYTES, Exchange};

/// Requests of one call.
pub(in crate::memory) const REQUESTS: usize = 64;
/// Bytes that an empty pipe takes at once (pipe(7); with less, part after part is copied).
const PIPE_BYTES: usize = 64 * 1024;

/// A range of held memory: the entry of the table, the address that it was registered by, and its length.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory) struct Part {
    pub(super) slot: u16,
    pub(super) address: usize,
    pub(in crate::memory) length: u32,
}

/// What is sent by one call.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory) enum Outgoing<'a> {
    /// Plain bytes.
    Bytes(&'a [u8]),
    /// Held memory.
    Part(Part),
}

/// `RWF_NOSIGNAL` (include/uapi/linux/fs.h): no SIGPIPE.
const NO_SIGNAL: i32 = 0x100;

/// What was received by one call; nothing means that the peer closed the connection.
#[derive(Debug, Default)]
pub struct Received {
    /// Bytes in the spans, from the first one on.
    pub straight: usize,
    /// Bytes that follow them, in the staging buffer: also where the spans are not full.
    pub staged: usize,
    /// What the socket said after these bytes: it says it once.
    pub error: Option<io::Error>,
}

pub(super) struct Ring {
    pub(super) uring: IoUring,
    exchange: Exchange,
    pipe: (OwnedFd, OwnedFd),
    /// The kernel did not take requests that were written into the ring: it is not used again, for it could carry them
    /// out later.
    pub(super) is_broken: bool,
}

impl Ring {
    pub(super) fn new() -> io::Result<Self> {
        // Completions are taken by the call that submits: nobody has to be interrupted for them (io_uring_setup(2)).
        let uring = IoUring::builder().dontfork().setup_coop_taskrun().build(REQUESTS as u32)?;
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { uring, exchange: Exchange::new()?, pipe, is_broken: false })
    }

    /// Carries out requests; their results are in their order.
    ///
    /// # Safety
    /// What the requests refer to is there until this returns.
    unsafe fn run(&mut self, requests: &[squeue::Entry]) -> io::Result<SmallVec<[i32; 4]>> {
        if self.is_broken {
            return Err(broken());
        }
        let mut results: SmallVec<[i32; 4]> = SmallVec::from_elem(-libc::ECANCELED, requests.len());
        {
            let mut queue = self.uring.submission();
            for (index, request) in requests.iter().enumerate() {
                // SAFETY: upheld by the caller.
                if unsafe { queue.push(&request.clone().user_data(index as u64)) }.is_err() {
                    // Nothing was submitted of them.
                    self.is_broken = true;
                    return Err(broken());
                }
            }
        }
        let mut left = requests.len();
        while left > 0 {
            match self.uring.submit_and_wait(left) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(_) => {
                    self.is_broken = true;
                    // Those that the kernel has taken may still write to their memory. None of them waits for anything.
                    let untaken = self.uring.submission().len();
                    while left > untaken {
                        left -= self.uring.completion().count().min(left);
                        std::thread::yield_now();
                    }
                    return Err(broken());
                }
            }
            for completion in self.uring.completion() {
                if let Some(result) = results.get_mut(completion.user_data() as usize) {
                    *result = completion.result();
                }
                left = left.saturating_sub(1);
            }
        }
        Ok(results)
    }

    /// Receives by one call that does not block: into the parts, in order, and the rest into `staging`.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        parts: &[Part],
        staging: &mut [u8],
    ) -> io::Result<Received> {
        let socket = Fd(socket.as_raw_fd());
        let mut requests = SmallVec::<[squeue::Entry; 4]>::new();
        for part in parts.iter().take(REQUESTS - 1) {
            let request = opcode::ReadFixed::new(socket, part.address as *mut u8, part.length, part.slot)
                .offset(u64::MAX)
                .rw_flags(libc::RWF_NOWAIT)
                .build();
            // What follows a part is not carried out if that was short: its bytes would leave a gap.
            requests.push(if parts.len() > 1 { request.flags(squeue::Flags::IO_LINK) } else { request });
        }
        if parts.len() < REQUESTS {
            let length = u32::try_from(staging.len()).unwrap_or(u32::MAX);
            let flags = libc::MSG_DONTWAIT;
            requests.push(opcode::Recv::new(socket, staging.as_mut_ptr(), length).flags(flags).build());
        }
        // SAFETY: held memory is there as long as its slot, which the caller's guard keeps; staging is borrowed.
        let results = unsafe { self.run(&requests)? };
        let mut received = Received::default();
        let mut nothing = true;
        for (index, result) in results.into_iter().enumerate() {
            match usize::try_from(result) {
                Ok(bytes) => {
                    let into =
                        if index < parts.len() { &mut received.straight } else { &mut received.staged };
                    *into += bytes;
                    nothing = false;
                }
                // The requests behind a short one of several, too.
                Err(_) if matches!(-result, libc::EAGAIN | libc::ECANCELED) => {}
                Err(_) => {
                    received.error = Some(io::Error::from_raw_os_error(-result));
                    break;
                }
            }
        }
        match received.error.take() {
            Some(error) if received.straight + received.staged == 0 => Err(error),
            error => {
                received.error = error;
                if nothing { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(received) }
            }
        }
    }

    /// Sends by one call that does not block; returns the number of bytes that the socket took.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        pieces: &[Outgoing<'_>],
        more: bool,
    ) -> io::Result<usize> {
        let file = Fd(socket.as_raw_fd());
        let pieces = &pieces[..pieces.len().min(REQUESTS)];
        let mut requests = SmallVec::<[squeue::Entry; 32]>::new();
        for (index, piece) in pieces.iter().enumerate() {
            let is_last = index + 1 == pieces.len();
            let request = match piece {
                Outgoing::Bytes(bytes) => {
                    // Short or not at all is one and the same to what follows: with `MSG_WAITALL` it is not sent.
                    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
                    let flags = if is_last && !more { flags } else { flags | libc::MSG_MORE };
                    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    opcode::Send::new(file, bytes.as_ptr(), length).flags(flags).build()
                }
                Outgoing::Part(part) => {
                    opcode::WriteFixed::new(file, part.address as *const u8, part.length, part.slot)
                        .offset(u64::MAX)
                        .rw_flags(libc::RWF_NOWAIT | NO_SIGNAL)
                        .build()
                }
            };
            requests.push(if is_last { request } else { request.flags(squeue::Flags::IO_LINK) });
        }
        // Segments are filled across the pieces, which have no `MSG_MORE` of their own (tcp(7)).
        let corks = pieces.len() > 1;
        if corks {
            rustix::net::sockopt::set_tcp_cork(socket, true)?;
        }
        // SAFETY: plain bytes are borrowed; held memory is there as long as its slot, which the caller's guard keeps.
        let results = unsafe { self.run(&requests) };
        if corks {
            // What was sent is counted, whatever becomes of the socket.
            let _ = rustix::net::sockopt::set_tcp_cork(socket, false);
        }
        let mut sent = 0;
        for (index, (result, piece)) in results?.into_iter().zip(pieces).enumerate() {
            let length = match piece {
                Outgoing::Bytes(bytes) => bytes.len(),
                Outgoing::Part(part) => part.length as usize,
            };
            match usize::try_from(result) {
                Ok(bytes) => {
                    sent += bytes;
                    if bytes < length {
                        break;
                    }
                }
                Err(_) if index > 0 && matches!(-result, libc::EAGAIN | libc::ECANCELED) => break,
                Err(_) => return Err(io::Error::from_raw_os_error(-result)),
            }
        }
        Ok(sent)
    }

    /// Whether a write that must not raise a signal is possible, of eight held bytes.
    pub(super) fn writes_without_signal(&mut self, address: usize) -> bool {
        let pipe = Fd(self.pipe.1.as_raw_fd());
        let request = opcode::WriteFixed::new(pipe, address as *const u8, 8, 0).offset(u64::MAX);
        // SAFETY: the caller holds them.
        let results = unsafe { self.run(&[request.rw_flags(libc::RWF_NOWAIT | NO_SIGNAL).build()]) };
        let written = results.is_ok_and(|results| results[0] == 8);
        written && rustix::io::read(&self.pipe.0, &mut [0; 8]).is_ok_and(|bytes| bytes == 8)
    }

    /// Copies bytes into parts, in order.
    pub(super) fn place(&mut self, parts: &[Part], bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes;
        let mut parts = parts.iter().copied();
        let mut next = parts.next();
        while next.is_some() {
            let (mut requests, mut filled) = (SmallVec::<[squeue::Entry; 4]>::new(), 0);
            while let Some(part) = next
                && requests.len() < REQUESTS
                && filled < EXCHANGE_BYTES
            {
                let now = (part.length as usize).min(EXCHANGE_BYTES - filled);
                let (first, later) = bytes.split_at(now);
                self.exchange.fill(filled, first);
                bytes = later;
                let file = Fd(self.exchange.file().as_raw_fd());
                let request = opcode::ReadFixed::new(file, part.address as *mut u8, now as u32, part.slot);
                requests.push(request.offset(filled as u64).build());
                filled += now;
                next = if now < part.length as usize { Some(part.after(now)) } else { parts.next() };
            }
            // SAFETY: held memory is there as long as its slot, which the caller's guard keeps.
            let results = unsafe { self.run(&requests)? };
            let copied: usize = results.iter().map(|result| usize::try_from(*result).unwrap_or(0)).sum();
            if copied != filled {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Copies bytes out of a part.
    pub(super) fn fetch(&mut self, part: Part, into: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        let (mut part, mut into) = (part, into);
        while !into.is_empty() {
            let length = into.len().min(PIPE_BYTES) as u32;
            let (from, to) = (Fd(self.pipe.0.as_raw_fd()), Fd(self.pipe.1.as_raw_fd()));
            let write = opcode::WriteFixed::new(to, part.address as *const u8, length, part.slot);
            let read = opcode::Read::new(from, into.as_mut_ptr().cast(), length);
            // Requests without a link are carried out one after the other as long as none has to wait.
            let requests = [
                write.offset(u64::MAX).rw_flags(libc::RWF_NOWAIT).build(),
                read.offset(u64::MAX).rw_flags(libc::RWF_NOWAIT).build(),
            ];
            // SAFETY: as in `place`; `into` is exclusive, and of that length.
            let results = unsafe { self.run(&requests)? };
            let bytes = |result: i32| usize::try_from(result).unwrap_or(0);
            let (written, read) = (bytes(results[0]), bytes(results[1]));
            if read != written {
                // What is left in the pipe would be the next one's.
                self.is_broken = true;
            }
            if read != written || read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into = &mut into[read..];
            part = part.after(read);
        }
        Ok(())
    }
}

/// As of memory that is gone: it ends the connection, whose socket has nothing to do with it.
pub(super) fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the kernel took no requests of held memory")
}

impl Part {
    /// What is behind its first bytes.
    fn after(self, bytes: usize) -> Self {
        Self { slot: self.slot, address: self.address + bytes, length: self.length - bytes as u32 }
    }
}
