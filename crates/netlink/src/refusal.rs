//! Error replies of the kernel: the error number and, where available, the extended acknowledgement
//! (`NETLINK_EXT_ACK`, Documentation/userspace-api/netlink/intro.rst, linux/netlink.h).

use std::{fmt, io};

use netlink_sys::Socket;

use crate::ethtool::message::{attributes, number};

/// Octets of `struct nlmsghdr`, and of the error number that follows it.
const HEADER: usize = 16;
const CODE: usize = 4;
/// `NLMSG_ERROR` and `NLMSG_DONE`: both carry an error number.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_CAPPED`: the request is quoted without its payload.
const CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`: attributes follow.
const HAS_ATTRIBUTES: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`, `_OFFS`, `_MISS_TYPE`.
const MESSAGE: u16 = 1;
const OFFSET: u16 = 2;
const MISSING_TYPE: u16 = 5;
/// `NLA_TYPE_MASK`.
const TYPE_MASK: u16 = 0x3fff;

/// Error number of a rejected request, with the kernel's explanation where it gives one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    code: i32,
    explanation: Option<String>,
}

impl Refusal {
    /// A rejection without explanation.
    pub(crate) fn of(code: rustix::io::Errno) -> Self {
        Self { code: code.raw_os_error(), explanation: None }
    }

    /// Parses a whole message of type `NLMSG_ERROR` or `NLMSG_DONE`. `Ok` is an acknowledgement (error number
    /// 0 or a count); `None` for other or short messages. `request` is the rejected message, to name the
    /// attribute that the kernel points at.
    pub(crate) fn read(message: &[u8], request: &[u8]) -> Option<Result<(), Self>> {
        let header: &[u8; HEADER] = message.first_chunk()?;
        let [_, _, _, _, kind @ .., _, _, _, _, _, _, _, _] = *header;
        let (kind, flags) = (u16::from_ne_bytes([kind[0], kind[1]]), u16::from_ne_bytes([kind[2], kind[3]]));
        if kind != ERROR && kind != DONE {
            return None;
        }
        let body = &message[HEADER..];
        let code = match body.first_chunk() {
            Some(code) => i32::from_ne_bytes(*code),
            // The end of a dump may have no number.
            None if kind == DONE => return Some(Ok(())),
            None => return None,
        };
        if code >= 0 {
            return Some(Ok(()));
        }
        let quoted = match kind {
            DONE => 0,
            _ if flags & CAPPED != 0 => HEADER,
            _ => {
                let length = body.get(CODE..).and_then(|rest| rest.first_chunk());
                (length.map_or(0, |length| u32::from_ne_bytes(*length)) as usize).next_multiple_of(4)
            }
        };
        let explained = if flags & HAS_ATTRIBUTES == 0 { None } else { body.get(CODE + quoted..) };
        let explanation = explained.and_then(|explained| explanation(explained, request));
        Some(Err(Self { code: code.saturating_neg(), explanation }))
    }

    /// The error number.
    pub fn raw_os_error(&self) -> Option<i32> {
        Some(self.code)
    }

    /// The kind of the error number.
    pub fn kind(&self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.code).kind()
    }

    /// The kernel's explanation.
    pub fn explanation(&self) -> Option<&str> {
        self.explanation.as_deref()
    }
}

/// The kernel's message; without one, the rejected or missing attribute.
fn explanation(explained: &[u8], request: &[u8]) -> Option<String> {
    let (mut sentence, mut offset, mut missing) = (None, None, None);
    for (kind, value) in attributes(explained) {
        match kind {
            MESSAGE => {
                let text = value.strip_suffix(&[0]).unwrap_or(value);
                sentence = Some(String::from_utf8_lossy(text).trim().to_owned());
            }
            OFFSET => offset = number(value),
            MISSING_TYPE => missing = number(value),
            _ => {}
        }
    }
    let rejected = || {
        let place = usize::try_from(offset?).ok()?;
        let kind: &[u8; 2] = request.get(place + 2..)?.first_chunk()?;
        Some(format!("attribute {} of the request", u16::from_ne_bytes(*kind) & TYPE_MASK))
    };
    let absent = || missing.map(|kind| format!("attribute {kind} is missing in the request"));
    sentence.filter(|text| !text.is_empty()).or_else(absent).or_else(rejected)
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.code).fmt(f)?;
        match &self.explanation {
            Some(explanation) => write!(f, ": {explanation}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for io::Error {
    /// The same kind and text; the number only where there is no explanation.
    fn from(refusal: Refusal) -> Self {
        match refusal.explanation {
            None => Self::from_raw_os_error(refusal.code),
            Some(_) => Self::new(refusal.kind(), refusal),
        }
    }
}

/// Enables extended acknowledgements on a socket. A kernel without them (before 4.12) replies with error
/// numbers alone.
pub(crate) fn request_explanations(socket: &mut Socket) {
    let _ = socket.set_ext_ack(true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethtool::message::{put, request};

    /// `struct nlmsghdr`, `struct nlmsgerr` and attributes, as linux/netlink.h lays them out.
    fn rejection(kind: u16, flags: u16, quoted: &[u8], attributes: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        let length = HEADER + CODE + quoted.len() + attributes.len();
        message.extend_from_slice(&u32::try_from(length).unwrap().to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&flags.to_ne_bytes());
        message.extend_from_slice(&[7, 0, 0, 0, 9, 0, 0, 0]);
        message.extend_from_slice(&(-22i32).to_ne_bytes());
        message.extend_from_slice(quoted);
        message.extend_from_slice(attributes);
        message
    }

    #[test]
    fn the_message_is_found_after_a_whole_a_capped_and_no_quotation() {
        let sent = request(0x15, 4, 7, |out| put(out, 6, &[1, 2, 3]));
        let mut attributes = Vec::new();
        put(&mut attributes, OFFSET, &20u32.to_ne_bytes());
        put(&mut attributes, MESSAGE, b"Nexthop has invalid gateway\0");
        for (kind, flags, quoted) in [
            (ERROR, HAS_ATTRIBUTES, sent.as_slice()),
            (ERROR, HAS_ATTRIBUTES | CAPPED, &sent[..HEADER]),
            (DONE, HAS_ATTRIBUTES, &[]),
        ] {
            let message = rejection(kind, flags, quoted, &attributes);
            let refusal = Refusal::read(&message, &sent).unwrap().unwrap_err();
            assert_eq!(refusal.to_string(), "Invalid argument (os error 22): Nexthop has invalid gateway");
            assert_eq!(refusal.raw_os_error(), Some(22));
            let error = io::Error::from(refusal);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().ends_with("Nexthop has invalid gateway"));
        }
    }

    #[test]
    fn without_a_message_the_attribute_is_named() {
        let sent = request(0x15, 4, 7, |out| put(out, 6, &[1, 2, 3]));
        let explained = |kind: u16, value: u32| {
            let mut attributes = Vec::new();
            put(&mut attributes, kind, &value.to_ne_bytes());
            let message = rejection(ERROR, HAS_ATTRIBUTES | CAPPED, &sent[..HEADER], &attributes);
            Refusal::read(&message, &sent).unwrap().unwrap_err().explanation().map(str::to_owned)
        };
        assert_eq!(explained(OFFSET, 20).as_deref(), Some("attribute 6 of the request"));
        assert_eq!(explained(MISSING_TYPE, 3).as_deref(), Some("attribute 3 is missing in the request"));
        assert_eq!(explained(OFFSET, 4096), None, "outside the request");
    }

    #[test]
    fn accepts_any_bytes() {
        let whole = rejection(ERROR, HAS_ATTRIBUTES, &[0xff; 16], &[9, 9]);
        for cut in 0..whole.len() {
            let _ = Refusal::read(&whole[..cut], &[]);
        }
        let mut done = rejection(ERROR, 0, &[], &[]);
        done[HEADER..].fill(0);
        assert_eq!(Refusal::read(&done, &[]), Some(Ok(())));
        assert_eq!(Refusal::read(&rejection(16, 0, &[], &[]), &[]), None);
    }
}
