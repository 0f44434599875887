//! Messages with immediate data: they are compared, and both ends have to offer them.

use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use clearstream_iwarp::work::{Completed, Data, InlineData, Operation};
use clearstream_rdma::{RdmaError, SILENCE_LIMIT, Server, ServerOptions, measure, rping::PingOptions};
use clearstream_schema::{
    TimeSpan,
    rdma::{RdmaConfig, RdmaOperation, RdmaProgress, RdmaSummary, RdmaWait},
};
use serde_json::json;

use crate::peer::{self, Peer};

fn config() -> RdmaConfig {
    RdmaConfig {
        iterations: Some(50),
        warm_up: TimeSpan(0),
        size: "0,1,5000".parse().unwrap(),
        depth: 8,
        queue_pairs: 2,
        immediate: true,
        ..RdmaConfig::default()
    }
}

fn measured(
    server: SocketAddr,
    operation: RdmaOperation,
    config: &RdmaConfig,
) -> Result<RdmaSummary, RdmaError> {
    measure(server, [7; 16], operation, config, &AtomicBool::new(false), &mut |_| {})
}

/// Calls with the address of a server.
fn with_server(call: impl FnOnce(SocketAddr)) {
    let options = ServerOptions {
        ping: PingOptions::default(),
        measurements: true,
        once: false,
        silence: SILENCE_LIMIT,
    };
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| server.run(&stop, &|_| {}));
        let ended = catch_unwind(AssertUnwindSafe(|| call(server.local_address())));
        // Also after a panic, which would wait for the server.
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap().unwrap();
        ended.unwrap();
    });
}

/// Both operations, in one direction, in both and one message at a time, polled for and awaited.
#[test]
fn every_message_comes_with_what_was_sent_with_it() {
    with_server(|server| {
        for operation in [RdmaOperation::Send, RdmaOperation::Write] {
            for (latency, both_ways) in [(false, false), (false, true), (true, false)] {
                for (progress, verify) in [(RdmaProgress::Inline, true), (RdmaProgress::Offloaded, false)] {
                    let config = RdmaConfig { latency, both_ways, progress, verify, ..config() };
                    let kind = format!("{operation:?}, {latency}, {both_ways}, {progress:?}");
                    // One measurement at a time: the server is free again a moment later.
                    let summary = peer::retry(|| match measured(server, operation, &config) {
                        Err(RdmaError::Refused { .. }) => None,
                        summary => Some(summary.unwrap_or_else(|error| panic!("{kind}: {error}"))),
                    });
                    assert!(summary.effective.immediate, "{kind}");
                    for (result, size) in summary.results.iter().zip([0, 1, 5000]) {
                        let counted = (result.size_bytes, result.forward.message_count);
                        assert_eq!(counted, (size, 100), "{kind}");
                        assert_eq!(result.immediate_verified, Some(true), "{kind}: {result:?}");
                        assert_eq!(result.verified, verify.then_some(true), "{kind}: {result:?}");
                    }
                    assert_eq!((summary.results.len(), summary.difference()), (3, None), "{kind}");
                }
            }
        }
    });
}

/// An end that sends other immediate data than it was asked for: the third reply of three.
#[test]
fn other_immediate_data_is_found() {
    let listener = peer::listener();
    let address = listener.local_address();
    let config = RdmaConfig {
        iterations: Some(3),
        queue_pairs: 1,
        latency: true,
        size: "0".parse().unwrap(),
        ..config()
    };
    let summary = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut control = Peer::accept_of_version(&listener, 2, true);
            assert_eq!(control.receive()["open"]["config"]["immediate"], true);
            control.send(&json!("welcome"));
            let data = Peer::accept_of_version(&listener, 2, true);
            let advert = json!({"source_stag": 1, "source_address": 0, "source_stride": 64,
                                "sink_stag": 1, "sink_address": 0, "sink_stride": 64});
            control.send(&json!({"memory": advert}));
            control.receive();
            assert_eq!(control.receive(), json!({"prepare": {"size": 0}}));
            control.send(&json!("ready"));
            let mut last = None;
            for _ in 0..3 {
                let message = data.completed();
                assert_eq!((message.completed, message.bytes), (Completed::Receive, 0));
                let immediate: [u8; 4] = *message.immediate.unwrap().last_chunk().unwrap();
                assert_ne!(last.replace(immediate), Some(immediate), "each message has its own");
                let data_of_none = Data::Inline(InlineData::new());
                data.post(Operation::SendImmediate { data: data_of_none, immediate, solicited: false });
            }
            assert_eq!(control.receive(), json!("finish"));
            let report = json!({"sent": 0, "elapsed_ns": 0, "cpu_ns": 0, "mismatches": null,
                                "immediate_mismatches": 0});
            control.send(&json!({"report": report}));
            control.wait_for_close();
        });
        let summary = measured(address, RdmaOperation::Send, &config);
        server.join().unwrap();
        summary.unwrap()
    });
    assert_eq!(summary.results[0].forward.message_count, 3);
    // A server's messages have other data than the client's, which this one returned.
    assert_eq!(summary.results[0].immediate_verified, Some(false));
    assert!(summary.difference().unwrap().contains("immediate data"));
}

#[test]
fn an_end_that_does_not_offer_it_is_refused() {
    // A server.
    let listener = peer::listener();
    let address = listener.local_address();
    let error = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut control = Peer::accept_of_version(&listener, 2, false);
            control.receive();
            control.send(&json!("welcome"));
            let _data = [(); 2].map(|()| Peer::accept_of_version(&listener, 2, false));
            control.wait_for_close();
        });
        let result = measured(address, RdmaOperation::Send, &config());
        server.join().unwrap();
        result.unwrap_err()
    });
    let refused = |text: &str| text.contains("offers no immediate data") && text.contains("--immediate");
    assert!(matches!(&error, RdmaError::Option(text) if refused(text)), "{error:?}");

    // One that knows no such measurement rejects the connection, as this one does what it does not know.
    with_server(|server| {
        let unknown = [b"clearstream rdma".as_slice(), &[3, 0], &[3; 16], &[0, 0]].concat();
        assert_eq!(peer::rejection(server, unknown), b"another version of clearstream listens here");

        // A client.
        let mut control = Peer::connect_of_version(server, [2, 0]);
        let config = RdmaConfig { queue_pairs: 1, wait: Some(RdmaWait::Sleep), ..config() };
        control.send(&json!({"open": {"operation": "write", "config": config}}));
        assert_eq!(control.receive(), json!("welcome"));
        let _data = Peer::connect_of_version(server, [2, 1]);
        let reply = control.receive();
        assert_eq!(reply["refused"]["option"], true, "{reply}");
        assert!(refused(reply["refused"]["reason"].as_str().unwrap()), "{reply}");
    });
}
