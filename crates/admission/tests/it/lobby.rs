//! Real sockets: strangers of every kind, and one that is complete.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use clearstream_admission::{Limits, Lobby, Step, fill};
use socket2::Socket;

const LIMIT: Duration = Duration::from_secs(20);

fn listener() -> (Socket, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener.into(), address)
}

fn lobby(strangers: usize, time: Duration) -> Lobby<Vec<u8>> {
    Lobby::new(Limits { strangers, per_source: strangers, known: 0, time })
}

/// Messages of four bytes that were complete.
fn round(lobby: &mut Lobby<Vec<u8>>, listener: &Socket) -> Vec<Vec<u8>> {
    lobby.wait(Some(listener), Duration::from_millis(20));
    let done = lobby.round(Some(listener), |waiting| fill(&waiting.socket, &mut waiting.state, 4));
    done.into_iter().map(|(waiting, ())| waiting.state).collect()
}

fn until<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {LIMIT:?}");
    }
}

fn connect(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// Those that come at once with a complete message displace nobody and are displaced by nobody.
#[test]
fn complete_messages_are_taken_among_more_silent_connections_than_may_wait() {
    let ((listener, address), mut lobby) = (listener(), lobby(4, LIMIT));
    let silent: Vec<TcpStream> = (0..30).map(|_| connect(address, b"x")).collect();
    let whole: Vec<TcpStream> = (0..30).map(|_| connect(address, b"whole")).collect();
    let mut taken = 0;
    until(|| {
        taken += round(&mut lobby, &listener).iter().filter(|message| *message == b"whol").count();
        (taken == whole.len()).then_some(())
    });
    let closed = silent.iter().filter(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut stream = *stream;
        matches!(stream.read(&mut [0]), Ok(0)) || stream.write(&[0]).is_err()
    });
    assert!(closed.count() >= 26 - 1, "four stay");
}

#[test]
fn bytes_that_trickle_in_gain_no_time() {
    let ((listener, address), mut lobby) = (listener(), lobby(4, Duration::from_millis(200)));
    let mut slow = connect(address, b"1");
    let begun = Instant::now();
    let mut more = 0;
    until(|| {
        assert_eq!(round(&mut lobby, &listener), Vec::<Vec<u8>>::new());
        // Two more bytes in all: never four.
        if more < 2 && begun.elapsed() > Duration::from_millis(60) * (more + 1) {
            more += 1;
            let _ = slow.write_all(b"2");
        }
        slow.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        matches!(slow.read(&mut [0]), Ok(0)).then_some(())
    });
    assert!(begun.elapsed() >= Duration::from_millis(180), "{:?}", begun.elapsed());
}

#[test]
fn the_end_of_a_stream_and_a_refusing_step_close_it() {
    let ((listener, address), mut lobby) = (listener(), lobby(4, LIMIT));
    drop(connect(address, b"12"));
    let mut refused = connect(address, b"bad!");
    until(|| {
        lobby.wait(Some(&listener), Duration::from_millis(20));
        let done =
            lobby.round(Some(&listener), |waiting| match fill(&waiting.socket, &mut waiting.state, 4) {
                Step::Done(()) if waiting.state == b"bad!" => Step::Close,
                step => step,
            });
        assert!(done.is_empty());
        refused.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        matches!(refused.read(&mut [0]), Ok(0)).then_some(())
    });
}
