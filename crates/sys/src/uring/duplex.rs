//! One send and one receive in flight at a time, each with its own buffer: the
//! bytes of both directions keep their order.

use std::{
    io,
    mem::ManuallyDrop,
    ops::Range,
    os::fd::{AsRawFd, OwnedFd},
};

use io_uring::{IoUring, opcode, types};

use super::{Way, ring};
use crate::memory::Buffer;

/// A ring with a buffer per direction. It must be used by the thread that made it.
pub struct UringDuplex {
    ring: IoUring,
    socket: OwnedFd,
    send: ManuallyDrop<Buffer>,
    receive: ManuallyDrop<Buffer>,
    sending: bool,
    receiving: bool,
}

impl UringDuplex {
    /// Makes a ring for `socket`, which is held as long as the ring.
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
    pub fn is_in_flight(&self, way: Way) -> bool {
        match way {
            Way::Send => self.sending,
            Way::Receive => self.receiving,
        }
    }

    /// Starts a transfer of these bytes of the direction's buffer; it is
    /// submitted by the next [`UringDuplex::wait`].
    ///
    /// # Errors
    /// `InvalidInput` for a range that is empty or outside the buffer, or when a
    /// transfer in this direction is in flight.
    pub fn start(&mut self, way: Way, range: Range<usize>) -> io::Result<()> {
        let buffer = match way {
            Way::Send => &mut self.send,
            Way::Receive => &mut self.receive,
        };
        let part = buffer.get_mut(range).filter(|part| !part.is_empty());
        let in_flight = if way == Way::Send { self.sending } else { self.receiving };
        let (Some(part), false) = (part, in_flight) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        let fd = types::Fd(self.socket.as_raw_fd());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = match way {
            Way::Send => opcode::Send::new(fd, part.as_ptr(), length).flags(flags).build(),
            Way::Receive => opcode::Recv::new(fd, part.as_mut_ptr(), length).flags(libc::MSG_WAITALL).build(),
        };
        // SAFETY: descriptor and buffer are owned by `self`; they are freed only
        // when no transfer is in flight (see `drop`), and the buffer of a
        // direction is handed out only when that direction has none.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(way as u64)) };
        pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
        match way {
            Way::Send => self.sending = true,
            Way::Receive => self.receiving = true,
        }
        Ok(())
    }

    /// Submits what was started and waits for at least one transfer, unless none
    /// is in flight or a signal came. Each that is complete is handed to `each`
    /// with its bytes, which may be fewer than requested; zero received bytes
    /// mean the end of the stream.
    ///
    /// # Errors
    /// Of the ring itself; those of a transfer are handed to `each`.
    pub fn wait(&mut self, mut each: impl FnMut(Way, io::Result<usize>)) -> io::Result<()> {
        if !self.sending && !self.receiving {
            return Ok(());
        }
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        for done in self.ring.completion() {
            let way = if done.user_data() == Way::Send as u64 { Way::Send } else { Way::Receive };
            match way {
                Way::Send => self.sending = false,
                Way::Receive => self.receiving = false,
            }
            let result = usize::try_from(done.result())
                .map_err(|_| io::Error::from_raw_os_error(done.result().saturating_neg()));
            each(way, result);
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
            if sent < BYTES && !duplex.is_in_flight(Way::Send) {
                duplex.start(Way::Send, sent..BYTES).unwrap();
            }
            if !duplex.is_in_flight(Way::Receive) {
                duplex.start(Way::Receive, received..BYTES).unwrap();
                assert!(duplex.receive_buffer().is_none(), "the kernel has it");
                assert!(duplex.start(Way::Receive, 0..1).is_err(), "one at a time");
            }
            duplex
                .wait(|way, bytes| match way {
                    Way::Send => sent += bytes.unwrap(),
                    Way::Receive => received += bytes.unwrap(),
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
            assert_eq!(duplex.start(Way::Send, wrong).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        duplex.wait(|_, _| panic!("nothing is in flight")).unwrap();
        duplex.start(Way::Receive, 0..100).unwrap();
        peer.shutdown(Shutdown::Both).unwrap();
        let mut end = None;
        while end.is_none() {
            duplex.wait(|way, bytes| end = Some((way, bytes.unwrap()))).unwrap();
        }
        assert_eq!(end, Some((Way::Receive, 0)));
    }
}
