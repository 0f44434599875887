//! Rankings, placements and steered ports for people.

use std::fmt::Write as _;

use clearstream_place::document::{Closeness, Placement, Ranking, Role, SpreadMethod, SteeredPorts};
use clearstream_schema::plan::Effect;

use super::table::{cores, or_dash, table};

/// One table per role.
pub fn ranking(ranking: &Ranking) -> String {
    let mut text = format!(
        "{} on {}{}; interrupt core {} ({})\n",
        ranking.interface,
        if ranking.host.is_empty() { "the host" } else { &ranking.host },
        ranking.node.map_or(String::new(), |node| format!(", node {node}")),
        ranking.interrupt_core,
        ranking.interrupt_core_from,
    );
    for ranked in &ranking.roles {
        let title = match ranked.role {
            Role::Interrupt => "Interrupts",
            Role::Reader => "Reader",
            Role::Writer => "Writer",
        };
        let rows = ranked.cores.iter().enumerate().map(|(at, core)| {
            vec![
                (at + 1).to_string(),
                core.core.to_string(),
                closeness(core.closeness).to_owned(),
                or_dash(core.node),
                or_dash(core.package),
                or_dash(core.distance),
                or_dash(core.hops),
                core.reason.clone(),
            ]
        });
        let header = [">rank", ">core", "place", ">node", ">package", ">distance", ">hops", "why"];
        let _ = write!(text, "\n{title}, best first\n{}\n", table(&header, rows.collect()));
    }
    if !ranking.excluded.is_empty() {
        text.push_str("\nLeft out\n");
        for excluded in &ranking.excluded {
            let _ = writeln!(text, "  core {}: {}", excluded.core, excluded.reason);
        }
    }
    notes(&mut text, &ranking.notes);
    text.trim_end().to_owned()
}

fn closeness(closeness: Closeness) -> &'static str {
    match closeness {
        Closeness::SharedCache => "shared cache",
        Closeness::SameNode => "same node",
        Closeness::SameCore => "same core",
        Closeness::Sibling => "SMT sibling",
        Closeness::OtherNode => "other node",
    }
}

/// Queues, flows, and the steps with their reasons.
pub fn placement(placement: &Placement) -> String {
    let mut text = format!("{}\n", placement.plan.purpose);
    let rows = placement
        .queues
        .iter()
        .map(|queue| vec![queue.queue.to_string(), or_dash(queue.interrupt), cores(&queue.cores)]);
    let heading = match placement.method {
        SpreadMethod::Queues => "softirq core",
        SpreadMethod::Software => "softirq cores (RPS)",
    };
    let _ = write!(text, "\nQueues\n{}\n", table(&[">queue", ">irq", heading], rows.collect()));
    let rows = placement.flows.iter().map(|flow| {
        vec![
            flow.flow.to_string(),
            flow.queue.to_string(),
            flow.reader_core.to_string(),
            flow.writer_core.to_string(),
        ]
    });
    let header = [">flow", ">queue", ">reader core", ">writer core"];
    let _ = write!(text, "\nFlows\n{}\n", table(&header, rows.collect()));
    let steps = &placement.plan.steps;
    if steps.is_empty() {
        text.push_str("\nEverything is in its place already: no steps.\n");
    } else {
        let _ = write!(text, "\nSteps, in this order\n");
        for step in steps {
            let _ = writeln!(
                text,
                "  {}: {} -> {}{}\n      {}",
                step.setting,
                or_dash(step.current.as_ref()),
                or_dash(step.desired.as_ref()),
                if step.effect == Effect::LinkFlap { " (the link may flap)" } else { "" },
                step.reason
            );
        }
    }
    notes(&mut text, &placement.plan.advice);
    text.trim_end().to_owned()
}

/// A row per flow.
pub fn ports(ports: &SteeredPorts) -> String {
    let mut text = format!("{} -> {}\n\n", ports.source, ports.destination);
    let rows = ports.flows.iter().map(|flow| {
        vec![
            flow.flow.to_string(),
            flow.source_port.to_string(),
            or_dash(flow.receive_queue),
            or_dash(flow.receive_core),
            or_dash(flow.receive_hash.clone()),
            or_dash(flow.acknowledgement_queue),
            or_dash(flow.path_member),
            flow.tried_count.to_string(),
        ]
    });
    let header = [
        ">flow",
        ">source port",
        ">receive queue",
        ">its core",
        "hash",
        ">ack queue",
        ">path member",
        ">tried",
    ];
    text.push_str(&table(&header, rows.collect()));
    text.push('\n');
    notes(&mut text, &ports.notes);
    text.trim_end().to_owned()
}

fn notes(text: &mut String, notes: &[String]) {
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        let _ = writeln!(text, "note: {note}");
    }
}
