//! How what a run has made is told from what others put in its place. Two marks tell it: what the kernel knows an entry by,
//! as soon as that was looked at, and before that, or where the run was killed, the mode that only a run's items have.

use std::{num::NonZeroU64, os::fd::AsFd};

use rustix::{
    fs::{AtFlags, FileType, Mode, Statx, StatxFlags, statx},
    io::Errno,
};
use serde::{Deserialize, Serialize};

/// Of files and directories that do not stay: the sticky bit means nothing of a file (chmod(2)), and no program makes data
/// files executable. File systems that drop the bit for files (ZFS) keep that.
pub(crate) const MADE_MODE: Mode = Mode::from_raw_mode(0o1700);
/// Bits of a mode.
const MODE_BITS: u16 = 0o7777;
/// What is asked of an entry.
pub(crate) const WANTED: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::MODE)
    .union(StatxFlags::UID)
    .union(StatxFlags::INO)
    .union(StatxFlags::BTIME);

/// What the kernel knows an entry by: device, inode number and, where the file system has it, time of birth (statx(2)),
/// as one number, of which tables have millions. The number of an inode alone is that of the next file, too (ext4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Inode(NonZeroU64);

impl Inode {
    pub(crate) fn of(found: &Statx) -> Self {
        let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = if has_birth { (found.stx_btime.tv_sec, found.stx_btime.tv_nsec) } else { (0, 0) };
        let parts = [
            u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor),
            found.stx_ino,
            born.0.cast_unsigned(),
            born.1.into(),
        ];
        // The finalizer of SplitMix64 (Steele, Lea, Flood 2014), which is a bijection of each part.
        let mixed = parts.into_iter().fold(0_u64, |sum, part| {
            let mut bits = (sum ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
            bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^ bits >> 31
        });
        Self(NonZeroU64::new(mixed).unwrap_or(NonZeroU64::MIN))
    }

    /// As a journal has it.
    pub(crate) fn number(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }
}

/// An open file.
pub(crate) fn look_at(file: impl AsFd) -> Result<Statx, Errno> {
    statx(file, c"", AtFlags::EMPTY_PATH, WANTED)
}

/// What a name leads to, not what a link does.
pub(crate) fn look_up(directory: impl AsFd, name: impl rustix::path::Arg) -> Result<Statx, Errno> {
    statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, WANTED)
}

/// How what a run makes in a folder is known there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marks {
    /// Mode that files have, as far as the file system keeps it; nothing where theirs are those of anybody's.
    pub(crate) file: Option<u16>,
    pub(crate) directory: Option<u16>,
    /// A process or another host has the files: inode numbers may be those of a cache.
    pub(crate) is_remote: bool,
}

impl Marks {
    /// Where modes are kept.
    pub(crate) const KEPT: Self = Self {
        file: Some(MADE_MODE.bits() as u16),
        directory: Some(MADE_MODE.bits() as u16),
        is_remote: false,
    };
    /// Of what is to stay, and has the modes that its users want.
    pub(crate) const NONE: Self = Self { file: None, directory: None, is_remote: false };

    /// Whether an entry is one that the run has made; `before` is what its name led to when that was looked at last.
    pub(crate) fn is_own(&self, found: &Statx, kind: FileType, before: Option<Inode>) -> bool {
        if kind_of(found) != kind {
            return false;
        }
        match before {
            Some(before) if before == Inode::of(found) => true,
            Some(_) => self.is_remote && self.is_marked(found),
            None => self.is_marked(found),
        }
    }

    /// Whether an entry has the mode of what the run makes.
    pub(crate) fn is_marked(&self, found: &Statx) -> bool {
        let mode = match kind_of(found) {
            FileType::RegularFile => self.file,
            FileType::Directory => self.directory,
            _ => return false,
        };
        mode.is_none_or(|mode| mode == found.stx_mode & MODE_BITS)
    }
}

/// Kind of an entry.
pub(crate) fn kind_of(found: &Statx) -> FileType {
    FileType::from_raw_mode(found.stx_mode.into())
}

/// Bits of a mode that [`Marks`] compares.
pub(crate) fn mode_of(found: &Statx) -> u16 {
    found.stx_mode & MODE_BITS
}
