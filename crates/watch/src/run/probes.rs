//! Probes between the decisions and the sockets: those that are sent, replies to them, and those of others.

use super::Watch;
use crate::{
    network_path::{PathAction, Probe, ProbeReply, ReplyKind},
    packet::{self, PROBE_BYTES, ProbePacket},
    probe_kind::{ProbeClass, ProbeKind, Transport},
    sockets::Received,
};

/// Longest IPv4 packet (RFC 791).
const MOST_PACKET_BYTES: u32 = 65_535;

impl Watch<'_> {
    /// Passes a reply on, and replies to a probe of another host.
    pub(super) fn handle(&mut self, received: &Received, actions: &mut Vec<(usize, PathAction)>) {
        let probe = &received.probe;
        if probe.fabric != self.fabric_number {
            return;
        }
        if !probe.is_reply && !received.echo {
            self.serve(received);
        } else if probe.run == self.run_number {
            let (path, gateway) = (usize::from(probe.path), usize::from(probe.gateway));
            let now = self.now();
            let Some(health) = self.health.get_mut(path) else { return };
            let origin = if received.echo { ReplyKind::Echo } else { ReplyKind::Watch };
            let transport = if received.segment.is_some() { Transport::Tcp } else { Transport::Udp };
            let class = ProbeClass { transport, large: usize::from(probe.payload_bytes) > PROBE_BYTES };
            let kind = ProbeKind { class, port: probe.port };
            let replied = health.reply(now, ProbeReply { gateway, round: probe.round, origin, kind });
            actions.extend(replied.into_iter().map(|action| (path, action)));
            if let Some(place) = self.round_trips[path].get_mut(gateway) {
                let elsewhere = received.age_ns() + u64::from(probe.held_us) * 1000;
                let since = |now: u64| now.saturating_sub(probe.sent_ns).saturating_sub(elsewhere);
                *place = u64::try_from(now.as_nanos()).ok().map(since);
            }
        }
    }

    /// Replies to a remote host's probe through the gateway that it names.
    fn serve(&mut self, received: &Received) {
        let probe = received.probe;
        let Some(&(path, gateway)) = self.by_address.get(&probe.reply_via) else { return };
        let at = &self.config.paths[path];
        let elsewhere = received.segment.is_some_and(|segment| segment.to != at.address);
        if elsewhere || !at.remote_prefixes.iter().any(|prefix| prefix.contains(received.from.ip())) {
            return;
        }
        let Some(place) = self.neighbours.place(path, gateway) else { return };
        self.sockets.reply(place, at.address, received);
        self.served_count += 1;
    }

    pub(super) fn send(&mut self, path: usize, probe: Probe) {
        tracing::trace!(path, target = probe.target, gateway = probe.gateway, round = probe.round, "probe");
        let at = &self.config.paths[path];
        let (Some(to), Some(gateway)) = (at.candidates.get(probe.target), at.gateways.get(probe.gateway))
        else {
            return;
        };
        // A gateway without a link address counts as one that does not respond.
        let Some(place) = self.neighbours.place(path, probe.gateway) else { return };
        let ProbeClass { transport, large } = probe.kind.class;
        let payload_bytes = large.then(|| self.large_payload_bytes(path, transport)).flatten();
        let packet = ProbePacket {
            is_reply: false,
            fabric: self.fabric_number,
            run: self.run_number,
            round: probe.round,
            path: path as u16,
            gateway: probe.gateway as u16,
            reply_via: gateway.remote_address,
            sent_ns: u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX),
            port: probe.kind.port,
            payload_bytes: payload_bytes.unwrap_or(PROBE_BYTES as u16),
            held_us: 0,
        };
        self.sockets.send(place, at.address, *to, transport, packet);
        if probe.echo {
            self.sockets.send_echo(place, at.address, *to, packet);
        }
    }

    /// Largest packet of a path, headers included: by the MTU of the own interface and that of the networks in the
    /// fabric. Absent while it is unknown, and where no packet is larger than a small probe.
    pub(super) fn mtu_bytes(&self, path: usize) -> Option<u32> {
        let at = &self.config.paths[path];
        let least = [self.neighbours.mtu_bytes(path)?, at.mtu_bytes.unwrap_or(u32::MAX), MOST_PACKET_BYTES];
        let bytes = least.into_iter().min()?;
        let small = PROBE_BYTES as u32 + packet::header_bytes(at.address.is_ipv6(), true);
        (bytes > small).then_some(bytes)
    }

    /// Payload of a large probe.
    fn large_payload_bytes(&self, path: usize, transport: Transport) -> Option<u16> {
        let headers =
            packet::header_bytes(self.config.paths[path].address.is_ipv6(), transport == Transport::Tcp);
        u16::try_from(self.mtu_bytes(path)?.checked_sub(headers)?).ok()
    }
}
