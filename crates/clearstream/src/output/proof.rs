//! Results of `route prove` for people.

use std::{collections::BTreeMap, fmt::Write as _};

use clearstream_schema::{
    fabric::ReturnPath,
    proof::{CrossingProof, ForwardingLimit, GatewayProof, ProofFinding, ProofVerdict, RouteProof, ShareFit},
    tune::Severity,
};

use super::{
    Paint,
    quantity::{rate, time},
    table::{or_dash, table},
    tune::wrapped,
};

/// Tables of every route, findings, and the conclusion.
pub fn proof(proof: &RouteProof, paint: Paint) -> String {
    let mut text = String::new();
    for crossing in &proof.crossings {
        let _ = write!(text, "{}\n\n", crossing_text(crossing, paint));
    }
    for finding in &proof.findings {
        let _ = write!(text, "{}\n\n", finding_text(finding, paint));
    }
    for notice in &proof.notices {
        let _ = writeln!(text, "{}", paint.warning(&format!("note: {}", notice.message)));
    }
    let verdict = match proof.verdict {
        ProofVerdict::Proven => "proven: every flow was routed as the fabric specifies".to_owned(),
        ProofVerdict::Incomplete => {
            paint.warning("incomplete: no error was found, but not everything could be checked")
        }
        ProofVerdict::Failed => paint.warning("failed: not everything is routed as the fabric specifies"),
    };
    let _ = write!(text, "{verdict} ({})", time(proof.duration_ns));
    text
}

fn crossing_text(crossing: &CrossingProof, paint: Paint) -> String {
    let family = if crossing.ipv6 { "IPv6" } else { "IPv4" };
    let [one, other] = &crossing.between;
    let all = crossing.flow_count + crossing.targeted_count;
    let mut text = format!(
        "{}: {} of {all} flows of {} pairs of hosts got a reply\n{}\n",
        paint.figure(&format!("{one} to {other}, {family}")),
        crossing.answered_count,
        crossing.pairs.len(),
        gateways(crossing)
    );
    let _ = writeln!(text, "{}", symmetry(crossing));
    let fits = [
        ("requests", crossing.forward_fit, crossing.asked_forward_fit, crossing.even),
        ("replies", crossing.reply_fit, crossing.asked_reply_fit, false),
    ];
    for (what, opened, lookups, even) in fits {
        for line in distribution(what, opened, lookups, even) {
            let _ = writeln!(text, "{line}");
        }
    }
    if let Some(line) = predicted(crossing) {
        let _ = writeln!(text, "{line}");
    }
    text.push_str(&classes(crossing));
    text
}

fn gateways(crossing: &CrossingProof) -> String {
    let rows = crossing.gateways.iter().map(gateway_row).collect();
    table(
        &[
            "gateway",
            ">weight",
            ">requests",
            ">share",
            ">replies",
            ">share",
            ">unanswered",
            ">MTU there",
            ">back",
            ">rate",
            ">packets/s",
            "limit",
        ],
        rows,
    )
}

fn gateway_row(gateway: &GatewayProof) -> Vec<String> {
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    let limit = gateway.rate.as_ref().map(|rate| match rate.limit {
        ForwardingLimit::Link => "link",
        ForwardingLimit::GatewayCore => "core of the gateway",
        ForwardingLimit::SharedCore => "core of the machine",
        ForwardingLimit::EndHost => "end host",
        ForwardingLimit::Loss => "loss",
        ForwardingLimit::Unknown => "not known",
    });
    vec![
        gateway.gateway.clone(),
        percent(gateway.expected_ratio),
        gateway.forward_count.to_string(),
        or_dash(gateway.forward_ratio.map(percent)),
        gateway.reply_count.to_string(),
        or_dash(gateway.reply_ratio.map(percent)),
        gateway.unanswered_count.to_string(),
        or_dash(gateway.path_mtu_bytes),
        or_dash(gateway.reply_path_mtu_bytes),
        or_dash(gateway.rate.as_ref().map(|measured| rate(measured.goodput_bps))),
        or_dash(gateway.rate.as_ref().map(|measured| format!("{:.0}", measured.packets_per_second))),
        or_dash(limit),
    ]
}

fn symmetry(crossing: &CrossingProof) -> String {
    let path = match crossing.return_path {
        ReturnPath::Auto => "auto",
        ReturnPath::None => "none",
        ReturnPath::Alias => "alias",
        ReturnPath::ConnectionMark => "connection-mark",
        ReturnPath::EqualSeed => "equal-seed",
    };
    let expected = if crossing.symmetry_promised {
        "promises none".to_owned()
    } else {
        format!("leads to expect {:.0} %", crossing.asymmetric_expected_ratio * 100.0)
    };
    let share = match crossing.judged_count {
        0 => String::new(),
        judged => format!(" ({:.1} %)", crossing.asymmetric_count as f64 * 100.0 / judged as f64),
    };
    format!(
        "{} of {} flows{share} returned by another gateway; return path {path} {expected}",
        crossing.asymmetric_count, crossing.judged_count
    )
}

/// Load distribution of the opened flows with its expected deviation, and that of kernel lookups.
fn distribution(what: &str, opened: Option<ShareFit>, lookups: Option<ShareFit>, even: bool) -> Vec<String> {
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    let opened = opened.map(|fit| {
        let off = percent(fit.worst_deviation_ratio);
        let flows = fit.flow_count;
        if even {
            return format!("shares of {what}: {flows} flows at most {off} off the weights, by ports chosen for it");
        }
        let (chance, p) = (percent(fit.chance_deviation_ratio), percent(fit.p_value));
        format!(
            "shares of {what}: {flows} flows at most {off} off the weights, by chance up to {chance} (chi-square p {p})"
        )
    });
    let lookups = lookups.map(|fit| {
        let (off, chance) = (percent(fit.worst_deviation_ratio), percent(fit.chance_deviation_ratio));
        let count = fit.flow_count;
        format!("  by {count} lookups of the kernels at most {off} off, by chance up to {chance}")
    });
    opened.into_iter().chain(lookups).collect()
}

fn predicted(crossing: &CrossingProof) -> Option<String> {
    let [correct, all] = crossing.predicted_count;
    (all > 0)
        .then(|| format!("{correct} of {all} flows took the gateway that the client's kernel had returned"))
}

/// Flows by pairs of classes.
fn classes(crossing: &CrossingProof) -> String {
    let mut rows: BTreeMap<(&str, &str), [u64; 4]> = BTreeMap::new();
    for pair in &crossing.pairs {
        let row = rows.entry((&pair.client_class, &pair.server_class)).or_default();
        row[0] += 1;
        row[1] += pair.flow_count;
        row[2] += pair.answered_count;
        row[3] += pair.asymmetric_count;
    }
    let rows = rows.into_iter().map(|((client, server), counts)| {
        let mut row = vec![client.to_owned(), server.to_owned()];
        row.extend(counts.iter().map(ToString::to_string));
        row
    });
    table(&["from class", "to class", ">pairs", ">flows", ">replied", ">returned elsewhere"], rows.collect())
}

fn finding_text(finding: &ProofFinding, paint: Paint) -> String {
    let label = match finding.severity {
        Severity::Error => paint.warning("error"),
        Severity::Warning => "warning".to_owned(),
        Severity::Note => "note".to_owned(),
    };
    format!(
        "{label}   {}\n{}\n{}",
        paint.figure(&finding.id),
        wrapped(&finding.message).trim_end(),
        wrapped(&format!("instead: {}", finding.correction)).trim_end()
    )
}
