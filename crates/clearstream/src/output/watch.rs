//! Events and status of the gateway watch for people.

use clearstream_dashboard::{StateRow, StateTable};
use clearstream_schema::watch::{
    GatewayStatus, MissingObject, PathStatus, TargetReason, WatchEvent, WatchEventKind, WatchStatus,
};

use super::{
    quantity::time,
    table::{or_dash, table},
};

/// An event in one line, with its time of day (UTC).
pub fn event(event: &WatchEvent) -> String {
    // RFC 3339: the time of day stands behind the T.
    let clock = event.time.get(11..23).unwrap_or(&event.time);
    format!("{clock} {}", event_text(&event.event))
}

/// An event without its time.
pub fn event_text(event: &WatchEventKind) -> String {
    match event {
        WatchEventKind::Started { paths } => {
            format!("watching {}", paths.iter().map(path_text).collect::<Vec<_>>().join("; "))
        }
        WatchEventKind::Out { path, gateway, reason, left_count, delay_ns } => {
            let delay = delay_ns
                .map_or_else(String::new, |delay| format!(", {} after the first lost probe", time(delay)));
            format!("{gateway} removed from the path to {path}: {reason}; {left_count} left{delay}")
        }
        WatchEventKind::In { path, gateway, used_count } => {
            format!("{gateway} restored on the path to {path}; {used_count} used")
        }
        WatchEventKind::Rebalanced { path, gateway, bucket_count, bucket_total, delay_ns } => {
            format!(
                "{gateway} has {bucket_count} of {bucket_total} buckets on the path to {path}, {} after its return; flows of these buckets use it",
                time(*delay_ns)
            )
        }
        WatchEventKind::KeptLast { path, gateway, reason } => {
            format!("{gateway} kept on the path to {path} as the last one: {reason}")
        }
        WatchEventKind::Silent { path } => {
            format!(
                "no remote host responds through any gateway on the path to {path}; next hops are not changed"
            )
        }
        WatchEventKind::Reachable { path } => format!("remote hosts respond on the path to {path}"),
        WatchEventKind::TargetChanged { path, from, to, reason } => {
            let cause = match reason {
                TargetReason::Silent => "does not respond through any gateway",
                TargetReason::NoWatch => "has no watch, which another remote host has,",
            };
            format!("{from} {cause} on the path to {path}; {to} is probed instead")
        }
        WatchEventKind::Drained { gateway } => format!("{gateway} drained by an operator"),
        WatchEventKind::Undrained { gateway } => format!("{gateway} no longer drained"),
        WatchEventKind::Repaired { found } => {
            format!("next hops were changed by another program and repaired: {found}")
        }
        WatchEventKind::Lost { what, reason } => format!("not in effect any more: {what}; {reason}"),
        WatchEventKind::Held { what, holder } => {
            format!(
                "{what} is not installed: held by {holder}, which is left alone; it is installed when that goes"
            )
        }
        WatchEventKind::Restored { what } => format!("restored: {what}"),
        WatchEventKind::Failed { message } => message.clone(),
        WatchEventKind::Stopped => "stopped; the routes stay as they are".to_owned(),
    }
}

fn path_text(path: &PathStatus) -> String {
    let used = path.gateways.iter().filter(|gateway| gateway.used).count();
    let targets: Vec<String> = path.targets.iter().map(ToString::to_string).collect();
    format!(
        "{used} of {} gateways to {} every {}, probing {}",
        path.gateways.len(),
        path.path,
        time(path.interval_ns),
        targets.join(", ")
    )
}

/// Objects named where some are not installed; further ones are counted.
const MISSING_NAMED: usize = 3;

/// Columns of a table of gateways.
const GATEWAY_HEAD: [&str; 10] = [
    "gateway",
    "address",
    "state",
    ">round trip",
    ">replies",
    ">lost",
    ">recent loss",
    ">buckets",
    ">removals",
    "reason",
];

/// Status, with a table per path.
pub fn status(status: &WatchStatus) -> String {
    let mut text = format!("{}, fabric {}, for {}\n", status.host, status.fabric, time(status.running_ns));
    for path in &status.paths {
        text.push_str(&format!("\n{}{}\n", path_text(path), remarks(path)));
        let rows = path.gateways.iter().map(|gateway| row(path, gateway)).collect();
        text.push_str(&table(&GATEWAY_HEAD, rows));
        text.push('\n');
    }
    text.push_str(&format!(
        "\n{} probes of other hosts served; next hops changed {} times, {} failed, {} repaired, {} restored",
        status.served_count,
        status.change_count,
        status.failed_change_count,
        status.repair_count,
        status.restored_count
    ));
    text
}

/// Status as a page has it: a table per path, and one of the watch itself.
pub fn tables(status: &WatchStatus) -> Vec<StateTable> {
    let head = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut tables: Vec<StateTable> = (status.paths.iter())
        .map(|path| StateTable {
            title: format!("{}{}", path_text(path), remarks(path)),
            head: head(&GATEWAY_HEAD),
            rows: (path.gateways.iter())
                .map(|gateway| StateRow { cells: row(path, gateway), bad: !gateway.used && !gateway.drained })
                .collect(),
        })
        .collect();
    let counts = [
        status.served_count,
        status.change_count,
        status.failed_change_count,
        status.repair_count,
        status.restored_count,
    ];
    tables.push(StateTable {
        title: "this watch".to_owned(),
        head: head(&[
            ">probes of others served",
            ">changes of next hops",
            ">failed",
            ">repaired",
            ">restored",
        ]),
        rows: vec![StateRow {
            cells: counts.map(|count| count.to_string()).to_vec(),
            bad: status.failed_change_count > 0,
        }],
    });
    tables
}

/// Problems of a path, and when established flows move.
fn remarks(path: &PathStatus) -> String {
    let mut text = String::new();
    if !path.installed {
        text.push_str(&format!("; not installed: {}", missing(&path.missing)));
    }
    if !path.reachable {
        text.push_str("; no remote host responds");
    } else {
        text.push_str(match path.tcp_target_count {
            0 => "; no remote host responds to TCP, so only UDP is judged",
            1 => "; TCP is judged by one remote host alone",
            _ => "",
        });
        if let Some(bytes) = path.large_bytes.filter(|_| path.large_target_count == 0) {
            text.push_str(&format!(
                "; no remote host responds to packets of {bytes} bytes, so only small ones are judged"
            ));
        }
    }
    match path.group.map(|group| group.unbalanced_seconds) {
        None => {}
        Some(0) => text.push_str("; established flows stay where they are when a gateway returns"),
        Some(seconds) => {
            text.push_str(&format!("; busy flows move to a gateway {seconds} s after its return"));
        }
    }
    text
}

/// Objects that are not in effect, with who holds their places.
fn missing(missing: &[MissingObject]) -> String {
    let text = |missing: &MissingObject| match &missing.holder {
        Some(holder) => format!("{}, held by {holder}", missing.what),
        None => missing.what.clone(),
    };
    // What others hold is for an operator to decide.
    let (held, gone): (Vec<_>, Vec<_>) = missing.iter().partition(|missing| missing.holder.is_some());
    let named: Vec<String> = held.into_iter().chain(gone).take(MISSING_NAMED).map(text).collect();
    match missing.len().saturating_sub(MISSING_NAMED) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

fn row(path: &PathStatus, gateway: &GatewayStatus) -> Vec<String> {
    let state = match (gateway.used, gateway.drained, gateway.reason) {
        (true, ..) => "used",
        (false, true, _) => "drained",
        (false, false, None) if !path.installed => "not installed",
        (false, false, _) => "removed",
    };
    vec![
        gateway.name.clone(),
        gateway.address.to_string(),
        state.to_owned(),
        or_dash(gateway.round_trip_ns.map(time)),
        gateway.counts.answered_count.to_string(),
        gateway.counts.lost_count.to_string(),
        or_dash(gateway.loss_ratio.map(|ratio| format!("{:.1} %", 100.0 * ratio))),
        or_dash(gateway.bucket_count),
        gateway.counts.out_count.to_string(),
        gateway.reason.map_or_else(String::new, |reason| reason.to_string()),
    ]
}
