//! Page-aligned buffers, with huge pages and on a chosen NUMA node where available.

use std::{
    io,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

// include/uapi/linux/mempolicy.h
const MPOL_BIND: libc::c_ulong = 2;
const MPOL_F_NODE: libc::c_ulong = 1;
const MPOL_F_ADDR: libc::c_ulong = 2;
/// Nodes in the mask of mbind.
const MASK_NODES: u32 = 1024;

const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Minimum length for `MADV_HUGEPAGE`: a huge page for less than this is memory that nobody uses, once for each of many
/// threads.
const HUGE_LENGTH: usize = 128 << 10;

/// An anonymous mapping with every page touched.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
    mapped: usize,
}

// SAFETY: the mapping is owned by the value and reached through `&`/`&mut` only.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `length` bytes, bound to NUMA node `node` if given (mbind(2), strict),
    /// otherwise on the node of the calling thread, which touches every page.
    pub fn new(length: usize, node: Option<u32>) -> io::Result<Self> {
        let is_huge = length >= HUGE_LENGTH;
        let mapped = if is_huge { length.next_multiple_of(HUGE_PAGE_BYTES) } else { length.max(1) };
        // SAFETY: a new anonymous mapping at an address of the kernel's choice
        // aliases nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut buffer = Self { start, length, mapped };
        if is_huge {
            // SAFETY: advice about our own mapping. It may be refused, then pages
            // stay small.
            unsafe { libc::madvise(start.as_ptr().cast(), mapped, libc::MADV_HUGEPAGE) };
        }
        if let Some(node) = node {
            buffer.bind(node)?;
        }
        // Not zero, so that no page stays the shared zero page.
        buffer.fill(0x5a);
        Ok(buffer)
    }

    fn bind(&self, node: u32) -> io::Result<()> {
        let mut mask = [0 as libc::c_ulong; MASK_NODES as usize / libc::c_ulong::BITS as usize];
        let element = mask.get_mut((node / libc::c_ulong::BITS) as usize);
        *element.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? =
            1 << (node % libc::c_ulong::BITS);
        // SAFETY: the range is our own mapping; the kernel reads MASK_NODES
        // bits of the live mask (it takes one off the number given).
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.mapped,
                MPOL_BIND,
                mask.as_ptr(),
                libc::c_ulong::from(MASK_NODES) + 1,
                0 as libc::c_ulong,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The NUMA node of the first page (get_mempolicy(2)).
    pub fn node(&self) -> io::Result<u32> {
        let mut node: libc::c_int = 0;
        // SAFETY: the kernel writes one int; the address is our own mapping.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut node,
                std::ptr::null_mut::<libc::c_ulong>(),
                0 as libc::c_ulong,
                self.start.as_ptr(),
                MPOL_F_NODE | MPOL_F_ADDR,
            )
        };
        match (result, u32::try_from(node)) {
            (0, Ok(node)) => Ok(node),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes from `start` are mapped, initialised (zeroed
        // by the kernel) and live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more; the
        // kernel holds references of its own to pages that it still sends.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn is_page_aligned_writable_and_on_the_requested_node() {
        let mut buffer = Buffer::new(100_000, Some(0)).unwrap();
        assert_eq!(buffer.len(), 100_000);
        assert_eq!(buffer.as_ptr() as usize % 4096, 0);
        buffer[99_999] = 7;
        assert_eq!((buffer[0], buffer[99_999]), (0x5a, 7));
        assert_eq!(buffer.node().unwrap(), 0);
    }

    #[test]
    fn an_absent_node_is_rejected() {
        for node in [900, 1024, u32::MAX] {
            assert_eq!(Buffer::new(1, Some(node)).unwrap_err().raw_os_error(), Some(libc::EINVAL), "{node}");
        }
    }
}
