//! Responders that support only revision 1: they close after a request of
//! revision 2 (RFC 5044, section 7.1.1), or reply with their own.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    thread,
    time::Duration,
};

use clearstream_iwarp::{
    mpa::MpaError,
    verbs::{ConnectError, ConnectOptions, Established, State},
};

use crate::rnic::sides::{Side, TIMEOUT, all_modes, any_port, inline};

/// Local request of revision 1: CRC, and a reserved bit that offers immediate data with Sends and Writes.
const REQUEST: &[u8] = b"MPA ID Req Frame\x42\x01\x00\x00";
/// As Linux' siw replies.
const REPLY: &[u8] = b"MPA ID Rep Frame\x40\x01\x00\x00";
/// The same of revision 2: enhanced, IRD and ORD 16.
const ENHANCED_REQUEST: &[u8] = b"MPA ID Req Frame\x52\x02\x00\x04\x00\x10\x00\x10";

/// Rejection of revision 2 by the peer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refusal {
    Close,
    Reset,
    Reply,
}

const REFUSALS: [Refusal; 3] = [Refusal::Close, Refusal::Reset, Refusal::Reply];

fn refuse(listener: &TcpListener, request: &[u8], refusal: Refusal) {
    let (mut peer, _) = listener.accept().unwrap();
    let mut bytes = vec![0; request.len()];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, request);
    match refusal {
        Refusal::Close => {}
        Refusal::Reset => socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap(),
        Refusal::Reply => {
            peer.write_all(REPLY).unwrap();
            peer.set_read_timeout(Some(TIMEOUT)).unwrap();
            assert!(!matches!(peer.read(&mut [0; 1]), Ok(1)), "closed without further data");
        }
    }
}

fn take(listener: &TcpListener) -> TcpStream {
    let (mut peer, _) = listener.accept().unwrap();
    let mut bytes = [0; REQUEST.len()];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, REQUEST);
    peer.write_all(REPLY).unwrap();
    peer
}

/// Connects, non-blocking or blocking.
fn connect(
    side: &Side,
    peer: SocketAddr,
    options: &ConnectOptions,
    watched: bool,
) -> Result<Established, ConnectError> {
    if !watched {
        return side.queue_pair.connect(peer, options);
    }
    let mut connecting = side.queue_pair.start_connect(peer, options)?;
    loop {
        if let Some(established) = connecting.advance()? {
            return Ok(established);
        }
        let mut descriptors =
            [rustix::event::PollFd::from_borrowed_fd(connecting.as_fd(), rustix::event::PollFlags::IN)];
        let timeout = rustix::event::Timespec::try_from(TIMEOUT).unwrap();
        assert_eq!(rustix::event::poll(&mut descriptors, Some(&timeout)).unwrap(), 1);
    }
}

#[test]
fn are_retried_with_revision_1() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    for progress in all_modes() {
        for refusal in REFUSALS {
            for watched in [false, true] {
                let side = Side::new(progress.clone());
                thread::scope(|scope| {
                    let peer = scope.spawn(|| {
                        refuse(&listener, ENHANCED_REQUEST, refusal);
                        take(&listener)
                    });
                    let negotiated = connect(&side, address, &ConnectOptions::default(), watched).unwrap();
                    assert_eq!(
                        (negotiated.revision, negotiated.crc, negotiated.peer),
                        (1, true, address),
                        "{refusal:?}"
                    );
                    // Not negotiated: as requested by the program.
                    assert_eq!((negotiated.ird, negotiated.ord), (16, 16));
                    assert_eq!(side.queue_pair.state(), State::Rts);
                    drop(peer.join().unwrap());
                });
            }
        }
    }
}

#[test]
fn are_not_retried_when_revision_2_is_required() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    let peer_to_peer = ConnectOptions { peer_to_peer: true, ..ConnectOptions::default() };
    let only_2 = ConnectOptions { fall_back: false, ..ConnectOptions::default() };
    let side = Side::new(inline());
    for refusal in REFUSALS {
        for options in [&peer_to_peer, &only_2] {
            let error = thread::scope(|scope| {
                scope.spawn(|| {
                    let mut request = ENHANCED_REQUEST.to_vec();
                    if options.peer_to_peer {
                        // A, and the two kinds of ready-to-receive messages.
                        request[20..].copy_from_slice(&[0x80, 0x10, 0xc0, 0x10]);
                    }
                    refuse(&listener, &request, refusal);
                });
                side.queue_pair.connect(address, options).unwrap_err()
            });
            match (&error, refusal) {
                (ConnectError::NeedsRevision2 { peer, closes }, _) if options.peer_to_peer => {
                    assert_eq!((*peer, *closes), (address, !matches!(refusal, Refusal::Reply)));
                    assert!(error.to_string().contains("connect without"), "{error}");
                }
                (
                    ConnectError::Setup { source: MpaError::OtherRevision { reply: 1, .. }, .. },
                    Refusal::Reply,
                ) => {}
                (ConnectError::Closed { awaited: "reply", .. }, Refusal::Close | Refusal::Reset) => {}
                _ => panic!("{refusal:?} {error:?}"),
            }
            assert_eq!(side.queue_pair.state(), State::Idle, "a further connect is possible");
        }
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "no retry");
}

#[test]
fn that_close_twice_or_disappear_yield_the_most_specific_error() {
    let side = Side::new(inline());
    for gone in [false, true] {
        let listener = TcpListener::bind(any_port()).unwrap();
        let address = listener.local_addr().unwrap();
        let error = thread::scope(|scope| {
            scope.spawn(move || {
                if gone {
                    // There is no listener any more when the first connection
                    // ends.
                    let (mut peer, _) = listener.accept().unwrap();
                    drop(listener);
                    peer.read_exact(&mut [0; ENHANCED_REQUEST.len()]).unwrap();
                } else {
                    refuse(&listener, ENHANCED_REQUEST, Refusal::Close);
                    refuse(&listener, REQUEST, Refusal::Close);
                }
            });
            side.queue_pair.connect(address, &ConnectOptions::default()).unwrap_err()
        });
        assert!(matches!(error, ConnectError::Closed { awaited: "reply", .. }), "{error:?}");
        assert_eq!(side.queue_pair.state(), State::Idle);
    }
}
