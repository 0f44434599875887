//! Setup frames of arbitrary bytes: no panic, no read beyond the input, every
//! decoded frame re-encodes, and any acceptable frame leads to negotiated
//! parameters within the offer.
#![no_main]

use clearstream_iwarp::mpa::{Kind, Offer, RtrKinds, SetupFrame, conclude, refuse, respond};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
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
        revision: if bit(4) { 2 } else { 1 },
        ird: 16,
        ord: 16,
        peer_to_peer: bit(5).then_some(RtrKinds { send: bit(6), write: true, read: true }),
        private_data: vec![],
    };
    let negotiated = match kind {
        Kind::Request => {
            assert!(refuse(&decoded, vec![]).encode().is_ok());
            respond(&offer, &decoded).ok().map(|(reply, negotiated)| {
                assert!(reply.encode().is_ok());
                negotiated
            })
        }
        Kind::Reply => conclude(&offer, &decoded).ok(),
    };
    assert!(negotiated.is_none_or(|negotiated| negotiated.ird <= offer.ird && negotiated.ord <= offer.ord));
});
