//! Incoming stream: FPDUs are decoded, headers collected, payload placed as it
//! arrives.

use smallvec::SmallVec;

use super::machine::Machine;
use super::message::Spans;
use super::place::Target;
use super::{Event, State};
use crate::ddp::{DdpError, Header, UNTAGGED_BYTES};
use crate::memory::Span;
use crate::mpa::Framed;
use crate::rdmap::{ErrorCode, Opcode, TERMINATE_MAX};

/// Minimum remaining payload for receiving directly from the socket into
/// memory; less is copied.
const STRAIGHT_BYTES: usize = 4096;
/// With CRCs, the end of a segment's payload goes through the staging buffer,
/// so that a consumer that polls the last byte sees it only after the CRC over
/// everything before it was computed: it may reuse the memory at once.
const TAIL_BYTES: usize = 64;
/// Staging bytes after an FPDU: the header of the next one, or a whole small
/// one and the header after it. A message of 64 KiB or 1 MiB ends with a small
/// one.
const AHEAD_BYTES: usize = 2048;
/// The same where payload behind it is placed by a call of its own: the small FPDU and the header alone.
const AHEAD_HELD_BYTES: usize = 384;
/// The same with receives that extend: the beginning of the next message too, which its receive has room for, so that
/// the memory of the rest is known at the next call.
const AHEAD_EXTENDED_BYTES: usize = 6144;

/// Buffer for the body of a message without registered memory.
pub(super) const BODY_BYTES: usize = 80;
const _: () = assert!(TERMINATE_MAX <= BODY_BYTES);

/// The current segment.
#[derive(Debug)]
pub(super) struct Fpdu {
    /// Length of its ULPDU.
    pub ulpdu: usize,
    /// Header bytes received so far.
    pub head: [u8; UNTAGGED_BYTES],
    pub have: usize,
    /// Decoded header, once it is complete and valid.
    pub header: Option<(Header, Opcode)>,
    pub target: Target,
    /// Payload bytes received so far.
    pub done: usize,
    /// Error of the segment. Reported once its CRC was verified.
    pub fault: Option<ErrorCode>,
    /// Body of a request, response or Terminate.
    pub body: [u8; BODY_BYTES],
    pub body_have: usize,
    /// Memory looked up for payload from the given offset on, valid during one
    /// call.
    pub found: Option<(Span, usize)>,
}

impl Default for Fpdu {
    fn default() -> Self {
        Self {
            ulpdu: 0,
            head: [0; UNTAGGED_BYTES],
            have: 0,
            header: None,
            target: Target::Nothing,
            done: 0,
            fault: None,
            body: [0; BODY_BYTES],
            body_have: 0,
            found: None,
        }
    }
}

impl Fpdu {
    fn begin(&mut self, ulpdu: usize) {
        self.ulpdu = ulpdu;
        self.have = 0;
        self.header = None;
        self.target = Target::Nothing;
        self.done = 0;
        self.fault = None;
        self.body_have = 0;
        self.found = None;
    }

    /// Returns the length of the header; its first byte must be present.
    pub(super) fn header_bytes(&self) -> usize {
        Header::length_of(self.head[0])
    }

    /// Returns the length of the payload.
    pub(super) fn payload(&self) -> usize {
        self.ulpdu.saturating_sub(self.header_bytes())
    }
}

impl Machine {
    /// Consumes received bytes. An incomplete header is kept; payload is placed
    /// immediately.
    pub fn consume(&mut self, staged: &[u8]) {
        self.lent.clear();
        let mut staged = staged;
        while !staged.is_empty() && self.is_receiving() && !self.is_waiting() {
            let whole = match self.deframer.whole(&mut staged) {
                Ok(Some(ulpdu)) => {
                    self.fpdu.begin(ulpdu.len());
                    self.ulpdu_bytes(ulpdu);
                    if self.is_waiting() {
                        self.excess.ends_fpdu = true;
                    } else {
                        self.end();
                    }
                    continue;
                }
                Ok(None) => self.deframer.next(&mut staged),
                Err(error) => Err(error),
            };
            match whole {
                Ok(Some(Framed::Begin(ulpdu))) => self.fpdu.begin(usize::from(ulpdu)),
                Ok(Some(Framed::Bytes(bytes))) => self.ulpdu_bytes(bytes),
                Ok(Some(Framed::End)) => self.end(),
                Ok(None) => break,
                // No field of the segment is trustworthy: nothing is quoted.
                Err(error) => self.terminate_stream(error.code()),
            }
        }
        if self.is_waiting() {
            self.excess.later.extend_from_slice(staged);
        }
        self.fpdu.found = None;
        if std::mem::take(&mut self.message_ended) || self.is_waiting() {
            self.settle_placements();
        }
        self.queue.retire(self.id, &mut self.completions);
    }

    /// Returns the spans for receiving payload directly from the socket, and
    /// the useful number of staging bytes after them: the end of the FPDU and
    /// the beginning of the next. `None` while less than a few kilobytes of
    /// payload follow.
    pub fn straight(&mut self) -> Option<(SmallVec<[Span; 4]>, usize)> {
        self.lent.clear();
        let run = self.deframer.straight();
        let tail = if self.checked { TAIL_BYTES } else { 0 };
        if run < STRAIGHT_BYTES + tail || !self.is_receiving() || self.fpdu.fault.is_some() {
            return None;
        }
        self.destinations(run - tail)?;
        if !self.lends_well() {
            self.lent.clear();
            return None;
        }
        let rest = self.deframer.missing() - run + tail;
        Some((self.lent.clone(), rest + self.ahead()))
    }

    /// How much of what follows the FPDU is useful in the staging buffer.
    fn ahead(&self) -> usize {
        if self.limits.receives_extend {
            AHEAD_EXTENDED_BYTES
        } else if self.lent.iter().all(Span::is_held) {
            AHEAD_HELD_BYTES
        } else {
            AHEAD_BYTES
        }
    }

    /// Whether one call can receive into all of it. With CRCs, memory that the program may take away is not read back: its
    /// payload is checked before it is placed.
    fn lends_well(&self) -> bool {
        let held = self.lent.iter().filter(|span| span.is_held()).count();
        let is_of_one_kind = held == 0 || held == self.lent.len();
        is_of_one_kind && (!self.checked || self.lent.iter().all(Span::is_direct))
    }

    /// Accounts for bytes received into the memory lent by
    /// [`Machine::straight`]. The CRC is computed while they are still in the
    /// cache. If the memory was withdrawn meanwhile, the stream ends without
    /// checking it.
    pub fn placed(&mut self, bytes: usize) {
        let lent: Spans = std::mem::take(&mut self.lent);
        let (mut left, mut there) = (bytes, Ok(()));
        for span in &lent {
            let now = left.min(span.len());
            if let Some(crc) = self.deframer.crc() {
                there = there.and_then(|()| span.slice(0, now).crc32c(crc));
            }
            left -= now;
        }
        let bytes = bytes - left;
        self.deframer.placed(bytes);
        self.fpdu.done += bytes;
        if there.is_err() {
            self.receive_failed();
            self.end();
        }
    }

    /// Whether the stream is still read.
    pub(super) fn is_receiving(&self) -> bool {
        matches!(self.state, State::Rts | State::Closing) && !self.peer_closed
    }

    /// Consumes bytes of the ULPDU, its header first.
    fn ulpdu_bytes(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.fpdu.header.is_none() && self.fpdu.fault.is_none() {
            bytes = self.head_bytes(bytes);
        }
        if !bytes.is_empty() && self.fpdu.fault.is_none() {
            self.place(bytes);
        }
    }

    /// Collects the header and checks it when it is complete; returns the bytes
    /// after it.
    fn head_bytes<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let fpdu = &mut self.fpdu;
        if fpdu.have == 0 {
            let Some(&control) = bytes.first() else { return bytes };
            fpdu.head[0] = control;
        }
        let length = fpdu.header_bytes();
        let (now, later) = bytes.split_at(bytes.len().min(length - fpdu.have));
        fpdu.head[fpdu.have..fpdu.have + now.len()].copy_from_slice(now);
        fpdu.have += now.len();
        if fpdu.have == length {
            match self.checked_header() {
                Ok((header, opcode, target)) => {
                    self.fpdu.header = Some((header, opcode));
                    self.fpdu.target = target;
                }
                Err(code) => self.fpdu.fault = Some(code),
            }
        }
        later
    }

    /// Decodes the header and determines the destination of the payload.
    fn checked_header(&mut self) -> Result<(Header, Opcode, Target), ErrorCode> {
        let length = self.fpdu.header_bytes();
        let short = DdpError::Short { bytes: self.fpdu.ulpdu };
        let header = match Header::decode(&self.fpdu.head[..length]) {
            Ok(Some((header, _))) => header,
            Ok(None) => return Err(short.code()),
            Err(error) => return Err(error.code()),
        };
        let opcode = self.operation(&header)?;
        let target = self.target(&header, opcode)?;
        Ok((header, opcode, target))
    }

    /// Processes a complete FPDU with a correct CRC.
    pub(super) fn end(&mut self) {
        if self.fpdu.header.is_none() && self.fpdu.fault.is_none() {
            let short = DdpError::Short { bytes: self.fpdu.ulpdu };
            self.fpdu.fault = Some(short.code());
        }
        if let Some(code) = self.fpdu.fault {
            self.terminate_segment(code);
            return;
        }
        if self.first_missing {
            self.first_missing = false;
            if !matches!(self.fpdu.header, Some((_, Opcode::Terminate))) {
                self.events.push_back(Event::Established);
            }
        }
        if let Some((header, opcode)) = self.fpdu.header {
            let (Header::Tagged { last, .. } | Header::Untagged { last, .. }) = header;
            self.message_ended |= last;
            if let Err(code) = self.deliver(&header, opcode) {
                self.terminate_segment(code);
            }
        }
    }
}
