//! One host of a lab: its namespaces and what is set inside them.

use std::{
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{CoreList, lab::LabHost};
use clearstream_sys::{
    mount,
    namespace::{Holder, NamespaceSet},
};

use crate::{LabError, sysctl};

/// Route changes by which a host is ahead of the machine from its beginning, or
/// its sockets take the machine's generation of IPv6 routes for their own: see
/// [`RouteSocket::advance_ipv6_generation`].
const IPV6_GENERATION: u32 = 512;

/// A host that lives as long as this value.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) namespaces: NamespaceSet,
    pub(crate) netlink: RouteSocket,
    holder: Holder,
}

impl Node {
    /// Makes the namespaces: own /sys, own /etc/hosts, own name, loopback up.
    /// The calling thread must live as long as the host.
    pub(crate) fn start(name: &str, hosts_file: &Path) -> Result<Self, LabError> {
        let holder = Holder::start().map_err(LabError::system("make namespaces"))?;
        let namespaces = NamespaceSet::of_process(holder.pid())
            .map_err(LabError::system(format!("open the namespaces of {name}")))?;
        let setup = || -> Result<RouteSocket, LabError> {
            mount::make_private().map_err(LabError::system("keep mounts apart"))?;
            mount::fresh_sysfs().map_err(LabError::system(format!("mount /sys for {name}")))?;
            let hosts = Path::new("/etc/hosts");
            mount::bind_file(hosts_file, hosts).map_err(LabError::file("put the lab's names over", hosts))?;
            rustix::system::sethostname(name.as_bytes())
                .map_err(|error| LabError::system(format!("name the host {name}"))(error.into()))?;
            let mut netlink = RouteSocket::open().map_err(LabError::network(name))?;
            netlink.set_up("lo", true).map_err(LabError::network(name))?;
            // A kernel without IPv6 refuses, and has no need of it.
            let _ = netlink.advance_ipv6_generation(IPV6_GENERATION);
            Ok(netlink)
        };
        let netlink = namespaces.run(setup).map_err(LabError::system(format!("enter {name}")))??;
        Ok(Self { name: name.to_owned(), namespaces, netlink, holder })
    }

    /// Process that holds the namespaces.
    pub(crate) fn pid(&self) -> u32 {
        self.holder.pid()
    }

    pub(crate) fn net_inode(&self) -> Result<u64, LabError> {
        self.namespaces.net_inode().map_err(LabError::system(format!("read the namespace of {}", self.name)))
    }

    /// Runs work inside the host.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.namespaces.run(work).map_err(LabError::system(format!("enter {}", self.name)))
    }

    /// Does something over netlink.
    pub(crate) fn network<T>(
        &mut self,
        work: impl FnOnce(&mut RouteSocket) -> Result<T, NetlinkError>,
    ) -> Result<T, LabError> {
        work(&mut self.netlink).map_err(LabError::network(&self.name))
    }

    /// Sets the sysctls of the file, and forwarding for a router. Keys of
    /// interfaces that do not exist yet are left for the second call, `last`.
    pub(crate) fn set_sysctls(&self, host: &LabHost, last: bool) -> Result<(), LabError> {
        let forwarding = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
        let forwarding = forwarding.iter().filter(|_| host.router).map(|key| (*key, "1"));
        let asked = host.sysctls.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let settings: Vec<(&str, &str)> = forwarding.chain(asked).collect();
        self.write(&settings, last)
    }

    /// Sets sysctls that this kernel may lack.
    pub(crate) fn write_known_sysctls(&self, settings: &[(&str, &str)]) -> Result<(), LabError> {
        self.write(settings, false)
    }

    fn write(&self, settings: &[(&str, &str)], all: bool) -> Result<(), LabError> {
        self.run(|| {
            for (key, value) in settings {
                match sysctl::write(key, value) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound && !all => {}
                    outcome => outcome.map_err(|error| self.sysctl_error(key, value, &error))?,
                }
            }
            Ok(())
        })?
    }

    fn sysctl_error(&self, key: &str, value: &str, error: &io::Error) -> LabError {
        let reason = match error.kind() {
            io::ErrorKind::NotFound => {
                "a host of a lab has no such setting: it is misspelt, or belongs to the whole machine"
                    .to_owned()
            }
            io::ErrorKind::PermissionDenied if key.ends_with("tcp_congestion_control") => format!(
                "the machine's net.ipv4.tcp_allowed_congestion_control does not let a namespace choose it: \
                 write congestion-control = \"{value}\" in the [[host]] instead, which is set on its routes"
            ),
            io::ErrorKind::PermissionDenied => {
                "it belongs to the whole machine: set it there, with sysctl -w, and leave it out here"
                    .to_owned()
            }
            io::ErrorKind::InvalidInput => "the kernel does not take this value".to_owned(),
            _ => error.to_string(),
        };
        LabError::Sysctl { host: self.name.clone(), key: key.to_owned(), value: value.to_owned(), reason }
    }

    /// Waits until a file about an interface says a word. The kernel lets an
    /// interface send some time after it got its carrier, by a work queue that
    /// may be busy (net/core/link_watch.c).
    pub(crate) fn wait_for(&self, interface: &str, file: &str, word: &str) -> Result<(), LabError> {
        const PATIENCE: Duration = Duration::from_secs(8);
        let path = Path::new("/sys/class/net").join(interface).join(file);
        let deadline = Instant::now() + PATIENCE;
        self.run(|| {
            while fs::read_to_string(&path).map_err(LabError::file("read", &path))?.trim() != word {
                if Instant::now() > deadline {
                    let step = format!("see {interface} on {} work", self.name);
                    return Err(LabError::System { step, source: io::ErrorKind::TimedOut.into() });
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok(())
        })?
    }

    /// Steers received packets to cores (Documentation/networking/scaling.rst,
    /// RPS): `rps_cpus` of every receive queue. `None` ends it.
    pub(crate) fn set_receive_cores(
        &self,
        interface: &str,
        cores: Option<&CoreList>,
    ) -> Result<(), LabError> {
        let mask = core_mask(cores);
        let queues = Path::new("/sys/class/net").join(interface).join("queues");
        self.run(|| {
            let entries = fs::read_dir(&queues).map_err(LabError::file("read", &queues))?;
            for entry in entries.filter_map(Result::ok) {
                if !entry.file_name().to_string_lossy().starts_with("rx-") {
                    continue;
                }
                let path = entry.path().join("rps_cpus");
                fs::write(&path, &mask).map_err(|source| match source.raw_os_error() {
                    // EOVERFLOW, EINVAL: beyond the cores the kernel can have.
                    Some(22 | 75) => LabError::Unsupported {
                        what: format!(
                            "{interface} on {}: there are no cores {}",
                            self.name,
                            cores_text(cores)
                        ),
                        remedy: "name cores of this machine, see `clearstream inspect`".to_owned(),
                    },
                    _ => LabError::file("write", &path)(source),
                })?;
            }
            Ok(())
        })?
    }
}

fn cores_text(cores: Option<&CoreList>) -> String {
    cores.map_or_else(String::new, CoreList::to_string)
}

/// The kernel's form of a set of cores: hexadecimal words of 32 bits, highest
/// first, with commas.
fn core_mask(cores: Option<&CoreList>) -> String {
    let cores = cores.map_or(&[][..], |cores| &cores.0);
    let words = cores.iter().max().map_or(0, |core| core / 32) as usize + 1;
    let mut mask = vec![0u32; words];
    for core in cores {
        mask[(core / 32) as usize] |= 1 << (core % 32);
    }
    let words: Vec<String> = mask.iter().rev().map(|word| format!("{word:08x}")).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_is_the_kernels_form() {
        let mask = |text: &str| core_mask(text.parse::<CoreList>().ok().as_ref());
        assert_eq!(core_mask(None), "00000000");
        assert_eq!(mask("0"), "00000001");
        assert_eq!(mask("0-3,8"), "0000010f");
        assert_eq!(mask("31,32,70"), "00000040,00000001,80000000");
    }
}
