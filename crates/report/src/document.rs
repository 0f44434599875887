//! The report as a list of parts, before it becomes a page: HTML and Markdown
//! are two spellings of this.

use clearstream_schema::{
    host::HostReport,
    human,
    lab::{LabFile, LabLink, LabSwitch},
    study::Figure as Kind,
};
use serde::Serialize;

use crate::{
    analysis::Analysis,
    digest::{Digest, ExperimentDigest},
    figure::{Section, Table},
    figures::{self, metric},
    format::{bytes, hosts_of, join, level_of, rate, sentence_case, time},
    headline::Headline,
    hosts, link, settings, summary,
};

/// Contents of a report.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    pub(crate) title: String,
    pub(crate) about: String,
    /// Hosts, date, mode: one line under the title.
    pub(crate) subtitle: String,
    /// Warning for a run that crossed no network, above all sections.
    pub(crate) band: Option<String>,
    pub(crate) headlines: Vec<Headline>,
    /// One per experiment, a plateau below the model first.
    pub(crate) findings: Vec<Finding>,
    pub(crate) trust: Vec<String>,
    pub(crate) sections: Vec<Section>,
    /// Of flows, by setting.
    pub(crate) settings: Table,
    pub(crate) notices: Table,
    pub(crate) failures: Table,
    pub(crate) missing: Table,
    pub(crate) provenance: Vec<Fact>,
    pub(crate) program_version: String,
}

/// Section of an experiment.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) figure: String,
    pub(crate) title: String,
    pub(crate) text: String,
    /// Goodput stays below what window and link allow.
    pub(crate) short: bool,
}

/// A name and a value.
#[derive(Debug, Serialize)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Document {
    /// Composes the report.
    pub(crate) fn of(analysis: &Analysis) -> Self {
        let digest = &analysis.digest;
        let run = &digest.run;
        let (client, server) = (&digest.client().name, &digest.server().name);
        let clients = digest.storage_clients();
        let ends = match run.hosts.len() {
            _ if clients.is_some() => {
                format!("measured on {}", hosts_of(clients.into_iter().flatten()))
            }
            0..=2 if client == server => client.clone(),
            0..=2 => format!("{client} to {server}"),
            _ => human::few(run.hosts.iter().map(|host| &host.name)),
        };
        let lab = run.lab.as_ref().map_or_else(String::new, |lab| format!(" \u{b7} lab {}", lab.name));
        let mut sections: Vec<Section> = digest
            .experiments
            .iter()
            .filter(|e| e.spec.figure() != Kind::Topology)
            .filter(|e| run.only.is_empty() || run.only.contains(&e.spec.name))
            .map(|experiment| section(analysis, experiment))
            .collect();
        sections.push(hosts::section(digest));
        Self {
            title: format!("{}{}", run.study.title, link::title_suffix(digest)),
            band: link::band(digest),
            findings: findings(analysis, &sections),
            about: run.study.about.clone(),
            subtitle: format!("{ends}{lab} \u{b7} {} run of {}", run.mode, run.started),
            headlines: summary::headlines(analysis),
            trust: summary::trust(digest),
            sections,
            settings: settings::table(
                digest.experiments.iter().map(|one| (one.spec.name.as_str(), &one.settings)),
            ),
            notices: digest.notices.table(digest.trial_count),
            failures: failures(digest),
            missing: missing(digest),
            provenance: provenance(digest),
            program_version: run.program_version.clone(),
        }
    }
}

/// Finding of the first figure of each experiment.
fn findings(analysis: &Analysis, sections: &[Section]) -> Vec<Finding> {
    let digest = &analysis.digest;
    let short: Vec<String> = digest
        .experiments
        .iter()
        .filter(|experiment| analysis.shortfall(experiment).is_some())
        .map(ExperimentDigest::section_id)
        .collect();
    let mut all: Vec<Finding> = sections
        .iter()
        .filter_map(|section| Some((section, section.figures.first()?)))
        .flat_map(|(section, figure)| {
            let own = digest.experiments.iter().find(|experiment| experiment.section_id() == section.id);
            // A relation has a sentence of each metric, and each of them is a finding.
            let texts = match own.map(metric::sentences).filter(|texts| !texts.is_empty()) {
                Some(texts) => texts,
                None => vec![figure.finding.clone()],
            };
            texts.into_iter().map(|text| Finding {
                figure: figure.id.clone(),
                title: section.title.clone(),
                text,
                short: short.contains(&section.id),
            })
        })
        .collect();
    all.sort_by_key(|finding| !finding.short);
    all
}

fn section(analysis: &Analysis, experiment: &ExperimentDigest) -> Section {
    let digest = &analysis.digest;
    // What was measured is drawn, also where the record lacks what the study names.
    let mut figures =
        if experiment.is_drawn_by_metric() { Vec::new() } else { figures::own(analysis, experiment) };
    if figures.is_empty() || experiment.spec.metric.is_some() || experiment.spec.relation.is_some() {
        let mut others = metric::figures(digest, experiment);
        // A workload's own figure may be of the same metric.
        others.retain(|other| figures.iter().all(|figure| figure.id != other.id));
        figures.append(&mut others);
    }
    if figures.is_empty() {
        figures = figures::own(analysis, experiment);
    }
    let mut named = experiment.spec.metrics().iter();
    let lacks = named.find(|name| experiment.measured.metric(Some(name)).is_none());
    let lacks = lacks.map(|name| format!("No trial of this experiment has the metric {name}."));
    if let Some(first) = figures.first_mut() {
        first.notes.extend(lacks.clone());
    }
    let failed = digest.failures.iter().filter(|f| f.experiment == experiment.spec.name).count();
    let absent = figures.is_empty().then(|| match (lacks, failed) {
        (Some(lacks), 0) if !experiment.measured.is_empty() => lacks,
        (_, 0) => "No trial of this experiment is in the record.".to_owned(),
        (_, n) => {
            format!("No trial of this experiment succeeded; {n} failed (see the failed trials below).")
        }
    });
    Section {
        id: experiment.section_id(),
        title: experiment.spec.title.clone(),
        about: format!("Measured {}.", link::path(digest, experiment).phrase()),
        figures,
        absent,
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
    for host in &digest.run.hosts {
        for part in &host.report.missing {
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
    let clients = digest.storage_clients();
    if let Some(clients) = &clients {
        facts.push(fact("Measured on", hosts_of(clients.iter().copied())));
    }
    facts.extend(
        run.lab.iter().flat_map(services).map(|(name, hosts)| fact(&format!("Service {name}"), hosts)),
    );
    // Client and server are those of paths: what measures storage is named above.
    let role = |role: &str| if clients.is_some() { "Host".to_owned() } else { sentence_case(role) };
    facts.extend(run.hosts.iter().map(|host| fact(&role(&host.role), host_text(&host.report))));
    facts
}

/// Programs that a lab runs, each with its hosts.
fn services(lab: &LabFile) -> Vec<(&str, String)> {
    let mut all: Vec<(&str, Vec<&String>)> = Vec::new();
    for (host, service) in lab.hosts.iter().flat_map(|host| host.services.iter().map(move |one| (host, one)))
    {
        match all.iter_mut().find(|(name, _)| *name == service.name) {
            Some((_, hosts)) => hosts.push(&host.name),
            None => all.push((&service.name, vec![&host.name])),
        }
    }
    all.into_iter().map(|(name, hosts)| (name, hosts_of(hosts))).collect()
}

fn link_text(link: &LabLink) -> String {
    let mut parts = vec![
        format!("{} \u{2013} {}", link.ends[0].host, link.ends[1].host),
        format!("delay {} in each direction", link.delay),
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
