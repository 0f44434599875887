//! Zero-copy transfer by moving pages: user memory through a pipe to a socket, and a socket to /dev/null
//! (splice(2), vmsplice(2)).

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};

use crate::memory::Buffer;

/// A pipe of the default maximum size for unprivileged processes (`fs.pipe-max-size`).
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

/// Default of `fs.pipe-max-size`.
const PIPE_BYTES: usize = 1 << 20;

impl Pipe {
    /// Creates a pipe and enlarges it; where that is rejected it stays smaller.
    pub fn open() -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let capacity = rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES)
            .or_else(|_| rustix::pipe::fcntl_getpipe_size(&write))?;
        Ok(Self { read, write, capacity })
    }

    /// Capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sends up to the pipe's capacity of `buffer`, whose pages the socket references until they are
    /// acknowledged: an earlier change is visible on the wire. Returns when everything spliced into the pipe
    /// is in the socket.
    pub fn send(&self, buffer: &Buffer, length: usize, socket: impl AsFd) -> io::Result<usize> {
        let part = &buffer[..length.min(buffer.len()).min(self.capacity)];
        // SAFETY: the pages are pinned by the kernel and belong to a mapping
        // that is only read while `buffer` is borrowed; not gifted.
        let filled = unsafe {
            rustix::pipe::vmsplice(&self.write, &[IoSliceRaw::from_slice(part)], SpliceFlags::empty())
        }?;
        let mut left = filled;
        while left > 0 {
            match rustix::pipe::splice(&self.read, None, &socket, None, left, SpliceFlags::MOVE)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                moved => left -= moved,
            }
        }
        Ok(filled)
    }

    /// Reads up to `length` bytes from `socket` and drops them; zero at the end of the stream.
    pub fn drain(&self, socket: impl AsFd, length: usize, sink: &NullSink) -> io::Result<usize> {
        let length = length.min(self.capacity);
        let taken = rustix::pipe::splice(&socket, None, &self.write, None, length, SpliceFlags::MOVE)?;
        let mut left = taken;
        while left > 0 {
            match rustix::pipe::splice(&self.read, None, &sink.0, None, left, SpliceFlags::MOVE)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                moved => left -= moved,
            }
        }
        Ok(taken)
    }
}

/// `/dev/null` as a splice target.
#[derive(Debug)]
pub struct NullSink(File);

impl NullSink {
    /// Opens `/dev/null`.
    pub fn open() -> io::Result<Self> {
        OpenOptions::new().write(true).open("/dev/null").map(Self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn bytes_pass_unchanged_and_are_drained_to_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut two = listener.accept().unwrap().0;
        let mut buffer = Buffer::new(40_000, None).unwrap();
        buffer[39_999] = 1;
        let pipe = Pipe::open().unwrap();
        assert_eq!(pipe.send(&buffer, 40_000, &one).unwrap(), 40_000);
        let mut got = vec![0; 40_000];
        two.read_exact(&mut got).unwrap();
        assert_eq!(got, *buffer);

        two.write_all(&[3; 9000]).unwrap();
        drop(two);
        let sink = NullSink::open().unwrap();
        let mut total = 0;
        loop {
            match pipe.drain(&one, 1 << 20, &sink).unwrap() {
                0 => break,
                taken => total += taken,
            }
        }
        assert_eq!(total, 9000);
    }
}
