//! One half of a captured conversation of two perftests, played against a
//! program of ours. What is each host's own (tags and addresses of its memory)
//! is put in place of the captured host's.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
    time::Duration,
};

use clearstream_testkit::pcap::{self, Stream};

use crate::rdma::exchange::OWN_BITS;

/// Long enough for a machine that does many things at once.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of a set-up frame before its private data (RFC 5044, section 7.1.1).
const SETUP_BYTES: usize = 20;
/// Bytes of an introduction: a queue pair's parameters on the control channel.
const INTRODUCTION_BYTES: usize = 56;

/// Operations of RDMAP (RFC 5040, section 4.1).
const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const SEND: u8 = 3;

/// A place in a host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    stag: [u8; 4],
    address: u64,
}

/// A message, or a segment of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fpdu {
    /// RDMAP's operation (RFC 5040, section 4.1).
    pub(crate) opcode: u8,
    /// Behind the headers.
    pub(crate) payload: Vec<u8>,
}

/// Frames that one side sent on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) setup: Vec<u8>,
    pub(crate) fpdus: Vec<Fpdu>,
}

/// The length of a frame at the begin of these bytes: a set-up frame, or an
/// FPDU (RFC 5044, section 4.1), with its CRC.
fn frame_length(bytes: &[u8]) -> usize {
    if bytes.starts_with(b"MPA ID Re") {
        return SETUP_BYTES + usize::from(u16::from_be_bytes([bytes[18], bytes[19]]));
    }
    (2 + usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))).next_multiple_of(4) + 4
}

/// The FPDU of a frame. Headers: with a tag 14 bytes, without 18 (RFC 5041,
/// sections 4.2 and 4.3).
fn fpdu(frame: &[u8]) -> Fpdu {
    let end = 2 + usize::from(u16::from_be_bytes([frame[0], frame[1]]));
    let header = if frame[2] & 0x80 != 0 { 14 } else { 18 };
    Fpdu { opcode: frame[3] & 0x0f, payload: frame[2 + header..end].to_vec() }
}

/// All frames of one side of a captured connection.
pub(crate) fn frames(stream: &[u8]) -> Frames {
    let (setup, mut rest) = stream.split_at(frame_length(stream));
    let mut fpdus = vec![];
    while !rest.is_empty() {
        let (frame, after) = rest.split_at(frame_length(rest));
        fpdus.push(fpdu(frame));
        rest = after;
    }
    let mut setup = setup.to_vec();
    setup[16] &= !OWN_BITS;
    Frames { setup, fpdus }
}

/// The place in an introduction that names one.
pub(crate) fn introduced(fpdu: &Fpdu) -> Option<Place> {
    let payload = &fpdu.payload;
    let named = fpdu.opcode == SEND && payload.len() == INTRODUCTION_BYTES && payload[16..20] != [0; 4];
    named.then(|| Place {
        stag: payload[16..20].try_into().unwrap(),
        address: u64::from_be_bytes(payload[24..32].try_into().unwrap()),
    })
}

/// Our program's place, once it has sent it.
#[derive(Default)]
struct PeerPlace {
    place: Mutex<Option<Place>>,
    changed: Condvar,
}

impl PeerPlace {
    fn set(&self, place: Place) {
        *self.place.lock().unwrap() = Some(place);
        self.changed.notify_all();
    }

    fn wait(&self) -> Place {
        let place = self.place.lock().unwrap();
        let (place, _) = self.changed.wait_timeout_while(place, TIMEOUT, |place| place.is_none()).unwrap();
        place.expect("the program sent its place")
    }
}

/// A connection whose turns are over, and the bytes received on it.
type Played = (TcpStream, Vec<u8>);

/// How the client's two connections keep step.
struct Steps {
    /// The queue pair may connect.
    start: mpsc::Sender<()>,
    /// Its play has ended.
    wait: mpsc::Receiver<()>,
}

/// A captured conversation, and the side that is played.
pub(crate) struct Play {
    name: String,
    streams: Vec<Stream>,
    /// 0: the client, 1: the server.
    side: usize,
    peer_place: Arc<PeerPlace>,
}

impl Play {
    pub(crate) fn of(capture: &Path, side: usize) -> Self {
        let name = capture.display().to_string();
        Self { name, streams: pcap::streams(capture), side, peer_place: Arc::default() }
    }

    /// Frames of the captured host that our program replaces: control channel, queue pair.
    pub(crate) fn expected(&self) -> [Frames; 2] {
        [0, 1].map(|number| frames(&self.streams[number].sent[1 - self.side]))
    }

    /// Frames of the played host on the queue pair.
    pub(crate) fn own(&self) -> Frames {
        frames(&self.streams[1].sent[self.side])
    }

    /// Plays the server: its address, and later the frames of our program.
    pub(crate) fn serve(self) -> (SocketAddr, thread::JoinHandle<[Frames; 2]>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let played = thread::spawn(move || {
            let control = listener.accept().unwrap().0;
            thread::scope(|scope| {
                let pair = scope.spawn(|| end(self.play(1, listener.accept().unwrap().0, None)));
                let control = end(self.play(0, control, None));
                [control, pair.join().unwrap()]
            })
        });
        (address, played)
    }

    /// Plays the client; the frames of our program.
    pub(crate) fn connect(self, server: SocketAddr) -> [Frames; 2] {
        let (start, started) = mpsc::channel();
        let (done, wait) = mpsc::channel();
        let (ended, over) = mpsc::channel();
        let (play, control) = (&self, TcpStream::connect(server).unwrap());
        thread::scope(|scope| {
            let pair = scope.spawn(move || {
                // The control channel is first: the server has replied on it.
                started.recv_timeout(TIMEOUT).unwrap();
                let played = play.play(1, TcpStream::connect(server).unwrap(), None);
                // The control channel waits for it where messages follow.
                let _ = done.send(());
                // Queue pairs stay until the control channel is closed.
                let _ = over.recv_timeout(TIMEOUT);
                end(played)
            });
            let control = play.play(0, control, Some(&Steps { start, wait }));
            ended.send(()).unwrap();
            let pair = pair.join().unwrap();
            [end(control), pair]
        })
    }

    /// One connection, turn by turn. Before the first message after all
    /// introductions the client's control channel waits for its queue pair.
    fn play(&self, number: usize, mut peer: TcpStream, steps: Option<&Steps>) -> Played {
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        let stream = &self.streams[number];
        // Where the played host addressed the peer's memory.
        let captured =
            frames(&self.streams[0].sent[1 - self.side]).fpdus.iter().find_map(introduced).unwrap();
        let (mut at, mut bytes, mut response_count) = ([0; 2], Vec::new(), 0);
        let counted = number == 1 && self.side == 0 && counts(&frames(&stream.sent[1]));
        let last_introduction = steps.map(|_| introductions_end(&stream.sent[self.side]));
        for (side, end) in &stream.turns {
            if *side != self.side && counted && at[*side] > 0 {
                // How often a server reports its count is its own.
                continue;
            }
            if *side != self.side {
                bytes.resize(bytes.len() + end - at[*side], 0);
                let from = bytes.len() - (end - at[*side]);
                let read = peer.read_exact(&mut bytes[from..]);
                read.unwrap_or_else(|error| panic!("{}, connection {number}: {error}", self.name));
                at[*side] = *end;
                if let Some(steps) = steps {
                    // Anyone who waits has started after the first of them.
                    let _ = steps.start.send(());
                }
                if number == 0
                    && let Some(place) = frames(&bytes).fpdus.iter().find_map(introduced)
                {
                    self.peer_place.set(place);
                }
                continue;
            }
            while at[*side] < *end {
                if last_introduction == Some(at[*side]) {
                    steps.unwrap().wait.recv_timeout(TIMEOUT).expect("the queue pair's play ends");
                }
                let rest = &stream.sent[*side][at[*side]..];
                let mut frame = self.own_frame(&rest[..frame_length(rest)], captured);
                if frame[3] & 0x0f == READ_RESPONSE && at[*side] > 0 {
                    set_sink(&mut frame, &frames(&bytes), response_count);
                    response_count += 1;
                }
                // A client that has all it wants does not wait for more.
                let _ = peer.write_all(&frame);
                at[*side] += frame.len();
            }
        }
        (peer, bytes)
    }

    /// A frame of the played host, with our program's tag and addresses.
    fn own_frame(&self, frame: &[u8], captured: Place) -> Vec<u8> {
        let mut frame = frame.to_vec();
        if frame.starts_with(b"MPA ID Re") {
            return frame;
        }
        let opcode = frame[3] & 0x0f;
        // A Write's tag and offset; of a Read Request those of its source
        // (RFC 5040, section 4.4).
        let tag = match opcode {
            WRITE => 4,
            READ_REQUEST => 2 + 18 + 16,
            _ => return frame,
        };
        assert_eq!(frame[tag..tag + 4], captured.stag, "the captured hosts have one place each");
        let place = self.peer_place.wait();
        let offset = u64::from_be_bytes(frame[tag + 4..tag + 12].try_into().unwrap()) - captured.address;
        frame[tag..tag + 4].copy_from_slice(&place.stag);
        frame[tag + 4..tag + 12].copy_from_slice(&(place.address + offset).to_be_bytes());
        frame
    }
}

/// A server that only reports how many Sends have arrived, after its set-up frame.
fn counts(server: &Frames) -> bool {
    server.fpdus.iter().all(|fpdu| fpdu.opcode == WRITE && fpdu.payload.len() == 4)
        && !server.fpdus.is_empty()
}

/// Ends a connection: the frames of our program on it.
fn end((mut peer, mut bytes): Played) -> Frames {
    let _ = peer.shutdown(std::net::Shutdown::Write);
    // The program may send more than was captured: other counts of Sends.
    let _ = peer.read_to_end(&mut bytes);
    frames(&bytes)
}

/// Sets the sink of a response to that of our program's Read of this number (RFC
/// 5040, section 4.4); each is one segment.
fn set_sink(frame: &mut [u8], received: &Frames, number: usize) {
    let mut requests = received.fpdus.iter().filter(|fpdu| fpdu.opcode == READ_REQUEST);
    let request = requests.nth(number).expect("a response follows its request");
    frame[4..16].copy_from_slice(&request.payload[..12]);
}

/// Where on a client's control channel of one queue pair the message after the test
/// begins, if there is one: two keep step around the connection of the queue pair, and
/// three or four introduce it (three where there are figures at the end).
fn introductions_end(control: &[u8]) -> usize {
    let (mut at, mut introductions, mut figures) = (frame_length(control), vec![], false);
    while at < control.len() {
        let length = frame_length(&control[at..]);
        match fpdu(&control[at..at + length]).payload.len() {
            INTRODUCTION_BYTES => introductions.push(at),
            8 => figures = true,
            _ => {}
        }
        at += length;
    }
    let before = if figures { 2 + 3 } else { 2 + 4 };
    introductions.get(before).copied().unwrap_or(control.len())
}
