//! What strangers and peers send: frames of sessions, setup frames and FPDUs of iWARP, iperf3's protocol, rping's text.

use std::time::{Duration, Instant};

use clearstream_control::{
    message::Message,
    pairing::Pairing,
    session::{HELLO_TIMEOUT, Role, Session, own_hello},
};
use clearstream_iperf3::{
    ClientMachine, Parameters, Results, ServerMachine,
    datagram_header::{Sequence, read_header},
};
use clearstream_iwarp::{
    ddp::Header,
    mpa::{
        Deframer, Framed, Framer, Kind, MpaError, Negotiated, Offer, RtrKinds, SetupFrame, conclude, reject,
        respond,
    },
    rdmap::{AtomicRequest, AtomicResponse, Opcode, ReadRequest, Terminate},
};

/// A control session with arbitrary input, in arbitrary pieces: no panic, memory within the frame limit, and a printable
/// end.
pub(crate) fn frame(input: &[u8]) {
    // The first byte selects the role, whether the handshake is complete, and
    // how the rest is split.
    let Some((&choice, stream)) = input.split_first() else { return };
    let role = if choice & 1 == 0 { Role::Agent } else { Role::Controller };
    let mut now = Instant::now();
    let mut session = Session::new(role, own_hello(), HELLO_TIMEOUT, now);
    if choice & 2 != 0 {
        let mut hello = own_hello();
        // A newer minor version permits unknown kinds.
        hello.minor += u16::from(choice & 4 != 0);
        if let Ok(hello) = clearstream_control::frame::encode(&Message::Hello(hello)) {
            session.feed(&hello, now);
        }
    }
    for piece in stream.chunks(usize::from(choice >> 3) + 1) {
        session.feed(piece, now);
        now += Duration::from_millis(1);
        session.tick(now);
        while session.poll_message().is_some() {}
        while session.poll_transmit().is_some() {}
    }
    session.feed_end(now);
    assert!(session.end().is_some_and(|end| !end.to_string().is_empty()));

    // Tokens are pasted by people and so are another input.
    if let Ok(text) = std::str::from_utf8(stream) {
        let _ = Pairing::from_token(text);
    }
}

/// Both control state machines of iperf3's protocol, parameters and results, and the headers of its datagrams.
pub(crate) fn iperf3(data: &[u8]) {
    let Some((at, bytes)) = data.split_first() else { return };
    let (mut client, mut server) = (ClientMachine::new(), ServerMachine::new());
    let (first, second) = bytes.split_at(usize::from(*at).min(bytes.len()));
    if client.take(first).is_ok() {
        client.end();
        let _ = client.take(second);
    }
    if server.take(first).is_ok() {
        server.run();
        if server.take(second).is_ok() {
            server.expect_results();
            let _ = server.take(second);
        }
    }
    let _ = (Parameters::read(bytes), Results::read(bytes));
    let mut sequence = Sequence::default();
    for datagram in bytes.chunks(17) {
        let wide = at % 2 == 0;
        if let Some(header) = read_header(datagram, wide) {
            sequence.take(header, wide, 1 << 40);
        }
    }
}

/// Setup frames of arbitrary bytes: no read beyond the input, every decoded frame re-encodes, and any acceptable frame
/// leads to negotiated parameters within the offer.
pub(crate) fn iwarp_setup(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let bit = |bit: u8| choice & 1 << bit != 0;
    let kind = if bit(0) { Kind::Request } else { Kind::Reply };
    // The key is valid, so that the rest is decoded.
    let mut frame = if bit(0) { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" }.to_vec();
    if bit(7) {
        frame.clear();
    }
    frame.extend_from_slice(bytes);
    let Ok(Some((decoded, length))) = SetupFrame::decode(kind, &frame) else { return };
    assert!(length <= frame.len() && decoded.private_data.len() <= length - 20);
    let reencoded = decoded.encode().unwrap();
    assert_eq!(reencoded.len(), length);
    assert_eq!(SetupFrame::decode(kind, &reencoded), Ok(Some((decoded.clone(), length))));

    let offer = Offer {
        markers: bit(1),
        crc: bit(2),
        large_fpdus: bit(3),
        immediate_data: bit(3),
        revision: if bit(4) { 2 } else { 1 },
        ird: 16,
        ord: 16,
        peer_to_peer: bit(5).then_some(RtrKinds { send: bit(6), write: true, read: true }),
        private_data: vec![],
    };
    let negotiated = match kind {
        Kind::Request => {
            assert!(reject(&decoded, vec![]).encode().is_ok());
            respond(&offer, &decoded).ok().map(|(reply, negotiated)| {
                assert!(reply.encode().is_ok());
                negotiated
            })
        }
        Kind::Reply => conclude(&offer, &decoded).ok(),
    };
    assert!(negotiated.is_none_or(|negotiated| negotiated.ird <= offer.ird && negotiated.ord <= offer.ord));
}

pub(crate) use crate::hostile_peer::run as iwarp_queue_pair;

/// A stream of FPDUs with arbitrary bytes, in arbitrary pieces: everything consumed or rejected, every decoded header
/// re-encodes; and streams framed by this implementation decode to the same, in any pieces.
pub(crate) fn iwarp_fpdu(input: &[u8]) {
    let Some((&choice, stream)) = input.split_first() else { return };
    let negotiated = Negotiated {
        crc: choice & 1 != 0,
        markers_out: choice & 2 != 0,
        markers_in: choice & 2 != 0,
        large_fpdus: false,
        immediate_data: false,
        revision: 1,
        ird: 1,
        ord: 1,
        rtr: None,
        initiator: true,
    };
    let piece = usize::from(choice >> 2) + 1;
    let _ = deframe(&negotiated, stream, piece);

    // The same bytes as ULPDUs, each as long as its first byte states.
    let mut ulpdus: Vec<&[u8]> = vec![];
    let mut rest = stream;
    while let Some(&length) = rest.first() {
        let (ulpdu, later) = rest.split_at(rest.len().min(usize::from(length) * 4 + 1));
        ulpdus.push(ulpdu);
        rest = later;
    }
    let mut framer = Framer::new(&negotiated);
    let mut framed = vec![];
    for ulpdu in &ulpdus {
        understood(ulpdu);
        framer.begin(u16::try_from(ulpdu.len()).unwrap(), &mut framed);
        framer.bytes(ulpdu, &mut framed);
        framer.finish(&mut framed);
    }
    assert_eq!(deframe(&negotiated, &framed, piece).unwrap(), ulpdus);
}

/// The text of a ping: its length is within it.
pub(crate) fn rping(text: &[u8]) {
    assert!(clearstream_rdma::rping::echo_length(text) <= text.len());
}

fn deframe(negotiated: &Negotiated, stream: &[u8], piece: usize) -> Result<Vec<Vec<u8>>, MpaError> {
    let mut deframer = Deframer::new(negotiated);
    let (mut done, mut ulpdu) = (vec![], vec![]);
    for mut bytes in stream.chunks(piece) {
        loop {
            if let Some(whole) = deframer.whole(&mut bytes)? {
                done.push(whole.to_vec());
                continue;
            }
            match deframer.next(&mut bytes)? {
                Some(Framed::Begin(_)) => ulpdu = vec![],
                Some(Framed::Bytes(bytes)) => ulpdu.extend_from_slice(bytes),
                Some(Framed::End) => done.push(std::mem::take(&mut ulpdu)),
                None => break,
            }
        }
        assert!(bytes.is_empty());
    }
    Ok(done)
}

fn understood(ulpdu: &[u8]) {
    let Ok(Some((header, length))) = Header::decode(ulpdu) else { return };
    let (reencoded, reencoded_length) = header.encode();
    assert_eq!(Header::decode(&reencoded[..reencoded_length]), Ok(Some((header, length))));
    let body = &ulpdu[length..];
    match Opcode::of(&header) {
        Ok(Opcode::ReadRequest) => {
            let _ = ReadRequest::decode(body).map(|request| assert_eq!(request.encode().as_slice(), body));
        }
        Ok(Opcode::AtomicRequest) => {
            let _ = AtomicRequest::decode(body)
                .map(|request| AtomicRequest::decode(&request.encode()) == Ok(request));
        }
        Ok(Opcode::AtomicResponse) => {
            let _ =
                AtomicResponse::decode(body).map(|response| assert_eq!(response.encode().as_slice(), body));
        }
        Ok(Opcode::Terminate) => {
            let _ = Terminate::decode(body)
                .map(|terminate| assert!(Terminate::decode(&terminate.encode()).is_ok()));
        }
        _ => {}
    }
}
