//! Setup frames and their negotiation.

use clearstream_iwarp::mpa::{
    Enhanced, Kind, MpaError, NOT_NEGOTIATED, Negotiated, Offer, Rtr, RtrKinds, SetupFrame, conclude,
    initiate, reject, respond,
};

use crate::wire::conversation::hex;

/// "MPA ID Req Frame" and "MPA ID Rep Frame" (RFC 5044, section 7.1.1).
const REQUEST: &str = "4d504120494420526571204672616d65";
const REPLY: &str = "4d504120494420526570204672616d65";

fn offer(revision: u8) -> Offer {
    Offer {
        markers: false,
        crc: false,
        large_fpdus: false,
        immediate_data: false,
        revision,
        ird: 8,
        ord: 4,
        peer_to_peer: None,
        private_data: vec![],
    }
}

fn frame(kind: Kind, revision: u8) -> SetupFrame {
    SetupFrame {
        kind,
        markers: false,
        crc: false,
        reject: false,
        large_fpdus: false,
        immediate_data: false,
        ready: false,
        revision,
        enhanced: None,
        private_data: vec![],
    }
}

/// Returns both sides' negotiated parameters, from the encoded frames.
fn set_up(initiator: &Offer, responder: &Offer) -> Result<[Negotiated; 2], MpaError> {
    let request =
        SetupFrame::decode(Kind::Request, &initiate(initiator).encode().unwrap()).unwrap().unwrap().0;
    let (reply, theirs) = respond(responder, &request).map_err(|(_, error)| error)?;
    let reply = SetupFrame::decode(Kind::Reply, &reply.encode().unwrap()).unwrap().unwrap().0;
    Ok([conclude(initiator, &reply)?, theirs])
}

#[test]
fn frames_byte_for_byte() {
    let private_data = b"ping".to_vec();
    let all = Enhanced {
        ird: 0x0102,
        ord: 0x0304,
        peer_to_peer: true,
        rtr_send: true,
        rtr_write: true,
        rtr_read: true,
    };
    let figures = [
        (frame(Kind::Request, 1), format!("{REQUEST} 00 01 0000")),
        (SetupFrame { crc: true, ..frame(Kind::Request, 1) }, format!("{REQUEST} 40 01 0000")),
        (SetupFrame { crc: true, ..frame(Kind::Reply, 1) }, format!("{REPLY} 40 01 0000")),
        (SetupFrame { markers: true, crc: true, ..frame(Kind::Request, 1) }, format!("{REQUEST} c0 01 0000")),
        (SetupFrame { crc: true, reject: true, ..frame(Kind::Reply, 1) }, format!("{REPLY} 60 01 0000")),
        (
            SetupFrame {
                crc: true,
                enhanced: Some(Enhanced { ird: 4, ord: 4, ..Enhanced::default() }),
                ..frame(Kind::Request, 2)
            },
            format!("{REQUEST} 50 02 0004 0004 0004"),
        ),
        (
            SetupFrame { enhanced: Some(all), private_data, ..frame(Kind::Request, 2) },
            format!("{REQUEST} 10 02 0008 c102 c304 70696e67"),
        ),
        (SetupFrame { large_fpdus: true, ..frame(Kind::Request, 1) }, format!("{REQUEST} 08 01 0000")),
        (SetupFrame { ready: true, ..frame(Kind::Reply, 1) }, format!("{REPLY} 04 01 0000")),
        (SetupFrame { immediate_data: true, ..frame(Kind::Request, 1) }, format!("{REQUEST} 02 01 0000")),
    ];
    for (frame, figure) in figures {
        let bytes = hex(&figure);
        assert_eq!(frame.encode().unwrap(), bytes);
        assert_eq!(SetupFrame::decode(frame.kind, &bytes), Ok(Some((frame.clone(), bytes.len()))));
        for cut in 0..bytes.len() {
            assert_eq!(SetupFrame::decode(frame.kind, &bytes[..cut]), Ok(None), "cut at {cut}");
        }
    }
}

#[test]
fn private_data_up_to_512_bytes() {
    let mut frame = SetupFrame { private_data: vec![0xa5; 512], ..frame(Kind::Reply, 1) };
    let bytes = frame.encode().unwrap();
    assert_eq!(bytes[18..20], [2, 0]);
    assert_eq!(SetupFrame::decode(Kind::Reply, &bytes), Ok(Some((frame.clone(), 532))));
    frame.private_data.push(0);
    assert_eq!(frame.encode(), Err(MpaError::PrivateData { length: 513, max: 512 }));
    // The enhanced fields count (RFC 6581, section 6).
    frame.enhanced = Some(Enhanced::default());
    frame.revision = 2;
    frame.private_data.truncate(509);
    assert_eq!(frame.encode(), Err(MpaError::PrivateData { length: 509, max: 508 }));
    frame.private_data.truncate(508);
    assert_eq!(frame.encode().unwrap().len(), 532);
    let claims_more = hex(&format!("{REPLY} 00 01 0201"));
    assert_eq!(
        SetupFrame::decode(Kind::Reply, &claims_more),
        Err(MpaError::PrivateData { length: 513, max: 512 })
    );
}

#[test]
fn other_protocols_and_early_data_are_rejected_at_once() {
    let key = |expected| Err(MpaError::Key { expected });
    assert_eq!(SetupFrame::decode(Kind::Request, b"GET / HTTP"), key("MPA ID Req Frame"));
    assert_eq!(SetupFrame::decode(Kind::Reply, &hex(REQUEST)), key("MPA ID Rep Frame"));
    assert_eq!(SetupFrame::decode(Kind::Request, b""), Ok(None));
    // RFC 5044, section 7.1.2: nothing after the Request before the Reply.
    let early = hex(&format!("{REQUEST} 00 01 0000 0012"));
    assert_eq!(SetupFrame::decode(Kind::Request, &early), Err(MpaError::EarlyData { bytes: 2 }));
    let followed = hex(&format!("{REPLY} 00 01 0000 0012"));
    assert_eq!(SetupFrame::decode(Kind::Reply, &followed).unwrap().unwrap().1, 20);
    // Bit S without its fields.
    let empty = hex(&format!("{REQUEST} 10 02 0003 000000"));
    assert_eq!(SetupFrame::decode(Kind::Request, &empty), Err(MpaError::Enhanced));
    // Reserved bits are not checked; in revision 1 bit S is one of them.
    let reserved = hex(&format!("{REQUEST} 15 01 0000"));
    assert_eq!(SetupFrame::decode(Kind::Request, &reserved), Ok(Some((frame(Kind::Request, 1), 20))));
}

#[test]
fn crc_is_used_if_either_side_requests_it() {
    for (initiator, responder, used) in
        [(false, false, false), (true, false, true), (false, true, true), (true, true, true)]
    {
        for revision in [1, 2] {
            let ours = Offer { crc: initiator, ..offer(revision) };
            let theirs = Offer { crc: responder, ..offer(2) };
            assert_eq!(set_up(&ours, &theirs).unwrap().map(|negotiated| negotiated.crc), [used; 2]);
        }
    }
}

#[test]
fn each_side_requests_markers_for_itself() {
    for initiator in [false, true] {
        for responder in [false, true] {
            let ours = Offer { markers: initiator, ..offer(1) };
            let theirs = Offer { markers: responder, ..offer(1) };
            let [client, server] = set_up(&ours, &theirs).unwrap();
            assert_eq!((client.markers_in, client.markers_out), (initiator, responder));
            assert_eq!((server.markers_in, server.markers_out), (responder, initiator));
        }
    }
}

/// (IRD, ORD) of initiator and responder, and the negotiated values: no side's
/// ORD exceeds the other's IRD, nor its own (RFC 6581, section 9.1).
#[test]
fn outstanding_reads_are_negotiated() {
    const FREE: u16 = NOT_NEGOTIATED;
    let table = [
        ((8, 4), (8, 4), (4, 4), (4, 4)),
        ((1, 1), (128, 128), (1, 1), (1, 1)),
        ((128, 128), (1, 1), (1, 1), (1, 1)),
        ((0, 16), (16, 16), (0, 16), (16, 0)),
        ((16, 0), (2, 3), (3, 0), (0, 3)),
        ((0, 0), (128, 128), (0, 0), (0, 0)),
        // Not negotiated: each side keeps its own values.
        ((FREE, FREE), (7, 9), (FREE, FREE), (7, 9)),
        ((FREE, 5), (7, 9), (FREE, 5), (5, 9)),
        ((5, 6), (FREE, FREE), (5, 6), (6, 5)),
    ];
    for (ours, theirs, client, server) in table {
        let initiator = Offer { ird: ours.0, ord: ours.1, ..offer(2) };
        let responder = Offer { ird: theirs.0, ord: theirs.1, ..offer(2) };
        let negotiated = set_up(&initiator, &responder).unwrap();
        assert_eq!(
            negotiated.map(|negotiated| (negotiated.ird, negotiated.ord)),
            [client, server],
            "{ours:?} {theirs:?}"
        );
    }
    // Revision 1 does not negotiate it.
    let negotiated = set_up(&offer(1), &Offer { ird: 3, ord: 2, ..offer(2) }).unwrap();
    assert_eq!(negotiated.map(|negotiated| (negotiated.ird, negotiated.ord)), [(8, 4), (3, 2)]);
}

#[test]
fn a_responder_that_requests_too_many_reads_is_rejected() {
    let reply = SetupFrame {
        enhanced: Some(Enhanced { ird: 8, ord: 9, ..Enhanced::default() }),
        ..frame(Kind::Reply, 2)
    };
    let error = conclude(&offer(2), &reply).unwrap_err();
    assert_eq!(error, MpaError::InsufficientIrd { requested: 9, available: 8 });
    assert_eq!(error.code().numbers(), [2, 0, 6]);
}

/// Supported RTR messages of either side, and the negotiated one.
#[test]
fn peer_to_peer_negotiates_a_ready_to_receive_message() {
    let kinds = |send, write, read| Some(RtrKinds { send, write, read });
    let table = [
        (None, None, Ok(None)),
        (None, Some(RtrKinds::ALL), Ok(None)),
        // The responder supports client/server only.
        (Some(RtrKinds::ALL), None, Ok(None)),
        // Writes before Reads, as Linux' siw; Sends last.
        (Some(RtrKinds::ALL), Some(RtrKinds::ALL), Ok(Some(Rtr::Write))),
        (kinds(false, true, true), Some(RtrKinds::ALL), Ok(Some(Rtr::Write))),
        (kinds(true, false, true), Some(RtrKinds::ALL), Ok(Some(Rtr::Read))),
        (kinds(true, false, false), Some(RtrKinds::ALL), Ok(Some(Rtr::Send))),
        (Some(RtrKinds::ALL), kinds(true, false, false), Ok(Some(Rtr::Send))),
        (kinds(false, false, true), kinds(false, true, false), Err(MpaError::NoMatchingRtr)),
        (kinds(false, false, false), Some(RtrKinds::ALL), Err(MpaError::NoMatchingRtr)),
    ];
    for (ours, theirs, expected) in table {
        let initiator = Offer { peer_to_peer: ours, ..offer(2) };
        let responder = Offer { peer_to_peer: theirs, ..offer(2) };
        match set_up(&initiator, &responder) {
            Ok(negotiated) => {
                assert_eq!(Ok(negotiated.map(|negotiated| negotiated.rtr)), expected.map(|rtr| [rtr; 2]))
            }
            Err(error) => assert_eq!(Err(error), expected),
        }
    }
    assert_eq!(MpaError::NoMatchingRtr.code().numbers(), [2, 0, 7]);
}

/// siw proposes a Write when the initiator offered no supported kind.
#[test]
fn the_reply_to_peer_to_peer_is_siws() {
    let request = |second: &str| {
        let bytes = hex(&format!("{REQUEST} 10 02 0004 8001 {second}"));
        SetupFrame::decode(Kind::Request, &bytes).unwrap().unwrap().0
    };
    let siw = Offer {
        ird: 128,
        ord: 128,
        peer_to_peer: Some(RtrKinds { send: false, write: true, read: true }),
        ..offer(2)
    };
    for (offered, replied) in [("c001", "8001"), ("8001", "8001"), ("4001", "4001"), ("0001", "8001")] {
        let (reply, _) = respond(&siw, &request(offered)).unwrap();
        assert_eq!(reply.encode().unwrap(), hex(&format!("{REPLY} 10 02 0004 8001 {replied}")), "{offered}");
    }
}

#[test]
fn revisions() {
    // RFC 5044, section 7.1.1: an unsupported revision is closed without a
    // Reply.
    for (revision, highest) in [(0, 2), (3, 2), (2, 1), (129, 2)] {
        let error = respond(&offer(highest), &frame(Kind::Request, revision)).unwrap_err();
        assert_eq!(error, (None, MpaError::Revision { revision }));
        assert_eq!(error.1.code().numbers(), [2, 0, 4]);
    }
    // Revision 2 without the enhanced fields is a setup like that of revision
    // 1.
    let (reply, negotiated) = respond(&offer(2), &frame(Kind::Request, 2)).unwrap();
    assert_eq!((reply.revision, reply.enhanced, negotiated.revision), (2, None, 2));
    // A responder that supports revision 1 only, and one that omits the fields.
    assert_eq!(
        conclude(&offer(2), &frame(Kind::Reply, 1)),
        Err(MpaError::OtherRevision { request: 2, reply: 1 })
    );
    assert_eq!(conclude(&offer(2), &frame(Kind::Reply, 2)), Err(MpaError::Enhanced));
    let uninvited = SetupFrame { enhanced: Some(Enhanced::default()), ..frame(Kind::Reply, 1) };
    assert_eq!(conclude(&offer(1), &uninvited), Err(MpaError::Enhanced));
}

#[test]
fn a_rejection_brings_private_data() {
    for revision in [1, 2] {
        let request = initiate(&offer(revision));
        let reply = reject(&request, b"busy".to_vec());
        let bytes = reply.encode().unwrap();
        assert_eq!(bytes[16] & 0x20, 0x20);
        let (reply, _) = SetupFrame::decode(Kind::Reply, &bytes).unwrap().unwrap();
        let rejected = MpaError::Rejected { private_data: b"busy".to_vec() };
        assert_eq!(conclude(&offer(revision), &reply), Err(rejected));
    }
    // siw's Reply to a Request that requests markers.
    let bytes = hex(&format!("{REPLY} 60 01 0000"));
    let (reply, _) = SetupFrame::decode(Kind::Reply, &bytes).unwrap().unwrap();
    assert_eq!(conclude(&offer(1), &reply), Err(MpaError::Rejected { private_data: vec![] }));
    let nonsense = SetupFrame { reject: true, ..frame(Kind::Request, 1) };
    assert_eq!(respond(&offer(1), &nonsense).unwrap_err(), (None, MpaError::RejectInRequest));
}

/// An initiator of siw sets no such bit, and its responder returns that of the Request.
#[test]
fn immediate_data_only_if_both_sides_say_that_they_offer_it() {
    for ours in [false, true] {
        for theirs in [false, true] {
            let initiator = Offer { immediate_data: ours, ..offer(2) };
            let responder = Offer { immediate_data: theirs, ..offer(2) };
            let negotiated = set_up(&initiator, &responder).unwrap();
            assert_eq!(negotiated.map(|negotiated| negotiated.immediate_data), [ours && theirs; 2]);
        }
        let request = initiate(&Offer { immediate_data: ours, ..offer(2) });
        let returned = SetupFrame { kind: Kind::Reply, ..request };
        let negotiated = conclude(&Offer { immediate_data: true, ..offer(2) }, &returned).unwrap();
        assert!(!negotiated.immediate_data);
    }
}

/// siw's private bit is returned and used only if both sides set it.
#[test]
fn large_fpdus_only_if_both_sides_offer_them() {
    for ours in [false, true] {
        for theirs in [false, true] {
            let initiator = Offer { large_fpdus: ours, ..offer(2) };
            let responder = Offer { large_fpdus: theirs, ..offer(2) };
            let negotiated = set_up(&initiator, &responder).unwrap();
            assert_eq!(negotiated.map(|negotiated| negotiated.large_fpdus), [ours && theirs; 2]);
            // That it reads at once a responder says only to those that use a reserved bit too, and siw, which returns the
            // bits of the Request, never.
            let request = initiate(&initiator);
            assert_eq!((request.ready, respond(&responder, &request).unwrap().0.ready), (false, ours));
        }
    }
}
