//! Memory of all sockets: `tcp_mem` and `udp_mem`, in pages.

use clearstream_schema::tune::{Finding, FindingClass, Severity};

use super::{Facts, With};
use crate::path::bytes;

const KEYS: [&str; 2] = ["net.ipv4.tcp_mem", "net.ipv4.udp_mem"];

/// Above this fraction of the memory the last threshold does not protect the host.
const LARGEST_SHARE: f64 = 0.25;

/// Largest plausible threshold, 4 TiB: a larger one is in another unit.
const LARGEST_HOST_BYTES: f64 = (4u64 << 40) as f64;

/// Smallest plausible threshold of a host for bulk data.
const LEAST_PRESSURE_BYTES: f64 = (512u64 << 20) as f64;

const LEAVE_IT: &str = "delete the line: the kernel computes it from the memory at boot";

pub(super) fn copied_triple(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for key in KEYS {
        let Some(triple) = facts.state.triple(key) else { continue };
        let twin = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]
            .into_iter()
            .find(|other| facts.state.triple(other) == Some(triple));
        let Some(twin) = twin else { continue };
        let (page, is_known) = facts.state.page_or_usual();
        let in_bytes = triple.map(|pages| bytes(pages as f64 * page as f64));
        let message = format!(
            "the values are those of {twin}, which counts bytes; here they are pages of {page} bytes{}: {}. Every socket is squeezed once all together hold {}, until they hold less than {}",
            if is_known { "" } else { " (assumed)" },
            in_bytes.join(", "),
            in_bytes[1],
            in_bytes[0]
        );
        found.push(
            facts
                .finding(key, FindingClass::Unit, "copied-triple", Severity::Error, message)
                .advise(LEAVE_IT),
        );
    }
}

pub(super) fn order(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for key in KEYS {
        let Some([low, pressure, high]) = facts.state.triple(key) else { continue };
        if low > pressure || pressure > high {
            let message = format!(
                "low {low}, pressure {pressure}, high {high} do not ascend, and the kernel does not check it"
            );
            found.push(
                facts
                    .finding(key, FindingClass::Order, "descending", Severity::Error, message)
                    .advise(LEAVE_IT),
            );
        } else if low == pressure {
            let message = format!(
                "low and pressure are both {low} pages: the host goes in and out of pressure at one and the same number"
            );
            found.push(
                facts
                    .finding(key, FindingClass::Order, "no-room", Severity::Warning, message)
                    .advise("low = 0.75 x pressure, or delete the line"),
            );
        }
    }
}

/// Thresholds compared with the memory of the host.
pub(super) fn against_memory(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for key in KEYS {
        let Some(triple) = facts.state.triple(key) else { continue };
        let (page, is_known) = facts.state.page_or_usual();
        let sizes = triple.map(|pages| pages as f64 * page as f64);
        let free = facts
            .state
            .memory_bytes
            .map(|all| all.saturating_sub(facts.state.huge_bytes.unwrap_or(0)) as f64);
        let spelled = format!(
            "{} pages of {page} bytes{} are {}, {} and {}",
            triple.map(|pages| pages.to_string()).join(", "),
            if is_known { "" } else { " (assumed)" },
            bytes(sizes[0]),
            bytes(sizes[1]),
            bytes(sizes[2])
        );
        let finding = match free {
            Some(free) if sizes[1] > free => {
                let message = format!(
                    "{spelled}; the host has {}: the protection never starts. As bytes the values would be {}, {} and {}, which is probably what was meant",
                    bytes(free),
                    bytes(triple[0] as f64),
                    bytes(triple[1] as f64),
                    bytes(triple[2] as f64)
                );
                facts.finding(key, FindingClass::Unit, "bytes-for-pages", Severity::Error, message)
            }
            Some(free) if sizes[2] > LARGEST_SHARE * free => {
                let message = format!(
                    "{spelled}; the last is {:.0} % of the {} that the host has: above 25 % the rest of the host goes short first",
                    sizes[2] / free * 100.0,
                    bytes(free)
                );
                facts.finding(key, FindingClass::Unsafe, "more-than-memory", Severity::Warning, message)
            }
            None if sizes[2] > LARGEST_HOST_BYTES || sizes[0] >= 64.0 * (1u64 << 30) as f64 => {
                let message = format!(
                    "{spelled}, more than most hosts have. As bytes the values would be {}, {} and {}, which is probably what was meant",
                    bytes(triple[0] as f64),
                    bytes(triple[1] as f64),
                    bytes(triple[2] as f64)
                );
                facts.finding(key, FindingClass::Unit, "bytes-for-pages", Severity::Error, message)
            }
            _ => continue,
        };
        // A copied triple is reported as that.
        let is_copy = found.iter().any(|other| other.key == key && other.id.ends_with(":copied-triple"));
        if !is_copy {
            found.push(finding.advise(LEAVE_IT));
        }
    }
}

/// The pressure threshold compared with what the goal's flows may hold.
pub(super) fn pressure(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let key = KEYS[0];
    let Some([_, pressure, _]) = facts.state.triple(key) else { return };
    let (page, _) = facts.state.page_or_usual();
    let threshold = pressure as f64 * page as f64;
    let caps = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]
        .map(|buffers| facts.state.triple(buffers).map_or(0, |[_, _, largest]| largest));
    let flow_count = facts.goal.map_or(1, |goal| goal.flow_count);
    let wanted = f64::from(flow_count) * (caps[0] as f64 + caps[1] as f64);
    let is_set = facts.state.values.get(key).is_some_and(|value| !value.effective || value.place.is_some());
    if wanted > 0.0 && threshold < wanted && (facts.goal.is_some() || is_set) {
        let message = format!(
            "pressure starts at {pressure} pages of {page} bytes = {} for the whole host; {flow_count} flow(s) may hold {} ({} receiving and {} sending each)",
            bytes(threshold),
            bytes(wanted),
            bytes(caps[0] as f64),
            bytes(caps[1] as f64)
        );
        found.push(
            facts.finding(key, FindingClass::Path, "pressure-too-low", Severity::Error, message).advise(
                format!(
                    "pressure of at least {:.0} pages (1.5 x {} / {page}), or delete the line",
                    1.5 * wanted / page as f64,
                    bytes(wanted)
                ),
            ),
        );
    } else if is_set && threshold < LEAST_PRESSURE_BYTES && pressure > 0 {
        let message = format!(
            "pressure starts at {pressure} pages of {page} bytes = {} for the whole host",
            bytes(threshold)
        );
        found.push(
            facts
                .finding(key, FindingClass::Path, "pressure-low", Severity::Warning, message)
                .advise(LEAVE_IT),
        );
    }
}

/// Huge pages are not available to sockets.
pub(super) fn huge_pages(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let (Some(memory), Some(huge)) = (facts.state.memory_bytes, facts.state.huge_bytes) else { return };
    let Some([_, _, high]) = facts.state.triple(KEYS[0]) else { return };
    let (page, _) = facts.state.page_or_usual();
    let sockets = high as f64 * page as f64;
    if huge > 0 && huge as f64 + sockets > memory as f64 {
        let message = format!(
            "{} of huge pages and up to {} of TCP buffers are more than the {} of the host",
            bytes(huge as f64),
            bytes(sockets),
            bytes(memory as f64)
        );
        found.push(
            facts
                .finding(
                    "vm.nr_hugepages",
                    FindingClass::Contradiction,
                    "with-tcp-mem",
                    Severity::Error,
                    message,
                )
                .advise("fewer huge pages, or a lower tcp_mem"),
        );
    }
}
