//! The rules, in their order. Each looks at the facts and names a cause or
//! nothing; the thresholds were measured on Linux 6.18 over 20 ms.

mod contention;
mod flows;
mod hosts;
pub(crate) mod losses;
mod path;
mod processing;
mod transport;

use clearstream_schema::diagnosis::{Cause, Finding};

use crate::{experiments::contradiction, facts::Facts};

pub(crate) use path::other_congestion_control;

type Rule = fn(&Facts<'_>) -> Option<Finding>;

/// First the physical, which caps everything behind it; then the cores that
/// the flow does not get, which blur everything else; then what each flow and
/// its sockets say; then the path; then the processors, which show only where
/// the sockets are not the limit.
const LIMITS: [Rule; 23] = [
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
    processing::slow_reader,
    transport::receiver_window,
    transport::send_buffer,
    processing::collision,
    path::policer,
    losses::loss,
    path::path_capacity,
    flows::uneven_experiment,
    losses::short_queue,
    processing::cpu,
    transport::sender_application,
    transport::ramping,
];

/// What is wrong whether or not it limits now.
const FAULTS: [Rule; 4] =
    [hosts::memory_units, hosts::narrow_slot, hosts::interface_loss, hosts::receive_overrun];

/// What the rules found.
pub(crate) struct Found {
    /// The limit.
    pub(crate) limit: Option<Finding>,
    /// Other things that are wrong.
    pub(crate) others: Vec<Finding>,
    /// Why limits that looked so are none: what experiments said against them.
    pub(crate) refuted: Vec<String>,
}

/// The first limit that no experiment contradicts, and the other things that
/// are wrong. A later limit that matches, too, is no second finding: the first
/// one is why it looks so.
pub(crate) fn find(facts: &Facts<'_>) -> Found {
    let (mut limit, mut refuted) = (None, Vec::new());
    for finding in LIMITS.iter().filter_map(|rule| rule(facts)) {
        match contradiction(facts, &finding) {
            Some(why) => refuted.push(why),
            None => {
                limit = Some(finding);
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
