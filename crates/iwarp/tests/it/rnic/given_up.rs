//! Setups that their initiator gives up: its local port is free at once, whatever the responder does with the request, and
//! that finds the end of the connection when it answers.

use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use clearstream_iwarp::verbs::{
    AcceptOptions, AsyncEvent, ConnectError, ConnectOptions, Connecting, Failure, Incoming, Listener, State,
};

use crate::rnic::sides::{Side, TIMEOUT, all_modes, any_port, inline, until};

/// Attempts from one port.
const ATTEMPTS: usize = 6;

/// An address whose port is free.
fn free() -> SocketAddr {
    TcpListener::bind(any_port()).unwrap().local_addr().unwrap()
}

/// Connects from an address until the responder has the request.
fn requests(side: &Side, from: SocketAddr, listener: &Listener) -> (Connecting, Incoming) {
    let options = ConnectOptions { local: Some(from), peer_to_peer: true, ..ConnectOptions::default() };
    let mut connecting = side.queue_pair.start_connect(listener.local_address(), &options).unwrap();
    let end = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < end);
        assert!(connecting.advance().unwrap().is_none());
        if let Some(incoming) = listener.accept(Some(Duration::from_millis(1))).unwrap() {
            return (connecting, incoming);
        }
    }
}

#[test]
fn a_port_is_free_when_its_setup_is_given_up_while_the_responder_keeps_the_request() {
    let (left, right) = (Side::new(inline()), Side::new(inline()));
    let listener = Listener::bind(&right.rnic, any_port()).unwrap();
    let from = free();
    let mut kept = Vec::new();
    for _ in 0..ATTEMPTS {
        let (connecting, incoming) = requests(&left, from, &listener);
        assert_eq!(incoming.peer, from);
        kept.push(incoming);
        drop(connecting);
    }
    // The last one is served.
    let (mut connecting, incoming) = requests(&left, from, &listener);
    right.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
    until("connected", || connecting.advance().unwrap().is_some());
    assert_eq!(left.queue_pair.state(), State::Rts);
    assert_eq!(kept.len(), ATTEMPTS);
}

#[test]
fn a_port_is_free_when_the_reply_did_not_come_in_time() {
    let silent = TcpListener::bind(any_port()).unwrap();
    let side = Side::new(inline());
    let reply_timeout = Duration::from_millis(20);
    let options = ConnectOptions { local: Some(free()), reply_timeout, ..ConnectOptions::default() };
    let mut kept = Vec::new();
    for _ in 0..ATTEMPTS {
        let error = side.queue_pair.connect(silent.local_addr().unwrap(), &options).unwrap_err();
        assert!(matches!(error, ConnectError::TimedOut { awaited: "reply", .. }), "{error:?}");
        kept.push(silent.accept().unwrap());
    }
}

/// Accepts a request whose initiator is gone; returns why the connection ended.
fn ends(side: &Side, incoming: Incoming) -> Vec<Option<Failure>> {
    let established = side.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
    assert!(established.peer_to_peer);
    until("the queue pair ends", || {
        _ = side.completions.progress();
        side.queue_pair.state() == State::Error
    });
    std::iter::from_fn(|| side.rnic.events().next(Some(Duration::from_millis(20))))
        .map(|event| match event {
            AsyncEvent::Disconnected { failure, .. } => failure,
            event => panic!("{event:?}"),
        })
        .collect()
}

#[test]
fn a_request_that_was_given_up_is_accepted_and_ends_as_that_of_a_peer_that_closed() {
    for options in all_modes() {
        let (left, right) = (Side::new(inline()), Side::new(options.clone()));
        let listener = Listener::bind(&right.rnic, any_port()).unwrap();
        let (connecting, given_up) = requests(&left, free(), &listener);
        drop(connecting);
        let mut peer = TcpStream::connect(listener.local_address()).unwrap();
        peer.write_all(b"MPA ID Req Frame\x50\x02\x00\x04\x80\x04\xc0\x04").unwrap();
        drop(peer);
        let closed = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
        let other = Side::of(&right.rnic);
        let reasons = (ends(&right, given_up), ends(&other, closed));
        assert_eq!(reasons, (vec![Some(Failure::Truncated)], vec![Some(Failure::Truncated)]));
    }
}

#[test]
fn a_request_that_was_given_up_may_be_rejected() {
    let (left, right) = (Side::new(inline()), Side::new(inline()));
    let listener = Listener::bind(&right.rnic, any_port()).unwrap();
    let (connecting, incoming) = requests(&left, free(), &listener);
    drop(connecting);
    incoming.reject(b"too late").unwrap();
}
