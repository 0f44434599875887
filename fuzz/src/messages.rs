//! Messages of sessions and of data connections: what a peer says after it was admitted, and what a stranger sends to get
//! there.

use clearstream_control::{Call, CallEvent, Shutdown};
use clearstream_diagnose::passive::{ExplainSockets, ObserveSockets};
use clearstream_explore::ranks as explore;
use clearstream_flow::{calls as flow, preamble};
use clearstream_host::calls as host;
use clearstream_live::ReadLive;
use clearstream_messages::{connection, message, overlap};
use clearstream_plan::calls as plan;
use clearstream_probe::{calls as probe, wire};
use clearstream_prove::calls as prove;
use clearstream_rdma::{
    calls as rdma,
    negotiation::{Message, PrivateData},
    perftest::format,
};
use clearstream_schema::{
    control::Cookie,
    json::{from_slice, to_vec},
    watch::{WatchReply, WatchRequest},
};
use clearstream_storage::{calls as storage, semantics::calls as semantics};
use clearstream_watch::packet;
use clearstream_workload::two_sided;
use serde::{Serialize, de::DeserializeOwned};

/// What is accepted is accepted again as it is written.
fn read<T: Serialize + DeserializeOwned>(body: &[u8]) {
    let Ok(value) = from_slice::<T>(body) else { return };
    let written = to_vec(&value).unwrap();
    let again = from_slice::<T>(&written).map(|value| to_vec(&value).unwrap());
    assert_eq!(again.unwrap(), written, "{}", std::any::type_name::<T>());
}

fn call<C: Call>(body: &[u8]) {
    let _ = from_slice::<C>(body).map(|call| call.reply_within());
    read::<C>(body);
    read::<C::Reply>(body);
}

fn event<E: CallEvent>(body: &[u8]) {
    read::<E>(body);
}

/// Bodies of calls, of their replies, and of events: each as every type.
pub(crate) fn calls(body: &[u8]) {
    let calls = [
        call::<Shutdown>,
        call::<ExplainSockets>,
        call::<ObserveSockets>,
        call::<two_sided::Listen<explore::Sides>>,
        call::<two_sided::Run<explore::Sides>>,
        call::<two_sided::Stop<explore::Sides>>,
        call::<flow::Listen>,
        call::<flow::Connect>,
        call::<flow::Start>,
        call::<flow::Stop>,
        call::<host::Inspect>,
        call::<host::Capture>,
        call::<ReadLive>,
        call::<two_sided::Listen<message::Sides>>,
        call::<two_sided::Run<message::Sides>>,
        call::<two_sided::Stop<message::Sides>>,
        call::<two_sided::Listen<overlap::Sides>>,
        call::<two_sided::Run<overlap::Sides>>,
        call::<two_sided::Stop<overlap::Sides>>,
        call::<plan::Read>,
        call::<plan::Apply>,
        call::<plan::ApplyPending>,
        call::<plan::Keep>,
        call::<plan::Verify>,
        call::<plan::Revert>,
        call::<plan::History>,
        call::<plan::Recover>,
        call::<probe::Listen>,
        call::<probe::Run>,
        call::<probe::Close>,
        call::<prove::Lookup>,
        call::<prove::Listen>,
        call::<prove::Connect>,
        call::<prove::Observe>,
        call::<prove::Observed>,
        call::<prove::PathMtu>,
        call::<prove::Facts>,
        call::<prove::Counters>,
        call::<prove::Close>,
        call::<rdma::Serve>,
        call::<rdma::Measure>,
        call::<rdma::TimeVerbs>,
        call::<rdma::Stop>,
        call::<semantics::Enter>,
        call::<semantics::Act>,
        call::<semantics::Leave>,
        call::<storage::StorageRun>,
        call::<storage::StorageStop>,
    ];
    let events = [
        event::<two_sided::Finished<explore::Sides>>,
        event::<flow::Ready>,
        event::<flow::IntervalPassed>,
        event::<flow::Finished>,
        event::<host::CaptureChunk>,
        event::<two_sided::PointMeasured<message::Sides>>,
        event::<two_sided::Finished<message::Sides>>,
        event::<two_sided::PointMeasured<overlap::Sides>>,
        event::<two_sided::Finished<overlap::Sides>>,
        event::<rdma::Progress>,
        event::<storage::StorageMeasured>,
        event::<storage::StorageFinished>,
    ];
    calls.iter().chain(&events).for_each(|read| read(body));
}

/// What a stranger sends first on a data connection, of the cookie that a preamble in the corpus has: only that is
/// admitted, whole.
pub(crate) fn preambles(bytes: &[u8]) {
    const COOKIE: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let cookie = Cookie("000102030405060708090a0b0c0d0e0f".to_owned());
    let secret = preamble::Secret::parse(&cookie).unwrap();
    if let Some(flow) = secret.flow_of(bytes) {
        assert_eq!(secret.preamble(flow), bytes);
    }
    let secret = connection::Secret::parse(&cookie).unwrap();
    assert_eq!(secret.admits(bytes), bytes == COOKIE);
    let secret = wire::Secret::parse(&cookie).unwrap();
    if let Some(header) = wire::Header::read(&secret, bytes) {
        assert!(bytes.len() >= wire::HEADER_BYTES && header.reply_size() >= wire::HEADER_BYTES);
    }
    if let PrivateData::Request(request) = PrivateData::decode(bytes) {
        assert_eq!(request.encode(), bytes);
    }
    if let Ok(text) = str::from_utf8(bytes) {
        let cookie = Cookie(text.to_owned());
        let is_cookie = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert_eq!(preamble::Secret::parse(&cookie).is_ok(), is_cookie);
        assert_eq!(wire::Secret::parse(&cookie).is_some(), is_cookie);
        let _ = connection::Secret::parse(&cookie);
    }
}

/// Messages of the control channel of an RDMA test.
pub(crate) fn rdma_messages(text: &[u8]) {
    read::<Message>(text);
    if let Ok(Message::Memory(advert)) = from_slice(text) {
        assert_eq!(advert.of_queue_pairs(5).len(), 5);
    }
    if let Ok(Message::Open { operation, config }) = from_slice(text) {
        let _ = clearstream_rdma::validate(&config, operation);
    }
}

/// What perftest's programs exchange: version, destinations, and the report in its values.
pub(crate) fn perftest(bytes: &[u8]) {
    assert!(format::version(bytes).is_none_or(|version| !version.is_empty()));
    for bytes in [bytes, bytes.get(..format::DESTINATION_BYTES).unwrap_or_default()] {
        if let Some(destination) = format::Destination::decode(bytes) {
            assert_eq!(format::Destination::decode(&destination.encode()), Some(destination));
        }
    }
    let mut report = format::Report::default();
    for (index, value) in bytes.as_chunks::<{ format::VALUE_BYTES }>().0.iter().enumerate() {
        report.set(index, *value);
    }
}

/// Probes of a watch as they arrive, with the headers of a raw socket, and the lines of its control socket.
pub(crate) fn watch_messages(bytes: &[u8]) {
    if let Some(probe) = packet::ProbePacket::parse(bytes) {
        assert_eq!(packet::ProbePacket::parse(&probe.to_bytes()), Some(probe));
    }
    for ipv6 in [false, true] {
        if let Some((_, data)) = packet::tcp_segment(ipv6, bytes) {
            assert!(data.len() < bytes.len());
        }
        if let Some(payload) = packet::echo_reply_payload(ipv6, bytes) {
            let _ = packet::ProbePacket::parse(payload);
        }
    }
    read::<WatchRequest>(bytes);
    read::<WatchReply>(bytes);
}
