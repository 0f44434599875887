//! Scripts in a network and mount namespace of their own, which ends with them.

use std::process::Command;

use clearstream_netconfig::read::{self, Source};
use clearstream_schema::routing::HostRouting;

/// Prints what the kernel routes by, in sections.
pub(crate) const SHOW: &str = "echo '=== state'\n\
    ip address show\n\
    echo '=== nexthop'\nip -N nexthop show\n\
    echo '=== route4'\nip -4 -N route show table all\n\
    echo '=== route6'\nip -6 -N route show table all\n\
    echo '=== rule4'\nip -4 -N rule show\n\
    echo '=== rule6'\nip -6 -N rule show\n\
    echo '=== end'\n";

pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a script; when it ends, everything in its namespaces ends.
pub(crate) fn run(script: &str) -> Output {
    let output = Command::new("timeout")
        .args(["--kill-after=5", "170", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"])
        .args(["--propagation", "private", "sh", "-c"])
        .arg(format!("mount -t proc proc /proc\nip link set lo up\n{script}"))
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Output { stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// What `SHOW` printed, as often as it did.
pub(crate) fn states(text: &str) -> Vec<HostRouting> {
    let mut states: Vec<HostRouting> = Vec::new();
    let (mut section, mut nexthops) = (String::new(), String::new());
    let mut body = String::new();
    for line in text.lines() {
        let Some(name) = line.strip_prefix("=== ") else {
            body.push_str(line);
            body.push('\n');
            continue;
        };
        if let Some(state) = states.last_mut() {
            if section == "nexthop" {
                nexthops.clone_from(&body);
            }
            add(state, &section, &nexthops, std::mem::take(&mut body));
        }
        body.clear();
        if name == "state" {
            states.push(HostRouting::default());
        }
        name.clone_into(&mut section);
    }
    states
}

fn add(state: &mut HostRouting, section: &str, nexthops: &str, text: String) {
    let ipv6 = match section {
        "route4" | "rule4" => Some(false),
        "route6" | "rule6" => Some(true),
        "state" | "nexthop" => None,
        _ => return,
    };
    // Routes by nexthop objects are read as such beside the list of these.
    let is_of_routes = section.starts_with("route");
    let text = if is_of_routes { format!("{nexthops}{text}") } else { text };
    let (read, mut unread) =
        read::printed_by_ip(&Source { path: section.to_owned(), text: text.clone() }, ipv6);
    // Next hops without gateways.
    unread.retain(|unread| !unread.reason.ends_with("is not held here"));
    assert_eq!(unread, [], "{text}");
    // Routes of the kernel name addresses too.
    if section == "state" {
        state.interfaces = read.interfaces;
        state.interfaces.retain(|known| !known.name.starts_with("far-"));
    }
    if !is_of_routes {
        state.nexthops.extend(read.nexthops);
    }
    state.routes.extend(read.routes);
    state.rules.extend(read.rules);
}
