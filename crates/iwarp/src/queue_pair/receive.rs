//! The stream that comes in: FPDUs taken apart, headers gathered, payload
//! passed on as it comes.

use smallvec::SmallVec;

use super::machine::Machine;
use super::message::Spans;
use super::place::Target;
use super::{Event, State};
use crate::ddp::{DdpError, Header, UNTAGGED_BYTES};
use crate::memory::Span;
use crate::mpa::Framed;
use crate::rdmap::{ErrorCode, Opcode, TERMINATE_MAX};

/// Payload that is still to come goes straight from the socket into memory
/// when there is at least this much of it; less is copied.
const STRAIGHT_BYTES: usize = 4096;
/// With CRCs, the end of a segment's payload comes through the staging bytes,
/// so that a consumer that watches the last byte sees it only after the CRC
/// over everything before it was taken: it may use the memory again at once.
const TAIL_BYTES: usize = 64;
/// Staged behind an FPDU: the header of the next one, or all of a small one and
/// the header behind that. A message of 64 KiB or 1 MiB has one at its end.
const AHEAD_BYTES: usize = 2048;

/// Room for the body of a message that has no memory of its own.
pub(super) const BODY_BYTES: usize = 80;
const _: () = assert!(TERMINATE_MAX <= BODY_BYTES);

/// The segment under way.
#[derive(Debug)]
pub(super) struct Fpdu {
    /// Bytes of its ULPDU.
    pub ulpdu: usize,
    /// Its header as it came.
    pub head: [u8; UNTAGGED_BYTES],
    pub have: usize,
    /// What the header says, once it is complete and in order.
    pub header: Option<(Header, Opcode)>,
    pub target: Target,
    /// Payload that came.
    pub done: usize,
    /// What is wrong with it. Told once its CRC proved right.
    pub fault: Option<ErrorCode>,
    /// The body of a request, response or Terminate.
    pub body: [u8; BODY_BYTES],
    pub body_have: usize,
    /// Memory that was looked up for payload from the given byte on, during
    /// one call.
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

    /// Length of the header; at least the byte that says so must be there.
    pub(super) fn header_bytes(&self) -> usize {
        Header::length_of(self.head[0])
    }

    /// Bytes of payload.
    pub(super) fn payload(&self) -> usize {
        self.ulpdu.saturating_sub(self.header_bytes())
    }
}

impl Machine {
    /// Takes all of what came. An incomplete header is kept; payload goes
    /// where it belongs at once.
    pub fn consume(&mut self, staged: &[u8]) {
        self.lent.clear();
        let mut staged = staged;
        while !staged.is_empty() && self.listens() {
            let taken = match self.deframer.whole(&mut staged) {
                Ok(Some(ulpdu)) => {
                    self.fpdu.begin(ulpdu.len());
                    self.ulpdu_bytes(ulpdu);
                    self.end();
                    continue;
                }
                Ok(None) => self.deframer.next(&mut staged),
                Err(error) => Err(error),
            };
            match taken {
                Ok(Some(Framed::Begin(ulpdu))) => self.fpdu.begin(usize::from(ulpdu)),
                Ok(Some(Framed::Bytes(bytes))) => self.ulpdu_bytes(bytes),
                Ok(Some(Framed::End)) => self.end(),
                Ok(None) => break,
                // Nothing of the segment can be trusted: nothing is quoted.
                Err(error) => self.terminate_stream(error.code()),
            }
        }
        self.fpdu.found = None;
        self.queue.retire(self.id, &mut self.completions);
    }

    /// Where payload may go straight from the socket, and how many staging
    /// bytes behind it make sense: the end of the FPDU and the beginning of the
    /// next. `None` while less than a few kilobytes of payload follow.
    pub fn straight(&mut self) -> Option<(SmallVec<[Span; 4]>, usize)> {
        self.lent.clear();
        let run = self.deframer.straight();
        let tail = if self.checked { TAIL_BYTES } else { 0 };
        if run < STRAIGHT_BYTES + tail || !self.listens() || self.fpdu.fault.is_some() {
            return None;
        }
        self.places(run - tail)?;
        let rest = self.deframer.missing() - run + tail;
        Some((self.lent.clone(), rest + AHEAD_BYTES))
    }

    /// So many bytes came into the memory that [`Machine::straight`] lent. The
    /// CRC is taken over them while they are still in the cache. Where they were
    /// taken back meanwhile, there is none: the stream ends without it.
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
            self.unreceivable();
            self.end();
        }
    }

    /// The stream is still read.
    fn listens(&self) -> bool {
        matches!(self.state, State::Rts | State::Closing) && !self.peer_closed
    }

    /// Bytes of the ULPDU: its header first.
    fn ulpdu_bytes(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.fpdu.header.is_none() && self.fpdu.fault.is_none() {
            bytes = self.head_bytes(bytes);
        }
        if !bytes.is_empty() && self.fpdu.fault.is_none() {
            self.place(bytes);
        }
    }

    /// Gathers the header and judges it when it is complete; gives back what
    /// follows it.
    fn head_bytes<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let fpdu = &mut self.fpdu;
        if fpdu.have == 0 {
            let Some(&control) = bytes.first() else { return bytes };
            fpdu.head[0] = control;
        }
        let wanted = fpdu.header_bytes();
        let (now, later) = bytes.split_at(bytes.len().min(wanted - fpdu.have));
        fpdu.head[fpdu.have..fpdu.have + now.len()].copy_from_slice(now);
        fpdu.have += now.len();
        if fpdu.have == wanted {
            match self.judged() {
                Ok((header, opcode, target)) => {
                    self.fpdu.header = Some((header, opcode));
                    self.fpdu.target = target;
                }
                Err(code) => self.fpdu.fault = Some(code),
            }
        }
        later
    }

    /// What the header is, and where the payload goes.
    fn judged(&mut self) -> Result<(Header, Opcode, Target), ErrorCode> {
        let wanted = self.fpdu.header_bytes();
        let short = DdpError::Short { bytes: self.fpdu.ulpdu };
        let header = match Header::decode(&self.fpdu.head[..wanted]) {
            Ok(Some((header, _))) => header,
            Ok(None) => return Err(short.code()),
            Err(error) => return Err(error.code()),
        };
        let opcode = self.operation(&header)?;
        let target = self.target(&header, opcode)?;
        Ok((header, opcode, target))
    }

    /// The FPDU is complete and its CRC right.
    fn end(&mut self) {
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
        if let Some((header, opcode)) = self.fpdu.header
            && let Err(code) = self.deliver(&header, opcode)
        {
            self.terminate_segment(code);
        }
    }
}
