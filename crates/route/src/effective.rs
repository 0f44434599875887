//! Verification of a host's routing against the plan: its objects, and the kernel's
//! own lookups.

use std::{collections::BTreeSet, net::IpAddr};

use clearstream_netlink::{LiveRoute, NetlinkError, RouteQuery, RouteSocket, marks_are_set};
use clearstream_routing::{
    lookup::{Lookup, Verdict},
    multipath::ports_are_hashed,
};
use clearstream_schema::{
    plan::{Check, Value},
    routing::{Hop, HostRouting, NexthopTarget, RouteAction},
};
use clearstream_tune::KernelVersion;
use rustix::io::Errno;

use crate::{
    difference::{Current, DifferenceError, MARK_TABLE, Wanted, deviations},
    ways::{
        Cause, NextHop, OnlyIf, PORTS, Plan, Question, USER, Way, altered_nexthop, names_its_route, obstacle,
    },
};

/// A gateway with a share `w` of the ports is missed by `n` of them with probability
/// `(1 - w)^n < e^-(n w)`: one question in 160 000 errs.
const MISSES: f64 = 12.0;
/// Source ports of one question, at most.
const MOST_PORTS: usize = 4096;

/// One check for each object of the plan, and one for each object of ours that is
/// not in it.
pub fn read_back(current: &Current, wanted: &Wanted<'_>) -> Result<Vec<Check>, DifferenceError> {
    // Against a host that has the interfaces and nothing else, all of it is a difference.
    let mut bare = Current { kernel: current.kernel.clone(), ..Current::default() };
    bare.routing.interfaces = current.routing.interfaces.clone();
    for interface in &mut bare.routing.interfaces {
        (interface.addresses, interface.mtu, interface.infiniband_mode) = (Vec::new(), None, None);
    }
    let (open, held) = deviations(current, wanted)?;
    let (all, _) = deviations(&bare, wanted)?;
    let extra = open.iter().filter(|step| step.desired.is_none());
    let check = |step: &clearstream_schema::plan::Step| {
        let text = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
        let expected = text(step.desired.as_ref());
        let missing = open.iter().find(|open| open.setting == step.setting);
        let found = match missing {
            None => expected.clone(),
            Some(open) => text(open.current.as_ref()),
        };
        let note = held.contains(&step.setting).then(|| {
            "it is of another owner, or another kind of group, and `clearstream route apply` does not touch it: remove it first"
                .to_owned()
        });
        Check {
            subject: step.setting.to_string(),
            expected,
            found: Some(found),
            holds: missing.is_none(),
            note,
        }
    };
    Ok(all.iter().chain(extra).map(check).collect())
}

/// Asks the kernel where each packet goes, by several source ports where the plan has
/// several gateways, and names the route or rule that takes it elsewhere.
pub fn lookups(
    questions: &[Question],
    current: &Current,
    wanted: &Wanted<'_>,
    socket: &mut RouteSocket,
) -> Vec<Check> {
    let (model, planned) = (Lookup::new(&current.routing), Lookup::new(wanted.routing));
    // Before Linux 4.18 a lookup ignores ports.
    let release = current.kernel.parse::<KernelVersion>();
    let knows_ports = release.is_ok_and(|kernel| kernel >= KernelVersion::new(4, 18, 0));
    let current = &current.routing;
    // Only where it matters: the request makes a kernel load nf_tables.
    let matters = questions.iter().any(|question| question.only_if == Some(OnlyIf::Marked));
    // What one has no right to read may be so; a kernel without nf_tables sets none by it.
    let is_hidden = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    let sets_marks = matters && marks_are_set(MARK_TABLE).unwrap_or_else(is_hidden);
    let mut asking = Asking { current, wanted, model, planned, socket, sets_marks, knows_ports };
    questions.iter().map(|question| asking.check(question)).collect()
}

struct Asking<'a> {
    current: &'a HostRouting,
    wanted: &'a Wanted<'a>,
    model: Lookup<'a>,
    planned: Lookup<'a>,
    socket: &'a mut RouteSocket,
    /// Something other than the plan sets marks.
    sets_marks: bool,
    /// Lookups take ports into account.
    knows_ports: bool,
}

/// The kernel's answers.
struct Answer {
    way: Way,
    /// The route in effect; absent where the kernel refuses, or is older than 4.13.
    route: Option<LiveRoute>,
    error: Option<NetlinkError>,
    /// Source that the kernel chooses for a socket that has none.
    source: Option<IpAddr>,
}

impl Asking<'_> {
    fn check(&mut self, question: &Question) -> Check {
        let answer = self.answer(question);
        let is_as_planned = self.is_as_planned(question, &answer);
        let more = match question.destination_count {
            0 => " (no host of the fabric is there)".to_owned(),
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let note = (!is_as_planned).then(|| self.why(question, &answer));
        let found = match (&answer.way, &question.planned) {
            (Way::Hops(hops), Way::Hops(planned)) if hops.len() == 1 && planned.len() > 1 => {
                format!("{} alone", answer.way)
            }
            (way, _) => way.to_string(),
        };
        // A mark that nothing sets leads nothing away.
        let (holds, note) = match note {
            Some(note) if question.only_if == Some(OnlyIf::Marked) && !self.sets_marks => (
                true,
                Some(format!("only if something sets this mark, and no rule of nf_tables does: {note}")),
            ),
            Some(note) if question.only_if == Some(OnlyIf::Bound) => {
                (true, Some(format!("only what binds its sockets to an interface: {note}")))
            }
            None => self.of_source(question, &answer),
            note => (is_as_planned, note),
        };
        Check {
            subject: format!("{question}{more}"),
            expected: question.planned.to_string(),
            found: Some(found),
            holds,
            note,
        }
    }

    fn answer(&mut self, question: &Question) -> Answer {
        let query = RouteQuery {
            from: question.source,
            mark: question.mark,
            input: question.input.clone(),
            ports: Some(question.ports.unwrap_or(PORTS)),
            user: Some(question.user.unwrap_or(USER)),
            output: question.output.clone(),
            ..RouteQuery::to(question.destination)
        };
        let mut hops = BTreeSet::new();
        let (first, chosen) = match self.socket.lookup(&query) {
            Ok(found) if found.is_local => {
                return Answer {
                    way: Way::Local,
                    route: self.in_effect(&query, question),
                    error: None,
                    source: None,
                };
            }
            Ok(found) => {
                let is_open = question.source.is_none() && question.input.is_none();
                ((found.via, found.interface), found.source.filter(|_| is_open))
            }
            Err(error) => {
                let is_carried =
                    matches!(question.ask(&self.model).verdict, Verdict::Link(_) | Verdict::Gateways(..));
                let reason = match refusal(&error) {
                    // The same error says that the source is none of the host's own, or, since
                    // Linux 6.14, that source validation refuses it.
                    "blackhole" if is_carried || self.lacks_source(question).is_some() => {
                        "its source is refused"
                    }
                    reason => reason,
                };
                let way = Way::Nowhere(reason.to_owned());
                return Answer { way, route: None, error: Some(error), source: None };
            }
        };
        let route = self.in_effect(&query, question);
        let several = matches!(&question.planned, Way::Hops(planned) if planned.len() > 1);
        if several && question.ports.is_none() {
            hops = self.by_ports(question, &query);
        } else {
            hops.insert(first);
        }
        Answer { way: Way::Hops(hops), route, error: None, source: chosen }
    }

    /// Next hops that source ports lead to, until all that are planned were seen.
    fn by_ports(&mut self, question: &Question, query: &RouteQuery) -> BTreeSet<NextHop> {
        let mut hops = BTreeSet::new();
        let Ok(mut lookups) = self.socket.lookups() else { return hops };
        let (protocol, first, destination) = PORTS;
        let ports = (MISSES / question.least_share.max(1e-6)).ceil() as usize;
        for port in (first..).take(ports.clamp(16, MOST_PORTS)) {
            let ports = Some((protocol, port, destination));
            if let Ok(found) = lookups.find(&RouteQuery { ports, ..query.clone() }) {
                hops.insert((found.via, found.interface));
            }
            if Way::Hops(hops.clone()).is_as(&question.planned) {
                break;
            }
        }
        hops
    }

    fn in_effect(&mut self, query: &RouteQuery, question: &Question) -> Option<LiveRoute> {
        let route = self.socket.route_in_effect(query).ok().flatten()?;
        names_its_route(&route, &question.ask(&self.model)).then_some(route)
    }

    fn is_as_planned(&self, question: &Question, answer: &Answer) -> bool {
        let Way::Hops(hops) = &answer.way else { return answer.way == question.planned };
        let several = matches!(&question.planned, Way::Hops(planned) if planned.len() > 1);
        // What the route has decides where one lookup, or a hash without ports, shows less.
        let of_route = answer.route.as_ref().map(|route| Way::Hops(self.hops(route)));
        let is_route = of_route.is_none_or(|way| question.input.is_some() || way.is_as(&question.planned));
        let is_known =
            || Way::Hops(hops.clone()).lacking(&question.planned).len() < hops_of(&question.planned);
        match several && (question.ports.is_some() || !self.hashes_ports(question)) {
            true => is_route && is_known(),
            false => is_route && answer.way.is_as(&question.planned),
        }
    }

    /// Whether the plan spreads the flows of two hosts by their ports.
    fn hashes_ports(&self, question: &Question) -> bool {
        let ipv6 = question.destination.is_ipv6();
        self.knows_ports && ports_are_hashed(ipv6, |key| value_of(self.wanted.routing, key)) == Some(true)
    }

    /// Next hops of a route of the kernel.
    fn hops(&self, live: &LiveRoute) -> BTreeSet<NextHop> {
        let nexthop = |id: u32| self.current.nexthops.iter().find(|nexthop| nexthop.id == id);
        let gateway = |id: u32| match &nexthop(id)?.target {
            NexthopTarget::Gateway { via, interface } => Some((Some(*via), Some(interface.clone()))),
            _ => None,
        };
        match &live.entry.action {
            RouteAction::Link { interface } => BTreeSet::from([(None, Some(interface.clone()))]),
            RouteAction::Gateways(hops) => {
                hops.iter().map(|hop: &Hop| (Some(hop.via), hop.interface.clone())).collect()
            }
            RouteAction::Nexthop(id) => match nexthop(*id).map(|nexthop| &nexthop.target) {
                Some(NexthopTarget::Group { members, .. }) => {
                    members.iter().filter_map(|member| gateway(member.id)).collect()
                }
                _ => gateway(*id).into_iter().collect(),
            },
            _ => BTreeSet::new(),
        }
    }

    /// The planned source of what the host sends, where it has no such address.
    fn lacks_source(&self, question: &Question) -> Option<IpAddr> {
        let source = question.source.filter(|_| question.input.is_none())?;
        let mut own = self.current.interfaces.iter().flat_map(|interface| &interface.addresses);
        (!own.any(|own| own.value.address == source)).then_some(source)
    }

    /// Why it is not as planned, and what to do.
    fn why(&mut self, question: &Question, answer: &Answer) -> String {
        if let Some(source) = self.lacks_source(question) {
            return format!("this host does not have {source}: `clearstream route apply` adds it");
        }
        let planned = question.ask(&self.planned);
        let plan = Plan { found: &planned, protocol: self.wanted.protocol };
        let found = question.ask(&self.model);
        if let Some(route) = &answer.route {
            let is_same = Way::Hops(self.hops(route)).is_as(&question.planned);
            if !is_same {
                if let RouteAction::Nexthop(id) = route.entry.action
                    && let Some(altered) = altered_nexthop(id, self.current, self.wanted)
                {
                    return altered;
                }
                let cause = Cause::of_live(route, &found, plan);
                return format!("{}; {}", cause.description(), cause.advice);
            }
            return self.why_not_all(question, answer, &route.entry.action);
        }
        if !Way::of(&found.verdict).is_as(&question.planned)
            && let Some(cause) = Cause::of(&found, plan)
        {
            return format!("{}; {}", cause.description(), cause.advice);
        }
        match found.route.filter(|_| answer.error.is_none()) {
            Some(route) => self.why_not_all(question, answer, &route.action),
            None => self.why_refused(question, answer),
        }
    }

    /// The route in effect has the plan's gateways, and lookups do not show them all.
    fn why_not_all(&self, question: &Question, answer: &Answer, action: &RouteAction) -> String {
        let ipv6 = question.destination.is_ipv6();
        if ports_are_hashed(ipv6, |key| value_of(self.current, key)) == Some(false) {
            let key = policy_key(ipv6);
            let policy = value_of(self.current, &key).unwrap_or_default();
            return format!("{key} is {policy}: no ports are hashed; `clearstream route apply` sets it to 1");
        }
        let lacking: Vec<String> = answer
            .way
            .lacking(&question.planned)
            .into_iter()
            .filter_map(|(via, _)| Some(via?.to_string()))
            .collect();
        let lacking = lacking.join(", ");
        let group = match action {
            RouteAction::Nexthop(id) => self.current.nexthops.iter().find(|nexthop| nexthop.id == *id),
            _ => None,
        };
        if let Some(NexthopTarget::Group { resilient: Some(resilient), .. }) =
            group.map(|group| &group.target)
        {
            let busy = match resilient.unbalanced_seconds {
                0 => "busy ones never".to_owned(),
                seconds => format!("busy ones when the group is unbalanced for {seconds} s"),
            };
            return format!(
                "{lacking}: the route has it, and no bucket of its resilient group leads there yet: buckets \
                 move by themselves when they are idle for {} s, {busy}",
                resilient.idle_seconds
            );
        }
        format!(
            "{lacking}: the route has it, and the kernel does not choose it: its link is down (`ip route show` \
             has dead or linkdown), or its neighbour entry failed and fib_multipath_use_neigh is 1"
        )
    }

    /// The kernel refuses what the model has a way for.
    fn why_refused(&self, question: &Question, answer: &Answer) -> String {
        let found = question.ask(&self.model);
        let planned = Some((&self.planned, self.wanted.protocol));
        match obstacle(self.current, &question.packet(), &found, planned) {
            Some(cause) => format!("{}; {}", cause.description(), cause.advice),
            None => answer.error.as_ref().map_or_else(String::new, ToString::to_string),
        }
    }
}

impl Asking<'_> {
    /// Where packets go as planned: whether they leave from an address of the plan, or from one by
    /// which replies return.
    fn of_source(&self, question: &Question, answer: &Answer) -> (bool, Option<String>) {
        let addresses = self.wanted.routing.interfaces.iter().flat_map(|interface| &interface.addresses);
        let mut own = addresses
            .map(|own| own.value)
            .filter(|own| own.address.is_ipv6() == question.destination.is_ipv6());
        let Some(source) = answer.source.filter(|source| own.clone().all(|own| own.address != *source))
        else {
            return (true, None);
        };
        let returns = own.any(|own| own.contains(source));
        let effect = match returns {
            true => "who knows this host by its address sees another one",
            false => "replies go where routes to that address lead, and by no gateway of the fabric",
        };
        let why = "the planned one comes later among those of its interface, or is deprecated (`ip address`), or \
                   the route names another (`src`)";
        let note = format!(
            "sockets without an address send from {source}, which is none of the plan: {why}; {effect}"
        );
        (returns, Some(note))
    }
}

fn hops_of(way: &Way) -> usize {
    match way {
        Way::Hops(hops) => hops.len(),
        _ => 0,
    }
}

fn policy_key(ipv6: bool) -> String {
    format!("net.{}.fib_multipath_hash_policy", if ipv6 { "ipv6" } else { "ipv4" })
}

fn value_of<'a>(routing: &'a HostRouting, key: &str) -> Option<&'a str> {
    routing.sysctls.get(key).map(|value| value.value.as_str())
}

/// What an error of a lookup says (`fib_props`, net/ipv4/fib_semantics.c).
fn refusal(error: &NetlinkError) -> &'static str {
    match error.refused_with().map(Errno::from_raw_os_error) {
        Some(Errno::NETUNREACH) => "no route",
        Some(Errno::HOSTUNREACH) => "unreachable",
        Some(Errno::ACCESS) => "prohibit",
        Some(Errno::INVAL) => "blackhole",
        Some(Errno::XDEV) => "reverse path filter",
        _ => "the kernel refuses",
    }
}
