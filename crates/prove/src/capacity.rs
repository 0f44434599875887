//! Path MTU and forwarding rate of each gateway, with findings.

use std::{
    cmp::min_by_key,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::document::RouteResult;
use clearstream_schema::tune::Severity;

use super::{
    calls::PathMtuFound,
    findings::finding,
    hosts::ProofError,
    judge::Judged,
    measure::{self, Sizes},
    prove::{Shown, Work, expected},
    tested_route::TestedRoute,
};

/// The timeout for the response to a probe packet is three round trips, plus this time
/// to wake a program on a busy host.
const WAKE_UP: Duration = Duration::from_millis(60);

impl Work<'_> {
    /// Path MTU and rate through each gateway that forwards.
    pub(super) fn capacities(
        &mut self,
        route: &TestedRoute,
        shown: &Shown,
        proof: &mut RouteResult,
    ) -> Result<(), ProofError> {
        let timeout = shown.connect * 3 + WAKE_UP;
        let expected_mtu = self.expected_mtu(route);
        let expected_time = expected(route, self.options, &self.rated);
        let begun = Instant::now();
        let all_left = self.left;
        for (place, gateway) in route.gateways.iter().enumerate() {
            // Pairs whose flows through it got responses.
            let works = |one: &&Judged| one.has_response() && one.forward == Some(place);
            let mut pairs: Vec<(usize, usize)> =
                shown.judged.iter().filter(works).map(|one| (one.flow.client, one.flow.server)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            if pairs.is_empty() {
                continue;
            }
            self.left = all_left.saturating_sub(begun.elapsed().min(expected_time));
            proof.gateways[place].expected_mtu_bytes = expected_mtu;
            if self.options.path_mtu {
                self.progress(format!("path MTU through {}", gateway.host));
                let sizes = self.sizes(route, &pairs, place, timeout)?;
                self.judge_sizes(route, place, sizes, expected_mtu, proof);
            }
            let duration = self.options.rate_duration.to_std();
            if !duration.is_zero() && self.rated.insert(gateway.host.clone()) {
                self.progress(format!("forwarding rate of {}", gateway.host));
                // Different hosts per gateway, so that one slow host stands out.
                let first = place % pairs.len();
                let order = pairs[first..].iter().chain(&pairs[..first]);
                self.rate(route, order.copied().collect(), place, duration, proof)?;
            }
        }
        Ok(())
    }

    fn rate(
        &mut self,
        route: &TestedRoute,
        pairs: Vec<(usize, usize)>,
        place: usize,
        duration: Duration,
        proof: &mut RouteResult,
    ) -> Result<(), ProofError> {
        let gateway = &route.gateways[place].host;
        for pair in pairs {
            match measure::rate(&mut self.hosts, route, pair, place, duration, &self.facts)? {
                Some(Ok(rate)) => {
                    proof.gateways[place].rate = Some(rate);
                    return Ok(());
                }
                Some(Err(reason)) => {
                    self.missed("not-measured", format!("forwarding rate of {gateway}: {reason}"));
                    return Ok(());
                }
                None => {}
            }
        }
        self.missed(
            "not-measured",
            format!("forwarding rate of {gateway}: no source port was found that leads there"),
        );
        Ok(())
    }

    /// MTU that packets should have: the fabric's, or the smallest of the end
    /// hosts' interfaces.
    fn expected_mtu(&self, route: &TestedRoute) -> Option<u32> {
        route.mtu_bytes.or_else(|| {
            let ends = route.clients.iter().chain(&route.servers);
            ends.filter_map(|end| self.facts.mtu_bytes(&end.host, end.address)).min()
        })
    }

    /// Searches for one pair of each pair of classes; returns the smallest results.
    fn sizes(
        &mut self,
        route: &TestedRoute,
        pairs: &[(usize, usize)],
        gateway: usize,
        timeout: Duration,
    ) -> Result<Sizes, ProofError> {
        let mut classes = BTreeSet::new();
        let mut smallest = Sizes::default();
        for pair in pairs {
            let (client, server) = (&route.clients[pair.0], &route.servers[pair.1]);
            if !classes.insert((&client.class, &server.class)) {
                continue;
            }
            let found = measure::path_mtu(&mut self.hosts, route, *pair, gateway, timeout)?;
            let smaller = |one: Option<_>, other: Option<_>| match (one, other) {
                (Some(one), Some(other)) => Some(min_by_key(one, other, bytes)),
                (one, other) => one.or(other),
            };
            smallest.forward = smaller(smallest.forward, found.forward);
            smallest.reply = smaller(smallest.reply, found.reply);
        }
        Ok(smallest)
    }

    fn judge_sizes(
        &mut self,
        route: &TestedRoute,
        place: usize,
        sizes: Sizes,
        expected: Option<u32>,
        proof: &mut RouteResult,
    ) {
        let gateway = &route.gateways[place];
        let row = &mut proof.gateways[place];
        row.path_mtu_bytes = sizes.forward.and_then(|found| found.path_bytes);
        row.reply_path_mtu_bytes = sizes.reply.and_then(|found| found.path_bytes);
        let directions = [
            (sizes.forward, gateway.client_side, gateway.server_side, &route.between[1]),
            (sizes.reply, gateway.server_side, gateway.client_side, &route.between[0]),
        ];
        for (found, arrives_by, leaves_by, network) in directions {
            let Some(found) = found else {
                let message = format!(
                    "path MTU through {} to network {network}: no flow of these hosts takes that path",
                    gateway.host
                );
                // With a hash of addresses, a gateway may be unused in one direction.
                match route.spreads_by_ports() {
                    true => self.missed("not-measured", message),
                    false => self.note("unused", message),
                }
                continue;
            };
            let Some(path) = found.path_bytes else {
                let message = format!(
                    "path MTU through {} to network {network}: small packets got no response either",
                    gateway.host
                );
                self.missed("not-measured", message);
                continue;
            };
            if let Some(expected) = expected.filter(|expected| path < *expected) {
                let is_reported = found.icmp_bytes.is_some();
                // A link also drops packets above the MTU of the interface that
                // receives them, without an ICMP error.
                let small = [leaves_by, arrives_by].into_iter().find_map(|address| {
                    let own = self.facts.mtu_bytes(&gateway.host, address).filter(|own| *own < expected)?;
                    Some((self.facts.interface(&gateway.host, address)?, own))
                });
                let interface = self.facts.interface(&gateway.host, leaves_by).unwrap_or("its interface");
                let message = format!(
                    "packets to network {network} through {} pass up to {path} bytes, the fabric specifies {expected}{}",
                    gateway.host,
                    if is_reported {
                        ""
                    } else {
                        "; longer ones are dropped without an ICMP error (black hole)"
                    }
                );
                let correction = match small {
                    Some((interface, own)) => {
                        format!("set the MTU of {interface} on {} to {expected} (it is {own})", gateway.host)
                    }
                    None => format!(
                        "check the MTU of switches and hosts behind {interface} of {}, and set it to {expected}",
                        gateway.host
                    ),
                };
                let id = if is_reported { "path-mtu" } else { "mtu-black-hole" };
                self.findings.push(finding(id, Severity::Error, &gateway.host, message, correction));
            }
        }
    }
}

fn bytes(found: &PathMtuFound) -> u32 {
    found.path_bytes.unwrap_or(0)
}
