//! Figures and test vectors from the RFCs.

use clearstream_iwarp::ddp::{DdpError, Header};
use clearstream_iwarp::mpa::{Crc, Deframer, Framed, Framer, fpdu_length, mulpdu};
use clearstream_iwarp::rdmap::{
    AtomicOperation, AtomicRequest, AtomicResponse, ErrorCode, Opcode, RdmapError, ReadRequest, Terminate,
};
use clearstream_iwarp::stag::Stag;

use crate::wire::conversation::{hex, negotiated};

/// RFC 3720, appendix B.4: bytes, and the CRC in wire order.
#[test]
fn crc32c_vectors_of_rfc_3720() {
    let scsi_read = hex("01c00000000000000000000000000000140000000000040000000014000000182800000000000000\
                         0200000000000000");
    let vectors: [(&[u8], &str); 5] = [
        (&[0; 32], "aa36918a"),
        (&[0xff; 32], "43aba862"),
        (&std::array::from_fn::<u8, 32, _>(|at| at as u8), "4e79dd46"),
        (&std::array::from_fn::<u8, 32, _>(|at| 31 - at as u8), "5cdb3f11"),
        (&scsi_read, "563a96d9"),
    ];
    for (bytes, encoded) in vectors {
        let encoded = hex(encoded);
        assert_eq!(Crc::of(bytes).to_le_bytes().as_slice(), encoded);
        for cut in 0..=bytes.len() {
            let mut crc = Crc::new();
            crc.update(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            assert_eq!(crc.finish().to_le_bytes().as_slice(), encoded, "cut at {cut}");
        }
    }
}

/// A Send of 24 zero bytes with the last flag, as in both dumps of RFC 5044,
/// section 4.4.
fn dumped(msn: u32) -> Header {
    Header::Untagged { last: true, queue: 0, msn, offset: 0, ulp: 0x43, ulp_reserved: 0 }
}

/// The first dump begins with a marker, because it begins the stream; the
/// second contains one, at the next multiple of 512.
#[test]
fn fpdus_of_rfc_5044_with_their_markers_and_crcs() {
    let first = hex("00000000 002a 4143 00000000 00000000 00000001 00000000
                     000000000000000000000000000000000000000000000000 52239983");
    let second = hex("002a 4143 00000000 00000000 00000002 00000000 00000014
                      000000000000000000000000000000000000000000000000 84925898");
    let negotiated = negotiated(true, true);
    let mut framer = Framer::new(&negotiated);
    let mut stream = Vec::new();
    frame(&mut framer, dumped(1), &[0; 24], &mut stream);
    assert_eq!(stream, first);
    // Filler of the stream before the second dump: its marker is 20 bytes into
    // it, at position 512.
    let filler = 512 - 20 - stream.len();
    frame(&mut framer, dumped(1), &vec![7; filler - 2 - 18 - 4], &mut stream);
    assert_eq!(framer.position(), 492);
    frame(&mut framer, dumped(2), &[0; 24], &mut stream);
    assert_eq!(&stream[492..], second);

    let mut deframer = Deframer::new(&negotiated);
    let mut rest = stream.as_slice();
    let mut ulpdus = vec![];
    while let Some(framed) = deframer.next(&mut rest).unwrap() {
        match framed {
            Framed::Begin(length) => ulpdus.push((length, vec![])),
            Framed::Bytes(bytes) => ulpdus.last_mut().unwrap().1.extend_from_slice(bytes),
            Framed::End => assert_eq!(usize::from(ulpdus.last().unwrap().0), ulpdus.last().unwrap().1.len()),
        }
    }
    assert!(deframer.between());
    assert_eq!(Header::decode(&ulpdus[0].1), Ok(Some((dumped(1), 18))));
    assert_eq!(Header::decode(&ulpdus[2].1), Ok(Some((dumped(2), 18))));
    assert_eq!(ulpdus[2].1[18..], [0; 24]);
}

fn frame(framer: &mut Framer, header: Header, payload: &[u8], stream: &mut Vec<u8>) {
    let (bytes, length) = header.encode();
    framer.begin((length + payload.len()) as u16, stream);
    framer.bytes(&bytes[..length], stream);
    framer.bytes(payload, stream);
    framer.finish(stream);
}

/// RFC 5044, section 4.5, with the segment sizes of Ethernet and of loopback.
#[test]
fn discarding_a_partial_fpdu_does_not_change_the_next() {
    let mut framer = Framer::new(&negotiated(true, false));
    let mut whole = Vec::new();
    frame(&mut framer, dumped(2), &[0; 24], &mut whole);
    let position = framer.position();

    let mut left = Vec::new();
    framer.begin(4000, &mut left);
    framer.bytes(&[0x41, 0x43], &mut left);
    framer.crc().unwrap().update(&[9; 3000]);
    framer.passed(3000);
    framer.discard();
    assert_eq!(framer.position(), position);
    let mut next = Vec::new();
    frame(&mut framer, dumped(2), &[0; 24], &mut next);
    assert_eq!(next, whole);
    let sum = crc_fast::crc32_iscsi(&next[..next.len() - 4]);
    assert_eq!(next[next.len() - 4..], sum.to_le_bytes());
}

#[test]
fn an_fpdu_of_the_largest_ulpdu_fits_in_a_segment() {
    // 1460 - (6 + 4 * 3 + 0), 1448 - 6, 1500 - 40 - 12 is a multiple of four.
    assert_eq!(mulpdu(1460, true), 1442);
    assert_eq!(mulpdu(1460, false), 1454);
    assert_eq!(mulpdu(1448, false), 1442);
    assert_eq!(mulpdu(65_483, false), 65_483 - 6 - 3);
    assert_eq!(mulpdu(9, true), 128);
    for mss in 200..=65_535 {
        assert!(fpdu_length(mulpdu(mss, false)) <= mss, "{mss}");
        // At any position relative to the markers, one begins in every 512
        // bytes.
        assert!(fpdu_length(mulpdu(mss, true)) + 4 * mss.div_ceil(512) <= mss, "{mss}");
    }
}

/// RFC 5041, figures of sections 4.2 and 4.3, with RDMAP's fields of RFC 5040,
/// section 4: encoded by hand, bit by bit.
#[test]
fn headers_byte_for_byte() {
    let tagged =
        Header::Tagged { last: true, stag: Stag(0x1122_3344), offset: 0x0102_0304_0506_0708, ulp: 0x40 };
    let untagged = |ulp, queue, ulp_reserved| Header::Untagged {
        last: false,
        queue,
        msn: 0x0a0b_0c0d,
        offset: 0x1234_5678,
        ulp,
        ulp_reserved,
    };
    let figures = [
        (tagged, Opcode::Write, "c1 40 11223344 0102030405060708"),
        (
            Header::Tagged { last: false, stag: Stag(1), offset: u64::MAX, ulp: 0x42 },
            Opcode::ReadResponse,
            "81 42 00000001 ffffffffffffffff",
        ),
        (untagged(0x41, 1, 0), Opcode::ReadRequest, "01 41 00000000 00000001 0a0b0c0d 12345678"),
        (untagged(0x43, 0, 0), Opcode::Send, "01 43 00000000 00000000 0a0b0c0d 12345678"),
        (untagged(0x44, 0, 0xcafe_0102), Opcode::SendInvalidate, "01 44 cafe0102 00000000 0a0b0c0d 12345678"),
        (untagged(0x45, 0, 0), Opcode::SendSolicited, "01 45 00000000 00000000 0a0b0c0d 12345678"),
        (untagged(0x46, 0, 9), Opcode::SendSolicitedInvalidate, "01 46 00000009 00000000 0a0b0c0d 12345678"),
        (untagged(0x47, 2, 0), Opcode::Terminate, "01 47 00000000 00000002 0a0b0c0d 12345678"),
        (untagged(0x48, 0, 0), Opcode::Immediate, "01 48 00000000 00000000 0a0b0c0d 12345678"),
        (untagged(0x49, 0, 0), Opcode::ImmediateSolicited, "01 49 00000000 00000000 0a0b0c0d 12345678"),
        (untagged(0x4a, 1, 0), Opcode::AtomicRequest, "01 4a 00000000 00000001 0a0b0c0d 12345678"),
        (untagged(0x4b, 3, 0), Opcode::AtomicResponse, "01 4b 00000000 00000003 0a0b0c0d 12345678"),
    ];
    for (header, opcode, figure) in figures {
        let figure = hex(figure);
        let (bytes, length) = header.encode();
        assert_eq!(&bytes[..length], figure);
        assert_eq!(Header::length_of(figure[0]), figure.len());
        assert_eq!(Header::decode(&figure), Ok(Some((header, figure.len()))));
        assert_eq!(Header::decode(&figure[..figure.len() - 1]), Ok(None));
        assert_eq!(Opcode::of(&header), Ok(opcode));
        assert_eq!(opcode.control(), header.ulp());
    }
    // Reserved bits of either layer are not checked.
    assert_eq!(Header::decode(&hex("fd40112233440102030405060708")), Ok(Some((tagged, 14))));
    assert_eq!(Opcode::decode(0x73), Ok(Opcode::Send));
}

/// DV and RV are 1; operations other than the twelve are unexpected, and so is
/// an operation in the wrong queue or model.
#[test]
fn versions_and_operations_are_checked() {
    for version in [0, 2, 3] {
        assert_eq!(Header::decode(&[0x80 | version]), Err(DdpError::Version { version, tagged: true }));
        let error = Header::decode(&[version]).unwrap_err();
        assert_eq!(error.code().numbers(), [1, 2, 6]);
        assert_eq!(Opcode::decode(version << 6 | 3), Err(RdmapError::Version { version }));
    }
    assert_eq!(Header::decode(&[0x80]).unwrap_err().code().numbers(), [1, 1, 4]);
    assert_eq!(Opcode::decode(3).unwrap_err().code().numbers(), [0, 2, 5]);
    for opcode in 12..16 {
        let error = Opcode::decode(0x40 | opcode).unwrap_err();
        assert_eq!(error.code().numbers(), [0, 2, 6]);
    }
    let write_untagged =
        Header::Untagged { last: true, queue: 0, msn: 1, offset: 0, ulp: 0x40, ulp_reserved: 0 };
    assert_eq!(Opcode::of(&write_untagged), Err(RdmapError::Opcode { opcode: 0 }));
    let send_tagged = Header::Tagged { last: true, stag: Stag(1), offset: 0, ulp: 0x43 };
    assert_eq!(Opcode::of(&send_tagged), Err(RdmapError::Opcode { opcode: 3 }));
    let read_in_sends =
        Header::Untagged { last: true, queue: 0, msn: 1, offset: 0, ulp: 0x41, ulp_reserved: 0 };
    assert_eq!(Opcode::of(&read_in_sends), Err(RdmapError::Opcode { opcode: 1 }));
}

/// RFC 5040, section 4.4 and RFC 7306, sections 5.2.1 and 5.2.2.
#[test]
fn requests_and_responses_byte_for_byte() {
    let read = ReadRequest {
        sink: Stag(0x0102_0304),
        sink_offset: 0x1112_1314_1516_1718,
        length: 0x2122_2324,
        source: Stag(0x3132_3334),
        source_offset: 0x4142_4344_4546_4748,
    };
    let figure = hex("01020304 1112131415161718 21222324 31323334 4142434445464748");
    assert_eq!(read.encode().as_slice(), figure);
    assert_eq!(ReadRequest::decode(&figure), Ok(read));
    assert_eq!(ReadRequest::decode(&figure[1..]), Err(RdmapError::Length { bytes: 27, expected: 28 }));

    let (stag, offset, request) = (Stag(0x3132_3334), 0x4142_4344_4546_4748, 0x2122_2324);
    let add = AtomicRequest {
        operation: AtomicOperation::FetchAdd { add: 5, mask: 0x8000_0000_0000_0000 },
        request,
        stag,
        offset,
    };
    // Section 5.2.1: compare data zero, "set to ffffffffffffffffh" the mask.
    let figure = hex("00000000 21222324 31323334 4142434445464748 0000000000000005 8000000000000000
                      0000000000000000 ffffffffffffffff");
    assert_eq!(add.encode().as_slice(), figure);
    assert_eq!(AtomicRequest::decode(&figure), Ok(add));
    let swap = AtomicRequest {
        operation: AtomicOperation::CompareSwap { swap: 1, swap_mask: 2, compare: 3, compare_mask: 4 },
        ..add
    };
    let figure = hex("00000002 21222324 31323334 4142434445464748 0000000000000001 0000000000000002
                      0000000000000003 0000000000000004");
    assert_eq!(swap.encode().as_slice(), figure);
    assert_eq!(AtomicRequest::decode(&figure), Ok(swap));
    let mut unknown = figure;
    unknown[3] = 1;
    assert_eq!(AtomicRequest::decode(&unknown).unwrap_err().code(), ErrorCode::UnexpectedOpcode);

    let response = AtomicResponse { request, original: 0x5152_5354_5556_5758 };
    let figure = hex("21222324 5152535455565758");
    assert_eq!(response.encode().as_slice(), figure);
    assert_eq!(AtomicResponse::decode(&figure), Ok(response));
}

/// The lists of RFC 5040, section 4.8; RFC 5041, section 7.2; RFC 5044, section
/// 8; RFC 6581, section 8: layer, type and codes.
#[test]
fn every_error_that_the_rfcs_name() {
    let lists: [(u8, u8, &[u8]); 7] = [
        (0, 0, &[0x00]),
        (0, 1, &[0x00, 0x01, 0x02, 0x03, 0x04, 0x09, 0xff]),
        (0, 2, &[0x05, 0x06, 0x07, 0x08, 0x09, 0xff]),
        (1, 0, &[0x00]),
        (1, 1, &[0x00, 0x01, 0x02, 0x03, 0x04]),
        (1, 2, &[0x01, 0x02, 0x03, 0x04, 0x05, 0x06]),
        (2, 0, &[0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07]),
    ];
    let mut named = 0;
    for (layer, kind, codes) in lists {
        for &code in codes {
            let error = ErrorCode::from_numbers([layer, kind, code]);
            assert!(!matches!(error, ErrorCode::Unknown { .. }), "{layer} {kind} {code}");
            assert_eq!(error.numbers(), [layer, kind, code]);
            named += 1;
        }
    }
    assert_eq!(ErrorCode::all().count(), named);
    let unknown = ErrorCode::from_numbers([1, 2, 0x77]);
    assert_eq!(unknown, ErrorCode::Unknown { layer: 1, kind: 2, code: 0x77 });
    assert_eq!(unknown.numbers(), [1, 2, 0x77]);
}

/// RFC 5040, section 4.8: control field, then length and headers as indicated
/// by bits M, D and R.
#[test]
fn terminate_byte_for_byte() {
    let request_header = hex("41 41 00000000 00000001 00000001 00000000");
    let request = hex("01020304 1112131415161718 21222324 31323334 4142434445464748");
    let refused = Terminate::about(ErrorCode::ProtectionAccess, 46, &request_header, &request);
    let mut figure = hex("01 02 e000 002e");
    figure.extend_from_slice(&request_header);
    figure.extend_from_slice(&request);
    assert_eq!(refused.encode().as_slice(), figure);
    assert_eq!(Terminate::decode(&figure), Ok(refused));

    let write_header = hex("c1 40 11223344 0102030405060708");
    let bounds = Terminate::about(ErrorCode::TaggedBounds, 0x0514, &write_header, &[]);
    let mut figure = hex("11 01 c000 0514");
    figure.extend_from_slice(&write_header);
    assert_eq!(bounds.encode().as_slice(), figure);
    assert_eq!(Terminate::decode(&figure), Ok(bounds));

    // A DDP error quotes no request, an MPA error nothing at all.
    let queue = Terminate::about(ErrorCode::UntaggedNoBuffer, 46, &request_header, &request);
    assert_eq!(queue.encode()[..6], *hex("12 02 c000 002e"));
    assert_eq!(queue.encode().len(), 6 + 18);
    let crc = Terminate::about(ErrorCode::MpaCrc, 46, &request_header, &request);
    assert_eq!(crc.encode().as_slice(), hex("20 02 0000"));
    assert_eq!(Terminate::decode(&hex("20 02 0000")), Ok(Terminate::alone(ErrorCode::MpaCrc)));

    // RFC 5040, figure 10: a remote operation error quotes no request.
    let opcode = Terminate::about(ErrorCode::UnexpectedOpcode, 46, &request_header, &request);
    assert_eq!(opcode.encode()[..6], *hex("02 06 c000 002e"));
    assert_eq!(opcode.encode().len(), 6 + 18);
    let local = Terminate::about(ErrorCode::RdmapCatastrophic, 46, &request_header, &request);
    assert_eq!(local.encode().as_slice(), hex("00 00 0000"));

    // RFC 7306, section 8.1: of an atomic request the DDP header alone.
    let atomic_header = hex("41 4a 00000000 00000001 00000001 00000000");
    let rights = Terminate::about(ErrorCode::ProtectionAccess, 70, &atomic_header, &[9; 52]);
    assert_eq!(rights.encode().as_slice(), [hex("01 02 c000 0046"), atomic_header].concat());

    // A truncated Terminate still has its error.
    assert_eq!(Terminate::decode(&hex("11 01 c000 05")).unwrap().error, ErrorCode::TaggedBounds);
    assert_eq!(Terminate::decode(&hex("11 01 c0")), Err(RdmapError::Length { bytes: 3, expected: 4 }));
}

/// Linux' siw on a little-endian machine (`struct iwarp_terminate`): the layer
/// in the lower half of the first byte, the type in the upper, bits M, D and R
/// from the lowest bit on.
#[test]
fn a_terminate_of_siw_is_decoded() {
    let request_header = hex("41 41 00000000 00000001 00000001 00000000");
    let request = hex("01020304 1112131415161718 21222324 31323334 4142434445464748");
    let siw = [hex("10 02 0700 002e"), request_header.clone(), request.clone()].concat();
    let refused = Terminate::about(ErrorCode::ProtectionAccess, 46, &request_header, &request);
    assert_eq!(Terminate::decode(&siw), Ok(refused));

    let write_header = hex("c1 40 11223344 0102030405060708");
    let siw = [hex("11 01 0300 0514"), write_header.clone()].concat();
    assert_eq!(
        Terminate::decode(&siw),
        Ok(Terminate::about(ErrorCode::TaggedBounds, 0x0514, &write_header, &[]))
    );
    let siw = [hex("21 02 0300 0514"), request_header.clone()].concat();
    assert_eq!(Terminate::decode(&siw).unwrap().error, ErrorCode::UntaggedNoBuffer);
    // Of the transport: nothing is quoted, and it is undefined in the standard
    // layout.
    assert_eq!(Terminate::decode(&hex("02 02 0000")), Ok(Terminate::alone(ErrorCode::MpaCrc)));
    // A defined error is decoded as such, quoted or not.
    assert_eq!(Terminate::decode(&hex("02 06 0000")).unwrap().error, ErrorCode::UnexpectedOpcode);
    assert_eq!(Terminate::decode(&hex("20 06 0000")).unwrap().error, ErrorCode::MpaInsufficientIrd);
}
