//! Effective settings of a connected data socket, and notices where they fall short of the request.

use clearstream_host::HostRoot;
use clearstream_schema::{
    ByteCount,
    flow::{FlowConfig, Protocol, ReceiveMethod, SendMethod, SocketSettings},
    notice::Notice,
};
use clearstream_sys::{socket as options, tcp_info};
use socket2::Socket;

use super::open::{Part, congestion_controls};
use crate::data::{Operation, WorkerReady};

/// Round-trip time below which the peer is on this host or in the same rack, where a reader is woken too
/// often rather than too late.
const SHORT_RTT_NS: u64 = 1_000_000;

/// A notice.
pub(crate) fn notice(id: &str, message: impl Into<String>) -> Notice {
    Notice { id: id.to_owned(), message: message.into() }
}

/// The receive low-water mark: as requested, else half a transfer where that saves wake-ups without delay: on
/// a short path and with a buffer sized by the kernel. (With a fixed small window the reader must drain at
/// once, or the window closes.) Not where both ends are pinned to the same core: there the reader runs only
/// when the writer does not, is woken rarely anyway, and waiting for more only lets data fall out of the
/// cache.
pub(super) fn low_water(config: &FlowConfig, socket: &Socket) -> Option<u64> {
    if let Some(requested) = config.receive_low_water {
        return Some(requested.0);
    }
    let autotuned = config.window.is_none() && config.receive_buffer.is_none();
    // Discarding and splicing drain the queue without a buffer to fill.
    let fills = matches!(config.receive, ReceiveMethod::Copy | ReceiveMethod::IoUring);
    let short_path = tcp_info::read(socket).is_ok_and(|info| info.rtt_ns > 0 && info.rtt_ns < SHORT_RTT_NS);
    let one_core = config.receiver_cores.is_some() && config.receiver_cores == config.sender_cores;
    let steady = config.pacing.is_none() && config.burst_flows == 0;
    (autotuned && fills && short_path && steady && !one_core)
        .then_some(config.transfer().0 / 2)
        .filter(|bytes| *bytes > 1)
}

/// Reads back the settings of one flow on this side, whose transfers have this size.
pub(super) fn of_socket(
    config: &FlowConfig,
    part: Part,
    (socket, transfer): (&Socket, usize),
    workers: &[WorkerReady],
) -> SocketSettings {
    let text = |address: std::io::Result<socket2::SockAddr>| {
        address
            .ok()
            .and_then(|address| address.as_socket())
            .map_or_else(String::new, |address| address.to_string())
    };
    let stream = config.protocol != Protocol::Udp;
    let datagrams = workers.iter().find_map(|worker| match worker.operation {
        Operation::SendDatagrams(datagrams) | Operation::ReceiveDatagrams(datagrams) => Some(datagrams),
        Operation::Send(_) | Operation::Receive(_) => None,
    });
    let pinned = |of: &dyn Fn(&WorkerReady) -> bool| {
        let mut workers = workers.iter().filter(|worker| of(worker));
        workers.find_map(|worker| worker.pinned.as_ref()?.as_ref().ok().copied())
    };
    let receives = |worker: &WorkerReady| {
        matches!(worker.operation, Operation::Receive(_) | Operation::ReceiveDatagrams(_))
    };
    let congestion = stream.then(|| socket.tcp_congestion().ok()).flatten();
    SocketSettings {
        local: text(socket.local_addr()),
        remote: text(socket.peer_addr()),
        send_buffer_bytes: socket.send_buffer_size().unwrap_or(0) as u64,
        receive_buffer_bytes: socket.recv_buffer_size().unwrap_or(0) as u64,
        congestion_control: congestion
            .map(|name| String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()),
        pacing_rate_bps: options::pacing(socket).ok().flatten().map(|rate| rate.saturating_mul(8)),
        receive_low_water_bytes: options::receive_low_water(socket).unwrap_or(1).into(),
        pinned_core: if part.sends { pinned(&|worker| !receives(worker)) } else { pinned(&receives) },
        pinned_receiver_core: pinned(&receives).filter(|_| part.sends && part.receives),
        memory_node: workers.iter().find_map(|worker| worker.buffer.as_ref().ok().copied().flatten()),
        transfer_bytes: datagrams.map_or(transfer, |datagrams| datagrams.batch) as u64,
        segment_bytes: match datagrams {
            Some(datagrams) => datagrams.size as u64,
            None => tcp_info::read(socket).map_or(0, |info| info.send_mss_bytes.into()),
        },
        options: super::options::read(socket),
        interface: socket.device().ok().flatten().map(|name| String::from_utf8_lossy(&name).into_owned()),
        method: part.sends.then_some(if stream { config.method } else { SendMethod::Copy }),
        receive: part.receives.then_some(if stream { config.receive } else { ReceiveMethod::Copy }),
    }
}

/// Names the sysctl that keeps a buffer below what was requested.
pub(super) fn capped_windows(config: &FlowConfig, root: &HostRoot, first: &SocketSettings) -> Vec<Notice> {
    let send = (config.send_buffer.or(config.window), first.send_buffer_bytes, "send", "wmem_max");
    let receive =
        (config.receive_buffer.or(config.window), first.receive_buffer_bytes, "receive", "rmem_max");
    [send, receive]
        .into_iter()
        .filter_map(|(requested, effective, name, sysctl)| {
            let requested = requested?;
            // socket(7): the kernel doubles the value, for bookkeeping overhead.
            let capped = effective < requested.0.saturating_mul(2);
            let cap = root.read(&format!("proc/sys/net/core/{sysctl}")).ok();
            let cap = cap.and_then(|text| text.trim().parse().ok()).unwrap_or(effective / 2);
            capped.then(|| {
                notice(
                    "window-capped",
                    format!(
                        "{name} buffer: {requested} requested, net.core.{sysctl} caps it at {}: the effective window \
                         is about {} (read back doubled, as {effective} bytes). Run `sysctl -w net.core.{sysctl}={}`, \
                         or run as root with --force-buffers",
                        ByteCount(cap),
                        ByteCount(effective / 2),
                        requested.0,
                    ),
                )
            })
        })
        .collect()
}

/// Reports a congestion control reserved for root.
pub(super) fn refused_congestion_control(
    config: &FlowConfig,
    root: &HostRoot,
    first: &SocketSettings,
) -> Option<Notice> {
    let requested = config.congestion_control.as_ref()?;
    let effective = first.congestion_control.as_ref().filter(|_| first.method.is_some())?;
    (requested != effective).then(|| {
        notice(
            "congestion-control-refused",
            format!(
                "congestion control {requested} is reserved for root here, {effective} is in effect; allowed are {} \
                 (net.ipv4.tcp_allowed_congestion_control)",
                congestion_controls(root, "allowed")
            ),
        )
    })
}

/// Reports threads that could not be pinned.
pub(super) fn failed_pins(workers: &[WorkerReady]) -> Vec<Notice> {
    workers
        .iter()
        .filter_map(|worker| {
            let (core, error) = worker.pinned.as_ref()?.as_ref().err()?;
            Some(notice(
                "pin-refused",
                format!(
                    "flow {}: the thread could not be pinned to core {core} ({error}), which is online: a cpuset or \
                     container keeps this process off it; the scheduler chooses",
                    worker.flow
                ),
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_that_is_not_in_effect_is_reported() {
        let config = FlowConfig { congestion_control: Some("cubic".into()), ..FlowConfig::default() };
        let root = HostRoot::directory("/nonexistent");
        let effective = |name: &str, method| SocketSettings {
            congestion_control: Some(name.into()),
            method,
            ..SocketSettings::default()
        };
        let sends = Some(SendMethod::Copy);
        let notice = refused_congestion_control(&config, &root, &effective("bbr", sends)).unwrap();
        assert!(
            notice.message.contains("cubic") && notice.message.contains("bbr is in effect"),
            "{notice:?}"
        );
        assert_eq!(refused_congestion_control(&config, &root, &effective("cubic", sends)), None);
        assert_eq!(
            refused_congestion_control(&config, &root, &effective("bbr", None)),
            None,
            "the receiver does not choose it"
        );
    }

    #[test]
    fn a_capped_buffer_names_its_sysctl_and_the_effective_window() {
        let config = FlowConfig { window: Some(ByteCount(64 << 20)), ..FlowConfig::default() };
        let settings = SocketSettings {
            send_buffer_bytes: 128 << 20,
            receive_buffer_bytes: 8 << 20,
            ..SocketSettings::default()
        };
        let root = HostRoot::directory("/nonexistent");
        let notices = capped_windows(&config, &root, &settings);
        assert_eq!(notices.len(), 1, "the send buffer is as requested: {notices:?}");
        let message = &notices[0].message;
        for part in
            ["receive buffer", "net.core.rmem_max", "64MiB", "about 4MiB", "net.core.rmem_max=67108864"]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
        let correction = "Run `sysctl -w net.core.rmem_max=67108864`, or run as root with --force-buffers";
        assert!(message.ends_with(correction), "{message}");
    }
}
