//! Protocol between client and server, on a connection of its own: three numbers
//! per frame, in network byte order.
//!
//! The client begins a phase and the server replies when it is ready for the
//! first message. The client finishes the phase when all messages of both
//! directions have arrived, and the server replies with its report.

use std::io::{self, Read, Write};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use socket2::Socket;

use super::EngineError;

/// Length of a frame.
const FRAME_BYTES: usize = 24;

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
    Report { received: u64, cpu_ns: u64 },
    /// Client: the measurement is over.
    End,
}

impl Frame {
    fn encode(self) -> [u8; FRAME_BYTES] {
        let numbers = match self {
            Self::Begin { cycles } => [1, cycles, 0],
            Self::Ready => [2, 0, 0],
            Self::Finish => [3, 0, 0],
            Self::Report { received, cpu_ns } => [4, received, cpu_ns],
            Self::End => [5, 0, 0],
        };
        let mut bytes = [0; FRAME_BYTES];
        for (field, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&u64::to_be_bytes(number));
        }
        bytes
    }

    fn decode(bytes: [u8; FRAME_BYTES]) -> Option<Self> {
        let number = |index: usize| bytes[8 * index..].first_chunk().copied().map_or(0, u64::from_be_bytes);
        match (number(0), number(1), number(2)) {
            (1, cycles, 0) => Some(Self::Begin { cycles }),
            (2, 0, 0) => Some(Self::Ready),
            (3, 0, 0) => Some(Self::Finish),
            (4, received, cpu_ns) => Some(Self::Report { received, cpu_ns }),
            (5, 0, 0) => Some(Self::End),
            _ => None,
        }
    }
}

/// The control connection: a blocking socket.
#[derive(Debug)]
pub(crate) struct Control {
    socket: Socket,
}

impl Control {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket }
    }

    pub(crate) fn send(&mut self, frame: Frame) -> Result<(), EngineError> {
        Ok(self.socket.write_all(&frame.encode())?)
    }

    pub(crate) fn receive(&mut self) -> Result<Frame, EngineError> {
        let mut bytes = [0; FRAME_BYTES];
        self.socket.read_exact(&mut bytes)?;
        Frame::decode(bytes).ok_or(EngineError::Unexpected("an unknown frame"))
    }

    /// Waits for this frame.
    pub(crate) fn expect(&mut self, expected: Frame, other: &'static str) -> Result<(), EngineError> {
        if self.receive()? == expected { Ok(()) } else { Err(EngineError::Unexpected(other)) }
    }

    /// Whether a frame has arrived, without waiting.
    ///
    /// # Errors
    /// The peer has closed the connection, or it failed.
    pub(crate) fn has_arrived(&self) -> Result<bool, EngineError> {
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
            Frame::Report { received: 7, cpu_ns: 1 << 40 },
            Frame::End,
        ];
        for frame in all {
            assert_eq!(Frame::decode(frame.encode()), Some(frame));
        }
        let report = Frame::Report { received: 7, cpu_ns: 9 }.encode();
        assert_eq!((report[7], report[15], report[23]), (4, 7, 9), "network byte order");
        assert_eq!(Frame::decode([0; FRAME_BYTES]), None);
        assert_eq!(Frame::decode([0xff; FRAME_BYTES]), None);
    }

    #[test]
    fn an_arrived_frame_is_seen_and_so_is_a_close() {
        let (one, two) = Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        let (mut one, mut two) = (Control::new(one), Control::new(two));
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
