//! Policy rules.

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{
    plan::{Setting, Value},
    routing::{RuleEntry, RuleSelector},
};

use super::Place;
use crate::{
    Fault,
    families::{kernel::refused, parsed},
};

/// It outlives the interfaces that it names (fib_rules_event, net/core/fib_rules.c).
pub(crate) struct Rule<'a> {
    pub(crate) ipv6: bool,
    pub(crate) priority: u32,
    pub(crate) selector: &'a RuleSelector,
}

impl Rule<'_> {
    /// Rules of the same family, priority and selector.
    fn objects(&self, socket: &mut RouteSocket) -> Result<Vec<RuleEntry>, NetlinkError> {
        let Self { ipv6, priority, selector } = *self;
        let place = Some(Setting::Rule { ipv6, priority, selector: Box::new(selector.clone()) });
        let all = socket.rules()?.into_iter().map(|found| found.entry);
        Ok(all.filter(|rule| rule.setting() == place).collect())
    }
}

impl Place for Rule<'_> {
    type Object = RuleEntry;

    fn object(&self, value: &Value) -> Result<RuleEntry, Fault> {
        let value = if let Value::Rule(value) = value { value.clone() } else { parsed(value)? };
        Ok(value.at(self.ipv6, self.priority, self.selector))
    }

    fn values(&self, socket: &mut RouteSocket) -> Result<Vec<Value>, NetlinkError> {
        Ok(self.objects(socket)?.iter().map(|rule| Value::Rule(rule.value())).collect())
    }

    /// A new one is added before the old one is removed.
    fn put(&self, object: &RuleEntry, value: &Value, socket: &mut RouteSocket) -> Result<(), Fault> {
        let old = self.objects(socket)?;
        let added = if old.contains(object) { Ok(()) } else { socket.add_rule(object) };
        let mut others = old.iter().filter(|old| *old != object);
        let put = added.and_then(|()| others.try_for_each(|old| socket.remove_rule(old)));
        put.map_err(refused(value))
    }

    fn take(&self, object: &RuleEntry, socket: &mut RouteSocket) -> Result<(), NetlinkError> {
        socket.remove_rule(object)
    }

    fn is_met_by(&self, wanted: &RuleEntry, live: &RuleEntry) -> bool {
        wanted == live
    }
}
