//! A stream of FPDUs with arbitrary bytes, in arbitrary pieces: no panic,
//! everything consumed or rejected, every decoded header re-encodes; and
//! streams framed by this implementation decode to the same, in any pieces.
#![no_main]

use clearstream_iwarp::ddp::Header;
use clearstream_iwarp::mpa::{Negotiated, Deframer, Framed, Framer, MpaError};
use clearstream_iwarp::rdmap::{AtomicRequest, AtomicResponse, Opcode, ReadRequest, Terminate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, stream)) = input.split_first() else { return };
    let negotiated = Negotiated {
        crc: choice & 1 != 0,
        markers_out: choice & 2 != 0,
        markers_in: choice & 2 != 0,
        large_fpdus: false,
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
});

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
