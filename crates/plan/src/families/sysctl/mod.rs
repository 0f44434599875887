//! Sysctls.

pub(crate) mod connection;

use clearstream_schema::plan::{Setting, Value, sysctl_path};

use super::Family;
use crate::{Fault, Host, Needed, files::is_plain, modules, texts::Form};

const CONGESTION_CONTROL: &str = "proc/sys/net/ipv4/tcp_congestion_control";
const CONGESTION_CONTROLS: &str = "proc/sys/net/ipv4/tcp_available_congestion_control";
const DEFAULT_DISCIPLINE: &str = "proc/sys/net/core/default_qdisc";

/// Folders below `/proc/sys` whose sysctls are the network's.
const NETWORK: [&str; 7] = ["core", "ipv4", "ipv6", "mptcp", "netfilter", "bridge", "unix"];

/// Sysctls of the network that are not for plans: secrets, the compiler of BPF
/// programs, names of log back ends, rights of users (ip-sysctl.rst,
/// admin-guide/sysctl/net.rst, nf_conntrack-sysctl.rst).
const REFUSED: [&str; 8] = [
    "bpf_jit_",
    "netdev_rss_key",
    "nf_log",
    "tcp_fastopen_key",
    "stable_secret",
    "ip_unprivileged_port_start",
    "ping_group_range",
    "warnings",
];

/// Sysctls outside of `net` (admin-guide/sysctl/vm.rst, kernel.rst).
const NAMED: [&str; 15] = [
    "kernel/numa_balancing",
    "net/nf_conntrack_max",
    "vm/dirty_background_bytes",
    "vm/dirty_background_ratio",
    "vm/dirty_bytes",
    "vm/dirty_expire_centisecs",
    "vm/dirty_ratio",
    "vm/dirty_writeback_centisecs",
    "vm/min_free_kbytes",
    "vm/nr_hugepages",
    "vm/nr_overcommit_hugepages",
    "vm/swappiness",
    "vm/vfs_cache_pressure",
    "vm/watermark_scale_factor",
    "vm/zone_reclaim_mode",
];

pub(super) struct Sysctl<'a> {
    pub(super) key: &'a str,
}

impl Sysctl<'_> {
    fn file(&self) -> Result<String, Fault> {
        let path = sysctl_path(self.key);
        if is_plain(&path) && path.contains('/') {
            return Ok(format!("proc/sys/{path}"));
        }
        let reason = "not the name of a sysctl: write it as `net.ipv4.tcp_wmem`".to_owned();
        Err(Fault::Invalid { reason })
    }
}

impl Family for Sysctl<'_> {
    /// Decided on the path, never on its spelling (sysctl(8) has two separators).
    fn is_permitted(&self) -> Result<bool, Fault> {
        let file = self.file()?;
        let Some(path) = file.strip_prefix("proc/sys/") else { return Ok(false) };
        if NAMED.contains(&path) {
            return Ok(true);
        }
        let names: Vec<&str> = path.split('/').collect();
        let refused = |name: &&str| REFUSED.iter().any(|refused| name.starts_with(refused));
        let is_network = matches!(names[..], ["net", folder, _, ..] if NETWORK.contains(&folder));
        Ok(is_network && !names.iter().any(refused))
    }

    fn read(&self, host: &Host) -> Result<Option<Value>, Fault> {
        Ok(host.files().read(&self.file()?)?.map(Value::Text))
    }

    fn write(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        host.files().write(&self.file()?, value)
    }

    fn check(&self, host: &Host, _value: &Value) -> Result<(), Fault> {
        host.files().check(&self.file()?)
    }

    /// Names of congestion controls (`tcp_set_default_congestion_control`) and of queueing
    /// disciplines (`qdisc_set_default`).
    fn check_loaded(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        let text = value.to_string();
        let name = text.trim();
        match self.file()?.as_str() {
            CONGESTION_CONTROL => {
                let there = host.files().text(CONGESTION_CONTROLS).unwrap_or_default();
                match there.split_whitespace().any(|there| there == name) {
                    true => Ok(()),
                    false => Err(Fault::NotLoaded { module: format!("tcp_{name}") }),
                }
            }
            DEFAULT_DISCIPLINE => modules::check_discipline(host.files(), name),
            _ => Ok(()),
        }
    }

    fn is_met_by(&self, wanted: &Value, live: &Value) -> bool {
        let form = match self.key.rsplit(['.', '/']).next().unwrap_or(self.key) {
            "rps_default_mask" | "flow_limit_cpu_bitmap" => Form::Mask,
            "ip_local_reserved_ports" => Form::List,
            "tcp_allowed_congestion_control" => Form::Set,
            _ => Form::Tokens,
        };
        form.is_same(wanted, live)
    }

    /// Its value was in the object that registered it: an interface, or a module.
    fn gone(&self, host: &Host, _value: Option<&Value>) -> Option<Needed> {
        if !host.lacks(&self.file().ok()?) || host.lacks("proc/sys/kernel/osrelease") {
            return None;
        }
        let setting = Setting::Sysctl(self.key.to_owned());
        let interface = setting.interface().and_then(|name| host.gone_interface(&name));
        interface.or_else(|| Some(Needed::Other(self.key.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// sysctl(8): "the / separator is also accepted in place of a ."
    #[test]
    fn names_of_interfaces_with_dots() {
        let file = |key: &str| Sysctl { key }.file().ok();
        let path = Some("proc/sys/net/ipv4/conf/eth0.100/rp_filter".to_owned());
        for key in ["net.ipv4.conf.eth0/100.rp_filter", "net/ipv4/conf/eth0.100/rp_filter"] {
            assert_eq!(file(key), path);
            assert_eq!(Setting::Sysctl(key.to_owned()).interface().as_deref(), Some("eth0.100"));
        }
        for bad in ["", "net", "net..core", "net.core.", "net.//.x", "net.ipv4.tcp wmem", "../etc/passwd"] {
            assert_eq!(file(bad), None, "{bad}");
        }
    }
}
