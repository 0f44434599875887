//! Shared mappings of files, mmap(2) with `MAP_SHARED`, byte by byte: another process may change any byte at
//! any time, so no slice of it is ever formed.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU8, Ordering},
};

/// A shared mapping of the first bytes of a file. Access to bytes behind the end of a file that was truncated
/// ends the process by SIGBUS.
#[derive(Debug)]
pub struct SharedFileMap {
    start: NonNull<AtomicU8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is accessed by atomic operations only.
unsafe impl Send for SharedFileMap {}

impl SharedFileMap {
    /// Maps the first `length` bytes for reading and writing.
    ///
    /// # Errors
    /// Those of mmap(2): `ENODEV` where the file system has no mappings.
    pub fn new(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        Self::at(file, 0, length)
    }

    /// Maps `length` bytes from an offset, a multiple of the page size.
    ///
    /// # Errors
    /// As for [`Self::new`]; `EINVAL` for another offset.
    pub fn at(file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let file = file.as_raw_fd();
        // SAFETY: the kernel chooses an unused address, so no other memory is changed.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// Copies bytes to an offset, as fast as memory is; what lies behind the mapping is left out.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let length = bytes.len().min(self.length.saturating_sub(offset));
        // SAFETY: both ranges are valid for `length` bytes and do not overlap, since the mapping is ours alone
        // in this process. What other processes do to the file meanwhile is as for write(2).
        unsafe {
            self.start
                .as_ptr()
                .cast::<u8>()
                .add(offset.min(self.length))
                .copy_from_nonoverlapping(bytes.as_ptr(), length);
        }
    }

    /// Copies bytes from an offset, as fast as memory is, up to the end of the mapping.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let length = bytes.len().min(self.length.saturating_sub(offset));
        // SAFETY: as in `write`.
        unsafe {
            self.start
                .as_ptr()
                .cast::<u8>()
                .add(offset.min(self.length))
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), length);
        }
    }

    /// Stores bytes at an offset; what lies behind the mapping is left out.
    pub fn store(&self, offset: usize, bytes: &[u8]) {
        for (place, byte) in (offset..self.length).zip(bytes) {
            self.byte(place).store(*byte, Ordering::SeqCst);
        }
    }

    /// Loads bytes from an offset, up to the end of the mapping.
    pub fn load(&self, offset: usize, length: usize) -> Vec<u8> {
        (offset..self.length).take(length).map(|place| self.byte(place).load(Ordering::SeqCst)).collect()
    }

    fn byte(&self, place: usize) -> &AtomicU8 {
        assert!(place < self.length);
        // SAFETY: the place is inside of the mapping, which lives as long as self.
        unsafe { self.start.add(place).as_ref() }
    }
}

impl Drop for SharedFileMap {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing borrows from it any more.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{io::Write as _, os::fd::AsFd as _};

    use super::*;

    #[test]
    fn two_mappings_of_a_file_hold_the_same_bytes() {
        let path = std::env::temp_dir().join(format!("clearstream-file-map-{}", std::process::id()));
        let mut file =
            std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all(&[b'.'; 100]).unwrap();
        let (one, two) =
            (SharedFileMap::new(file.as_fd(), 100).unwrap(), SharedFileMap::new(file.as_fd(), 100).unwrap());
        one.store(98, b"abc");
        assert_eq!(two.load(97, 10), b".ab");
        assert_eq!(std::fs::read(&path).unwrap()[98..], *b"ab");
        std::fs::remove_file(&path).unwrap();
    }
}
