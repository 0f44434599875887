//! Shared mappings of files, mmap(2) with `MAP_SHARED`. Another process may change any byte at any time, so no slice of
//! it is ever formed: bytes are copied by atomic operations, or for speed by volatile words, which for memory that no
//! Rust object is in are what the hardware does (`std::ptr::read_volatile`). A word that somebody changes meanwhile
//! may be torn, as by write(2).

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU8, Ordering},
};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// A shared mapping of the first bytes of a file. The kernel ends the process by SIGBUS at an access to a page behind the
/// end of the file, as when somebody truncates it meanwhile, and at one that the file system has no space for or cannot
/// read (mmap(2)): map only files of one's own whose space is there (fallocate(2)), in a process that may end.
#[derive(Debug)]
pub struct SharedFileMap {
    start: NonNull<AtomicU8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread. Threads of this process do not access one at the same time:
// it is not `Sync`.
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

    /// Has the pages of a part there, for reading or for writing (madvise(2), `MADV_POPULATE_READ`, `MADV_POPULATE_WRITE`).
    ///
    /// # Errors
    /// `EFAULT` where an access would end the process by SIGBUS. A kernel without it (before 5.14) is no error.
    pub fn populate(&self, offset: usize, length: usize, for_writing: bool) -> io::Result<()> {
        let page = 4096;
        let first = offset.min(self.length) / page * page;
        let behind = offset.saturating_add(length).min(self.length);
        let advice = if for_writing { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        // SAFETY: the range is within our own mapping; the advice changes no contents.
        let result = unsafe {
            libc::madvise(self.start.as_ptr().cast::<u8>().add(first).cast(), behind - first, advice)
        };
        match result {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Copies bytes to an offset, as fast as memory is; what lies behind the mapping is left out.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let offset = offset.min(self.length);
        let bytes = &bytes[..bytes.len().min(self.length - offset)];
        // SAFETY: the mapping has that many bytes from the offset on.
        let to = unsafe { self.start.as_ptr().cast::<u8>().add(offset) };
        let head = to.align_offset(WORD).min(bytes.len());
        let (first, rest) = bytes.split_at(head);
        let words = rest.chunks_exact(WORD);
        let last = words.remainder();
        for (place, byte) in first.iter().enumerate() {
            // SAFETY: as above.
            unsafe { to.add(place).write_volatile(*byte) };
        }
        let mut place = head;
        for word in words {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            // SAFETY: as above, and the place is a multiple of a word.
            unsafe { to.add(place).cast::<u64>().write_volatile(word) };
            place += WORD;
        }
        for (above, byte) in last.iter().enumerate() {
            // SAFETY: as above.
            unsafe { to.add(place + above).write_volatile(*byte) };
        }
    }

    /// Copies bytes from an offset, as fast as memory is, up to the end of the mapping.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let offset = offset.min(self.length);
        let length = bytes.len().min(self.length - offset);
        let bytes = &mut bytes[..length];
        // SAFETY: the mapping has that many bytes from the offset on.
        let from = unsafe { self.start.as_ptr().cast::<u8>().add(offset) };
        let head = from.align_offset(WORD).min(length);
        let (first, rest) = bytes.split_at_mut(head);
        for (place, byte) in first.iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = unsafe { from.add(place).read_volatile() };
        }
        let mut place = head;
        let mut words = rest.chunks_exact_mut(WORD);
        for word in &mut words {
            // SAFETY: as above, and the place is a multiple of a word.
            let found = unsafe { from.add(place).cast::<u64>().read_volatile() };
            word.copy_from_slice(&found.to_ne_bytes());
            place += WORD;
        }
        for (above, byte) in words.into_remainder().iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = unsafe { from.add(place + above).read_volatile() };
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

    /// Waits until the bytes are in the file, and in the other mappings of it (msync(2), `MS_SYNC | MS_INVALIDATE`).
    ///
    /// # Errors
    /// Those of msync(2).
    pub fn synchronize(&self) -> io::Result<()> {
        let flags = libc::MS_SYNC | libc::MS_INVALIDATE;
        // SAFETY: the range is that of the mapping, and no Rust object is in it.
        let result = unsafe { libc::msync(self.start.as_ptr().cast(), self.length, flags) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file-map");
        let mut file =
            std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all(&[b'.'; 100]).unwrap();
        let (one, two) =
            (SharedFileMap::new(file.as_fd(), 100).unwrap(), SharedFileMap::new(file.as_fd(), 100).unwrap());
        one.store(98, b"abc");
        one.synchronize().unwrap();
        assert_eq!(two.load(97, 10), b".ab");
        assert_eq!(std::fs::read(&path).unwrap()[98..], *b"ab");
        // Every place and length, also behind the end.
        let pattern: Vec<u8> = (0..100).map(|number| number as u8).collect();
        for (place, length) in (0..20).flat_map(|place| (0..40).map(move |length| (place, length))) {
            one.write(0, &[0; 100]);
            one.write(place, &pattern[..length]);
            let mut found = vec![0; length + 1];
            two.read(place, &mut found);
            assert_eq!(
                (&found[..length], found[length]),
                (&pattern[..length], 0),
                "{length} bytes at {place}"
            );
        }
        one.write(97, &pattern[1..20]);
        one.write(101, &pattern);
        let mut found = [9; 5];
        two.read(98, &mut found);
        assert_eq!(found, [2, 3, 9, 9, 9]);
        std::fs::remove_file(&path).unwrap();
    }
}
