//! Whole messages over a stream socket, by each method: the methods differ in
//! how a part of a message is transferred and in how a thread waits.

use std::{hint::spin_loop, io, ops::Range};

use crate::message::MessageMethod;
use clearstream_sys::{
    affinity,
    memory::Buffer,
    uring::{Direction, UringDuplex},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use socket2::Socket;

use super::{Carrier, EngineError};
use crate::{Costs, Traffic};

/// A connection with a buffer per direction. Created and used by one thread.
#[derive(Debug)]
pub(crate) struct Link {
    inner: Inner,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per measurement, and the path to its fields is short"
)]
enum Inner {
    Socket { socket: Socket, outgoing: Buffer, incoming: Buffer, waits: bool },
    Ring(UringDuplex),
}

/// Progress of one direction of an exchange.
struct Progress {
    /// Messages not complete.
    left: u64,
    /// Transferred bytes of the current message.
    done: usize,
    /// Whether the current message is filled in.
    filled: bool,
}

impl Progress {
    fn new(left: u64) -> Self {
        Self { left, done: 0, filled: false }
    }

    /// Returns the remaining part of the current message.
    fn open(&self, length: usize) -> Option<Range<usize>> {
        (self.left > 0).then_some(self.done..length)
    }

    /// Accounts for transferred bytes; true when the current message is
    /// complete.
    fn advance(&mut self, bytes: usize, length: usize) -> bool {
        self.done += bytes;
        if bytes == 0 || self.done < length {
            return false;
        }
        *self = Self::new(self.left - 1);
        true
    }
}

impl Link {
    /// Creates a link for messages of at most `capacity` bytes.
    ///
    /// # Errors
    /// Out of memory, or no io_uring on this host.
    pub(crate) fn new(socket: Socket, method: MessageMethod, capacity: usize) -> io::Result<Self> {
        let (outgoing, incoming) = (Buffer::new(capacity, None)?, Buffer::new(capacity, None)?);
        let inner = match method {
            MessageMethod::IoUring => Inner::Ring(UringDuplex::new(socket.into(), outgoing, incoming)?),
            MessageMethod::Blocking => Inner::Socket { socket, outgoing, incoming, waits: true },
            MessageMethod::BusyPoll => Inner::Socket { socket, outgoing, incoming, waits: false },
        };
        Ok(Self { inner })
    }

    /// Returns the first bytes of the next message to send.
    fn outgoing(&mut self, length: usize) -> io::Result<&mut [u8]> {
        let buffer = match &mut self.inner {
            Inner::Socket { outgoing, .. } => Some(&mut **outgoing),
            Inner::Ring(ring) => ring.send_buffer(),
        };
        buffer.and_then(|buffer| buffer.get_mut(..length)).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Returns the first bytes of the message received last.
    fn incoming(&self, length: usize) -> io::Result<&[u8]> {
        let buffer = match &self.inner {
            Inner::Socket { incoming, .. } => Some(&**incoming),
            Inner::Ring(ring) => ring.receive_buffer(),
        };
        buffer.and_then(|buffer| buffer.get(..length)).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Sends the first bytes of the outgoing buffer as one message.
    #[inline]
    fn send_bytes(&mut self, length: usize) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            done += self.step(Some(done..length), None)?.0;
        }
        Ok(())
    }

    /// Receives one message into the incoming buffer.
    #[inline]
    fn receive_bytes(&mut self, length: usize) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            done += self.step(None, Some(done..length))?.1;
        }
        Ok(())
    }

    /// Transfers part of either message and returns the bytes sent and
    /// received, at least one of them more than zero; blocks until then.
    #[inline]
    fn step(&mut self, out: Option<Range<usize>>, into: Option<Range<usize>>) -> io::Result<(usize, usize)> {
        match &mut self.inner {
            Inner::Ring(ring) => ring_step(ring, out, into),
            Inner::Socket { socket, outgoing, incoming, waits } => {
                let out = out.map(|range| &outgoing[range]);
                let into = into.map(|range| &mut incoming[range]);
                match (*waits, out, into) {
                    (true, Some(out), None) => Ok((some_sent(socket, out, SendFlags::empty())?, 0)),
                    (true, None, Some(into)) => Ok((0, some_received(socket, into, RecvFlags::WAITALL)?)),
                    (waits, out, into) => poll_step(socket, out, into, waits),
                }
            }
        }
    }
}

impl Carrier for Link {
    fn tell(&mut self, words: &[u8]) -> Result<(), EngineError> {
        self.outgoing(words.len())?.copy_from_slice(words);
        Ok(self.send_bytes(words.len())?)
    }

    fn hear(&mut self, words: &mut [u8]) -> Result<(), EngineError> {
        self.receive_bytes(words.len())?;
        words.copy_from_slice(self.incoming(words.len())?);
        Ok(())
    }

    #[inline]
    fn send(&mut self, size: usize, traffic: &mut Traffic) -> Result<(), EngineError> {
        traffic.fill(self.outgoing(size)?);
        Ok(self.send_bytes(size)?)
    }

    #[inline]
    fn receive(&mut self, size: usize, traffic: &mut Traffic) -> Result<(), EngineError> {
        self.receive_bytes(size)?;
        Ok(traffic.check(self.incoming(size)?)?)
    }

    fn send_window(&mut self, size: usize, window: u32, traffic: &mut Traffic) -> Result<(), EngineError> {
        (0..window).try_for_each(|_| self.send(size, traffic))
    }

    fn receive_window(&mut self, size: usize, window: u32, traffic: &mut Traffic) -> Result<(), EngineError> {
        (0..window).try_for_each(|_| self.receive(size, traffic))
    }

    /// Neither direction waits for the other, so that no size of the socket
    /// buffers can deadlock both sides.
    fn exchange(&mut self, size: usize, window: u32, traffic: &mut Traffic) -> Result<(), EngineError> {
        let (mut out, mut into) = (Progress::new(window.into()), Progress::new(window.into()));
        while out.left > 0 || into.left > 0 {
            if out.left > 0 && !out.filled {
                traffic.fill(self.outgoing(size)?);
                out.filled = true;
            }
            let (sent, received) = self.step(out.open(size), into.open(size))?;
            out.advance(sent, size);
            if into.advance(received, size) {
                traffic.check(self.incoming(size)?)?;
            }
        }
        Ok(())
    }

    /// Of this thread; what interfaces carry is no question of a connection.
    fn costs(&mut self) -> Costs {
        Costs { cpu_ns: affinity::own_cpu_ns(), sent_bytes: None }
    }
}

/// Sends without blocking; returns the number of bytes, zero when it would
/// block.
fn some_sent(socket: &Socket, part: &[u8], flags: SendFlags) -> io::Result<usize> {
    match send(socket, part, flags | SendFlags::NOSIGNAL) {
        Ok(sent) => Ok(sent),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Receives without blocking; returns the number of bytes, zero when it would
/// block.
fn some_received(socket: &Socket, part: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    match recv(socket, part, flags) {
        Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok((received, _)) => Ok(received),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Tries both directions until one of them makes progress, sleeping in `poll`
/// between two attempts, or busy-polling.
fn poll_step(
    socket: &Socket,
    out: Option<&[u8]>,
    mut into: Option<&mut [u8]>,
    waits: bool,
) -> io::Result<(usize, usize)> {
    loop {
        let sent = out.map_or(Ok(0), |part| some_sent(socket, part, SendFlags::DONTWAIT))?;
        let received = match &mut into {
            Some(part) => some_received(socket, part, RecvFlags::DONTWAIT)?,
            None => 0,
        };
        if sent > 0 || received > 0 {
            return Ok((sent, received));
        }
        if !waits {
            spin_loop();
            continue;
        }
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::OUT, out.is_some());
        interest.set(PollFlags::IN, into.is_some());
        match poll(&mut [PollFd::new(socket, interest)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Keeps a transfer of each direction in flight until one of them completes.
fn ring_step(
    ring: &mut UringDuplex,
    out: Option<Range<usize>>,
    into: Option<Range<usize>>,
) -> io::Result<(usize, usize)> {
    if let Some(range) = out
        && !ring.is_in_flight(Direction::Send)
    {
        ring.start(Direction::Send, range)?;
    }
    if let Some(range) = into
        && !ring.is_in_flight(Direction::Receive)
    {
        ring.start(Direction::Receive, range)?;
    }
    let (mut sent, mut received, mut failed) = (0, 0, None);
    while sent == 0 && received == 0 && failed.is_none() {
        ring.wait(|direction, result| match (direction, result) {
            (Direction::Send, Ok(bytes)) => sent = bytes,
            (Direction::Receive, Ok(0)) => failed = Some(io::ErrorKind::UnexpectedEof.into()),
            (Direction::Receive, Ok(bytes)) => received = bytes,
            (_, Err(error)) => failed = Some(error),
        })?;
    }
    failed.map_or(Ok((sent, received)), Err)
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, TcpListener, TcpStream},
        thread,
    };

    use super::*;

    const METHODS: [MessageMethod; 3] =
        [MessageMethod::Blocking, MessageMethod::BusyPoll, MessageMethod::IoUring];

    fn sockets() -> (Socket, Socket) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one.into(), listener.accept().unwrap().0.into())
    }

    #[test]
    fn exchanges_larger_than_any_buffer_do_not_deadlock() {
        const SIZE: usize = 3 << 20;
        for (mine, theirs) in METHODS.into_iter().zip(METHODS.into_iter().rev()) {
            let (one, two) = sockets();
            for socket in [&one, &two] {
                socket.set_send_buffer_size(8 << 10).unwrap();
            }
            let peer = thread::spawn(move || {
                let mut link = Link::new(two, theirs, SIZE).unwrap();
                link.exchange(SIZE, 3, &mut Traffic::verified(1)).unwrap();
            });
            let mut link = Link::new(one, mine, SIZE).unwrap();
            let mut traffic = Traffic::verified(0);
            link.exchange(SIZE, 3, &mut traffic).unwrap();
            peer.join().unwrap();
            assert_eq!(traffic.received_count(), 3, "{mine:?} with {theirs:?}");
        }
    }

    #[test]
    fn a_closed_connection_ends_every_method() {
        for method in METHODS {
            let (one, two) = sockets();
            let mut link = Link::new(one, method, 1 << 10).unwrap();
            drop(two);
            let error = link.receive_bytes(100).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{method:?}");
            assert!(EngineError::from(error).is_closed_by_peer());
            assert!(link.outgoing((1 << 10) + 1).is_err() && link.incoming(1 << 10).is_ok());
        }
    }
}
