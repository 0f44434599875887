//! Protocol of the control socket: one line of JSON in each direction.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use clearstream_schema::{
    BitRate, CoreList, TimeSpan,
    lab::{DelayLineStats, LabFault, LabFile},
};
use clearstream_sys::lines::Lines;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::SentError;

/// Maximum line length.
const MAX_LINE_BYTES: usize = 1 << 20;
/// Timeout of the peer's message.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of taking a lab down: its servers may have written gigabytes, which are removed.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// Parameters that a keeper reads from its standard input before it creates the
/// lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Start {
    pub(crate) lab: LabFile,
    /// The lab is taken down when standard input is closed, that is, when its
    /// starter exits.
    pub(crate) owned: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    Stats,
    ResetStats,
    SetMtu { link: usize, mtu: u32 },
    SetDelay { link: usize, delay: TimeSpan },
    SetRate { link: usize, rate: Option<BitRate> },
    SetReceiveCores { host: String, interface: String, cores: Option<CoreList> },
    Faults,
    SetFaults(Vec<LabFault>),
    Stop,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Response {
    Done,
    Stats(Vec<DelayLineStats>),
    Faults(Vec<LabFault>),
    Failed(SentError),
}

/// Only message of a keeper to its starter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Started {
    Ready,
    Failed(SentError),
}

pub(crate) fn write_line(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = clearstream_schema::json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

pub(crate) fn read_line<T: DeserializeOwned>(from: impl Read) -> io::Result<T> {
    let mut lines = Lines::new(from, MAX_LINE_BYTES);
    let line = lines.whole()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(clearstream_schema::json::from_slice(line.bytes)?)
}

/// Sends a request and waits for the response.
pub(crate) fn request(stream: &UnixStream, request: &Request) -> io::Result<Response> {
    request_within(stream, request, TIMEOUT)
}

/// Sends a request and waits for the response, at most for `timeout`.
pub(crate) fn request_within(
    stream: &UnixStream,
    request: &Request,
    timeout: Duration,
) -> io::Result<Response> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write_line(stream, request)?;
    read_line(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip_and_garbage_is_an_error() {
        let request = Request::SetReceiveCores {
            host: "alpha".to_owned(),
            interface: "eth0".to_owned(),
            cores: "0-1".parse().ok(),
        };
        let mut line = Vec::new();
        write_line(&mut line, &request).unwrap();
        assert_eq!(read_line::<Request>(line.as_slice()).unwrap(), request);
        for garbage in [&b""[..], b"{", b"\xff\xfe\n", b"GET / HTTP/1.1\n"] {
            assert!(read_line::<Request>(garbage).is_err());
        }
    }
}
