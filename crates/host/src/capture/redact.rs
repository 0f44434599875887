//! Removes what identifies a machine or its owner from a recording. Replacements are consistent, so that
//! paths, contents and driver state still match.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

use clearstream_schema::routing::HostRouting;

use super::{CAPTURED_NAME, CaptureOptions, Recording};
use crate::{
    drivers::DriverState,
    memory::{Entry, MemoryTree},
    parse::pci,
};

/// A recording without identifying data.
#[derive(Debug)]
pub(super) struct Redacted {
    pub(super) tree: MemoryTree,
    pub(super) errors: BTreeMap<String, i32>,
    pub(super) drivers: BTreeMap<String, DriverState>,
    pub(super) routing: Option<HostRouting>,
}

/// Takes the recording's contents and redacts them.
pub(super) fn redact(
    recording: &mut Recording,
    mut routing: Option<HostRouting>,
    options: CaptureOptions,
) -> Redacted {
    let mut names = Replacements::default();
    let tree = std::mem::take(&mut recording.tree);
    let mut kept = MemoryTree::default();
    for (path, entry) in tree.entries {
        let entry = match entry {
            Entry::Name => Entry::Name,
            Entry::Link(target) => Entry::Link(names.text(&target)),
            Entry::File(bytes) => Entry::File(names.file(&path, bytes, options)),
        };
        kept.entries.insert(names.path(&path), entry);
    }
    let errors = std::mem::take(&mut recording.errors);
    let drivers = std::mem::take(&mut recording.drivers);
    if let Some(routing) = &mut routing {
        // The host name is a file of the tree.
        routing.host.clear();
        super::routing::redact(routing, options.addresses, |name| names.text(name));
    }
    Redacted {
        routing,
        tree: kept,
        errors: errors.into_iter().map(|(path, code)| (names.path(&path), code)).collect(),
        drivers: drivers.into_iter().map(|(name, drivers)| (names.text(&name), drivers)).collect(),
    }
}

/// Replacements made so far.
#[derive(Debug, Default)]
struct Replacements {
    /// Interface names that hold a MAC address.
    interfaces: BTreeMap<String, String>,
    /// Identifiers in control group names.
    groups: BTreeMap<String, String>,
}

impl Replacements {
    fn path(&mut self, path: &str) -> String {
        if path.starts_with("sys/fs/cgroup/") { self.group_names(path) } else { self.text(path) }
    }

    fn file(&mut self, path: &str, bytes: Vec<u8>, options: CaptureOptions) -> Vec<u8> {
        let name = path.rsplit('/').next().unwrap_or_default();
        match (path, name) {
            ("proc/sys/kernel/hostname", _) if !options.keep_host_name => {
                format!("{CAPTURED_NAME}\n").into_bytes()
            }
            // Version numbers can look like addresses.
            ("proc/sys/kernel/osrelease" | "proc/sys/kernel/hostname", _) => bytes,
            (_, "config") if path.starts_with("sys/devices/") => pci::without_serials(&bytes),
            _ => match String::from_utf8(bytes) {
                Ok(text) if name == "cgroup" => self.group_names(&text).into_bytes(),
                Ok(text) if name == "cpuinfo" => self.text(&without_serial_line(&text)).into_bytes(),
                Ok(text) => self.text(&text).into_bytes(),
                // Binary content carries no text to a reader.
                Err(error) => error.into_bytes(),
            },
        }
    }

    /// Replaces addresses in a text, token by token.
    fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_token) {
            let end = rest[start..].find(|c| !is_token(c)).map_or(rest.len(), |length| start + length);
            out.push_str(&rest[..start]);
            self.token(&rest[start..end], &mut out);
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }

    fn token(&mut self, token: &str, out: &mut String) {
        let bare = token.trim_end_matches([':', '.']);
        let tail = &token[bare.len()..];
        if is_mac(bare) {
            out.push_str("00:00:00:00:00:00");
        } else if bare.parse::<Ipv4Addr>().is_ok() {
            out.push_str("0.0.0.0");
        } else if is_ipv6(bare) {
            out.push_str("::");
        } else if let Some((prefix, _)) = mac_name(bare) {
            let number = self.interfaces.len() + 1;
            let name = self.interfaces.entry(bare.to_owned());
            // Same length as the original name: tables stay aligned.
            out.push_str(name.or_insert_with(|| format!("{prefix}{number:012}")));
        } else {
            out.push_str(bare);
        }
        out.push_str(tail);
    }

    /// Replaces identifiers of containers, pods and sessions in control group names.
    fn group_names(&mut self, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_hexdigit() || c == '-' || c == '_';
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_part) {
            let end = rest[start..].find(|c| !is_part(c)).map_or(rest.len(), |length| start + length);
            out.push_str(&rest[..start]);
            let run = &rest[start..end];
            let digits = run.bytes().filter(u8::is_ascii_hexdigit).count();
            if digits >= 12 && run.bytes().any(|byte| byte.is_ascii_digit()) {
                let number = self.groups.len() + 1;
                out.push_str(self.groups.entry(run.to_owned()).or_insert_with(|| format!("-id{number}")));
            } else {
                out.push_str(run);
            }
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ':' || c == '.'
}

/// Six pairs of hexadecimal digits with colons.
fn is_mac(token: &str) -> bool {
    token.len() == 17
        && token.split(':').count() == 6
        && token.split(':').all(|pair| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// An address with at least three groups: `0::` is a line of `/proc/self/cgroup`.
fn is_ipv6(token: &str) -> bool {
    token.split(':').filter(|group| !group.is_empty()).count() >= 3 && token.parse::<Ipv6Addr>().is_ok()
}

/// `enx525400123456`: the name that systemd gives to an interface by its address.
fn mac_name(token: &str) -> Option<(&str, &str)> {
    let (prefix, digits) = token.split_at_checked(3)?;
    let digits = digits.split_once('.').map_or(digits, |(digits, _)| digits);
    let fits = matches!(prefix, "enx" | "wlx" | "wwx" | "ibx")
        && digits.len() == 12
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    fits.then_some((prefix, digits))
}

fn without_serial_line(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with("Serial")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_addresses_and_nothing_else() {
        let mut names = Replacements::default();
        let text =
            "52:54:00:12:34:56 10.0.0.1: fe80::5054:ff:fe12:3456, 0::/init 0000:3b:00.0 0000,0000003f\n";
        assert_eq!(names.text(text), "00:00:00:00:00:00 0.0.0.0: ::, 0::/init 0000:3b:00.0 0000,0000003f\n");
        for kept in [
            "8.0 GT/s PCIe",
            "eth0.7",
            "IO-APIC 2-edge timer",
            "4096\t131072\t6291456",
            "mlx5_comp0@pci:0000:3b:00.0",
        ] {
            assert_eq!(names.text(kept), kept);
        }
    }

    #[test]
    fn renames_an_interface_consistently() {
        let mut names = Replacements::default();
        assert_eq!(names.text("sys/class/net/enx525400123456"), "sys/class/net/enx000000000001");
        assert_eq!(names.text("enxa0b1c2d3e4f5-rx-0"), "enx000000000002-rx-0");
        assert_eq!(names.text("enx525400123456: 1 2"), "enx000000000001: 1 2");
    }

    #[test]
    fn renames_a_control_group_consistently() {
        let mut names = Replacements::default();
        let id = "7bbf16ac45efb889042b47359e43c032";
        assert_eq!(
            names.group_names(&format!("4:memory:/docker/{id}\n0::/\n")),
            "4:memory:/docker/-id1\n0::/\n"
        );
        assert_eq!(
            names.path(&format!("sys/fs/cgroup/memory/docker/{id}/memory.max")),
            "sys/fs/cgroup/memory/docker/-id1/memory.max"
        );
        assert_eq!(
            names.path("sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.max"),
            "sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.max"
        );
    }

    #[test]
    fn drops_the_serial_of_small_boards() {
        let options = CaptureOptions::default();
        let text = b"model name : A\nSerial : 00000000abcdef01\n".to_vec();
        assert_eq!(Replacements::default().file("proc/cpuinfo", text, options), b"model name : A\n");
    }
}
