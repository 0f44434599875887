//! One send and one receive in flight at a time, each with its own buffer: the
//! bytes of both directions keep their order.

use std::{
    io,
    mem::ManuallyDrop,
    ops::Range,
    os::fd::{AsRawFd, OwnedFd},
};

use io_uring::{IoUring, opcode, types};

use super::{Direction, ring};
use crate::memory::Buffer;

/// A ring with a buffer per direction. It must be used by the thread that created it.
pub struct UringDuplex {
    ring: IoUring,
    socket: OwnedFd,
    send: ManuallyDrop<Buffer>,
    receive: ManuallyDrop<Buffer>,
    sending: bool,
    receiving: bool,
}

impl UringDuplex {
    /// Creates a ring for `socket`, which is held as long as the ring.
    ///
    /// # Errors
    /// The kernel has no io_uring, or it is forbidden (`kernel.io_uring_disabled`,
    /// a system call filter).
    pub fn new(socket: OwnedFd, send: Buffer, receive: Buffer) -> io::Result<Self> {
        Ok(Self {
            ring: ring(4)?,
            socket,
            send: ManuallyDrop::new(send),
            receive: ManuallyDrop::new(receive),
            sending: false,
            receiving: false,
        })
    }

    /// The bytes to send; `None` while a send is in flight.
    pub fn send_buffer(&mut self) -> Option<&mut [u8]> {
        (!self.sending).then_some(&mut self.send)
    }

    /// The bytes received; `None` while a receive is in flight.
    pub fn receive_buffer(&self) -> Option<&[u8]> {
        (!self.receiving).then_some(&self.receive)
    }

    /// Whether a transfer in this direction is in flight.
    pub fn is_in_flight(&self, direction: Direction) -> bool {
        match direction {
            Direction::Send => self.sending,
            Direction::Receive => self.receiving,
        }
    }

    /// Starts a transfer of these bytes of the direction's buffer; it is
    /// submitted by the next [`UringDuplex::wait`].
    ///
    /// # Errors
    /// `InvalidInput` for a range that is empty or outside the buffer, or when a
    /// transfer in this direction is in flight.
    pub fn start(&mut self, direction: Direction, range: Range<usize>) -> io::Result<()> {
        let buffer = match direction {
            Direction::Send => &mut self.send,
            Direction::Receive => &mut self.receive,
        };
        let part = buffer.get_mut(range).filter(|part| !part.is_empty());
        let in_flight = if direction == Direction::Send { self.sending } else { self.receiving };
        let (Some(part), false) = (part, in_flight) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        let fd = types::Fd(self.socket.as_raw_fd());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = match direction {
            Direction::Send => opcode::Send::new(fd, part.as_ptr(), length).flags(flags).build(),
            Direction::Receive => {
                opcode::Recv::new(fd, part.as_mut_ptr(), length).flags(libc::MSG_WAITALL).build()
            }
        };
        // SAFETY: descriptor and buffer are owned by `self`; they are freed only
        // when no transfer is in flight (see `drop`), and the buffer of a
        // direction is handed out only when that direction has none.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(direction as u64)) };
        pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
        match direction {
            Direction::Send => self.sending = true,
            Direction::Receive => self.receiving = true,
        }
        Ok(())
    }

    /// Submits started transfers and waits for at least one, unless none is in flight or a signal arrived.
    /// Each completed one is passed to `each` with its bytes, which may be fewer than requested; zero
    /// received bytes mean the end of the stream.
    ///
    /// # Errors
    /// Of the ring itself; those of a transfer are passed to `each`.
    pub fn wait(&mut self, mut each: impl FnMut(Direction, io::Result<usize>)) -> io::Result<()> {
        if !self.sending && !self.receiving {
            return Ok(());
        }
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        for done in self.ring.completion() {
            let direction =
                if done.user_data() == Direction::Send as u64 { Direction::Send } else { Direction::Receive };
            match direction {
                Direction::Send => self.sending = false,
                Direction::Receive => self.receiving = false,
            }
            let result = usize::try_from(done.result())
                .map_err(|_| io::Error::from_raw_os_error(done.result().saturating_neg()));
            each(direction, result);
        }
        Ok(())
    }
}

impl Drop for UringDuplex {
    fn drop(&mut self) {
        if !self.sending {
            // SAFETY: no send is in flight, so that nobody else uses its buffer,
            // and `self` is not used after.
            unsafe { ManuallyDrop::drop(&mut self.send) };
        }
        if !self.receiving {
            // SAFETY: as above, for the receive.
            unsafe { ManuallyDrop::drop(&mut self.receive) };
        }
        // A buffer that the kernel may still use stays mapped: that costs memory
        // but is safe. Closing the ring cancels the transfer.
    }
}

impl std::fmt::Debug for UringDuplex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringDuplex")
            .field("sending", &self.sending)
            .field("receiving", &self.receiving)
            .finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{Shutdown, TcpListener, TcpStream},
    };

    use super::*;

    fn pair() -> (UringDuplex, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let two = listener.accept().unwrap().0;
        let buffer = || Buffer::new(1 << 20, None).unwrap();
        (UringDuplex::new(one.into(), buffer(), buffer()).unwrap(), two)
    }

    #[test]
    fn both_directions_keep_the_order_of_their_bytes() {
        let (mut duplex, mut peer) = pair();
        const BYTES: usize = 1 << 20;
        for (index, byte) in duplex.send_buffer().unwrap().iter_mut().enumerate() {
            *byte = (index / 7) as u8;
        }
        let echo = std::thread::spawn(move || {
            let mut all = vec![0; BYTES];
            peer.read_exact(&mut all).unwrap();
            peer.write_all(&all).unwrap();
        });
        let (mut sent, mut received) = (0, 0);
        while received < BYTES {
            if sent < BYTES && !duplex.is_in_flight(Direction::Send) {
                duplex.start(Direction::Send, sent..BYTES).unwrap();
            }
            if !duplex.is_in_flight(Direction::Receive) {
                duplex.start(Direction::Receive, received..BYTES).unwrap();
                assert!(duplex.receive_buffer().is_none(), "the kernel owns it");
                assert!(duplex.start(Direction::Receive, 0..1).is_err(), "one at a time");
            }
            duplex
                .wait(|direction, bytes| match direction {
                    Direction::Send => sent += bytes.unwrap(),
                    Direction::Receive => received += bytes.unwrap(),
                })
                .unwrap();
        }
        echo.join().unwrap();
        let same = |(index, byte): (usize, &u8)| *byte == (index / 7) as u8;
        assert!(duplex.receive_buffer().unwrap().iter().enumerate().all(same));
    }

    #[test]
    fn a_range_outside_is_rejected_and_the_end_of_the_stream_is_zero_bytes() {
        let (mut duplex, peer) = pair();
        for wrong in [0..(1 << 20) + 1, 5..5] {
            assert_eq!(duplex.start(Direction::Send, wrong).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        duplex.wait(|_, _| panic!("nothing is in flight")).unwrap();
        duplex.start(Direction::Receive, 0..100).unwrap();
        peer.shutdown(Shutdown::Both).unwrap();
        let mut end = None;
        while end.is_none() {
            duplex.wait(|direction, bytes| end = Some((direction, bytes.unwrap()))).unwrap();
        }
        assert_eq!(end, Some((Direction::Receive, 0)));
    }
}
