//! Control socket of a running watch, in a folder where nobody else can make names. The socket has the number of the
//! network namespace in its name, for a lab's watch and the host's are different ones; a lock beside it refuses a second
//! watch, and the kernel releases that when the process ends.

use std::{
    fs,
    io::{self, Read, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use clearstream_admission::AcceptFault;
use clearstream_schema::watch::{WatchReply, WatchRequest, WatchStatus};
use clearstream_sys::{
    lines::Lines,
    private_folder,
    writer_lock::{LockError, WriterLock},
};
use rustix::process::geteuid;

use super::WatchError;

/// Time in which a request arrives whole, and its reply is read, however the bytes trickle.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a request.
const REQUEST_BYTES: usize = 4096;
/// Maximum length of a reply: a kilobyte for each of thousands of gateways.
const REPLY_BYTES: usize = 16 << 20;

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
    socket: PathBuf,
    _lock: WriterLock,
}

impl Control {
    /// Acquires the lock and starts to listen, on a thread that ends with the process.
    pub(super) fn open() -> Result<Self, WatchError> {
        Self::open_in(&folder()?)
    }

    fn open_in(folder: &Path) -> Result<Self, WatchError> {
        let fail = |source| WatchError::Socket { what: "the control socket".to_owned(), source };
        private_folder::make(folder).map_err(fail)?;
        remove_dead(folder);
        let socket = socket_in(folder);
        let lock = WriterLock::take(&socket.with_extension("lock")).map_err(|error| match error {
            LockError::Held { process } => WatchError::AlreadyRunning { process },
            LockError::File(source) => fail(source),
        })?;
        // That of a watch that was killed: this one has the lock.
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&socket).map_err(fail)?;
        let (sender, requests) = channel();
        let listen = move || {
            for stream in listener.incoming() {
                match stream {
                    // One at a time: a request takes less than a round.
                    Ok(stream) => drop(serve(&stream, &sender)),
                    Err(error) => AcceptFault::pause_after(&error),
                }
            }
        };
        thread::Builder::new().name("watch-control".to_owned()).spawn(listen).map_err(fail)?;
        Ok(Self { requests, socket, _lock: lock })
    }

    /// Requests received so far.
    pub(super) fn take(&self) -> impl Iterator<Item = PendingRequest> + '_ {
        self.requests.try_iter()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // One that remains is removed by the next watch.
        let _ = fs::remove_file(&self.socket);
    }
}

/// Number of this network namespace: unique until the next boot, unlike its inode.
pub(super) fn namespace_number() -> u64 {
    rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
        .map_err(io::Error::from)
        .and_then(clearstream_sys::socket::network_namespace_cookie)
        .unwrap_or_default()
}

fn folder() -> Result<PathBuf, WatchError> {
    let folder = private_folder::path().ok_or_else(|| WatchError::Socket {
        what: "the control socket".to_owned(),
        source: io::Error::new(io::ErrorKind::NotFound, "set XDG_RUNTIME_DIR, or run this as root"),
    })?;
    Ok(folder.join("watch"))
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join(format!("{}.socket", namespace_number()))
}

/// Removes what watches of other namespaces left when they were killed.
fn remove_dead(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "socket")
            && let Ok(lock) = WriterLock::take(&path.with_extension("lock"))
        {
            let _ = fs::remove_file(&path);
            drop(lock);
        }
    }
}

fn serve(stream: &UnixStream, requests: &Sender<PendingRequest>) -> io::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let reply = if is_trusted(stream)? {
        match clearstream_schema::json::from_slice(&read_line(stream, REQUEST_BYTES, deadline)?) {
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
    let mut text = clearstream_schema::json::to_vec(&reply).map_err(io::Error::other)?;
    text.push(b'\n');
    write(stream, &text, Instant::now() + TIMEOUT)
}

/// Sends a request to the watch of this network namespace, and returns the status
/// afterwards.
pub fn query(request: &WatchRequest) -> Result<WatchStatus, WatchError> {
    query_in(&folder()?, request, TIMEOUT * 2)
}

fn query_in(folder: &Path, request: &WatchRequest, timeout: Duration) -> Result<WatchStatus, WatchError> {
    let silent = |source| WatchError::Silent { source };
    let deadline = Instant::now() + timeout;
    let stream = UnixStream::connect(socket_in(folder)).map_err(|source| match source.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => WatchError::NotRunning,
        // The folder is root's.
        io::ErrorKind::PermissionDenied => {
            WatchError::Socket { what: "the control socket".to_owned(), source }
        }
        _ => silent(source),
    })?;
    if !is_trusted(&stream).map_err(silent)? {
        return Err(WatchError::Stranger);
    }
    let mut text = clearstream_schema::json::to_vec(request).map_err(|error| silent(error.into()))?;
    text.push(b'\n');
    write(&stream, &text, deadline).map_err(silent)?;
    let line = read_line(&stream, REPLY_BYTES, deadline).map_err(silent)?;
    match clearstream_schema::json::from_slice(&line).map_err(|error| silent(error.into()))? {
        WatchReply::Status(status) => Ok(status),
        WatchReply::Refused(reason) => Err(WatchError::Refused { reason }),
    }
}

/// Whether the other end belongs to root or to this user: who connected, or who called listen(2) (unix(7),
/// `SO_PEERCRED`).
fn is_trusted(stream: &UnixStream) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(peer.uid.is_root() || peer.uid == geteuid())
}

/// A whole line of at most `limit` bytes, until the deadline.
fn read_line(stream: &UnixStream, limit: usize, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut lines = Lines::new(Until { stream, deadline }, limit);
    match lines.whole()? {
        Some(line) if line.is_ended => Ok(line.bytes.to_owned()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A stream that is read until a deadline.
struct Until<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(buffer)
    }
}

fn write(mut stream: &UnixStream, mut text: &[u8], deadline: Instant) -> io::Result<()> {
    while !text.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => text = &text[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Time that is left, never zero, which would mean no limit (`SO_RCVTIMEO`, socket(7)).
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .tempdir()
            .unwrap()
    }

    /// What answers in place of a watch.
    fn imposter(folder: &Path, act: impl FnOnce(UnixStream) + Send + 'static) -> thread::JoinHandle<()> {
        let listener = UnixListener::bind(socket_in(folder)).unwrap();
        thread::spawn(move || act(listener.accept().unwrap().0))
    }

    #[test]
    fn a_second_watch_is_refused_and_what_a_killed_one_leaves_is_not_in_the_way() {
        let folder = scratch();
        assert!(matches!(
            query_in(folder.path(), &WatchRequest::Status, TIMEOUT),
            Err(WatchError::NotRunning)
        ));
        // Of killed watches: of this namespace and of one that is gone.
        for socket in [socket_in(folder.path()), folder.path().join("1.socket")] {
            drop(UnixListener::bind(&socket).unwrap());
            fs::write(socket.with_extension("lock"), "123\n").unwrap();
        }
        let refused = query_in(folder.path(), &WatchRequest::Status, TIMEOUT);
        assert!(matches!(refused, Err(WatchError::NotRunning)), "{refused:?}");
        let control = Control::open_in(folder.path()).unwrap();
        assert!(!folder.path().join("1.socket").exists());
        let second = Control::open_in(folder.path()).err();
        assert!(
            matches!(second, Some(WatchError::AlreadyRunning { process: Some(id) }) if id == std::process::id()),
            "{second:?}"
        );
        let answer = thread::spawn({
            let folder = folder.path().to_owned();
            move || query_in(&folder, &WatchRequest::Status, TIMEOUT)
        });
        let pending = control.requests.recv_timeout(TIMEOUT).unwrap();
        pending.reply.send(WatchReply::Refused("asked".to_owned())).unwrap();
        let answer = answer.join().unwrap();
        assert!(matches!(&answer, Err(WatchError::Refused { reason }) if reason == "asked"), "{answer:?}");
        drop(control);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn replies_are_bounded_in_bytes_and_time() {
        let endless = scratch();
        let serving = imposter(endless.path(), |mut stream| {
            let block = [b'A'; 1 << 16];
            while stream.write_all(&block).is_ok() {}
        });
        match query_in(endless.path(), &WatchRequest::Status, Duration::from_secs(60)) {
            Err(WatchError::Silent { source }) => assert_eq!(source.kind(), io::ErrorKind::InvalidData),
            other => panic!("{other:?}"),
        }
        serving.join().unwrap();
        // A byte now and then is no progress.
        let slow = scratch();
        let serving = imposter(slow.path(), |mut stream| {
            while stream.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let begun = Instant::now();
        let timeout = Duration::from_millis(200);
        assert!(matches!(
            query_in(slow.path(), &WatchRequest::Status, timeout),
            Err(WatchError::Silent { .. })
        ));
        assert!(begun.elapsed() < Duration::from_secs(30));
        serving.join().unwrap();
    }

    /// In a folder that everybody may write somebody else would answer.
    #[test]
    fn root_a_stranger_who_took_the_name_is_neither_believed_nor_waited_for() {
        use std::os::{
            fd::AsRawFd as _,
            unix::{fs::PermissionsExt as _, process::CommandExt as _},
        };
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Control::open_in(folder.path()).is_err(), "others can make names there");
        let listener = UnixListener::bind(socket_in(folder.path())).unwrap();
        rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).unwrap();
        // listen(2) by a process of another user makes the socket that user's.
        let listen = format!(
            "import socket; socket.socket(fileno={}).listen(1); print('ready', flush=True); __import__('sys').stdin.read()",
            listener.as_raw_fd()
        );
        let mut stranger = std::process::Command::new("python3");
        stranger.args(["-c", &listen]).uid(65_534).gid(65_534).current_dir("/");
        stranger.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut stranger = stranger.spawn().unwrap();
        let mut ready = [0; 6];
        stranger.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        let answer = query_in(folder.path(), &WatchRequest::Status, TIMEOUT);
        drop(stranger.stdin.take());
        stranger.wait().unwrap();
        assert!(matches!(answer, Err(WatchError::Stranger)), "{answer:?}");
    }
}
