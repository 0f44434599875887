//! Nexthop objects, routes, rules and addresses: their values have the syntax of `ip`
//! (`clearstream_schema::routing::values`).

mod address;
mod nexthop;
mod route;
mod rule;

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::plan::Value;

pub(super) use self::{address::Address, nexthop::Nexthop, route::Route, rule::Rule};
use super::kernel::{check_permitted, refused, route_socket};
use crate::{Fault, Host, Needed, error::ABSENT};

/// Separates arguments that a text does not support; they show why it cannot be
/// written back.
const UNSUPPORTED: &str = "and";

/// A place of the kernel's routing, which holds objects: none, one, or several that nothing
/// but their values tells apart.
trait Place {
    /// What is written to it.
    type Object;

    /// The object that a value is in this place. Fails for what is no value of it.
    fn object(&self, value: &Value) -> Result<Self::Object, Fault>;

    /// All that are there; one with arguments that a text does not support, as a text.
    fn values(&self, socket: &mut RouteSocket) -> Result<Vec<Value>, NetlinkError>;

    /// Puts it in the place of what is there; the value is for the error.
    fn put(&self, object: &Self::Object, value: &Value, socket: &mut RouteSocket) -> Result<(), Fault>;

    /// Takes it away.
    fn take(&self, object: &Self::Object, socket: &mut RouteSocket) -> Result<(), NetlinkError>;

    /// Fails for one with which the kernel would take others away.
    fn check_alone(&self, _object: &Self::Object, _socket: &mut RouteSocket) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether a live object is as wanted.
    fn is_met_by(&self, wanted: &Self::Object, live: &Self::Object) -> bool;

    /// What it needs and what is gone.
    fn gone(&self, _host: &Host, _value: Option<&Value>) -> Option<Needed> {
        None
    }
}

impl<P: Place> super::Family for P {
    /// Names of interfaces and numbers are no paths.
    fn is_permitted(&self) -> Result<bool, Fault> {
        Ok(true)
    }

    fn read(&self, host: &Host) -> Result<Option<Value>, Fault> {
        host.needs_routing()?;
        Ok(Value::of_objects(self.values(&mut route_socket()?)?))
    }

    fn write(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        host.needs_routing()?;
        let mut socket = route_socket()?;
        let object = self.object(value)?;
        self.put(&object, value, &mut socket)
    }

    fn remove(&self, _host: &Host) -> Result<(), Fault> {
        let mut socket = route_socket()?;
        for live in self.values(&mut socket)? {
            let object = self.object(&live)?;
            self.check_alone(&object, &mut socket)?;
            let taken = self.take(&object, &mut socket);
            taken.map_err(refused(&Value::Text(ABSENT.to_owned())))?;
        }
        Ok(())
    }

    fn check(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        host.needs_routing()?;
        self.object(value)?;
        check_permitted()
    }

    fn is_met_by(&self, wanted: &Value, live: &Value) -> bool {
        match (self.object(wanted), self.object(live)) {
            (Ok(wanted), Ok(live)) => Place::is_met_by(self, &wanted, &live),
            _ => false,
        }
    }

    fn gone(&self, host: &Host, value: Option<&Value>) -> Option<Needed> {
        Place::gone(self, host, value)
    }
}

/// A value, with what it does not express.
fn with_unsupported(value: Value, unsupported: &[impl AsRef<str>]) -> Value {
    if unsupported.is_empty() {
        return value;
    }
    let unsupported: Vec<&str> = unsupported.iter().map(AsRef::as_ref).collect();
    Value::Text(format!("{value} {UNSUPPORTED} {}", unsupported.join(" ")))
}

/// A nexthop object that does not exist.
fn gone_nexthop(ids: impl IntoIterator<Item = u32>) -> Option<Needed> {
    let all = RouteSocket::open().and_then(|mut socket| socket.nexthops()).ok()?;
    let id = ids.into_iter().find(|id| !all.iter().any(|found| found.entry.id == *id))?;
    Some(Needed::Other(format!("nexthop {id}")))
}
