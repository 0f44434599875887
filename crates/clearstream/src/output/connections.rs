//! Open connections for people: a list of the busiest, then what limits each.

use clearstream_schema::{
    connections::{
        Connection, ConnectionEnd, ConnectionFinding, ConnectionRemedy, ConnectionVerdict, Connections,
        SocketOwner,
    },
    diagnosis::Role,
};

use super::{
    Paint,
    diagnose::wrapped,
    quantity::{bytes, count, rate, time},
    table::table,
};

/// Holders of a socket that are named.
const NAMED_OWNERS: usize = 3;

/// The whole page.
pub fn page(found: &Connections, paint: Paint) -> String {
    let mut text = format!(
        "{} of {} match {}, observed for {}: {} every {}\n",
        count(found.matched_count, "connection"),
        count(found.socket_count, "open TCP socket"),
        found.filter,
        time(found.duration_ns),
        count(u64::from(found.sample_count), "sample"),
        time(found.interval_ns)
    );
    if found.connections.is_empty() {
        return text.trim_end().to_owned();
    }
    let heads = ["#", ">out", ">in", ">rtt", ">cwnd", ">retrans", "limit", "program"];
    let rows = (1u64..).zip(&found.connections).map(|(number, connection)| row(number, connection));
    text.push_str(&table(&heads, rows.collect()));
    text.push('\n');
    for (number, connection) in (1u64..).zip(&found.connections) {
        text.push_str(&details(number, connection, paint));
    }
    text.truncate(text.trim_end().len());
    text
}

fn row(number: u64, connection: &Connection) -> Vec<String> {
    let end = &connection.end;
    vec![
        number.to_string(),
        rate(end.out_bps),
        rate(end.in_bps),
        time(end.rtt_ns),
        end.congestion_window_count.to_string(),
        end.retransmit_count.to_string(),
        limit(&connection.verdict),
        owners(&end.owners),
    ]
}

/// The cause in two words, as a sentence begins with it.
fn limit(verdict: &ConnectionVerdict) -> String {
    match verdict {
        ConnectionVerdict::Found(finding) => {
            finding.sentence.split(':').next().unwrap_or_default().to_owned()
        }
        ConnectionVerdict::Unknown { .. } => "unknown".to_owned(),
        ConnectionVerdict::Idle => "idle".to_owned(),
    }
}

/// `nginx[71], nginx[72]`.
fn owners(owners: &[SocketOwner]) -> String {
    let mut names: Vec<String> =
        owners.iter().take(NAMED_OWNERS).map(|owner| format!("{}[{}]", owner.program, owner.pid)).collect();
    if owners.len() > NAMED_OWNERS {
        names.push(format!("{} more", owners.len() - NAMED_OWNERS));
    }
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

fn details(number: u64, connection: &Connection, paint: Paint) -> String {
    let end = &connection.end;
    let mut text = format!("\n{number}. {} to {}, {}\n", end.local, end.remote, end.state);
    match &connection.verdict {
        ConnectionVerdict::Found(finding) => {
            text.push_str(&wrapped("   limit     ", &finding.sentence, |line| paint.figure(line)));
        }
        ConnectionVerdict::Unknown { because, next } => {
            let sentence = format!("unknown: {because}");
            text.push_str(&wrapped("   limit     ", &sentence, |line| paint.warning(line)));
            text.push_str(&wrapped("   next step ", next, str::to_owned));
        }
        ConnectionVerdict::Idle => text.push_str("   idle: no data in either direction, and none queued\n"),
    }
    text.push_str(&wrapped("   this end  ", &figures(end), str::to_owned));
    if let Some(peer) = &connection.peer {
        text.push_str(&wrapped("   peer      ", &figures(peer), str::to_owned));
    }
    if let ConnectionVerdict::Found(finding) = &connection.verdict {
        text.push_str(&evidence(finding));
    }
    text
}

fn figures(end: &ConnectionEnd) -> String {
    let window = |name: &str, value: Option<u64>| value.map(|value| format!(", {name} {}", bytes(value)));
    format!(
        "{}, Recv-Q {}, Send-Q {}{}{}, receive buffer {}, send buffer {}{}",
        owners(&end.owners),
        bytes(end.receive_queue_bytes),
        bytes(end.send_queue_bytes),
        window("window of the peer", end.send_window_bytes).unwrap_or_default(),
        window("own window", end.receive_window_bytes).unwrap_or_default(),
        bytes(u64::from(end.memory.receive_limit_bytes)),
        bytes(u64::from(end.memory.send_limit_bytes)),
        end.congestion_control.as_ref().map(|name| format!(", {name}")).unwrap_or_default()
    )
}

fn evidence(finding: &ConnectionFinding) -> String {
    let mut text = String::new();
    for item in &finding.evidence {
        let line = format!("{} [{}]", item.statement, item.source);
        text.push_str(&wrapped("   evidence  ", &line, str::to_owned));
    }
    for remedy in &finding.remedies {
        text.push_str(&wrapped("   remedy    ", &remedied(remedy), str::to_owned));
    }
    text
}

fn remedied(remedy: &ConnectionRemedy) -> String {
    let host = |role: &Role| match role {
        Role::Sender => "sender",
        Role::Receiver => "receiver",
    };
    match remedy {
        ConnectionRemedy::RaiseSysctl { on, name, field, at_least } => {
            let place = ["first", "second", "last"].get(*field as usize).copied().unwrap_or("last");
            let on = host(on);
            format!(
                "raise the {place} value of {name} on the {on}'s host to {at_least} or more; connections opened \
                 later use it"
            )
        }
        ConnectionRemedy::ChangeProgram { on, what } => format!("{}'s program: {what}", host(on)),
        ConnectionRemedy::Physical { what } => what.clone(),
    }
}
