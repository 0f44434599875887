//! A controller and an agent in one process, over a pair of sockets.

use std::{
    io::{Read, Write},
    ops::ControlFlow,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::{
    control::{AgentEvent, Failure, FailureKind, Hello, Message, Reply, Request},
    flow::SideInterval,
};

use crate::{
    EventSender, Handler, Peer, PeerError, StartCause,
    agent::serve_link,
    event::QUEUE_BYTES,
    frame::{Decoder, FRAME_LIMIT, encode},
    link::{Link, Transport},
    memory_pair,
    session::{HELLO_TIMEOUT, Role, SILENCE, own_hello},
};

/// Answers by the number of the test it is asked to start.
struct Scripted {
    dropped: Sender<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let _ = self.dropped.send(());
    }
}

impl Handler for Scripted {
    fn handle(&mut self, request: Request, events: &EventSender) -> Result<Reply, Failure> {
        match request {
            Request::FlowStart { test: 1 } => {
                for index in 0..3 {
                    let interval = Box::new(SideInterval { index, ..Default::default() });
                    events.send(AgentEvent::FlowInterval { test: 1, interval });
                }
                Ok(Reply::FlowConnected)
            }
            Request::FlowStart { test: 2 } => {
                thread::sleep(SILENCE + Duration::from_millis(700));
                Ok(Reply::Empty)
            }
            Request::FlowStart { test: 3 } => panic!("a fault of the handler"),
            Request::Inspect => Err(Failure { kind: FailureKind::Busy, message: "not now".into() }),
            Request::Capture => {
                for _ in 0..64 {
                    events.send(AgentEvent::CaptureChunk { base64: "A".repeat(256 << 10) });
                }
                Ok(Reply::Empty)
            }
            _ => Ok(Reply::Empty),
        }
    }
}

fn pair() -> (crate::Peer, std::sync::mpsc::Receiver<()>) {
    let (dropped, handler_dropped) = channel();
    (memory_pair(Scripted { dropped }).unwrap(), handler_dropped)
}

#[test]
fn requests_are_answered_and_events_kept_in_order() {
    let (mut peer, _dropped) = pair();
    assert_eq!(peer.hello().host, clearstream_sys::process::host_name());
    assert_eq!(peer.request(Request::FlowStart { test: 1 }), Ok(Reply::FlowConnected));
    for expected in 0..3 {
        let event = peer.next_event(Duration::from_secs(5)).unwrap();
        assert!(
            matches!(event, Some(AgentEvent::FlowInterval { interval, .. }) if interval.index == expected)
        );
    }
    assert_eq!(peer.next_event(Duration::ZERO), Ok(None));
    let refused = peer.request(Request::Inspect).unwrap_err();
    assert_eq!(refused.failure().unwrap().kind, FailureKind::Busy);
    assert_eq!(refused.to_string(), "memory: not now");
}

#[test]
fn handler_is_dropped_with_the_session() {
    let (peer, dropped) = pair();
    drop(peer);
    dropped.recv_timeout(Duration::from_secs(10)).unwrap();
    let (peer, dropped) = pair();
    peer.shutdown();
    dropped.recv_timeout(Duration::from_secs(10)).unwrap();
}

#[test]
fn long_request_does_not_look_like_death() {
    let (mut peer, _dropped) = pair();
    assert_eq!(peer.request(Request::FlowStart { test: 2 }), Ok(Reply::Empty));
}

#[test]
fn an_answer_is_not_waited_for_when_told_to_stop() {
    let (mut peer, _dropped) = pair();
    let stop = AtomicBool::new(true);
    let error = peer.request_unless(Request::FlowStart { test: 2 }, &stop).unwrap_err();
    assert!(matches!(error, PeerError::Stopped { .. }), "{error}");
    // Its answer comes later, and is not taken for that of another request.
    assert_eq!(peer.request(Request::FlowStart { test: 1 }), Ok(Reply::FlowConnected));
}

#[test]
fn panicking_handler_is_an_internal_failure_and_the_session_goes_on() {
    let (mut peer, _dropped) = pair();
    let error = peer.request(Request::FlowStart { test: 3 }).unwrap_err();
    assert_eq!(error.failure().unwrap().kind, FailureKind::Internal);
    assert_eq!(peer.request(Request::ProbeClose), Ok(Reply::Empty));
}

#[test]
fn capture_larger_than_the_queue_arrives_whole() {
    let (mut peer, _dropped) = pair();
    assert_eq!(peer.request(Request::Capture), Ok(Reply::Empty));
    let mut bytes = 0;
    while let Some(event) = peer.next_event(Duration::ZERO).unwrap() {
        match event {
            AgentEvent::CaptureChunk { base64 } => bytes += base64.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bytes, 16 << 20);
}

#[test]
fn events_before_the_loss_are_kept_then_the_loss_is_told() {
    struct Dying(Arc<AtomicBool>);
    impl Handler for Dying {
        fn handle(&mut self, _: Request, events: &EventSender) -> Result<Reply, Failure> {
            let interval = Box::default();
            events.send(AgentEvent::FlowInterval { test: 1, interval });
            self.0.store(true, Ordering::SeqCst);
            Ok(Reply::Empty)
        }
    }
    let asked = Arc::new(AtomicBool::new(false));
    let mut peer = memory_pair(Dying(Arc::clone(&asked))).unwrap();
    peer.request(Request::ProbeClose).unwrap();
    assert!(asked.load(Ordering::SeqCst));
    // Shutdown ends the agent: the event that came before is still there.
    peer.request(Request::Shutdown).unwrap();
    assert!(matches!(peer.next_event(Duration::from_secs(5)), Ok(Some(AgentEvent::FlowInterval { .. }))));
    let until = Instant::now() + Duration::from_secs(10);
    let lost = loop {
        match peer.next_event(Duration::from_millis(100)) {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < until),
        }
    };
    assert!(matches!(lost, PeerError::Lost { .. }), "{lost}");
}

/// A peer whose agent says exactly `bytes` and then hangs up or, with `stay`,
/// goes on listening.
fn peer_of(bytes: &[u8], stay: bool) -> Result<Peer, PeerError> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(bytes).unwrap();
    thread::spawn(move || {
        if stay {
            // Until the controller has gone.
            let _ = theirs.read_to_end(&mut Vec::new());
        }
    });
    let transport = Transport::unix(ours).unwrap();
    Peer::open("dtn2".into(), String::new(), transport, None, Duration::from_secs(1), &mut |_| {
        ControlFlow::Continue(())
    })
}

fn said(messages: &[Message]) -> Vec<u8> {
    messages.iter().flat_map(|message| encode(message).unwrap()).collect()
}

#[test]
fn agents_that_never_come_up_properly_are_told_apart() {
    let greeting = Message::Hello(own_hello());
    let error = peer_of(b"", false).map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Start { cause: StartCause::Dropped, .. }), "{error}");
    let error = peer_of(b"", true).map(drop).unwrap_err();
    assert!(error.to_string().contains("no greeting came in time"), "{error}");
    let error = peer_of(&said(std::slice::from_ref(&greeting))[..20], false).map(drop).unwrap_err();
    assert!(error.to_string().contains("in the middle of a message"), "{error}");
    let error = peer_of(b"\0\0\0\x04oops", true).map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Start { cause: StartCause::NotAnAgent, .. }), "{error}");
    let hello = Hello { major: own_hello().major + 1, version: "9.0.0".into(), ..own_hello() };
    let error = peer_of(&said(&[Message::Hello(hello)]), true).map(drop).unwrap_err();
    assert!(matches!(error, PeerError::Version { .. }), "{error}");
    assert!(error.to_string().contains("install clearstream 9.0.0"), "{error}");
    let busy = Message::Goodbye { reason: "busy with bob".into(), kind: Some(FailureKind::Busy) };
    let error = peer_of(&said(&[greeting, busy]), false).map(drop).unwrap_err();
    assert_eq!(error.failure().unwrap().kind, FailureKind::Busy);
}

#[test]
fn goodbye_in_the_middle_of_a_request_ends_it() {
    let leaving = Message::Goodbye { reason: "the power fails".into(), kind: None };
    let bytes = said(&[Message::Hello(own_hello()), Message::Ready, leaving]);
    let mut peer = peer_of(&bytes, false).unwrap();
    let error = peer.request(Request::Inspect).unwrap_err();
    assert!(matches!(error, PeerError::Lost { .. }), "{error}");
    assert!(error.to_string().contains("the power fails"), "{error}");
}

#[test]
fn engine_is_never_held_up_by_a_controller_that_does_not_read() {
    struct Flood;
    impl Handler for Flood {
        fn handle(&mut self, request: Request, events: &EventSender) -> Result<Reply, Failure> {
            if request == Request::ProbeClose {
                let flows = vec![Default::default(); 300];
                for index in 0..1000 {
                    let interval =
                        Box::new(SideInterval { index, flows: flows.clone(), ..Default::default() });
                    events.send(AgentEvent::FlowInterval { test: 1, interval });
                }
            }
            let failure = None;
            events.send(AgentEvent::FlowFinished { test: 1, notices: Vec::new(), failure });
            Ok(Reply::Empty)
        }
    }
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let transport = Transport::unix(theirs).unwrap();
    let link = Link::start(Role::Agent, own_hello(), HELLO_TIMEOUT, transport).unwrap();
    let (answered, flooded) = channel();
    let agent = thread::spawn(move || {
        struct Watched(Flood, Sender<()>);
        impl Handler for Watched {
            fn handle(&mut self, request: Request, events: &EventSender) -> Result<Reply, Failure> {
                let reply = self.0.handle(request, events);
                let _ = self.1.send(());
                reply
            }
        }
        drop(serve_link(link, Watched(Flood, answered)));
    });
    let request = Message::Request { id: 1, request: Box::new(Request::ProbeClose) };
    ours.write_all(&said(&[Message::Hello(own_hello()), request])).unwrap();
    // Alive, only not reading.
    let mut alive = ours.try_clone().unwrap();
    let sign = said(&[Message::KeepAlive]);
    let living = thread::spawn(move || {
        while alive.write_all(&sign).is_ok() {
            thread::sleep(Duration::from_millis(300));
        }
    });
    // The handler is through although not a byte was read.
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
                Message::Event(AgentEvent::FlowInterval { .. }) => kept += 1,
                Message::Event(AgentEvent::EventsDropped { count }) => dropped += count,
                Message::Event(AgentEvent::FlowFinished { .. }) => break 'reading,
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
