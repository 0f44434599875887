//! Scripts that make the interfaces of a plan and let tools act on them.

use std::path::Path;

use clearstream_schema::routing::HostRouting;

use super::private::SHOW;

/// New interfaces take IPv6 addresses without duplicate address detection,
/// which costs two seconds (ip-sysctl.rst, `accept_dad`).
pub(crate) const QUICK: &str =
    "sysctl -q net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0\n";

/// Makes the interfaces of a plan, each with a peer so that it has a carrier.
pub(crate) fn links(plan: &HostRouting) -> String {
    plan.interfaces
        .iter()
        .map(|known| {
            let name = &known.name;
            format!(
                "ip link add {name} type veth peer name far-{name}\n\
                 ip link set {name} up\nip link set far-{name} up\n"
            )
        })
        .collect()
}

/// The recipe of a bare networkd: private `/run`, `/sys` read-only so that it
/// sees no udev, and a restart at the end, which must not remove what the
/// batches have added.
pub(crate) fn networkd(plan: &HostRouting, root: &Path, has_batches: bool) -> String {
    let root = root.display();
    let batches = if has_batches {
        format!("{root}/etc/clearstream/routes/apply\n{SHOW}stop\nstart\nsettle\n")
    } else {
        String::new()
    };
    format!(
        "{QUICK}{links}mount -t tmpfs none /run\nmkdir -p /run/systemd/netif /run/systemd/network /run/systemd/networkd.conf.d\n\
         chown systemd-network /run/systemd/netif\n\
         mount -t sysfs -o ro none /sys\n\
         cp {root}/etc/systemd/network/* /run/systemd/network/\n\
         cp {root}/etc/systemd/networkd.conf.d/* /run/systemd/networkd.conf.d/ 2>/dev/null\n\
         start() {{ /lib/systemd/systemd-networkd </dev/null >/dev/null 2>&1 & networkd=$!; }}\n\
         stop() {{ kill $networkd; wait $networkd; }}\n\
         # Until two polls in a row, half a second apart, show the same.\n\
         settle() {{ last=; for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.5\n\
             now=$(ip address show scope global; ip rule show; ip -6 rule show; ip route show table all; ip nexthop show)\n\
             [ \"$now\" = \"$last\" ] && [ $try -gt 3 ] && return; last=$now; done; }}\n\
         start\nsettle\n{batches}{SHOW}stop\n",
        links = links(plan),
    )
}

/// Ansible on this machine with a private `/etc`, twice.
pub(crate) fn ansible(plan: &HostRouting, root: &Path, play: &Path) -> String {
    let (root, play) = (root.display(), play.display());
    format!(
        "{QUICK}{links}cp -a /etc {root}/etc\nmount --bind {root}/etc /etc\ncd {play}\n\
         export ANSIBLE_LOCAL_TEMP={root}/local ANSIBLE_REMOTE_TEMP={root}/remote ANSIBLE_NOCOLOR=1 \
         ANSIBLE_PIPELINING=1 ANSIBLE_RETRY_FILES_ENABLED=0 HOME={root}\n\
         for time in 1 2; do ansible-playbook -c local -e ansible_python_interpreter=/usr/bin/python3 \
         -i inventory.yml site.yml </dev/null; done\n{SHOW}",
        links = links(plan),
    )
}
