//! The rules, in their order. Each evaluates the facts and names a cause or
//! nothing; the thresholds were measured on Linux 6.18 over 20 ms.

mod bottleneck;
mod buffers;
mod contention;
mod flows;
mod hosts;
mod interfaces;
pub(crate) mod losses;
mod part_time;
mod path;
mod processing;
mod settings;
mod transport;

use clearstream_schema::diagnosis::{Cause, Finding};

use crate::{experiments::contradiction, facts::Facts};

pub(crate) use path::{hosts_are_busy, other_congestion_control};

type Rule = fn(&Facts<'_>) -> Option<Finding>;

/// First physical limits, which cap all later ones; then the cores that
/// the flow does not get, which blur all later signatures; then what each flow and
/// its sockets report; then the path; then the processors, which show only where
/// the sockets are not the limit.
const LIMITS: [Rule; 29] = [
    hosts::path_mtu,
    hosts::pcie,
    hosts::line_rate,
    hosts::memory_pressure,
    transport::pacing_of_socket,
    contention::quota,
    contention::others,
    flows::uneven,
    path::congestion_control,
    transport::sender_pauses,
    contention::shared_core,
    buffers::tiny_near,
    processing::slow_reader,
    transport::receiver_window,
    transport::send_buffer,
    processing::collision,
    processing::packet_core,
    part_time::pauses,
    path::policer,
    losses::reordering,
    losses::loss,
    path::path_capacity,
    bottleneck::short_full_queue,
    flows::uneven_experiment,
    bottleneck::other_traffic,
    losses::short_queue,
    processing::cpu,
    transport::sender_application,
    transport::ramping,
];

/// Faults that exist whether or not they limit now.
const FAULTS: [Rule; 5] = [
    hosts::memory_units,
    hosts::narrow_slot,
    interfaces::interface_loss,
    interfaces::pause_frames,
    hosts::receive_overrun,
];

/// Result of the rules.
pub(crate) struct Found {
    /// The limit.
    pub(crate) limit: Option<Finding>,
    /// Other faults.
    pub(crate) others: Vec<Finding>,
    /// Limits that matched and were refuted, with the experiments that contradict them.
    pub(crate) refuted: Vec<String>,
}

/// The first limit that no experiment contradicts, and the other faults that
/// exist. A later limit that matches, too, is no second finding: the first
/// one explains it.
pub(crate) fn find(facts: &Facts<'_>) -> Found {
    let (mut limit, mut refuted) = (None, Vec::new());
    for finding in LIMITS.iter().filter_map(|rule| rule(facts)) {
        match contradiction(facts, &finding) {
            Some(why) => refuted.push(why),
            None => {
                limit = Some(settings::named(facts, finding));
                break;
            }
        }
    }
    refuted.dedup();
    let same = |finding: &Finding| {
        limit.as_ref().is_some_and(|limit: &Finding| {
            std::mem::discriminant(&limit.cause) == std::mem::discriminant(&finding.cause)
        })
    };
    // Beside other processes that hold the cores nothing else is concluded.
    let contended = matches!(limit, Some(Finding { cause: Cause::Contention { .. }, .. }));
    let faults = FAULTS.iter().filter(|_| !contended).filter_map(|rule| rule(facts));
    let others = faults.filter(|finding| !same(finding)).collect();
    Found { limit, others, refuted }
}
