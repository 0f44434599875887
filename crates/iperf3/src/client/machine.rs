//! Client side of the control connection as a state machine without I/O: bytes of the server go in, events
//! come out.

use crate::{
    error::ProtocolError,
    protocol::{FrameReader, State, TooLong},
    results::{self, Results},
};

/// Request or message of the server.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// Send the parameters.
    ParametersWanted,
    /// Connect the streams.
    StreamsWanted,
    /// All streams are connected; data flows after [`ClientEvent::Running`].
    Start,
    /// Data flows.
    Running,
    /// Send the results.
    ResultsWanted,
    /// The server's own results.
    Results(Box<Results>),
    /// The exchange is complete: close with [`State::IperfDone`].
    Finished,
}

#[derive(Debug)]
enum Phase {
    Connected,
    Parameters,
    Streams,
    Start,
    Running,
    Ending,
    Results(FrameReader),
    Display,
    Finished,
    /// The error numbers, 8 bytes.
    Refusal(Vec<u8>),
}

/// State machine of the client.
#[derive(Debug)]
pub struct ClientMachine {
    phase: Phase,
}

impl Default for ClientMachine {
    fn default() -> Self {
        Self { phase: Phase::Connected }
    }
}

impl ClientMachine {
    /// The state after the cookie was sent.
    pub fn new() -> Self {
        Self::default()
    }

    /// The client ends the test: it sends [`State::TestEnd`] now.
    pub fn end(&mut self) {
        self.phase = Phase::Ending;
    }

    /// Feeds bytes of the server, in any pieces.
    ///
    /// # Errors
    /// The server refuses, ends, or violates the protocol. No further bytes are accepted then.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<Vec<ClientEvent>, ProtocolError> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            match &mut self.phase {
                Phase::Refusal(numbers) => {
                    let (taken, rest) = bytes.split_at(bytes.len().min(8 - numbers.len()));
                    numbers.extend_from_slice(taken);
                    bytes = rest;
                    if let Some(error) = refused(numbers) {
                        return Err(error);
                    }
                }
                Phase::Results(reader) => {
                    let too_long = |TooLong(length)| ProtocolError::TooLong {
                        what: "results",
                        length,
                        limit: results::LIMIT,
                    };
                    if let Some(text) = reader.take(&mut bytes).map_err(too_long)? {
                        events.push(ClientEvent::Results(Box::new(Results::read(&text)?)));
                        self.phase = Phase::Display;
                    }
                }
                Phase::Finished => return Err(ProtocolError::UnexpectedData),
                _ => {
                    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
                    bytes = rest;
                    let state = State::of(*first).ok_or(ProtocolError::NoState(*first))?;
                    events.extend(self.enter(state)?);
                }
            }
        }
        Ok(events)
    }

    /// The error whose numbers were incomplete when the connection ended.
    pub fn closed(&self) -> Option<ProtocolError> {
        match &self.phase {
            Phase::Refusal(numbers) => {
                let code = numbers.first_chunk().copied().map_or(0, u32::from_be_bytes);
                Some(ProtocolError::Refused { code, errno: 0 })
            }
            _ => None,
        }
    }

    fn enter(&mut self, state: State) -> Result<Option<ClientEvent>, ProtocolError> {
        let (next, event) = match (&self.phase, state) {
            (_, State::AccessDenied) => return Err(ProtocolError::Busy),
            (_, State::ServerTerminate) => return Err(ProtocolError::Terminated),
            (_, State::ServerError) => (Phase::Refusal(Vec::new()), None),
            (Phase::Connected, State::ParamExchange) => {
                (Phase::Parameters, Some(ClientEvent::ParametersWanted))
            }
            (Phase::Parameters, State::CreateStreams) => (Phase::Streams, Some(ClientEvent::StreamsWanted)),
            (Phase::Streams, State::TestStart) => (Phase::Start, Some(ClientEvent::Start)),
            (Phase::Start, State::TestRunning) => (Phase::Running, Some(ClientEvent::Running)),
            (Phase::Ending, State::ExchangeResults) => {
                (Phase::Results(FrameReader::new(results::LIMIT)), Some(ClientEvent::ResultsWanted))
            }
            (Phase::Display, State::DisplayResults) => (Phase::Finished, Some(ClientEvent::Finished)),
            (phase, found) => return Err(ProtocolError::Unexpected { found, expected: phase.expected() }),
        };
        self.phase = next;
        Ok(event)
    }
}

impl Phase {
    fn expected(&self) -> &'static str {
        match self {
            Self::Connected => "PARAM_EXCHANGE",
            Self::Parameters => "CREATE_STREAMS",
            Self::Streams => "TEST_START",
            Self::Start => "TEST_RUNNING",
            Self::Running => "nothing",
            Self::Ending => "EXCHANGE_RESULTS",
            Self::Results(_) => "its results",
            Self::Display => "DISPLAY_RESULTS",
            Self::Finished => "nothing",
            Self::Refusal(_) => "the number of its error",
        }
    }
}

fn refused(numbers: &[u8]) -> Option<ProtocolError> {
    let (code, errno) = numbers.split_first_chunk::<4>()?;
    let errno = errno.first_chunk::<4>()?;
    Some(ProtocolError::Refused { code: u32::from_be_bytes(*code), errno: u32::from_be_bytes(*errno) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::frame;

    fn session() -> Vec<u8> {
        let results = frame(&Results::default().to_json());
        [&[9, 10, 1, 2][..], &[13], &results, &[14]].concat()
    }

    /// All events of a whole session, split at any positions.
    fn events(cuts: &[usize]) -> Vec<ClientEvent> {
        let whole = session();
        let mut machine = ClientMachine::new();
        let mut events = Vec::new();
        let mut at = 0;
        // The client ends the test after the fourth byte.
        for cut in cuts.iter().map(|cut| cut % whole.len()).chain([4, whole.len()]) {
            if cut > at {
                let upto = if at < 4 { cut.min(4) } else { cut };
                events.extend(machine.take(&whole[at..upto]).unwrap());
                at = upto;
            }
            if at == 4 {
                machine.end();
            }
        }
        if at < whole.len() {
            events.extend(machine.take(&whole[at..]).unwrap());
        }
        events
    }

    fn expected() -> Vec<ClientEvent> {
        vec![
            ClientEvent::ParametersWanted,
            ClientEvent::StreamsWanted,
            ClientEvent::Start,
            ClientEvent::Running,
            ClientEvent::ResultsWanted,
            ClientEvent::Results(Box::default()),
            ClientEvent::Finished,
        ]
    }

    #[test]
    fn a_whole_session_is_followed() {
        assert_eq!(events(&[]), expected());
    }

    #[test]
    fn a_refusing_server_is_distinguished_from_another_service() {
        let take = |bytes: &[u8]| ClientMachine::new().take(bytes);
        assert_eq!(take(&[255]), Err(ProtocolError::Busy));
        assert_eq!(take(&[9, 11]), Err(ProtocolError::Terminated));
        let refused = [9, 254, 0, 0, 0, 134, 0, 0, 0, 2];
        assert_eq!(take(&refused), Err(ProtocolError::Refused { code: 134, errno: 2 }));
        assert_eq!(take(b"SSH-2.0-OpenSSH"), Err(ProtocolError::NoState(b'S')));
        let early = take(&[9, 10, 1, 2, 13]).unwrap_err();
        assert_eq!(early.to_string(), "it sent EXCHANGE_RESULTS where nothing was expected");
        let mut half = ClientMachine::new();
        half.take(&refused[..6]).unwrap();
        assert_eq!(half.closed(), Some(ProtocolError::Refused { code: 134, errno: 0 }));
    }

    #[test]
    fn results_are_bounded() {
        let mut machine = ClientMachine::new();
        machine.take(&[9, 10, 1, 2]).unwrap();
        machine.end();
        let error = machine.take(&[13, 0x7f, 0xff, 0xff, 0xff]).unwrap_err();
        assert!(matches!(error, ProtocolError::TooLong { length: 0x7fff_ffff, .. }), "{error}");
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(mut cuts in proptest::collection::vec(0usize..400, 0..20)) {
            cuts.sort_unstable();
            prop_assert_eq!(events(&cuts), expected());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), end in 0usize..10) {
            let mut machine = ClientMachine::new();
            for (index, byte) in bytes.iter().enumerate() {
                if index == end {
                    machine.end();
                }
                if machine.take(&[*byte]).is_err() {
                    break;
                }
            }
        }
    }
}
