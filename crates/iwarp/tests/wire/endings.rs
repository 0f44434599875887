//! Two live siw peers in what the other captures do not show: peer-to-peer
//! set-ups, and how connections end.

use clearstream_iwarp::ddp::Header;
use clearstream_iwarp::mpa::{MpaError, Offer, Rtr, RtrKinds, SetupFrame, conclude, initiate, respond};
use clearstream_iwarp::rdmap::{ErrorCode, Opcode, ReadRequest, Terminate};
use clearstream_testkit::pcap::Stream;

use crate::captures::{conversations, encode_again, offer, setup_frames, ulpdus};

/// Begun with a zero-length Read; six that a Terminate ends; one that is
/// rejected; begun with a zero-length Write.
fn nine() -> [Stream; 9] {
    let Ok(nine) = conversations("siw-endings.pcap").try_into() else { panic!("nine conversations") };
    nine
}

fn peer_to_peer(frame: &SetupFrame) -> Offer {
    let enhanced = frame.enhanced.unwrap();
    assert!(enhanced.peer_to_peer);
    let kinds = RtrKinds { send: enhanced.rtr_send, write: enhanced.rtr_write, read: enhanced.rtr_read };
    Offer { peer_to_peer: Some(kinds), ..offer(frame) }
}

fn message(ulpdu: &[u8]) -> (Opcode, &[u8], &[u8]) {
    let (header, length) = Header::decode(ulpdu).unwrap().unwrap();
    let (ddp, body) = ulpdu.split_at(length);
    (Opcode::of(&header).unwrap(), ddp, body)
}

#[test]
fn siw_begins_peer_to_peer_as_we_do() {
    let [read, .., write] = nine();
    for (stream, rtr) in [(read, Rtr::Read), (write, Rtr::Write)] {
        let ([request, reply], _) = setup_frames(&stream);
        assert_eq!(initiate(&peer_to_peer(&request)), request);
        assert_eq!(conclude(&peer_to_peer(&request), &reply).unwrap().rtr, Some(rtr));
        let siw = Offer { ird: 128, ord: 128, peer_to_peer: Some(RtrKinds::ALL), ..offer(&reply) };
        let (answer, agreed) = respond(&siw, &request).unwrap();
        assert_eq!((answer, agreed.rtr), (reply, Some(rtr)));

        let [initiator, responder] = [0, 1].map(|side| ulpdus(&stream, side));
        let (first, answer) = (message(&initiator[0].0), message(&responder[0].0));
        if rtr == Rtr::Read {
            assert_eq!(first.0, Opcode::ReadRequest);
            assert_eq!(ReadRequest::decode(first.2).unwrap().length, 0);
            assert_eq!((answer.0, answer.2), (Opcode::ReadResponse, &[][..]));
        } else {
            assert_eq!((first.0, first.2), (Opcode::Write, &[][..]));
        }
        for side in [0, 1] {
            assert!(encode_again(&stream, side).0 == stream.sent[side], "{rtr:?} side {side}");
        }
    }
}

/// The errors are what the kernel of the siw that received them logged: layer,
/// type and code. Its Terminates have these mirrored.
#[test]
fn siw_terminates_say_what_siw_says_of_them() {
    let [_, reads_stranger, writes_stranger, reads_beyond, too_long, no_receive, invalidates, ..] = nine();
    for (stream, numbers, culprit) in [
        (reads_stranger, [0, 1, 0], Opcode::ReadRequest),
        (writes_stranger, [1, 1, 0], Opcode::Write),
        (reads_beyond, [0, 1, 1], Opcode::ReadRequest),
        (too_long, [1, 2, 2], Opcode::Send),
        (no_receive, [1, 2, 2], Opcode::Send),
        (invalidates, [0, 2, 9], Opcode::SendInvalidate),
    ] {
        let [client, server] = [0, 1].map(|side| ulpdus(&stream, side));
        let (opcode, ddp, body) = message(&client.last().unwrap().0);
        assert_eq!(opcode, culprit);
        let (opcode, _, terminate) = message(&server.last().unwrap().0);
        assert_eq!(opcode, Opcode::Terminate);
        let Terminate { error, quoted } = Terminate::decode(terminate).unwrap();
        assert_eq!(error, ErrorCode::from_numbers(numbers));
        assert!(quoted.segment_length.is_some());
        if culprit == Opcode::ReadRequest {
            // Of the DDP header siw has a wrong sequence number.
            assert_eq!(quoted.rdmap.as_slice(), body);
        } else {
            assert_eq!(quoted.ddp.as_slice(), ddp);
        }
    }
}

#[test]
fn siw_rejects_with_the_words_of_its_program() {
    let [.., rejected, _] = nine();
    let ([request, reply], _) = setup_frames(&rejected);
    let error = conclude(&offer(&request), &reply).unwrap_err();
    assert!(
        matches!(&error, MpaError::Rejected { private_data } if private_data == b"no thanks"),
        "{error:?}"
    );
}
