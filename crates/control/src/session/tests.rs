//! Faults simulated with virtual time: two sessions and the bytes between them.

use proptest::prelude::*;

use super::*;
use crate::{
    Call,
    test_calls::{Double, Nothing, Part, Sample, request},
};

/// Two ends and their common time.
struct Pair {
    controller: Session,
    agent: Session,
    now: Instant,
}

fn hello(major: u16, minor: u16, version: &str, host: &str) -> Hello {
    Hello { major, minor, version: version.into(), host: host.into(), ssh_address: None, kernel: None }
}

fn ours() -> Hello {
    hello(2, 0, "0.1.0", "dtn1")
}

impl Pair {
    fn new(controller: Hello, agent: Hello) -> Self {
        let now = Instant::now();
        Self {
            controller: Session::new(Role::Controller, controller, HELLO_TIMEOUT, now),
            agent: Session::new(Role::Agent, agent, HELLO_TIMEOUT, now),
            now,
        }
    }

    fn open() -> Self {
        let mut pair = Self::new(ours(), hello(2, 0, "0.1.0", "dtn2"));
        pair.exchange();
        assert!(
            matches!(pair.controller.poll_message(), Some(Incoming::Hello(hello)) if hello.host == "dtn2")
        );
        assert!(matches!(pair.agent.poll_message(), Some(Incoming::Hello(_))));
        pair
    }

    /// Delivers everything transmitted to the peer.
    fn exchange(&mut self) {
        loop {
            let to_agent = self.controller.poll_transmit();
            let to_controller = self.agent.poll_transmit();
            if to_agent.is_none() && to_controller.is_none() {
                return;
            }
            self.agent.feed(&to_agent.unwrap_or_default(), self.now);
            self.controller.feed(&to_controller.unwrap_or_default(), self.now);
        }
    }

    /// Lets `span` pass with ticks, as the threads do; delivers bytes while `connected`.
    fn pass(&mut self, span: Duration, connected: bool) {
        let until = self.now + span;
        while self.now < until {
            let deadlines = [self.controller.next_deadline(), self.agent.next_deadline()];
            let next = deadlines.into_iter().flatten().min().unwrap_or(until).min(until);
            self.now = next.max(self.now + Duration::from_millis(1));
            self.controller.tick(self.now);
            self.agent.tick(self.now);
            if connected {
                self.exchange();
            }
        }
    }
}

/// Everything an agent has transmitted up to now.
fn transmitted(session: &mut Session) -> Vec<u8> {
    std::iter::from_fn(|| session.poll_transmit()).flatten().collect()
}

fn send<C: Call>(controller: &mut Session, call: &C, now: Instant) -> u64 {
    controller.request(C::NAME, Body::of(call).unwrap(), now).unwrap()
}

fn part(text: &str) -> Message {
    Message::Event(Event::of(&Part { text: text.into() }).unwrap())
}

fn frame_of(json: &str) -> Vec<u8> {
    let mut bytes = (json.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes
}

#[test]
fn request_gets_one_reply_and_events_come_in_between() {
    let mut pair = Pair::open();
    let call = Double { number: 4 };
    let id = send(&mut pair.controller, &call, pair.now);
    pair.exchange();
    let Some(Incoming::Request { id: request_id, name, body }) = pair.agent.poll_message() else {
        panic!("a request")
    };
    assert_eq!((request_id, name.as_str(), body.read::<Double>().unwrap()), (id, Double::NAME, call));
    pair.agent.send(&part("Zm9v"), pair.now).unwrap();
    let outcome = Outcome::Failed(Failure { kind: FailureKind::Busy, message: "no".into() });
    pair.agent.reply(id, outcome.clone(), pair.now);
    pair.agent.reply(id, outcome.clone(), pair.now);
    pair.exchange();
    let Some(Incoming::Event { event, .. }) = pair.controller.poll_message() else { panic!("an event") };
    assert_eq!(event.body.read::<Part>().unwrap(), Part { text: "Zm9v".into() });
    assert_eq!(pair.controller.poll_message(), Some(Incoming::Reply { id, outcome }));
    assert_eq!(pair.controller.poll_message(), None);
    assert_eq!(pair.controller.end(), None);
}

#[test]
fn idle_session_stays_open() {
    let mut pair = Pair::open();
    pair.pass(Duration::from_secs(600), true);
    assert_eq!((pair.controller.end(), pair.agent.end()), (None, None));
}

#[test]
fn cut_session_ends_on_both_sides_within_five_seconds() {
    let mut pair = Pair::open();
    pair.pass(Duration::from_secs(10), true);
    pair.pass(Duration::from_millis(3900), false);
    assert_eq!((pair.controller.end(), pair.agent.end()), (None, None), "four seconds are not over");
    pair.pass(Duration::from_millis(1100), false);
    assert_eq!(pair.controller.end(), Some(&SessionEnd::PeerTimeout));
    assert_eq!(pair.agent.end(), Some(&SessionEnd::PeerTimeout));
    assert_eq!(pair.agent.next_deadline(), None);
}

#[test]
fn a_stall_of_this_process_is_not_a_peer_timeout() {
    let mut pair = Pair::open();
    // The process was stopped for a minute; what was received meanwhile is read after.
    pair.now += Duration::from_secs(60);
    pair.controller.tick(pair.now);
    assert_eq!(pair.controller.end(), None);
    // The peer is lost when nothing is received from then on.
    pair.pass(Duration::from_secs(5), false);
    assert_eq!(pair.controller.end(), Some(&SessionEnd::PeerTimeout));
}

#[test]
fn silent_stranger_is_dropped_after_the_greeting_timeout() {
    let start = Instant::now();
    let mut agent = Session::new(Role::Agent, ours(), HELLO_TIMEOUT, start);
    let mut now = start;
    while agent.end().is_none() {
        assert!(now < start + Duration::from_secs(6));
        now = agent.next_deadline().unwrap();
        agent.tick(now);
    }
    assert_eq!(now, start + HELLO_TIMEOUT);
    assert_eq!(agent.end(), Some(&SessionEnd::NoHello));
}

#[test]
fn trickling_stranger_is_dropped() {
    let start = Instant::now();
    let mut agent = Session::new(Role::Agent, ours(), HELLO_TIMEOUT, start);
    for (byte, second) in frame_of("\"keep-alive\"").iter().zip(1..) {
        let now = start + Duration::from_secs(second);
        agent.feed(&[*byte], now);
        agent.tick(now);
    }
    assert_eq!(agent.end(), Some(&SessionEnd::NoHello));
}

#[test]
fn first_frame_may_not_be_large() {
    let now = Instant::now();
    let mut agent = Session::new(Role::Agent, ours(), HELLO_TIMEOUT, now);
    agent.feed(&(HELLO_LIMIT as u32 + 1).to_be_bytes(), now);
    assert!(matches!(agent.end(), Some(SessionEnd::Frame(FrameError::Oversize { .. }))));
}

#[test]
fn oversize_frame_ends_the_session_with_the_reason() {
    let mut pair = Pair::open();
    pair.agent.feed(&u32::MAX.to_be_bytes(), pair.now);
    assert!(matches!(pair.agent.end(), Some(SessionEnd::Frame(FrameError::Oversize { .. }))));
    pair.exchange();
    let end = pair.controller.end().unwrap();
    assert!(end.to_string().contains("4294967295 bytes"), "{end}");
}

#[test]
fn end_of_stream_reports_a_truncated_message() {
    let mut pair = Pair::open();
    pair.agent.feed_end(pair.now);
    assert_eq!(pair.agent.end(), Some(&SessionEnd::EndOfStream { inside_frame: false }));
    let mut pair = Pair::open();
    let bytes = frame_of("\"keep-alive\"");
    for length in 1..bytes.len() {
        let mut pair = Pair::open();
        pair.agent.feed(&bytes[..length], pair.now);
        pair.agent.feed_end(pair.now);
        assert_eq!(pair.agent.end(), Some(&SessionEnd::EndOfStream { inside_frame: true }));
    }
    pair.agent.feed(&bytes, pair.now);
    pair.agent.feed_end(pair.now);
    assert_eq!(pair.agent.end(), Some(&SessionEnd::EndOfStream { inside_frame: false }));
}

#[test]
fn goodbye_in_the_middle_of_a_request_carries_its_reason() {
    let mut pair = Pair::open();
    send(&mut pair.controller, &Nothing {}, pair.now);
    pair.exchange();
    pair.agent.send(&part("Zg=="), pair.now).unwrap();
    pair.agent.goodbye("the daemon was stopped", Some(FailureKind::Busy), pair.now);
    pair.exchange();
    // What came before the end is still handed out.
    assert!(matches!(pair.controller.poll_message(), Some(Incoming::Event { .. })));
    let end = SessionEnd::Goodbye { reason: "the daemon was stopped".into(), kind: Some(FailureKind::Busy) };
    assert_eq!(pair.controller.end(), Some(&end));
    assert_eq!(pair.agent.end(), Some(&SessionEnd::Closed));
}

#[test]
fn other_major_version_names_both_programs_and_what_to_install() {
    for (controller, agent) in [(1, 2), (2, 1)] {
        let version =
            |major| hello(major, 3, if major == 2 { "9.0.0" } else { "0.1.0" }, &format!("host{major}"));
        let mut pair = Pair::new(version(controller), version(agent));
        pair.exchange();
        for session in [&pair.controller, &pair.agent] {
            let end = session.end().unwrap();
            assert!(matches!(end, SessionEnd::Version(_)), "{end}");
            let text = end.to_string();
            assert!(text.contains("0.1.0") && text.contains("9.0.0"), "{text}");
            assert!(text.ends_with("install clearstream 9.0.0 on host1"), "{text}");
        }
    }
}

/// Messages of the protocol's first version, byte for byte.
#[test]
fn programs_of_the_first_protocol_get_the_version_error() {
    let first = r#"{"hello":{"major":1,"minor":4,"version":"0.1.0","host":"old"}}"#;
    for role in [Role::Controller, Role::Agent] {
        let now = Instant::now();
        let mut session = Session::new(role, own_hello(), HELLO_TIMEOUT, now);
        session.feed(&frame_of(first), now);
        session.feed(&frame_of(r#"{"request":{"id":1,"request":"inspect"}}"#), now);
        let end = session.end().unwrap().to_string();
        assert!(end.contains("speaks protocol 2.0 and clearstream 0.1.0 on old speaks 1.4"), "{end}");
        assert!(end.contains(&format!("install clearstream {} on old", own_hello().version)), "{end}");
    }
}

#[test]
fn messages_on_the_wire() {
    let sample = Event::of(&Sample { index: 7, filling: String::new() }).unwrap();
    let done = Outcome::Done(Body::of(&crate::Done {}).unwrap());
    for (message, json) in [
        (request(1, &Double { number: 4 }), r#"{"request":{"id":1,"name":"double","body":{"number":4}}}"#),
        (Message::Reply { id: 1, outcome: done }, r#"{"reply":{"id":1,"outcome":{"done":{}}}}"#),
        (
            Message::Event(sample),
            r#"{"event":{"name":"sample","droppable":true,"body":{"index":7,"filling":""}}}"#,
        ),
        (Message::EventsDropped { count: 3 }, r#"{"events-dropped":{"count":3}}"#),
    ] {
        assert_eq!(serde_json::to_string(&message).unwrap(), json);
        assert_eq!(serde_json::from_str::<Message>(json).unwrap(), message);
    }
}

#[test]
fn newer_minor_version_works_and_unknown_messages_are_rejected_or_ignored() {
    let mut pair = Pair::new(hello(2, 4, "0.5.0", "dtn1"), ours());
    pair.exchange();
    pair.agent.poll_message();
    for unknown in [
        r#""brighten""#,
        r#"{"brighten":{"by":3}}"#,
        r#"{"event":{"moon-phase":{"full":true}}}"#,
        r#"{"request":{"id":1,"many":[{"name":"paint","body":{"colour":"red"}}]}}"#,
        r#"{"request":{"id":2,"name":7}}"#,
    ] {
        pair.agent.feed(&frame_of(unknown), pair.now);
        assert_eq!(pair.agent.end(), None, "{unknown}");
    }
    assert_eq!(pair.agent.poll_message(), None);
    let replies = transmitted(&mut pair.agent);
    let mut decoder = Decoder::new(FRAME_LIMIT);
    decoder.push(&replies);
    for id in 1..=2 {
        let reply: Message = serde_json::from_slice(&decoder.next_frame().unwrap().unwrap()).unwrap();
        let Message::Reply { id: replied, outcome: Outcome::Failed(failure) } = reply else {
            panic!("{reply:?}")
        };
        assert_eq!((replied, failure.kind), (id, FailureKind::Unsupported));
        assert!(failure.message.contains("0.5.0"), "{}", failure.message);
    }
}

#[test]
fn unknown_reply_of_a_newer_agent_fails_the_request_alone() {
    let mut pair = Pair::new(ours(), hello(2, 1, "0.2.0", "dtn2"));
    pair.exchange();
    pair.controller.poll_message();
    let id = send(&mut pair.controller, &Nothing {}, pair.now);
    let reply = format!(r#"{{"reply":{{"id":{id},"outcome":{{"hologram":1}}}}}}"#);
    pair.controller.feed(&frame_of(&reply), pair.now);
    assert!(matches!(
        pair.controller.poll_message(),
        Some(Incoming::Reply {
            outcome: Outcome::Failed(Failure { kind: FailureKind::Unsupported, .. }),
            ..
        })
    ));
    assert_eq!(pair.controller.end(), None);
}

#[test]
fn goodbye_of_a_newer_agent_keeps_its_reason() {
    let mut pair = Pair::new(ours(), hello(2, 1, "0.2.0", "dtn2"));
    pair.exchange();
    pair.controller.feed(&frame_of(r#"{"goodbye":{"reason":"too warm","kind":"overheated"}}"#), pair.now);
    assert_eq!(pair.controller.end(), Some(&SessionEnd::Goodbye { reason: "too warm".into(), kind: None }));
}

#[test]
fn protocol_violations_end_the_session() {
    let request = |id| frame_of(&format!(r#"{{"request":{{"id":{id},"name":"nothing","body":{{}}}}}}"#));
    let second_hello = frame_of(r#"{"hello":{"major":2,"minor":0,"version":"1","host":"h"}}"#);
    let reply = frame_of(r#"{"reply":{"id":9,"outcome":{"done":{}}}}"#);
    let faults: [(&str, Vec<u8>); 8] = [
        ("duplicate id", [request(5), request(5)].concat()),
        ("descending id", [request(5), request(4)].concat()),
        ("id zero", request(0)),
        ("second hello", second_hello),
        ("an agent's message", reply.clone()),
        ("unknown kind of the same version", frame_of(r#""brighten""#)),
        ("no JSON", frame_of("{{{{")),
        ("deep JSON", frame_of(&"[".repeat(10_000))),
    ];
    for (name, bytes) in faults {
        let mut pair = Pair::open();
        pair.agent.feed(&bytes, pair.now);
        assert!(matches!(pair.agent.end(), Some(SessionEnd::Protocol(_))), "{name}: {:?}", pair.agent.end());
    }
    let mut pair = Pair::open();
    pair.controller.feed(&reply, pair.now);
    assert!(matches!(pair.controller.end(), Some(SessionEnd::Protocol(_))), "an unsolicited reply");
    let mut pair = Pair::open();
    for id in 1..=PENDING_REQUESTS as u64 + 1 {
        assert_eq!(pair.agent.end(), None);
        pair.agent.feed(&request(id), pair.now);
    }
    assert!(matches!(pair.agent.end(), Some(SessionEnd::Protocol(_))), "too many requests");
}

#[test]
fn reply_too_long_for_a_frame_becomes_a_failure() {
    let mut pair = Pair::open();
    let id = send(&mut pair.controller, &Nothing {}, pair.now);
    pair.exchange();
    let message = "x".repeat(FRAME_LIMIT);
    pair.agent.reply(id, Outcome::Failed(Failure { kind: FailureKind::Busy, message }), pair.now);
    pair.exchange();
    assert!(matches!(
        pair.controller.poll_message(),
        Some(Incoming::Reply { outcome: Outcome::Failed(Failure { kind: FailureKind::Internal, .. }), .. })
    ));
}

#[test]
fn events_that_are_not_polled_are_dropped_and_counted() {
    let mut pair = Pair::open();
    let sample = Event::of(&Sample { index: 1, filling: "A".repeat(400 << 10) }).unwrap();
    let event = frame::encode(&Message::Event(sample)).unwrap();
    let room = EVENT_BYTES / event.len() + 1;
    for _ in 0..room + 5 {
        pair.controller.feed(&event, pair.now);
    }
    pair.agent.send(&Message::EventsDropped { count: 100 }, pair.now).unwrap();
    pair.exchange();
    let kept = std::iter::from_fn(|| pair.controller.poll_message()).count();
    let dropped = pair.controller.dropped_event_count() - 100;
    assert_eq!(kept as u64 + dropped, room as u64 + 5);
    assert!((4..=6).contains(&dropped), "{dropped}");
    assert_eq!(pair.controller.end(), None);
}

#[test]
fn undroppable_events_end_a_session_without_room() {
    let mut pair = Pair::open();
    let event = frame::encode(&part(&"A".repeat(1000 << 10))).unwrap();
    for _ in 0..4 * EVENT_BYTES / event.len() + 2 {
        pair.controller.feed(&event, pair.now);
    }
    let end = pair.controller.end().unwrap();
    assert!(end.to_string().contains("more events than fit into memory"), "{end}");
}

/// A conversation as bytes, from the agent to the controller.
fn conversation() -> Vec<u8> {
    let now = Instant::now();
    let mut agent = Session::new(Role::Agent, hello(2, 0, "0.1.0", "dtn2"), HELLO_TIMEOUT, now);
    agent.send(&Message::Ready, now).unwrap();
    agent.send(&part("Zm9v"), now).unwrap();
    agent.send(&Message::KeepAlive, now).unwrap();
    agent.goodbye("done", None, now);
    transmitted(&mut agent)
}

fn decoded(pieces: &[&[u8]]) -> (Vec<Incoming>, Option<SessionEnd>) {
    let now = Instant::now();
    let mut controller = Session::new(Role::Controller, ours(), HELLO_TIMEOUT, now);
    for piece in pieces {
        controller.feed(piece, now);
    }
    (std::iter::from_fn(|| controller.poll_message()).collect(), controller.end().cloned())
}

#[test]
fn split_at_every_byte_decodes_the_same() {
    let bytes = conversation();
    let whole = decoded(&[&bytes]);
    assert_eq!(whole.0.len(), 3);
    assert!(matches!(whole.1, Some(SessionEnd::Goodbye { .. })));
    for cut in 0..=bytes.len() {
        let (left, right) = bytes.split_at(cut);
        assert_eq!(decoded(&[left, right]), whole, "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decoded(&single), whole);
}

proptest! {
    #[test]
    fn any_split_decodes_the_same(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let bytes = conversation();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(decoded(&pieces), decoded(&[&bytes]));
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), after_hello: bool) {
        let mut pair = Pair::open();
        let now = pair.now;
        let mut fresh = Session::new(Role::Agent, ours(), HELLO_TIMEOUT, now);
        let session = if after_hello { &mut pair.agent } else { &mut fresh };
        session.feed(&bytes, now);
        while session.poll_message().is_some() {}
        session.feed_end(now);
        prop_assert!(session.end().is_some());
    }

    #[test]
    fn one_changed_byte_never_panics(place in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = conversation();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        decoded(&[&bytes]);
    }
}
