//! The settings of this machine, or of a directory laid out like it.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    os::unix::fs::MetadataExt,
    path::Path,
};

use clearstream_host::ReadError;
use clearstream_schema::plan::{Setting, Value};

use crate::{Fault, Identity, Namespace, Needed, PlanError, SettingError, Target, families, files::Files};

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

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// Fails for a directory.
    pub(crate) fn needs_drivers(&self) -> Result<(), Fault> {
        self.needs_kernel("a directory has neither qdiscs nor drivers")
    }

    /// Fails for a directory.
    pub(crate) fn needs_routing(&self) -> Result<(), Fault> {
        self.needs_kernel("a directory has no routes")
    }

    fn needs_kernel(&self, otherwise: &str) -> Result<(), Fault> {
        if self.is_live { Ok(()) } else { Err(Fault::Invalid { reason: otherwise.to_owned() }) }
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

impl Target for Host {
    fn read(&self, setting: &Setting) -> Result<Option<Value>, SettingError> {
        families::of(setting).read(self).map_err(|fault| fault.of(setting))
    }

    fn write(&self, setting: &Setting, value: &Value) -> Result<(), SettingError> {
        families::of(setting).write(self, value).map_err(|fault| fault.of(setting))
    }

    fn remove(&self, setting: &Setting) -> Result<(), SettingError> {
        families::of(setting).remove(self).map_err(|fault| fault.of(setting))
    }

    fn check(&self, setting: &Setting, value: &Value) -> Result<(), SettingError> {
        if let Value::Text(text) = value
            && text.contains(['\n', '\0'])
        {
            return Err(Fault::Invalid { reason: "a value is one line".to_owned() }.of(setting));
        }
        families::of(setting).check(self, value).map_err(|fault| fault.of(setting))
    }

    fn gone(&self, setting: &Setting, value: Option<&Value>) -> Option<Needed> {
        families::of(setting).gone(self, value)
    }

    fn interfaces(&self) -> BTreeMap<String, String> {
        self.live_interfaces()
    }

    fn check_loaded(&self, setting: &Setting, value: &Value) -> Result<(), SettingError> {
        families::of(setting).check_loaded(self, value).map_err(|fault| fault.of(setting))
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
