//! How a running watch is asked: a socket whose name lives in the network
//! namespace (unix(7), abstract), so that it is also the lock that keeps a second
//! watch away, and is gone with the process however that ends.

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
/// Time for a question to arrive and for an answer to leave.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest question.
const MOST_BYTES: u64 = 4096;

/// A question and where its answer goes.
#[derive(Debug)]
pub(super) struct Asked {
    /// The question.
    pub(super) request: WatchRequest,
    /// Takes the answer.
    pub(super) reply: Sender<WatchReply>,
}

/// The lock of a network namespace, through which questions come.
#[derive(Debug)]
pub(super) struct Control {
    questions: Receiver<Asked>,
}

impl Control {
    /// Takes the lock and begins to listen; the thread that does so ends with
    /// the process.
    pub(super) fn open() -> Result<Self, WatchError> {
        let fail = |source| WatchError::Socket { what: "the control socket".to_owned(), source };
        let address = SocketAddr::from_abstract_name(NAME).map_err(fail)?;
        let listener = UnixListener::bind_addr(&address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => WatchError::AlreadyRunning,
            _ => fail(source),
        })?;
        let (sender, questions) = channel();
        let listen = move || {
            for stream in listener.incoming().flatten() {
                // One at a time: an answer takes less than a round.
                let _ = serve(&stream, &sender);
            }
        };
        thread::Builder::new().name("watch-control".to_owned()).spawn(listen).map_err(fail)?;
        Ok(Self { questions })
    }

    /// Questions that have come in.
    pub(super) fn take(&self) -> impl Iterator<Item = Asked> + '_ {
        self.questions.try_iter()
    }
}

fn serve(stream: &UnixStream, questions: &Sender<Asked>) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    let reply = if peer.uid.is_root() || peer.uid == rustix::process::geteuid() {
        let mut line = String::new();
        BufReader::new(stream.take(MOST_BYTES)).read_line(&mut line)?;
        match serde_json::from_str(&line) {
            Ok(request) => {
                let (reply, answer) = channel();
                let asked = questions.send(Asked { request, reply });
                asked.ok().and_then(|()| answer.recv_timeout(TIMEOUT).ok()).unwrap_or_else(|| {
                    WatchReply::Refused("the watch is busy or ending; try again".to_owned())
                })
            }
            Err(error) => WatchReply::Refused(format!("the question could not be read: {error}")),
        }
    } else {
        WatchReply::Refused("only root may query the watch; run this as root".to_owned())
    };
    let mut text = serde_json::to_string(&reply).map_err(io::Error::other)?;
    text.push('\n');
    let mut stream = stream;
    stream.write_all(text.as_bytes())
}

/// Asks the watch that runs in this network namespace, and returns how things
/// stand afterwards.
pub fn ask(request: &WatchRequest) -> Result<WatchStatus, WatchError> {
    let silent = |source| WatchError::Silent { source };
    let address = SocketAddr::from_abstract_name(NAME).map_err(silent)?;
    let mut stream = UnixStream::connect_addr(&address).map_err(|source| match source.kind() {
        io::ErrorKind::ConnectionRefused => WatchError::NotRunning,
        _ => silent(source),
    })?;
    stream.set_read_timeout(Some(TIMEOUT * 2)).map_err(silent)?;
    let mut text = serde_json::to_string(request).map_err(|error| silent(error.into()))?;
    text.push('\n');
    stream.write_all(text.as_bytes()).map_err(silent)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).map_err(silent)?;
    match serde_json::from_str(&line).map_err(|error| silent(error.into()))? {
        WatchReply::Status(status) => Ok(status),
        WatchReply::Refused(reason) => Err(WatchError::Refused { reason }),
    }
}
