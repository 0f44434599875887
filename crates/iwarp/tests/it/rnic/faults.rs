//! Faults after the connection setup.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Stdio,
    time::Duration,
};

use clearstream_iwarp::{
    rdmap::ErrorCode,
    verbs::{
        AcceptOptions, Access, AsyncEvent, CompletionQueue, ConnectOptions, Failure, Listener, Overrun,
        ProtectionDomain, QueuePair, QueuePairOptions, Region, Rnic, RnicOptions, SendOptions, State,
    },
    work::{Remote, Status},
};

use crate::rnic::processes::{in_a_namespace, ip, second_process};
use crate::rnic::sides::{
    Side, TIMEOUT, all_modes, any_port, done, finished, inline, join, pattern, plain_pair, until,
};

/// Revision 1, no CRC, no private data.
const REQUEST: &[u8] = b"MPA ID Req Frame\x00\x01\x00\x00";

pub(crate) fn event(side: &Side, others: &[&Side], matches: impl Fn(&AsyncEvent) -> bool) -> AsyncEvent {
    let mut found = None;
    let mut seen = Vec::new();
    until("the event is reported", || {
        _ = side.completions.progress();
        others.iter().for_each(|other| _ = other.completions.progress());
        while let Some(event) = side.rnic.events().next(Some(Duration::ZERO)) {
            if matches(&event) {
                found = Some(event);
                return true;
            }
            seen.push(event);
        }
        false
    });
    found.unwrap_or_else(|| panic!("only {seen:?}"))
}

/// Creates a side whose peer is a plain socket that has just been accepted.
fn against_a_socket(options: RnicOptions) -> (Side, TcpStream) {
    let side = Side::new(options);
    let listener = Listener::bind(&side.rnic, any_port()).unwrap();
    let mut peer = TcpStream::connect(listener.local_address()).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_read_timeout(Some(TIMEOUT)).unwrap();
    peer.write_all(REQUEST).unwrap();
    let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
    side.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
    peer.read_exact(&mut [0; REQUEST.len()]).unwrap();
    (side, peer)
}

fn reset(peer: TcpStream) {
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
}

/// An FPDU without CRC around an untagged segment of queue 0.
fn send_fpdu(msn: u32, payload: &[u8]) -> Vec<u8> {
    let mut fpdu = Vec::new();
    fpdu.extend_from_slice(&(18 + payload.len() as u16).to_be_bytes());
    fpdu.extend_from_slice(&[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0]);
    fpdu.extend_from_slice(&msn.to_be_bytes());
    fpdu.extend_from_slice(&[0; 4]);
    fpdu.extend_from_slice(payload);
    fpdu.resize(fpdu.len().next_multiple_of(4) + 4, 0);
    fpdu
}

fn all_flushed(side: &Side, ids: &[u64]) {
    let mut back = Vec::new();
    until("all requests are completed", || {
        if let Some(finished) = side.poll() {
            assert_eq!(finished.completion.status, Status::Flushed, "{finished:?}");
            back.push(finished.completion.id);
        }
        back.len() >= ids.len() && side.queue_pair.state() == State::Error
    });
}

#[test]
fn a_reset_at_any_byte_of_a_message_flushes_everything() {
    let fpdu = send_fpdu(1, b"half of this");
    for options in all_modes() {
        for length in 0..fpdu.len() {
            let (side, mut peer) = against_a_socket(options.clone());
            side.queue_pair.receive(1, side.domain.buffer(64).unwrap()).unwrap();
            side.queue_pair.receive(2, side.domain.buffer(64).unwrap()).unwrap();
            side.queue_pair.send(3, &b"waits for the first message"[..], SendOptions::default()).unwrap();
            peer.write_all(&fpdu[..length]).unwrap();
            // With or without reading, at random: both must work.
            side.completions.progress();
            reset(peer);
            all_flushed(&side, &[1, 2, 3]);
        }
    }
}

#[test]
fn a_reset_in_each_state_ends_the_queue_pair() {
    for options in all_modes() {
        // With Reads outstanding.
        let (side, mut peer) = against_a_socket(options.clone());
        side.queue_pair.receive(1, side.domain.buffer(64).unwrap()).unwrap();
        peer.write_all(&send_fpdu(1, b"first")).unwrap();
        done(&side, &[]);
        let place = Remote { stag: clearstream_iwarp::stag::Stag(1), address: 0 };
        side.queue_pair.read(2, side.domain.buffer(64).unwrap(), place, SendOptions::default()).unwrap();
        peer.read_exact(&mut [0; 52]).unwrap();
        reset(peer);
        all_flushed(&side, &[2]);

        // Closing.
        let (side, mut peer) = against_a_socket(options.clone());
        side.queue_pair.receive(1, side.domain.buffer(64).unwrap()).unwrap();
        side.queue_pair.modify(State::Closing).unwrap();
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
        reset(peer);
        all_flushed(&side, &[1]);

        // While a Terminate is sent: an FPDU of an unknown DDP version.
        let (side, mut peer) = against_a_socket(options);
        side.queue_pair.receive(1, side.domain.buffer(64).unwrap()).unwrap();
        let mut wrong = send_fpdu(1, b"");
        wrong[2] = 0x42;
        peer.write_all(&wrong).unwrap();
        reset(peer);
        all_flushed(&side, &[1]);
    }
}

#[test]
fn a_message_without_a_receive_terminates_the_stream() {
    // At once, or after a while.
    let timeouts = [Duration::ZERO, Duration::from_millis(50)];
    for (options, receive_timeout) in
        all_modes().iter().flat_map(|options| timeouts.map(|timeout| (options.clone(), timeout)))
    {
        let (left, right) = plain_pair(&RnicOptions { receive_timeout, ..options });
        left.queue_pair.receive(1, left.domain.buffer(1).unwrap()).unwrap();
        left.queue_pair.send(2, &b"nobody waits"[..], SendOptions::default()).unwrap();
        let received = event(&left, &[&right], |event| matches!(event, AsyncEvent::TerminateReceived { .. }));
        let AsyncEvent::TerminateReceived { terminate, .. } = received else { unreachable!() };
        // RFC 5041, section 8: untagged buffer error, no buffer available.
        assert_eq!(terminate.error, ErrorCode::UntaggedNoBuffer);
        event(&right, &[&left], |event| matches!(event, AsyncEvent::TerminateSent { .. }));
        let receive =
            std::iter::from_fn(|| left.poll()).find(|finished| finished.completion.id == 1).unwrap();
        assert_eq!(receive.completion.status, Status::Flushed);
        assert_eq!((left.queue_pair.state(), right.queue_pair.state()), (State::Error, State::Error));
    }
}

#[test]
fn a_completion_queue_that_overruns_is_lost_with_its_queue_pairs() {
    for options in all_modes() {
        let left = Side::new(options.clone());
        let rnic = Rnic::open(options).unwrap();
        let domain = ProtectionDomain::new(&rnic);
        let completions = CompletionQueue::new(&rnic, 4).unwrap();
        let queue_pair = QueuePair::new(&domain, &QueuePairOptions::new(&completions)).unwrap();
        for id in 0..6 {
            queue_pair.receive(id, domain.buffer(1).unwrap()).unwrap();
        }
        join(&left.queue_pair, &ConnectOptions::default(), (&rnic, &queue_pair), &AcceptOptions::default());
        // The fifth is one too many; a sixth may find the connection closed.
        for id in 0..5 {
            left.queue_pair.send(id, &b"x"[..], SendOptions::default()).unwrap();
        }
        let mut overran = false;
        until("the overrun is reported", || {
            _ = completions.progress() | left.completions.progress();
            let event = rnic.events().next(Some(Duration::ZERO));
            overran |= event == Some(AsyncEvent::CompletionQueueOverrun { token: 0 });
            overran && queue_pair.state() == State::Error
        });
        // The completions that fit are still there.
        for id in 0..4 {
            assert_eq!(completions.poll().unwrap().unwrap().completion.id, id);
        }
        assert_eq!(completions.poll().unwrap_err(), Overrun);
    }
}

#[test]
fn a_stalled_reader_holds_up_only_its_own_connection() {
    for options in all_modes() {
        let (side, mut stalled) = against_a_socket(options.clone());
        side.queue_pair.receive(1, side.domain.buffer(8).unwrap()).unwrap();
        stalled.write_all(&send_fpdu(1, b"go")).unwrap();
        done(&side, &[]);
        // More than all buffers of the kernel take (tcp_wmem, tcp_rmem).
        for id in 0..16 {
            side.queue_pair.send(id, side.domain.buffer(4 << 20).unwrap(), SendOptions::default()).unwrap();
        }
        // Another queue pair of the same RNIC and completion queue.
        let second = QueuePair::new(&side.domain, &QueuePairOptions::new(&side.completions)).unwrap();
        let other = Side::new(options);
        other.queue_pair.receive(1, other.domain.buffer(2).unwrap()).unwrap();
        join(
            &second,
            &ConnectOptions::default(),
            (&other.rnic, &other.queue_pair),
            &AcceptOptions::default(),
        );
        second.send(77, &b"ok"[..], SendOptions::default()).unwrap();
        assert_eq!(&done(&other, &[&side]).buffers[0][..], b"ok");
        assert_eq!(side.queue_pair.state(), State::Rts);
        // After the abort all complete; those handed to the kernel succeeded.
        side.queue_pair.modify(State::Error).unwrap();
        let mut flushed = 0;
        let mut seen = 0;
        until("every request is completed", || {
            if let Some(finished) = side.poll() {
                seen += 1;
                flushed += usize::from(finished.completion.status == Status::Flushed);
            }
            seen == 17
        });
        assert!(flushed > 0, "the kernel cannot have taken 64 MiB");
    }
}

#[test]
fn a_slow_reader_gets_everything() {
    for options in all_modes() {
        let (left, right) = plain_pair(&options);
        let bytes = pattern(12 << 20, 11);
        let mut buffer = left.domain.buffer(bytes.len()).unwrap();
        buffer.copy_from_slice(&bytes);
        right.queue_pair.receive(1, right.domain.buffer(bytes.len()).unwrap()).unwrap();
        left.queue_pair.send(2, buffer, SendOptions::default()).unwrap();
        // The sender alone: until the socket is full.
        for _ in 0..100 {
            left.completions.progress();
        }
        let received = done(&right, &[&left]);
        assert!(received.buffers[0][..] == bytes[..]);
        done(&left, &[&right]);
    }
}

#[test]
fn memory_deregistered_in_flight_is_not_accessed_any_more() {
    for options in all_modes() {
        // The peer's: its tag is invalid when the Read arrives.
        let (left, right) = plain_pair(&options);
        let region = Region::new(&right.domain, 1 << 20, Access::REMOTE_READ).unwrap();
        let place = region.remote(0);
        left.queue_pair.read(1, left.domain.buffer(1 << 20).unwrap(), place, SendOptions::default()).unwrap();
        done(&left, &[&right]);
        drop(region);
        left.queue_pair.read(2, left.domain.buffer(1 << 20).unwrap(), place, SendOptions::default()).unwrap();
        let failed = finished(&left, &[&right]);
        assert_eq!((failed.completion.id, failed.completion.status), (2, Status::RemoteAccess));
        assert_eq!(failed.buffers[0].len(), 1 << 20);

        // Local memory, with requests that wait for a full socket.
        let (side, mut stalled) = against_a_socket(options);
        side.queue_pair.receive(1, side.domain.buffer(8).unwrap()).unwrap();
        stalled.write_all(&send_fpdu(1, b"go")).unwrap();
        done(&side, &[]);
        let region = Region::new(&side.domain, 32 << 20, Access::NONE).unwrap();
        let all = region.segment(0, 32 << 20);
        side.queue_pair.send(1, all, SendOptions::default()).unwrap();
        side.queue_pair.send(2, all, SendOptions::default()).unwrap();
        drop(region);
        let mut bytes = vec![0; 1 << 20];
        let mut ended = Vec::new();
        stalled.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        until("both requests end", || {
            while matches!(stalled.read(&mut bytes), Ok(count) if count > 0) {}
            ended.extend(side.poll().map(|finished| (finished.completion.id, finished.completion.status)));
            ended.iter().any(|(id, _)| *id == 2)
        });
        assert_ne!(ended.iter().find(|(id, _)| *id == 2).unwrap().1, Status::Success, "{ended:?}");
    }
}

/// Connects to the address on its standard input, sends one message and waits
/// to be killed in the middle of a second.
pub(crate) fn to_be_killed() {
    let mut address = String::new();
    std::io::stdin().read_line(&mut address).unwrap();
    let side = Side::new(inline());
    side.queue_pair.connect(address.trim().parse().unwrap(), &ConnectOptions::default()).unwrap();
    side.queue_pair.send(1, &b"here"[..], SendOptions::default()).unwrap();
    loop {
        let _ = side.queue_pair.send(2, side.domain.buffer(8 << 20).unwrap(), SendOptions::default());
        while side.poll().is_some() {}
    }
}

#[test]
fn a_peer_that_is_killed_ends_the_connection() {
    for options in all_modes() {
        let side = Side::new(options);
        let listener = Listener::bind(&side.rnic, any_port()).unwrap();
        side.queue_pair.receive(1, side.domain.buffer(16).unwrap()).unwrap();
        side.queue_pair.receive(2, side.domain.buffer(8 << 20).unwrap()).unwrap();
        let mut child = second_process("to be killed").stdout(Stdio::null()).spawn().unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{}", listener.local_address()).unwrap();
        let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
        side.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
        assert_eq!(&done(&side, &[]).buffers[0][..4], b"here");
        child.kill().unwrap();
        child.wait().unwrap();
        until("the connection ends", || {
            _ = side.poll();
            matches!(side.queue_pair.state(), State::Error | State::Idle)
        });
    }
}

/// In a network namespace of its own: both ends stay up, the path between them
/// goes down.
pub(crate) fn half_open() {
    ip("link set lo up");
    let keepalive = Some(Duration::from_secs(4));
    let pairs = all_modes().map(|options| plain_pair(&RnicOptions { keepalive, ..options }));
    for (left, _) in &pairs {
        left.queue_pair.receive(1, left.domain.buffer(1).unwrap()).unwrap();
    }
    ip("link set lo down");
    for (left, right) in &pairs {
        for (side, other) in [(left, right), (right, left)] {
            let lost = event(side, &[other], |event| matches!(event, AsyncEvent::Disconnected { .. }));
            let AsyncEvent::Disconnected { failure, .. } = lost else { unreachable!() };
            assert_eq!(failure, Some(Failure::TimedOut));
            assert_eq!(side.queue_pair.state(), State::Error);
        }
        assert_eq!(finished(left, &[]).completion.status, Status::Flushed);
    }
}

#[test]
fn root_a_half_open_connection_times_out() {
    let status = in_a_namespace("half open").status().unwrap();
    assert!(status.success());
}
