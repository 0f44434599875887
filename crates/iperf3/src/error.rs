//! Protocol errors of a peer, and errors of a test.

use crate::document::Iperf3Summary;
use clearstream_schema::control::{Failure, FailureKind};

use crate::protocol::State;

/// Violation of the protocol on the peer's control connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A byte that is not a state.
    #[error("it sent the byte {0} where a state of iperf3's protocol was expected: is it an iperf3 program?")]
    NoState(u8),
    /// A state at the wrong time.
    #[error("it sent {found} where {expected} was expected")]
    Unexpected {
        /// The received state.
        found: State,
        /// The expected message.
        expected: &'static str,
    },
    /// Data where none was expected.
    #[error("it sent data while nothing was expected")]
    UnexpectedData,
    /// A message above the size limit.
    #[error("it announced {what} of {length} bytes: the limit is {limit}")]
    TooLong {
        /// Parameters or results.
        what: &'static str,
        /// Its length.
        length: u32,
        /// The bound.
        limit: u32,
    },
    /// A message that is not a JSON object.
    #[error("its {what} are not a JSON object ({reason})")]
    Json {
        /// Parameters or results.
        what: &'static str,
        /// The parser's reason.
        reason: String,
    },
    /// A key with an invalid value.
    #[error("its {what}: {reason}")]
    Value {
        /// Parameters or results.
        what: &'static str,
        /// The key, and its valid values.
        reason: String,
    },
    /// The server is running another test.
    #[error("it is busy with another test: iperf3 runs one at a time; retry later")]
    Busy,
    /// The server reports an error by its number.
    #[error("it refused the test: {}", refusal(.code, .errno))]
    Refused {
        /// iperf3's number of the error.
        code: u32,
        /// The system's, or 0.
        errno: u32,
    },
    /// The operator stopped the peer's program.
    #[error("it was stopped by its operator")]
    Terminated,
}

impl ProtocolError {
    /// The failure of a test with the peer named `peer`.
    pub(crate) fn failure(&self, peer: &str) -> Failure {
        let kind = match self {
            // Another service responds at that port.
            Self::NoState(_) | Self::TooLong { .. } => FailureKind::Unreachable,
            Self::Busy => FailureKind::Busy,
            Self::Refused { .. } => FailureKind::Forbidden,
            Self::Unexpected { .. }
            | Self::UnexpectedData
            | Self::Json { .. }
            | Self::Value { .. }
            | Self::Terminated => FailureKind::Connection,
        };
        Failure { kind, message: format!("{peer}: {self}") }
    }
}

/// Text and advice for the error numbers of iperf3 servers.
fn refusal(code: &u32, errno: &u32) -> String {
    let text = match code {
        5 => "the duration is longer than it supports",
        6 => "it supports fewer flows",
        7 | 20 => "it does not support transfers of this size: choose --transfer, of UDP --datagram",
        8 => "it does not support socket buffers of this size: choose a smaller --window",
        10 => "it does not support this segment size",
        12 => "it does not support a warm-up of this length: choose a shorter --warm-up",
        21 => "it does not support this DSCP",
        27 => "the total rate is above the limit of its operator: choose a lower --pacing",
        37 => "the duration is longer than its operator allows: choose a shorter --duration",
        109 => "it lost the control connection",
        114 => "it could not read the parameters",
        117 => "it could not read the results",
        122 => "it could not set TCP_NODELAY",
        123 => "it could not set the segment size",
        124 | 141 => "it could not set the socket buffers: choose a smaller --window",
        125 | 126 => "it could not set the DSCP",
        132 => "it could not pin its process: choose another --receiver-cores or --sender-cores",
        134 => "it lacks the congestion control",
        140 => "it could not set the pacing rate",
        142 => "it requires a password, which this client does not support",
        144 => "it received nothing for too long",
        160 => "the test took longer than announced",
        200 | 201 => "it could not create a stream",
        202..=204 => "it could not accept the connection of a stream",
        205..=207 => "a stream failed",
        _ => "an error without a description here",
    };
    let system = match errno {
        0 => String::new(),
        errno => format!(", {}", std::io::Error::from_raw_os_error(i32::try_from(*errno).unwrap_or(0))),
    };
    format!("{text} (iperf3 error {code}{system})")
}

/// Why a test with an iperf3 peer did not complete.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct Iperf3Error {
    /// The reason, for the exit code.
    pub failure: Failure,
    /// Results of this end so far, if data flowed at all.
    pub partial: Option<Box<Iperf3Summary>>,
}

impl From<Failure> for Iperf3Error {
    fn from(failure: Failure) -> Self {
        Self { failure, partial: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_server_is_described_with_its_number() {
        let text = ProtocolError::Refused { code: 134, errno: 2 }.to_string();
        for part in ["lacks the congestion control", "iperf3 error 134", "No such file"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let unknown = ProtocolError::Refused { code: u32::MAX, errno: u32::MAX }.to_string();
        assert!(unknown.contains("4294967295"), "{unknown}");
    }

    #[test]
    fn the_kind_distinguishes_a_refusal_from_another_service() {
        let kind = |error: ProtocolError| error.failure("dtn2:5201").kind;
        assert_eq!(kind(ProtocolError::Busy), FailureKind::Busy);
        assert_eq!(kind(ProtocolError::NoState(b'S')), FailureKind::Unreachable);
        assert_eq!(kind(ProtocolError::Terminated), FailureKind::Connection);
        assert!(ProtocolError::Busy.failure("dtn2:5201").message.starts_with("dtn2:5201: "));
    }
}

/// iperf3's error numbers that are reported to a client.
pub(crate) mod code {
    pub(crate) const PARAMETERS: u32 = 114;
    pub(crate) const BUFFERS: u32 = 124;
    pub(crate) const AFFINITY: u32 = 132;
    pub(crate) const NO_DATA: u32 = 144;
    pub(crate) const EXPIRED: u32 = 160;
    pub(crate) const STREAM: u32 = 200;
    pub(crate) const LISTEN: u32 = 202;
    pub(crate) const ACCEPT: u32 = 204;
}

/// The message that reports one of them, without an error of the system.
pub(crate) fn error_message(code: u32) -> [u8; 9] {
    let [a, b, c, d] = code.to_be_bytes();
    [State::ServerError.byte(), a, b, c, d, 0, 0, 0, 0]
}
