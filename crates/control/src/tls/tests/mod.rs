//! Paired hosts, strangers and queues on loopback.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    ops::ControlFlow,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use clearstream_schema::{control::FailureKind, scope::Scope};

use super::*;
use crate::{
    Call, Done, PeerError, StartCause,
    message::Body,
    pairing::{self, identity::Usage},
    test_calls::{Change, Double, Nothing, plain},
};

mod retry;

const LONG: Duration = Duration::from_secs(20);

/// A daemon in a thread, ended with the test.
struct Daemon {
    folder: tempfile::TempDir,
    address: SocketAddr,
    events: Receiver<ServeEvent>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Daemon {
    fn start(change: impl FnOnce(&mut ServeConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = ServeConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)), folder.path());
        let (sender, events) = channel();
        config.on_event = Box::new(move |event| drop(sender.send(event.clone())));
        change(&mut config);
        let server = Server::bind(config).unwrap();
        let address = server.local_address();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::spawn(move || server.run(&flag, |_| plain()).unwrap());
        Self { folder, address, events, stop, thread: Some(thread) }
    }

    fn pair(&self, name: &str) -> Pairing {
        self.pair_for(name, Scope::Measure)
    }

    fn pair_for(&self, name: &str, scope: Scope) -> Pairing {
        let token = pairing::create(self.folder.path(), name, self.address, scope).unwrap();
        Pairing::from_token(&token).unwrap()
    }

    fn refused_call(&self) -> String {
        loop {
            let event = self.events.recv_timeout(LONG).unwrap();
            if let ServeEvent::Refused { .. } = event {
                return event.to_string();
            }
        }
    }

    fn rejected(&self) -> String {
        loop {
            if let ServeEvent::Rejected { reason, .. } = self.events.recv_timeout(LONG).unwrap() {
                return reason;
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

fn refused(result: Result<crate::Peer, PeerError>) -> PeerError {
    result.map(|peer| peer.name().to_owned()).unwrap_err()
}

#[test]
fn right_pairing_works_repeatedly() {
    let daemon = Daemon::start(|_| {});
    let pairing = daemon.pair("alice");
    for _ in 0..2 {
        let mut peer = connect(daemon.address, &pairing).unwrap();
        assert_eq!(peer.call(&Nothing {}), Ok(Done {}));
        peer.shutdown();
        let opened = daemon.events.recv_timeout(LONG).unwrap();
        assert!(matches!(&opened, ServeEvent::Opened { client, .. } if client == "alice"), "{opened}");
        assert!(matches!(daemon.events.recv_timeout(LONG).unwrap(), ServeEvent::Closed { .. }));
    }
}

#[test]
fn other_daemon_at_the_same_address_is_detected_on_both_sides() {
    let (daemon, other) = (Daemon::start(|_| {}), Daemon::start(|_| {}));
    let error = refused(connect(daemon.address, &other.pair("alice")));
    assert!(matches!(error, PeerError::Pairing { .. }), "{error}");
    assert!(error.to_string().contains("not the daemon"), "{error}");
    assert!(daemon.rejected().contains("expected another daemon"));
}

#[test]
fn client_that_is_not_paired_here_is_rejected_on_both_sides() {
    let (daemon, other) = (Daemon::start(|_| {}), Daemon::start(|_| {}));
    // Has the pin of the right daemon but a certificate created by another one.
    let pairing = Pairing { identity: other.pair("alice").identity, ..daemon.pair("bob") };
    let error = refused(connect(daemon.address, &pairing));
    assert!(matches!(error, PeerError::Pairing { .. }), "{error}");
    assert!(error.to_string().contains("does not accept this pairing"), "{error}");
    assert!(daemon.rejected().contains("not paired"));
}

#[test]
fn revoked_client_is_rejected_without_a_restart() {
    let daemon = Daemon::start(|_| {});
    let pairing = daemon.pair("alice");
    connect(daemon.address, &pairing).unwrap().shutdown();
    pairing::revoke(daemon.folder.path(), "alice").unwrap();
    let error = refused(connect(daemon.address, &pairing));
    assert!(matches!(error, PeerError::Pairing { .. }), "{error}");
}

fn permit(folder: &Path, name: &str, identity: &pairing::identity::Identity) {
    let file = folder.join("clients").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&file).unwrap();
    let old: serde_json::Value = clearstream_schema::json::from_str(&text).unwrap();
    let text = text.replace(old["pin"].as_str().unwrap(), &identity.pin().to_string());
    std::fs::write(&file, text).unwrap();
}

#[test]
fn expired_and_misused_certificates_are_rejected_although_their_pin_is_known() {
    let daemon = Daemon::start(|_| {});
    let day = Duration::from_secs(86_400);
    let now = SystemTime::now();
    let expired =
        pairing::identity::Identity::make_valid(Usage::Client, "x", now - 9 * day, now - day).unwrap();
    let pairing = daemon.pair("alice");
    permit(daemon.folder.path(), "alice", &expired);
    let error = refused(connect(daemon.address, &Pairing { identity: expired, ..pairing.clone() }));
    assert!(error.to_string().contains("not valid at this time"), "{error}");
    let misused = pairing::identity::Identity::make(Usage::Server, "x").unwrap();
    permit(daemon.folder.path(), "alice", &misused);
    let error = refused(connect(daemon.address, &Pairing { identity: misused, ..pairing }));
    assert!(!matches!(error, PeerError::Lost { .. }), "{error}");
}

#[test]
fn stolen_certificate_without_its_key_is_rejected() {
    let daemon = Daemon::start(|_| {});
    let pairing = daemon.pair("alice");
    let other = daemon.pair("bob");
    let mixed = pairing::identity::Identity::from_parts(
        pairing.identity.certificate().to_vec(),
        other.identity.private_key().to_vec(),
    );
    // rustls detects it here; for a client that does not check, the daemon does.
    let error = refused(connect(daemon.address, &Pairing { identity: mixed, ..pairing }));
    assert!(matches!(error, PeerError::Start { .. } | PeerError::Pairing { .. }), "{error}");
}

#[test]
fn strangers_of_every_kind_do_not_disturb_a_running_session() {
    let daemon = Daemon::start(|_| {});
    let mut peer = connect(daemon.address, &daemon.pair("alice")).unwrap();
    let mut plain = TcpStream::connect(daemon.address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // A frame header of TLS that announces more than TLS allows.
    let mut oversize = TcpStream::connect(daemon.address).unwrap();
    oversize.write_all(&[22, 3, 1, 0xff, 0xff]).unwrap();
    // The daemon may have closed the connection by now.
    let _ = oversize.write_all(&[0; 30_000]);
    while !daemon.rejected().contains("TLS") {}
    assert_eq!(peer.call(&Nothing {}), Ok(Done {}));
    // More idle connections than the pending table holds.
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(daemon.address).unwrap()).collect();
    // Some of them are displaced, at random.
    let closed = |mut socket: &TcpStream| {
        socket.set_nonblocking(true).unwrap();
        matches!(socket.read(&mut [0; 16]), Ok(0))
    };
    let until = Instant::now() + LONG;
    while silent.iter().filter(|socket| closed(socket)).count() < 300 - 256 {
        assert!(Instant::now() < until, "no connection was displaced");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(peer.call(&Nothing {}), Ok(Done {}));
    drop(silent);
    peer.shutdown();
}

#[test]
fn slow_loris_is_dropped_while_others_are_served() {
    let daemon = Daemon::start(|_| {});
    let pairing = daemon.pair("alice");
    let address = daemon.address;
    let loris = thread::spawn(move || {
        let mut socket = TcpStream::connect(address).unwrap();
        let start = Instant::now();
        // The beginning of a plausible ClientHello, a byte at a time.
        for byte in [22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3].into_iter().chain(std::iter::repeat(7)) {
            assert!(start.elapsed() < LONG, "never dropped");
            if socket.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(200));
        }
    });
    let mut peer = connect(daemon.address, &pairing).unwrap();
    assert_eq!(peer.call(&Nothing {}), Ok(Done {}));
    loris.join().unwrap();
    assert!(daemon.rejected().contains("within 5 s"));
    assert_eq!(peer.call(&Nothing {}), Ok(Done {}));
}

#[test]
fn lingering_close_cannot_be_stretched_by_single_bytes() {
    let daemon = Daemon::start(|_| {});
    let mut socket = TcpStream::connect(daemon.address).unwrap();
    socket.write_all(b"rubbish that is no TLS\n").unwrap();
    let start = Instant::now();
    // Each byte comes within any timeout of a single read.
    while socket.write_all(b"x").is_ok() {
        assert!(start.elapsed() < LONG, "never dropped");
        thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn panic_while_serving_ends_the_daemon_and_leaves_no_client_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = ServeConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)), folder.path());
    config.on_event = Box::new(|event| {
        assert!(!matches!(event, ServeEvent::Opened { .. }), "the log of this test is broken");
    });
    let server = Server::bind(config).unwrap();
    let address = server.local_address();
    let token = pairing::create(folder.path(), "alice", address, Scope::Measure).unwrap();
    let pairing = Pairing::from_token(&token).unwrap();
    let (done, ended) = channel();
    thread::spawn(move || done.send(server.run(&AtomicBool::new(false), |_| plain())));
    refused(connect(address, &pairing));
    let result = ended.recv_timeout(LONG).expect("the daemon ends");
    assert!(matches!(result, Err(ServeError::Panicked)), "{result:?}");
}

#[test]
fn log_lines_of_strangers_are_bounded_and_counted() {
    const STRANGERS: u64 = 150;
    let daemon = Daemon::start(|_| {});
    for _ in 0..STRANGERS {
        let mut socket = TcpStream::connect(daemon.address).unwrap();
        // The daemon may have closed the connection by now.
        let _ = socket.write_all(b"GET / HTTP/1.0\r\n\r\n");
        let _ = socket.read(&mut [0; 64]);
    }
    let (mut lines, mut counted, start) = (0, 0, Instant::now());
    while counted < STRANGERS {
        lines += 1;
        counted += match daemon.events.recv_timeout(LONG).unwrap() {
            ServeEvent::Rejected { .. } => 1,
            ServeEvent::Suppressed { count } => count,
            other => panic!("{other}"),
        };
    }
    assert_eq!(counted, STRANGERS);
    let allowed = 20 + start.elapsed().as_secs() + 60;
    assert!(lines <= allowed.min(STRANGERS / 2), "{lines} lines");
}

#[test]
fn second_controller_is_refused_with_the_name_of_the_running_one() {
    let daemon = Daemon::start(|_| {});
    let first = connect(daemon.address, &daemon.pair("alice")).unwrap();
    let bob = daemon.pair("bob");
    let error = refused(connect(daemon.address, &bob));
    assert_eq!(error.failure().unwrap().kind, FailureKind::Busy);
    assert!(error.to_string().contains("\"alice\" from 127.0.0.1"), "{error}");
    first.shutdown();
    // Its session is released when its handler has ended.
    let until = Instant::now() + LONG;
    while let Err(error) = connect(daemon.address, &bob) {
        assert!(Instant::now() < until, "{error}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn second_controller_is_queued_when_the_daemon_queues() {
    let daemon = Daemon::start(|config| config.busy = Busy::Queue);
    let first = connect(daemon.address, &daemon.pair("alice")).unwrap();
    let bob = daemon.pair("bob");
    let mut reasons = Vec::new();
    let error = refused(connect_waiting(daemon.address, &bob, &mut |reason| {
        reasons.push(reason.to_owned());
        ControlFlow::Break(())
    }));
    assert!(matches!(error, PeerError::Stopped { .. }), "{error}");
    assert!(reasons[0].contains("\"alice\"") && reasons[0].contains("0 before you"), "{reasons:?}");
    let (waiting, waits) = channel();
    let address = daemon.address;
    let second = thread::spawn(move || {
        connect_waiting(address, &bob, &mut |_| {
            let _ = waiting.send(());
            ControlFlow::Continue(())
        })
        .and_then(|mut peer| peer.call(&Nothing {}))
    });
    waits.recv_timeout(LONG).unwrap();
    first.shutdown();
    assert_eq!(second.join().unwrap(), Ok(Done {}));
}

#[test]
fn stopped_daemon_notifies_its_controller() {
    let daemon = Daemon::start(|_| {});
    let mut peer = connect(daemon.address, &daemon.pair("alice")).unwrap();
    drop(daemon);
    let error = peer.next_event(LONG).unwrap_err();
    assert!(error.to_string().contains("the daemon was stopped"), "{error}");
}

#[test]
fn port_in_use_and_connection_refused_have_clear_errors() {
    let daemon = Daemon::start(|_| {});
    let folder = tempfile::tempdir().unwrap();
    let error = Server::bind(ServeConfig::new(daemon.address, folder.path())).unwrap_err().to_string();
    assert!(error.contains(&daemon.address.to_string()) && error.contains("--listen"), "{error}");
    let (address, pairing) = (daemon.address, daemon.pair("alice"));
    drop(daemon);
    let error = refused(connect(address, &pairing));
    assert!(matches!(error, PeerError::Start { cause: StartCause::Connection, .. }), "{error}");
    assert!(error.to_string().contains("clearstream serve"), "{error}");
}

/// Connects with OpenSSL's client and returns everything it printed.
fn openssl(address: SocketAddr, options: &[&str]) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string()])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    // The daemon's alert about the certificate comes after the handshake, so the client has to stay for it:
    // its input stays open.
    let input = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(input);
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn openssl_without_a_certificate_learns_nothing_and_gets_tls_1_3_only() {
    let daemon = Daemon::start(|_| {});
    let text = openssl(daemon.address, &[]);
    assert!(text.contains("TLSv1.3"), "{text}");
    assert!(text.contains("certificate required"), "{text}");
    assert!(!text.contains("hello"), "nothing of the session: {text}");
    assert!(daemon.rejected().contains("no certificate"));
    let text = openssl(daemon.address, &["-tls1_2"]);
    assert!(text.contains("protocol version"), "{text}");
}

#[test]
fn services_see_only_what_the_scope_permits_and_refusals_are_logged() {
    let daemon = Daemon::start(|_| {});
    let mut peer = connect(daemon.address, &daemon.pair("alice")).unwrap();
    let PeerError::Refused { failure, .. } = peer.call(&Change {}).unwrap_err() else {
        panic!("it was to be refused")
    };
    assert_eq!(failure.kind, FailureKind::Forbidden);
    assert!(failure.message.contains("pair create alice --scope measure,change"), "{failure}");
    let logged = daemon.refused_call();
    assert!(logged.contains("refused a call of \"alice\" from 127.0.0.1"), "{logged}");
    // An unknown name, and a body that does not parse.
    for (name, logs) in
        [("paint", "does not support the call `paint`"), (Double::NAME, "cannot read this `double`")]
    {
        let body = Body::of(&"red").unwrap();
        let refused = peer.call_by_name(name, body, crate::READ_WITHIN, &AtomicBool::new(false)).unwrap_err();
        assert!(refused.failure().is_some_and(|failure| failure.message.contains(logs)), "{refused}");
        let logged = daemon.refused_call();
        assert!(logged.contains(logs), "{logged}");
    }
    // The session continues.
    assert_eq!(peer.call(&Nothing {}), Ok(Done {}));
    peer.shutdown();
    let mut peer = connect(daemon.address, &daemon.pair_for("bob", Scope::MeasureAndChange)).unwrap();
    assert_eq!(peer.call(&Change {}), Ok(Done {}));
    peer.shutdown();
}
