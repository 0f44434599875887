//! Messages between two ranks by MPI: `MPI_Isend`, `MPI_Irecv` and `MPI_Test`.

use std::{fmt, io};

use clearstream_sys::mpi::{MpiProcess, MpiResult, Requests};

use super::{Counts, Transport};
use crate::{
    Traffic,
    overlap::engine::{
        EngineError,
        protocol::{Control, FRAME_BYTES, Frame, read},
    },
    ranks,
};

/// Tag of the messages: those of one match in the order sent (MPI 3.1, section 3.5).
const MESSAGE: u8 = 1;
/// Tag of the protocol.
const CONTROL: u8 = 2;

fn done<T>(result: MpiResult<T>) -> Result<T, EngineError> {
    result.map_err(EngineError::Library)
}

/// The protocol between the ranks.
pub(crate) struct RankControl<'p>(pub(crate) &'p MpiProcess);

impl fmt::Debug for RankControl<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RankControl of rank {}", self.0.rank())
    }
}

impl Control for RankControl<'_> {
    fn send(&mut self, frame: Frame) -> Result<(), EngineError> {
        done(self.0.send_whole(&frame.encode(), ranks::other(self.0), CONTROL))
    }

    fn receive(&mut self) -> Result<Frame, EngineError> {
        let mut bytes = [0; FRAME_BYTES];
        done(self.0.receive_whole(&mut bytes, ranks::other(self.0), CONTROL))?;
        read(bytes)
    }

    fn has_arrived(&self) -> Result<bool, EngineError> {
        Ok(done(self.0.probe(CONTROL))?.is_some())
    }
}

/// The messages of one rank.
pub(crate) struct RankMessages<'p> {
    other: usize,
    size: usize,
    counts: Counts,
    outgoing: Requests<'p>,
    incoming: Requests<'p>,
}

impl<'p> RankMessages<'p> {
    /// For messages of this size, and so many in flight.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn new(process: &'p MpiProcess, size: usize, window: u32) -> io::Result<Self> {
        let counts = Counts::of_one_window(window.into());
        let slots = |count| Requests::new(process, count, size, false);
        let (outgoing, incoming) = (slots(counts.send_slots())?, slots(counts.receive_slots())?);
        Ok(Self { other: ranks::other(process), size, counts, outgoing, incoming })
    }

    fn finish_sends(&mut self) -> Result<bool, EngineError> {
        let before = self.counts.sent;
        while self.sending() > 0 && done(self.outgoing.test(self.counts.send_slot(self.counts.sent)))? {
            self.counts.sent += 1;
        }
        Ok(self.counts.sent > before)
    }
}

impl fmt::Debug for RankMessages<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RankMessages of {} bytes, {:?}", self.size, self.counts)
    }
}

fn in_use() -> EngineError {
    EngineError::Unexpected("more messages than are in flight")
}

impl Transport for RankMessages<'_> {
    fn top_up(&mut self) -> Result<(), EngineError> {
        while let Some(number) = self.counts.next_receive() {
            let slot = self.counts.receive_slot(number);
            done(self.incoming.start_receive(slot, self.size, self.other, MESSAGE))?;
            self.counts.receives_posted += 1;
        }
        Ok(())
    }

    fn post_send(&mut self, traffic: &mut Traffic) -> Result<(), EngineError> {
        // A message may be at the other rank before it is complete here.
        while self.sending() >= self.counts.window {
            self.finish_sends()?;
        }
        let slot = self.counts.send_slot(self.counts.sends_posted);
        traffic.fill(self.outgoing.bytes(slot, self.size).ok_or_else(in_use)?);
        done(self.outgoing.start_send(slot, self.size, self.other, MESSAGE))?;
        self.counts.sends_posted += 1;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, EngineError> {
        let before = self.counts.received;
        while self.counts.received < self.counts.receives_posted
            && done(self.incoming.test(self.counts.receive_slot(self.counts.received)))?
        {
            self.counts.received += 1;
        }
        let has_received = self.counts.received > before;
        Ok(self.finish_sends()? || has_received)
    }

    fn arrived(&self) -> u64 {
        self.counts.received - self.counts.taken
    }

    fn sending(&self) -> u64 {
        self.counts.sends_posted - self.counts.sent
    }

    fn take(&mut self, traffic: &mut Traffic) -> Result<(), EngineError> {
        let slot = self.counts.receive_slot(self.counts.taken);
        let message = self.incoming.bytes(slot, self.size).ok_or_else(in_use)?;
        self.counts.taken += 1;
        Ok(traffic.check(message)?)
    }
}
