//! Settings, from the environment: `clearstream rdma run` sets it.

use std::{env, net::IpAddr};

/// Which thread makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Threads that poll; the helper when none has polled for a moment.
    Adaptive,
    /// Threads that poll or wait, and no other.
    Inline,
    /// An engine thread, always.
    Offloaded,
}

/// How memory is reached that the program has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// By its pages, which the kernel holds; by its address, checked, where that is not possible.
    Held,
    /// By its address, checked.
    Checked,
    /// As memory that is there until it is deregistered.
    Trusted,
}

/// Settings of the process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the device.
    pub name: String,
    /// Address of the device's GID; the first address of this host otherwise.
    pub address: Option<IpAddr>,
    /// Progress.
    pub mode: Mode,
    /// How registered memory is reached.
    pub memory: Memory,
    /// Request CRC32C as initiator and as responder.
    pub crc: bool,
    /// Report statistics at exit.
    pub statistics: bool,
    /// Report each connection when it ends.
    pub trace: bool,
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    /// A line with the variable and what to write instead.
    pub fn from_environment() -> Result<Self, String> {
        let read =
            |key: &str| env::var(format!("CLEARSTREAM_VERBS_{key}")).ok().filter(|text| !text.is_empty());
        let wrong = |key: &str, value: &str, use_instead: &str| {
            format!("CLEARSTREAM_VERBS_{key}={value} is invalid: use {use_instead}")
        };
        let address = match read("ADDRESS") {
            None => None,
            Some(text) => Some(
                text.parse().map_err(|_| wrong("ADDRESS", &text, "an IPv4 or IPv6 address of this host"))?,
            ),
        };
        let mode = match read("PROGRESS").as_deref() {
            None | Some("adaptive") => Mode::Adaptive,
            Some("inline") => Mode::Inline,
            Some("offloaded") => Mode::Offloaded,
            Some(other) => return Err(wrong("PROGRESS", other, "adaptive, inline or offloaded")),
        };
        let memory = match read("MEMORY").as_deref() {
            None | Some("held") => Memory::Held,
            Some("checked") => Memory::Checked,
            Some("trusted") => Memory::Trusted,
            Some(other) => return Err(wrong("MEMORY", other, "held, checked or trusted")),
        };
        let switch = |key: &str| match read(key).as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(wrong(key, other, "0 or 1")),
        };
        let (crc, statistics, trace) = (switch("CRC")?, switch("STATISTICS")?, switch("TRACE")?);
        // Read where it is used, without a device.
        let sockets = switch("SOCKETS")?;
        let name = read("DEVICE").unwrap_or_else(|| "clearstream0".to_owned());
        if name.len() > 63 || name.contains('/') {
            return Err(wrong("DEVICE", &name, "a name of at most 63 bytes without a slash"));
        }
        Ok(Self { name, address, mode, memory, crc, statistics: statistics || sockets, trace })
    }
}
