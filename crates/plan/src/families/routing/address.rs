//! Addresses of interfaces.

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{plan::Value, prefix::Prefix, routing::values::AddressValue};

use super::{Place, with_unsupported};
use crate::{
    Fault, Host, Needed,
    families::{kernel::refused, parsed},
};

pub(crate) struct Address<'a> {
    pub(crate) interface: &'a str,
    pub(crate) prefix: Prefix,
}

impl Place for Address<'_> {
    type Object = AddressValue;

    fn object(&self, value: &Value) -> Result<AddressValue, Fault> {
        if let Value::Address(value) = value { Ok(*value) } else { parsed(value) }
    }

    fn values(&self, socket: &mut RouteSocket) -> Result<Vec<Value>, NetlinkError> {
        let all = socket.all_addresses()?.into_iter();
        let here = all.filter(|found| found.interface == self.interface && found.prefix == self.prefix);
        Ok(here
            .map(|found| {
                let value = Value::Address(AddressValue { protocol: found.protocol });
                let unsupported = if found.makes_no_route { &["noprefixroute"][..] } else { &[] };
                with_unsupported(value, unsupported)
            })
            .collect())
    }

    fn put(&self, object: &AddressValue, value: &Value, socket: &mut RouteSocket) -> Result<(), Fault> {
        let is_there = !self.values(socket)?.is_empty();
        let removed = if is_there { socket.remove_address(self.interface, self.prefix) } else { Ok(()) };
        let put =
            removed.and_then(|()| socket.add_owned_address(self.interface, self.prefix, object.protocol));
        put.map_err(refused(value))
    }

    fn take(&self, _: &AddressValue, socket: &mut RouteSocket) -> Result<(), NetlinkError> {
        socket.remove_address(self.interface, self.prefix)
    }

    /// With the first address of a network the kernel would remove the others of that
    /// network (`promote_secondaries`, ip-sysctl.rst).
    fn check_alone(&self, _: &AddressValue, socket: &mut RouteSocket) -> Result<(), Fault> {
        let prefix = self.prefix;
        let all = socket.all_addresses()?;
        let here = || all.iter().filter(|found| found.interface == self.interface);
        let same_network = |other: &Prefix| other.network() == prefix.network() && *other != prefix;
        let is_secondary = here().any(|found| found.prefix == prefix && found.is_secondary);
        let other = here().find(|found| found.is_secondary && same_network(&found.prefix));
        match other {
            Some(other) if prefix.address.is_ipv4() && !is_secondary => {
                let reason = format!("{} was added after it and would be removed with it", other.prefix);
                Err(Fault::Invalid { reason })
            }
            _ => Ok(()),
        }
    }

    /// Kernels before 5.18 do not keep the owner.
    fn is_met_by(&self, wanted: &AddressValue, live: &AddressValue) -> bool {
        wanted == live || live.protocol == 0
    }

    /// With an interface the kernel removes its addresses.
    fn gone(&self, host: &Host, _value: Option<&Value>) -> Option<Needed> {
        host.gone_interface(self.interface)
    }
}
