//! Control socket of a running watch. Its abstract name (unix(7)) belongs to the
//! network namespace: it is also the lock against a second watch, and the kernel
//! removes it when the process ends.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use clearstream_schema::watch::{WatchReply, WatchRequest, WatchStatus};

use super::WatchError;

const NAME: &[u8] = b"clearstream-route-watch";
/// Timeout for receiving a request and for sending its reply.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a request.
const MOST_BYTES: u64 = 4096;

/// A received request with its reply channel.
#[derive(Debug)]
pub(super) struct PendingRequest {
    /// The request.
    pub(super) request: WatchRequest,
    /// Channel for the reply.
    pub(super) reply: Sender<WatchReply>,
}

/// Control socket, and lock, of a network namespace.
#[derive(Debug)]
pub(super) struct Control {
    requests: Receiver<PendingRequest>,
}

impl Control {
    /// Acquires the lock and starts to listen, on a thread that ends with the process.
    pub(super) fn open() -> Result<Self, WatchError> {
        let fail = |source| WatchError::Socket { what: "the control socket".to_owned(), source };
        let address = SocketAddr::from_abstract_name(NAME).map_err(fail)?;
        let listener = UnixListener::bind_addr(&address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => WatchError::AlreadyRunning,
            _ => fail(source),
        })?;
        let (sender, requests) = channel();
        let listen = move || {
            for stream in listener.incoming().flatten() {
                // One at a time: a request takes less than a round.
                let _ = serve(&stream, &sender);
            }
        };
        thread::Builder::new().name("watch-control".to_owned()).spawn(listen).map_err(fail)?;
        Ok(Self { requests })
    }

    /// Requests received so far.
    pub(super) fn take(&self) -> impl Iterator<Item = PendingRequest> + '_ {
        self.requests.try_iter()
    }
}

fn serve(stream: &UnixStream, requests: &Sender<PendingRequest>) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    let reply = if peer.uid.is_root() || peer.uid == rustix::process::geteuid() {
        let mut line = String::new();
        BufReader::new(stream.take(MOST_BYTES)).read_line(&mut line)?;
        match clearstream_schema::json::from_str(&line) {
            Ok(request) => {
                let (reply, replies) = channel();
                let sent = requests.send(PendingRequest { request, reply });
                sent.ok()
                    .and_then(|()| replies.recv_timeout(TIMEOUT).ok())
                    .unwrap_or_else(|| WatchReply::Refused("the watch is busy or stopping; retry".to_owned()))
            }
            Err(error) => WatchReply::Refused(format!("invalid request: {error}")),
        }
    } else {
        WatchReply::Refused("only root may query the watch; run this as root".to_owned())
    };
    let mut text = clearstream_schema::json::to_string(&reply).map_err(io::Error::other)?;
    text.push('\n');
    let mut stream = stream;
    stream.write_all(text.as_bytes())
}

/// Sends a request to the watch of this network namespace, and returns the status
/// afterwards.
pub fn query(request: &WatchRequest) -> Result<WatchStatus, WatchError> {
    let silent = |source| WatchError::Silent { source };
    let address = SocketAddr::from_abstract_name(NAME).map_err(silent)?;
    let mut stream = UnixStream::connect_addr(&address).map_err(|source| match source.kind() {
        io::ErrorKind::ConnectionRefused => WatchError::NotRunning,
        _ => silent(source),
    })?;
    stream.set_read_timeout(Some(TIMEOUT * 2)).map_err(silent)?;
    let mut text = clearstream_schema::json::to_string(request).map_err(|error| silent(error.into()))?;
    text.push('\n');
    stream.write_all(text.as_bytes()).map_err(silent)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).map_err(silent)?;
    match clearstream_schema::json::from_str(&line).map_err(|error| silent(error.into()))? {
        WatchReply::Status(status) => Ok(status),
        WatchReply::Refused(reason) => Err(WatchError::Refused { reason }),
    }
}
