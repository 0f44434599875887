//! The rules, in their order. Each looks at the facts and names a cause or
//! nothing; the thresholds were measured on Linux 6.18 over 20 ms.

mod hosts;
mod processing;
mod transport;

use clearstream_schema::diagnosis::Finding;

use crate::facts::Facts;

type Rule = fn(&Facts<'_>) -> Option<Finding>;

/// First the physical, which caps everything behind it; then what the sockets
/// say; then the processors, which show only where the sockets are not the
/// limit.
const LIMITS: [Rule; 15] = [
    hosts::path_mtu,
    hosts::pcie,
    hosts::line_rate,
    hosts::memory_pressure,
    transport::pacing_of_socket,
    transport::sender_pauses,
    processing::slow_reader,
    transport::receiver_window,
    transport::send_buffer,
    processing::collision,
    transport::path_capacity,
    transport::loss,
    processing::cpu,
    transport::sender_application,
    transport::ramping,
];

/// What is wrong whether or not it limits now.
const FAULTS: [Rule; 4] =
    [hosts::memory_units, hosts::narrow_slot, hosts::interface_loss, hosts::receive_overrun];

/// The limit, and the other things that are wrong. A later limit that matches,
/// too, is no second finding: the first one is why it looks so.
pub(crate) fn find(facts: &Facts<'_>) -> (Option<Finding>, Vec<Finding>) {
    let limit = LIMITS.iter().find_map(|rule| rule(facts));
    let same = |finding: &Finding| {
        limit.as_ref().is_some_and(|limit| {
            std::mem::discriminant(&limit.cause) == std::mem::discriminant(&finding.cause)
        })
    };
    let others = FAULTS.iter().filter_map(|rule| rule(facts)).filter(|finding| !same(finding)).collect();
    (limit, others)
}
