//! Calls of a controller that describe an agent's host.

use std::time::Duration;

use clearstream_control::{
    Call, CallContext, CallEvent, Delivery, Done, Peer, PeerError, Registration, Service, encoding,
};
use clearstream_schema::{
    control::{Failure, FailureKind},
    host::HostReport,
    scope::Right,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{HostRoot, capture};

/// Bytes of a capture per event, before base64: a quarter of a frame.
pub const CAPTURE_CHUNK_BYTES: usize = 192 << 10;

/// Describes the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Inspect {}

impl Call for Inspect {
    const NAME: &'static str = "inspect";
    const NEEDS: Right = Right::Measure;
    type Reply = HostReport;
}

/// Creates the anonymized bundle; it is sent as [`CaptureChunk`]s before the reply. See [`fetch_capture`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Capture {}

impl Call for Capture {
    const NAME: &'static str = "capture";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;

    fn reply_within(&self) -> Duration {
        // Some hundred files, and a report of each interface's driver.
        const CAPTURE_WITHIN: Duration = Duration::from_secs(60);
        CAPTURE_WITHIN
    }
}

/// Part of a capture, at most [`CAPTURE_CHUNK_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureChunk {
    /// The part, in base64 on the wire.
    #[serde(rename = "base64", serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub bytes: Vec<u8>,
}

impl CallEvent for CaptureChunk {
    const NAME: &'static str = "capture-chunk";
    const DELIVERY: Delivery = Delivery::WaitsForRoom;
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&encoding::base64(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    encoding::from_base64(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Serves descriptions of this host.
#[derive(Debug, Default)]
pub struct HostAgent {}

impl Service for HostAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(|_, _: Inspect, _| Ok(crate::inspect(&HostRoot::live()))).on(Self::capture);
    }
}

impl HostAgent {
    fn capture(&mut self, _: Capture, context: &CallContext<'_>) -> Result<Done, Failure> {
        let mut bundle = Vec::new();
        capture::write(&HostRoot::live(), &mut bundle).map_err(|error| Failure {
            kind: FailureKind::File,
            message: format!("capture of the host: {error}"),
        })?;
        for part in bundle.chunks(CAPTURE_CHUNK_BYTES) {
            context.events().send(&CaptureChunk { bytes: part.to_vec() });
        }
        Ok(Done {})
    }
}

/// Requests a capture of an agent's host and returns the bundle.
///
/// # Errors
/// When the agent is lost or cannot create it.
pub fn fetch_capture(peer: &mut Peer) -> Result<Vec<u8>, PeerError> {
    peer.call(&Capture {})?;
    let mut bundle = Vec::new();
    // The parts precede the reply: they have been received already.
    while let Some(chunk) = peer.next_event_of::<CaptureChunk>(Duration::ZERO)? {
        bundle.extend(chunk.bytes);
    }
    Ok(bundle)
}
