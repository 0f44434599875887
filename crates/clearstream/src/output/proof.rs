//! Results of `route prove` for people.

use std::{collections::BTreeMap, fmt::Write as _};

use clearstream_prove::document::{
    ForwardingLimit, GatewayResult, RouteResult, RouteVerification, ShareFit, VerificationFinding,
    VerificationVerdict,
};
use clearstream_schema::{fabric::ReturnPath, tune::Severity};

use super::{
    Paint,
    quantity::{rate, time},
    table::{or_dash, table},
    tune::wrapped,
};

/// Tables of every route, findings, and the conclusion.
pub fn proof(proof: &RouteVerification, paint: Paint) -> String {
    let mut text = String::new();
    for route in &proof.routes {
        let _ = write!(text, "{}\n\n", route_text(route, paint));
    }
    for finding in &proof.findings {
        let _ = write!(text, "{}\n\n", finding_text(finding, paint));
    }
    for notice in &proof.notices {
        let _ = writeln!(text, "{}", paint.warning(&format!("note: {}", notice.message)));
    }
    let verdict = match proof.verdict {
        VerificationVerdict::Proven => "proven: every flow was routed as the fabric specifies".to_owned(),
        VerificationVerdict::Incomplete => {
            paint.warning("incomplete: no error was found, but not everything could be checked")
        }
        VerificationVerdict::Failed => {
            paint.warning("failed: not everything is routed as the fabric specifies")
        }
    };
    let _ = write!(text, "{verdict} ({})", time(proof.duration_ns));
    text
}

fn route_text(route: &RouteResult, paint: Paint) -> String {
    let family = if route.ipv6 { "IPv6" } else { "IPv4" };
    let [one, other] = &route.between;
    let all = route.flow_count + route.targeted_count;
    let mut text = format!(
        "{}: {} of {all} flows of {} pairs of hosts got a reply\n{}\n",
        paint.figure(&format!("{one} to {other}, {family}")),
        route.answered_count,
        route.pairs.len(),
        gateways(route)
    );
    let _ = writeln!(text, "{}", symmetry(route));
    let fits = [
        ("requests", route.forward_fit, route.asked_forward_fit, route.even),
        ("replies", route.reply_fit, route.asked_reply_fit, false),
    ];
    for (what, opened, lookups, even) in fits {
        for line in distribution(what, opened, lookups, even) {
            let _ = writeln!(text, "{line}");
        }
    }
    if let Some(line) = predicted(route) {
        let _ = writeln!(text, "{line}");
    }
    text.push_str(&classes(route));
    text
}

fn gateways(route: &RouteResult) -> String {
    let rows = route.gateways.iter().map(gateway_row).collect();
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

fn gateway_row(gateway: &GatewayResult) -> Vec<String> {
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

fn symmetry(route: &RouteResult) -> String {
    let path = match route.return_path {
        ReturnPath::Auto => "auto",
        ReturnPath::None => "none",
        ReturnPath::Alias => "alias",
        ReturnPath::ConnectionMark => "connection-mark",
        ReturnPath::EqualSeed => "equal-seed",
    };
    let expected = if route.symmetry_promised {
        "promises none".to_owned()
    } else {
        format!("leads to expect {:.0} %", route.asymmetric_expected_ratio * 100.0)
    };
    let share = match route.judged_count {
        0 => String::new(),
        judged => format!(" ({:.1} %)", route.asymmetric_count as f64 * 100.0 / judged as f64),
    };
    format!(
        "{} of {} flows{share} returned by another gateway; return path {path} {expected}",
        route.asymmetric_count, route.judged_count
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

fn predicted(route: &RouteResult) -> Option<String> {
    let [correct, all] = route.predicted_count;
    (all > 0)
        .then(|| format!("{correct} of {all} flows took the gateway that the client's kernel had returned"))
}

/// Flows by pairs of classes.
fn classes(route: &RouteResult) -> String {
    let mut rows: BTreeMap<(&str, &str), [u64; 4]> = BTreeMap::new();
    for pair in &route.pairs {
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

fn finding_text(finding: &VerificationFinding, paint: Paint) -> String {
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
