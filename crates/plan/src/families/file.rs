//! Files below `/sys` and `/proc/irq`: interrupts, and the attributes and queues of interfaces.

use clearstream_schema::plan::{Check, Setting, Value};

use super::Family;
use crate::{
    Fault, Host, Needed,
    files::is_plain,
    texts::{Form, is_within},
};

/// Attributes of an interface below `/sys/class/net/NAME`
/// (ABI/testing/sysfs-class-net).
const INTERFACE: [&str; 6] =
    ["gro_flush_timeout", "mode", "mtu", "napi_defer_hard_irqs", "threaded", "tx_queue_len"];

/// Attributes of a queue (ABI/testing/sysfs-class-net-queues).
const RECEIVE_QUEUE: [&str; 2] = ["rps_cpus", "rps_flow_cnt"];
const TRANSMIT_QUEUE: [&str; 3] = ["tx_maxrate", "xps_cpus", "xps_rxqs"];
const BYTE_QUEUE_LIMITS: [&str; 3] = ["hold_time", "limit_max", "limit_min"];

pub(super) struct File<'a> {
    pub(super) path: &'a str,
}

impl File<'_> {
    /// Its path, where it is one that any plan may name.
    pub(super) fn file(&self) -> Result<&str, Fault> {
        let is_inside = self.path.starts_with("sys/") || self.path.starts_with("proc/irq/");
        if is_plain(self.path) && is_inside {
            return Ok(self.path);
        }
        let reason =
            "a plan writes files below sys/ and proc/irq/ only, by paths without leading slash".to_owned();
        Err(Fault::Invalid { reason })
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    fn what(&self) -> Needed {
        Needed::Other(Setting::File(self.path.to_owned()).to_string())
    }
}

impl Family for File<'_> {
    fn is_permitted(&self) -> Result<bool, Fault> {
        let numbered = |name: &str, prefix: &str| {
            name.strip_prefix(prefix)
                .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        Ok(match self.file()?.split('/').collect::<Vec<_>>()[..] {
            ["proc", "irq", "default_smp_affinity"] => true,
            ["proc", "irq", number, "smp_affinity" | "smp_affinity_list"] => numbered(number, ""),
            ["sys", "class", "net", _, attribute] => INTERFACE.contains(&attribute),
            ["sys", "class", "net", _, "queues", queue, attribute] => {
                numbered(queue, "rx-") && RECEIVE_QUEUE.contains(&attribute)
                    || numbered(queue, "tx-") && TRANSMIT_QUEUE.contains(&attribute)
            }
            ["sys", "class", "net", _, "queues", queue, "byte_queue_limits", attribute] => {
                numbered(queue, "tx-") && BYTE_QUEUE_LIMITS.contains(&attribute)
            }
            _ => false,
        })
    }

    fn read(&self, host: &Host) -> Result<Option<Value>, Fault> {
        Ok(host.files().read(self.file()?)?.map(Value::Text))
    }

    fn write(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        host.files().write(self.file()?, value)
    }

    fn check(&self, host: &Host, _value: &Value) -> Result<(), Fault> {
        host.files().check(self.file()?)
    }

    fn is_met_by(&self, wanted: &Value, live: &Value) -> bool {
        let form = match self.name() {
            "smp_affinity" | "default_smp_affinity" | "rps_cpus" | "xps_cpus" | "xps_rxqs" => Form::Mask,
            "smp_affinity_list" => Form::List,
            _ => Form::Tokens,
        };
        form.is_same(wanted, live)
    }

    fn gone(&self, host: &Host, _value: Option<&Value>) -> Option<Needed> {
        if !host.lacks(self.path) {
            return None;
        }
        match self.path.split('/').collect::<Vec<_>>()[..] {
            ["proc", "irq", number, _] => {
                let is_gone = !host.lacks("proc/irq") && host.lacks(&format!("proc/irq/{number}"));
                is_gone.then(|| Needed::Other(format!("interrupt {number}")))
            }
            ["sys", "class", "net", name, ref rest @ ..] => {
                if let Some(needed) = host.gone_interface(name) {
                    return Some(needed);
                }
                // A sysfs of another network namespace has other interfaces.
                if host.lacks(&format!("sys/class/net/{name}")) {
                    return None;
                }
                Some(match rest {
                    ["queues", queue, ..] => Needed::Other(format!("queue {queue} of {name}")),
                    _ => self.what(),
                })
            }
            ["sys", ..] if host.is_mounted(self.path) => Some(self.what()),
            _ => None,
        }
    }

    /// The processor that an interrupt is really delivered to, which the kernel
    /// chooses among those allowed (Documentation/core-api/irq/irq-affinity.rst).
    fn in_effect(&self, read: &dyn Fn(&Setting) -> Option<Value>, wanted: Option<&Value>) -> Option<Check> {
        let effective = match self.name() {
            "smp_affinity" => "effective_affinity",
            "smp_affinity_list" => "effective_affinity_list",
            _ => return None,
        };
        if !self.path.starts_with("proc/irq/") {
            return None;
        }
        let setting = Setting::File(format!("{}{effective}", self.path.strip_suffix(self.name())?));
        let found = read(&setting)?.to_string();
        let expected = wanted.map(Value::to_string).unwrap_or_default();
        let holds = is_within(&found, &expected, self.name().ends_with("_list"));
        let note = (!holds).then(|| "an interrupt moves when it next fires".to_owned());
        Some(Check {
            subject: setting.to_string(),
            expected: format!("within {expected}"),
            found: Some(found),
            holds,
            note,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_sys_and_proc_irq() {
        let ok = |path: &str| File { path }.file().is_ok();
        assert!(ok("sys/class/net/eth0/queues/rx-0/rps_cpus") && ok("proc/irq/4/smp_affinity"));
        for bad in ["/sys/a", "sys/../etc/passwd", "proc/sys/net/ipv4/ip_forward", "etc/passwd", "sys", ""] {
            assert!(!ok(bad), "{bad}");
        }
    }
}
