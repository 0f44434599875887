//! Rules: functions from the facts of a [`HostState`] to findings. Their order
//! does not matter; findings are sorted afterwards.

mod buffers;
mod kernel_options;
mod lines;
mod links;
mod locality;
mod memory;
mod provenance;
mod single;
mod tcp;

pub(crate) use self::buffers::proposed;
use clearstream_lint::{With, finding};
use clearstream_schema::tune::{Finding, FindingClass, PathGoal, Severity};

use crate::{knowledge::Knowledge, path, state::HostState};

/// Input of a rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) state: &'a HostState,
    pub(crate) known: &'a Knowledge,
    pub(crate) goal: Option<&'a PathGoal>,
}

type Rule = fn(&Facts<'_>, &mut Vec<Finding>);

/// All rules.
const RULES: &[Rule] = &[
    lines::unreadable,
    lines::traps,
    lines::set_twice,
    lines::includes,
    kernel_options::options,
    single::unknown,
    single::presence,
    single::numbers,
    single::sane,
    buffers::order,
    buffers::first_buffers,
    buffers::window,
    buffers::send_buffer,
    buffers::asymmetric,
    buffers::below_default,
    buffers::beyond_one_window,
    buffers::flows,
    buffers::unsent,
    buffers::explicit_requests,
    memory::copied_triple,
    memory::order,
    memory::against_memory,
    memory::pressure,
    memory::huge_pages,
    tcp::timestamps,
    tcp::needs_timestamps,
    tcp::selective_acknowledgement,
    tcp::window_scaling,
    tcp::fixed_receive_buffer,
    tcp::congestion_control,
    tcp::probing,
    tcp::idle,
    tcp::polling,
    tcp::budget,
    links::queue_length,
    links::default_qdisc,
    links::steering_and_queues,
    links::flow_steering,
    links::large_receive,
    links::offloads,
    links::infiniband,
    locality::interrupts,
    locality::shared_cores,
    locality::balancer,
    locality::slot,
    provenance::files_and_kernel,
    provenance::readers,
    provenance::daemon,
    provenance::scope,
];

/// Runs all rules.
pub(crate) fn run(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        rule(facts, &mut findings);
    }
    findings
}

impl Facts<'_> {
    /// Creates a finding about a sysctl, with its value and place.
    fn finding(
        &self,
        key: &str,
        class: FindingClass,
        cause: &str,
        severity: Severity,
        message: String,
    ) -> Finding {
        let value = self.state.values.get(key);
        Finding {
            value: value.map(|value| value.text.clone()),
            place: value.and_then(|value| value.place.clone()),
            source: self.known.key(key).map_or_else(String::new, |known| known.source.clone()),
            ..finding(key, class, cause, severity, message)
        }
    }

    /// Creates a finding about an interface.
    fn about_interface(
        &self,
        interface: &str,
        key: &str,
        class: FindingClass,
        cause: &str,
        severity: Severity,
        message: String,
    ) -> Finding {
        Finding {
            value: None,
            place: None,
            interface: Some(interface.to_owned()),
            ..self.finding(key, class, cause, severity, message)
        }
    }

    /// Fraction of the receive buffer that becomes window, with its source.
    fn receive_share(&self) -> (f64, String) {
        let scale = self.state.number("net.ipv4.tcp_adv_win_scale").or_else(|| {
            let known = self.known.key("net.ipv4.tcp_adv_win_scale")?;
            known.default_at(self.state.kernel?)?.parse().ok()
        });
        path::receive_share(self.state.kernel, scale)
    }

    /// Buffer that the congestion control needs, in BDP.
    fn gain(&self) -> f64 {
        path::gain(self.state.text("net.ipv4.tcp_congestion_control"))
    }
}
