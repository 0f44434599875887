//! Memory whose pages the kernel holds from its registration to its end, as a card's driver does: buffers registered with
//! io_uring (io_uring_register(2), `pin_user_pages` with `FOLL_LONGTERM`).
//!
//! Bytes are read and written by requests that name the registration. They reach its pages whatever the program has done
//! to the addresses since: unmapped them, mapped others there, taken the rights away, cut the file. So no access of a
//! peer faults, and none reaches memory that was not registered.
//!
//! Each thread that has bytes to move takes a ring that is free; all rings have the same table (`CLONE_BUFFERS`, Linux
//! 6.13; before that there is one ring).

mod ring;

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd as _, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError},
    thread,
};

use io_uring::types::CloneBuffersFlags;
use smallvec::SmallVec;

pub use ring::Received;
use ring::Ring;
pub(super) use ring::{Outgoing, Part, REQUESTS};

/// Entries of the table (`IORING_MAX_REG_BUFFERS`).
const SLOTS: u16 = 1 << 14;
/// Bytes of an entry at most (io_uring/rsrc.c: `SZ_1G`).
const SLOT_BYTES: usize = 1 << 30;
/// Rings at most: threads that move bytes at one time.
const RINGS_MAX: usize = 8;

/// The rings of a memory table, made when memory is held for the first time.
#[derive(Default)]
pub(super) struct Keeper {
    rings: OnceLock<Result<Arc<Rings>, i32>>,
}

/// Rings with one table.
pub(super) struct Rings {
    rings: Vec<Mutex<Ring>>,
    free: Mutex<Vec<u16>>,
    can_send: bool,
}

/// Held memory: released when dropped.
pub(super) struct Hold {
    rings: Arc<Rings>,
    base: usize,
    length: usize,
    slots: SmallVec<[u16; 1]>,
}

impl Keeper {
    /// Holds memory.
    ///
    /// # Errors
    /// `EFAULT`: it cannot be written, or is of a file; `ENOMEM`: `RLIMIT_MEMLOCK`; `EPERM`, `ENOSYS`: no io_uring here;
    /// [`io::ErrorKind::PermissionDenied`]: not any more.
    pub(super) fn hold(&self, base: *mut u8, length: usize) -> io::Result<Hold> {
        let opened = self.rings.get_or_init(|| {
            Rings::new().map(Arc::new).map_err(|error| error.raw_os_error().unwrap_or(libc::ENOSYS))
        });
        let rings = opened.as_ref().map_err(|code| io::Error::from_raw_os_error(*code))?.clone();
        if !rings.are_usable() {
            return Err(ring::broken());
        }
        let mut hold = Hold { rings, base: base.addr(), length, slots: SmallVec::new() };
        let mut at = 0;
        while at < length {
            let slot = lock(&hold.rings.free).pop().ok_or(io::ErrorKind::QuotaExceeded)?;
            let now = SLOT_BYTES.min(length - at);
            // Released whether it was taken or not.
            hold.slots.push(slot);
            hold.rings.set(slot, base.wrapping_add(at), now)?;
            at += now;
        }
        Ok(hold)
    }
}

impl Hold {
    /// What moves its bytes.
    pub(super) fn rings(&self) -> &Rings {
        &self.rings
    }

    /// The parts of a range, in order.
    pub(super) fn parts(&self, at: usize, length: usize) -> impl Iterator<Item = Part> + '_ {
        assert!(at.checked_add(length).is_some_and(|end| end <= self.length));
        let (mut at, end) = (at, at + length);
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let index = at / SLOT_BYTES;
                let now = (end - at).min((index + 1) * SLOT_BYTES - at);
                let part = Part { slot: self.slots[index], address: self.base + at, length: now as u32 };
                at += now;
                part
            })
        })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for slot in self.slots.drain(..) {
            // A slot that cannot be emptied is not used again.
            if self.rings.set(slot, std::ptr::null_mut(), 0).is_ok() {
                lock(&self.rings.free).push(slot);
            }
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rings {
    fn new() -> io::Result<Self> {
        let with_table = || -> io::Result<_> {
            let ring = Ring::new()?;
            ring.uring.submitter().register_buffers_sparse(SLOTS.into())?;
            Ok(Mutex::new(ring))
        };
        let mut rings = vec![with_table()?];
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // One is enough, where there are descriptors or memory for no more.
        rings.extend((1..cores.min(RINGS_MAX)).map_while(|_| with_table().ok()));
        let mut made = Self { rings, free: Mutex::new((0..SLOTS).rev().collect()), can_send: false };
        made.probe();
        if made.are_usable() { Ok(made) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
    }

    /// Keeps the first ring only, where an entry cannot be copied to the others; finds out whether requests are carried
    /// out, and what they may ask for.
    fn probe(&mut self) {
        let page = [0_u64; 8];
        let is_shared = self.set(0, page.as_ptr().cast_mut().cast(), size_of_val(&page)).is_ok();
        if !is_shared {
            self.rings.truncate(1);
        }
        let mut can_send = true;
        for ring in &self.rings {
            can_send &= lock(ring).writes_without_signal(page.as_ptr().addr());
        }
        self.can_send = can_send;
        if self.set(0, std::ptr::null_mut(), 0).is_err() {
            self.rings.truncate(1);
        }
    }

    /// Whether the kernel takes requests of any ring; one that is busy works.
    fn are_usable(&self) -> bool {
        self.rings.iter().any(|ring| match ring.try_lock() {
            Ok(free) => !free.is_broken,
            Err(TryLockError::Poisoned(poisoned)) => !poisoned.into_inner().is_broken,
            Err(TryLockError::WouldBlock) => true,
        })
    }

    /// Sets an entry in all rings; nothing where the length is zero.
    fn set(&self, slot: u16, base: *mut u8, length: usize) -> io::Result<()> {
        let place = libc::iovec { iov_base: base.cast(), iov_len: length };
        let source = {
            let first = lock(&self.rings[0]);
            // SAFETY: the kernel checks the addresses and holds the pages themselves.
            unsafe { first.uring.submitter().register_buffers_update(slot.into(), &[place], None)? };
            first.uring.as_raw_fd()
        };
        for ring in &self.rings[1..] {
            let ring = lock(ring);
            let submitter = ring.uring.submitter();
            if length == 0 {
                // SAFETY: an empty entry.
                unsafe { submitter.register_buffers_update(slot.into(), &[place], None)? };
            } else {
                let slot = u32::from(slot);
                submitter.register_buffers_clone_offset(
                    source,
                    slot,
                    slot,
                    1,
                    CloneBuffersFlags::DST_REPLACE,
                )?;
            }
        }
        Ok(())
    }

    /// Receives by one call that does not block: into the parts, in order, and the rest into `staging`.
    pub(super) fn receive(
        &self,
        socket: BorrowedFd<'_>,
        parts: &[Part],
        staging: &mut [u8],
    ) -> io::Result<Received> {
        self.any().receive(socket, parts, staging)
    }

    /// Whether pages can be sent without a signal where the peer has gone (`RWF_NOSIGNAL`, Linux 6.18).
    pub(super) fn can_send(&self) -> bool {
        self.can_send
    }

    /// Sends by one call that does not block; returns the number of bytes that the socket took.
    pub(super) fn send(
        &self,
        socket: BorrowedFd<'_>,
        pieces: &[Outgoing<'_>],
        more: bool,
    ) -> io::Result<usize> {
        self.any().send(socket, pieces, more)
    }

    /// Copies bytes into parts, in order.
    pub(super) fn place(&self, parts: &[Part], bytes: &[u8]) -> io::Result<()> {
        self.any().place(parts, bytes)
    }

    /// Copies bytes out of a part.
    pub(super) fn fetch(&self, part: Part, into: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        self.any().fetch(part, into)
    }

    /// A ring that is free, or the first one that will be and works; one that does not where none does.
    fn any(&self) -> MutexGuard<'_, Ring> {
        for ring in &self.rings {
            match ring.try_lock() {
                Ok(free) if !free.is_broken => return free,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Ok(_) | Err(TryLockError::WouldBlock) => {}
            }
        }
        let working = self.rings.iter().map(lock).find(|ring| !ring.is_broken);
        working.unwrap_or_else(|| lock(&self.rings[0]))
    }
}
