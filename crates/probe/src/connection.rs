//! One TCP connection of the responder: messages in, answers out, without
//! blocking and with bounded memory.

use std::{
    io::{self, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use clearstream_sys::timestamp;
use rustix::event::PollFlags;

use crate::{
    order::Order,
    wire::{HEADER_BYTES, Header, Secret},
};

/// Time to present the cookie.
const IDENTIFY_WITHIN: Duration = Duration::from_secs(2);
/// Longest silence of one that did; longer than any interval between probes.
const SILENT_AT_MOST: Duration = Duration::from_secs(120);

pub(crate) struct Connection {
    stream: TcpStream,
    /// Bytes of messages not yet complete.
    incoming: Vec<u8>,
    /// Answers not yet taken by the kernel. While there are some, nothing is
    /// read: a peer that does not read its answers is not asked for more.
    outgoing: Vec<u8>,
    identified: bool,
    order: Order,
    deadline: Instant,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, now: Instant) -> Self {
        Self {
            stream,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            identified: false,
            order: Order::default(),
            deadline: now + IDENTIFY_WITHIN,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What to wait for.
    pub(crate) fn interest(&self) -> PollFlags {
        if self.outgoing.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// True when it has been silent for too long.
    pub(crate) fn overdue(&self, now: Instant) -> bool {
        now > self.deadline
    }

    /// Reads and answers what there is. An error means: close.
    pub(crate) fn advance(&mut self, secret: &Secret, buffer: &mut [u8]) -> io::Result<()> {
        if !self.outgoing.is_empty() {
            return self.flush();
        }
        let received = match timestamp::receive(&self.stream, buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            other => other?,
        };
        if received.length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // What waited for a retransmission was not there when it was stamped.
        let stamp = received.stamp_ns.filter(|_| self.order.is_kept(&self.stream));
        let arrived_ns = stamp.unwrap_or_else(timestamp::now_ns);
        self.incoming.extend_from_slice(&buffer[..received.length]);
        let mut done = 0;
        while self.incoming.len() - done >= HEADER_BYTES {
            let rest = &self.incoming[done..];
            let probe = Header::read(secret, rest)
                .filter(|probe| !probe.answer)
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
            if !self.identified {
                self.identified = true;
                self.deadline = Instant::now() + SILENT_AT_MOST;
            }
            let size = probe.size as usize;
            if rest.len() < size {
                break;
            }
            let at = self.outgoing.len();
            self.outgoing.resize(at + probe.answer_size(), 0);
            // One stamp stands for all messages of one read.
            let answer = Header {
                answer: true,
                turnaround_ns: timestamp::now_ns().saturating_sub(arrived_ns),
                ..probe
            };
            answer.write(secret, &mut self.outgoing[at..]);
            done += size;
        }
        self.incoming.drain(..done);
        if done > 0 {
            self.deadline = Instant::now() + SILENT_AT_MOST;
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
