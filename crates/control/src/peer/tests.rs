//! A controller and an agent in one process, over a pair of sockets.

use std::{
    io::{Read, Write},
    ops::ControlFlow,
    os::unix::net::UnixStream,
    sync::{
        atomic::AtomicBool,
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::{
    control::{Failure, FailureKind},
    scope::Right,
};
use serde::{Deserialize, Serialize};

use crate::{
    Call, CallContext, Done, EventSender, Peer, PeerError, Registration, Service, Services, StartCause,
    agent::serve_link,
    event::QUEUE_BYTES,
    frame::{Decoder, FRAME_LIMIT, encode},
    link::{Link, Transport},
    memory_pair,
    message::{Event, Hello, Message, Outcome},
    peer::Opening,
    session::{HELLO_TIMEOUT, PEER_TIMEOUT, Role, own_hello},
    test_calls::{Double, Doubled, Finished, Nothing, Part, Sample, request},
};

/// A scripted action of the test agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Act {
    SendSamples,
    TakeLong,
    Panic,
    Refuse,
    SendParts,
    Nothing,
}

impl Call for Act {
    const NAME: &'static str = "act";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}

struct Scripted {
    dropped: Sender<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let _ = self.dropped.send(());
    }
}

impl Service for Scripted {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::act).on(|_, Double { number }, _| Ok(Doubled { number: 2 * number }));
    }
}

impl Scripted {
    fn act(&mut self, act: Act, context: &CallContext<'_>) -> Result<Done, Failure> {
        match act {
            Act::SendSamples => {
                for index in 0..3 {
                    context.events().send(&Sample { index, filling: String::new() });
                    context.events().send(&Finished {});
                }
            }
            Act::TakeLong => thread::sleep(PEER_TIMEOUT + Duration::from_millis(700)),
            Act::Panic => panic!("a fault of the service"),
            Act::Refuse => return Err(Failure { kind: FailureKind::Busy, message: "not now".into() }),
            Act::SendParts => {
                for _ in 0..64 {
                    context.events().send(&Part { text: "A".repeat(256 << 10) });
                }
            }
            Act::Nothing => {}
        }
        Ok(Done {})
    }
}

pub(super) fn pair() -> (Peer, std::sync::mpsc::Receiver<()>) {
    let (dropped, service_dropped) = channel();
    (memory_pair(Services::new().with(Scripted { dropped })).unwrap(), service_dropped)
}

#[test]
fn calls_are_replied_to_and_events_kept_in_order() {
    let (mut peer, _dropped) = pair();
    assert_eq!(peer.hello().host, clearstream_sys::process::host_name());
    assert_eq!(peer.call(&Double { number: 4 }), Ok(Doubled { number: 8 }));
    assert_eq!(peer.call(&Act::SendSamples), Ok(Done {}));
    for expected in 0..3 {
        let event = peer.next_event(Duration::from_secs(5)).unwrap().unwrap();
        assert_eq!(event.read::<Finished>(), Ok(None));
        assert_eq!(event.read::<Sample>().unwrap().unwrap().index, expected);
        assert!(peer.next_event(Duration::from_secs(5)).unwrap().unwrap().is::<Finished>());
    }
    assert!(peer.next_event(Duration::ZERO).unwrap().is_none());
    let refused = peer.call(&Act::Refuse).unwrap_err();
    assert_eq!(refused.failure().unwrap().kind, FailureKind::Busy);
    assert_eq!(refused.to_string(), "memory: not now");
}

#[test]
fn events_of_one_type_are_returned_and_others_kept() {
    let (mut peer, _dropped) = pair();
    peer.call(&Act::SendSamples).unwrap();
    for _ in 0..3 {
        assert_eq!(peer.next_event_of(Duration::ZERO), Ok(Some(Finished {})));
    }
    assert_eq!(peer.next_event_of::<Finished>(Duration::ZERO), Ok(None));
    for index in 0..3 {
        let sample = peer.next_event_of::<Sample>(Duration::ZERO).unwrap().unwrap();
        assert_eq!(sample.index, index);
    }
    assert!(peer.next_event(Duration::ZERO).unwrap().is_none());
}

#[test]
fn services_are_dropped_with_the_session() {
    let (peer, dropped) = pair();
    drop(peer);
    dropped.recv_timeout(Duration::from_secs(10)).unwrap();
    let (peer, dropped) = pair();
    peer.shutdown();
    dropped.recv_timeout(Duration::from_secs(10)).unwrap();
}

#[test]
fn long_call_is_not_taken_for_a_lost_agent() {
    let (mut peer, _dropped) = pair();
    assert_eq!(peer.call(&Act::TakeLong), Ok(Done {}));
}

#[test]
fn a_reply_is_not_waited_for_when_stopped() {
    let (mut peer, _dropped) = pair();
    let stop = AtomicBool::new(true);
    let error = peer.call_unless(&Act::TakeLong, &stop).unwrap_err();
    assert!(matches!(error, PeerError::Stopped { .. }), "{error}");
    // The late reply is not matched to another call.
    assert_eq!(peer.call(&Double { number: 1 }), Ok(Doubled { number: 2 }));
}

#[test]
fn panicking_service_is_an_internal_failure_and_the_session_continues() {
    let (mut peer, _dropped) = pair();
    let error = peer.call(&Act::Panic).unwrap_err();
    assert_eq!(error.failure().unwrap().kind, FailureKind::Internal);
    assert_eq!(peer.call(&Act::Nothing), Ok(Done {}));
}

#[test]
fn unknown_call_is_refused_and_the_session_continues() {
    let (mut peer, _dropped) = pair();
    let error = peer.call(&Nothing {}).unwrap_err();
    assert_eq!(error.failure().unwrap().kind, FailureKind::Unsupported);
    assert_eq!(peer.call(&Act::Nothing), Ok(Done {}));
}

#[test]
fn parts_larger_than_the_queue_arrive_whole() {
    let (mut peer, _dropped) = pair();
    assert_eq!(peer.call(&Act::SendParts), Ok(Done {}));
    let mut bytes = 0;
    while let Some(part) = peer.next_event_of::<Part>(Duration::ZERO).unwrap() {
        bytes += part.text.len();
    }
    assert_eq!((bytes, peer.dropped_event_count()), (16 << 20, 0));
}

#[test]
fn events_before_the_loss_are_kept_then_the_loss_is_reported() {
    let (mut peer, _dropped) = pair();
    peer.call(&Act::SendSamples).unwrap();
    // Shutdown ends the agent: the event that came before is still there.
    peer.call(&crate::Shutdown {}).unwrap();
    assert!(peer.next_event_of::<Sample>(Duration::from_secs(5)).unwrap().is_some());
    let until = Instant::now() + Duration::from_secs(10);
    let lost = loop {
        match peer.next_event(Duration::from_millis(100)) {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < until),
        }
    };
    assert!(matches!(lost, PeerError::Lost { .. }), "{lost}");
}

/// A reply or event of a program with the same protocol but other types: one error names both versions and
/// the call.
#[test]
fn replies_and_events_of_another_format_name_both_versions() {
    let theirs = Hello { version: "9.0.0".into(), host: "dtn2".into(), ..own_hello() };
    let body = |json: &str| serde_json::from_str(json).unwrap();
    let reply = Message::Reply { id: 1, outcome: Outcome::Done(body(r#"{"product":8}"#)) };
    let event =
        Event { name: "sample".into(), droppable: true, body: body(r#"{"index":"first","filling":""}"#) };
    let greeting = encoded(&[Message::Hello(theirs), Message::Ready]);
    let mut peer =
        peer_that_replies(&greeting, true, &encoded(&[Message::Event(event), reply]), false).unwrap();
    let errors = [
        (peer.call(&Double { number: 4 }).unwrap_err(), "reply to `double`"),
        (peer.next_event_of::<Sample>(Duration::ZERO).unwrap_err(), "event `sample`"),
    ];
    for (error, what) in errors {
        assert!(matches!(error, PeerError::Skew { .. }), "{error}");
        let ours = own_hello();
        for part in [
            what,
            "clearstream 9.0.0 on dtn2",
            &format!("clearstream {} on {}", ours.version, ours.host),
            "install the same version on both",
        ] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }
}

/// A peer whose agent sends exactly `bytes` and then closes the connection or, with `stay`, goes on
/// receiving.
fn peer_of(bytes: &[u8], stay: bool) -> Result<Peer, PeerError> {
    peer_that_replies(bytes, stay, &[], false)
}

/// As [`peer_of`], and the peer writes `reply` after the first request.
pub(super) fn peer_that_replies(
    bytes: &[u8],
    stay: bool,
    reply: &[u8],
    skips_text: bool,
) -> Result<Peer, PeerError> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(bytes).unwrap();
    let reply = reply.to_owned();
    thread::spawn(move || {
        if !reply.is_empty() {
            wait_for_request(&mut theirs);
            theirs.write_all(&reply).unwrap();
        }
        if !stay {
            // Unread bytes would turn a close into a reset.
            let _ = theirs.shutdown(std::net::Shutdown::Write);
        }
        // Until the controller has gone.
        let _ = theirs.read_to_end(&mut Vec::new());
    });
    let transport = Transport { skips_text, ..Transport::unix(ours).unwrap() };
    Peer::open("dtn2".into(), transport, Duration::from_secs(1), Opening::default(), &mut |_| {
        ControlFlow::Continue(())
    })
}

fn wait_for_request(from: &mut UnixStream) {
    let (mut decoder, mut buffer) = (Decoder::new(FRAME_LIMIT), [0; 4096]);
    loop {
        while let Some(frame) = decoder.next_frame().unwrap() {
            if let Ok(Message::Request { .. }) = serde_json::from_slice(&frame) {
                return;
            }
        }
        let count = from.read(&mut buffer).unwrap();
        assert!(count > 0, "the controller has gone");
        decoder.push(&buffer[..count]);
    }
}

pub(super) fn encoded(messages: &[Message]) -> Vec<u8> {
    messages.iter().flat_map(|message| encode(message).unwrap()).collect()
}

#[test]
fn a_login_shells_text_is_skipped_before_the_first_message() {
    let messages = encoded(&[Message::Hello(own_hello()), Message::Ready]);
    let bytes = [b"Welcome to dtn2!\nhave fun\n", messages.as_slice()].concat();
    let peer = peer_that_replies(&bytes, true, &[], true).unwrap();
    assert_eq!(peer.skipped_text().as_deref(), Some("Welcome to dtn2!"));
    assert_eq!(peer_that_replies(&messages, true, &[], true).unwrap().skipped_text(), None);
    // A daemon sends nothing before its handshake.
    let error = peer_that_replies(&bytes, true, &[], false).map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Start { cause: StartCause::NotAnAgent, .. }), "{error}");
}

/// `cat` as the peer: it echoes our greeting and nothing more follows.
#[test]
fn an_echoing_peer_is_no_agent() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut back = theirs.try_clone().unwrap();
    thread::spawn(move || drop(std::io::copy(&mut &theirs, &mut back)));
    let transport = Transport::unix(ours).unwrap();
    let opened =
        Peer::open("dtn2".into(), transport, Duration::from_secs(1), Opening::default(), &mut |_| {
            ControlFlow::Continue(())
        });
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Start { cause: StartCause::NotAnAgent, .. }), "{error}");
    assert!(error.to_string().contains("echo"), "{error}");
}

#[test]
fn agents_that_fail_to_start_are_distinguished() {
    let greeting = Message::Hello(own_hello());
    let error = peer_of(b"", false).map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Start { cause: StartCause::Dropped, .. }), "{error}");
    let error = peer_of(b"", true).map(drop).unwrap_err();
    assert!(error.to_string().contains("no agent responded in time"), "{error}");
    let error = peer_of(&encoded(std::slice::from_ref(&greeting))[..20], false).map(drop).unwrap_err();
    assert!(error.to_string().contains("in the middle of a message"), "{error}");
    let error = peer_of(b"\0\0\0\x04oops", true).map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Start { cause: StartCause::NotAnAgent, .. }), "{error}");
    let hello = Hello { major: own_hello().major + 1, version: "9.0.0".into(), ..own_hello() };
    let error = peer_of(&encoded(&[Message::Hello(hello)]), true).map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Version { .. }), "{error}");
    assert!(error.to_string().contains("install clearstream 9.0.0"), "{error}");
    let busy = Message::Goodbye { reason: "busy with bob".into(), kind: Some(FailureKind::Busy) };
    let error = peer_of(&encoded(&[greeting, busy]), false).map(drop).unwrap_err();
    assert_eq!(error.failure().unwrap().kind, FailureKind::Busy);
}

#[test]
fn goodbye_in_the_middle_of_a_request_ends_it() {
    let leaving = Message::Goodbye { reason: "the power fails".into(), kind: None };
    let bytes = encoded(&[Message::Hello(own_hello()), Message::Ready, leaving]);
    let mut peer = peer_of(&bytes, false).unwrap();
    let error = peer.call(&Nothing {}).unwrap_err();
    assert!(matches!(error, PeerError::Lost { .. }), "{error}");
    assert!(error.to_string().contains("the power fails"), "{error}");
}

#[test]
fn engine_is_never_blocked_by_a_controller_that_does_not_read() {
    struct Flood(Sender<()>);
    impl Service for Flood {
        fn register(calls: &mut Registration<Self>) {
            calls.on(|flood, Nothing {}, context| {
                flood_with_samples(context.events());
                let _ = flood.0.send(());
                Ok(Done {})
            });
        }
    }
    fn flood_with_samples(events: &EventSender) {
        let filling = "A".repeat(30 << 10);
        for index in 0..1000 {
            events.send(&Sample { index, filling: filling.clone() });
        }
        events.send(&Finished {});
    }
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let transport = Transport::unix(theirs).unwrap();
    let link = Link::start(Role::Agent, own_hello(), HELLO_TIMEOUT, transport).unwrap();
    let (replied, flooded) = channel();
    let agent = thread::spawn(move || drop(serve_link(link, Services::new().with(Flood(replied)))));
    ours.write_all(&encoded(&[Message::Hello(own_hello()), request(1, &Nothing {})])).unwrap();
    // Alive, but not reading.
    let mut alive = ours.try_clone().unwrap();
    let sign = encoded(&[Message::KeepAlive]);
    let living = thread::spawn(move || {
        while alive.write_all(&sign).is_ok() {
            thread::sleep(Duration::from_millis(300));
        }
    });
    // The service has finished although not a byte was read.
    flooded.recv_timeout(Duration::from_secs(60)).unwrap();
    let mut decoder = Decoder::new(FRAME_LIMIT);
    let (mut kept, mut dropped, mut bytes) = (0, 0, 0);
    let mut buffer = vec![0; 64 << 10];
    'reading: loop {
        let count = ours.read(&mut buffer).unwrap();
        assert!(count > 0);
        decoder.push(&buffer[..count]);
        while let Some(frame) = decoder.next_frame().unwrap() {
            bytes += frame.len();
            match serde_json::from_slice(&frame).unwrap() {
                Message::Event(event) if event.is::<Sample>() => kept += 1,
                Message::Event(event) if event.is::<Finished>() => break 'reading,
                Message::EventsDropped { count } => dropped += count,
                _ => {}
            }
        }
    }
    assert_eq!(kept + dropped, 1000);
    assert!(dropped > 0 && bytes < 2 * QUEUE_BYTES, "{dropped} dropped, {bytes} bytes kept");
    ours.shutdown(std::net::Shutdown::Both).unwrap();
    agent.join().unwrap();
    living.join().unwrap();
}

/// Counts contacts by its controller; `Act` waits until the test releases it.
struct Contacted {
    seen: Sender<()>,
    running: Sender<()>,
    go_on: std::sync::mpsc::Receiver<()>,
}

impl Service for Contacted {
    fn register(calls: &mut Registration<Self>) {
        calls
            .on(|service, _: Act, _| {
                service.running.send(()).unwrap();
                service.go_on.recv().unwrap();
                Ok(Done {})
            })
            .on_contact(|service| service.seen.send(()).unwrap());
    }
}

/// A request proves receipt of the replies before it, and so does a graceful close; one sent before the reply
/// does not.
#[test]
fn a_message_after_a_reply_proves_its_receipt() {
    let (seen, contacts) = channel();
    let (running, begun) = channel();
    let start = || {
        let (release, go_on) = channel();
        (release, Services::new().with(Contacted { seen: seen.clone(), running: running.clone(), go_on }))
    };
    let (release, services) = start();
    let mut peer = memory_pair(services).unwrap();
    for _ in 0..2 {
        release.send(()).unwrap();
        peer.call(&Act::Nothing).unwrap();
        begun.recv().unwrap();
        assert_eq!(contacts.try_iter().count(), 1);
    }
    peer.shutdown();
    contacts.recv_timeout(Duration::from_secs(60)).unwrap();
    // A session that fails proves nothing.
    let (release, services) = start();
    let mut peer = memory_pair(services).unwrap();
    release.send(()).unwrap();
    peer.call(&Act::Nothing).unwrap();
    drop(peer);
    begun.recv().unwrap();
    // Nor does a close that was sent while the call ran.
    let (release, services) = start();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let transport = Transport::unix(theirs).unwrap();
    let link = Link::start(Role::Agent, own_hello(), HELLO_TIMEOUT, transport).unwrap();
    let agent = thread::spawn(move || serve_link(link, services).busy);
    ours.write_all(&encoded(&[Message::Hello(own_hello()), request(1, &Act::Nothing)])).unwrap();
    begun.recv().unwrap();
    ours.write_all(&encoded(&[request(2, &crate::Shutdown {})])).unwrap();
    // The session replies while the call runs, and ends.
    ours.read_to_end(&mut Vec::new()).unwrap();
    release.send(()).unwrap();
    if let Some(busy) = agent.join().unwrap() {
        busy.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    // The first request of each of the two sessions.
    assert_eq!(contacts.try_iter().count(), 2);
}
