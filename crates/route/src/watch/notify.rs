//! What systemd is told: that the watch is ready, that it still works, and what
//! it does (sd_notify(3): datagrams to a socket that the environment names).

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

/// The service manager of a unit with `Type=notify`.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// Time between signs of life: half of what the unit allows (sd_watchdog_enabled(3)).
    pub alive_every: Option<Duration>,
}

impl ServiceManager {
    /// From the values of `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`;
    /// absent when nobody waits for notice.
    pub fn new(
        socket: Option<&str>,
        watchdog_microseconds: Option<&str>,
        watchdog_process: Option<&str>,
    ) -> Option<Self> {
        let name = socket.filter(|name| !name.is_empty())?;
        // A leading @ is an abstract name.
        let address = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(name),
        };
        let for_us = watchdog_process.is_none_or(|pid| pid == std::process::id().to_string());
        let allowed = watchdog_microseconds.filter(|_| for_us).and_then(|text| text.parse().ok());
        Some(Self {
            socket: UnixDatagram::unbound().ok()?,
            address: address.ok()?,
            alive_every: allowed.map(|allowed: u64| Duration::from_micros(allowed) / 2),
        })
    }

    /// The watch works from now on.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// It still works.
    pub fn alive(&self, status: &str) {
        self.send(&format!("WATCHDOG=1\nSTATUS={status}"));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// A manager that does not listen changes nothing for the routes.
    fn send(&self, text: &str) {
        let _ = self.socket.send_to_addr(text.as_bytes(), &self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_hears_what_the_protocol_says() {
        let folder = std::env::temp_dir().join(format!("clearstream-notify-{}", std::process::id()));
        let manager = UnixDatagram::bind(&folder).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let path = folder.to_str().unwrap();
        let pid = std::process::id().to_string();
        let service = ServiceManager::new(Some(path), Some("3000000"), Some(&pid)).unwrap();
        assert_eq!(service.alive_every, Some(Duration::from_millis(1500)));
        let heard = || {
            let mut buffer = [0; 256];
            let length = manager.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..length].to_vec()).unwrap()
        };
        service.ready("6 of 6 gateways");
        assert_eq!(heard(), "READY=1\nSTATUS=6 of 6 gateways");
        service.alive("5 of 6 gateways");
        assert_eq!(heard(), "WATCHDOG=1\nSTATUS=5 of 6 gateways");
        service.stopping();
        assert_eq!(heard(), "STOPPING=1");
        std::fs::remove_file(&folder).unwrap();
        // The watchdog of another process is not ours, and without a socket there is no manager.
        let other = ServiceManager::new(Some(path), Some("3000000"), Some("1")).unwrap();
        assert_eq!(other.alive_every, None);
        assert!(ServiceManager::new(None, None, None).is_none());
    }
}
