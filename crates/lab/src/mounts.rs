//! Mounts of the machine that are taken away while a lab runs: its hosts follow, so that no file system of the machine
//! is in use by a lab. Their mount namespaces are copies, and where the machine's mounts are private (as without
//! systemd) the kernel does not propagate an unmount into copies (mount_namespaces(7)).

use std::{path::Path, thread};

use clearstream_sys::{
    mount::{self, MountChanges, MountPoint},
    namespace::NamespaceSet,
};

/// Follows the mounts of this process for as long as it runs, in the namespaces of these processes.
pub(crate) fn follow(holders: &[u32]) {
    // Opened now: the number of a process that ends may become another's, whose mounts are not ours.
    let hosts: Vec<NamespaceSet> =
        holders.iter().filter_map(|holder| NamespaceSet::of_process(*holder).ok()).collect();
    let started = thread::Builder::new().name("mounts".to_owned()).spawn(move || {
        let Ok(changes) = MountChanges::open() else { return };
        let mut before = mount::mount_points().unwrap_or_default();
        while changes.wait().is_ok() {
            let Ok(now) = mount::mount_points() else { continue };
            let gone = gone(&before, &now);
            for host in hosts.iter().filter(|_| !gone.is_empty()) {
                let left = host.run(|| leave(&gone));
                left.unwrap_or_else(|error| tracing::debug!(%error, "mounts that went stay in a host"));
            }
            before = now;
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "mounts that are taken away outside stay in the lab");
    }
}

/// What is not mounted any more, the deepest first.
fn gone(before: &[MountPoint], now: &[MountPoint]) -> Vec<MountPoint> {
    let mut gone: Vec<MountPoint> = before.iter().filter(|mount| !now.contains(mount)).cloned().collect();
    gone.sort_by(|one, other| other.path.cmp(&one.path));
    gone
}

/// Takes the same mounts away here. What is mounted over one of them is this host's own, and stays.
fn leave(gone: &[MountPoint]) {
    for mount in gone {
        let here = mount::mount_points().unwrap_or_default();
        let top = here.iter().rev().find(|other| other.path == mount.path);
        if top == Some(mount) {
            // Gone meanwhile, or below a mount of this host's own.
            let _ = mount::detach(Path::new(&mount.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_found_by_device_and_place_the_deepest_first() {
        let at = |device: &str, path: &str| MountPoint { device: device.to_owned(), path: path.into() };
        let before = [at("8:1", "/"), at("7:0", "/mnt"), at("7:1", "/mnt/inner"), at("0:40", "/data")];
        let now = [at("8:1", "/"), at("0:41", "/data")];
        assert_eq!(gone(&before, &now), [at("7:1", "/mnt/inner"), at("7:0", "/mnt"), at("0:40", "/data")]);
        assert_eq!(gone(&now, &before), [at("0:41", "/data")]);
    }
}
