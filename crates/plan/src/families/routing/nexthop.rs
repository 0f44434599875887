//! Nexthop objects.

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{
    plan::Value,
    routing::{Nexthop as Object, NexthopTarget, RouteAction},
};

use super::{Place, gone_nexthop, with_unsupported};
use crate::{
    Fault, Host, Needed,
    families::{kernel::refused, parsed},
};

pub(crate) struct Nexthop {
    pub(crate) id: u32,
}

impl Place for Nexthop {
    type Object = Object;

    fn object(&self, value: &Value) -> Result<Object, Fault> {
        let value = if let Value::Nexthop(value) = value { value.clone() } else { parsed(value)? };
        Ok(value.at(self.id))
    }

    fn values(&self, socket: &mut RouteSocket) -> Result<Vec<Value>, NetlinkError> {
        let all = socket.nexthops()?.into_iter().filter(|found| found.entry.id == self.id);
        Ok(all.map(|it| with_unsupported(Value::Nexthop(it.entry.value()), &it.unsupported)).collect())
    }

    /// It is replaced in place, so that packets see the old or the new one.
    fn put(&self, object: &Object, value: &Value, socket: &mut RouteSocket) -> Result<(), Fault> {
        socket.set_nexthop(object).map_err(refused(value))
    }

    fn take(&self, object: &Object, socket: &mut RouteSocket) -> Result<(), NetlinkError> {
        socket.remove_nexthop(object.id)
    }

    /// With it the kernel would remove routes and groups of others that use it.
    fn check_alone(&self, object: &Object, socket: &mut RouteSocket) -> Result<(), Fault> {
        let id = object.id;
        let routes = socket.all_routes()?;
        let user = routes.iter().find(|route| route.entry.action == RouteAction::Nexthop(id));
        let mut user = user.map(|route| route.entry.setting());
        for nexthop in socket.nexthops()? {
            if let NexthopTarget::Group { members, .. } = &nexthop.entry.target
                && members.iter().any(|member| member.id == id)
            {
                user = Some(nexthop.entry.setting());
            }
        }
        match user {
            None => Ok(()),
            Some(user) => {
                Err(Fault::Invalid { reason: format!("{user} still uses it: change that one first") })
            }
        }
    }

    fn is_met_by(&self, wanted: &Object, live: &Object) -> bool {
        wanted == live
    }

    /// With an interface the kernel removes its next hops (nexthop_flush_dev).
    fn gone(&self, host: &Host, value: Option<&Value>) -> Option<Needed> {
        match self.object(value?).ok()?.target {
            NexthopTarget::Gateway { interface, .. } => host.gone_interface(&interface),
            NexthopTarget::Group { members, .. } => gone_nexthop(members.iter().map(|member| member.id)),
            NexthopTarget::Blackhole => None,
        }
    }
}
