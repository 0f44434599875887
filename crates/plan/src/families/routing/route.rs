//! Routes.

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{
    plan::{Setting, Value},
    prefix::Prefix,
    routing::{RouteAction, RouteEntry},
};

use super::{Place, gone_nexthop, with_unsupported};
use crate::{
    Fault, Host, Needed,
    families::{kernel::refused, parsed},
};

pub(crate) struct Route {
    pub(crate) table: u32,
    pub(crate) destination: Prefix,
    pub(crate) metric: u32,
}

impl Place for Route {
    type Object = RouteEntry;

    fn object(&self, value: &Value) -> Result<RouteEntry, Fault> {
        let value = if let Value::Route(value) = value { value.clone() } else { parsed(value)? };
        Ok(value.at(self.table, self.destination, self.metric))
    }

    fn values(&self, socket: &mut RouteSocket) -> Result<Vec<Value>, NetlinkError> {
        let Self { table, destination, metric } = *self;
        let place = Setting::Route { table, destination, metric };
        let all = socket.all_routes()?.into_iter();
        let here = all.filter(|found| found.entry.setting() == place && !found.is_for_some_packets());
        Ok(here.map(|it| with_unsupported(Value::Route(it.entry.value()), &it.unsupported)).collect())
    }

    /// It is replaced in place, so that packets see the old or the new one.
    fn put(&self, object: &RouteEntry, value: &Value, socket: &mut RouteSocket) -> Result<(), Fault> {
        let replace = !self.values(socket)?.is_empty();
        socket.set_route(object, replace).map_err(refused(value))
    }

    fn take(&self, object: &RouteEntry, socket: &mut RouteSocket) -> Result<(), NetlinkError> {
        socket.remove_route(object)
    }

    fn is_met_by(&self, wanted: &RouteEntry, live: &RouteEntry) -> bool {
        wanted.is_met_by(live)
    }

    /// With an interface the kernel removes the routes over it (fib_sync_down_dev), with a next
    /// hop the routes that use it.
    fn gone(&self, host: &Host, value: Option<&Value>) -> Option<Needed> {
        match self.object(value?).ok()?.action {
            RouteAction::Link { interface } => host.gone_interface(&interface),
            RouteAction::Gateways(hops) => {
                hops.into_iter().filter_map(|hop| hop.interface).find_map(|name| host.gone_interface(&name))
            }
            RouteAction::Nexthop(id) => gone_nexthop([id]),
            _ => None,
        }
    }
}
