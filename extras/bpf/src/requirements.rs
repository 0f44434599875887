//! Kernel requirements, checked before anything is changed: `bpf(2)` returns
//! "invalid argument" for most missing features.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::LoadError;

/// Registered congestion controls.
pub const AVAILABLE: &str = "proc/sys/net/ipv4/tcp_available_congestion_control";
const BTF: &str = "sys/kernel/btf/vmlinux";
const JIT: &str = "proc/sys/net/core/bpf_jit_enable";
const STATUS: &str = "proc/self/status";

/// capabilities(7), include/uapi/linux/capability.h.
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_BPF: u64 = 1 << 39;

/// Returns the registered congestion controls, by name.
///
/// # Errors
/// [`LoadError::File`].
pub fn available(root: &Path) -> Result<Vec<String>, LoadError> {
    let path = root.join(AVAILABLE);
    let text = fs::read_to_string(&path).map_err(|source| LoadError::File { what: "read", path, source })?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Checks whether the kernel below `root` can load one, and whether this
/// process may.
///
/// # Errors
/// [`LoadError::Unsupported`] and [`LoadError::Privilege`], with what is missing.
pub fn check(root: &Path) -> Result<(), LoadError> {
    let types = read_optional(root.join(BTF))?.ok_or(LoadError::Unsupported {
        what: "it has no type information (/sys/kernel/btf/vmlinux)",
        instead: "boot one built with CONFIG_DEBUG_INFO_BTF=y",
    })?;
    // BTF contains the names of types as strings (Documentation/bpf/btf.rst).
    let has_type =
        |name: &[u8]| types.windows(name.len() + 1).any(|text| text.strip_prefix(name) == Some(&[0]));
    if !has_type(b"bpf_struct_ops_tcp_congestion_ops") {
        return Err(LoadError::Unsupported {
            what: "it takes no congestion controls from BPF",
            instead: "boot one built with CONFIG_BPF_SYSCALL=y, CONFIG_BPF_JIT=y and CONFIG_INET=y (Linux 5.6)",
        });
    }
    if !has_type(b"bpf_struct_ops_link") {
        return Err(LoadError::Unsupported {
            what: "its congestion controls have no links to pin",
            instead: "boot Linux 6.4 or newer",
        });
    }
    if read_optional(root.join(JIT))?.is_some_and(|value| value.trim_ascii() == b"0") {
        return Err(LoadError::Unsupported {
            what: "BPF is interpreted and a congestion control must be compiled",
            instead: "set sysctl net.core.bpf_jit_enable=1",
        });
    }
    let status = read_optional(root.join(STATUS))?.unwrap_or_default();
    match effective_capabilities(&String::from_utf8_lossy(&status)) {
        Some(held) if !may_load(held) => Err(LoadError::Privilege { what: "loading a congestion control" }),
        _ => Ok(()),
    }
}

fn read_optional(path: PathBuf) -> Result<Option<Vec<u8>>, LoadError> {
    match fs::read(&path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // net.core.bpf_jit_enable is readable by root only.
            Err(LoadError::Privilege { what: "loading a congestion control" })
        }
        Err(source) => Err(LoadError::File { what: "read", path, source }),
    }
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(value.trim(), 16).ok()
}

/// CAP_SYS_ADMIN contains CAP_BPF (capabilities(7)).
fn may_load(held: u64) -> bool {
    held & (CAP_BPF | CAP_SYS_ADMIN) != 0 && held & CAP_NET_ADMIN != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a fake kernel in a directory: names of types, JIT, capabilities.
    fn kernel(types: Option<&str>, jit: &str, capabilities: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        if let Some(types) = types {
            write(BTF, types);
        }
        write(JIT, jit);
        write(STATUS, &format!("Name:\tx\nCapEff:\t{capabilities}\n"));
        root
    }

    const TYPES: &str = "\0sock\0bpf_struct_ops_tcp_congestion_ops\0bpf_struct_ops_link\0";
    const ALL: &str = "000001ffffffffff";

    fn refusal(root: &tempfile::TempDir) -> String {
        check(root.path()).unwrap_err().to_string()
    }

    #[test]
    fn a_kernel_that_has_everything_is_accepted() {
        check(kernel(Some(TYPES), "1\n", ALL).path()).unwrap();
    }

    #[test]
    fn each_missing_feature_is_named_with_what_to_do() {
        let case = |types, jit, capabilities, expected: &[&str]| {
            let message = refusal(&kernel(types, jit, capabilities));
            for text in expected {
                assert!(message.contains(text), "\"{text}\" is not in: {message}");
            }
        };
        case(None, "1\n", ALL, &["/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"]);
        case(Some("\0sock\0"), "1\n", ALL, &["CONFIG_BPF_JIT"]);
        // A longer name is another type.
        case(Some("\0bpf_struct_ops_tcp_congestion_ops_v2\0"), "1\n", ALL, &["CONFIG_BPF_JIT"]);
        case(Some("\0bpf_struct_ops_tcp_congestion_ops\0"), "1\n", ALL, &["Linux 6.4"]);
        case(Some(TYPES), "0\n", ALL, &["bpf_jit_enable=1"]);
        // CAP_NET_RAW (13) alone, as ping has it.
        case(Some(TYPES), "1\n", "0000000000002000", &["CAP_BPF", "root"]);
    }

    #[test]
    fn the_capabilities_of_capabilities_7_suffice() {
        assert!(may_load(CAP_BPF | CAP_NET_ADMIN));
        assert!(may_load(CAP_SYS_ADMIN | CAP_NET_ADMIN));
        assert!(!may_load(CAP_BPF));
        assert!(!may_load(CAP_NET_ADMIN));
    }
}
