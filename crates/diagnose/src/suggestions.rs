//! Suggestions, and the conclusions of experiments.

use clearstream_schema::{
    ByteCount,
    diagnosis::{
        End, Experiment, ExperimentKind, ExperimentResult, Finding, Remedy, Role, Suggestion, Verdict,
    },
    flow::{Direction, FlowConfig},
    human::{bytes, rate},
};
use serde_json::Value;

use crate::{FlowObservation, causes::other_congestion_control, experiments::BETTER, facts::Facts};

/// The bandwidth-delay product of 10 Gb/s over 25 ms; more than a cache holds.
const LARGER_BUFFER: ByteCount = ByteCount(32 << 20);

/// The flow of an experiment on the flow diagnosed.
pub(crate) fn variant(kind: ExperimentKind, requested: &FlowConfig) -> FlowConfig {
    let mut flow = requested.clone();
    match kind {
        ExperimentKind::AsRequested | ExperimentKind::Repeat => {}
        ExperimentKind::Longer => flow.duration.0 = flow.duration.0.saturating_mul(4),
        ExperimentKind::SeveralFlows => {
            flow.flows = if requested.flows > 1 { 1 } else { 4 };
            flow.burst_flows = flow.burst_flows.min(flow.flows);
            flow.source_ports = None;
        }
        ExperimentKind::Reverse => {
            flow.direction = match requested.direction {
                Direction::Reverse => Direction::Forward,
                Direction::Forward | Direction::Both => Direction::Reverse,
            };
        }
        ExperimentKind::WithoutWindow => {
            flow.window = None;
            flow.send_buffer = None;
            flow.receive_buffer = None;
        }
        ExperimentKind::WithoutPacing => flow.pacing = None,
        ExperimentKind::LargerBuffer => {
            flow.window = None;
            flow.send_buffer = Some(LARGER_BUFFER);
            flow.receive_buffer = Some(LARGER_BUFFER);
            flow.force_buffers = true;
        }
        ExperimentKind::WithoutPauses => {
            flow.burst_flows = 0;
            flow.receiver_pause = None;
            flow.receiver_work = None;
        }
        // Their core or rate is chosen by the measurement.
        ExperimentKind::OtherReceiverCore | ExperimentKind::OtherSenderCore | ExperimentKind::Paced => {}
        ExperimentKind::OtherCongestionControl => {
            let other = if requested.congestion_control.as_deref() == Some("bbr") { "cubic" } else { "bbr" };
            flow.congestion_control = Some(other.to_owned());
        }
    }
    flow
}

/// An experiment's figure and meaning.
pub(crate) fn result(facts: &Facts<'_>, experiment: &FlowObservation) -> ExperimentResult {
    let (with, without) = (experiment.goodput_bps(), facts.goodput_bps);
    let better = with > BETTER * without;
    let figures = format!("{} against {}", rate(with), rate(without));
    let conclusion = match experiment.kind {
        ExperimentKind::SeveralFlows if experiment.config.flows > facts.config.flows => {
            if better {
                format!("{} flows reach {figures}: the limit applies to each flow", experiment.config.flows)
            } else {
                format!("{} flows reach {figures}: they have a common limit", experiment.config.flows)
            }
        }
        ExperimentKind::SeveralFlows => format!("one flow reaches {figures} of all"),
        ExperimentKind::Reverse if better => {
            format!("the other direction reaches {figures}: the ends or paths differ")
        }
        ExperimentKind::Reverse => format!("the other direction reaches {figures}"),
        ExperimentKind::Repeat if better || without > BETTER * with => {
            format!("the same flow repeated: {figures}: the machine or the path changed meanwhile")
        }
        ExperimentKind::Repeat => format!("the same flow repeated: {figures}: it repeats"),
        ExperimentKind::Paced => {
            let lost = |facts: &Facts<'_>| format!("{:.4} %", facts.loss_ratio() * 100.0);
            let paced = Facts::of_flow(facts.evidence, experiment);
            format!("paced: {figures}, {} of the bytes lost against {}", lost(&paced), lost(facts))
        }
        ExperimentKind::LargerBuffer if !better && !has_larger_buffers(experiment) => {
            format!("with a larger buffer: {figures}: neither host granted it, so it is inconclusive")
        }
        kind => {
            let what = match kind {
                ExperimentKind::WithoutWindow => "without an explicit window",
                ExperimentKind::WithoutPacing => "without pacing",
                ExperimentKind::LargerBuffer => "with a larger buffer",
                ExperimentKind::WithoutPauses => "without pauses of the programs",
                ExperimentKind::OtherReceiverCore => "with the reader on another core",
                ExperimentKind::OtherSenderCore => "with the writer on another core",
                ExperimentKind::OtherCongestionControl => "with another congestion control",
                _ => "the flow repeated",
            };
            let meaning = if better { "that was the limit" } else { "no more than that" };
            format!("{what}: {figures}: {meaning}")
        }
    };
    ExperimentResult {
        kind: experiment.kind,
        direction: experiment.config.direction,
        flow_count: experiment.config.flows,
        goodput_bps: with,
        conclusion,
    }
}

/// Whether a socket had more than the requested size, as one with twice that has (socket(7)).
fn has_larger_buffers(experiment: &FlowObservation) -> bool {
    let sides =
        experiment.summary.iter().flat_map(|summary| [&summary.client_settings, &summary.server_settings]);
    let mut sockets = sides.flat_map(|side| &side.flows);
    sockets.any(|one| one.send_buffer_bytes.max(one.receive_buffer_bytes) >= LARGER_BUFFER.0)
}

/// The most informative experiment when nothing is known.
pub(crate) fn most_informative(facts: &Facts<'_>) -> Experiment {
    let of = |kind: ExperimentKind, question: &str| Experiment {
        kind,
        question: question.to_owned(),
        flow: variant(kind, facts.config),
    };
    if !facts.is_long_enough() {
        return of(
            ExperimentKind::Longer,
            "repeat with a longer run: at least ten round trips and three samples are needed",
        );
    }
    if let Some(other) = other_congestion_control(facts)
        && facts.experiment(ExperimentKind::OtherCongestionControl).is_none()
    {
        let mut experiment = of(
            ExperimentKind::OtherCongestionControl,
            &format!("repeat with {other}: when it carries more, the congestion control is the limit"),
        );
        experiment.flow.congestion_control = Some(other);
        return experiment;
    }
    if facts.experiment(ExperimentKind::SeveralFlows).is_none() {
        return of(
            ExperimentKind::SeveralFlows,
            "repeat with several flows: a higher sum means a limit per flow, an equal sum a common limit",
        );
    }
    if facts.experiment(ExperimentKind::Reverse).is_none() {
        return of(
            ExperimentKind::Reverse,
            "repeat in the other direction: a limit of one host moves with the data",
        );
    }
    of(ExperimentKind::Longer, "repeat with a longer run on an idle host: the samples scatter too much")
}

/// Suggestions from the remedies of the findings, the limit's first.
pub(crate) fn suggest(facts: &Facts<'_>, verdict: &Verdict, secondary: &[Finding]) -> Vec<Suggestion> {
    let mut suggestions = Vec::new();
    match verdict {
        Verdict::Unknown { experiment, .. } => {
            suggestions.push(Suggestion { sentence: experiment.question.clone(), command: None })
        }
        Verdict::Found(finding) => {
            suggestions.extend(finding.remedies.iter().filter_map(|remedy| suggestion(facts, remedy)));
        }
    }
    for finding in secondary {
        suggestions.extend(finding.remedies.iter().filter_map(|remedy| suggestion(facts, remedy)));
    }
    suggestions
}

fn suggestion(facts: &Facts<'_>, remedy: &Remedy) -> Option<Suggestion> {
    let host = |end: End| if end == facts.sender.end { facts.sender.name() } else { facts.receiver.name() };
    let made = |sentence: String, command: Option<String>| Some(Suggestion { sentence, command });
    match remedy {
        Remedy::RaiseSysctl { end, name, field, at_least } => {
            raise(facts, *end, host(*end), name, *field, *at_least)
        }
        Remedy::ChangeFlow { key, value: Value::Null } => {
            let in_use = clearstream_schema::json::to_value(facts.config)
                .ok()
                .is_some_and(|config| config.get(key).is_some_and(|value| !value.is_null()));
            in_use.then_some(())?;
            made(format!("leave --{key} out: let the kernel choose"), None)
        }
        Remedy::ChangeFlow { key, value } => {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if key == "burst-flows" && facts.config.burst_flows == 0 {
                return made(
                    "check what the writing program waits for: its disk, its own input, a lock".to_owned(),
                    None,
                );
            }
            made(format!("try --{key} {value}"), None)
        }
        Remedy::MoveThread { role, end, off_core, to_cores } => {
            let option = if *role == Role::Sender { "--sender-cores" } else { "--receiver-cores" };
            let side = if *role == Role::Sender { "writer" } else { "reader" };
            let to = to_cores.first()?;
            made(
                format!(
                    "move the {side} on {} off core {off_core}: {option} {to} (nearest that is free of it)",
                    host(*end)
                ),
                None,
            )
        }
        Remedy::SetMtu { end, interface, mtu_bytes } => {
            let part = if *end == facts.sender.end { &facts.sender } else { &facts.receiver };
            let now =
                part.nic.filter(|nic| interface.as_deref() == Some(&nic.name)).and_then(|nic| nic.mtu_bytes);
            let interface = interface.as_deref().unwrap_or("INTERFACE");
            if now.is_some_and(|now| now < *mtu_bytes) {
                return made(
                    format!(
                        "raise the MTU on {} to {mtu_bytes}, where all of the path carries that",
                        host(*end)
                    ),
                    Some(format!("ip link set dev {interface} mtu {mtu_bytes}")),
                );
            }
            made(
                format!(
                    "lower the MTU on {} to {mtu_bytes}, or fix the filter that drops \"fragmentation needed\"",
                    host(*end)
                ),
                Some(format!("ip link set dev {interface} mtu {mtu_bytes}")),
            )
        }
        Remedy::Physical { what } => made(what.clone(), None),
    }
}

fn raise(
    facts: &Facts<'_>,
    end: End,
    host: &str,
    name: &str,
    field: u32,
    at_least: u64,
) -> Option<Suggestion> {
    let report = if end == facts.sender.end { facts.sender.host } else { facts.receiver.host };
    let old = report.kernel.sysctls.get(name);
    let mut fields: Vec<String> =
        old.map(|text| text.split_ascii_whitespace().map(str::to_owned).collect()).unwrap_or_default();
    let place = field as usize;
    let amount = if name.ends_with("_rmem") || name.ends_with("_wmem") {
        format!("{at_least} ({})", bytes(at_least))
    } else {
        at_least.to_string()
    };
    let known = fields.get_mut(place).map(|field| *field = at_least.to_string()).is_some();
    let command = known.then(|| format!("sysctl -w {name}=\"{}\"", fields.join(" ")));
    let what = match (name, field) {
        ("net.ipv4.tcp_mem", _) => format!("set net.ipv4.tcp_mem on {host} in pages: pressure at {amount}"),
        (_, 2) => format!("raise the maximum of {name} on {host} to {amount}"),
        _ => format!("set {name} on {host} to {amount}"),
    };
    Some(Suggestion { sentence: what, command: command.filter(|_| name != "net.ipv4.tcp_mem") })
}
