//! One of two ranks, joined by a TCP connection that is already there: its other end is the other rank.
//!
//! A message is its tag (a byte), its length (four bytes, little-endian) and its bytes. A thread reads all that
//! arrives, so that two ranks that write at the same time never wait for each other.

use std::{
    io::{self, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{Message, RankError, Tag, World, inbox::Inbox};

/// Maximum length of a message. Those of an exploration have up to 64 MiB, and one record more where one is longer.
const LARGEST_MESSAGE_BYTES: u32 = 128 << 20;

/// This end as a rank. Dropping it closes the connection.
pub struct TcpPair {
    rank: usize,
    host: String,
    stream: TcpStream,
    inbox: Inbox,
    is_closed: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    /// Header and bytes of a message, for one write.
    frame: Vec<u8>,
}

impl TcpPair {
    /// Joins as rank 0 or 1; the other end joins as the other one.
    ///
    /// # Errors
    /// The connection cannot be used, or no thread started.
    pub fn join(rank: usize, host: &str, stream: TcpStream) -> io::Result<Self> {
        // A rank without work sends the little that it has, which must not wait for an acknowledgement.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        let (sender, receiver) = channel();
        let is_closed = Arc::new(AtomicBool::new(false));
        let (own, closed) = (stream.try_clone()?, Arc::clone(&is_closed));
        let reader = thread::Builder::new().name("rank-reader".to_owned()).spawn(move || {
            // However it ends, nothing more arrives.
            let _ = read(own, 1 - rank, &sender);
            closed.store(true, Ordering::Release);
        })?;
        let (inbox, host) = (Inbox::new(receiver), host.to_owned());
        Ok(Self { rank, host, stream, inbox, is_closed, reader: Some(reader), frame: Vec::new() })
    }

    fn lost(&self) -> RankError {
        RankError::Lost { rank: 1 - self.rank }
    }
}

/// Reads messages until the connection ends.
fn read(stream: TcpStream, from: usize, to: &Sender<(Tag, Message)>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut header = [0; 5];
    loop {
        stream.read_exact(&mut header)?;
        let [tag, length @ ..] = header;
        let length = u32::from_le_bytes(length);
        if length > LARGEST_MESSAGE_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // Memory grows with what arrives, not with what is announced.
        let mut bytes = Vec::new();
        if (&mut stream).take(length.into()).read_to_end(&mut bytes)? < length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if to.send((Tag(tag), Message { from, bytes })).is_err() {
            return Ok(());
        }
    }
}

impl Drop for TcpPair {
    fn drop(&mut self) {
        // Fails where the connection has ended already.
        drop(self.stream.shutdown(Shutdown::Both));
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
    }
}

impl World for TcpPair {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        2
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn transport(&self) -> &str {
        "TCP"
    }

    fn send(&mut self, _to: usize, tag: Tag, bytes: Vec<u8>) -> Result<(), RankError> {
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= LARGEST_MESSAGE_BYTES);
        let length = length.ok_or_else(|| RankError::Library {
            rank: self.rank,
            host: self.host.clone(),
            message: format!("a message has at most {} MiB", LARGEST_MESSAGE_BYTES >> 20),
        })?;
        self.frame.clear();
        self.frame.push(tag.0);
        self.frame.extend_from_slice(&length.to_le_bytes());
        self.frame.extend_from_slice(&bytes);
        self.stream.write_all(&self.frame).map_err(|_| self.lost())
    }

    fn receive(&mut self, tag: Tag) -> Result<Option<Message>, RankError> {
        // Asked first: what arrived before the end is in the inbox then.
        let is_closed = self.is_closed.load(Ordering::Acquire);
        match self.inbox.take(tag) {
            None if is_closed => Err(self.lost()),
            message => Ok(message),
        }
    }

    fn wait(&mut self, limit: Duration) {
        self.inbox.wait(limit);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// Runs both ranks, each a thread with its end of a connection.
    fn pair<T: Send>(work: impl Fn(&mut TcpPair) -> T + Sync) -> [T; 2] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = [one, listener.accept().unwrap().0];
        let mut worlds =
            ends.into_iter().zip(0..).map(|(end, rank)| TcpPair::join(rank, "here", end).unwrap());
        let (mut first, mut second) = (worlds.next().unwrap(), worlds.next().unwrap());
        thread::scope(|scope| {
            let other = scope.spawn(|| work(&mut second));
            let own = work(&mut first);
            drop(first);
            [own, other.join().unwrap()]
        })
    }

    #[test]
    fn both_write_more_than_a_connection_holds_before_either_reads() {
        let results = pair(|world| {
            let to = 1 - world.rank();
            for round in 0..64_u8 {
                world.send(to, Tag(round % 2), vec![round; 1 << 20]).unwrap();
            }
            let mut seen = Vec::new();
            for tag in [1, 0] {
                for _ in 0..32 {
                    let message = world.receive_next(Tag(tag)).unwrap();
                    assert_eq!((message.from, message.bytes.len()), (to, 1 << 20));
                    seen.push(message.bytes[0]);
                }
            }
            seen
        });
        let expected: Vec<u8> = (0..64).filter(|round| round % 2 == 1).chain((0..64).step_by(2)).collect();
        assert_eq!(results, [expected.clone(), expected]);
    }

    #[test]
    fn a_message_longer_than_any_ends_the_connection_before_it_takes_memory() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut world = TcpPair::join(0, "here", listener.accept().unwrap().0).unwrap();
        let [a, b, c, d] = (LARGEST_MESSAGE_BYTES + 1).to_le_bytes();
        peer.write_all(&[0, a, b, c, d, 0]).unwrap();
        assert!(matches!(world.receive_next(Tag(0)), Err(RankError::Lost { rank: 1 })));
        let error = world.send(1, Tag(0), vec![0; LARGEST_MESSAGE_BYTES as usize + 1]).unwrap_err();
        assert!(error.to_string().contains("at most 128 MiB"), "{error}");
    }

    #[test]
    fn what_was_sent_before_the_end_arrives_and_then_the_rank_is_lost() {
        let results = pair(|world| {
            let sum = world.reduce(&[world.rank() as u64 + 1], |one, other| one + other).unwrap();
            if world.rank() == 0 {
                world.send(1, Tag(0), b"last".to_vec()).unwrap();
                return (sum, None);
            }
            let last = world.receive_next(Tag(0)).unwrap();
            assert_eq!(last.bytes, b"last");
            (sum, Some(world.receive_next(Tag(0)).unwrap_err().to_string()))
        });
        assert_eq!(results, [(vec![3], None), (vec![3], Some("rank 0 ended early".to_owned()))]);
    }
}
