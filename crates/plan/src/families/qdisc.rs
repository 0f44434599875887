//! The root qdisc of an interface, in the notation of tc, with `default` before one that
//! the kernel created by itself and recreates when ours is deleted.

use clearstream_netlink::{Discipline, Root};
use clearstream_schema::plan::{DEFAULT_QDISC, Value, is_default_qdisc};

use super::{
    Family,
    kernel::{check_permitted, present, refused, route_socket},
};
use crate::{Fault, Host, Needed, modules};

pub(super) struct Qdisc<'a> {
    pub(super) interface: &'a str,
}

impl Family for Qdisc<'_> {
    /// A name of an interface is no path.
    fn is_permitted(&self) -> Result<bool, Fault> {
        Ok(true)
    }

    fn read(&self, host: &Host) -> Result<Option<Value>, Fault> {
        host.needs_drivers()?;
        let found = present(route_socket()?.discipline(self.interface))?;
        Ok(found.map(|found| Value::Text(text(&found))))
    }

    fn write(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        host.needs_drivers()?;
        let mut socket = route_socket()?;
        let result = match wanted(value)? {
            None => socket.delete_discipline(self.interface),
            Some(discipline) => socket.set_discipline(self.interface, &discipline),
        };
        result.map_err(refused(value))
    }

    fn check(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        host.needs_drivers()?;
        wanted(value)?;
        check_permitted()
    }

    /// `qdisc_create` (net/sched/sch_api.c) loads what it does not know.
    fn check_loaded(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        match wanted(value) {
            Ok(Some(wanted)) => modules::check_discipline(host.files(), wanted.kind()),
            // An invalid text is refused later.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// The same kind, and every parameter that `wanted` names. Of two defaults the kind does
    /// not matter: the kernel selects it, by `net.core.default_qdisc` and by whether the
    /// interface is up (`noop` while it is down).
    fn is_met_by(&self, wanted: &Value, live: &Value) -> bool {
        let (wanted, live) = (wanted.to_string(), live.to_string());
        if is_default_qdisc(&wanted) {
            return is_default_qdisc(&live);
        }
        let live = live.strip_prefix(DEFAULT_QDISC).unwrap_or(&live);
        match (wanted.parse::<Discipline>(), live.parse::<Discipline>()) {
            (Ok(wanted), Ok(live)) => live.has(&wanted),
            _ => wanted == live,
        }
    }

    fn gone(&self, host: &Host, _value: Option<&Value>) -> Option<Needed> {
        host.gone_interface(self.interface)
    }

    /// The kernel recreates its default from the sysctls and queues of that time.
    fn is_restored_last(&self, value: &Value) -> bool {
        is_default_qdisc(&value.to_string())
    }
}

/// The discipline that a text requests; `None` is the kernel's default.
fn wanted(value: &Value) -> Result<Option<Discipline>, Fault> {
    let text = value.to_string();
    if is_default_qdisc(&text) {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|reason| Fault::Invalid { reason: format!("{reason}") })
}

/// The text of the effective qdisc.
fn text(root: &Root) -> String {
    let before = if root.is_default { DEFAULT_QDISC } else { "" };
    format!("{before}{}", root.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_counts() {
        let same = |wanted: &str, live: &str| {
            let [wanted, live] = [wanted, live].map(|text| Value::Text(text.to_owned()));
            Qdisc { interface: "eth0" }.is_met_by(&wanted, &live)
        };
        assert!(
            same("fq", "fq limit 10000p maxrate 1gbit") && same("fq maxrate 1000mbit", "fq maxrate 1gbit")
        );
        assert!(!same("fq maxrate 2gbit", "fq maxrate 1gbit") && !same("fq", "fq_codel"));
        assert!(same("noqueue", "default noqueue") && same("default noop", "default noqueue"));
        assert!(!same("default noqueue", "tbf rate 1gbit burst 1000b limit 1000b"));
    }
}
