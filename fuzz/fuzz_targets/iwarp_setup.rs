//! Set-up frames from a stranger: no panic, nothing taken that was not there,
//! what is understood can be said again, and any frame that can be answered
//! leads to an agreement within what was offered.
#![no_main]

use clearstream_iwarp::mpa::{Kind, Offer, RtrKinds, SetupFrame, conclude, refuse, respond};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let bit = |bit: u8| choice & 1 << bit != 0;
    let kind = if bit(0) { Kind::Request } else { Kind::Reply };
    // The key is given, so that what is behind it gets its turn.
    let mut frame = if bit(0) { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" }.to_vec();
    if bit(7) {
        frame.clear();
    }
    frame.extend_from_slice(bytes);
    let Ok(Some((decoded, length))) = SetupFrame::decode(kind, &frame) else { return };
    assert!(length <= frame.len() && decoded.private_data.len() <= length - 20);
    let again = decoded.encode().unwrap();
    assert_eq!(again.len(), length);
    assert_eq!(SetupFrame::decode(kind, &again), Ok(Some((decoded.clone(), length))));

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
    let agreed = match kind {
        Kind::Request => {
            assert!(refuse(&decoded, vec![]).encode().is_ok());
            respond(&offer, &decoded).ok().map(|(reply, agreed)| {
                assert!(reply.encode().is_ok());
                agreed
            })
        }
        Kind::Reply => conclude(&offer, &decoded).ok(),
    };
    assert!(agreed.is_none_or(|agreed| agreed.ird <= offer.ird && agreed.ord <= offer.ord));
});
