//! Pages locked in physical memory (mlock).

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::MemoryError;

/// Pinned ranges, by pages: `munlock` unlocks a page at once however often it
/// was locked (mlock(2), "memory locks do not stack"), so pages that another
/// registration still pins must stay locked.
static PINNED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// A pinned range; unpinned when dropped.
pub(super) struct Pinned {
    pages: (usize, usize),
}

impl Pinned {
    pub(super) fn new(base: *mut u8, length: usize) -> Result<Self, MemoryError> {
        let page = page_size();
        let first = base.addr() / page * page;
        let last = base.addr().saturating_add(length).next_multiple_of(page);
        let pages = (first, if length == 0 { first } else { last });
        let mut pinned = all();
        // SAFETY: `mlock` neither reads nor writes; the kernel rejects unmapped
        // addresses.
        if length > 0 && unsafe { libc::mlock(base.cast(), length) } != 0 {
            return Err(MemoryError::NotPinned { length_bytes: length, source: io::Error::last_os_error() });
        }
        pinned.push(pages);
        Ok(Self { pages })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut pinned = all();
        if let Some(place) = pinned.iter().position(|pages| *pages == self.pages) {
            pinned.swap_remove(place);
        }
        for (first, last) in without(self.pages, &pinned) {
            // SAFETY: as for `mlock`; an unmapped address is rejected.
            unsafe { libc::munlock(std::ptr::without_provenance(first), last - first) };
        }
    }
}

fn all() -> MutexGuard<'static, Vec<(usize, usize)>> {
    PINNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the parts of a range that no other range covers.
fn without(range: (usize, usize), others: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut parts = vec![range];
    for (first, last) in others {
        parts = parts
            .into_iter()
            .flat_map(|part| [(part.0, part.1.min(*first)), (part.0.max(*last), part.1)])
            .filter(|part| part.0 < part.1)
            .collect();
    }
    parts.sort_unstable();
    parts.dedup();
    parts
}

fn page_size() -> usize {
    rustix::param::page_size()
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn pages_of_other_ranges_stay_locked() {
        assert_eq!(without((0, 10), &[]), [(0, 10)]);
        assert_eq!(without((0, 10), &[(10, 12), (20, 30)]), [(0, 10)]);
        assert_eq!(without((0, 10), &[(2, 4), (6, 7)]), [(0, 2), (4, 6), (7, 10)]);
        assert_eq!(without((0, 10), &[(0, 3), (8, 12)]), [(3, 8)]);
        assert_eq!(without((4, 8), &[(0, 10)]), []);
        assert_eq!(without((4, 8), &[(4, 8)]), []);
    }
}
