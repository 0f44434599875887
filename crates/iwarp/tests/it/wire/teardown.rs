//! Captured siw connections with peer-to-peer setups and with every kind of
//! teardown, which the other captures lack.

use clearstream_iwarp::ddp::Header;
use clearstream_iwarp::mpa::{MpaError, Offer, Rtr, RtrKinds, SetupFrame, conclude, initiate, respond};
use clearstream_iwarp::rdmap::{ErrorCode, Opcode, ReadRequest, Terminate};
use clearstream_testkit::pcap::Stream;

use crate::wire::captures::{conversations, offer, reencode, setup_frames, ulpdus};

/// Opened by a zero-length Read; six ended by a Terminate; one rejected; opened
/// by a zero-length Write.
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
fn siw_sets_up_peer_to_peer_as_we_do() {
    let [read, .., write] = nine();
    for (stream, rtr) in [(read, Rtr::Read), (write, Rtr::Write)] {
        let ([request, reply], _) = setup_frames(&stream);
        assert_eq!(initiate(&peer_to_peer(&request)), request);
        assert_eq!(conclude(&peer_to_peer(&request), &reply).unwrap().rtr, Some(rtr));
        let siw = Offer { ird: 128, ord: 128, peer_to_peer: Some(RtrKinds::ALL), ..offer(&reply) };
        let (reply_message, negotiated) = respond(&siw, &request).unwrap();
        assert_eq!((reply_message, negotiated.rtr), (reply, Some(rtr)));

        let [initiator, responder] = [0, 1].map(|side| ulpdus(&stream, side));
        let (first, reply_message) = (message(&initiator[0].0), message(&responder[0].0));
        if rtr == Rtr::Read {
            assert_eq!(first.0, Opcode::ReadRequest);
            assert_eq!(ReadRequest::decode(first.2).unwrap().length, 0);
            assert_eq!((reply_message.0, reply_message.2), (Opcode::ReadResponse, &[][..]));
        } else {
            assert_eq!((first.0, first.2), (Opcode::Write, &[][..]));
        }
        for side in [0, 1] {
            assert!(reencode(&stream, side).0 == stream.sent[side], "{rtr:?} side {side}");
        }
    }
}

/// The expected errors are what the kernel of the receiving siw logged: layer,
/// type and code. Its Terminates have these mirrored.
#[test]
fn siw_terminates_carry_the_errors_that_siw_logged() {
    let [_, read_of_unknown_tag, write_to_unknown_tag, read_beyond, too_long, no_receive, invalidates, ..] =
        nine();
    for (stream, numbers, culprit) in [
        (read_of_unknown_tag, [0, 1, 0], Opcode::ReadRequest),
        (write_to_unknown_tag, [1, 1, 0], Opcode::Write),
        (read_beyond, [0, 1, 1], Opcode::ReadRequest),
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
            // siw quotes a wrong sequence number in the DDP header.
            assert_eq!(quoted.rdmap.as_slice(), body);
        } else {
            assert_eq!(quoted.ddp.as_slice(), ddp);
        }
    }
}

#[test]
fn siw_rejects_with_the_private_data_of_its_program() {
    let [.., rejected, _] = nine();
    let ([request, reply], _) = setup_frames(&rejected);
    let error = conclude(&offer(&request), &reply).unwrap_err();
    assert!(
        matches!(&error, MpaError::Rejected { private_data } if private_data == b"no thanks"),
        "{error:?}"
    );
}
