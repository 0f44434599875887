//! Peers that violate the protocol of a measurement: each causes one error of
//! one bounded line.

use crate::peer;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

use crate::peer::Peer;
use clearstream_rdma::{
    RdmaError, SILENCE_LIMIT, Server, ServerEvent, ServerOptions, measure, rping::PingOptions,
};
use clearstream_schema::rdma::{RdmaConfig, RdmaOperation, RdmaSummary, RdmaWait};
use serde_json::{Value, json};

/// Maximum length of an error line.
const LINE_BYTES: usize = 700;

fn config() -> RdmaConfig {
    RdmaConfig {
        iterations: Some(10),
        warm_up: clearstream_schema::TimeSpan(0),
        verify: true,
        both_ways: true,
        ..RdmaConfig::default()
    }
}

fn assert_one_line(error: &RdmaError) {
    let text = error.to_string();
    assert!(text.len() < LINE_BYTES && !text.chars().any(char::is_control), "{} bytes: {text}", text.len());
}

/// Measures against a server simulated by `script`.
fn measured(script: impl FnOnce(&mut Peer) + Send) -> Result<RdmaSummary, RdmaError> {
    let listener = peer::listener();
    let address = listener.local_address();
    thread::scope(|scope| {
        let server = scope.spawn(move || script(&mut Peer::accept(&listener)));
        let stop = AtomicBool::new(false);
        let result = measure(address, [7; 16], RdmaOperation::Send, &config(), &stop, &mut |_| {});
        server.join().unwrap();
        result
    })
}

#[test]
fn a_server_out_of_sequence_is_named() {
    for (reply, expected) in [
        (json!("ready"), "message \"ready\" instead of \"welcome\""),
        (json!({"report": {"sent": 1, "elapsed_ns": 1, "cpu_ns": 1, "mismatches": null}}), "\"report\""),
        (json!({"unheard-of": 1}), "that is invalid at column"),
        (json!([1, 2, 3]), "invalid"),
    ] {
        let error = measured(|peer| {
            assert_eq!(peer.receive()["open"]["operation"], "send");
            peer.send(&reply);
            peer.wait_for_close();
        })
        .unwrap_err();
        assert!(matches!(error, RdmaError::OtherPeer { .. }), "{error:?}");
        assert_one_line(&error);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_long_refusal_is_cut() {
    for option in [true, false] {
        let error = measured(|peer| {
            peer.receive();
            let reason = "no\u{1b}[2J\n".repeat(500);
            peer.send(&json!({"refused": {"reason": reason, "option": option}}));
            peer.wait_for_close();
        })
        .unwrap_err();
        assert_eq!(matches!(error, RdmaError::Option(_)), option, "{error:?}");
        assert_one_line(&error);
    }
}

/// Returns the events of a server with clients simulated by `script`.
fn served(silence: Duration, script: impl FnOnce(std::net::SocketAddr)) -> Vec<String> {
    let options = ServerOptions { ping: PingOptions::default(), measurements: true, once: false, silence };
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let (stop, events) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let report = |event: ServerEvent<'_>| {
        if let ServerEvent::Failed { error, .. } = &event {
            assert_one_line(error);
        }
        events.lock().unwrap().push(format!("{event:?}"));
    };
    thread::scope(|scope| {
        let running = scope.spawn(|| server.run(&stop, &report));
        let ended = catch_unwind(AssertUnwindSafe(|| script(server.local_address())));
        // Also after a panic, which would wait for the server.
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap().unwrap();
        ended.unwrap();
    });
    events.into_inner().unwrap()
}

#[test]
fn a_client_out_of_sequence_causes_one_error_and_the_server_continues() {
    let requested = serde_json::to_value(config()).unwrap();
    let open = |change: &dyn Fn(&mut Value)| {
        let mut requested = requested.clone();
        change(&mut requested);
        json!({"open": {"operation": "send", "config": requested}})
    };
    let no_message = json!("finish");
    let many = open(&|config| config["queue-pairs"] = json!(65_535));
    let large = open(&|config| config["size"] = json!("1TiB"));
    let unknown = open(&|config| config["colour"] = json!("red"));
    let events = served(SILENCE_LIMIT, |address| {
        for (message, expected) in
            [(&no_message, None), (&unknown, None), (&many, Some("1 to 1024")), (&large, Some("1 GiB"))]
        {
            let mut peer = Peer::connect(address);
            peer.send(message);
            if let Some(expected) = expected {
                let refused = &peer.receive()["refused"];
                assert_eq!(refused["option"], true, "{refused}");
                assert!(refused["reason"].as_str().unwrap().contains(expected), "{refused}");
            }
            peer.wait_for_close();
        }
        let summary = peer::retry(|| {
            let stop = AtomicBool::new(false);
            match measure(address, [9; 16], RdmaOperation::Write, &config(), &stop, &mut |_| {}) {
                // One measurement at a time: the server is free again a moment later.
                Err(RdmaError::Refused { .. }) => None,
                result => Some(result.unwrap()),
            }
        });
        assert_eq!(summary.results[0].verified, Some(true));
    });
    let failed = events.iter().filter(|event| event.starts_with("Failed")).count();
    assert_eq!(failed, 4, "{events:#?}");
}

/// A client that falls silent before it says what it wants, and one that is stopped at each event of its test: it
/// loses the place within the limit, and the next one is served.
#[test]
fn a_silent_client_loses_the_place_and_the_next_one_is_served() {
    // Asleep while they wait: others need the cores.
    let quiet = || RdmaConfig { wait: Some(RdmaWait::Sleep), ..config() };
    let again = |address| {
        let stop = AtomicBool::new(false);
        measure(address, [7; 16], RdmaOperation::Send, &quiet(), &stop, &mut |_| {})
    };
    let events = served(Duration::from_millis(300), |address| {
        Peer::connect(address).wait_for_close();
        let refused = again(address);
        let is_refused = matches!(&refused, Err(RdmaError::Refused { reason, .. }) if reason.contains("others come first"));
        assert!(is_refused, "{refused:?}");
        // From another address it would be served at once; from this one when it has let others come first.
        peer::retry(|| again(address).ok());
        for at in 1..=2 {
            let ((resume, stopped), (reached, is_reached)) = (channel::<()>(), channel());
            let config = RdmaConfig { iterations: Some(100_000), ..quiet() };
            let client = thread::spawn(move || {
                let (mut seen, stop) = (0, AtomicBool::new(false));
                measure(address, [8; 16], RdmaOperation::Write, &config, &stop, &mut |_| {
                    seen += 1;
                    if seen == at {
                        reached.send(()).unwrap();
                        // Until the other one was served.
                        let _ = stopped.recv_timeout(Duration::from_secs(20));
                    }
                })
            });
            is_reached.recv_timeout(Duration::from_secs(20)).unwrap();
            peer::retry(|| again(address).ok());
            drop(resume);
            assert!(client.join().unwrap().is_err(), "its test was given up");
        }
    });
    let silent = events.iter().filter(|event| event.contains("Silent")).count();
    assert_eq!(silent, 3, "{events:?}");
}
