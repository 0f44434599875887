//! The families of settings: a file for each kind, with everything that a plan knows of it.
//! The rest of this crate asks the [`Family`] of a setting and knows no kinds.

mod ethtool;
mod file;
mod kernel;
mod link;
mod nft;
mod qdisc;
mod routing;
mod sysctl;
#[cfg(test)]
mod tests;

use std::{fmt::Display, str::FromStr};

use clearstream_schema::plan::{Check, Setting, Value};

pub(crate) use self::sysctl::connection;
use crate::{Fault, Host, Needed, SettingError};

/// What a plan knows of the settings of one kind, about one of them.
pub(crate) trait Family {
    /// Whether plans may name it without the operator's permission: it is what ClearStream's
    /// own plans change, and names no program, holds no secret and gives no rights.
    fn is_permitted(&self) -> Result<bool, Fault>;

    /// The value that it holds; `None` when it is not there.
    fn read(&self, host: &Host) -> Result<Option<Value>, Fault>;

    /// Writes a value.
    fn write(&self, host: &Host, value: &Value) -> Result<(), Fault>;

    /// Removes it, where it [may be absent](Setting::may_be_absent).
    fn remove(&self, _host: &Host) -> Result<(), Fault> {
        Err(Fault::Invalid { reason: "cannot be removed".to_owned() })
    }

    /// Fails when writing a value cannot work, without writing.
    fn check(&self, host: &Host, value: &Value) -> Result<(), Fault>;

    /// Fails when writing a value would make the kernel load a module.
    fn check_loaded(&self, _host: &Host, _value: &Value) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether the value that it holds means what is wanted, however both are spelled.
    fn is_met_by(&self, wanted: &Value, live: &Value) -> bool;

    /// What it needs to hold a value, or, without one, to be there, and what does not exist any
    /// more. `None` when nothing is gone, or when that cannot be told.
    fn gone(&self, host: &Host, value: Option<&Value>) -> Option<Needed>;

    /// A value that is restored after all others, because the kernel makes it of them.
    fn is_restored_last(&self, _value: &Value) -> bool {
        false
    }

    /// What the kernel makes of a wanted value, beside what the setting itself holds.
    fn in_effect(&self, _read: &dyn Fn(&Setting) -> Option<Value>, _wanted: Option<&Value>) -> Option<Check> {
        None
    }
}

/// The one place that knows the family of each setting.
pub(crate) fn of(setting: &Setting) -> Box<dyn Family + '_> {
    match setting {
        Setting::Sysctl(key) => Box::new(sysctl::Sysctl { key }),
        Setting::File(path) => Box::new(file::File { path }),
        Setting::Link { interface, attribute } => Box::new(link::Link { interface, attribute: *attribute }),
        Setting::Qdisc { interface } => Box::new(qdisc::Qdisc { interface }),
        Setting::Ethtool { interface, group, name } => Box::new(ethtool::Driver { interface, group, name }),
        Setting::Nexthop { id } => Box::new(routing::Nexthop { id: *id }),
        Setting::Route { table, destination, metric } => {
            Box::new(routing::Route { table: *table, destination: *destination, metric: *metric })
        }
        Setting::Rule { ipv6, priority, selector } => {
            Box::new(routing::Rule { ipv6: *ipv6, priority: *priority, selector })
        }
        Setting::Address { interface, prefix } => Box::new(routing::Address { interface, prefix: *prefix }),
        Setting::NetfilterTable { name } => Box::new(nft::Table { name }),
    }
}

/// Refuses a setting that plans may not name, with an error for the operator.
pub(crate) fn check_permitted(setting: &Setting) -> Result<(), SettingError> {
    match of(setting).is_permitted() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Fault::OutsideFamilies.of(setting)),
        Err(fault) => Err(fault.of(setting)),
    }
}

/// Whether a setting that holds `live` matches `wanted`. Vectors are compared number by
/// number, masks and lists as sets of processors; a queueing discipline only by what `wanted`
/// names; routes, rules and nexthops by the meaning of their arguments.
pub fn same(setting: &Setting, wanted: &Value, live: &Value) -> bool {
    wanted == live || of(setting).is_met_by(wanted, live)
}

/// The same if a setting may be absent, which equals only itself.
pub(crate) fn same_or_absent(setting: &Setting, wanted: Option<&Value>, live: Option<&Value>) -> bool {
    match (wanted, live) {
        (Some(wanted), Some(live)) => same(setting, wanted, live),
        (None, None) => true,
        _ => false,
    }
}

/// A value from the text of one that was not understood: fails with what is wrong with it.
fn parsed<T: FromStr<Err: Display>>(value: &Value) -> Result<T, Fault> {
    value.to_string().parse().map_err(|error: T::Err| Fault::Invalid { reason: error.to_string() })
}
