//! Socket calls on registered memory.
#![cfg(not(miri))]

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
};

use clearstream_iwarp::memory::{Piece, Received, Region, Span, receive, send};

pub(super) fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn all_of(received: &Received) -> usize {
    received.straight + received.staged
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn pieces_arrive_in_order() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let region = Region::new(64).unwrap();
    region.write(0, b"payload in the region");
    let (first, second) = (region.span().slice(0, 8), region.span().slice(8, 13));
    let pieces = [
        Piece::Bytes(b"head "),
        Piece::Memory(&first),
        Piece::Bytes(b""),
        Piece::Memory(&second),
        Piece::Memory(&Span::empty()),
        Piece::Bytes(b" tail"),
    ];
    assert_eq!(send(here.as_fd(), &pieces, false).unwrap(), 31);
    let mut bytes = [0; 31];
    there.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"head payload in the region tail");
    assert_eq!(send(here.as_fd(), &[Piece::Bytes(b"alone")], true).unwrap(), 5);
    assert_eq!(send(here.as_fd(), &[], false).unwrap(), 0);
}

#[test]
fn spans_are_filled_in_order_and_the_rest_goes_to_staging() {
    let (mut here, there) = UnixStream::pair().unwrap();
    let region = Region::new(32).unwrap();
    let spans = [region.span().slice(3, 5), Span::empty(), region.span().slice(20, 4)];
    here.write_all(b"12345abcdrest").unwrap();
    let mut staging = [0; 16];
    assert_eq!(all_of(&receive(there.as_fd(), &spans, &mut staging).unwrap()), 13);
    assert_eq!(&region.to_vec(0, 9), b"\0\0\x0012345\0");
    assert_eq!(&region.to_vec(19, 6), b"\0abcd\0");
    assert_eq!(&staging[..5], b"rest\0");

    // Less than the spans hold.
    here.write_all(b"xyz").unwrap();
    assert_eq!(all_of(&receive(there.as_fd(), &spans, &mut staging).unwrap()), 3);
    assert_eq!(&region.to_vec(3, 5), b"xyz45");

    // Nothing to read, then the peer closed.
    for straight in [&spans[..], &[]] {
        let empty = receive(there.as_fd(), straight, &mut staging).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }
    drop(here);
    assert_eq!(all_of(&receive(there.as_fd(), &spans, &mut staging).unwrap()), 0);
    assert_eq!(all_of(&receive(there.as_fd(), &[], &mut staging).unwrap()), 0);
}

#[test]
fn a_closed_connection_is_an_error_and_no_signal() {
    let (here, there) = UnixStream::pair().unwrap();
    drop(there);
    let region = Region::new(8).unwrap();
    for pieces in [&[Piece::Bytes(b"x")][..], &[Piece::Memory(&region.span())]] {
        assert_eq!(send(here.as_fd(), pieces, false).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}

/// More pieces than a call accepts, through a TCP connection that splits them
/// arbitrarily, into spans at odd addresses.
#[test]
fn many_pieces_pass_a_full_connection() {
    let (here, there) = tcp();
    let bytes = pattern(1_500_000);
    let source = Region::new(bytes.len()).unwrap();
    source.write(0, &bytes);
    let spans: Vec<Span> = (0..bytes.len()).step_by(500).map(|at| source.span().slice(at, 500)).collect();
    assert!(spans.len() > 2 * libc_limit());
    let sink = Region::new(bytes.len()).unwrap();
    let (mut sent, mut received) = (0, 0);
    let mut staging = vec![0; 100];
    while received < bytes.len() {
        if sent < bytes.len() {
            let head = spans[sent / 500].slice(sent % 500, 500 - sent % 500);
            let mut pieces = vec![Piece::Memory(&head)];
            pieces.extend(spans[sent / 500 + 1..].iter().map(Piece::Memory));
            match send(here.as_fd(), &pieces, false) {
                Ok(transferred) => {
                    assert!(transferred > 0 && transferred <= 500 * libc_limit());
                    sent += transferred;
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        let straight = [sink.span().slice(received, (bytes.len() - received).min(7001))];
        match receive(there.as_fd(), &straight, &mut staging) {
            Ok(transferred) => {
                sink.write(received + transferred.straight, &staging[..transferred.staged]);
                received += all_of(&transferred);
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert!(sink.to_vec(0, bytes.len()) == bytes);
}

/// `IOV_MAX` of Linux (sysconf(3)).
fn libc_limit() -> usize {
    1024
}
