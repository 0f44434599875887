//! The steps of a placement: settings that are not yet as they should be.

use crate::document::SpreadMethod;
use clearstream_host::{HostRoot, parse::cpuset};
use clearstream_schema::{
    CoreList,
    host::{HostReport, Nic},
    human::count,
    plan::{Effect, Setting, Step, Value},
};

use super::{assign::Assignment, table::table_step};

/// Flows that RFS can distinguish on the whole host
/// (Documentation/networking/scaling.rst suggests 32768).
const FLOW_ENTRIES: u32 = 32_768;
const FLOW_ENTRIES_KEY: &str = "net.core.rps_sock_flow_entries";

/// Collects steps in the order of their dependence.
pub(super) struct Steps<'a> {
    root: &'a HostRoot,
    host: &'a HostReport,
    nic: &'a Nic,
    assignment: &'a Assignment,
    pub(super) steps: Vec<Step>,
    pub(super) advice: Vec<String>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(
        root: &'a HostRoot,
        host: &'a HostReport,
        nic: &'a Nic,
        assignment: &'a Assignment,
    ) -> Self {
        Self { root, host, nic, assignment, steps: Vec::new(), advice: Vec::new() }
    }

    pub(super) fn all(&mut self) {
        let table = self.receive_channels().and_then(|(now, desired)| table_step(self.nic, now, desired));
        let (after, before): (Vec<_>, Vec<_>) = table.into_iter().partition(|table| table.after_channels);
        self.steps.extend(before.into_iter().map(|table| table.step));
        self.channels();
        self.steps.extend(after.into_iter().map(|table| table.step));
        self.affinities();
        self.receive_steering();
        self.transmit_steering();
        self.flow_steering();
    }

    fn queue_count(&self) -> u32 {
        u32::try_from(self.assignment.queues.len()).unwrap_or(u32::MAX)
    }

    /// Channels that receive: as many as there are, and as there are to be.
    fn receive_channels(&self) -> Option<(u32, u32)> {
        let kinds = [self.nic.combined_channels, self.nic.receive_channels];
        let channels = kinds.into_iter().flatten().find(|channels| channels.now_count > 0)?;
        let desired = match channels.max_count {
            0 | 1 => channels.now_count,
            most => self.queue_count().min(most),
        };
        Some((channels.now_count, desired))
    }

    fn channels(&mut self) {
        let queue_count = self.queue_count();
        let kinds = [
            ("combined", self.nic.combined_channels),
            ("rx", self.nic.receive_channels),
            ("tx", self.nic.transmit_channels),
        ];
        for (name, channels) in kinds {
            let Some(channels) = channels.filter(|channels| channels.max_count > 1) else { continue };
            let desired = queue_count.min(channels.max_count);
            if channels.now_count == desired {
                continue;
            }
            // A device with combined channels that also has separate ones uses either.
            if name != "combined" && self.nic.combined_channels.is_some_and(|combined| combined.now_count > 0)
            {
                continue;
            }
            self.steps.push(Step {
                setting: Setting::Ethtool {
                    interface: self.nic.name.clone(),
                    group: "channels".to_owned(),
                    name: name.to_owned(),
                },
                current: Some(Value::Text(channels.now_count.to_string())),
                desired: Some(Value::Text(desired.to_string())),
                reason: format!(
                    "{} for {}, and as many cores of the node left to their readers; few well-used queues beat many",
                    count(desired, "busy queue"),
                    count(self.assignment.flows.len(), "flow"),
                ),
                effect: Effect::LinkFlap,
            });
            if channels.now_count < desired {
                self.advice.push(format!(
                    "the interrupts of queues {} to {} exist only after the channels have been raised, and then it \
                     is known whether the driver distributed its indirection table over them: repeat the plan after applying this",
                    channels.now_count,
                    desired - 1
                ));
            }
        }
        if self.nic.receive_queue_count > 1
            && self.nic.combined_channels.or(self.nic.receive_channels).is_none()
        {
            self.advice.push(format!(
                "the channels of {} cannot be read here: its {} queues are left as they are, and the first {queue_count} \
                 are placed",
                self.nic.name, self.nic.receive_queue_count
            ));
        }
    }

    fn affinities(&mut self) {
        let mut managed = Vec::new();
        for &(number, core) in &self.assignment.pinned {
            // The kernel rejects writes with EIO then (Documentation/core-api/irq/irq-affinity.rst);
            // only debugfs shows it before.
            let about = self.root.read(&format!("sys/kernel/debug/irq/irqs/{number}"));
            if about.is_ok_and(|about| about.contains("IRQD_AFFINITY_MANAGED")) {
                managed.push(number);
                continue;
            }
            let path = format!("proc/irq/{number}/smp_affinity_list");
            let current = self.root.read(&path).ok().map(|text| text.trim().to_owned());
            if current.as_deref().is_some_and(|text| cpuset::list(text).is_ok_and(|cores| cores == [core])) {
                continue;
            }
            let queue = self.host.interrupts.iter().find(|interrupt| interrupt.interrupt == number);
            let action = queue.map_or(String::new(), |interrupt| format!(" ({})", interrupt.action));
            let place = match self.nic.node {
                Some(node) => format!("a core of its own near node {node}"),
                None => "a core of its own".to_owned(),
            };
            self.steps.push(Step {
                setting: Setting::File(path),
                current: current.map(Value::Text),
                desired: Some(Value::Text(core.to_string())),
                reason: format!("interrupt {number}{action}: {place}, away from the readers"),
                effect: Effect::Now,
            });
        }
        if !managed.is_empty() {
            self.advice.push(format!(
                "the kernel manages the affinity of interrupts {} and refuses to change it: they spread over all \
                 cores by the number of channels alone",
                CoreList(managed)
            ));
        }
    }

    fn receive_steering(&mut self) {
        let software = self.assignment.method == SpreadMethod::Software;
        if software {
            self.advice.push(format!(
                "{} gives no queue of its own to every flow ({}): RPS spreads packets in software, by a hash that \
                 cannot be steered by source ports",
                self.nic.name,
                match self.assignment.queues.first().and_then(|queue| queue.interrupt) {
                    None => "no interrupts of its own, as virtual interfaces",
                    Some(_) => "fewer queues than flows",
                }
            ));
        }
        for queue in 0..self.nic.receive_queue_count {
            let placed = self.assignment.queues.get(queue as usize).filter(|_| software);
            let cores = placed.map(|queue| queue.cores.clone()).unwrap_or_default();
            let reason = match placed {
                Some(_) => format!(
                    "RPS: packets of queue {queue} are processed on cores of their own, not the reader's"
                ),
                None => {
                    "RPS off: the queue's interrupt goes to the right core already, and RPS would add an \
                         inter-processor interrupt"
                        .to_owned()
                }
            };
            self.mask(&format!("rx-{queue}/rps_cpus"), &cores, reason);
        }
    }

    fn transmit_steering(&mut self) {
        if self.nic.transmit_queue_count < 2 {
            return;
        }
        let mut given: Vec<u32> = Vec::new();
        for queue in &self.assignment.queues {
            if queue.queue >= self.nic.transmit_queue_count {
                break;
            }
            let writers = self
                .assignment
                .flows
                .iter()
                .filter(|flow| flow.queue == queue.queue)
                .flat_map(|flow| [flow.writer_core, flow.reader_core]);
            let mut cores: Vec<u32> = queue.cores.iter().copied().chain(writers).collect();
            cores.sort_unstable();
            cores.dedup();
            cores.retain(|core| !given.contains(core));
            given.extend(&cores);
            if cores.is_empty() {
                continue;
            }
            let reason = format!(
                "XPS: what the threads of queue {0} send, and its acknowledgements, leave on queue {0}: no other \
                 core takes its lock",
                queue.queue
            );
            self.mask(&format!("tx-{}/xps_cpus", queue.queue), &cores, reason);
        }
    }

    /// RFS follows the reader, which pays only where a core has to serve
    /// several flows in software.
    fn flow_steering(&mut self) {
        if !(self.assignment.method == SpreadMethod::Software && self.assignment.crowded) {
            return;
        }
        let Some(current) = self.host.kernel.sysctls.get(FLOW_ENTRIES_KEY) else {
            self.advice.push(format!(
                "{FLOW_ENTRIES_KEY} is not visible here (only the first network namespace has it): RFS is left out"
            ));
            return;
        };
        let reason =
            "RFS: more flows than softirq cores; packets follow their reader instead of a blind hash";
        if current.trim().parse::<u32>().is_ok_and(|entries| entries < FLOW_ENTRIES) {
            self.steps.push(Step {
                setting: Setting::Sysctl(FLOW_ENTRIES_KEY.to_owned()),
                current: Some(Value::Text(current.clone())),
                desired: Some(Value::Text(FLOW_ENTRIES.to_string())),
                reason: reason.to_owned(),
                effect: Effect::Now,
            });
        }
        let each = (FLOW_ENTRIES / self.queue_count()).next_power_of_two();
        for queue in 0..self.queue_count() {
            let path = format!("sys/class/net/{}/queues/rx-{queue}/rps_flow_cnt", self.nic.name);
            let Ok(current) = self.root.read(&path) else { continue };
            let current = current.trim().to_owned();
            if current == each.to_string() {
                continue;
            }
            self.steps.push(Step {
                setting: Setting::File(path),
                current: Some(Value::Text(current)),
                desired: Some(Value::Text(each.to_string())),
                reason: format!("{reason}: {FLOW_ENTRIES} entries over {} queue(s)", self.queue_count()),
                effect: Effect::Now,
            });
        }
    }

    /// A step for a mask below the interface's queues, unless it is right.
    fn mask(&mut self, name: &str, cores: &[u32], reason: String) {
        let path = format!("sys/class/net/{}/queues/{name}", self.nic.name);
        // Not there, or not for interfaces with one queue (ENOENT).
        let Ok(text) = self.root.read(&path) else { return };
        let current = text.trim().to_owned();
        let mut wanted = cores.to_vec();
        wanted.sort_unstable();
        if cpuset::mask(&current).is_ok_and(|now| now == wanted) {
            return;
        }
        let desired = hexadecimal(&wanted, &current);
        self.steps.push(Step {
            setting: Setting::File(path),
            current: Some(Value::Text(current)),
            desired: Some(Value::Text(desired)),
            reason,
            effect: Effect::Now,
        });
    }
}

/// A mask as the kernel prints it: groups of 32 bits with commas, as wide as `like`.
fn hexadecimal(cores: &[u32], like: &str) -> String {
    let width = like.bytes().filter(u8::is_ascii_hexdigit).count();
    let needed = cores.iter().max().map_or(1, |core| *core as usize / 4 + 1);
    let digits = width.max(needed);
    let digit = |place: usize| {
        let value = (0..4).filter(|bit| cores.iter().any(|core| *core as usize == place * 4 + bit));
        char::from_digit(value.map(|bit| 1 << bit).sum(), 16).unwrap_or('0')
    };
    let mut text = String::new();
    for place in (0..digits).rev() {
        text.push(digit(place));
        if place > 0 && place % 8 == 0 {
            text.push(',');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Format of `/proc/irq/*/smp_affinity` and `rps_cpus` on hosts of these sizes.
    #[test]
    fn masks_have_the_format_of_the_kernel() {
        assert_eq!(hexadecimal(&[1], "0"), "2");
        assert_eq!(hexadecimal(&[0, 1, 2, 3], "00"), "0f");
        assert_eq!(hexadecimal(&[30, 35], "0000,00000000"), "0008,40000000");
        assert_eq!(hexadecimal(&[], "0000,00000000"), "0000,00000000");
        assert_eq!(hexadecimal(&[64], "0"), "1,00000000,00000000");
        let cores = [0, 31, 32, 63, 64, 95];
        assert_eq!(cpuset::mask(&hexadecimal(&cores, "0")).unwrap(), cores);
    }
}
