//! Settings that are files: sysctls, and files below `/sys` and `/proc/irq`.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use clearstream_host::{HostRoot, ReadError};
use clearstream_schema::plan::Setting;

use crate::{Fault, SettingError, meaning::plain};

/// A root directory that holds `proc` and `sys`.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    base: PathBuf,
    root: HostRoot,
}

impl Files {
    pub(crate) fn live() -> Self {
        Self { base: PathBuf::from("/"), root: HostRoot::live() }
    }

    pub(crate) fn directory(base: &Path) -> Self {
        Self { base: base.to_owned(), root: HostRoot::directory(base) }
    }

    pub(crate) fn text(&self, rel: &str) -> Result<String, ReadError> {
        self.root.read(rel).map(|text| text.trim().to_owned())
    }

    pub(crate) fn path(&self, rel: &str) -> PathBuf {
        self.base.join(rel)
    }

    /// The text of a file; `None` when it does not exist.
    pub(crate) fn read(&self, setting: &Setting, rel: &str) -> Result<Option<String>, SettingError> {
        match self.root.read(rel) {
            Ok(text) => Ok(Some(plain(&text))),
            Err(error) if error.is_absent() => Ok(None),
            Err(ReadError::Refused { source, .. }) => Err(Fault::Unreadable { source }.of(setting)),
            Err(other) => Err(Fault::Invalid { reason: other.to_string() }.of(setting)),
        }
    }

    /// Writes in one call, as the kernel takes values.
    pub(crate) fn write(&self, setting: &Setting, rel: &str, value: &str) -> Result<(), SettingError> {
        let mut file = self.open(setting, rel, true)?;
        file.write_all(format!("{value}\n").as_bytes()).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Fault::NotPermitted.of(setting),
            _ => Fault::Rejected { value: value.to_owned(), source }.of(setting),
        })
    }

    /// Opens for writing and writes nothing.
    pub(crate) fn check(&self, setting: &Setting, rel: &str) -> Result<(), SettingError> {
        self.open(setting, rel, false).map(|_| ())
    }

    fn open(&self, setting: &Setting, rel: &str, truncate: bool) -> Result<File, SettingError> {
        let path = self.inside(setting, rel)?;
        OpenOptions::new().write(true).truncate(truncate).open(&path).map_err(|source| {
            let setting = setting.clone();
            match source.kind() {
                io::ErrorKind::NotFound => Fault::Absent.of(&setting),
                io::ErrorKind::ReadOnlyFilesystem => Fault::ReadOnly { path }.of(&setting),
                io::ErrorKind::PermissionDenied if is_root() => Fault::ReadOnly { path }.of(&setting),
                io::ErrorKind::PermissionDenied => Fault::NotPermitted.of(&setting),
                _ => Fault::Unreadable { source }.of(&setting),
            }
        })
    }

    /// The file after all links, which must not lead out of the root's `proc` and
    /// `sys`, nor to an attribute of another name: `/sys/class/net/eth0` is a link
    /// to a device, and what is below it is not.
    fn inside(&self, setting: &Setting, rel: &str) -> Result<PathBuf, SettingError> {
        let absent = || Fault::Absent.of(setting);
        let base = self.base.canonicalize().map_err(|_| absent())?;
        let path = self.base.join(rel).canonicalize().map_err(|_| absent())?;
        let tail = rel.strip_prefix("sys/class/").or_else(|| rel.strip_prefix("proc/"));
        let is_inside = ["sys", "proc"].iter().any(|top| path.starts_with(base.join(top)));
        if is_inside && tail.is_none_or(|tail| path.ends_with(tail)) {
            return Ok(path);
        }
        let reason = format!("leads to {}, which is another place", path.display());
        Err(Fault::Invalid { reason }.of(setting))
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The file of a sysctl. The first separator decides, as in sysctl(8): after `net.`
/// a dot parts names and a slash stands for a dot in one, after `net/` it is the
/// reverse.
pub(crate) fn of_sysctl(setting: &Setting, key: &str) -> Result<String, SettingError> {
    let by_dot = key.find(['.', '/']).is_some_and(|at| key.as_bytes().get(at) == Some(&b'.'));
    let path: String = key
        .chars()
        .map(|letter| match letter {
            '.' if by_dot => '/',
            '/' if by_dot => '.',
            other => other,
        })
        .collect();
    let is_plain = path.split('/').all(|name| !matches!(name, "" | "." | ".."));
    if is_plain && path.contains('/') && is_printed(&path) {
        return Ok(format!("proc/sys/{path}"));
    }
    let reason = "not the name of a sysctl: write it as `net.ipv4.tcp_wmem`".to_owned();
    Err(Fault::Invalid { reason }.of(setting))
}

/// The file of a path below `/sys` or `/proc/irq`.
pub(crate) fn of_path(setting: &Setting, path: &str) -> Result<String, SettingError> {
    let is_plain = path.split('/').all(|name| !matches!(name, "" | "." | ".."));
    if is_plain && is_printed(path) && (path.starts_with("sys/") || path.starts_with("proc/irq/")) {
        return Ok(path.to_owned());
    }
    let reason =
        "a plan writes files below sys/ and proc/irq/ only, by paths without leading slash".to_owned();
    Err(Fault::Invalid { reason }.of(setting))
}

/// Neither blanks nor control characters: no name below `/proc/sys`, and none of
/// an interface (dev_valid_name), has them.
fn is_printed(path: &str) -> bool {
    !path.contains(|letter: char| letter.is_whitespace() || letter.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str) -> Option<String> {
        of_sysctl(&Setting::Sysctl(key.to_owned()), key).ok()
    }

    /// sysctl(8): "the / separator is also accepted in place of a ."
    #[test]
    fn names_of_interfaces_with_dots() {
        assert_eq!(
            path("net.ipv4.conf.eth0/100.rp_filter").unwrap(),
            "proc/sys/net/ipv4/conf/eth0.100/rp_filter"
        );
        assert_eq!(
            path("net/ipv4/conf/eth0.100/rp_filter").unwrap(),
            "proc/sys/net/ipv4/conf/eth0.100/rp_filter"
        );
        for bad in ["", "net", "net..core", "net.core.", "net.//.x", "net.ipv4.tcp wmem", "../etc/passwd"] {
            assert_eq!(path(bad), None, "{bad}");
        }
    }

    #[test]
    fn paths_stay_below_sys_and_proc_irq() {
        let ok = |path: &str| of_path(&Setting::File(path.to_owned()), path).is_ok();
        assert!(ok("sys/class/net/eth0/queues/rx-0/rps_cpus") && ok("proc/irq/4/smp_affinity"));
        for bad in ["/sys/a", "sys/../etc/passwd", "proc/sys/net/ipv4/ip_forward", "etc/passwd", "sys", ""] {
            assert!(!ok(bad), "{bad}");
        }
    }
}
