//! Agents that are connected and do not reply.

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use super::{
    calling::{LAST_CALLS_WITHIN, OVERTIME},
    tests::{Act, encoded, pair, peer_that_replies},
};
use crate::{
    CHANGE_WITHIN, Call as _, PeerError, READ_WITHIN,
    message::Message,
    session::own_hello,
    test_calls::{Change, Double},
};

static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn a_call_has_a_time_that_keep_alives_do_not_extend() {
    // The call takes longer than a peer may be silent: its agent is alive all the while.
    let (mut peer, _dropped) = pair();
    let begun = Instant::now();
    let error = peer.call_within(&Act::TakeLong, Duration::from_millis(200), &NEVER).unwrap_err();
    let PeerError::Unanswered { name, awaited, after } = &error else { panic!("{error}") };
    assert_eq!((name.as_str(), awaited.as_str()), ("memory", "reply to `act`"));
    assert!(*after >= Duration::from_millis(200) && begun.elapsed() < Duration::from_secs(4), "{after:?}");
    // What follows, to stop what was started, has little time.
    assert_eq!(peer.limit(READ_WITHIN), LAST_CALLS_WITHIN);
    // Once it responds again the late reply is no one's.
    assert!(peer.call_within(&Double { number: 4 }, Duration::ZERO, &NEVER).is_err());
    while peer.call(&Double { number: 4 }).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it responds again");
    }
}

#[test]
fn an_agent_that_never_replies_is_named_with_the_call() {
    let messages = [Message::Hello(own_hello()), Message::Ready];
    let mut peer = peer_that_replies(&encoded(&messages), true, &[], false).unwrap();
    let error = peer.call_within(&Double { number: 1 }, Duration::from_millis(60), &NEVER).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("dtn2: no reply to `double` within 0 s, although its agent is connected"),
        "{text}"
    );
    let heard = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
    assert!(peer.check_silence("sample", heard, Duration::from_secs(60)).is_ok());
    let error = peer.check_silence("sample", heard, Duration::from_secs(3)).unwrap_err();
    assert!(error.to_string().starts_with("dtn2: no event `sample` within 3 s"), "{error}");
}

#[test]
fn the_time_of_the_command_bounds_that_of_each_call() {
    let (mut peer, _dropped) = pair();
    assert_eq!(peer.limit(CHANGE_WITHIN), CHANGE_WITHIN);
    peer.bound(Some(Instant::now() + Duration::from_secs(20)));
    assert!(peer.limit(CHANGE_WITHIN) <= Duration::from_secs(20));
    peer.bound(Some(Instant::now()));
    assert_eq!(peer.limit(CHANGE_WITHIN), OVERTIME, "what was started is still stopped");
    peer.bound(None);
    assert_eq!(peer.limit(READ_WITHIN), READ_WITHIN);
}

#[test]
fn a_calls_time_is_that_of_what_it_does() {
    assert_eq!(Double { number: 1 }.reply_within(), READ_WITHIN);
    assert_eq!(Change {}.reply_within(), CHANGE_WITHIN);
}
