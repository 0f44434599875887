//! Caveats that follow from the configuration and the results.

use crate::overlap::{OverlapConfig, OverlapPoint};
use clearstream_schema::{human, notice::Notice};

/// Availability above which the reference, the work alone, must have been disturbed.
const AVAILABILITY_MAX: f64 = 1.05;

/// Notices of a measurement.
pub(super) fn notices(config: &OverlapConfig, points: &[OverlapPoint]) -> Vec<Notice> {
    let mut notices = Vec::new();
    if config.verify {
        notices.push(Notice {
            id: "verified".to_owned(),
            message:
                "every byte was generated and checked within the measured time: compare rates and availability only \
                      with those of other verified runs"
                    .to_owned(),
        });
    }
    let few = |point: &&OverlapPoint| point.client_received_count < u64::from(config.window);
    if let Some(point) = points.iter().find(few) {
        notices.push(Notice {
            id: "few-messages".to_owned(),
            message: format!(
                "only {} messages arrived in {} beside work of {} iterations: a longer duration, or more iterations, \
                 give a bandwidth",
                point.client_received_count,
                human::count(point.cycle_count, "poll"),
                point.work_count
            ),
        });
    }
    if let Some(point) = points.iter().find(|point| point.availability_ratio > AVAILABILITY_MAX) {
        notices.push(Notice {
            id: "work-alone-disturbed".to_owned(),
            message: format!(
                "{} iterations of work took longer alone than beside messages: other programs used the core; pin \
                 the client to a free one (--client-core)",
                point.work_count
            ),
        });
    }
    notices
}
