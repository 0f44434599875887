//! Connections with every operation, as dissected by tshark.

use std::path::Path;
use std::process::Command;

use clearstream_iwarp::ddp::Header;
use clearstream_iwarp::mpa::{Framer, Negotiated, Offer, RtrKinds, conclude, initiate, respond};
use clearstream_iwarp::rdmap::{
    AtomicOperation, AtomicRequest, AtomicResponse, ErrorCode, Opcode, ReadRequest, Terminate,
};
use clearstream_iwarp::stag::Stag;
use clearstream_testkit::pcap;

use crate::wire::conversation::{fpdu, tagged, untagged};

/// A message of either side (0: the client), and the fields expected from
/// tshark.
struct Message {
    side: usize,
    header: Header,
    payload: Vec<u8>,
    fields: Vec<(&'static str, String)>,
}

fn message(side: usize, header: Header, payload: &[u8], fields: &[(&'static str, &str)]) -> Message {
    let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Message { side, header, payload: payload.to_vec(), fields }
}

/// Fields requested from tshark; each message lists those that it must have.
const FIELDS: [&str; 40] = [
    "iwarp_mpa.req",
    "iwarp_mpa.rep",
    "iwarp_mpa.rev",
    "iwarp_mpa.marker_flag",
    "iwarp_mpa.crc_flag",
    "iwarp_mpa.rej_flag",
    "iwarp_mpa.pdlength",
    "iwarp_mpa.privatedata",
    "iwarp_mpa.ulpdulength",
    "iwarp_ddp.tagged_flag",
    "iwarp_ddp.last_flag",
    "iwarp_ddp.dv",
    "iwarp_ddp.stag",
    "iwarp_ddp.tagged_offset",
    "iwarp_ddp.qn",
    "iwarp_ddp.msn",
    "iwarp_ddp.mo",
    "iwarp_rdma.version",
    "iwarp_rdma.opcode",
    "iwarp_rdma.inval_stag",
    "iwarp_rdma.sinkstag",
    "iwarp_rdma.sinkto",
    "iwarp_rdma.rdmardsz",
    "iwarp_rdma.srcstag",
    "iwarp_rdma.srcto",
    "iwarp_rdma.term_layer",
    "iwarp_rdma.term_etype_rdma",
    "iwarp_rdma.term_etype_ddp",
    "iwarp_rdma.term_etype_llp",
    "iwarp_rdma.term_errcode_rdma",
    "iwarp_rdma.term_errcode_ddp_tagged",
    "iwarp_rdma.term_errcode_ddp_untagged",
    "iwarp_rdma.term_errcode_llp",
    "iwarp_rdma.term_ddp_seg_len",
    "iwarp_rdma.term_ddp_h",
    "iwarp_rdma.term_rdma_h",
    "iwarp_rdma.atomic.opcode",
    "iwarp_rdma.atomic.add_data",
    "iwarp_rdma.atomic.swap_data",
    "iwarp_rdma.atomic.original_remote_data_value",
];

/// A message of each operation, requests with their responses.
fn operations() -> Vec<Message> {
    let text = b"eighteen bytes...!".as_slice();
    let large = vec![0x5a; 1500];
    let read = ReadRequest {
        sink: Stag(0x0000_0a01),
        sink_offset: 0x7000,
        length: 1000,
        source: Stag(0x0000_0b02),
        source_offset: 0x9000,
    };
    let add = AtomicRequest {
        operation: AtomicOperation::FetchAdd { add: 7, mask: 0 },
        request: 1,
        stag: Stag(0x0000_0b02),
        offset: 0x9008,
    };
    let swap = AtomicRequest {
        operation: AtomicOperation::CompareSwap {
            swap: 9,
            swap_mask: u64::MAX,
            compare: 7,
            compare_mask: u64::MAX,
        },
        request: 2,
        ..add
    };
    let original = AtomicResponse { request: 1, original: 1234 };
    let second_original = AtomicResponse { request: 2, original: 1241 };
    let invalidating = |opcode: Opcode, msn| Header::Untagged {
        last: true,
        queue: 0,
        msn,
        offset: 0,
        ulp: opcode.control(),
        ulp_reserved: 0x0000_0c03,
    };
    let sends = |opcode, msn: u32, expected| {
        let msn_text = ["", "1", "2", "3", "4", "5", "6", "7", "8"][msn as usize];
        let fields = [("iwarp_rdma.opcode", expected), ("iwarp_ddp.qn", "0"), ("iwarp_ddp.msn", msn_text)];
        message(0, untagged(opcode, msn, 0, true), text, &fields)
    };
    let mut all = vec![
        sends(Opcode::Send, 1, "0x03"),
        message(
            0,
            invalidating(Opcode::SendInvalidate, 2),
            text,
            &[("iwarp_rdma.opcode", "0x04"), ("iwarp_rdma.inval_stag", "3075")],
        ),
        sends(Opcode::SendSolicited, 3, "0x05"),
        message(
            0,
            invalidating(Opcode::SendSolicitedInvalidate, 4),
            text,
            &[("iwarp_rdma.opcode", "0x06"), ("iwarp_rdma.inval_stag", "3075")],
        ),
        message(
            0,
            untagged(Opcode::Immediate, 5, 0, true),
            &[1; 8],
            &[("iwarp_rdma.opcode", "0x08"), ("iwarp_mpa.ulpdulength", "26")],
        ),
        message(
            0,
            untagged(Opcode::ImmediateSolicited, 6, 0, true),
            &[2; 8],
            &[("iwarp_rdma.opcode", "0x09")],
        ),
        // A message of two segments, and one of no bytes.
        message(
            0,
            tagged(Opcode::Write, 0xa1b2_c3d4, 0x1000, false),
            &large,
            &[
                ("iwarp_rdma.opcode", "0x00"),
                ("iwarp_ddp.tagged_flag", "1"),
                ("iwarp_ddp.last_flag", "0"),
                ("iwarp_ddp.stag", "0xa1b2c3d4"),
                ("iwarp_ddp.tagged_offset", "0x0000000000001000"),
                ("iwarp_mpa.ulpdulength", "1514"),
            ],
        ),
        message(
            0,
            tagged(Opcode::Write, 0xa1b2_c3d4, 0x1000 + 1500, true),
            &large[..101],
            &[("iwarp_ddp.last_flag", "1"), ("iwarp_ddp.tagged_offset", "0x00000000000015dc")],
        ),
        message(0, tagged(Opcode::Write, 1, 0, true), &[], &[("iwarp_mpa.ulpdulength", "14")]),
        message(
            0,
            untagged(Opcode::ReadRequest, 1, 0, true),
            &read.encode(),
            &[
                ("iwarp_rdma.opcode", "0x01"),
                ("iwarp_ddp.qn", "1"),
                ("iwarp_rdma.sinkstag", "0x00000a01"),
                ("iwarp_rdma.sinkto", "0x0000000000007000"),
                ("iwarp_rdma.rdmardsz", "1000"),
                ("iwarp_rdma.srcstag", "0x00000b02"),
                ("iwarp_rdma.srcto", "0x0000000000009000"),
            ],
        ),
        message(
            1,
            tagged(Opcode::ReadResponse, 0x0a01, 0x7000, true),
            &large[..1000],
            &[("iwarp_rdma.opcode", "0x02"), ("iwarp_ddp.stag", "0x00000a01")],
        ),
        message(
            0,
            untagged(Opcode::AtomicRequest, 2, 0, true),
            &add.encode(),
            &[
                ("iwarp_rdma.opcode", "0x0a"),
                ("iwarp_ddp.qn", "1"),
                ("iwarp_rdma.atomic.opcode", "0"),
                ("iwarp_rdma.atomic.add_data", "7"),
            ],
        ),
        message(
            1,
            untagged(Opcode::AtomicResponse, 1, 0, true),
            &original.encode(),
            &[
                ("iwarp_rdma.opcode", "0x0b"),
                ("iwarp_ddp.qn", "3"),
                ("iwarp_rdma.atomic.original_remote_data_value", "1234"),
            ],
        ),
        message(
            0,
            untagged(Opcode::AtomicRequest, 3, 0, true),
            &swap.encode(),
            &[("iwarp_rdma.atomic.opcode", "2"), ("iwarp_rdma.atomic.swap_data", "9")],
        ),
        message(
            1,
            untagged(Opcode::AtomicResponse, 2, 0, true),
            &second_original.encode(),
            &[("iwarp_rdma.atomic.original_remote_data_value", "1241")],
        ),
    ];
    all.iter_mut().for_each(|message| {
        message.fields.push(("iwarp_ddp.dv", "1".to_owned()));
        message.fields.push(("iwarp_rdma.version", "1".to_owned()));
    });
    all
}

/// The Terminate of each error, with its quoted headers.
fn terminates() -> Vec<Message> {
    ErrorCode::all().map(terminate).collect()
}

fn terminate(error: ErrorCode) -> Message {
    let [layer, kind, code] = error.numbers();
    let (tagged_header, untagged_header) =
        (tagged(Opcode::Write, 0x0b02, 0x9000, true), untagged(Opcode::ReadRequest, 1, 0, true));
    let header = if [layer, kind] == [1, 1] { tagged_header } else { untagged_header };
    let (ddp, length) = header.encode();
    // tshark assumes a tagged segment for type 1 in every layer: its output for
    // the quoted headers is then four bytes off, so that is not compared.
    let request = if [layer, kind] == [0, 1] { vec![0xee; 28] } else { vec![] };
    let terminate = Terminate::about(error, 0x0102, &ddp[..length], &request);
    let mut fields = vec![("iwarp_rdma.opcode", "0x07".to_owned()), ("iwarp_ddp.qn", "2".to_owned())];
    let hex = |value: u8| format!("0x{value:02x}");
    fields.push(("iwarp_rdma.term_layer", hex(layer)));
    let (kind_field, code_field) = match [layer, kind] {
        [0, 0] => ("iwarp_rdma.term_etype_rdma", None),
        [0, _] => ("iwarp_rdma.term_etype_rdma", Some("iwarp_rdma.term_errcode_rdma")),
        [1, 0] => ("iwarp_rdma.term_etype_ddp", None),
        [1, 1] => ("iwarp_rdma.term_etype_ddp", Some("iwarp_rdma.term_errcode_ddp_tagged")),
        [1, _] => ("iwarp_rdma.term_etype_ddp", Some("iwarp_rdma.term_errcode_ddp_untagged")),
        _ => ("iwarp_rdma.term_etype_llp", Some("iwarp_rdma.term_errcode_llp")),
    };
    fields.push((kind_field, hex(kind)));
    fields.extend(code_field.map(|field| (field, hex(code))));
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let quotes = terminate.quoted.segment_length.is_some();
    if quotes && [layer, kind] != [0, 1] {
        fields.push(("iwarp_rdma.term_ddp_seg_len", "0102".to_owned()));
        fields.push(("iwarp_rdma.term_ddp_h", digits(&ddp[..length])));
    }
    Message {
        side: 1,
        header: untagged(Opcode::Terminate, 1, 0, true),
        payload: terminate.encode().to_vec(),
        fields,
    }
}

/// Connection parameters.
#[derive(Clone, Copy, Debug)]
struct Parameters {
    crc: bool,
    markers: bool,
    revision: u8,
}

fn offer(parameters: Parameters, private_data: &[u8]) -> Offer {
    Offer {
        markers: parameters.markers,
        crc: parameters.crc,
        large_fpdus: false,
        immediate_data: false,
        revision: parameters.revision,
        ird: 4,
        ord: 4,
        peer_to_peer: (parameters.revision == 2).then_some(RtrKinds::ALL),
        private_data: private_data.to_vec(),
    }
}

/// Writes a capture and dissects it with tshark; returns its output for each
/// message.
fn dissect(parameters: Parameters, messages: &[Message]) -> Vec<String> {
    let client = offer(parameters, b"hello");
    let request = initiate(&client);
    let (reply, server_agreed) = respond(&offer(parameters, &[]), &request).unwrap();
    let client_agreed: Negotiated = conclude(&client, &reply).unwrap();
    let mut framers = [Framer::new(&client_agreed), Framer::new(&server_agreed)];
    let mut packets = vec![(0, request.encode().unwrap()), (1, reply.encode().unwrap())];
    for message in messages {
        packets.push((message.side, fpdu(&mut framers[message.side], message.header, &message.payload)));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conversation.pcap");
    pcap::write(&file, &packets);

    let shown = tshark(&file, &["-V"]);
    for wrong in ["Malformed", "Bad CRC32", "Unreassembled"] {
        assert!(!shown.contains(wrong), "{parameters:?}: {wrong}\n{shown}");
    }
    // RFC 5044 and tshark do not support revision 2.
    let warnings = shown.matches("[Expert Info").count();
    let revision = shown.matches("[Expert Info (Warning/Request): Rev field is NOT set to one").count();
    let flags = shown.matches("[Expert Info (Warning/Request): Res field is NOT set to zero").count();
    let handshake = shown.matches("[Expert Info (Chat/Sequence): Connection establish").count();
    assert_eq!(warnings, revision + flags + handshake, "{parameters:?}\n{shown}");
    assert_eq!(
        shown.matches("(Good CRC32)").count(),
        if parameters.crc { messages.len() } else { 0 },
        "{parameters:?}"
    );
    let markers = if parameters.markers { markers_of(&framers) } else { 0 };
    assert_eq!(shown.matches("FPDU back pointer").count(), markers, "{parameters:?}");

    let rows = rows(&file);
    let flag = |set: bool| if set { "1" } else { "0" }.to_owned();
    let setup = |private: &str| {
        vec![
            ("iwarp_mpa.rev", parameters.revision.to_string()),
            ("iwarp_mpa.marker_flag", flag(parameters.markers)),
            ("iwarp_mpa.crc_flag", flag(parameters.crc)),
            ("iwarp_mpa.rej_flag", flag(false)),
            ("iwarp_mpa.privatedata", private.to_owned()),
        ]
    };
    let (request_data, reply_data) =
        if parameters.revision == 2 { ("c004c00468656c6c6f", "80048004") } else { ("68656c6c6f", "") };
    compare(parameters, &rows[0], &setup(request_data));
    compare(parameters, &rows[1], &setup(reply_data));
    assert_eq!(rows.len(), 2 + messages.len(), "{parameters:?}");
    for (row, message) in rows[2..].iter().zip(messages) {
        compare(parameters, row, &message.fields);
    }
    let frames: Vec<_> = shown.split("\nFrame ").map(str::to_owned).collect();
    frames[frames.len() - messages.len()..].to_vec()
}

/// Number of markers sent by both sides: one at each multiple of 512.
fn markers_of(framers: &[Framer; 2]) -> usize {
    framers.iter().map(|framer| framer.position().div_ceil(512) as usize).sum()
}

fn compare(parameters: Parameters, row: &[String], expected: &[(&str, String)]) {
    for (name, value) in expected {
        let column = FIELDS.iter().position(|field| field == name).unwrap();
        assert_eq!(&row[column], value, "{parameters:?} {name} in {row:?}");
    }
}

fn tshark(file: &Path, arguments: &[&str]) -> String {
    let output = Command::new("tshark")
        .args(["-n", "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct", "-r"])
        .arg(file)
        .args(arguments)
        .output()
        .expect("tshark is needed: .ci/install test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a row of [`FIELDS`] for each MPA packet.
fn rows(file: &Path) -> Vec<Vec<String>> {
    let mut arguments = vec!["-Y", "iwarp_mpa", "-T", "fields", "-E", "separator=;"];
    for field in FIELDS {
        arguments.extend(["-e", field]);
    }
    tshark(file, &arguments).lines().map(|line| line.split(';').map(str::to_owned).collect()).collect()
}

const PARAMETERS: [Parameters; 5] = [
    Parameters { crc: false, markers: false, revision: 1 },
    Parameters { crc: true, markers: false, revision: 1 },
    Parameters { crc: true, markers: false, revision: 2 },
    Parameters { crc: false, markers: true, revision: 2 },
    Parameters { crc: true, markers: true, revision: 1 },
];

#[test]
fn tshark_reads_every_operation() {
    for parameters in PARAMETERS {
        dissect(parameters, &operations());
    }
}

/// Names of RFC 5040, figure 9; RFC 5041, section 7.2; RFC 5044, section 8, in
/// tshark's wording where it differs. tshark has none of RFC 6581.
const NAMES: [(ErrorCode, &str); 30] = [
    (ErrorCode::RdmapCatastrophic, "Local Catastrophic Error"),
    (ErrorCode::ProtectionStag, "Invalid STag"),
    (ErrorCode::ProtectionBounds, "Base or bounds violation"),
    (ErrorCode::ProtectionAccess, "Access rights violation"),
    (ErrorCode::ProtectionNotAssociated, "STag not associated with RDMAP Stream"),
    (ErrorCode::ProtectionWrap, "TO wrap"),
    (ErrorCode::ProtectionInvalidate, "STag cannot be Invalidated"),
    (ErrorCode::ProtectionUnspecified, "Unspecific Error"),
    (ErrorCode::RdmapVersion, "Invalid RDMAP version"),
    (ErrorCode::UnexpectedOpcode, "Unexpected OpCode"),
    (ErrorCode::OperationStream, "Catastrophic error, localized to RDMAP Stream"),
    (ErrorCode::OperationGlobal, "Catastrophic error, global"),
    (ErrorCode::OperationInvalidate, "STag cannot be Invalidated"),
    (ErrorCode::OperationUnspecified, "Unspecific Error"),
    (ErrorCode::DdpCatastrophic, "Local Catastrophic Error"),
    (ErrorCode::TaggedStag, "Invalid STag"),
    (ErrorCode::TaggedBounds, "Base or bounds violation"),
    (ErrorCode::TaggedNotAssociated, "STag not associated with DDP Stream"),
    (ErrorCode::TaggedWrap, "TO wrap"),
    (ErrorCode::TaggedVersion, "Invalid DDP version"),
    (ErrorCode::UntaggedQueue, "Invalid QN"),
    (ErrorCode::UntaggedNoBuffer, "Invalid MSN - no buffer available"),
    (ErrorCode::UntaggedMsn, "Invalid MSN - MSN range is not valid"),
    (ErrorCode::UntaggedOffset, "Invalid MO"),
    (ErrorCode::UntaggedTooLong, "DDP Message too long for available buffer"),
    (ErrorCode::UntaggedVersion, "Invalid DDP version"),
    (ErrorCode::MpaConnectionLost, "TCP connection closed, terminated or lost"),
    (ErrorCode::MpaCrc, "MPA CRC Error"),
    (ErrorCode::MpaMarker, "MPA Marker and ULPDU Length field mismatch"),
    (ErrorCode::MpaInvalidSetup, "Invalid MPA Request Frame or MPA Response Frame"),
];

#[test]
fn tshark_reads_and_names_every_terminate() {
    let shown = dissect(PARAMETERS[1], &terminates());
    let mut named = 0;
    for (error, shown) in ErrorCode::all().zip(&shown) {
        let [layer, kind, _] = error.numbers();
        let layer_name = ["RDMA", "DDP", "LLP"][usize::from(layer)];
        let kind_name = match [layer, kind] {
            [0 | 1, 0] => "Local Catastrophic Error",
            [0, 1] => "Remote Protection Error",
            [0, 2] => "Remote Operation Error",
            [1, 1] => "Tagged Buffer Error",
            [1, 2] => "Untagged Buffer Error",
            _ => "MPA Error",
        };
        let name = NAMES.iter().find(|(of, _)| *of == error).map(|(_, name)| *name);
        for expected in [Some(layer_name), Some(kind_name), name].into_iter().flatten() {
            assert!(shown.contains(&format!(": {expected} (")), "{error:?}: no {expected} in\n{shown}");
        }
        named += usize::from(name.is_some());
    }
    assert_eq!(named, NAMES.len());
}
