//! Messages between two ranks by MPI: one at a time by `MPI_Send` and `MPI_Recv`, as in NetPIPE, windows by
//! `MPI_Isend` and `MPI_Irecv`, as in the OSU micro-benchmarks.

use std::io;

use clearstream_sys::{
    memory::Buffer,
    mpi::{MpiProcess, MpiResult, Requests},
};

use super::{ACKNOWLEDGEMENT_BYTES, Carrier, EngineError, capacity};
use crate::{
    Costs, ProcessCosts, Traffic,
    message::{MessageConfig, MessageKind},
    ranks,
};

/// Messages and words have the same tag: those of one match in the order sent (MPI 3.1, section 3.5).
const TAG: u8 = 1;

/// The connection of one rank to the other.
pub(crate) struct RankLink<'p> {
    process: &'p MpiProcess,
    other: usize,
    outgoing: Buffer,
    incoming: Buffer,
    /// Of kinds with windows.
    windows: Option<[Requests<'p>; 2]>,
    costs: ProcessCosts,
}

impl<'p> RankLink<'p> {
    /// For the messages of this configuration.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn new(process: &'p MpiProcess, config: &MessageConfig) -> io::Result<Self> {
        let capacity = capacity(config);
        // Messages that are not looked at share a buffer, as in the OSU micro-benchmarks.
        let window = || Requests::new(process, config.window as usize, capacity, !config.verify);
        let windows = match config.kind {
            MessageKind::PingPong => None,
            MessageKind::Stream | MessageKind::Bidirectional => Some([window()?, window()?]),
        };
        let single = if windows.is_some() { ACKNOWLEDGEMENT_BYTES } else { capacity };
        let (outgoing, incoming) = (Buffer::new(single, None)?, Buffer::new(single, None)?);
        let (other, costs) = (ranks::other(process), ProcessCosts::with_interfaces());
        Ok(Self { process, other, outgoing, incoming, windows, costs })
    }

    fn windows(&mut self) -> Result<&mut [Requests<'p>; 2], EngineError> {
        self.windows.as_mut().ok_or_else(no_room)
    }
}

fn no_room() -> EngineError {
    io::Error::from(io::ErrorKind::InvalidInput).into()
}

fn done<T>(result: MpiResult<T>) -> Result<T, EngineError> {
    result.map_err(EngineError::Library)
}

/// Starts the messages of a window.
fn start_sends(
    messages: &mut Requests<'_>,
    window: u32,
    (size, other): (usize, usize),
    traffic: &mut Traffic,
) -> Result<(), EngineError> {
    for slot in 0..window as usize {
        match messages.bytes(slot, size) {
            Some(message) => traffic.fill(message),
            // Those that share a buffer are not filled.
            None => traffic.fill(&mut []),
        }
        done(messages.start_send(slot, size, other, TAG))?;
    }
    Ok(())
}

fn start_receives(
    messages: &mut Requests<'_>,
    window: u32,
    (size, other): (usize, usize),
) -> Result<(), EngineError> {
    (0..window as usize).try_for_each(|slot| done(messages.start_receive(slot, size, other, TAG)))
}

fn finish_receives(
    messages: &mut Requests<'_>,
    window: u32,
    size: usize,
    traffic: &mut Traffic,
) -> Result<(), EngineError> {
    done(messages.wait_all())?;
    let mut check = |slot| Ok(traffic.check(messages.bytes(slot, size).ok_or_else(no_room)?)?);
    (0..window as usize).try_for_each(&mut check)
}

impl Carrier for RankLink<'_> {
    fn tell(&mut self, words: &[u8]) -> Result<(), EngineError> {
        done(self.process.send_whole(words, self.other, TAG))
    }

    fn hear(&mut self, words: &mut [u8]) -> Result<(), EngineError> {
        done(self.process.receive_whole(words, self.other, TAG))
    }

    #[inline]
    fn send(&mut self, size: usize, traffic: &mut Traffic) -> Result<(), EngineError> {
        let message = self.outgoing.get_mut(..size).ok_or_else(no_room)?;
        traffic.fill(message);
        done(self.process.send_whole(message, self.other, TAG))
    }

    #[inline]
    fn receive(&mut self, size: usize, traffic: &mut Traffic) -> Result<(), EngineError> {
        let message = self.incoming.get_mut(..size).ok_or_else(no_room)?;
        done(self.process.receive_whole(message, self.other, TAG))?;
        Ok(traffic.check(message)?)
    }

    fn send_window(&mut self, size: usize, window: u32, traffic: &mut Traffic) -> Result<(), EngineError> {
        let message = (size, self.other);
        let [outgoing, _] = self.windows()?;
        start_sends(outgoing, window, message, traffic)?;
        done(outgoing.wait_all())
    }

    fn receive_window(&mut self, size: usize, window: u32, traffic: &mut Traffic) -> Result<(), EngineError> {
        let message = (size, self.other);
        let [_, incoming] = self.windows()?;
        start_receives(incoming, window, message)?;
        finish_receives(incoming, window, size, traffic)
    }

    fn exchange(&mut self, size: usize, window: u32, traffic: &mut Traffic) -> Result<(), EngineError> {
        let message = (size, self.other);
        let [outgoing, incoming] = self.windows()?;
        start_receives(incoming, window, message)?;
        start_sends(outgoing, window, message, traffic)?;
        finish_receives(incoming, window, size, traffic)?;
        done(outgoing.wait_all())
    }

    fn costs(&mut self) -> Costs {
        self.costs.read()
    }
}
