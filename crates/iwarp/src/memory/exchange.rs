//! Copies by the kernel between bytes of ours and memory at an address that may be gone: what a load or a store would be
//! killed for is an error of a system call (pread(2), pwrite(2): `EFAULT`).
//!
//! They pass through a file in memory, which is mapped here: reading it is one call that touches no other memory.

use std::{
    cell::RefCell,
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
};

use rustix::{
    fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create},
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

/// Size of the file: of more, part after part is copied.
pub(super) const EXCHANGE_BYTES: usize = 128 * 1024;

/// The file, and where it is mapped.
pub(super) struct Exchange {
    file: OwnedFd,
    map: NonNull<u8>,
}

// SAFETY: the mapping is used by its owner only, and the kernel's copies are calls of that owner.
unsafe impl Send for Exchange {}

impl Exchange {
    pub(super) fn new() -> io::Result<Self> {
        let file = memfd_create("clearstream-exchange", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, EXCHANGE_BYTES as u64)?;
        // io_uring takes a read of such a file for one that may block, and gives it to a thread of its own, unless the
        // file says that it does not (io_uring/rw.c: io_file_supports_nowait).
        fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let map = unsafe { mmap(ptr::null_mut(), EXCHANGE_BYTES, rights, MapFlags::SHARED, &file, 0)? };
        let map = NonNull::new(map.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { file, map })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd as _;
        self.file.as_fd()
    }

    /// Puts bytes into the file, at an offset.
    pub(super) fn fill(&mut self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= EXCHANGE_BYTES));
        // SAFETY: inside the mapping, which nothing else refers to.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_ptr().add(at), bytes.len()) };
    }

    /// Copies bytes to an address.
    ///
    /// # Errors
    /// It cannot be written there; the beginning may have been.
    pub(super) fn store(&mut self, to: *mut u8, bytes: &[u8]) -> io::Result<()> {
        for (index, part) in bytes.chunks(EXCHANGE_BYTES).enumerate() {
            self.fill(0, part);
            let place = to.wrapping_add(index * EXCHANGE_BYTES).cast();
            // SAFETY: the kernel checks the address. Memory that is there belongs to the registration, or the program
            // has put it at an address that it had registered, which `super::raw` names as not protected.
            whole(unsafe { libc::pread(self.file.as_raw_fd(), place, part.len(), 0) }, part.len())?;
        }
        Ok(())
    }

    /// Copies bytes from an address.
    ///
    /// # Errors
    /// It cannot be read there; the beginning may have been.
    pub(super) fn load(&mut self, from: *const u8, into: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        for (index, part) in into.chunks_mut(EXCHANGE_BYTES).enumerate() {
            let place = from.wrapping_add(index * EXCHANGE_BYTES).cast();
            // SAFETY: the kernel checks the address.
            whole(unsafe { libc::pwrite(self.file.as_raw_fd(), place, part.len(), 0) }, part.len())?;
            // SAFETY: that much is mapped, and `into` is exclusive.
            unsafe { ptr::copy_nonoverlapping(self.map.as_ptr(), part.as_mut_ptr().cast(), part.len()) };
        }
        Ok(())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // SAFETY: mapped with this size, and no reference is left.
        let _unmapped = unsafe { munmap(self.map.as_ptr().cast(), EXCHANGE_BYTES) };
    }
}

/// A copy that ends early has met an address that is not there.
fn whole(copied: isize, length: usize) -> io::Result<()> {
    match usize::try_from(copied) {
        Ok(copied) if copied == length => Ok(()),
        Ok(_) => Err(Errno::FAULT.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Calls with the exchange of this thread.
///
/// # Errors
/// There is no memory or no descriptor for one, or those of the call.
pub(super) fn with<T>(call: impl FnOnce(&mut Exchange) -> io::Result<T>) -> io::Result<T> {
    thread_local! {
        static OWN: RefCell<Option<Exchange>> = const { RefCell::new(None) };
    }
    OWN.with_borrow_mut(|own| match own {
        Some(exchange) => call(exchange),
        None => call(own.insert(Exchange::new()?)),
    })
}
