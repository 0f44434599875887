//! What depends on a release of the kernel that is not known: files without `--kernel` are judged
//! as before and as since the change, and what only one of the two has says so.

use clearstream_schema::{
    prefix::Prefix,
    routing::{RouteAction, RoutingInterface},
    tune::{Finding, Severity},
};
use clearstream_tune::KernelVersion;

use super::{Subject, view::is_of_the_link};

/// The first kernel that prefers, of several IPv4 next hops, one by which the packet's
/// source would be chosen (`fib_select_multipath`, net/ipv4/fib_semantics.c).
const PREFERS_SOURCE: KernelVersion = KernelVersion::new(6, 16, 0);

impl Subject {
    /// Whether its kernel prefers a next hop by the source; absent where its release is not known.
    pub(super) fn prefers_source(&self) -> Option<bool> {
        let kernel = self.settings.as_ref().and_then(|settings| settings.kernel);
        kernel.map(|kernel| kernel >= PREFERS_SOURCE)
    }
}

/// Whether the release is not known of a host for which it matters: one on several networks with
/// several IPv4 next hops of a route that are not those of a group.
pub(super) fn is_open(host: &Subject) -> bool {
    let is_choice = |action: &RouteAction| match action {
        RouteAction::Gateways(hops) => hops.len() > 1 && hops.iter().any(|hop| hop.via.is_ipv4()),
        _ => false,
    };
    let is_near = |interface: &&RoutingInterface| {
        let mut own = interface.addresses.iter().map(|own| own.value.address);
        own.any(|own| own.is_ipv4() && !is_of_the_link(Prefix::host(own)))
    };
    host.prefers_source().is_none()
        && host.routing.interfaces.iter().filter(is_near).count() > 1
        && host.routing.routes.iter().any(|route| is_choice(&route.action))
}

/// The findings of both, those of one alone as warnings that say which releases they are for.
pub(super) fn joined(before: Vec<Finding>, since: Vec<Finding>) -> Vec<Finding> {
    let of_one = |finding: Finding, releases: &str| Finding {
        severity: finding.severity.min(Severity::Warning),
        message: format!(
            "{} (only {releases} Linux {PREFERS_SOURCE}, which prefers, of several next hops, one whose own address is \
             the packet's source; the release is not known: give it by --kernel)",
            finding.message
        ),
        ..finding
    };
    let lacks = |others: &[Finding], finding: &Finding| !others.contains(finding);
    let later: Vec<Finding> = since.iter().filter(|it| lacks(&before, it)).cloned().collect();
    let (both, earlier): (Vec<_>, Vec<_>) = before.into_iter().partition(|finding| since.contains(finding));
    let earlier = earlier.into_iter().map(|finding| of_one(finding, "before"));
    both.into_iter().chain(earlier).chain(later.into_iter().map(|finding| of_one(finding, "since"))).collect()
}
