//! Messages of netfilter's netlink family: encoding and decoding.

use std::io;

use netlink_sys::Socket;
use rustix::net::{RecvFlags, recv};
use std::os::fd::AsFd;

use crate::refusal::Refusal;

/// Flag in `nla_type` of a nested attribute.
const NLA_F_NESTED: u16 = 1 << 15;

/// Octets of `struct nlmsghdr` and of the error number before the message quoted in an acknowledgement.
const QUOTED: usize = 16 + 4;

/// Messages sent together.
#[derive(Debug, Default)]
pub(crate) struct Batch(Vec<u8>);

impl Batch {
    /// Adds a message of (subsystem, kind) with its attributes. `resource` is the number of a queue, or the
    /// subsystem of a batch.
    pub(crate) fn message(
        &mut self,
        (subsystem, kind): (u16, u16),
        flags: u16,
        family: u8,
        resource: u16,
        write: impl FnOnce(&mut dyn Attributes),
    ) {
        let start = self.0.len();
        // struct nlmsghdr: length, type, flags, sequence, port; then struct nfgenmsg.
        self.0.extend(0u32.to_ne_bytes());
        self.0.extend((subsystem << 8 | kind).to_ne_bytes());
        self.0.extend(flags.to_ne_bytes());
        self.0.extend([0; 8]);
        self.0.extend([family, 0]);
        self.0.extend(resource.to_be_bytes());
        write(&mut self.0);
        let length = u32::try_from(self.0.len() - start).unwrap_or(u32::MAX);
        self.0[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Sends the batch and reads `acknowledged` acknowledgements; returns the first error.
    pub(crate) fn send(&self, socket: &Socket, acknowledged: usize) -> io::Result<()> {
        socket.send(&self.0, 0)?;
        let (mut buffer, mut left) = ([0; 8192], acknowledged);
        while left > 0 {
            let (length, _) = recv(socket.as_fd(), &mut buffer[..], RecvFlags::empty())?;
            let mut rest = &buffer[..length];
            while let Some((message, after)) = split_message(rest) {
                rest = after;
                // An error quotes its message of the batch.
                let quoted = message.get(QUOTED..).unwrap_or_default();
                match Refusal::read(message, quoted) {
                    Some(Err(refusal)) => return Err(refusal.into()),
                    Some(Ok(())) => left = left.saturating_sub(1),
                    None => {}
                }
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The first message of the received bytes, and the rest.
pub(crate) fn split_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
    let message = bytes.get(..length).filter(|message| message.len() >= 16)?;
    Some((message, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// Writer of attributes.
pub(crate) trait Attributes {
    /// One attribute.
    fn bytes(&mut self, kind: u16, value: &[u8]);
    /// A nested attribute.
    fn nest(&mut self, kind: u16, write: &mut dyn FnMut(&mut dyn Attributes));

    /// A 32-bit number, in network byte order as in netfilter.
    fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// A text with its terminating zero.
    fn text(&mut self, kind: u16, value: &str) {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat());
    }
}

impl Attributes for Vec<u8> {
    fn bytes(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.extend(length.to_ne_bytes());
        self.extend(kind.to_ne_bytes());
        self.extend(value);
        self.resize(self.len().next_multiple_of(4), 0);
    }

    fn nest(&mut self, kind: u16, write: &mut dyn FnMut(&mut dyn Attributes)) {
        let start = self.len();
        self.extend([0; 2]);
        self.extend((kind | NLA_F_NESTED).to_ne_bytes());
        write(self);
        let length = u16::try_from(self.len() - start).unwrap_or(u16::MAX);
        self[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }
}

/// The attributes of a message, in order; ends at the first truncated one.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & !NLA_F_NESTED;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}
