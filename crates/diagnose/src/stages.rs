//! The staircase: what every stage between the two programs can carry.

use clearstream_schema::{
    diagnosis::{Cause, Role, SharedBy, Stage, StageName, Verdict},
    human::{bytes, rate, time},
};

use crate::{
    facts::{Facts, Part},
    format::percent,
    formulas, hosts,
};

/// Share of a core below which a rate is not extrapolated to a whole core: what
/// a light load costs is not what a full one does.
const EXTRAPOLATED: f64 = 0.5;

/// Rate that needed sizes are computed for: what was requested; else what
/// another flow over the same path has shown; else the line rate; else twice
/// what was measured.
pub(crate) fn goal_bps(facts: &Facts<'_>) -> f64 {
    if let Some(goal) = facts.evidence.goal {
        return (goal.0 as f64).max(1.0);
    }
    let best = facts.evidence.flows.iter().map(|flow| flow.goodput_bps()).fold(0.0, f64::max);
    if best > 1.2 * facts.goodput_bps {
        return best;
    }
    let lines = facts.parts().into_iter().filter_map(|part| part.nic?.goodput_max_bps());
    lines.reduce(f64::min).unwrap_or(2.0 * facts.goodput_bps).max(1.0)
}

/// The goal, with its source when it was not given.
pub(crate) fn goal_text(facts: &Facts<'_>) -> String {
    let goal = goal_bps(facts);
    let guessed = facts.evidence.goal.is_none() && (goal - 2.0 * facts.goodput_bps).abs() < 1.0;
    if guessed { format!("{} (twice the measured rate)", rate(goal)) } else { rate(goal) }
}

fn stage(name: StageName, ceiling_bps: Option<f64>, basis: impl Into<String>) -> Stage {
    let ceiling_bps = ceiling_bps.filter(|ceiling| ceiling.is_finite() && *ceiling > 0.0);
    Stage { name, ceiling_bps, at_least: false, limiting: false, basis: basis.into() }
}

/// A stage with only a lower bound: the flow passed it.
fn seen(name: StageName, facts: &Facts<'_>, basis: &str) -> Stage {
    Stage { at_least: true, ..stage(name, Some(facts.goodput_bps), basis) }
}

/// From this fraction of the time with data to send a socket counts as never
/// without (tcpi_busy_time counts in jiffies).
const ALWAYS_BUSY: f64 = 0.95;

/// Conclusion of the send queue about the program that fills it.
fn writer(facts: &Facts<'_>) -> &'static str {
    match facts.medians.busy >= ALWAYS_BUSY {
        true => "not the limit: its socket always had data to send",
        // Less, or a kernel that does not count it.
        false => "wrote this much",
    }
}

/// All stages, in their order along the path.
pub(crate) fn all(facts: &Facts<'_>, verdict: &Verdict) -> Vec<Stage> {
    let [sender, receiver] = [&facts.sender, &facts.receiver];
    let mut stages = vec![
        seen(StageName::SenderApplication, facts, writer(facts)),
        send_buffer(facts),
        congestion_window(facts),
        pacing(facts),
        thread(facts, sender, StageName::SenderCpu),
        pcie(sender, StageName::SenderPcie),
        nic(facts),
        path(facts),
        window(facts),
        pcie(receiver, StageName::ReceiverPcie),
        interrupt_core(facts),
        thread(facts, receiver, StageName::ReceiverCpu),
        stage(StageName::Copies, None, "memory bandwidth is not measured"),
        seen(StageName::ReceiverApplication, facts, "read all that arrived"),
    ];
    for stage in &mut stages {
        // A model that predicts less than was measured does not hold here.
        if stage.ceiling_bps.is_some_and(|ceiling| ceiling <= facts.goodput_bps) && !stage.at_least {
            stage.ceiling_bps = Some(facts.goodput_bps);
            stage.at_least = true;
            stage.basis = format!("exceeded by the measured rate: {}", stage.basis);
        }
    }
    if let Verdict::Found(finding) = verdict {
        mark(facts, &mut stages, &finding.cause);
    }
    stages
}

/// Marks the stage that limits. It has the lowest ceiling of all: the measured rate where a
/// model allows another stage less than this one.
fn mark(facts: &Facts<'_>, stages: &mut [Stage], cause: &Cause) {
    let name = limiting(facts, cause);
    let Some(place) = stages.iter().position(|stage| stage.name == name) else { return };
    let shared = shared_core(facts, cause);
    let others = stages.iter().enumerate().filter(|(other, stage)| *other != place && !stage.at_least);
    let lowest = others.filter_map(|(_, stage)| stage.ceiling_bps).fold(f64::INFINITY, f64::min);
    let stage = &mut stages[place];
    stage.limiting = true;
    if let Some((ceiling, basis)) = shared {
        (stage.ceiling_bps, stage.basis, stage.at_least) = (Some(ceiling), basis, false);
    } else if stage.at_least || is_core(cause) {
        stage.ceiling_bps = None;
    }
    if stage.ceiling_bps.is_none_or(|ceiling| ceiling > lowest) {
        stage.at_least = false;
        stage.ceiling_bps = Some(facts.goodput_bps).filter(|seen| *seen > 0.0);
        stage.basis = "the measured rate: this is the limit".to_owned();
    }
}

/// A core shared with other threads allows less than the flow's own part of it.
fn is_core(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::Cpu { .. }
            | Cause::NumaRemote { .. }
            | Cause::InterruptCollision { .. }
            | Cause::Contention { .. }
            | Cause::CpuQuota { .. }
            | Cause::SharedCore { .. }
    )
}

/// Rate of the core for this flow alone, where its thread waits for it.
fn shared_core(facts: &Facts<'_>, cause: &Cause) -> Option<(f64, String)> {
    let end = match cause {
        Cause::Cpu { end, .. } | Cause::Contention { end, .. } => *end,
        _ => return None,
    };
    let thread = facts.parts().into_iter().find(|part| part.end == end)?.thread?;
    let alone = thread.alone_bps(facts.goodput_bps)?;
    let basis = format!(
        "measured rate /  {} of a core per flow: the thread waited {} of the time for a core that is shared",
        percent(thread.run),
        percent(thread.wait)
    );
    Some((alone, basis))
}

fn limiting(facts: &Facts<'_>, cause: &Cause) -> StageName {
    let of = |role: &Role, sender, receiver| if *role == Role::Sender { sender } else { receiver };
    match cause {
        Cause::PathMtu { .. }
        | Cause::PathCapacity { .. }
        | Cause::Policer { .. }
        | Cause::UnevenFlows { shared: SharedBy::Path | SharedBy::Unknown, .. } => StageName::Path,
        Cause::UnevenFlows { shared: SharedBy::SenderCore(_), .. } => StageName::SenderCpu,
        Cause::UnevenFlows { shared: SharedBy::ReceiverCore(_), .. } | Cause::SharedCore { .. } => {
            StageName::ReceiverCpu
        }
        Cause::Contention { end, .. } | Cause::CpuQuota { end, .. } if *end == facts.sender.end => {
            StageName::SenderCpu
        }
        Cause::Contention { .. } | Cause::CpuQuota { .. } => StageName::ReceiverCpu,
        Cause::MemoryPressure { .. } => StageName::ReceiverWindow,
        Cause::Pcie { end, .. } if *end == facts.sender.end => StageName::SenderPcie,
        Cause::Pcie { .. } => StageName::ReceiverPcie,
        Cause::LineRate { .. } | Cause::InterfaceLoss { .. } | Cause::PauseFrames { .. } => StageName::Nic,
        Cause::ReceiverWindow { .. } => StageName::ReceiverWindow,
        Cause::SendBuffer { .. } => StageName::SendBuffer,
        Cause::ReceiverApplication { .. } => StageName::ReceiverApplication,
        Cause::SenderApplication { .. } => StageName::SenderApplication,
        Cause::Pacing { .. } => StageName::Pacing,
        Cause::Loss { .. }
        | Cause::Reordering { .. }
        | Cause::StillRamping { .. }
        | Cause::CongestionControl { .. } => StageName::CongestionWindow,
        Cause::Cpu { role, .. } | Cause::NumaRemote { role, .. } => {
            of(role, StageName::SenderCpu, StageName::ReceiverCpu)
        }
        Cause::InterruptCollision { .. } | Cause::ReceiveOverrun { .. } => StageName::ReceiverInterruptCore,
    }
}

/// A quantity over a round trip that is the hosts' own work allows no rate: it shrinks
/// and grows with the rate itself.
fn over_local_path(name: StageName) -> Stage {
    stage(name, None, "no ceiling over a local path: its round trip is the hosts' own work")
}

fn send_buffer(facts: &Facts<'_>) -> Stage {
    if facts.is_local() {
        return over_local_path(StageName::SendBuffer);
    }
    let explicit = facts.config.send_buffer.or(facts.config.window).is_some();
    let cap = hosts::triple(facts.sender.host, "net.ipv4.tcp_wmem").map(|triple| triple[2] as f64);
    let (limit, what) = if explicit {
        (facts.medians.buffer_bytes, "SO_SNDBUF")
    } else {
        (cap.or(facts.medians.buffer_bytes), "the maximum of net.ipv4.tcp_wmem")
    };
    let rtt = facts.base_rtt_ns();
    let ceiling =
        limit.map(|limit| formulas::window_bps(formulas::SEND_SHARE_RATIO * limit, rtt) * facts.flow_count);
    let basis = limit.map_or_else(
        || "the host does not report net.ipv4.tcp_wmem".to_owned(),
        |limit| format!("0.87 * {} ({what}) / {}", bytes(limit as u64), time(rtt)),
    );
    stage(StageName::SendBuffer, ceiling, basis)
}

fn congestion_window(facts: &Facts<'_>) -> Stage {
    let loss = facts.loss_ratio();
    // Drops of a full queue are the path's congestion signal.
    if facts.queue_ns() as f64 > 0.3 * facts.base_rtt_ns() as f64 && facts.base_rtt_ns() > 1_000_000 {
        return seen(StageName::CongestionWindow, facts, "held by the queue of the path");
    }
    if loss <= 0.0 {
        return seen(StageName::CongestionWindow, facts, "nothing was lost: the window may still grow");
    }
    if facts.is_local() {
        return over_local_path(StageName::CongestionWindow);
    }
    let (mss, rtt) = (facts.mss_bytes, facts.base_rtt_ns());
    let bound = formulas::mathis_bps(mss, rtt, loss).max(formulas::cubic_bps(mss, rtt, loss));
    let basis = format!("{:.4} % lost, rtt {}: the larger of Mathis and CUBIC", loss * 100.0, time(rtt));
    stage(StageName::CongestionWindow, Some(bound * facts.flow_count), basis)
}

fn pacing(facts: &Facts<'_>) -> Stage {
    match facts.max_pacing_bps {
        Some(rate) => stage(StageName::Pacing, Some(rate * facts.flow_count), "SO_MAX_PACING_RATE"),
        None => seen(StageName::Pacing, facts, "the sockets have no pacing limit"),
    }
}

fn thread(facts: &Facts<'_>, part: &Part<'_>, name: StageName) -> Stage {
    match part.thread {
        Some(thread) if thread.run >= EXTRAPOLATED => stage(
            name,
            Some(facts.goodput_bps / thread.run),
            format!("measured rate /  {} of a core per flow", percent(thread.run)),
        ),
        Some(thread) => Stage {
            basis: format!("its thread used {} of a core: too little for a conclusion", percent(thread.run)),
            ..seen(name, facts, "")
        },
        None => stage(name, None, "the time of the threads is not known"),
    }
}

fn pcie(part: &Part<'_>, name: StageName) -> Stage {
    let Some(nic) = part.nic.filter(|nic| nic.pci_address.is_some()) else {
        return stage(name, None, "a virtual interface, or not known which");
    };
    match hosts::device(part.host, nic).and_then(|device| device.ceiling.as_ref()) {
        Some(ceiling) => stage(name, Some(ceiling.conservative_bps), ceiling.arithmetic.clone()),
        None => stage(name, None, format!("{}: the link's speed and width are not known", nic.name)),
    }
}

fn nic(facts: &Facts<'_>) -> Stage {
    let lines = [&facts.sender, &facts.receiver].into_iter().filter_map(|part| {
        let nic = part.nic?;
        let (speed, mtu) = (nic.line_rate_bps()? as f64, nic.mtu_bytes.unwrap_or(1500));
        Some((nic.goodput_max_bps()?, format!("{} of {} at MTU {mtu}", rate(speed), nic.name)))
    });
    match lines.min_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((ceiling, basis)) => stage(StageName::Nic, Some(ceiling), basis),
        None => stage(StageName::Nic, None, "virtual interfaces have no line rate"),
    }
}

fn path(facts: &Facts<'_>) -> Stage {
    let best = facts.evidence.flows.iter().map(|flow| flow.goodput_bps()).fold(facts.goodput_bps, f64::max);
    Stage { at_least: true, ..stage(StageName::Path, Some(best), "the most that any flow showed here") }
}

fn window(facts: &Facts<'_>) -> Stage {
    if facts.is_local() {
        return over_local_path(StageName::ReceiverWindow);
    }
    let rtt = facts.base_rtt_ns();
    let explicit = facts.config.receive_buffer.or(facts.config.window).is_some();
    let offered = facts.medians.peer_window_max;
    let share =
        offered.zip(facts.medians.receive_buffer).map(|(window, buffer)| (window / buffer).clamp(0.25, 1.0));
    let share = share.unwrap_or(formulas::RECEIVE_SHARE_RATIO);
    let cap = hosts::triple(facts.receiver.host, "net.ipv4.tcp_rmem").map(|triple| triple[2] as f64);
    let (window, what) = match (explicit, cap) {
        (true, _) => (offered, "the window offered, which the program bounds".to_owned()),
        (false, Some(cap)) => {
            let window = (share * cap).max(offered.unwrap_or(0.0)).min(formulas::WINDOW_MAX_BYTES);
            (Some(window), format!("{:.2} of the maximum of net.ipv4.tcp_rmem, {}", share, bytes(cap as u64)))
        }
        (false, None) => (None, "the host does not report net.ipv4.tcp_rmem".to_owned()),
    };
    let ceiling = window.map(|window| formulas::window_bps(window, rtt) * facts.flow_count);
    let basis =
        window.map_or(what.clone(), |window| format!("{} ({what}) / {}", bytes(window as u64), time(rtt)));
    stage(StageName::ReceiverWindow, ceiling, basis)
}

fn interrupt_core(facts: &Facts<'_>) -> Stage {
    let found = facts.incoming_core.filter(|(_, share)| *share >= 0.6);
    let used = found.and_then(|(core, _)| Some((core, facts.receiver.core_softirq(core)?)));
    match used.filter(|(_, share)| *share >= EXTRAPOLATED) {
        Some((core, share)) => stage(
            StageName::ReceiverInterruptCore,
            Some(facts.goodput_bps / share),
            format!("measured rate /  {} of core {core} in softirqs", percent(share)),
        ),
        None => {
            stage(StageName::ReceiverInterruptCore, None, "no single core takes the packets, or a light load")
        }
    }
}
