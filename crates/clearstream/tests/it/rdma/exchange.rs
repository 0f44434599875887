//! Conversations as they pass, cut into frames, without what is each host's
//! own: tags and addresses of its memory.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread::JoinHandle,
};

/// Bytes of a set-up frame before its private data (RFC 5044, section 7.1.1).
const SETUP_BYTES: usize = 20;
/// Reserved bits of a set-up frame by which two ends of ClearStream know each other, which no peer looks at.
pub(crate) const OWN_BITS: u8 = 0x06;

/// A relay between two programs that records what each sends.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    thread: JoinHandle<[Vec<u8>; 2]>,
}

impl Recorder {
    /// For one connection to a server.
    pub(crate) fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let there = std::thread::spawn(move || pass(client, server));
            let back = pass(back.0, back.1);
            [there.join().unwrap(), back]
        });
        Self { address, thread }
    }

    /// The streams of client and server, once both have left.
    pub(crate) fn streams(self) -> [Vec<u8>; 2] {
        self.thread.join().unwrap()
    }
}

/// Passes bytes on until the end, which is passed on too.
fn pass(mut from: TcpStream, mut to: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut some = [0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut some) {
        all.extend_from_slice(&some[..count]);
        if to.write_all(&some[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
    all
}

/// Frames of one direction: the set-up frame, then each FPDU, with zeros for
/// ClearStream's own bits, for tags and addresses, and for CRCs where there are any, since they go over
/// these.
pub(crate) fn comparable(stream: &[u8], crc: bool) -> Vec<Vec<u8>> {
    let private = usize::from(u16::from_be_bytes([stream[18], stream[19]]));
    let (setup, mut rest) = stream.split_at(SETUP_BYTES + private);
    let mut setup = setup.to_vec();
    setup[16] &= !OWN_BITS;
    let mut frames = vec![setup];
    while !rest.is_empty() {
        // Two bytes of length, the ULPDU, a pad to a multiple of four, the CRC
        // (RFC 5044, section 4.1).
        let ulpdu = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        let padded = (2 + ulpdu).next_multiple_of(4);
        let (frame, after) = rest.split_at(padded + 4);
        let mut frame = frame.to_vec();
        frame[2 + ulpdu..padded].fill(0);
        if crc {
            frame[padded..].fill(0);
        }
        hide_own(&mut frame, ulpdu);
        frames.push(frame);
        rest = after;
    }
    frames
}

/// Fills tags and addresses with zeros: of headers with a tag (RFC 5041,
/// section 4.2), of Read Requests (RFC 5040, section 4.4), and of adverts,
/// which are the Sends of 16 bytes.
fn hide_own(frame: &mut [u8], ulpdu: usize) {
    const TAGGED: u8 = 0x80;
    const UNTAGGED_HEADER: usize = 2 + 18;
    let opcode = frame[3] & 0x0f;
    if frame[2] & TAGGED != 0 {
        frame[4..16].fill(0);
    } else if opcode == 1 {
        let body = &mut frame[UNTAGGED_HEADER..];
        body[..12].fill(0);
        body[16..28].fill(0);
    } else if opcode == 3 && ulpdu == 18 + 16 {
        frame[UNTAGGED_HEADER..UNTAGGED_HEADER + 12].fill(0);
    }
}
