//! The document of a passive diagnosis: ends of one connection joined, the busiest first.

use std::{collections::HashMap, net::SocketAddr};

use clearstream_schema::connections::{CONNECTIONS_SCHEMA, Connection, ConnectionEnd, Connections};

use super::{
    ConnectionFilter, Observed, SocketSeries,
    causes::{Ends, judge},
    facts::Facts,
};

/// Explains the `count` busiest connections that match a filter. A connection with both ends on this host is
/// one, and matches when either end does.
pub fn explain_connections(observed: &Observed, filter: &ConnectionFilter, count: usize) -> Connections {
    let mut matched: Vec<Ends<'_>> = joined(&observed.series);
    matched.retain(|ends| {
        [ends.sender(), ends.receiver()].into_iter().flatten().any(|end| matches(filter, &end))
    });
    let key = |ends: &Ends<'_>| {
        let facts = ends.described();
        let queues = [facts.last().send_queue_bytes, facts.last().receive_queue_bytes];
        (facts.out_bps() + facts.in_bps(), queues.map(u64::from).iter().sum::<u64>())
    };
    matched.sort_by(|one, two| {
        let ((rate, queue), (other_rate, other_queue)) = (key(one), key(two));
        other_rate.total_cmp(&rate).then(other_queue.cmp(&queue))
    });
    Connections {
        schema: CONNECTIONS_SCHEMA.to_owned(),
        version: 1,
        filter: filter.text().to_owned(),
        duration_ns: observed.duration_ns,
        sample_count: observed.sample_count,
        interval_ns: observed.interval_ns,
        longest_sample_ns: observed.longest_sample_ns,
        socket_count: observed.series.len() as u64 + observed.left_out_count,
        matched_count: matched.len() as u64,
        connections: matched.iter().take(count).map(connection).collect(),
        notices: observed.notices.clone(),
    }
}

fn matches(filter: &ConnectionFilter, end: &Facts<'_>) -> bool {
    filter.matches(end.last().local, end.last().remote, &end.series.owners)
}

/// Every connection once, with the ends that are on this host.
fn joined(series: &[SocketSeries]) -> Vec<Ends<'_>> {
    let ends: Vec<Facts<'_>> = series.iter().filter_map(Facts::of).collect();
    let mut by_addresses: HashMap<(SocketAddr, SocketAddr), Vec<usize>> = HashMap::new();
    for (place, end) in ends.iter().enumerate() {
        by_addresses.entry((end.last().local, end.last().remote)).or_default().push(place);
    }
    let mut taken = vec![false; ends.len()];
    let mut found = Vec::with_capacity(ends.len());
    for (place, end) in ends.iter().enumerate() {
        if std::mem::replace(&mut taken[place], true) {
            continue;
        }
        let others = by_addresses.get(&(end.last().remote, end.last().local));
        // Loopback addresses of another host are other addresses.
        let is_possible = |other: &usize| {
            ends[*other].series.host == end.series.host || !end.last().remote.ip().is_loopback()
        };
        let free = others.into_iter().flatten().copied().filter(|other| !taken[*other] && is_possible(other));
        // Loopback addresses are the same in every namespace: the own one first.
        let peer = free.min_by_key(|other| ends[*other].series.namespace != end.series.namespace);
        match peer {
            Some(peer) => {
                taken[peer] = true;
                found.push(both(*end, ends[peer]));
            }
            None => found.push(one(*end)),
        }
    }
    found
}

/// Bytes that an end sent, or wants to.
fn sends(end: &Facts<'_>) -> u64 {
    end.delta(|tcp| tcp.acked_bytes) + u64::from(end.last().send_queue_bytes)
}

fn both<'a>(one: Facts<'a>, two: Facts<'a>) -> Ends<'a> {
    let (sender, receiver) = if sends(&one) >= sends(&two) { (one, two) } else { (two, one) };
    Ends::Both { sender, receiver }
}

fn one(end: Facts<'_>) -> Ends<'_> {
    let receives = end.delta(|tcp| tcp.received_bytes) + u64::from(end.last().receive_queue_bytes);
    if sends(&end) >= receives { Ends::Sender(end) } else { Ends::Receiver(end) }
}

fn connection(ends: &Ends<'_>) -> Connection {
    let peer = match ends {
        Ends::Both { receiver, .. } => Some(end(receiver)),
        Ends::Sender(_) | Ends::Receiver(_) => None,
    };
    Connection { end: end(&ends.described()), peer, verdict: judge(ends) }
}

fn end(facts: &Facts<'_>) -> ConnectionEnd {
    let last = facts.last();
    let window = |of: fn(&clearstream_schema::tcp_info::TcpInfo) -> Option<u32>| {
        of(&last.tcp)?;
        Some(facts.median(|socket| f64::from(of(&socket.tcp).unwrap_or(0))) as u64)
    };
    ConnectionEnd {
        local: last.local,
        remote: last.remote,
        host: facts.series.host.clone(),
        namespace: facts.series.namespace,
        state: state(last.state).to_owned(),
        owners: facts.series.owners.clone(),
        uid: last.uid,
        inode: last.inode,
        observed_ns: facts.observed_ns(),
        out_bps: facts.out_bps(),
        in_bps: facts.in_bps(),
        rtt_ns: facts.rtt_ns(),
        min_rtt_ns: facts.min_rtt_ns(),
        congestion_window_count: facts.median(|socket| f64::from(socket.tcp.congestion_window_count)) as u32,
        send_mss_bytes: last.tcp.send_mss_bytes,
        retransmit_count: facts.retransmits(),
        send_window_bytes: window(|tcp| tcp.send_window_bytes),
        receive_window_bytes: window(|tcp| tcp.receive_window_bytes),
        receive_queue_bytes: facts.median(|socket| f64::from(socket.receive_queue_bytes)) as u64,
        send_queue_bytes: facts.median(|socket| f64::from(socket.send_queue_bytes)) as u64,
        memory: last.memory,
        busy_ratio: facts.busy(),
        receive_window_limited_ratio: facts.window_limited(),
        send_buffer_limited_ratio: facts.buffer_limited(),
        delivery_rate_bps: last.tcp.delivery_rate_bps,
        pacing_rate_bps: last.tcp.pacing_rate_bps,
        congestion_control: last.congestion_control.clone(),
        bbr: last.bbr,
        class_id: last.class_id,
        cgroup_id: last.cgroup_id,
    }
}

/// Names of include/net/tcp_states.h, as ss(8) writes them.
fn state(state: u8) -> &'static str {
    match state {
        1 => "established",
        2 => "syn-sent",
        4 => "fin-wait-1",
        5 => "fin-wait-2",
        8 => "close-wait",
        9 => "last-ack",
        11 => "closing",
        _ => "other",
    }
}
