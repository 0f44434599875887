//! Every operation with all connection parameters, in both progress modes.

use clearstream_iwarp::{
    verbs::{
        AcceptOptions, Access, Buffers, ConnectOptions, Progress, Region, RnicOptions, SendOptions, Sink,
        Source, Window,
    },
    work::{Completed, Operation, SendRequest, Status},
};

use crate::rnic::sides::{Side, all_modes, done, inline, join, offloaded, pair, pattern};

const ALL: Access = Access::LOCAL_WRITE;

fn remote_access() -> Access {
    ALL | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::BIND_WINDOW
}

/// Revision, CRC, markers of either direction, peer-to-peer.
fn connections() -> Vec<(ConnectOptions, AcceptOptions)> {
    let connect = |revision, crc, markers, peer_to_peer| ConnectOptions {
        revision,
        crc,
        markers,
        peer_to_peer,
        ..ConnectOptions::default()
    };
    let accept = |crc, markers| AcceptOptions { crc, markers, ..AcceptOptions::default() };
    vec![
        (connect(1, false, false, false), accept(false, false)),
        (connect(1, true, true, false), accept(false, true)),
        (connect(2, false, false, false), accept(false, false)),
        (connect(2, false, false, false), accept(true, true)),
        (connect(2, true, true, false), accept(true, false)),
        (connect(2, false, false, true), accept(false, false)),
        (connect(2, true, true, true), accept(true, true)),
        (ConnectOptions { large_fpdus: true, ..connect(2, true, false, false) }, accept(false, true)),
    ]
}

fn each_connection(options: &RnicOptions, test: impl Fn(&Side, &Side)) {
    for (connect, accept) in connections() {
        let (left, right) = pair(options, &connect, &accept);
        opened(&left, &right);
        test(&left, &right);
        test(&right, &left);
    }
}

/// A responder sends only after the initiator did.
fn opened(left: &Side, right: &Side) {
    right.queue_pair.receive(0, right.domain.buffer(1).unwrap()).unwrap();
    left.queue_pair.send(0, &b"!"[..], SendOptions::default()).unwrap();
    done(right, &[left]);
    done(left, &[right]);
}

/// Every operation, in both directions.
pub(crate) fn all(left: &Side, right: &Side) {
    opened(left, right);
    for (from, to) in [(left, right), (right, left)] {
        sends(from, to);
        gathered_and_inline(from, to);
        unsignaled(from, to);
        writes_and_reads(from, to);
        immediates_and_atomics(from, to);
        windows_and_invalidation(from, to);
    }
}

fn buffer_of(side: &Side, bytes: &[u8]) -> clearstream_iwarp::verbs::Buffer {
    let mut buffer = side.domain.buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

fn sends(from: &Side, to: &Side) {
    for (id, length) in [0usize, 1, 64, 4096, 65_000, 70_000, 300_000].into_iter().enumerate() {
        let id = id as u64;
        let bytes = pattern(length, id as u32);
        to.queue_pair.receive(100 + id, to.domain.buffer(length + 3).unwrap()).unwrap();
        from.queue_pair.send(id, buffer_of(from, &bytes), SendOptions::default()).unwrap();
        let received = done(to, &[from]);
        let sent = done(from, &[to]);
        assert_eq!((sent.completion.id, sent.completion.completed), (id, Completed::Send));
        assert_eq!(&sent.buffers[0][..], &bytes[..]);
        assert_eq!((received.completion.id, received.completion.completed), (100 + id, Completed::Receive));
        assert_eq!(received.completion.bytes as usize, length);
        assert_eq!(&received.buffers[0][..length], &bytes[..]);
        assert!(received.buffers[0][length..].iter().all(|byte| *byte == 0));
    }
}

fn gathered_and_inline(from: &Side, to: &Side) {
    let bytes = pattern(1000, 7);
    let parts: Buffers = bytes.chunks(333).map(|part| buffer_of(from, part)).collect();
    let places: Buffers =
        [10usize, 500, 600].into_iter().map(|length| to.domain.buffer(length).unwrap()).collect();
    to.queue_pair.receive(1, Sink::Buffers(places)).unwrap();
    from.queue_pair.send(2, Source::Buffers(parts), SendOptions::default()).unwrap();
    let received = done(to, &[from]);
    assert_eq!(done(from, &[to]).buffers.len(), 4);
    assert_eq!(received.completion.bytes, 1000);
    assert_eq!(
        &received.buffers.iter().flat_map(|buffer| buffer.to_vec()).collect::<Vec<_>>()[..1000],
        &bytes[..]
    );

    to.queue_pair.receive(3, to.domain.buffer(64).unwrap()).unwrap();
    from.queue_pair
        .send(4, &b"hello"[..], SendOptions { solicited: true, ..SendOptions::default() })
        .unwrap();
    let received = done(to, &[from]);
    assert!(received.completion.solicited);
    assert_eq!(&received.buffers[0][..5], b"hello");
    done(from, &[to]);
}

fn unsignaled(from: &Side, to: &Side) {
    let unsignaled = SendOptions { signaled: false, ..SendOptions::default() };
    for id in 0..3 {
        to.queue_pair.receive(id, to.domain.buffer(8).unwrap()).unwrap();
        let options = if id == 2 { SendOptions::default() } else { unsignaled };
        from.queue_pair.send(id, buffer_of(from, &[id as u8; 8]), options).unwrap();
    }
    for id in 0..3 {
        let received = done(to, &[from]);
        assert_eq!((received.completion.id, &received.buffers[0][..]), (id, &[id as u8; 8][..]));
    }
    let sent = done(from, &[to]);
    assert_eq!(sent.completion.id, 2);
    let order: Vec<_> = sent.buffers.iter().map(|buffer| buffer[0]).collect();
    assert_eq!(order, [0, 1, 2], "buffers of requests without a completion are returned in order");
}

fn writes_and_reads(from: &Side, to: &Side) {
    for length in [0usize, 1, 4095, 65_536, 300_003] {
        let region = Region::new(&to.domain, length + 64, remote_access()).unwrap();
        let bytes = pattern(length, 3);
        from.queue_pair.write(1, buffer_of(from, &bytes), region.remote(32), SendOptions::default()).unwrap();
        assert_eq!(done(from, &[to]).completion.completed, Completed::Write);
        let sink = from.domain.buffer(length).unwrap();
        let fenced = SendOptions { fence: true, ..SendOptions::default() };
        from.queue_pair.read(2, sink, region.remote(32), fenced).unwrap();
        let read = done(from, &[to]);
        assert_eq!((read.completion.completed, read.completion.bytes as usize), (Completed::Read, length));
        assert_eq!(&read.buffers[0][..], &bytes[..]);
        assert_eq!(region.to_vec(0, 32), [0; 32]);
        assert_eq!(region.to_vec(32, length), bytes);
        assert_eq!(region.to_vec(32 + length, 32), [0; 32]);
    }
    // From one region to another, at a zero-based offset.
    let source = Region::new(&to.domain, 256, remote_access() | Access::ZERO_BASED).unwrap();
    source.write(0, &pattern(256, 9));
    let sink = Region::new(&from.domain, 128, ALL).unwrap();
    from.queue_pair.read(3, sink.segment(0, 128), source.remote(100), SendOptions::default()).unwrap();
    done(from, &[to]);
    assert_eq!(sink.to_vec(0, 128), pattern(256, 9)[100..228]);
}

fn immediates_and_atomics(from: &Side, to: &Side) {
    to.queue_pair.receive(5, Sink::Buffers(Buffers::new())).unwrap();
    from.queue_pair.immediate(6, *b"12345678", SendOptions::default()).unwrap();
    let received = done(to, &[from]).completion;
    assert!(!received.solicited);
    assert_eq!((received.id, received.completed), (5, Completed::ReceiveImmediate));
    assert_eq!(received.immediate, Some(*b"12345678"));
    assert_eq!(done(from, &[to]).completion.completed, Completed::Immediate);
    to.queue_pair.receive(5, Sink::Buffers(Buffers::new())).unwrap();
    from.queue_pair.immediate(6, [9; 8], SendOptions { solicited: true, ..SendOptions::default() }).unwrap();
    assert!(done(to, &[from]).completion.solicited);
    done(from, &[to]);

    let region = Region::new(&to.domain, 64, remote_access()).unwrap();
    region.store(8, 40);
    let eight = || from.domain.buffer(8).unwrap();
    from.queue_pair.fetch_add(7, eight(), region.remote(8), 2, SendOptions::default()).unwrap();
    let before = done(from, &[to]).buffers.pop().unwrap();
    assert_eq!((u64::from_ne_bytes(before[..].try_into().unwrap()), region.load(8)), (40, 42));
    from.queue_pair.compare_swap(8, eight(), region.remote(8), 42, 7, SendOptions::default()).unwrap();
    done(from, &[to]);
    from.queue_pair.compare_swap(9, eight(), region.remote(8), 42, 8, SendOptions::default()).unwrap();
    let before = done(from, &[to]).buffers.pop().unwrap();
    assert_eq!((u64::from_ne_bytes(before[..].try_into().unwrap()), region.load(8)), (7, 7));
}

fn windows_and_invalidation(from: &Side, to: &Side) {
    let region = Region::new(&to.domain, 128, remote_access()).unwrap();
    let mut window = Window::new(&to.domain).unwrap();
    let (shown, access) = (region.segment(64, 32), Access::REMOTE_WRITE);
    to.queue_pair.bind(1, &mut window, shown, access, SendOptions::default()).unwrap();
    assert_eq!(done(to, &[from]).completion.completed, Completed::BindWindow);
    let place = clearstream_iwarp::work::Remote { stag: window.stag(), address: shown.address };
    from.queue_pair.write(2, &b"through the window"[..], place, SendOptions::default()).unwrap();
    done(from, &[to]);
    // The Send that follows a Write is delivered after it (RFC 5040, section
    // 5.5), and invalidates the window's tag.
    to.queue_pair.receive(3, to.domain.buffer(1).unwrap()).unwrap();
    let invalidate = SendOptions { invalidate: Some(window.stag()), ..SendOptions::default() };
    from.queue_pair.send(4, &b"!"[..], invalidate).unwrap();
    let received = done(to, &[from]).completion;
    assert_eq!(received.invalidated, Some(window.stag()));
    done(from, &[to]);
    assert_eq!(region.to_vec(64, 18), b"through the window");
    assert!(!to.rnic.memory().registration(window.stag()).is_some_and(|registration| registration.valid));

    // The same for a whole region, with a solicited event.
    to.queue_pair.receive(6, to.domain.buffer(1).unwrap()).unwrap();
    let both = SendOptions { solicited: true, invalidate: Some(region.stag()), ..SendOptions::default() };
    from.queue_pair.send(7, &b"!"[..], both).unwrap();
    let received = done(to, &[from]).completion;
    assert_eq!((received.invalidated, received.solicited), (Some(region.stag()), true));
    done(from, &[to]);

    let mine = Region::new(&from.domain, 8, ALL).unwrap();
    let operation = Operation::LocalInvalidate { stag: mine.stag() };
    from.queue_pair.post(SendRequest { id: 5, operation, signaled: true, fence: false }).unwrap();
    assert_eq!(done(from, &[to]).completion.completed, Completed::LocalInvalidate);
}

#[test]
fn sends_of_all_sizes_inline() {
    each_connection(&inline(), sends);
}

#[test]
fn sends_of_all_sizes_offloaded() {
    each_connection(&offloaded(), sends);
}

#[test]
fn buffers_are_gathered_scattered_and_returned_in_order() {
    for options in all_modes() {
        each_connection(&options, gathered_and_inline);
        each_connection(&options, unsignaled);
    }
}

#[test]
fn writes_and_reads_of_all_sizes() {
    for options in all_modes() {
        each_connection(&options, writes_and_reads);
    }
}

#[test]
fn immediate_data_and_atomics() {
    for options in all_modes() {
        each_connection(&options, immediates_and_atomics);
    }
}

#[test]
fn windows_are_bound_and_invalidated() {
    for options in all_modes() {
        each_connection(&options, windows_and_invalidation);
    }
}

#[test]
fn many_outstanding_requests_complete_in_order() {
    for options in all_modes() {
        let (left, right) = pair(&options, &ConnectOptions::default(), &AcceptOptions::default());
        let region = Region::new(&right.domain, 1 << 20, remote_access()).unwrap();
        region.write(0, &pattern(1 << 20, 1));
        for id in 0..128 {
            let unsignaled = SendOptions { signaled: id % 8 == 7, ..SendOptions::default() };
            let place = region.remote(id as usize * 8192);
            left.queue_pair.read(id, left.domain.buffer(8192).unwrap(), place, unsignaled).unwrap();
        }
        let refused = left.queue_pair.read(
            999,
            left.domain.buffer(1).unwrap(),
            region.remote(0),
            SendOptions::default(),
        );
        // Engines may have processed some meanwhile; inline there is no
        // progress between calls.
        let full = refused.is_err_and(|refused| refused.buffers.len() == 1);
        assert!(full || options.progress != Progress::Inline, "the queue is full");
        let mut at = 0;
        for id in (7..128).step_by(8) {
            let read = done(&left, &[&right]);
            assert_eq!((read.completion.id, read.completion.status), (id, Status::Success));
            for buffer in &read.buffers {
                assert_eq!(&buffer[..], &region.to_vec(at, 8192)[..]);
                at += 8192;
            }
        }
        assert_eq!(at, 1 << 20);
    }
}

#[test]
fn fpdus_are_larger_than_a_segment_only_if_both_sides_offer_it() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let (left, right) = (Side::new(inline()), Side::new(inline()));
        let connect = ConnectOptions { large_fpdus: ours, ..ConnectOptions::default() };
        let accept = AcceptOptions { large_fpdus: theirs, ..AcceptOptions::default() };
        let established = join(&left.queue_pair, &connect, (&right.rnic, &right.queue_pair), &accept);
        for established in [established.0, established.1] {
            // A segment has room for less than 64 KiB after the lower headers.
            assert_eq!(established.mulpdu_bytes > 65_495, ours && theirs);
        }
        sends(&left, &right);
    }
}
