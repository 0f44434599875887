//! TCP: a socket that is read and written without blocking when it is polled.
//! Between polls the kernel moves bytes up to the socket buffers.

use std::io;

use crate::Traffic;
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use socket2::Socket;

use super::{Counts, Transport};
use crate::overlap::engine::EngineError;

/// A connection with its slots.
#[derive(Debug)]
pub(crate) struct Tcp {
    socket: Socket,
    counts: Counts,
    size: usize,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// Bytes sent of the first message that is not complete.
    sent_bytes: usize,
    /// Bytes received, likewise.
    received_bytes: usize,
}

impl Tcp {
    pub(crate) fn new(socket: Socket, size: usize, window: u32) -> Self {
        let counts = Counts::new(window);
        Self {
            socket,
            counts,
            size,
            outgoing: vec![0; size * counts.send_slots()],
            incoming: vec![0; size * counts.receive_slots()],
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Writes until all posted messages are sent or the socket buffer is full.
    fn push(&mut self) -> Result<bool, EngineError> {
        let mut moved = false;
        while self.counts.sent < self.counts.sends_posted {
            let slot = self.size * self.counts.send_slot(self.counts.sent);
            let part = &self.outgoing[slot + self.sent_bytes..slot + self.size];
            match send(&self.socket, part, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(bytes) => self.sent_bytes += bytes,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(io::Error::from(error).into()),
            }
            moved = true;
            if self.sent_bytes == self.size {
                (self.sent_bytes, self.counts.sent) = (0, self.counts.sent + 1);
            }
        }
        Ok(moved)
    }

    /// Reads until all posted receives are complete or the socket buffer is empty.
    fn pull(&mut self) -> Result<bool, EngineError> {
        let mut moved = false;
        while self.counts.received < self.counts.receives_posted {
            let slot = self.size * self.counts.receive_slot(self.counts.received);
            let part = &mut self.incoming[slot + self.received_bytes..slot + self.size];
            match recv(&self.socket, part, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok((_, bytes)) => self.received_bytes += bytes,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(io::Error::from(error).into()),
            }
            moved = true;
            if self.received_bytes == self.size {
                (self.received_bytes, self.counts.received) = (0, self.counts.received + 1);
            }
        }
        Ok(moved)
    }
}

impl Transport for Tcp {
    fn top_up(&mut self) -> Result<(), EngineError> {
        while self.counts.next_receive().is_some() {
            self.counts.receives_posted += 1;
        }
        Ok(())
    }

    fn post_send(&mut self, traffic: &mut Traffic) -> Result<(), EngineError> {
        let slot = self.size * self.counts.send_slot(self.counts.sends_posted);
        traffic.fill(&mut self.outgoing[slot..slot + self.size]);
        self.counts.sends_posted += 1;
        self.push().map(drop)
    }

    fn poll(&mut self) -> Result<bool, EngineError> {
        let pulled = self.pull()?;
        Ok(self.push()? || pulled)
    }

    fn arrived(&self) -> u64 {
        self.counts.received - self.counts.taken
    }

    fn sending(&self) -> u64 {
        self.counts.sends_posted - self.counts.sent
    }

    fn take(&mut self, traffic: &mut Traffic) -> Result<(), EngineError> {
        let slot = self.size * self.counts.receive_slot(self.counts.taken);
        self.counts.taken += 1;
        Ok(traffic.check(&self.incoming[slot..slot + self.size])?)
    }
}
