//! Connections that are dropped before the daemon has admitted the controller.

use std::{
    collections::VecDeque,
    net::{Shutdown, TcpListener},
    sync::atomic::AtomicU32,
};

use super::*;

/// What a [`DroppingProxy`] does with a connection.
#[derive(Clone, Copy)]
enum Step {
    /// Closes it at once.
    Close,
    /// Forwards so many reads of the controller's data, and closes at the next one: 1 lets the ClientHello
    /// through, so the controller completes its handshake and the daemon never does.
    CloseAfter(usize),
    /// Forwards everything.
    Forward,
    /// Forwards everything and closes after so many reads from the daemon.
    CloseAfterDaemon(usize),
}

/// A proxy in front of a daemon that drops connections and counts them.
struct DroppingProxy {
    address: SocketAddr,
    count: Arc<AtomicU32>,
}

impl DroppingProxy {
    fn new(daemon: SocketAddr, step: impl Fn(u32) -> Step + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
        let counter = Arc::clone(&count);
        thread::spawn(move || {
            for controller in listener.incoming().map_while(Result::ok) {
                let (up, down) = match step(counter.fetch_add(1, Ordering::SeqCst)) {
                    Step::Close => continue,
                    Step::CloseAfter(pieces) => (pieces, usize::MAX),
                    Step::CloseAfterDaemon(pieces) => (usize::MAX, pieces),
                    Step::Forward => (usize::MAX, usize::MAX),
                };
                let server = TcpStream::connect(daemon).unwrap();
                relay(controller.try_clone().unwrap(), server.try_clone().unwrap(), up);
                relay(server, controller, down);
            }
        });
        Self { address, count }
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, pieces: usize) {
    thread::spawn(move || {
        let (mut buffer, mut done) = ([0; 16 << 10], 0);
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if done == pieces || to.write_all(&buffer[..count]).is_err() {
                break;
            }
            done += 1;
        }
        // Either may be closed already.
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}

#[test]
fn connection_that_is_dropped_before_it_is_admitted_is_retried() {
    let daemon = Daemon::start(|_| {});
    let pairing = daemon.pair("alice");
    let proxy = DroppingProxy::new(daemon.address, |number| match number {
        0 => Step::Close,
        1 => Step::CloseAfter(0),
        2 => Step::CloseAfter(1),
        _ => Step::Forward,
    });
    let mut peer = connect(proxy.address, &pairing).unwrap();
    assert_eq!(peer.call(&Nothing {}), Ok(Done {}));
    assert_eq!(proxy.count(), 4);
    peer.shutdown();
}

#[test]
fn attempts_are_bounded_and_counted_in_the_error() {
    let daemon = Daemon::start(|_| {});
    let pairing = daemon.pair("alice");
    let proxy = DroppingProxy::new(daemon.address, |_| Step::Close);
    let error = refused(connect(proxy.address, &pairing));
    assert!(matches!(error, PeerError::Start { cause: StartCause::Dropped, .. }), "{error}");
    // Fewer on a machine so slow that the deadline comes first.
    let count = proxy.count();
    assert!((2..=8).contains(&count), "{count} attempts");
    assert!(error.to_string().contains(&format!("at each of {count} attempts")), "{error}");
}

#[test]
fn refusals_are_not_retried() {
    let (daemon, other) = (Daemon::start(|_| {}), Daemon::start(|_| {}));
    // The controller does not have the pin of this daemon.
    let proxy = DroppingProxy::new(daemon.address, |_| Step::Forward);
    let error = refused(connect(proxy.address, &other.pair("alice")));
    assert!(matches!(error, PeerError::Pairing { .. }), "{error}");
    assert_eq!(proxy.count(), 1);
    // The daemon no longer has the pin of this controller.
    let pairing = daemon.pair("alice");
    pairing::revoke(daemon.folder.path(), "alice").unwrap();
    let error = refused(connect(proxy.address, &pairing));
    assert!(matches!(error, PeerError::Pairing { .. }), "{error}");
    assert_eq!(proxy.count(), 2);
    // It is busy.
    let first = connect(daemon.address, &daemon.pair("bob")).unwrap();
    let error = refused(connect(proxy.address, &daemon.pair("carol")));
    assert_eq!(error.failure().map(|failure| failure.kind), Some(FailureKind::Busy), "{error}");
    assert_eq!(proxy.count(), 3);
    first.shutdown();
}

#[test]
fn connection_that_is_lost_after_authentication_is_not_retried() {
    let daemon = Daemon::start(|config| config.busy = Busy::Queue);
    let (first, pairing) = (connect(daemon.address, &daemon.pair("alice")).unwrap(), daemon.pair("bob"));
    // While queued: the keep-alives of a queued session are cut.
    let proxy = DroppingProxy::new(daemon.address, |_| Step::CloseAfterDaemon(4));
    let error = refused(connect(proxy.address, &pairing));
    assert!(matches!(error, PeerError::Lost { .. }), "{error}");
    assert_eq!(proxy.count(), 1);
    first.shutdown();
}

/// Forwards one connection with a delay in each direction, as a long path does.
fn long_path(daemon: SocketAddr, one_way: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(daemon).unwrap();
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                thread::spawn(move || {
                    let mut buffer = [0; 16 << 10];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        thread::sleep(one_way);
                        if to.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    address
}

/// A connection from an address of our choice in 127.0.0.0/8.
fn connect_from(source: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::from((source, 0)))?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

/// Opens 600 idle connections a second until `go_on` is cleared, each from its own address, and holds more
/// than the daemon's pending table: displaces any connection with equal probability, the controller's too.
fn flood(to: SocketAddr, go_on: &AtomicBool) -> u32 {
    let (mut held, start, mut count) = (VecDeque::new(), Instant::now(), 0_u32);
    while go_on.load(Ordering::SeqCst) {
        let [_, _, high, low] = count.to_be_bytes();
        held.extend(connect_from([127, 1, high, low.max(1)], to).ok());
        if held.len() > 350 {
            held.pop_front();
        }
        count += 1;
        let due = start + Duration::from_secs(1) * count / 600;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    count
}

#[test]
fn controller_over_a_long_path_is_admitted_under_a_flood() {
    let daemon = Daemon::start(|_| {});
    let pairing = daemon.pair("alice");
    let proxy = long_path(daemon.address, Duration::from_micros(8500));
    let (flooding, to) = (Arc::new(AtomicBool::new(true)), daemon.address);
    let go_on = Arc::clone(&flooding);
    let flood = thread::spawn(move || flood(to, &go_on));
    // Until the flood fills the pending table.
    thread::sleep(Duration::from_millis(800));
    let failed: Vec<String> = (0..10)
        .filter_map(|_| connect(proxy, &pairing).map(|peer| peer.shutdown()).err())
        .map(|error| error.to_string())
        .collect();
    flooding.store(false, Ordering::SeqCst);
    let count = flood.join().unwrap();
    assert!(failed.is_empty(), "beside {count} silent connections: {failed:?}");
}
