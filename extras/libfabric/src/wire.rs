//! Header of each Send between two endpoints, in native byte order: both sides are of one architecture, as the private
//! data of the connection states.

use crate::abi::fi_cq_tagged_entry;

/// Kind of a Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message, whose payload follows the header.
    Eager = 1,
    /// A message that the receiver reads from the sender's memory.
    Rendezvous = 2,
    /// The message of a rendezvous was read, or the bytes of [`Kind::Write`] are in place.
    Finished = 3,
    /// Credits only.
    Credits = 4,
    /// Memory of the receiver is to be read: its key in the tag, the offset in the address. It comes as
    /// [`Kind::Fetched`].
    Fetch = 5,
    /// The memory that was to be read or written is not there, or that is not allowed: the number of [`Kind::Fetch`] or
    /// [`Kind::Write`].
    Refused = 6,
    /// Bytes for memory of the receiver follow the header: its key in the tag, the offset in the address.
    Write = 7,
    /// The bytes that [`Kind::Fetch`] asked for follow the header, which has its number.
    Fetched = 8,
}

/// Whether bytes of the program follow the header of this kind.
pub fn has_payload(kind: u8) -> bool {
    [Kind::Eager, Kind::Write, Kind::Fetched].into_iter().any(|other| kind == other as u8)
}

/// The message has a tag.
pub const TAGGED: u8 = 1;
/// The message has data for the completion.
pub const WITH_DATA: u8 = 2;

/// In the credits: this side holds many bytes of its peer's messages without a receive, so long ones are to be offered.
pub const HOLDS: u16 = 1 << 15;

/// The header.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Header {
    /// A [`Kind`].
    pub kind: u8,
    /// [`TAGGED`], [`WITH_DATA`].
    pub flags: u8,
    /// Receives that were reposted since the last Send, and [`HOLDS`].
    pub credits: u16,
    /// Length of the message.
    pub length: u32,
    /// Tag of the message.
    pub tag: u64,
    /// Data for the completion.
    pub data: u64,
    /// Rendezvous: tag of the sender's memory.
    pub stag: u32,
    /// Zero.
    pub reserved: u32,
    /// Rendezvous: address of the message. Fetch, write: offset in the region.
    pub address: u64,
    /// Rendezvous, fetch, write: the sender's number of it, which its answer has too.
    pub number: u64,
}

/// Bytes of the header that a kind has: an eager one ends before the place of the message.
pub const EAGER_BYTES: usize = 24;
/// The same of the other kinds.
pub const FULL_BYTES: usize = size_of::<Header>();

impl Header {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        let length = if self.kind == Kind::Eager as u8 { EAGER_BYTES } else { FULL_BYTES };
        // SAFETY: all bytes are initialised: the structure has no padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), length) }
    }

    /// Reads it from the beginning of a Send; `None` if that is shorter.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let length = if *bytes.first()? == Kind::Eager as u8 { EAGER_BYTES } else { FULL_BYTES };
        let mut header = Self::default();
        // SAFETY: every value is valid for its members, and it is no shorter than `length`.
        let into =
            unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(&mut header).cast::<u8>(), length) };
        into.copy_from_slice(bytes.get(..length)?);
        Some(header)
    }
}

const _: () = assert!(FULL_BYTES == 48 && size_of::<fi_cq_tagged_entry>() == 48);
