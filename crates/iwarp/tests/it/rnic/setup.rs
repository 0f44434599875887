//! Connection setup: negotiated parameters, private data, rejection, timeouts,
//! and peers that stop, disconnect or send something else at any byte of it.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    mpa::MpaError,
    verbs::{
        AcceptOptions, AsyncEvent, ConnectError, ConnectOptions, Listener, Rnic, RnicOptions, SendOptions,
        State,
    },
};

use crate::rnic::sides::{Side, TIMEOUT, all_modes, any_port, done, inline, join, until};

/// Frames of two Linux siw peers: revision 1 with CRC, and revision 2 with the
/// enhanced fields, IRD 4 and ORD 4.
const REQUEST: &[u8] = b"MPA ID Req Frame\x40\x01\x00\x00";
const REPLY: &[u8] = b"MPA ID Rep Frame\x40\x01\x00\x00";
const ENHANCED_REQUEST: &[u8] = b"MPA ID Req Frame\x50\x02\x00\x04\x00\x04\x00\x04";
const ENHANCED_REPLY: &[u8] = b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x04\x00\x04";

fn plain() -> ConnectOptions {
    ConnectOptions { revision: 1, ..ConnectOptions::default() }
}

#[test]
fn both_sides_report_the_same_parameters() {
    for options in all_modes() {
        let (left, right) = (Side::new(options.clone()), Side::new(options));
        let connect = ConnectOptions {
            private_data: b"from the initiator".to_vec(),
            ird: 3,
            ord: 5,
            markers: true,
            peer_to_peer: true,
            ..ConnectOptions::default()
        };
        let accept = AcceptOptions { private_data: vec![7; 508], ird: 4, ord: 1, ..AcceptOptions::default() };
        let (initiator_view, responder_view) =
            join(&left.queue_pair, &connect, (&right.rnic, &right.queue_pair), &accept);
        assert_eq!(
            (initiator_view.private_data.len(), &responder_view.private_data[..]),
            (508, &b"from the initiator"[..])
        );
        assert_eq!((initiator_view.local, initiator_view.peer), (responder_view.peer, responder_view.local));
        assert_eq!(
            (
                initiator_view.crc,
                initiator_view.markers_in,
                initiator_view.markers_out,
                initiator_view.peer_to_peer
            ),
            (true, true, false, true)
        );
        assert_eq!(
            (
                responder_view.crc,
                responder_view.markers_in,
                responder_view.markers_out,
                responder_view.peer_to_peer
            ),
            (true, false, true, true)
        );
        // Each side's ORD is limited by the other's IRD (RFC 6581, section
        // 4.2).
        assert_eq!(
            (initiator_view.ord, responder_view.ird, initiator_view.ird, responder_view.ord),
            (4, 4, 1, 1)
        );
        assert_eq!(left.queue_pair.state(), State::Rts);
        assert_eq!(left.queue_pair.query().established.unwrap(), initiator_view);
        // The ready-to-receive message is sent automatically, and its arrival
        // is an event.
        until("a responder reports the first message", || {
            _ = right.completions.progress();
            let id = right.queue_pair.id();
            right.rnic.events().next(Some(Duration::ZERO)) == Some(AsyncEvent::Established { queue_pair: id })
        });
    }
}

#[test]
fn a_peer_to_peer_responder_sends_first() {
    for options in all_modes() {
        let (left, right) = (Side::new(options.clone()), Side::new(options));
        left.queue_pair.receive(1, left.domain.buffer(5).unwrap()).unwrap();
        let connect = ConnectOptions { peer_to_peer: true, ..ConnectOptions::default() };
        join(&left.queue_pair, &connect, (&right.rnic, &right.queue_pair), &AcceptOptions::default());
        right.queue_pair.send(2, &b"first"[..], SendOptions::default()).unwrap();
        assert_eq!(&done(&left, &[&right]).buffers[0][..], b"first");
        done(&right, &[&left]);
    }
}

#[test]
fn a_rejection_brings_private_data_and_leaves_the_queue_pair_idle() {
    let (left, right) = (Side::new(inline()), Side::new(inline()));
    let listener = Listener::bind(&right.rnic, any_port()).unwrap();
    let address = listener.local_address();
    for revision in [1, 2] {
        thread::scope(|scope| {
            scope.spawn(|| listener.accept(Some(TIMEOUT)).unwrap().unwrap().reject(b"no room").unwrap());
            let options = ConnectOptions { revision, ..ConnectOptions::default() };
            let error = left.queue_pair.connect(address, &options).unwrap_err();
            assert!(
                matches!(&error, ConnectError::Rejected { private_data, .. } if private_data == b"no room"),
                "{error:?}"
            );
        });
        assert_eq!(left.queue_pair.state(), State::Idle);
    }
    // A further connect succeeds.
    join(&left.queue_pair, &plain(), (&right.rnic, &right.queue_pair), &AcceptOptions::default());
    assert_eq!(left.queue_pair.state(), State::Rts);
    let second = left.queue_pair.connect(address, &plain()).unwrap_err();
    assert!(matches!(second, ConnectError::State(State::Rts)), "{second:?}");
}

#[test]
fn too_much_private_data_and_wrong_options_are_refused_before_anything_is_sent() {
    let side = Side::new(inline());
    let nobody = "127.0.0.1:1".parse().unwrap();
    let refused = |options: ConnectOptions| side.queue_pair.connect(nobody, &options).unwrap_err();
    let long = ConnectOptions { private_data: vec![0; 509], ..ConnectOptions::default() };
    assert!(matches!(refused(long), ConnectError::Option(MpaError::PrivateData { max: 508, .. })));
    let long = ConnectOptions { private_data: vec![0; 513], ..plain() };
    assert!(matches!(refused(long), ConnectError::Option(MpaError::PrivateData { max: 512, .. })));
    assert!(matches!(refused(ConnectOptions { revision: 3, ..plain() }), ConnectError::Option(_)));
    assert!(matches!(refused(ConnectOptions { peer_to_peer: true, ..plain() }), ConnectError::Option(_)));
    for (ird, ord) in [(129, 1), (1, 0x3fff)] {
        let many = ConnectOptions { ird, ord, ..ConnectOptions::default() };
        assert!(matches!(refused(many), ConnectError::Reads { max: 128, .. }));
    }
    let error = refused(plain());
    assert!(matches!(&error, ConnectError::Tcp { .. }), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

#[test]
fn a_silent_responder_causes_a_reply_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let side = Side::new(inline());
    let options = ConnectOptions { reply_timeout: Duration::from_millis(50), ..ConnectOptions::default() };
    let error = side.queue_pair.connect(silent.local_addr().unwrap(), &options).unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { awaited: "reply", .. }), "{error:?}");
    // The same without blocking: the descriptor reports the timeout too.
    let mut connecting = side.queue_pair.start_connect(silent.local_addr().unwrap(), &options).unwrap();
    let end = Instant::now() + TIMEOUT;
    let error = loop {
        assert!(Instant::now() < end);
        readable(&connecting);
        match connecting.advance() {
            Ok(None) => {}
            Ok(Some(_)) => panic!("nobody replied"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ConnectError::TimedOut { awaited: "reply", .. }), "{error:?}");
}

fn readable(descriptor: &impl AsFd) {
    let mut descriptors = [rustix::event::PollFd::new(descriptor, rustix::event::PollFlags::IN)];
    let timeout = TIMEOUT.try_into().unwrap();
    assert_eq!(rustix::event::poll(&mut descriptors, Some(&timeout)).unwrap(), 1);
}

#[test]
fn connecting_and_accepting_work_by_descriptors() {
    let (left, right) = (Side::new(inline()), Side::new(inline()));
    let listener = Listener::bind(&right.rnic, any_port()).unwrap();
    assert!(listener.accept(Some(Duration::ZERO)).unwrap().is_none());
    let mut connecting = left.queue_pair.start_connect(listener.local_address(), &plain()).unwrap();
    let mut accepted = false;
    let end = Instant::now() + TIMEOUT;
    let established = loop {
        assert!(Instant::now() < end);
        readable(&connecting);
        if let Some(established) = connecting.advance().unwrap() {
            break established;
        }
        while !accepted {
            readable(&listener);
            if let Some(incoming) = listener.accept(Some(Duration::ZERO)).unwrap() {
                right.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
                accepted = true;
            }
        }
    };
    assert_eq!(established.peer, listener.local_address());
    assert_eq!(left.queue_pair.state(), State::Rts);
}

#[test]
fn a_connection_attempt_that_is_dropped_leaves_the_queue_pair_idle() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (left, right) = (Side::new(inline()), Side::new(inline()));
    let connecting = left.queue_pair.start_connect(silent.local_addr().unwrap(), &plain()).unwrap();
    let second = left.queue_pair.connect(silent.local_addr().unwrap(), &plain()).unwrap_err();
    assert!(matches!(second, ConnectError::State(State::Idle)), "{second:?}");
    drop(connecting);
    join(&left.queue_pair, &plain(), (&right.rnic, &right.queue_pair), &AcceptOptions::default());
}

/// Every prefix of a request, after which the peer disconnects: gracefully, or
/// with a reset.
#[test]
fn a_peer_that_closes_at_any_byte_of_its_request_causes_one_error() {
    let side = Side::new(inline());
    let listener = Listener::bind(&side.rnic, any_port()).unwrap();
    for request in [REQUEST, ENHANCED_REQUEST] {
        for length in 0..request.len() {
            for reset in [false, true] {
                let mut peer = TcpStream::connect(listener.local_address()).unwrap();
                peer.write_all(&request[..length]).unwrap();
                leave(peer, reset);
                let mut failures = Vec::new();
                until("the failure is reported", || {
                    assert!(listener.accept(Some(Duration::from_millis(1))).unwrap().is_none());
                    failures.extend(listener.failures());
                    !failures.is_empty()
                });
                assert!(
                    matches!(failures[..], [ConnectError::Closed { awaited: "request", .. }]),
                    "{failures:?}"
                );
            }
        }
    }
    listens(&listener, &side);
}

fn leave(peer: TcpStream, reset: bool) {
    if reset {
        socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    }
    drop(peer);
}

/// Checks that the listener still works.
fn listens(listener: &Listener, responder: &Side) {
    let initiator = Side::new(inline());
    thread::scope(|scope| {
        scope.spawn(|| {
            let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
            responder.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
        });
        initiator.queue_pair.connect(listener.local_address(), &plain()).unwrap();
    });
}

#[test]
fn a_peer_of_another_protocol_causes_one_error() {
    let side = Side::new(inline());
    let listener = Listener::bind(&side.rnic, any_port()).unwrap();
    let mut long = REQUEST.to_vec();
    long[18..20].copy_from_slice(&513u16.to_be_bytes());
    let wrong: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\n\r\n", REPLY, &[0; 64], &long, b"MPA ID Req FramE\x40\x01\x00\x00"];
    for bytes in wrong {
        let mut peer = TcpStream::connect(listener.local_address()).unwrap();
        peer.write_all(bytes).unwrap();
        let error = one_failure(&listener);
        assert!(matches!(error, ConnectError::Setup { .. }), "{error:?}");
        // The connection is closed.
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert!(!matches!(peer.read(&mut [0; 1]), Ok(1)));
    }
    let mut peer = TcpStream::connect(listener.local_address()).unwrap();
    peer.write_all(&[REQUEST, &[0; 4]].concat()).unwrap();
    let error = one_failure(&listener);
    assert!(
        matches!(error, ConnectError::Setup { source: MpaError::EarlyData { bytes: 4 }, .. }),
        "{error:?}"
    );
    listens(&listener, &side);
}

fn one_failure(listener: &Listener) -> ConnectError {
    let mut failures = Vec::new();
    until("the failure is reported", || {
        assert!(listener.accept(Some(Duration::from_millis(1))).unwrap().is_none());
        failures.extend(listener.failures());
        !failures.is_empty()
    });
    assert_eq!(failures.len(), 1, "{failures:?}");
    failures.remove(0)
}

#[test]
fn a_silent_peer_blocks_no_other_and_times_out() {
    let request_timeout = Duration::from_millis(50);
    let rnic = Rnic::open(RnicOptions { request_timeout, ..inline() }).unwrap();
    let side = Side::of(&rnic);
    let listener = Listener::bind(&rnic, any_port()).unwrap();
    let mut silent = TcpStream::connect(listener.local_address()).unwrap();
    let mut slow = TcpStream::connect(listener.local_address()).unwrap();
    slow.write_all(&REQUEST[..10]).unwrap();
    listens(&listener, &side);
    let mut failures = Vec::new();
    until("silent peers are dropped", || {
        assert!(listener.accept(Some(Duration::from_millis(1))).unwrap().is_none());
        failures.extend(listener.failures());
        failures.len() >= 2
    });
    for failure in failures {
        assert!(matches!(failure, ConnectError::TimedOut { awaited: "request", .. }), "{failure:?}");
    }
    for peer in [&mut silent, &mut slow] {
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert!(!matches!(peer.read(&mut [0; 1]), Ok(1)));
    }
}

#[test]
fn a_request_that_arrives_byte_by_byte_is_accepted() {
    let side = Side::new(inline());
    let listener = Listener::bind(&side.rnic, any_port()).unwrap();
    let mut peer = TcpStream::connect(listener.local_address()).unwrap();
    peer.set_nodelay(true).unwrap();
    for byte in ENHANCED_REQUEST {
        assert!(listener.accept(Some(Duration::ZERO)).unwrap().is_none());
        peer.write_all(&[*byte]).unwrap();
    }
    let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
    assert_eq!((incoming.revision, incoming.crc, incoming.markers), (2, true, false));
    assert_eq!((incoming.ird, incoming.ord, incoming.peer_to_peer), (Some(4), Some(4), false));
    side.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
    let mut reply = [0; 24];
    peer.read_exact(&mut reply).unwrap();
    assert_eq!(reply, ENHANCED_REPLY);
}

/// Every prefix of a reply, after which the responder disconnects.
#[test]
fn a_responder_that_closes_at_any_byte_of_its_reply_causes_one_error() {
    let responder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = responder.local_addr().unwrap();
    let side = Side::new(inline());
    for (revision, request, reply) in [(1, REQUEST, REPLY), (2, ENHANCED_REQUEST, ENHANCED_REPLY)] {
        for length in 0..reply.len() {
            for reset in [false, true] {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let (mut peer, _) = responder.accept().unwrap();
                        peer.read_exact(&mut vec![0; request.len()]).unwrap();
                        peer.write_all(&reply[..length]).unwrap();
                        leave(peer, reset);
                    });
                    let options = ConnectOptions { revision, fall_back: false, ..ConnectOptions::default() };
                    let error = side.queue_pair.connect(address, &options).unwrap_err();
                    assert!(matches!(error, ConnectError::Closed { awaited: "reply", .. }), "{error:?}");
                });
                assert_eq!(side.queue_pair.state(), State::Idle);
            }
        }
    }
}

#[test]
fn an_invalid_reply_causes_one_error() {
    let responder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = responder.local_addr().unwrap();
    let side = Side::new(inline());
    let mut other_revision = REPLY.to_vec();
    other_revision[17] = 2;
    let wrong: [&[u8]; 4] = [REQUEST, b"HTTP/1.1 200 OK\r\n\r\n12345", &[0xff; 20], &other_revision];
    for bytes in wrong {
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut peer, _) = responder.accept().unwrap();
                peer.read_exact(&mut [0; REQUEST.len()]).unwrap();
                peer.write_all(bytes).unwrap();
                peer.set_read_timeout(Some(TIMEOUT)).unwrap();
                assert!(!matches!(peer.read(&mut [0; 1]), Ok(1)), "closed without further data");
            });
            let error = side.queue_pair.connect(address, &plain()).unwrap_err();
            assert!(matches!(error, ConnectError::Setup { .. }), "{error:?}");
        });
    }
}

/// A kernel with Linux' siw crashes when a peer requests peer-to-peer and
/// disconnects; here the connection just ends.
#[test]
fn a_peer_that_requests_peer_to_peer_and_closes_causes_one_error() {
    for options in all_modes() {
        for reset in [false, true] {
            let side = Side::new(options.clone());
            let listener = Listener::bind(&side.rnic, any_port()).unwrap();
            let mut peer = TcpStream::connect(listener.local_address()).unwrap();
            peer.write_all(b"MPA ID Req Frame\x50\x02\x00\x04\x80\x04\xc0\x04").unwrap();
            let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
            assert!(incoming.peer_to_peer);
            side.queue_pair.receive(1, side.domain.buffer(8).unwrap()).unwrap();
            side.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
            side.queue_pair.send(2, &b"waits"[..], SendOptions::default()).unwrap();
            peer.read_exact(&mut [0; 24]).unwrap();
            leave(peer, reset);
            ends(&side);
        }
    }
}

/// Checks that the queue pair ends and completes all posted requests.
fn ends(side: &Side) {
    until("the queue pair ends", || {
        _ = side.completions.progress();
        side.queue_pair.state() != State::Rts
    });
    let mut back = Vec::new();
    until("flushed", || {
        back.extend(side.poll().map(|finished| finished.completion.id));
        back.len() >= 2
    });
    back.sort_unstable();
    assert_eq!(back, [1, 2]);
}

#[test]
fn a_peer_that_requests_peer_to_peer_and_is_silent_times_out() {
    for options in all_modes() {
        let rnic = Rnic::open(RnicOptions { request_timeout: Duration::from_millis(50), ..options }).unwrap();
        let side = Side::of(&rnic);
        let listener = Listener::bind(&rnic, any_port()).unwrap();
        let mut peer = TcpStream::connect(listener.local_address()).unwrap();
        peer.write_all(b"MPA ID Req Frame\x50\x02\x00\x04\x80\x04\xc0\x04").unwrap();
        let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
        side.queue_pair.receive(1, side.domain.buffer(8).unwrap()).unwrap();
        side.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
        side.queue_pair.send(2, &b"waits"[..], SendOptions::default()).unwrap();
        ends(&side);
        peer.read_exact(&mut [0; 24]).unwrap();
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert!(!matches!(peer.read(&mut [0; 1]), Ok(1)));
    }
}

/// A peer that disconnects between its request and the reply.
#[test]
fn a_peer_that_closes_before_it_is_accepted_causes_one_error_at_most() {
    for reset in [false, true] {
        let side = Side::new(inline());
        let listener = Listener::bind(&side.rnic, any_port()).unwrap();
        let mut peer = TcpStream::connect(listener.local_address()).unwrap();
        peer.write_all(REQUEST).unwrap();
        let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        leave(peer, reset);
        // A reset may be detected at once; a close is a graceful end later.
        match side.queue_pair.accept(incoming, &AcceptOptions::default()) {
            Err(error) => {
                assert!(matches!(error, ConnectError::Closed { .. } | ConnectError::Tcp { .. }), "{error:?}");
                assert_eq!(side.queue_pair.state(), State::Idle);
            }
            Ok(_) => until("the queue pair ends", || {
                _ = side.completions.progress();
                side.queue_pair.state() != State::Rts
            }),
        }
    }
}

/// A responder that requests more Reads than supported, or proposes an
/// unsupported ready-to-receive message, gets a Terminate with the error (RFC
/// 6581, section 6).
#[test]
fn an_unacceptable_reply_gets_a_terminate() {
    // IRD and ORD fields; layer LLP and MPA's error code in the Terminate.
    for (fields, code) in [([0u8, 4, 0x3f, 0xf0], 0x06u8), ([0xc0, 4, 0, 4], 0x07)] {
        let responder = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = responder.local_addr().unwrap();
        let side = Side::new(inline());
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut peer, _) = responder.accept().unwrap();
                peer.read_exact(&mut [0; 24]).unwrap();
                peer.write_all(&[b"MPA ID Rep Frame\x10\x02\x00\x04", &fields[..]].concat()).unwrap();
                let mut rest = Vec::new();
                peer.set_read_timeout(Some(TIMEOUT)).unwrap();
                peer.read_to_end(&mut rest).unwrap();
                // Length, DDP (untagged, last, version 1), RDMAP Terminate, queue
                // 2, MSN 1, MO 0, then layer and type 0x20 and the code.
                assert_eq!(rest[..2], [0, 22]);
                assert_eq!(rest[2..4], [0x41, 0x47]);
                assert_eq!(rest[8..20], [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
                assert_eq!(rest[20..22], [0x20, code]);
            });
            let options = ConnectOptions { peer_to_peer: true, crc: false, ..ConnectOptions::default() };
            let error = side.queue_pair.connect(address, &options).unwrap_err();
            assert!(matches!(error, ConnectError::Setup { .. }), "{error:?}");
        });
    }
}
