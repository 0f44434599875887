//! Effective settings and notices of a measurement.

use clearstream_iwarp::verbs::Established;
use clearstream_schema::{
    notice::Notice,
    rdma::{RdmaConfig, RdmaEffective, RdmaSide},
};

use crate::error::RdmaError;

/// Returns the effective settings, assuming the same at the server.
///
/// # Errors
/// No connected queue pair.
pub(crate) fn effective(
    config: &RdmaConfig,
    established: Option<&Established>,
) -> Result<RdmaEffective, RdmaError> {
    let established = established.ok_or_else(|| RdmaError::Fault("no queue pair".to_owned()))?;
    let (progress, wait) = (Some(config.progress), Some(config.wait()));
    let side = |address, core| RdmaSide { address, progress, wait, core };
    Ok(RdmaEffective {
        near: side(established.local, config.core),
        far: side(established.peer, config.remote_core),
        revision: established.revision,
        crc: established.crc,
        markers_sent: established.markers_out,
        markers_received: established.markers_in,
        outstanding_reads: established.ord,
        incoming_reads: established.ird,
        mulpdu_bytes: u32::try_from(established.mulpdu_bytes).unwrap_or(u32::MAX),
        inline_bytes: u32::try_from(config.inline.0).unwrap_or(u32::MAX),
        immediate: established.immediate_data,
    })
}

/// Returns notices of requested settings that are not effective.
pub(crate) fn notices(config: &RdmaConfig, effective: &RdmaEffective, depth: u32) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut note = |id: &str, message: String| notices.push(Notice { id: id.to_owned(), message });
    if !config.latency && depth < config.depth {
        note(
            "depth-limited",
            format!(
                "{depth} requests in flight instead of {}: messages that are compared need a slot each",
                config.depth
            ),
        );
    }
    if config.no_crc && effective.crc {
        note("crc-in-force", "CRCs are sent and checked: the peer requires them".to_owned());
    }
    if config.markers && !effective.markers_received {
        note("no-markers", "no markers are received: the peer does not send them".to_owned());
    }
    if effective.outstanding_reads < config.outstanding_reads {
        note(
            "fewer-reads",
            format!(
                "{} outstanding Reads instead of {}: the peer accepts no more",
                effective.outstanding_reads, config.outstanding_reads
            ),
        );
    }
    notices
}
