//! One TCP connection of the responder: reads probes and writes replies, without blocking and with bounded
//! memory.

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

/// Maximum time to present the cookie.
pub(crate) const COOKIE_TIMEOUT: Duration = Duration::from_secs(2);
/// Idle timeout of an authenticated connection; longer than any interval between probes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct Connection {
    stream: TcpStream,
    /// Bytes of messages not yet complete.
    incoming: Vec<u8>,
    /// Replies not yet accepted by the kernel. While there are some, nothing is read: a peer that does not
    /// read its replies gets no further ones.
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
            deadline: now + COOKIE_TIMEOUT,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Poll events of interest.
    pub(crate) fn interest(&self) -> PollFlags {
        if self.outgoing.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Whether it has presented the cookie.
    pub(crate) fn identified(&self) -> bool {
        self.identified
    }

    /// Whether it has been idle for too long.
    pub(crate) fn overdue(&self, now: Instant) -> bool {
        now > self.deadline
    }

    /// Reads and replies to everything available. On an error the connection is closed.
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
        // Data that waited for a retransmission was not readable when it was timestamped.
        let stamp = received.stamp_ns.filter(|_| self.order.is_in_order(&self.stream));
        let arrived_ns = stamp.unwrap_or_else(timestamp::now_ns);
        self.incoming.extend_from_slice(&buffer[..received.length]);
        let mut done = 0;
        while self.incoming.len() - done >= HEADER_BYTES {
            let rest = &self.incoming[done..];
            let probe = Header::read(secret, rest)
                .filter(|probe| !probe.is_reply)
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
            if !self.identified {
                self.identified = true;
                self.deadline = Instant::now() + IDLE_TIMEOUT;
            }
            let size = probe.size as usize;
            if rest.len() < size {
                break;
            }
            let at = self.outgoing.len();
            self.outgoing.resize(at + probe.reply_size(), 0);
            // One timestamp covers all messages of one read.
            let reply = Header {
                is_reply: true,
                turnaround_ns: timestamp::now_ns().saturating_sub(arrived_ns),
                ..probe
            };
            reply.write(secret, &mut self.outgoing[at..]);
            done += size;
        }
        self.incoming.drain(..done);
        if done > 0 {
            self.deadline = Instant::now() + IDLE_TIMEOUT;
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
