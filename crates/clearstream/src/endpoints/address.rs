//! Names and addresses: family, resolution, and the data address of a host reached by ssh.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Instant,
};

use clearstream_control::{Peer, ssh};
use clearstream_sys::{interruption, program::Program};

use super::system_resolver;
use crate::exit::CommandError;

/// Address family of names, of ssh and of the data.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct FamilyArgs {
    /// Use only IPv4, for control and data
    #[arg(long, short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6, for control and data
    #[arg(long, short = '6')]
    ipv6: bool,
}

impl FamilyArgs {
    /// Whether an address is of the requested family; without one every address is.
    pub fn has(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => !self.ipv6,
            IpAddr::V6(_) => !self.ipv4,
        }
    }

    /// Loopback: IPv4 unless IPv6 is requested.
    pub fn loopback(self) -> IpAddr {
        if self.ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
    }

    /// The option as it is written, which ssh has too; absent without a request.
    pub fn option(self) -> Option<&'static str> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some("-4"),
            (_, true) => Some("-6"),
            _ => None,
        }
    }

    fn wanted(self) -> &'static str {
        match self.option() {
            Some("-4") => "IPv4 address (-4)",
            Some(_) => "IPv6 address (-6)",
            None => "address",
        }
    }
}

fn unreachable(host: &str, reason: String) -> CommandError {
    CommandError::Unreachable { host: host.to_owned(), reason }
}

/// The first address of a name, or of an address with or without a port and brackets.
pub fn resolve(host: &str, port: u16, family: FamilyArgs) -> Result<SocketAddr, CommandError> {
    Ok(resolve_all(host, port, family)?[0])
}

/// All addresses of a name that are of a family, one at least, in the resolver's order.
fn resolve_all(host: &str, port: u16, family: FamilyArgs) -> Result<Vec<SocketAddr>, CommandError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let split = host.rsplit_once(':').filter(|_| !host.contains("::"));
    let split = split.and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
    let found: Vec<SocketAddr> = if let Ok(address) = host.parse::<SocketAddr>() {
        vec![address]
    } else if let Ok(address) = bare.parse::<IpAddr>() {
        vec![SocketAddr::new(address, port)]
    } else {
        let (name, port) = split.unwrap_or((bare, port));
        match look_up(name, port) {
            Ok(found) => found,
            // A static program reads no nsswitch.conf: the system's own tool does.
            Err(error) => {
                let known =
                    if system_resolver::STATIC { system_resolver::by_getent(name) } else { Vec::new() };
                if interruption::is_requested() {
                    return Err(CommandError::Interrupted(format!("{host} was being resolved")));
                }
                if known.is_empty() {
                    return Err(unreachable(host, error.to_string()));
                }
                known.into_iter().map(|address| (address, port).into()).collect()
            }
        }
    };
    let found: Vec<SocketAddr> = found.into_iter().filter(|address| family.has(address.ip())).collect();
    if found.is_empty() {
        return Err(unreachable(host, format!("it has no {}", family.wanted())));
    }
    Ok(found)
}

/// Asks the C library's resolver, which nothing interrupts: it is left behind when it takes too long, or a person asks
/// to stop.
fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let (found, finds) = channel();
    let wanted = name.to_owned();
    thread::Builder::new().name("resolve".into()).spawn(move || {
        let addresses = (wanted.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // The asker may have gone.
        let _ = found.send(addresses);
    })?;
    let deadline = Instant::now() + system_resolver::RESOLVER_TIMEOUT;
    loop {
        match finds.recv_timeout(interruption::CHECK_INTERVAL) {
            Ok(addresses) => return addresses,
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline && !interruption::is_requested() => {}
            Err(_) => {
                let message = format!(
                    "no name server responded within {} s",
                    system_resolver::RESOLVER_TIMEOUT.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
        }
    }
}

/// Where the data goes to a host whose agent ssh started: the address that ssh is connected
/// to. Behind a jump host ssh has none: then the one that sshd there reports, and behind a
/// shared connection the name that ssh's configuration gives (`ssh -G`).
pub(super) fn data_address(
    peer: &Peer,
    destination: &str,
    options: &[String],
    family: FamilyArgs,
) -> Result<IpAddr, CommandError> {
    let fits = |address: &IpAddr| family.has(*address);
    if let Some(address) = peer.login_address().map(|address| address.to_canonical()).filter(fits) {
        return Ok(address);
    }
    let reported = peer.hello().ssh_address.map(|address| address.to_canonical()).filter(fits);
    let known = Configured::of(destination, options);
    if let (true, Some(address)) = (known.proxied, reported.filter(|address| !address.is_loopback())) {
        return Ok(address);
    }
    match resolve_all(&known.host, 0, family) {
        Ok(found) => {
            let used = found.iter().find(|address| Some(address.ip()) == reported);
            Ok(used.unwrap_or(&found[0]).ip())
        }
        Err(error) => reported.ok_or_else(|| {
            unreachable(
                destination,
                format!("{error}; write the address for the data with --address ADDRESS"),
            )
        }),
    }
}

/// A destination as resolved by ssh's configuration.
struct Configured {
    /// Name or address that ssh connects to.
    host: String,
    /// Through a jump host or a command.
    proxied: bool,
}

impl Configured {
    /// Runs `ssh -G`, with the options of the connection itself: they may name a file.
    fn of(destination: &str, options: &[String]) -> Self {
        let command = ssh(destination, options);
        let output = Program::new("ssh").args(["-G"]).args(command.get_args()).run();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let text = text.unwrap_or_default();
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(name, _)| *name == key).map(|(_, value)| value.trim().to_owned())
        };
        let bare = destination.rsplit_once('@').map_or(destination, |(_, host)| host);
        let is_set = |key: &str| value(key).is_some_and(|value| value != "none");
        Self {
            host: value("hostname").unwrap_or_else(|| bare.to_owned()),
            proxied: is_set("proxyjump") || is_set("proxycommand"),
        }
    }
}

/// The address this host would use towards `server`: connecting a UDP socket
/// looks up the route and sends nothing.
pub(super) fn source_address(server: IpAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((server, 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may end by panic")]
mod tests {
    use super::*;

    const ANY: FamilyArgs = FamilyArgs { ipv4: false, ipv6: false };
    const V4: FamilyArgs = FamilyArgs { ipv4: true, ipv6: false };
    const V6: FamilyArgs = FamilyArgs { ipv4: false, ipv6: true };

    #[test]
    fn addresses_are_read_with_and_without_brackets_and_port() {
        for (written, expected) in [
            ("::1", "[::1]:7"),
            ("[::1]", "[::1]:7"),
            ("[::1]:8", "[::1]:8"),
            ("192.0.2.1", "192.0.2.1:7"),
            ("192.0.2.1:8", "192.0.2.1:8"),
        ] {
            assert_eq!(resolve(written, 7, ANY).unwrap().to_string(), expected, "{written}");
        }
    }

    #[test]
    fn an_address_of_the_other_family_is_rejected() {
        for (written, family, option) in [("192.0.2.1", V6, "-6"), ("[::1]:8", V4, "-4")] {
            let error = resolve(written, 7, family).unwrap_err().to_string();
            assert!(error.contains(written) && error.contains(option), "{error}");
        }
        assert!(V6.loopback().is_ipv6() && ANY.loopback().is_ipv4());
    }

    #[test]
    fn sshs_own_configuration_resolves_an_alias() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = "Host dtn2\n HostName 192.0.2.7\nHost far\n HostName 192.0.2.8\n ProxyJump gate\n";
        std::fs::write(&path, text).unwrap();
        let options = [format!("-F{}", path.display())];
        let known = Configured::of("op@dtn2", &options);
        assert_eq!((known.host.as_str(), known.proxied), ("192.0.2.7", false));
        let known = Configured::of("far", &options);
        assert_eq!((known.host.as_str(), known.proxied), ("192.0.2.8", true));
    }
}
