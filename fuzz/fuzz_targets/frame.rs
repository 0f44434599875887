//! A control session with arbitrary input, in arbitrary pieces: no panic,
//! memory within the frame limit, and a printable end.
#![no_main]

use std::time::{Duration, Instant};

use clearstream_control::{
    message::Message,
    pairing::Pairing,
    session::{HELLO_TIMEOUT, Role, Session, own_hello},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The first byte selects the role, whether the handshake is complete, and
    // how the rest is split.
    let Some((&choice, stream)) = input.split_first() else { return };
    let role = if choice & 1 == 0 { Role::Agent } else { Role::Controller };
    let mut now = Instant::now();
    let mut session = Session::new(role, own_hello(), HELLO_TIMEOUT, now);
    if choice & 2 != 0 {
        let mut hello = own_hello();
        // A newer minor version permits unknown kinds.
        hello.minor += u16::from(choice & 4 != 0);
        if let Ok(hello) = clearstream_control::frame::encode(&Message::Hello(hello)) {
            session.feed(&hello, now);
        }
    }
    for piece in stream.chunks(usize::from(choice >> 3) + 1) {
        session.feed(piece, now);
        now += Duration::from_millis(1);
        session.tick(now);
        while session.poll_message().is_some() {}
        while session.poll_transmit().is_some() {}
    }
    session.feed_end(now);
    assert!(session.end().is_some_and(|end| !end.to_string().is_empty()));

    // Tokens are pasted by people and so are another input.
    if let Ok(text) = std::str::from_utf8(stream) {
        let _ = Pairing::from_token(text);
    }
});
