//! Stream sockets driven through io_uring: [`UringStream`] with several
//! transfers of one direction in flight, [`UringDuplex`] with one transfer of
//! each direction.
//!
//! Where only the amount of data matters, transfers in flight may finish in any
//! order; a [`UringDuplex`] keeps the order of the bytes.

mod duplex;
mod file;

use std::{
    io,
    mem::ManuallyDrop,
    os::fd::{AsRawFd, OwnedFd},
};

pub use duplex::UringDuplex;
pub use file::UringFile;

use io_uring::{IoUring, opcode, types};

use crate::memory::Buffer;

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the socket.
    Send,
    /// From the socket.
    Receive,
}

/// A ring for the calling thread.
fn ring(entries: u32) -> io::Result<IoUring> {
    // Completions are handled when this thread requests them, without interrupting it (Linux 6.1;
    // io_uring_setup(2)).
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries)
        .or_else(|_| IoUring::new(entries))
}

/// A ring with one buffer per transfer in flight.
pub struct UringStream {
    ring: IoUring,
    socket: OwnedFd,
    buffers: ManuallyDrop<Vec<Buffer>>,
    direction: Direction,
    in_flight: usize,
    /// Bytes requested by each buffer's transfer.
    requested: Vec<usize>,
    /// Bytes not requested by any transfer yet.
    left: u64,
}

impl UringStream {
    /// Creates a ring for `socket`, which is held as long as the ring.
    pub fn new(socket: OwnedFd, direction: Direction, buffers: Vec<Buffer>) -> io::Result<Self> {
        let entries = u32::try_from(buffers.len()).unwrap_or(u32::MAX).next_power_of_two();
        let ring = ring(entries)?;
        let requested = vec![0; buffers.len()];
        Ok(Self {
            ring,
            socket,
            buffers: ManuallyDrop::new(buffers),
            direction,
            in_flight: 0,
            requested,
            left: 0,
        })
    }

    /// Starts a transfer with every buffer, until `limit` bytes have been moved.
    pub fn start(&mut self, limit: u64) -> io::Result<()> {
        self.left = limit;
        for index in 0..self.buffers.len() {
            self.queue(index)?;
        }
        Ok(())
    }

    fn queue(&mut self, index: usize) -> io::Result<()> {
        let fd = types::Fd(self.socket.as_raw_fd());
        let buffer = &mut self.buffers[index];
        let requested =
            usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len()).min(u32::MAX as usize);
        if requested == 0 {
            return Ok(());
        }
        let length = requested as u32;
        let entry = match self.direction {
            Direction::Send => {
                opcode::Send::new(fd, buffer.as_ptr(), length).flags(libc::MSG_NOSIGNAL).build()
            }
            Direction::Receive => opcode::Recv::new(fd, buffer.as_mut_ptr(), length).build(),
        };
        // SAFETY: descriptor and buffer are owned by `self`; they are freed
        // only after every transfer in flight has completed (see `drop`), and
        // nothing else touches a buffer while its transfer is in flight.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(index as u64)) };
        pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
        self.in_flight += 1;
        self.requested[index] = requested;
        self.left -= requested as u64;
        Ok(())
    }

    /// Waits for at least one transfer and passes the bytes of each completed one to `each`, which returns
    /// whether to continue with its buffer. Zero bytes mean the end of the stream. Returns the transfers
    /// still in flight.
    pub fn wait(&mut self, mut each: impl FnMut(io::Result<usize>) -> bool) -> io::Result<usize> {
        if self.in_flight == 0 {
            return Ok(0);
        }
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(self.in_flight),
            Err(error) => return Err(error),
        }
        // Collected first: `queue` needs the ring, too.
        loop {
            let Some(done) = self.ring.completion().next() else { return Ok(self.in_flight) };
            self.in_flight -= 1;
            let result = usize::try_from(done.result())
                .map_err(|_| io::Error::from_raw_os_error(done.result().saturating_neg()));
            let index = done.user_data() as usize;
            let moved = result.as_ref().map_or(0, |bytes| *bytes);
            self.left += self.requested[index].saturating_sub(moved) as u64;
            if each(result) {
                self.queue(index)?;
            }
        }
    }
}

impl Drop for UringStream {
    fn drop(&mut self) {
        if self.in_flight == 0 {
            // SAFETY: no transfer is in flight, so nobody else uses the
            // buffers, and `self` is not used after.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
        // Otherwise the kernel may still write: the buffers stay mapped forever, which costs memory but is
        // safe. Closing the ring cancels the rest.
    }
}

impl std::fmt::Debug for UringStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringStream")
            .field("direction", &self.direction)
            .field("in_flight", &self.in_flight)
            .finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::Read,
        net::{Shutdown, TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn sends_and_receives_every_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let two = listener.accept().unwrap().0;
        let buffers = || vec![Buffer::new(64 << 10, None).unwrap(), Buffer::new(64 << 10, None).unwrap()];
        let mut sender =
            UringStream::new(one.try_clone().unwrap().into(), Direction::Send, buffers()).unwrap();
        let receiving = std::thread::spawn(move || {
            let mut receiver = UringStream::new(two.into(), Direction::Receive, buffers()).unwrap();
            receiver.start(u64::MAX).unwrap();
            let mut total = 0;
            let more = |result: io::Result<usize>, total: &mut usize| {
                let bytes = result.unwrap();
                *total += bytes;
                bytes > 0
            };
            while receiver.wait(|result| more(result, &mut total)).unwrap() > 0 {}
            total
        });
        sender.start(4 << 20).unwrap();
        let mut sent = 0;
        while sender
            .wait(|result| {
                sent += result.unwrap();
                true
            })
            .unwrap()
            > 0
        {}
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(receiving.join().unwrap(), sent);
        assert_eq!(sent, 4 << 20);
        assert_eq!((&one).read(&mut [0]).unwrap(), 0, "the peer has read everything and closed");
    }
}
