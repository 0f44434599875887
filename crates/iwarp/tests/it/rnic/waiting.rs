//! Blocking waits: a sleeper is woken by its event, whatever causes it, and by
//! timeouts.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use clearstream_iwarp::{
    rdmap::ErrorCode,
    verbs::{
        AcceptOptions, Access, AsyncEvent, CompletionQueue, ConnectOptions, Listener, ProtectionDomain,
        QueuePair, QueuePairOptions, Region, Rnic, RnicOptions, SendOptions, State,
    },
    work::Status,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::rnic::sides::{
    Side, TIMEOUT, all_modes, any_port, done, finished, inline, join, offloaded, pattern, plain_pair, until,
};

/// Revision 1, no CRC, no private data.
const REQUEST: &[u8] = b"MPA ID Req Frame\x00\x01\x00\x00";
const REPLY: &[u8] = b"MPA ID Rep Frame\x00\x01\x00\x00";
/// Revision 2, peer-to-peer by an empty Write, IRD 4 and ORD 4 (RFC 6581,
/// section 9).
const PEER_TO_PEER: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x80\x04\x80\x04";

fn connect_with(address: SocketAddr, request: &[u8]) -> TcpStream {
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.write_all(request).unwrap();
    peer
}

/// An FPDU without CRC around a whole untagged segment: control byte of RDMAP,
/// queue, payload.
fn fpdu(control: u8, queue: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (18 + payload.len() as u16).to_be_bytes().to_vec();
    bytes.extend([0x41, control, 0, 0, 0, 0, 0, 0, 0, queue, 0, 0, 0, 1, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4) + 4, 0);
    bytes
}

#[test]
fn a_sleeper_sends_all_of_a_long_message() {
    let (left, right) = (Side::new(inline()), Side::new(offloaded()));
    join(
        &left.queue_pair,
        &ConnectOptions { crc: false, ..ConnectOptions::default() },
        (&right.rnic, &right.queue_pair),
        &AcceptOptions::default(),
    );
    let bytes = pattern(64 << 20, 9);
    right.queue_pair.receive(1, right.domain.buffer(bytes.len()).unwrap()).unwrap();
    let mut buffer = left.domain.buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(&bytes);
    left.queue_pair.send(2, buffer, SendOptions::default()).unwrap();
    let sent = left.completions.wait(TIMEOUT).unwrap().expect("all of it is sent");
    assert_eq!((sent.completion.id, sent.completion.status), (2, Status::Success));
    assert!(done(&right, &[&left]).buffers[0][..] == bytes[..]);
}

#[test]
fn a_completion_that_another_thread_brings_wakes_a_sleeper() {
    for options in all_modes() {
        let (left, right) = plain_pair(&options);
        right.queue_pair.receive(1, right.domain.buffer(4).unwrap()).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| left.completions.wait(TIMEOUT).unwrap());
            // Long enough to fall asleep; correct without, too.
            thread::sleep(Duration::from_millis(20));
            left.queue_pair.send(2, &b"wake"[..], SendOptions::default()).unwrap();
            let sent = waiter.join().unwrap().expect("it is woken");
            assert_eq!((sent.completion.id, sent.completion.status), (2, Status::Success));
        });
    }
}

#[test]
fn a_request_that_is_not_accepted_keeps_the_descriptor_readable() {
    let rnic = Rnic::open(inline()).unwrap();
    let listener = Listener::bind(&rnic, any_port()).unwrap();
    let _peers = [(); 3].map(|()| connect_with(listener.local_address(), REQUEST));
    for _ in 0..3 {
        let mut readable = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        let limit = Timespec::try_from(TIMEOUT).unwrap();
        assert_eq!(poll(&mut readable, Some(&limit)), Ok(1), "a request waits");
        assert!(listener.accept(Some(Duration::MAX)).unwrap().is_some());
    }
    assert!(listener.accept(Some(Duration::ZERO)).unwrap().is_none());
}

#[test]
fn a_sleeper_notices_that_the_first_message_times_out() {
    let limit = Duration::from_millis(200);
    for count in [1, 3] {
        let rnic = Rnic::open(RnicOptions { request_timeout: limit, ..inline() }).unwrap();
        let domain = ProtectionDomain::new(&rnic);
        let completions = CompletionQueue::new(&rnic, 16).unwrap();
        let listener = Listener::bind(&rnic, any_port()).unwrap();
        let ends: Vec<_> = (0..count)
            .map(|id| {
                let peer = connect_with(listener.local_address(), PEER_TO_PEER);
                let queue_pair = QueuePair::new(&domain, &QueuePairOptions::new(&completions)).unwrap();
                queue_pair.receive(id, domain.buffer(4).unwrap()).unwrap();
                let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
                queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
                (queue_pair, peer)
            })
            .collect();
        for (queue_pair, _) in &ends {
            let flushed = completions.wait(TIMEOUT).unwrap().expect("the time limit");
            assert_eq!(flushed.completion.status, Status::Flushed);
            until("it times out", || queue_pair.state() == State::Error);
        }
    }
}

#[test]
fn a_terminate_right_after_the_reply_is_reported() {
    // Layer 2 (MPA), type 0, code 5: local catastrophic error (RFC 6581,
    // section 8).
    let terminate = fpdu(0x47, 2, &[0x20, 0x05, 0, 0]);
    for options in all_modes() {
        let side = Side::new(options);
        side.queue_pair.receive(1, side.domain.buffer(4).unwrap()).unwrap();
        let listener = TcpListener::bind(any_port()).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = ConnectOptions {
            revision: 1,
            crc: false,
            timeout: Duration::MAX,
            reply_timeout: Duration::MAX,
            ..ConnectOptions::default()
        };
        // It stays connected: there is no end of stream to detect.
        let _peer = thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let (mut peer, _) = listener.accept().unwrap();
                peer.read_exact(&mut [0; REQUEST.len()]).unwrap();
                peer.write_all(&[REPLY, &terminate].concat()).unwrap();
                peer
            });
            side.queue_pair.connect(address, &connect).unwrap();
            peer.join().unwrap()
        });
        assert_eq!(finished(&side, &[]).completion.status, Status::Flushed);
        until("the Terminate is reported", || {
            matches!(
                side.rnic.events().next(Some(Duration::ZERO)),
                Some(AsyncEvent::TerminateReceived { terminate, .. })
                    if terminate.error == ErrorCode::MpaCatastrophic
            )
        });
    }
}

#[test]
fn an_unread_terminate_times_out() {
    let side = Side::new(inline());
    let listener = Listener::bind(&side.rnic, any_port()).unwrap();
    let mut peer = connect_with(listener.local_address(), REQUEST);
    side.queue_pair.receive(1, side.domain.buffer(4).unwrap()).unwrap();
    side.queue_pair.receive(2, side.domain.buffer(4).unwrap()).unwrap();
    let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
    side.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
    peer.write_all(&fpdu(0x43, 0, b"this")).unwrap();
    assert_eq!(done(&side, &[]).completion.id, 1);
    let memory = Region::new(&side.domain, 64 << 20, Access::NONE).unwrap();
    side.queue_pair.send(3, memory.segment(0, 64 << 20), SendOptions::default()).unwrap();
    // An undefined operation, while the socket is full.
    peer.write_all(&fpdu(0x4f, 0, b"what")).unwrap();
    until("it detects the error", || {
        _ = side.completions.progress();
        side.queue_pair.state() == State::Terminate
    });
    let mut back = [(); 2].map(|()| {
        let flushed = side.completions.wait(TIMEOUT).unwrap().expect("the time limit").completion;
        assert_eq!(flushed.status, Status::Flushed);
        flushed.id
    });
    back.sort_unstable();
    assert_eq!(back, [2, 3]);
    drop(peer);
}

/// A page changes every few microseconds: a checksum of other bytes than those sent shows in the first reads.
const READS: usize = 200;

#[test]
fn memory_that_changes_while_it_is_read_ends_no_connection() {
    let (reader, owner) = plain_pair(&offloaded());
    assert!(reader.queue_pair.query().established.is_some_and(|established| established.crc));
    let length = 64 << 10;
    let memory = Region::new(&owner.domain, length, Access::REMOTE_READ).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0;
            while !stop.load(Ordering::Relaxed) {
                value += 1;
                (0..length).step_by(4096).for_each(|at| memory.store(at, value));
            }
        });
        let mut done = Vec::new();
        for id in 0..READS as u64 {
            let buffer = reader.domain.buffer(length).unwrap();
            reader.queue_pair.read(id, buffer, memory.remote(0), SendOptions::default()).unwrap();
            done.push(finished(&reader, &[&owner]).completion.status);
            if done.last() != Some(&Status::Success) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(done, [Status::Success; READS]);
    });
}
