//! The report as a list of parts, before it becomes a page: HTML and Markdown
//! are two spellings of this.

use clearstream_schema::{
    host::HostReport,
    lab::{LabLink, LabSwitch},
    study::Figure as Kind,
};
use serde::Serialize;

use crate::{
    digest::{Digest, ExperimentDigest},
    figure::{Figure, Table, draw_both, identifier},
    figures::{
        cost, delay, effects, gateways, goodput, live, matrix, metric, row, staircase, throughput, window,
    },
    format::{bytes, join, level_of, rate, time},
    link,
    machine::{self, Marks},
    settings::SettingRow,
    summary::{self, Headline},
};

/// Everything that a report says.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    pub(crate) title: String,
    pub(crate) about: String,
    /// Hosts, date, mode: one line under the title.
    pub(crate) subtitle: String,
    /// Said of a run that crossed no network, above everything else.
    pub(crate) band: Option<String>,
    pub(crate) headlines: Vec<Headline>,
    /// One per experiment, a plateau below the model first.
    pub(crate) findings: Vec<Finding>,
    pub(crate) trust: Vec<String>,
    pub(crate) sections: Vec<Section>,
    pub(crate) settings: Vec<SettingRow>,
    pub(crate) notices: Table,
    pub(crate) failures: Table,
    pub(crate) missing: Table,
    pub(crate) provenance: Vec<Fact>,
    pub(crate) program_version: String,
}

/// What was found in an experiment.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) figure: String,
    pub(crate) title: String,
    pub(crate) text: String,
    /// Goodput stays below what window and link allow.
    pub(crate) short: bool,
}

/// One experiment, or the hosts.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) figures: Vec<Figure>,
    /// Why there is nothing to draw.
    pub(crate) absent: Option<String>,
}

/// A name and a value.
#[derive(Debug, Serialize)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Document {
    /// Composes the report.
    pub(crate) fn of(digest: &Digest) -> Self {
        let run = &digest.run;
        let ends = if digest.client.name == digest.server.name {
            digest.client.name.clone()
        } else {
            format!("{} to {}", digest.client.name, digest.server.name)
        };
        let lab = run.lab.as_ref().map_or_else(String::new, |lab| format!(" \u{b7} lab {}", lab.name));
        let mut sections: Vec<Section> = digest
            .experiments
            .iter()
            .filter(|e| e.spec.figure != Kind::Topology)
            .filter(|e| run.only.is_empty() || run.only.contains(&e.spec.name))
            .map(|experiment| section(digest, experiment))
            .collect();
        sections.push(hosts(digest));
        Self {
            title: format!("{}{}", run.study.title, link::title_suffix(digest)),
            band: link::band(digest),
            findings: findings(digest, &sections),
            about: run.study.about.clone(),
            subtitle: format!("{ends}{lab} \u{b7} {} run of {}", run.mode, run.started),
            headlines: summary::headlines(digest),
            trust: summary::trust(digest),
            sections,
            settings: digest.settings.rows(),
            notices: digest.notices.table(digest.trial_count),
            failures: failures(digest),
            missing: missing(digest),
            provenance: provenance(digest),
            program_version: run.program_version.clone(),
        }
    }
}

/// What the first figure of each experiment says.
fn findings(digest: &Digest, sections: &[Section]) -> Vec<Finding> {
    let short: Vec<String> = digest
        .experiments
        .iter()
        .filter(|experiment| experiment.shortfall.is_some())
        .map(section_id)
        .collect();
    let mut all: Vec<Finding> = sections
        .iter()
        .filter_map(|section| {
            let figure = section.figures.first()?;
            Some(Finding {
                figure: figure.id.clone(),
                title: section.title.clone(),
                text: figure.finding.clone(),
                short: short.contains(&section.id),
            })
        })
        .collect();
    all.sort_by_key(|finding| !finding.short);
    all
}

fn section_id(experiment: &ExperimentDigest) -> String {
    identifier(&[&experiment.spec.name]).replacen("figure", "section", 1)
}

fn section(digest: &Digest, experiment: &ExperimentDigest) -> Section {
    let mut figures: Vec<Figure> = Vec::new();
    if !experiment.cells.is_empty() {
        match experiment.spec.figure {
            Kind::WindowCurve => figures.extend(window::figure(digest, experiment)),
            Kind::LiveTraffic => figures.extend(live::figure(digest, experiment)),
            Kind::PinMatrix => figures.extend(matrix::figures(digest, experiment)),
            Kind::PinRow => figures.extend(row::figure(digest, experiment)),
            Kind::Throughput
            | Kind::Topology
            | Kind::Delay
            | Kind::Gateways
            | Kind::Curve
            | Kind::Bars
            | Kind::Table => {}
        }
        // Whatever was asked for, measured goodput is never left out.
        if figures.is_empty() {
            figures.extend(goodput::figure(experiment));
            figures.extend(effects::figure(experiment));
            figures.extend(throughput::figure(experiment));
        }
        if matches!(experiment.spec.figure, Kind::Throughput | Kind::LiveTraffic) {
            figures.extend(cost::figure(digest, experiment));
        }
    }
    if !experiment.gateways.is_empty() {
        figures.extend(gateways::figures(experiment));
    }
    if !experiment.probes.is_empty() {
        figures.extend(delay::figure(digest, experiment));
    }
    if !experiment.measured.is_empty() {
        figures.extend(metric::figures(experiment));
    }
    let failed = digest.failures.iter().filter(|f| f.experiment == experiment.spec.name).count();
    let absent = figures.is_empty().then(|| match failed {
        0 => "No trial of this experiment is in the record.".to_owned(),
        n => format!("No trial of this experiment succeeded; {n} failed (see the failed trials below)."),
    });
    Section {
        id: section_id(experiment),
        title: experiment.spec.title.clone(),
        about: format!("Measured over {}.", link::path(digest, experiment)),
        figures,
        absent,
    }
}

/// Pictures of both hosts and the stairs of their slots.
fn hosts(digest: &Digest) -> Section {
    let run = &digest.run;
    let interrupt = |role: &str| {
        let server = role == "server" || digest.one_machine();
        digest.experiments.iter().find_map(|e| {
            let receiver_is_server = e.direction() != clearstream_schema::flow::Direction::Reverse;
            e.interrupt_core().filter(|_| receiver_is_server == server || digest.one_machine())
        })
    };
    // A lab's links are virtual: nothing that was measured there crossed a slot.
    let crossed = run.lab.is_none();
    let best = digest
        .experiments
        .iter()
        .flat_map(|e| &e.cells)
        .filter_map(|cell| cell.goodput())
        .map(|estimate| estimate.median)
        .max_by(f64::total_cmp)
        .filter(|_| crossed);
    let alike = digest.one_machine();
    let mut figures = Vec::new();
    for (role, host) in [("client", &digest.client), ("server", &digest.server)] {
        if role == "server" && alike {
            continue;
        }
        let role_text = if alike { "both ends, one machine" } else { role };
        let name = if alike && digest.client.name != digest.server.name {
            format!("{} and {}", digest.client.name, digest.server.name)
        } else {
            host.name.clone()
        };
        figures.push(picture(host, role, (&name, role_text), Marks { interrupt_core: interrupt(role) }));
        let other = if role == "client" { &digest.server } else { &digest.client };
        match (staircase::alike(host, other), role) {
            (true, "server") => {}
            (true, _) => figures.extend(staircase::figure(host, "both hosts", best)),
            (false, role) => figures.extend(staircase::figure(host, role, best)),
        }
    }
    let about_hosts = digest.experiments.iter().filter(|e| e.spec.figure == Kind::Topology);
    if let Some(first) = figures.first_mut() {
        first.published = about_hosts.flat_map(|e| e.spec.published.clone()).collect();
    }
    let slots = [&digest.client, &digest.server].into_iter().any(|host| staircase::slot(host).is_some());
    Section {
        id: "section-hosts".to_owned(),
        title: "The hosts".to_owned(),
        about: if slots && crossed {
            String::new()
        } else if slots {
            "The lab's links are virtual: no packet of this run crossed a PCIe slot, so the stairs below say what the slots could carry, not what was measured.".to_owned()
        } else {
            "No PCIe staircase: neither host has a network interface in a PCIe slot with a known link, so no slot can limit this path.".to_owned()
        },
        figures,
        absent: None,
    }
}

fn picture(host: &HostReport, role: &str, (name, role_text): (&str, &str), marks: Marks) -> Figure {
    let id = identifier(&["host", role]);
    let title = format!("{name} ({role_text})");
    let finding = machine::description(host);
    let mut table =
        Table::new("Nodes of the host", &["Node", "Cores", "#Memory", "Package", "Distances", "Interfaces"]);
    for node in &host.nodes {
        let packages: Vec<String> = host
            .packages
            .iter()
            .filter(|package| package.cores.iter().any(|core| node.cores.contains(core)))
            .map(|package| package.package.to_string())
            .collect();
        let nics: Vec<String> =
            host.nics.iter().filter(|nic| nic.node == Some(node.node)).map(|nic| nic.name.clone()).collect();
        let distances: Vec<String> = node.distances.iter().map(u32::to_string).collect();
        table.push(vec![
            node.node.to_string(),
            clearstream_schema::CoreList(node.cores.clone()).to_string(),
            bytes(node.memory_bytes as f64),
            packages.join(", "),
            distances.join(" "),
            nics.join(", "),
        ]);
    }
    let notes = host.cpu_model.iter().map(|model| format!("Processor: {model}.")).collect();
    Figure {
        drawings: draw_both(&id, &title, &finding, |size| machine::draw(host, marks, size)),
        notes,
        legend: machine::legend(host, marks),
        table,
        published: Vec::new(),
        id,
        title,
        finding,
    }
}

fn failures(digest: &Digest) -> Table {
    let mut table = Table::new("Trials that could not be run", &["Trial", "Experiment", "Levels", "Why"]);
    for failure in &digest.failures {
        let levels: Vec<String> = failure.factors.iter().map(|(name, value)| level_of(name, value)).collect();
        table.push(vec![
            failure.trial.to_string(),
            failure.experiment.clone(),
            levels.join(", "),
            failure.message.clone(),
        ]);
    }
    table
}

fn missing(digest: &Digest) -> Table {
    let mut table = Table::new("Not available from the hosts", &["Host", "Part", "Source", "Why"]);
    for host in [&digest.client, &digest.server] {
        for part in &host.missing {
            table.push(vec![host.name.clone(), part.part.clone(), part.source.clone(), part.reason.clone()]);
        }
    }
    table
}

fn provenance(digest: &Digest) -> Vec<Fact> {
    let run = &digest.run;
    let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
    let mut facts = vec![
        fact("Run", run.id.clone()),
        fact("Study", format!("{}, version {}", run.study.name, run.study.version)),
        fact("Mode and seed", format!("{}, seed {}", run.mode, run.seed)),
        fact("Started", run.started.clone()),
        fact("Ended", run.ended.clone().unwrap_or_else(|| "not by itself".to_owned())),
        fact("Program", format!("clearstream {}", run.program_version)),
    ];
    if !run.only.is_empty() {
        facts.push(fact("Experiments", format!("only {}", join(&run.only))));
    }
    if let Some(lab) = &run.lab {
        facts.push(fact("Lab", format!("{}: {}", lab.name, lab.title)));
        facts.extend(lab.links.iter().map(|link| fact("Lab link", link_text(link))));
        facts.extend(lab.switches.iter().map(|switch| fact("Lab switch", switch_text(switch))));
    }
    if let Some(lines) = &digest.delay_lines {
        facts.push(fact(
            "Delay line",
            format!(
                "{} packets passed, {} dropped by the loss model, {} by a full queue; lateness at most {} (99th percentile), {} (largest)",
                lines.passed_count,
                lines.lost_count,
                lines.overflow_count,
                time(lines.late_p99_ns as f64),
                time(lines.late_max_ns as f64)
            ),
        ));
    }
    for (role, host) in [("Client", &digest.client), ("Server", &digest.server)] {
        facts.push(fact(role, host_text(host)));
    }
    facts
}

fn link_text(link: &LabLink) -> String {
    let mut parts = vec![
        format!("{} \u{2013} {}", link.ends[0].host, link.ends[1].host),
        format!("delay {} each way", link.delay),
        format!("jitter {}", link.jitter),
        format!("loss {}", crate::format::percent(link.loss_ratio)),
        format!("MTU {}", link.mtu),
    ];
    parts.insert(
        1,
        link.rate.map_or_else(|| "no rate limit".to_owned(), |r| format!("rate {}", rate(r.0 as f64))),
    );
    parts.join(", ")
}

fn switch_text(switch: &LabSwitch) -> String {
    let hosts: Vec<String> = switch.ends.iter().map(|end| end.host.clone()).collect();
    format!("{}: {}, MTU {}", switch.name, join(&hosts), switch.mtu)
}

/// Processor, kernel, limits and interfaces of a host in one line.
pub(crate) fn host_text(host: &HostReport) -> String {
    let mut parts = vec![host.name.clone()];
    parts.extend(host.cpu_model.clone());
    parts.extend(host.kernel.release.as_ref().map(|release| format!("Linux {release}")));
    parts
        .extend(host.kernel.congestion_control.as_ref().map(|cc| format!("default congestion control {cc}")));
    parts.extend(host.kernel.default_qdisc.as_ref().map(|qdisc| format!("default qdisc {qdisc}")));
    if host.limits.virtual_machine == Some(true) {
        parts.push("virtual machine".to_owned());
    }
    parts.extend(host.limits.container.as_ref().map(|kind| format!("in a container ({kind})")));
    parts.extend(
        host.limits.cpu_quota_millicores.map(|quota| format!("CPU quota {} cores", quota as f64 / 1000.0)),
    );
    parts.extend(host.limits.memory_limit_bytes.map(|limit| format!("memory limit {}", bytes(limit as f64))));
    if host.limits.own_network_namespace == Some(true) {
        parts.push("own network namespace".to_owned());
    }
    let nics: Vec<String> = host
        .nics
        .iter()
        .filter(|nic| nic.name != "lo")
        .map(|nic| {
            let mut text = nic.name.clone();
            if let Some(driver) = &nic.driver {
                text.push_str(&format!(" ({driver})"));
            }
            text
        })
        .collect();
    if !nics.is_empty() {
        parts.push(format!("interfaces {}", join(&nics)));
    }
    parts.join(", ")
}
