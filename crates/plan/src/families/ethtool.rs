//! Numbers and switches of a driver.

use clearstream_netlink::ethtool::Ethtool;
use clearstream_schema::{indirection::Indirection, plan::Value};

use super::{
    Family,
    kernel::{check_permitted, present, route_socket},
};
use crate::{Fault, Host, Needed, texts::Form};

pub(super) struct Driver<'a> {
    pub(super) interface: &'a str,
    pub(super) group: &'a str,
    pub(super) name: &'a str,
}

impl Family for Driver<'_> {
    /// Names of interfaces and of what a driver has are no paths.
    fn is_permitted(&self) -> Result<bool, Fault> {
        Ok(true)
    }

    fn read(&self, host: &Host) -> Result<Option<Value>, Fault> {
        host.needs_drivers()?;
        if present(route_socket()?.interface(self.interface))?.is_none() {
            return Ok(None);
        }
        Ok(Ethtool::open()?.value(self.interface, self.group, self.name)?.map(Value::Text))
    }

    fn write(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        host.needs_drivers()?;
        Ok(Ethtool::open()?.set_value(self.interface, self.group, self.name, &value.to_string())?)
    }

    fn check(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        host.needs_drivers()?;
        Ethtool::check(self.group, self.name, &value.to_string())
            .map_err(|reason| Fault::Invalid { reason })?;
        check_permitted()
    }

    /// Of a table of indirection the runs may be split in any manner.
    fn is_met_by(&self, wanted: &Value, live: &Value) -> bool {
        if self.group != "rss" {
            return Form::Tokens.is_same(wanted, live);
        }
        let table = |value: &Value| value.to_string().parse::<Indirection>().ok();
        table(wanted).is_some_and(|wanted| table(live) == Some(wanted))
    }

    fn gone(&self, host: &Host, _value: Option<&Value>) -> Option<Needed> {
        host.gone_interface(self.interface)
    }
}
