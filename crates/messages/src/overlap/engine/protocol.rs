//! Protocol between client and server, beside the messages (a connection of its own, or a tag
//! of MPI): four numbers per frame, in network byte order.
//!
//! The client begins a phase and the server replies when it is ready for the
//! first message. The client finishes the phase when all messages of both
//! directions have arrived, and the server replies with its report.

use std::{
    fmt::Debug,
    io::{self, Read, Write},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use socket2::Socket;

use super::EngineError;
use crate::Costs;

/// Length of a frame.
pub(super) const FRAME_BYTES: usize = 32;
/// In the place of a number that was not measured.
const NOT_MEASURED: u64 = u64::MAX;

/// A message of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Client: a phase of so many cycles begins.
    Begin { cycles: u64 },
    /// Server: ready for the first message.
    Ready,
    /// Client: the phase is over.
    Finish,
    /// Server: its results of the phase.
    Report { received: u64, costs: Costs },
    /// Client: the measurement is over.
    End,
}

impl Frame {
    pub(super) fn encode(self) -> [u8; FRAME_BYTES] {
        let numbers = match self {
            Self::Begin { cycles } => [1, cycles, 0, 0],
            Self::Ready => [2, 0, 0, 0],
            Self::Finish => [3, 0, 0, 0],
            Self::Report { received, costs } => {
                [4, received, costs.cpu_ns, costs.sent_bytes.unwrap_or(NOT_MEASURED)]
            }
            Self::End => [5, 0, 0, 0],
        };
        let mut bytes = [0; FRAME_BYTES];
        for (field, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&u64::to_be_bytes(number));
        }
        bytes
    }

    pub(super) fn decode(bytes: [u8; FRAME_BYTES]) -> Option<Self> {
        let number = |index: usize| bytes[8 * index..].first_chunk().copied().map_or(0, u64::from_be_bytes);
        match [number(0), number(1), number(2), number(3)] {
            [1, cycles, 0, 0] => Some(Self::Begin { cycles }),
            [2, 0, 0, 0] => Some(Self::Ready),
            [3, 0, 0, 0] => Some(Self::Finish),
            [4, received, cpu_ns, sent_bytes] => {
                let sent_bytes = Some(sent_bytes).filter(|bytes| *bytes != NOT_MEASURED);
                Some(Self::Report { received, costs: Costs { cpu_ns, sent_bytes } })
            }
            [5, 0, 0, 0] => Some(Self::End),
            _ => None,
        }
    }
}

/// What carries the frames.
pub(crate) trait Control: Debug {
    /// Sends a frame.
    ///
    /// # Errors
    /// A lost connection, as of every function here.
    fn send(&mut self, frame: Frame) -> Result<(), EngineError>;

    /// Waits for a frame.
    fn receive(&mut self) -> Result<Frame, EngineError>;

    /// Whether a frame has arrived, without waiting.
    fn has_arrived(&self) -> Result<bool, EngineError>;

    /// Waits for this frame.
    fn expect(&mut self, expected: Frame, other: &'static str) -> Result<(), EngineError> {
        if self.receive()? == expected { Ok(()) } else { Err(EngineError::Unexpected(other)) }
    }
}

/// The control connection: a blocking socket.
#[derive(Debug)]
pub(crate) struct SocketControl {
    socket: Socket,
}

impl SocketControl {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket }
    }
}

/// A frame that was read.
pub(super) fn read(bytes: [u8; FRAME_BYTES]) -> Result<Frame, EngineError> {
    Frame::decode(bytes).ok_or(EngineError::Unexpected("an unknown frame"))
}

impl Control for SocketControl {
    fn send(&mut self, frame: Frame) -> Result<(), EngineError> {
        Ok(self.socket.write_all(&frame.encode())?)
    }

    fn receive(&mut self) -> Result<Frame, EngineError> {
        let mut bytes = [0; FRAME_BYTES];
        self.socket.read_exact(&mut bytes)?;
        read(bytes)
    }

    fn has_arrived(&self) -> Result<bool, EngineError> {
        match recv(&self.socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_written_and_others_are_rejected() {
        let all = [
            Frame::Begin { cycles: u64::MAX },
            Frame::Ready,
            Frame::Finish,
            Frame::Report { received: 7, costs: Costs { cpu_ns: 1 << 40, sent_bytes: None } },
            Frame::Report { received: 7, costs: Costs { cpu_ns: 0, sent_bytes: Some(5) } },
            Frame::End,
        ];
        for frame in all {
            assert_eq!(Frame::decode(frame.encode()), Some(frame));
        }
        let costs = Costs { cpu_ns: 9, sent_bytes: Some(5) };
        let report = Frame::Report { received: 7, costs }.encode();
        assert_eq!([report[7], report[15], report[23], report[31]], [4, 7, 9, 5], "network byte order");
        assert_eq!(Frame::decode([0; FRAME_BYTES]), None);
        assert_eq!(Frame::decode([0xff; FRAME_BYTES]), None);
    }

    #[test]
    fn an_arrived_frame_is_seen_and_so_is_a_close() {
        let (one, two) = Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        let (mut one, mut two) = (SocketControl::new(one), SocketControl::new(two));
        assert!(!one.has_arrived().unwrap());
        two.send(Frame::Ready).unwrap();
        assert!(one.has_arrived().unwrap(), "and it is still there");
        one.expect(Frame::Ready, "another frame").unwrap();
        two.send(Frame::End).unwrap();
        let error = one.expect(Frame::Ready, "another frame").unwrap_err();
        assert!(matches!(error, EngineError::Unexpected("another frame")), "{error}");
        drop(two);
        assert!(one.has_arrived().unwrap_err().is_closed_by_peer());
    }
}
