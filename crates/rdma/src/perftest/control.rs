//! The connection of the talk: the client says something, and the server
//! answers with as many bytes.

use std::{net::SocketAddr, sync::atomic::AtomicBool, time::Duration};

use clearstream_iwarp::{
    verbs::{AcceptOptions, Access, ConnectOptions, Established, Incoming, ProtectionDomain, Region},
    work::{Completed, Completion, Data, Operation, ReceiveRequest, SendRequest},
};

use super::format::{CYCLE, INTRODUCTION_BYTES, Introduction, LINE, MTU, VERSION, version};
use crate::{
    blocking::{Waited, Wire},
    error::RdmaError,
};

/// How long the other end may take for its next word, while it has nothing to
/// measure.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// What is wanted at the other end.
const PERFTEST: &str = "perftest (with -R)";

/// The connection. One word is on its way at a time.
#[derive(Debug)]
pub struct Control {
    wire: Wire,
    words: Region,
}

/// What there was to hear.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A word.
    Word(Vec<u8>),
    /// Nothing yet.
    Nothing,
    /// The other end has left.
    Left,
}

impl Control {
    /// Not connected yet, ready for a word.
    ///
    /// # Errors
    /// The RNIC's.
    pub fn new(domain: &ProtectionDomain) -> Result<Self, RdmaError> {
        let wire = Wire::new(domain)?;
        let control = Self { wire, words: Region::new(domain, INTRODUCTION_BYTES, Access::LOCAL_WRITE)? };
        control.listen()?;
        Ok(control)
    }

    /// Connects as a client.
    ///
    /// # Errors
    /// No connection.
    pub fn connect(
        &mut self,
        peer: SocketAddr,
        options: &ConnectOptions,
        stop: &AtomicBool,
    ) -> Result<&Established, RdmaError> {
        self.wire.connect(peer, options, stop)
    }

    /// Accepts as a server.
    ///
    /// # Errors
    /// No connection.
    pub fn accept(&mut self, request: Incoming) -> Result<&Established, RdmaError> {
        self.wire.accept(request, &AcceptOptions::default())
    }

    /// Says something.
    ///
    /// # Errors
    /// A connection that is over.
    pub fn say(&self, word: &[u8]) -> Result<(), RdmaError> {
        let data = Data::Inline(word.into());
        self.wire.send(SendRequest {
            id: 0,
            operation: Operation::Send { data, solicited: false, invalidate: None },
            signaled: true,
            fence: false,
        })
    }

    /// Looks whether there is a word.
    ///
    /// # Errors
    /// A connection that broke.
    pub fn try_hear(&self) -> Result<Heard, RdmaError> {
        while let Some(waited) = self.wire.try_next()? {
            match self.heard(waited)? {
                Heard::Nothing => {}
                heard => return Ok(heard),
            }
        }
        Ok(Heard::Nothing)
    }

    /// Waits for a word, for [`PATIENCE`].
    ///
    /// # Errors
    /// A connection that broke, silence, or the flag to stop.
    pub fn hear(&self, stop: &AtomicBool) -> Result<Vec<u8>, RdmaError> {
        loop {
            let waited = self.wire.wait(Some(PATIENCE), stop)?;
            if let Waited::Late = waited {
                return Err(self.other_peer(format!("it says nothing for {} s", PATIENCE.as_secs())));
            }
            match self.heard(waited)? {
                Heard::Word(word) => return Ok(word),
                Heard::Nothing => {}
                Heard::Left => return Err(self.wire.lost("it left in the middle of the talk")),
            }
        }
    }

    fn heard(&self, waited: Waited) -> Result<Heard, RdmaError> {
        match waited {
            Waited::Done(done) if done.completed == Completed::Receive => self.word(&done).map(Heard::Word),
            Waited::Done(_) | Waited::Late => Ok(Heard::Nothing),
            Waited::Over(ending) if ending.orderly => Ok(Heard::Left),
            Waited::Over(ending) => Err(self.wire.lost(ending.reason)),
        }
    }

    fn word(&self, done: &Completion) -> Result<Vec<u8>, RdmaError> {
        let word = self.words.to_vec(0, done.bytes as usize);
        self.listen()?;
        Ok(word)
    }

    fn listen(&self) -> Result<(), RdmaError> {
        let segment = self.words.segment(0, INTRODUCTION_BYTES as u32);
        self.wire.receive(ReceiveRequest { id: 0, segments: [segment].into_iter().collect() })
    }

    /// The client's turn: says something and waits for the answer.
    ///
    /// # Errors
    /// As [`Control::hear`], and an answer of another length.
    pub fn ask(&self, word: &[u8], stop: &AtomicBool) -> Result<Vec<u8>, RdmaError> {
        self.say(word)?;
        let answer = self.hear(stop)?;
        self.check_length(&answer, word.len())?;
        Ok(answer)
    }

    /// The server's turn: waits for so many bytes and answers.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn answer(&self, word: &[u8], stop: &AtomicBool) -> Result<Vec<u8>, RdmaError> {
        let heard = self.hear(stop)?;
        self.check_length(&heard, word.len())?;
        self.say(word)?;
        Ok(heard)
    }

    /// One turn, whichever end this is.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn turn(&self, client: bool, word: &[u8], stop: &AtomicBool) -> Result<Vec<u8>, RdmaError> {
        if client { self.ask(word, stop) } else { self.answer(word, stop) }
    }

    /// The first words: versions, the bytes that a client walks through, a
    /// cache line, an MTU. What the walk takes at the other end.
    ///
    /// # Errors
    /// A peer that speaks otherwise, or an older perftest.
    pub fn greet(&self, client: bool, stop: &AtomicBool) -> Result<u32, RdmaError> {
        let theirs = self.turn(client, &VERSION, stop)?;
        if version(&theirs).is_none() {
            let seen =
                format!("its version is {:?}, and 5.70 is the oldest", String::from_utf8_lossy(&theirs));
            return Err(self.other_peer(seen.replace("\\0", "")));
        }
        let cycle = self.turn(client, &CYCLE, stop)?;
        self.turn(client, &LINE, stop)?;
        self.turn(client, &MTU, stop)?;
        let [a, b, c, d] = cycle[..] else { return Err(self.other_peer("no page size".to_owned())) };
        Ok(u32::from_be_bytes([a, b, c, d]))
    }

    /// One turn of introductions.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn introduce(
        &self,
        client: bool,
        own: Introduction,
        stop: &AtomicBool,
    ) -> Result<Introduction, RdmaError> {
        let theirs = self.turn(client, &own.encode(), stop)?;
        Introduction::decode(&theirs).ok_or_else(|| self.strange(theirs.len()))
    }

    fn check_length(&self, word: &[u8], wanted: usize) -> Result<(), RdmaError> {
        if word.len() == wanted { Ok(()) } else { Err(self.strange(word.len())) }
    }

    /// A word that does not belong here.
    #[must_use]
    pub fn strange(&self, length: usize) -> RdmaError {
        self.other_peer(format!(
            "it said {length} bytes where others were expected; start the same program, with as many queue \
             pairs, at both ends"
        ))
    }

    fn other_peer(&self, seen: String) -> RdmaError {
        RdmaError::OtherPeer { peer: self.wire.peer(), expected: PERFTEST, seen }
    }

    /// Ends the connection in order.
    pub fn close(self, limit: Duration) {
        self.wire.close(limit);
    }
}
