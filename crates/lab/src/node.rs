//! One host of a lab: its namespaces and their settings.

use std::{
    fs,
    hash::{BuildHasher as _, RandomState},
    io,
    ops::Range,
    path::Path,
    time::{Duration, Instant},
};

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{CoreList, lab::LabHost};
use clearstream_sys::{
    document, mount,
    namespace::{Holder, NamespaceSet},
};

use crate::{LabError, sysctl};

/// Range of the initial IPv6 route generation of a host. It must be ahead of
/// the machine's, or sockets of the host may use cached routes of the machine:
/// see [`RouteSocket::advance_ipv6_generation`]. More than a small machine has
/// after its boot, and random, because hosts with the same setup would reach
/// the same generation. Fewer than `route watch` uses: each host of a lab pays
/// for them when the lab starts.
const IPV6_GENERATION_LEAD: Range<u32> = 512..1024;

/// Returns a random number of the range.
fn random_in(range: &Range<u32>) -> u32 {
    // Randomly keyed in each call: no distribution is guaranteed, and none is
    // needed.
    let random = RandomState::new().hash_one(0_u8);
    range.start + (random % u64::from(range.end - range.start)) as u32
}

/// A host; dropping it removes its namespaces.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) namespaces: NamespaceSet,
    pub(crate) netlink: RouteSocket,
    holder: Holder,
}

impl Node {
    /// Creates the namespaces: own /sys, own /etc/hosts, own name, loopback up.
    /// The calling thread must outlive the host.
    pub(crate) fn start(name: &str, hosts_file: &Path) -> Result<Self, LabError> {
        let holder = Holder::start().map_err(LabError::system("make namespaces"))?;
        let namespaces = NamespaceSet::of_process(holder.pid())
            .map_err(LabError::system(format!("open the namespaces of {name}")))?;
        namespaces.keep_mounts_apart().map_err(LabError::system("keep mounts apart"))?;
        let setup = || -> Result<RouteSocket, LabError> {
            mount::fresh_sysfs().map_err(LabError::system(format!("mount /sys for {name}")))?;
            // A minimal root has no such file; the lab creates none, and its names are then unknown.
            let hosts = Path::new("/etc/hosts");
            if hosts.exists() {
                mount::bind_file(hosts_file, hosts)
                    .map_err(LabError::file("put the lab's names over", hosts))?;
            }
            rustix::system::sethostname(name.as_bytes())
                .map_err(|error| LabError::system(format!("name the host {name}"))(error.into()))?;
            let mut netlink = RouteSocket::open().map_err(LabError::network(name))?;
            netlink.set_up("lo", true).map_err(LabError::network(name))?;
            // Fails on a kernel without IPv6, which does not need it.
            let _ = netlink.advance_ipv6_generation(random_in(&IPV6_GENERATION_LEAD));
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

    /// Performs a netlink operation.
    pub(crate) fn network<T>(
        &mut self,
        work: impl FnOnce(&mut RouteSocket) -> Result<T, NetlinkError>,
    ) -> Result<T, LabError> {
        work(&mut self.netlink).map_err(LabError::network(&self.name))
    }

    /// Sets the sysctls of the file, and forwarding for a router. Keys of
    /// interfaces that do not exist yet are deferred to the second call,
    /// `last`.
    pub(crate) fn set_sysctls(&self, host: &LabHost, last: bool) -> Result<(), LabError> {
        let forwarding = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
        let forwarding = forwarding.iter().filter(|_| host.router).map(|key| (*key, "1"));
        let configured = host.sysctls.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let settings: Vec<(&str, &str)> = forwarding.chain(configured).collect();
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
                "a host of a lab has no such setting: it is misspelt, or is a setting of the whole machine"
                    .to_owned()
            }
            io::ErrorKind::PermissionDenied if key.ends_with("tcp_congestion_control") => format!(
                "the machine's net.ipv4.tcp_allowed_congestion_control does not let a namespace choose it: \
                 write congestion-control = \"{value}\" in the [[host]] instead, which is set on its routes"
            ),
            io::ErrorKind::PermissionDenied => {
                "it is a setting of the whole machine: set it there, with sysctl -w, and remove it here"
                    .to_owned()
            }
            io::ErrorKind::InvalidInput => "the kernel rejects this value".to_owned(),
            _ => error.to_string(),
        };
        LabError::Sysctl { host: self.name.clone(), key: key.to_owned(), value: value.to_owned(), reason }
    }

    /// Waits until a sysfs file of an interface has a value. The kernel enables
    /// transmission some time after the carrier is up, in a work queue that may
    /// be busy (net/core/link_watch.c).
    pub(crate) fn wait_for(&self, interface: &str, file: &str, value: &str) -> Result<(), LabError> {
        const TIMEOUT: Duration = Duration::from_secs(8);
        let path = Path::new("/sys/class/net").join(interface).join(file);
        let deadline = Instant::now() + TIMEOUT;
        self.run(|| {
            while document::read_text(&path, document::DOCUMENT_BYTES)
                .map_err(LabError::file("read", &path))?
                .trim()
                != value
            {
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
    /// RPS): `rps_cpus` of every receive queue. `None` disables it.
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
                    // EOVERFLOW, EINVAL: beyond the possible cores of the
                    // kernel.
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

/// Formats a set of cores as a CPU mask: hexadecimal groups of 32 bits, highest
/// first, with commas.
fn core_mask(cores: Option<&CoreList>) -> String {
    let cores = cores.map_or(&[][..], |cores| &cores.0);
    let groups = cores.iter().max().map_or(0, |core| core / 32) as usize + 1;
    let mut mask = vec![0u32; groups];
    for core in cores {
        mask[(core / 32) as usize] |= 1 << (core % 32);
    }
    let groups: Vec<String> = mask.iter().rev().map(|value| format!("{value:08x}")).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_has_the_kernels_format() {
        let mask = |text: &str| core_mask(text.parse::<CoreList>().ok().as_ref());
        assert_eq!(core_mask(None), "00000000");
        assert_eq!(mask("0"), "00000001");
        assert_eq!(mask("0-3,8"), "0000010f");
        assert_eq!(mask("31,32,70"), "00000040,00000001,80000000");
    }
}
