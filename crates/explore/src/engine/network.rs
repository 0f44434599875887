//! Records between ranks, collected into messages, and the detection that no rank has work left and
//! no message is in flight.
//!
//! Termination is Safra's version of Dijkstra's token (E. W. Dijkstra, "Shmuel Safra's version of
//! termination detection", EWD 998): a token goes around the ring of idle ranks and adds up messages
//! sent minus received; a rank that received one since the token left it makes the round void.

use std::time::Duration;

use clearstream_ranks::{Message, RankError, Tag, World};

const RECORDS: Tag = Tag(1);
const CONTROL: Tag = Tag(2);

/// Messages and bytes to each rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) messages: Vec<u64>,
    pub(crate) bytes: Vec<u64>,
}

/// What other ranks send.
enum Control {
    /// Messages in flight so far, and whether a rank made the round void.
    Token { in_flight: i64, void: bool },
    /// Nobody has work left.
    Done,
    /// A rank cannot go on.
    Stop,
}

/// A rank's connection with the others.
pub(crate) struct Network<'w> {
    world: &'w mut dyn World,
    message_bytes: usize,
    outgoing: Vec<Vec<u8>>,
    pub(crate) sent: Sent,
    /// Messages sent minus received.
    balance: i64,
    received: u64,
    received_since_token: bool,
    token: Option<(i64, bool)>,
    is_round_open: bool,
    ending: Option<Ending>,
}

/// How a phase ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Complete,
    Stopped,
}

impl<'w> Network<'w> {
    pub(crate) fn new(world: &'w mut dyn World, message_bytes: usize) -> Self {
        let size = world.size();
        let sent = Sent { messages: vec![0; size], bytes: vec![0; size] };
        Self {
            world,
            message_bytes,
            outgoing: vec![Vec::new(); size],
            sent,
            balance: 0,
            received: 0,
            received_since_token: false,
            token: None,
            is_round_open: false,
            ending: None,
        }
    }

    pub(crate) fn world(&mut self) -> &mut dyn World {
        self.world
    }

    pub(crate) fn rank(&self) -> usize {
        self.world.rank()
    }

    /// Begins a phase: ranks have agreed that the one before is over.
    pub(crate) fn begin(&mut self) -> Result<(), RankError> {
        self.balance = 0;
        self.received_since_token = false;
        self.token = None;
        self.is_round_open = false;
        self.ending = None;
        self.world.barrier()
    }

    /// Adds a record for another rank; it leaves with the others of a message.
    pub(crate) fn add(&mut self, to: usize, record: &[&[u8]]) -> Result<(), RankError> {
        let length: usize = record.iter().map(|part| part.len()).sum();
        if self.outgoing[to].len() + length > self.message_bytes && !self.outgoing[to].is_empty() {
            self.send(to)?;
        }
        record.iter().for_each(|part| self.outgoing[to].extend_from_slice(part));
        Ok(())
    }

    fn send(&mut self, to: usize) -> Result<(), RankError> {
        let buffer = self.world.buffer();
        let bytes = std::mem::replace(&mut self.outgoing[to], buffer);
        self.sent.messages[to] += 1;
        self.sent.bytes[to] += bytes.len() as u64;
        self.balance += 1;
        self.world.send(to, RECORDS, bytes)
    }

    /// The next message of records.
    pub(crate) fn receive(&mut self) -> Result<Option<Message>, RankError> {
        let message = self.world.receive(RECORDS)?;
        if message.is_some() {
            self.balance -= 1;
            self.received += 1;
            self.received_since_token = true;
        }
        Ok(message)
    }

    /// Tells all ranks to end the phase.
    pub(crate) fn stop(&mut self) -> Result<(), RankError> {
        self.ending = Some(Ending::Stopped);
        self.send_all(&Control::Stop)
    }

    /// Whether another rank ended the phase.
    pub(crate) fn is_ended(&mut self) -> Result<Option<Ending>, RankError> {
        while let Some(message) = self.world.receive(CONTROL)? {
            match Control::read(&message.bytes) {
                Some(Control::Token { in_flight, void }) => self.token = Some((in_flight, void)),
                Some(Control::Done) => self.ending = Some(Ending::Complete),
                Some(Control::Stop) => self.ending = Some(Ending::Stopped),
                None => (),
            }
        }
        Ok(self.ending)
    }

    /// Without work: sends what was collected, passes the token on, and waits for a moment.
    pub(crate) fn idle(&mut self) -> Result<(), RankError> {
        for to in 0..self.outgoing.len() {
            if !self.outgoing[to].is_empty() {
                self.send(to)?;
            }
        }
        if self.world.size() == 1 {
            self.ending = Some(Ending::Complete);
            return Ok(());
        }
        if self.rank() == 0 {
            self.begin_round()?
        } else {
            self.pass_token()?
        }
        if self.ending.is_none() && self.token.is_none() {
            self.world.wait(Duration::from_millis(1));
        }
        Ok(())
    }

    fn begin_round(&mut self) -> Result<(), RankError> {
        if let Some((in_flight, void)) = self.token.take() {
            self.is_round_open = false;
            if !void && !self.received_since_token && in_flight + self.balance == 0 {
                self.ending = Some(Ending::Complete);
                return self.send_all(&Control::Done);
            }
        }
        if !self.is_round_open {
            self.is_round_open = true;
            self.received_since_token = false;
            let token = Control::Token { in_flight: 0, void: false };
            self.world.send(1, CONTROL, token.bytes())?;
        }
        Ok(())
    }

    fn pass_token(&mut self) -> Result<(), RankError> {
        let Some((in_flight, void)) = self.token.take() else { return Ok(()) };
        let token = Control::Token {
            in_flight: in_flight + self.balance,
            void: void || std::mem::take(&mut self.received_since_token),
        };
        let next = (self.rank() + 1) % self.world.size();
        self.world.send(next, CONTROL, token.bytes())
    }

    fn send_all(&mut self, control: &Control) -> Result<(), RankError> {
        for to in (0..self.world.size()).filter(|to| *to != self.world.rank()).collect::<Vec<_>>() {
            self.world.send(to, CONTROL, control.bytes())?;
        }
        Ok(())
    }

    /// Receives what is still in flight after a phase that was stopped: a send is complete only when its
    /// message was received.
    pub(crate) fn drain(&mut self) -> Result<(), RankError> {
        self.outgoing.iter_mut().for_each(Vec::clear);
        let sent = self.sent.messages.clone();
        let expected = self.world.reduce(&sent, |one, other| one + other)?[self.rank()];
        while self.received < expected {
            match self.receive()? {
                Some(_) => (),
                None => self.world.wait(Duration::from_millis(1)),
            }
        }
        self.world.barrier()
    }
}

impl Control {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Token { in_flight, void } => [&[0, u8::from(*void)][..], &in_flight.to_le_bytes()].concat(),
            Self::Done => vec![1],
            Self::Stop => vec![2],
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0, void, in_flight @ ..] => Some(Self::Token {
                in_flight: i64::from_le_bytes(in_flight.try_into().ok()?),
                void: *void != 0,
            }),
            [1] => Some(Self::Done),
            [2] => Some(Self::Stop),
            _ => None,
        }
    }
}
