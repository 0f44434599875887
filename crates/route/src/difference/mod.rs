//! Difference between the current and the wanted routing of a host: the smallest
//! plan from one to the other. It changes only objects with ClearStream's own
//! numbers; other objects stay, and one of them with such a number is an error.

mod marks;
mod removal;
mod sysctls;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use clearstream_netlink::LiveAddress;
use clearstream_schema::{
    control::FailureKind,
    fabric::InfinibandMode,
    failure::Classified,
    plan::{Effect, LinkAttribute, PLAN_SCHEMA, Plan, PlanHost, Setting, Step, Value},
    prefix::Prefix,
    route_plan::Reason,
    routing::{
        HostRouting, Located, MAIN_TABLE, Nexthop, NexthopTarget, RouteEntry, RuleEntry, values::AddressValue,
    },
};

pub use self::marks::{MARK_TABLE, learn_marks, unknown_gateways};

/// Wanted routing of a host.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Name of the fabric, for people.
    pub fabric: &'a str,
    /// All wanted objects.
    pub routing: &'a HostRouting,
    /// Reasons of the objects.
    pub reasons: &'a [Reason],
    /// Protocol number by which routes, rules and nexthops of ours are distinguished
    /// from others'.
    pub protocol: u8,
}

/// Current routing of a host.
#[derive(Debug, Clone, Default)]
pub struct Current {
    /// All of it, from [`clearstream_routing::live::live`].
    pub routing: HostRouting,
    /// Addresses with their owners.
    pub addresses: Vec<LiveAddress>,
    /// The table of connection marks, as the plan crate reads it.
    pub mark_table: Option<Value>,
    /// Kernel release.
    pub kernel: String,
}

/// Errors that prevent a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DifferenceError {
    /// The host lacks an interface.
    #[error(
        "this host has no interface \"{name}\" (it has {have}): the fabric names another one, or its driver is not loaded"
    )]
    NoInterface {
        /// Its name.
        name: String,
        /// Those that are there.
        have: String,
    },
    /// A number of ours belongs to an object of others.
    #[error(
        "{setting} belongs to another owner ({holder}): choose other numbers in the fabric's [numbers], or remove it first"
    )]
    Held {
        /// The setting.
        setting: String,
        /// Current value, in the syntax of ip(8).
        holder: String,
    },
    /// A group cannot be made another kind in place.
    #[error(
        "nexthop group {id} is \"{live}\" and is to be \"{wanted}\", which no kernel changes in place: `clearstream plan revert` first, or choose another first-nexthop in the fabric's [numbers]"
    )]
    OtherGroup {
        /// Its number.
        id: u32,
        /// What is there.
        live: String,
        /// What is wanted.
        wanted: String,
    },
    /// The link address of a gateway is not known.
    #[error(
        "the link address of gateway {gateway} on {interface} is not known, so its connections cannot be marked: give it in link-addresses of the fabric, or make sure that the gateway responds"
    )]
    UnknownGateway {
        /// Its name.
        gateway: String,
        /// Interface on which it is a neighbour.
        interface: String,
    },
    /// A rule without priority.
    #[error("a rule is planned without priority ({0}): give it one")]
    NoPriority(String),
}

impl Classified for DifferenceError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::NoInterface { .. } => FailureKind::Name,
            Self::Held { .. } | Self::OtherGroup { .. } => FailureKind::Refused,
            Self::UnknownGateway { .. } => FailureKind::Unreachable,
            Self::NoPriority(_) => FailureKind::Invalid,
        }
    }
}

/// The smallest plan from `current` to `wanted`. Its steps are in the order in
/// which each finds what it needs: sysctls, interfaces, addresses, nexthops,
/// groups, marks, routes of own tables, routes of the main table, rules; then what
/// is no longer wanted is removed, in reverse order. A host that is as wanted has a
/// plan without steps.
pub fn difference(current: &Current, wanted: &Wanted<'_>) -> Result<Plan, DifferenceError> {
    let draft = Draft::of(current, wanted, None)?;
    Ok(Plan {
        schema: PLAN_SCHEMA.to_owned(),
        version: 1,
        purpose: format!("routing of {} in fabric {}", wanted.routing.host, wanted.fabric),
        host: PlanHost { name: current.routing.host.clone(), kernel: current.kernel.clone() },
        steps: draft.steps,
        advice: draft.advice,
    })
}

/// What is not as wanted, also where others' objects have our numbers, and the places of these.
pub(crate) fn deviations(
    current: &Current,
    wanted: &Wanted<'_>,
) -> Result<(Vec<Step>, Vec<Setting>), DifferenceError> {
    let draft = Draft::of(current, wanted, Some(Vec::new()))?;
    Ok((draft.steps, draft.held.unwrap_or_default()))
}

/// A plan under construction.
struct Draft<'a> {
    /// Objects of others with our numbers; absent where one is an error.
    held: Option<Vec<Setting>>,
    current: &'a Current,
    wanted: &'a Wanted<'a>,
    steps: Vec<Step>,
    advice: Vec<String>,
    /// Values of everything that is there, by its place.
    live: BTreeMap<Setting, Vec<Value>>,
    live_nexthops: BTreeMap<u32, &'a Nexthop>,
    reasons: BTreeMap<&'a str, &'a str>,
}

impl<'a> Draft<'a> {
    fn new(current: &'a Current, wanted: &'a Wanted<'a>) -> Self {
        let routing = &current.routing;
        let mut live: BTreeMap<Setting, Vec<Value>> = BTreeMap::new();
        for route in &routing.routes {
            live.entry(route.setting()).or_default().push(Value::Route(route.value()));
        }
        for rule in &routing.rules {
            if let Some(setting) = rule.setting() {
                live.entry(setting).or_default().push(Value::Rule(rule.value()));
            }
        }
        for nexthop in &routing.nexthops {
            live.entry(nexthop.setting()).or_default().push(Value::Nexthop(nexthop.value()));
        }
        Self {
            held: None,
            current,
            wanted,
            steps: Vec::new(),
            advice: Vec::new(),
            live,
            live_nexthops: routing.nexthops.iter().map(|nexthop| (nexthop.id, nexthop)).collect(),
            reasons: wanted
                .reasons
                .iter()
                .map(|reason| (reason.item.as_str(), reason.why.as_str()))
                .collect(),
        }
    }

    fn of(
        current: &'a Current,
        wanted: &'a Wanted<'a>,
        held: Option<Vec<Setting>>,
    ) -> Result<Self, DifferenceError> {
        let mut draft = Self { held, ..Self::new(current, wanted) };
        draft.interfaces()?;
        sysctls::add(&mut draft);
        draft.addresses();
        draft.nexthops()?;
        marks::add(&mut draft)?;
        draft.routes()?;
        draft.rules()?;
        removal::add(&mut draft);
        Ok(draft)
    }

    /// An object with our number is not ours: no plan changes it.
    fn held(&mut self, setting: &Setting, holder: String) -> Result<(), DifferenceError> {
        let error = DifferenceError::Held { setting: setting.to_string(), holder };
        self.refuse(setting, error)
    }

    fn refuse(&mut self, setting: &Setting, error: DifferenceError) -> Result<(), DifferenceError> {
        match &mut self.held {
            Some(held) => {
                held.push(setting.clone());
                Ok(())
            }
            None => Err(error),
        }
    }

    /// Adds a step; its reason is the planner's where there is one.
    fn step(
        &mut self,
        setting: Setting,
        current: Option<Value>,
        desired: Option<Value>,
        items: &[String],
        otherwise: &str,
    ) {
        let found = items.iter().find_map(|item| self.reasons.get(item.as_str()));
        let reason = found.map_or_else(|| otherwise.to_owned(), |why| (*why).to_owned());
        self.steps.push(Step { setting, current, desired, reason, effect: Effect::Now });
    }

    /// What a place holds now.
    fn value(&self, setting: &Setting) -> Option<Value> {
        self.live.get(setting).and_then(|values| Value::of_objects(values.clone()))
    }

    /// MTU and mode, and whether all interfaces are there.
    fn interfaces(&mut self) -> Result<(), DifferenceError> {
        for wanted in &self.wanted.routing.interfaces {
            let live = self.current.routing.interfaces.iter().find(|live| live.name == wanted.name);
            let Some(live) = live else {
                let have = self.current.routing.interfaces.iter().map(|live| live.name.as_str());
                let have = have.collect::<Vec<_>>().join(", ");
                return Err(DifferenceError::NoInterface { name: wanted.name.clone(), have });
            };
            let items = [format!("interface {}", wanted.name)];
            if let Some(mode) = &wanted.infiniband_mode
                && live.infiniband_mode.as_ref() != Some(mode)
            {
                let name = |mode: InfinibandMode| match mode {
                    InfinibandMode::Connected => Value::Text("connected".to_owned()),
                    InfinibandMode::Datagram => Value::Text("datagram".to_owned()),
                };
                let setting = Setting::File(format!("sys/class/net/{}/mode", wanted.name));
                let current = live.infiniband_mode.as_ref().map(|mode| name(mode.value));
                self.step(setting, current, Some(name(mode.value)), &items, "the mode of its network");
                if let Some(step) = self.steps.last_mut() {
                    step.effect = Effect::LinkFlap;
                }
            }
            if let Some(mtu) = &wanted.mtu
                && live.mtu.as_ref() != Some(mtu)
            {
                let attribute = LinkAttribute::Mtu;
                let setting = Setting::Link { interface: wanted.name.clone(), attribute };
                let number = |mtu: &Located<u32>| Value::Number(mtu.value);
                let (current, desired) = (live.mtu.as_ref().map(number), Some(number(mtu)));
                self.step(setting, current, desired, &items, "the MTU of its network");
            }
        }
        Ok(())
    }

    fn addresses(&mut self) {
        for interface in &self.wanted.routing.interfaces {
            for address in &interface.addresses {
                let is_same = |live: &&LiveAddress| {
                    live.interface == interface.name && live.prefix.address == address.value.address
                };
                match self.current.addresses.iter().find(is_same) {
                    Some(live) if live.prefix.length != address.value.length => self.advice.push(format!(
                        "{} has {} where the fabric has {}: it stays so, and the routes follow the fabric",
                        interface.name, live.prefix, address.value
                    )),
                    Some(_) => {}
                    None => {
                        let setting =
                            Setting::Address { interface: interface.name.clone(), prefix: address.value };
                        let items = [format!("interface {}", interface.name)];
                        let value = Value::Address(AddressValue { protocol: self.wanted.protocol });
                        self.step(setting, None, Some(value), &items, "an address of its link");
                    }
                }
            }
        }
    }

    /// Gateways first, then the groups of them.
    fn nexthops(&mut self) -> Result<(), DifferenceError> {
        let is_group = |nexthop: &Nexthop| matches!(nexthop.target, NexthopTarget::Group { .. });
        let mut nexthops: Vec<&'a Nexthop> = self.wanted.routing.nexthops.iter().collect();
        nexthops.sort_by_key(|nexthop| is_group(nexthop));
        for wanted in nexthops {
            let live = self.live_nexthops.get(&wanted.id).copied();
            let setting = wanted.setting();
            match live {
                Some(live) if live.target == wanted.target => continue,
                Some(live) if live.protocol != self.wanted.protocol => {
                    self.held(&setting, live.ip_arguments())?;
                }
                Some(live) if !changes_in_place(&live.target, &wanted.target) => {
                    let (id, live, wanted) = (wanted.id, live.ip_arguments(), wanted.ip_arguments());
                    let error = DifferenceError::OtherGroup { id, live, wanted };
                    self.refuse(&setting, error)?;
                }
                _ => {}
            }
            let items = [format!("nexthop {}", wanted.id), format!("group {}", wanted.id)];
            let otherwise = "the fabric's gateways";
            let value = |nexthop: &Nexthop| Value::Nexthop(nexthop.value());
            self.step(setting, live.map(value), Some(value(wanted)), &items, otherwise);
        }
        Ok(())
    }

    /// Own tables first: nothing leads there before a rule does.
    fn routes(&mut self) -> Result<(), DifferenceError> {
        self.refuse_held_tables()?;
        let mut routes: Vec<&'a RouteEntry> = self.wanted.routing.routes.iter().collect();
        routes.sort_by_key(|route| route.table == MAIN_TABLE);
        for wanted in routes {
            let setting = wanted.setting();
            let live: Vec<&RouteEntry> =
                self.current.routing.routes.iter().filter(|live| live.setting() == setting).collect();
            if let [live] = live.as_slice()
                && same_but_owner(wanted, live)
            {
                continue;
            }
            if let Some(live) = live.iter().find(|live| live.protocol != self.wanted.protocol) {
                self.held(&setting, live.ip_arguments())?;
            }
            let items = [
                format!("table {}", wanted.table),
                wanted.destination.to_string(),
                format!("route {}", wanted.destination),
            ];
            let otherwise = format!("the path to {}", wanted.destination);
            let (current, desired) = (self.value(&setting), Some(Value::Route(wanted.value())));
            self.step(setting, current, desired, &items, &otherwise);
        }
        Ok(())
    }

    /// Routes of others in a table of ours would misroute packets.
    fn refuse_held_tables(&mut self) -> Result<(), DifferenceError> {
        let own: BTreeSet<u32> = self.wanted.routing.routes.iter().map(|route| route.table).collect();
        let foreign = self.current.routing.routes.iter().find(|live| {
            let is_wanted = || self.wanted.routing.routes.iter().any(|wanted| same_but_owner(wanted, live));
            live.table != MAIN_TABLE
                && own.contains(&live.table)
                && live.protocol != self.wanted.protocol
                && !is_wanted()
        });
        let Some(live) = foreign else { return Ok(()) };
        let holder = format!("{} {}", live.destination, live.ip_arguments());
        let error = DifferenceError::Held { setting: format!("table {}", live.table), holder };
        let (setting, value) = (live.setting(), Value::Route(live.value()));
        self.refuse(&setting, error)?;
        let is_wanted = self.wanted.routing.routes.iter().any(|wanted| wanted.setting() == setting);
        if !is_wanted {
            self.step(setting, Some(value), None, &[], "a route of another owner in a table of the plan");
        }
        Ok(())
    }

    fn rules(&mut self) -> Result<(), DifferenceError> {
        for wanted in &self.wanted.routing.rules {
            let setting = wanted.setting();
            let setting =
                setting.ok_or_else(|| DifferenceError::NoPriority(wanted.selector.ip_arguments()))?;
            let of_priority = self
                .current
                .routing
                .rules
                .iter()
                .filter(|live| live.ipv6 == wanted.ipv6 && live.priority == wanted.priority);
            let mut is_there = false;
            for live in of_priority {
                let is_same = live.setting().as_ref() == Some(&setting) && live.action == wanted.action;
                is_there |= is_same;
                if !is_same && live.protocol != self.wanted.protocol {
                    let number = RuleEntry { protocol: 0, ..live.clone() };
                    let holder = format!("{} {}", live.selector.ip_arguments(), number.ip_arguments());
                    self.held(&setting, holder)?;
                }
            }
            if !is_there {
                let items = [format!("rule {}", wanted.priority.unwrap_or_default())];
                let (current, desired) = (self.value(&setting), Some(Value::Rule(wanted.value())));
                self.step(setting, current, desired, &items, "leads packets to their table");
            }
        }
        Ok(())
    }
}

/// A gateway may become another one. A group keeps its kind and its buckets
/// (nexthop_replace, replace_nexthop_grp_res in net/ipv4/nexthop.c).
fn changes_in_place(live: &NexthopTarget, wanted: &NexthopTarget) -> bool {
    use NexthopTarget::Group;
    match (live, wanted) {
        (Group { resilient: live, .. }, Group { resilient: wanted, .. }) => {
            live.map(|live| live.bucket_count) == wanted.map(|wanted| wanted.bucket_count)
        }
        (Group { .. }, _) | (_, Group { .. }) => false,
        (live, wanted) => family(live) == family(wanted),
    }
}

fn family(target: &NexthopTarget) -> Option<bool> {
    match target {
        NexthopTarget::Gateway { via, .. } => Some(via.is_ipv6()),
        _ => None,
    }
}

/// Whether a live route is as wanted, whatever its origin: a host whose files match
/// the plan needs no change.
fn same_but_owner(wanted: &RouteEntry, live: &RouteEntry) -> bool {
    let owned = RouteEntry { protocol: live.protocol, ..wanted.clone() };
    owned.is_met_by(live)
}

/// Whether a prefix is the default route.
pub(crate) fn is_default(prefix: Prefix) -> bool {
    prefix.length == 0
}
