//! The settings of this machine, or of a directory laid out like it.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    os::unix::fs::MetadataExt,
    path::Path,
};

use clearstream_host::ReadError;
use clearstream_netlink::{Discipline, NetlinkError, RouteSocket, ethtool::Ethtool};
use clearstream_schema::plan::{LinkAttribute, Setting};

use crate::{
    Fault, Identity, Namespace, Needed, PlanError, SettingError, Target,
    files::{self, Files},
    gone::Present,
    modules, netfilter, qdisc, routing,
};

/// A host whose settings are read and written.
#[derive(Debug, Clone)]
pub struct Host {
    files: Files,
    is_live: bool,
}

impl Host {
    /// The running host, in the namespaces of the calling thread.
    pub fn live() -> Self {
        Self { files: Files::live(), is_live: true }
    }

    /// A directory that holds `proc` and `sys`; link attributes are its files,
    /// and it has neither qdiscs nor drivers.
    pub fn directory(path: impl AsRef<Path>) -> Self {
        Self { files: Files::directory(path.as_ref()), is_live: false }
    }

    /// The file that a setting is in; `None` for those behind netlink.
    fn file(&self, setting: &Setting) -> Result<Option<String>, SettingError> {
        match setting {
            Setting::Sysctl(key) => files::of_sysctl(setting, key).map(Some),
            Setting::File(path) => files::of_path(setting, path).map(Some),
            Setting::Link { interface, attribute } if !self.is_live => {
                let name = match attribute {
                    LinkAttribute::Mtu => "mtu",
                    LinkAttribute::TransmitQueueLength => "tx_queue_len",
                };
                files::of_path(setting, &format!("sys/class/net/{interface}/{name}")).map(Some)
            }
            Setting::Link { .. } => Ok(None),
            _ if self.is_live => Ok(None),
            Setting::Qdisc { .. } | Setting::Ethtool { .. } => {
                Err(Fault::Invalid { reason: "a directory has neither qdiscs nor drivers".to_owned() }
                    .of(setting))
            }
            Setting::Nexthop { .. }
            | Setting::Route { .. }
            | Setting::Rule { .. }
            | Setting::Address { .. }
            | Setting::NetfilterTable { .. } => {
                Err(Fault::Invalid { reason: "a directory has no routes".to_owned() }.of(setting))
            }
        }
    }
}

impl Target for Host {
    fn read(&self, setting: &Setting) -> Result<Option<String>, SettingError> {
        if let Some(rel) = self.file(setting)? {
            return self.files.read(setting, &rel);
        }
        match setting {
            Setting::Link { interface, attribute } => {
                let found = route(setting)?.interface(interface);
                let Some(found) = present(setting, found)? else { return Ok(None) };
                Ok(Some(match attribute {
                    LinkAttribute::Mtu => found.mtu_bytes.to_string(),
                    LinkAttribute::TransmitQueueLength => found.transmit_queue_count.to_string(),
                }))
            }
            Setting::Qdisc { interface } => {
                let found = route(setting)?.discipline(interface);
                Ok(present(setting, found)?.map(|found| qdisc::text(&found)))
            }
            Setting::Ethtool { interface, group, name } => {
                if present(setting, route(setting)?.interface(interface))?.is_none() {
                    return Ok(None);
                }
                driver(setting)?.value(interface, group, name).map_err(driver_error(setting))
            }
            Setting::NetfilterTable { name } => netfilter::read(setting, name),
            Setting::Nexthop { .. }
            | Setting::Route { .. }
            | Setting::Rule { .. }
            | Setting::Address { .. } => routing::read(setting, &mut route(setting)?),
            // Files were read above.
            Setting::Sysctl(_) | Setting::File(_) => Ok(None),
        }
    }

    fn write(&self, setting: &Setting, value: &str) -> Result<(), SettingError> {
        if let Some(rel) = self.file(setting)? {
            return self.files.write(setting, &rel, value);
        }
        match setting {
            Setting::Link { interface, attribute } => {
                let (number, mut socket) = (number(setting, value)?, route(setting)?);
                let result = match attribute {
                    LinkAttribute::Mtu => socket.set_mtu(interface, number),
                    LinkAttribute::TransmitQueueLength => socket.set_transmit_queue(interface, number),
                };
                result.map_err(refused(setting, value))
            }
            Setting::Qdisc { interface } => {
                let mut socket = route(setting)?;
                let result = match wanted(setting, value)? {
                    None => socket.delete_discipline(interface),
                    Some(discipline) => socket.set_discipline(interface, &discipline),
                };
                result.map_err(refused(setting, value))
            }
            Setting::Ethtool { interface, group, name } => {
                driver(setting)?.set_value(interface, group, name, value).map_err(driver_error(setting))
            }
            Setting::NetfilterTable { name } => netfilter::write(setting, name, value),
            Setting::Nexthop { .. }
            | Setting::Route { .. }
            | Setting::Rule { .. }
            | Setting::Address { .. } => routing::write(setting, value, &mut route(setting)?),
            Setting::Sysctl(_) | Setting::File(_) => Ok(()),
        }
    }

    fn remove(&self, setting: &Setting) -> Result<(), SettingError> {
        match setting {
            Setting::NetfilterTable { name } => netfilter::remove(setting, name),
            _ if setting.may_be_absent() => routing::remove(setting, &mut route(setting)?),
            _ => Err(Fault::Invalid { reason: "cannot be removed".to_owned() }.of(setting)),
        }
    }

    fn check(&self, setting: &Setting, value: &str) -> Result<(), SettingError> {
        if value.contains(['\n', '\0']) {
            let reason = "a value is one line".to_owned();
            return Err(Fault::Invalid { reason }.of(setting));
        }
        if let Some(rel) = self.file(setting)? {
            return self.files.check(setting, &rel);
        }
        match setting {
            Setting::Link { .. } => number(setting, value).map(|_| ())?,
            Setting::Qdisc { .. } => wanted(setting, value).map(|_| ())?,
            Setting::Ethtool { group, name, .. } => {
                Ethtool::check(group, name, value).map_err(|reason| Fault::Invalid { reason }.of(setting))?;
            }
            Setting::NetfilterTable { name } => netfilter::check(setting, name, value)?,
            Setting::Nexthop { .. }
            | Setting::Route { .. }
            | Setting::Rule { .. }
            | Setting::Address { .. } => {
                routing::check(setting, value)?;
            }
            Setting::Sysctl(_) | Setting::File(_) => {}
        }
        // CAP_NET_ADMIN is what netlink requires.
        if rustix::process::geteuid().is_root() {
            return Ok(());
        }
        Err(Fault::NotPermitted.of(setting))
    }

    fn gone(&self, setting: &Setting, text: Option<&str>) -> Option<Needed> {
        self.present().gone(setting, text)
    }

    fn interfaces(&self) -> BTreeMap<String, String> {
        self.present().interfaces()
    }

    fn check_loaded(&self, setting: &Setting, value: &str) -> Result<(), SettingError> {
        modules::check(&self.files, setting, value)
    }

    fn identity(&self) -> Result<Identity, PlanError> {
        let text = |rel: &str| {
            self.files.text(rel).map_err(|error| PlanError::Identity {
                what: format!("/{rel}"),
                source: io::Error::other(match error {
                    ReadError::Refused { source, .. } => source.to_string(),
                    other => other.reason(),
                }),
            })
        };
        Ok(Identity {
            name: text("proc/sys/kernel/hostname")?,
            kernel: text("proc/sys/kernel/osrelease")?,
            boot: text("proc/sys/kernel/random/boot_id")?,
            namespace: self.is_live.then(|| self.namespace()).transpose()?,
        })
    }

    fn is_live(&self) -> bool {
        self.is_live
    }
}

impl Host {
    fn present(&self) -> Present<'_> {
        Present { files: &self.files, is_live: self.is_live }
    }

    fn namespace(&self) -> Result<Namespace, PlanError> {
        let path = self.files.path("proc/thread-self/ns/net");
        let inode = std::fs::metadata(&path)
            .map_err(|source| PlanError::Identity { what: path.display().to_string(), source })?
            .ino();
        // Any socket has the cookie of its namespace.
        let socket = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let cookie = socket.and_then(clearstream_sys::socket::network_namespace_cookie).ok();
        Ok(Namespace { inode, cookie })
    }
}

fn route(setting: &Setting) -> Result<RouteSocket, SettingError> {
    RouteSocket::open().map_err(netlink_error(setting))
}

fn driver(setting: &Setting) -> Result<Ethtool, SettingError> {
    Ethtool::open().map_err(driver_error(setting))
}

pub(crate) fn netlink_error(setting: &Setting) -> impl Fn(NetlinkError) -> SettingError {
    let setting = setting.clone();
    move |source| Fault::Netlink { source }.of(&setting)
}

fn driver_error(setting: &Setting) -> impl Fn(clearstream_netlink::ethtool::EthtoolError) -> SettingError {
    let setting = setting.clone();
    move |source| Fault::Driver { source }.of(&setting)
}

/// A setting of an interface that does not exist does not exist.
fn present<T>(setting: &Setting, found: Result<T, NetlinkError>) -> Result<Option<T>, SettingError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(NetlinkError::NoInterface { .. }) => Ok(None),
        Err(error) => Err(netlink_error(setting)(error)),
    }
}

pub(crate) fn refused(setting: &Setting, value: &str) -> impl FnOnce(NetlinkError) -> SettingError {
    let (setting, value) = (setting.clone(), value.to_owned());
    move |error| match error {
        NetlinkError::Refused { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Fault::NotPermitted.of(&setting)
        }
        NetlinkError::Refused { source, .. } => Fault::Rejected { value, source: source.into() }.of(&setting),
        NetlinkError::NoInterface { .. } => Fault::Absent.of(&setting),
        source => Fault::Netlink { source }.of(&setting),
    }
}

fn number(setting: &Setting, value: &str) -> Result<u32, SettingError> {
    value
        .trim()
        .parse()
        .map_err(|_| Fault::Invalid { reason: format!("\"{value}\" is not a whole number") }.of(setting))
}

/// The discipline that a text requests; `None` is the kernel's default.
fn wanted(setting: &Setting, value: &str) -> Result<Option<Discipline>, SettingError> {
    if qdisc::is_default(value) {
        return Ok(None);
    }
    value.parse().map(Some).map_err(|reason| Fault::Invalid { reason: format!("{reason}") }.of(setting))
}
