//! Server side of the control connection as a state machine without I/O: bytes of the client go in, events
//! come out.

use crate::{
    error::ProtocolError,
    parameters::{self, Parameters},
    protocol::{FrameReader, State, TooLong},
    results::{self, Results},
};

/// Message of the client.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// Parameters of the test.
    Parameters(Box<Parameters>),
    /// The test time or the amount of data is over.
    End,
    /// Its results.
    Results(Box<Results>),
    /// The client is done.
    Done,
}

#[derive(Debug)]
enum Phase {
    Parameters(FrameReader),
    /// The streams are being connected.
    Streams,
    Running,
    Ending,
    Results(FrameReader),
    Display,
    Done,
}

/// State machine of the server.
#[derive(Debug)]
pub struct ServerMachine {
    phase: Phase,
}

impl Default for ServerMachine {
    fn default() -> Self {
        Self { phase: Phase::Parameters(FrameReader::new(parameters::LIMIT)) }
    }
}

impl ServerMachine {
    /// The state after the cookie was received and [`State::ParamExchange`] sent.
    pub fn new() -> Self {
        Self::default()
    }

    /// [`State::TestRunning`] was sent.
    pub fn run(&mut self) {
        self.phase = Phase::Running;
    }

    /// [`State::ExchangeResults`] was sent.
    pub fn expect_results(&mut self) {
        self.phase = Phase::Results(FrameReader::new(results::LIMIT));
    }

    /// Feeds bytes of the client, in any pieces.
    ///
    /// # Errors
    /// The client ends, or violates the protocol. No further bytes are accepted then.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<Vec<ServerEvent>, ProtocolError> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            match &mut self.phase {
                Phase::Parameters(reader) => {
                    let limit = parameters::LIMIT;
                    let too_long =
                        |TooLong(length)| ProtocolError::TooLong { what: "parameters", length, limit };
                    if let Some(text) = reader.take(&mut bytes).map_err(too_long)? {
                        events.push(ServerEvent::Parameters(Box::new(Parameters::read(&text)?)));
                        self.phase = Phase::Streams;
                    }
                }
                Phase::Results(reader) => {
                    let limit = results::LIMIT;
                    let too_long =
                        |TooLong(length)| ProtocolError::TooLong { what: "results", length, limit };
                    if let Some(text) = reader.take(&mut bytes).map_err(too_long)? {
                        events.push(ServerEvent::Results(Box::new(Results::read(&text)?)));
                        self.phase = Phase::Display;
                    }
                }
                Phase::Ending | Phase::Done => return Err(ProtocolError::UnexpectedData),
                Phase::Streams | Phase::Running | Phase::Display => {
                    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
                    bytes = rest;
                    let state = State::of(*first).ok_or(ProtocolError::NoState(*first))?;
                    events.push(self.enter(state)?);
                }
            }
        }
        Ok(events)
    }

    fn enter(&mut self, state: State) -> Result<ServerEvent, ProtocolError> {
        let (next, event) = match (&self.phase, state) {
            (_, State::ClientTerminate) => return Err(ProtocolError::Terminated),
            (Phase::Running, State::TestEnd) => (Phase::Ending, ServerEvent::End),
            (Phase::Display, State::IperfDone) => (Phase::Done, ServerEvent::Done),
            (phase, found) => {
                let expected = match phase {
                    Phase::Running => "TEST_END",
                    Phase::Display => "IPERF_DONE",
                    _ => "nothing",
                };
                return Err(ProtocolError::Unexpected { found, expected });
            }
        };
        self.phase = next;
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::frame;

    #[test]
    fn a_whole_session_is_followed() {
        let mut machine = ServerMachine::new();
        let parameters = Parameters::default();
        let message = frame(&parameters.to_json());
        for byte in &message[..message.len() - 1] {
            assert_eq!(machine.take(&[*byte]), Ok(vec![]));
        }
        let last = machine.take(&message[message.len() - 1..]).unwrap();
        assert_eq!(last, [ServerEvent::Parameters(Box::new(parameters))]);
        machine.run();
        assert_eq!(machine.take(&[State::TestEnd.byte()]), Ok(vec![ServerEvent::End]));
        machine.expect_results();
        let mut end = frame(&Results::default().to_json());
        end.push(State::IperfDone.byte());
        assert_eq!(machine.take(&end), Ok(vec![ServerEvent::Results(Box::default()), ServerEvent::Done]));
        assert_eq!(machine.take(&[0]), Err(ProtocolError::UnexpectedData));
    }

    #[test]
    fn malformed_clients_are_distinguished() {
        let take = |bytes: &[u8]| ServerMachine::new().take(bytes);
        assert!(matches!(take(&[0, 1, 0, 1]), Err(ProtocolError::TooLong { length: 65_537, .. })));
        assert!(matches!(take(b"GET / HTTP/1.1"), Err(ProtocolError::TooLong { .. })));
        assert!(matches!(take(&[0, 0, 0, 0, 4]), Err(ProtocolError::Json { .. })));
        assert!(matches!(take(&[0, 0, 0, 2, b'[', b']']), Err(ProtocolError::Json { .. })));
        // Deeper than the parser's limit.
        let deep = [&500u32.to_be_bytes()[..], &[b'['; 500]].concat();
        assert!(matches!(take(&deep), Err(ProtocolError::Json { .. })));
        let mut early = ServerMachine::new();
        early.take(&frame(&Parameters::default().to_json())).unwrap();
        assert_eq!(early.take(&[4]).unwrap_err().to_string(), "it sent TEST_END where nothing was expected");
        let mut gone = ServerMachine::new();
        gone.run();
        assert_eq!(gone.take(&[12]), Err(ProtocolError::Terminated));
        let mut ended = ServerMachine::new();
        ended.run();
        assert_eq!(ended.take(&[4, 4]), Err(ProtocolError::UnexpectedData));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            run in 0usize..20,
            results in 0usize..40,
        ) {
            let mut machine = ServerMachine::new();
            for (index, byte) in bytes.iter().enumerate() {
                if index == run {
                    machine.run();
                }
                if index == results {
                    machine.expect_results();
                }
                if machine.take(&[*byte]).is_err() {
                    break;
                }
            }
        }

        #[test]
        fn any_json_is_accepted_or_rejected(text in "\\PC{0,100}") {
            let body = text.as_bytes();
            let length = u32::try_from(body.len()).unwrap();
            let _ = ServerMachine::new().take(&[&length.to_be_bytes()[..], body].concat());
        }
    }
}
