//! Caveats that follow from the configuration and the results.

use crate::message::{MessageConfig, MessagePoint};
use clearstream_schema::notice::Notice;

/// Number of messages below which a distribution is not significant.
const SIGNIFICANT_MESSAGES: u64 = 10;

/// Notices of a measurement.
pub(super) fn notices(config: &MessageConfig, points: &[MessagePoint]) -> Vec<Notice> {
    let mut notices = Vec::new();
    if config.verify {
        notices.push(Notice {
            id: "verified".to_owned(),
            message:
                "every byte was generated and checked within the measured time: compare times and rates only with \
                      those of other verified runs"
                    .to_owned(),
        });
    }
    let few = |point: &&MessagePoint| point.server_received_count < SIGNIFICANT_MESSAGES;
    if config.iterations.is_none()
        && let Some(point) = points.iter().find(few)
    {
        notices.push(Notice {
            id: "few-iterations".to_owned(),
            message: format!(
                "only {} iterations of {} bytes fit into ten times the duration: a longer duration gives more",
                point.iteration_count, point.size_bytes
            ),
        });
    }
    notices
}
