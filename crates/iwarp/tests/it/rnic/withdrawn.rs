//! Foreign memory withdrawn during a transfer, over sockets.
#![allow(unsafe_code, reason = "memory of others is registered by unsafe functions")]

use std::{
    io::{Read, Write},
    net::TcpStream,
    ptr::NonNull,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    memory::{Access, raw::register},
    stag::Stag,
    verbs::{
        AcceptOptions, Listener, ProtectionDomain, Rnic, State,
        raw::{
            Completion, CompletionQueue, Data, Operation, QueuePair, QueuePairOptions, ReceiveRequest,
            Segment, SendRequest,
        },
    },
    work::Status,
};
use smallvec::SmallVec;

use crate::rnic::sides::{TIMEOUT, all_modes, any_port};

/// Revision 1, no CRC, no private data.
const REQUEST: &[u8] = b"MPA ID Req Frame\x00\x01\x00\x00";
const LENGTH: usize = 1 << 20;

struct Raw {
    rnic: Rnic,
    completions: CompletionQueue,
    queue_pair: QueuePair,
    memory: Vec<u8>,
    stag: Stag,
    peer: TcpStream,
}

impl Raw {
    fn segment(&self) -> Segment {
        Segment { stag: self.stag, address: 0, length: LENGTH as u32 }
    }

    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !done() {
            assert!(Instant::now() < end, "{what}");
            self.completions.progress();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn next(&self) -> Completion {
        let mut found = None;
        self.until("a completion", || {
            found = self.completions.poll_one().unwrap();
            found.is_some()
        });
        found.unwrap()
    }
}

fn raw(options: clearstream_iwarp::verbs::RnicOptions) -> Raw {
    let rnic = Rnic::open(options).unwrap();
    let completions = CompletionQueue::new(&rnic, 64, 0, None).unwrap();
    let domain = ProtectionDomain::new(&rnic);
    let queue_pair = QueuePair::new(&domain, &QueuePairOptions::new(&completions)).unwrap();
    let mut memory = vec![1_u8; LENGTH];
    let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: owned beside the tag, and accessed only after deregistration.
    let stag = unsafe {
        register(rnic.memory(), domain.id(), base, LENGTH, 0, Access::LOCAL_WRITE, 0, None).unwrap()
    };
    let listener = Listener::bind(&rnic, any_port()).unwrap();
    let mut peer = TcpStream::connect(listener.local_address()).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_read_timeout(Some(TIMEOUT)).unwrap();
    peer.write_all(REQUEST).unwrap();
    let segments = SmallVec::from_slice(&[Segment { stag, address: 0, length: LENGTH as u32 }]);
    queue_pair.post_receive(ReceiveRequest { id: 1, segments }).unwrap();
    let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
    queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
    peer.read_exact(&mut [0; REQUEST.len()]).unwrap();
    Raw { rnic, completions, queue_pair, memory, stag, peer }
}

/// An FPDU without CRC around an untagged segment of queue 0.
fn send_fpdu(payload: &[u8]) -> Vec<u8> {
    let mut fpdu = (18 + payload.len() as u16).to_be_bytes().to_vec();
    fpdu.extend_from_slice(&[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    fpdu.extend_from_slice(payload);
    fpdu.resize(fpdu.len().next_multiple_of(4) + 4, 0);
    fpdu
}

#[test]
fn a_receive_in_progress_fails_and_the_peer_gets_an_error() {
    for options in all_modes() {
        let mut raw = raw(options);
        let fpdu = send_fpdu(&[2; 40_000]);
        raw.peer.write_all(&fpdu[..5_000]).unwrap();
        // By then the message has usually begun; it fails in any case.
        std::thread::sleep(Duration::from_millis(20));
        raw.completions.progress();
        raw.rnic.memory().deregister(raw.stag).unwrap();
        let placed = raw.memory.iter().filter(|byte| **byte == 2).count();
        raw.peer.write_all(&fpdu[5_000..]).unwrap();
        let completion = raw.next();
        assert_eq!((completion.id, completion.status), (1, Status::LocalProtection));
        let mut last = [0; 28];
        let mut length = 0;
        let peer = &raw.peer;
        peer.set_nonblocking(true).unwrap();
        raw.until("the Terminate", || {
            length += (&mut &*peer).read(&mut last[length..]).unwrap_or(0);
            length == last.len()
        });
        assert_eq!(last[..4], [0, 22, 0x41, 0x47], "a Terminate");
        assert_eq!(last[20..24], [0x10, 0, 0, 0], "DDP: a local error that quotes nothing");
        assert_eq!(raw.memory.iter().filter(|byte| **byte == 2).count(), placed, "written later");
        assert_eq!(raw.queue_pair.state(), State::Error);
    }
}

#[test]
fn a_send_in_progress_fails_and_sends_no_wrong_bytes() {
    for options in all_modes() {
        let mut raw = raw(options);
        // A responder sends only after the initiator's first message.
        raw.peer.write_all(&send_fpdu(b"first")).unwrap();
        assert_eq!(raw.next().status, Status::Success);
        // More than a socket buffers while its peer does not read.
        let data = Data::Gather(SmallVec::from_slice(&[raw.segment(); 16]));
        let operation = Operation::Send { data, solicited: false, invalidate: None };
        raw.queue_pair.post_send(SendRequest { id: 2, operation, signaled: true, fence: false }).unwrap();
        let mut waiting = 0;
        raw.until("the socket is full", || {
            let now = unread(&raw.peer);
            std::mem::replace(&mut waiting, now) == now && now > 0
        });
        raw.rnic.memory().deregister(raw.stag).unwrap();
        raw.memory.fill(0xee);
        let mut received = Vec::new();
        raw.peer.set_nonblocking(true).unwrap();
        let mut chunk = vec![0; 1 << 20];
        let peer = raw.peer.try_clone().unwrap();
        raw.until("the end of the stream", || {
            loop {
                match (&peer).read(&mut chunk) {
                    Ok(0) => return true,
                    Ok(bytes) => received.extend_from_slice(&chunk[..bytes]),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
                    Err(_) => return true,
                }
            }
        });
        assert!(!received.windows(16).any(|run| run == [0xee; 16]), "bytes of the new owner left");
        assert!(received.len() < 16 * LENGTH);
        let completion = raw.next();
        assert_eq!((completion.id, completion.status), (2, Status::LocalProtection));
    }
}

/// Returns the number of bytes that the peer could read.
fn unread(peer: &TcpStream) -> usize {
    let mut bytes = vec![0; 8 << 20];
    peer.set_nonblocking(true).unwrap();
    let found = peer.peek(&mut bytes).unwrap_or(0);
    peer.set_nonblocking(false).unwrap();
    found
}
