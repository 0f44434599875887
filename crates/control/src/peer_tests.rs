//! A controller and an agent in one process, over a pair of sockets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::{
    control::{AgentEvent, Failure, FailureKind, Reply, Request},
    flow::SideInterval,
};

use crate::{EventSender, Handler, PeerError, memory_pair, session::SILENCE};

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
