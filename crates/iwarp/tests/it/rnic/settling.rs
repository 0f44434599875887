//! Delay between the reply and the first message, for a responder that does not
//! read its connection yet.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use clearstream_iwarp::verbs::{ConnectOptions, Connecting, Established, QueuePair};

use crate::rnic::sides::{Side, TIMEOUT, all_modes, any_port};

const SETTLE: Duration = Duration::from_millis(40);
/// As siw requests a zero-length Write (RFC 6581, section 4.1: bits A and C).
const REPLY: &[u8] = b"MPA ID Rep Frame\x10\x02\x00\x04\x80\x04\x80\x04";
const REQUEST_BYTES: usize = 24;

fn until_established(mut connecting: Connecting) -> Established {
    let began = Instant::now();
    loop {
        if let Some(established) = connecting.advance().unwrap() {
            return established;
        }
        assert!(began.elapsed() < TIMEOUT);
        thread::yield_now();
    }
}

#[test]
fn the_first_message_waits_for_a_peer_that_settles() {
    let options =
        ConnectOptions { peer_to_peer: true, crc: false, settle: Some(SETTLE), ..ConnectOptions::default() };
    let waits = |pair: &QueuePair, peer| pair.connect(peer, &options).unwrap();
    let goes_on = |pair: &QueuePair, peer| until_established(pair.start_connect(peer, &options).unwrap());
    for rnic in all_modes() {
        for connect in [&waits as &dyn Fn(&QueuePair, _) -> Established, &goes_on] {
            let side = Side::new(rnic.clone());
            let listener = TcpListener::bind(any_port()).unwrap();
            let address = listener.local_addr().unwrap();
            let responder = thread::spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream.read_exact(&mut [0; REQUEST_BYTES]).unwrap();
                let replied = Instant::now();
                stream.write_all(REPLY).unwrap();
                let mut first = [0; 20];
                stream.read_exact(&mut first).unwrap();
                (first, replied.elapsed())
            });
            assert!(connect(&side.queue_pair, address).peer_to_peer);
            let (first, after) = responder.join().unwrap();
            // A zero-length Write: length 14, last segment of a tagged message.
            assert_eq!(first[..4], [0, 14, 0xc1, 0x40]);
            assert!(after >= SETTLE, "{after:?}");
        }
    }
}
