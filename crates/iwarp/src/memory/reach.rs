//! How the bytes of memory are reached that a program has registered and may take away: never by a load or a store,
//! which would be killed by memory that went, and would write into other memory that came there.

use std::{io, mem::MaybeUninit};

use super::{AccessError, exchange, held};

/// How its bytes are reached.
pub(super) enum Reach {
    /// By the pages that the kernel holds since the registration.
    Held(held::Hold),
    /// By the kernel at the address: memory that is gone is an error. Other memory that came there is not noticed.
    Checked,
}

impl Reach {
    /// Copies bytes to an offset of the memory that begins at `base`.
    ///
    /// # Errors
    /// The memory is gone.
    pub(super) fn store(&self, base: *mut u8, at: usize, bytes: &[u8]) -> Result<(), AccessError> {
        let stored = match self {
            Self::Held(hold) => {
                let parts: smallvec::SmallVec<[_; 1]> = hold.parts(at, bytes.len()).collect();
                hold.rings().place(&parts, bytes)
            }
            Self::Checked => exchange::with(|exchange| exchange.store(base.wrapping_add(at), bytes)),
        };
        stored.map_err(gone)
    }

    /// Copies bytes from an offset of it.
    ///
    /// # Errors
    /// The memory is gone.
    pub(super) fn load(
        &self,
        base: *mut u8,
        at: usize,
        into: &mut [MaybeUninit<u8>],
    ) -> Result<(), AccessError> {
        let loaded = match self {
            Self::Held(hold) => {
                let mut into = into;
                hold.parts(at, into.len()).try_for_each(|part| {
                    let (now, later) = std::mem::take(&mut into).split_at_mut(part.length as usize);
                    into = later;
                    hold.rings().fetch(part, now)
                })
            }
            Self::Checked => exchange::with(|exchange| exchange.load(base.wrapping_add(at), into)),
        };
        loaded.map_err(gone)
    }
}

/// Whatever the kernel says of an access: its bytes are not there.
fn gone(_error: io::Error) -> AccessError {
    AccessError::InvalidStag
}
