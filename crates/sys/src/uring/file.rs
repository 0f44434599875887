//! Files driven through io_uring, with a transfer per buffer in flight.

use std::{
    io,
    mem::ManuallyDrop,
    os::fd::{AsRawFd as _, OwnedFd},
};

use io_uring::{IoUring, opcode, types};

use super::{Direction, ring};
use crate::memory::Buffer;

/// A ring for one file. It must be used by the thread that created it.
pub struct UringFile {
    ring: IoUring,
    file: OwnedFd,
    buffers: ManuallyDrop<Vec<Buffer>>,
    is_in_flight: Vec<bool>,
    in_flight: usize,
    /// Behind the buffer that was used last.
    next: usize,
}

impl UringFile {
    /// Creates a ring for `file`, which is held as long as the ring.
    ///
    /// # Errors
    /// The kernel has no `io_uring`, or it is forbidden.
    pub fn new(file: OwnedFd, buffers: Vec<Buffer>) -> io::Result<Self> {
        let ring = ring(u32::try_from(buffers.len()).unwrap_or(u32::MAX).next_power_of_two())?;
        let is_in_flight = vec![false; buffers.len()];
        Ok(Self { ring, file, buffers: ManuallyDrop::new(buffers), is_in_flight, in_flight: 0, next: 0 })
    }

    /// A buffer without a transfer: the one that was used longest ago, as far as they are done in turn.
    pub fn free(&self) -> Option<usize> {
        let count = self.is_in_flight.len();
        (0..count).map(|step| (self.next + step) % count).find(|slot| !self.is_in_flight[*slot])
    }

    /// Number of transfers in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Contents of a buffer; `None` while its transfer is in flight.
    pub fn buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        if self.is_in_flight[slot] { None } else { Some(&mut self.buffers[slot]) }
    }

    /// Starts to send a buffer to the file (`Send`), or to fill it from there (`Receive`).
    ///
    /// # Errors
    /// `InvalidInput` while a transfer of this buffer is in flight.
    pub fn start(&mut self, slot: usize, direction: Direction, offset: u64) -> io::Result<()> {
        if self.is_in_flight[slot] {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (fd, buffer) = (types::Fd(self.file.as_raw_fd()), &mut self.buffers[slot]);
        let length = u32::try_from(buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let entry = match direction {
            Direction::Send => opcode::Write::new(fd, buffer.as_ptr(), length).offset(offset).build(),
            Direction::Receive => opcode::Read::new(fd, buffer.as_mut_ptr(), length).offset(offset).build(),
        };
        // SAFETY: descriptor and buffer are owned by `self`; they are freed only after every transfer in
        // flight has completed (see `drop`), and `buffer` returns none that has one.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
        self.is_in_flight[slot] = true;
        self.in_flight += 1;
        self.next = slot + 1;
        Ok(())
    }

    /// Submits what was started, and waits until at least one transfer is complete; passes slot and bytes of
    /// each of them.
    ///
    /// # Errors
    /// Of the ring itself.
    pub fn wait(&mut self, mut each: impl FnMut(usize, io::Result<usize>)) -> io::Result<()> {
        if self.in_flight == 0 {
            return Ok(());
        }
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        for entry in self.ring.completion() {
            let slot = entry.user_data() as usize;
            self.is_in_flight[slot] = false;
            self.in_flight -= 1;
            let result = entry.result();
            each(slot, usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)));
        }
        Ok(())
    }
}

impl Drop for UringFile {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.wait(|_, _| {}).is_err() {
                // The kernel may still use the buffers: they are leaked rather than freed.
                return;
            }
        }
        // SAFETY: no transfer is in flight, and the buffers are not used again.
        unsafe { ManuallyDrop::drop(&mut self.buffers) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn transfers_in_flight_reach_their_offsets() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("uring-file");
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let buffers = || (0..4).map(|_| Buffer::new(8192, None).unwrap()).collect();
        let mut ring = UringFile::new(file.try_clone().unwrap().into(), buffers()).unwrap();
        for slot in 0..4 {
            ring.buffer(slot).unwrap().fill(slot as u8 + 1);
            ring.start(slot, Direction::Send, slot as u64 * 8192).unwrap();
            assert!(ring.buffer(slot).is_none());
        }
        let mut done = 0;
        while ring.in_flight() > 0 {
            ring.wait(|_, bytes| done += bytes.unwrap()).unwrap();
        }
        assert_eq!((done, ring.free()), (4 * 8192, Some(0)));
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.chunks(8192).zip(1..).all(|(chunk, value)| chunk.iter().all(|byte| *byte == value)));
        ring.start(0, Direction::Receive, 3 * 8192).unwrap();
        ring.wait(|slot, bytes| assert_eq!((slot, bytes.unwrap()), (0, 8192))).unwrap();
        assert_eq!(ring.buffer(0).unwrap()[0], 4);
        std::fs::remove_file(&path).unwrap();
    }
}
