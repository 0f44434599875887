//! Notices of a plan: manual steps, and what it omits on some hosts.

use clearstream_routing::multipath;
use clearstream_schema::fabric::{Multipath, ReturnPath};

use super::{Planner, Route, sysctls};
use crate::fabric::HostId;

/// Largest deviation of a gateway's buckets from its weight that needs no notice.
const LARGEST_BUCKET_ERROR: f64 = 0.1;

impl Planner<'_> {
    /// Manual steps, and what the plan omits on some hosts.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        for (route, planned) in self.routes.iter().enumerate() {
            self.route_notices(route, planned, &mut notices);
        }
        for (class, tuning) in self.tunings.iter().enumerate() {
            let name = &self.fabric.file().classes[class].name;
            notices.extend(tuning.advice.iter().map(|advice| format!("{name}: {advice}")));
        }
        for (class, kernel) in self.kernels.iter().enumerate() {
            let routing = self.routing(HostId { class, index: 0 });
            let name = &self.fabric.file().classes[class].name;
            for need in kernel.missing(&routing) {
                let since =
                    need.since.map(|since| format!(", which came with Linux {since}")).unwrap_or_default();
                notices.push(format!("{name}: the kernel lacks {}{since}, for {}", need.name, need.what_for));
            }
            notices.extend(sysctls::left_out(self, class));
        }
        notices
    }

    fn route_notices(&self, index: usize, route: &Route, notices: &mut Vec<String>) {
        let configured = self.fabric.route(index).0;
        let [one, other] = &configured.between;
        let path = route.return_path();
        let stateful = route.gateways.iter().any(|number| self.fabric.gateways()[*number].stateful);
        if stateful && path == ReturnPath::None && route.gateways.len() > 1 {
            notices.push(format!(
                "{one} - {other}: gateways keep state and replies return by others: connections will be dropped; {}",
                route.choice.because
            ));
        }
        let is_resilient =
            self.class_multipaths(index).iter().any(|class| class.multipath == Multipath::Resilient);
        if stateful && is_resilient && route.gateways.len() > 1 {
            notices.push(format!(
                "{one} - {other}: gateways keep state, so busy flows never move to one that returns: it gets idle buckets and new flows, and no time bounds until when"
            ));
        }
        if path == ReturnPath::EqualSeed && configured.multipath == Multipath::Resilient {
            notices.push(format!(
                "{one} - {other}: buckets of resilient groups depend on what came before, so replies return as requests came only until a gateway goes: multipath = \"group\" keeps it"
            ));
        }
        let learns = path == ReturnPath::ConnectionMark
            && route.networks.iter().any(|network| {
                let has_servers = self.servers_on(*network).next().is_some();
                has_servers && route.gateways.iter().any(|number| self.hardware(*number, *network).is_none())
            });
        if learns {
            notices.push(format!(
                "{one} - {other}: link addresses of gateways are not in the file: servers learn them from their neighbours when the plan is applied, and a gateway whose interface is replaced needs another apply"
            ));
        }
        notices.extend(self.few_buckets(index, route));
        let has_ipv6 = |alias: &super::Alias| alias.address.is_ipv6();
        if route.aliases.iter().flatten().any(has_ipv6) {
            // net/ipv6/fib6_rules.c: a rule with a source calls ipv6_dev_get_saddr
            // where the packet has none yet; of equal addresses it selects the
            // newest.
            notices.push(format!(
                "{one} - {other}: a server that begins an IPv6 flow without binding an address may get one of its further addresses from the kernel, and all such flows one gateway: bind the first address there"
            ));
        }
        for ipv6 in [false, true] {
            let has = |end: usize| {
                let prefixes = &self.fabric.network(route.networks[end]).prefixes;
                prefixes.iter().any(|prefix| prefix.address.is_ipv6() == ipv6)
            };
            let family = if ipv6 { "IPv6" } else { "IPv4" };
            let hops = route.hops[usize::from(ipv6)][0].len();
            if has(0) && has(1) && hops == 0 {
                notices.push(format!(
                    "{one} - {other}: no gateway has {family} on both sides: it is not routed"
                ));
            } else if hops > 0 && hops < route.gateways.len() {
                let all = route.gateways.len();
                notices.push(format!("{one} - {other}: {hops} of {all} gateways carry {family}"));
            }
        }
    }

    /// Buckets are whole: a small number of them cannot represent the weights.
    fn few_buckets(&self, index: usize, route: &Route) -> Option<String> {
        let classes = self.class_multipaths(index);
        let count = self.bucket_count(index);
        let gateways: Vec<_> = route.gateways.iter().map(|number| &self.fabric.gateways()[*number]).collect();
        let weights: Vec<u16> = gateways.iter().map(|gateway| gateway.weight).collect();
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let buckets = multipath::Buckets::new(count, &weights);
        let share = |at: usize| {
            let own = buckets.owners.iter().filter(|owner| **owner == Some(at)).count();
            (own as f64 / f64::from(count), f64::from(weights[at]) / total)
        };
        let far_off = |at: &usize| {
            let (has, wants) = share(*at);
            (has / wants - 1.0).abs() > LARGEST_BUCKET_ERROR
        };
        let worst = (0..weights.len()).find(far_off)?;
        classes.iter().any(|class| class.multipath == Multipath::Resilient).then(|| {
            let (has, wants) = share(worst);
            let enough = multipath::bucket_count(&weights);
            format!(
                "{count} buckets are few for {} gateways: {} gets {:.1} % of the flows where its weight requests {:.1} %; write bucket-count = {enough} below [numbers]",
                gateways.len(), gateways[worst].name, 100.0 * has, 100.0 * wants
            )
        })
    }
}
