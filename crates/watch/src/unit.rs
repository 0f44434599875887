//! The systemd unit of the watch.

/// The text of the unit, which runs `program` with `arguments`, once after a boot with those of `apply` before. It
/// starts after the network, is restarted when it dies or hangs, for ever, and has only the capabilities that a watch
/// needs.
pub fn unit(program: &str, apply: &[String], arguments: &[String], fabric: &str) -> String {
    let (apply, command) = (command_line(program, apply), command_line(program, arguments));
    format!(
        "\
[Unit]
Description=Health of the gateways of the fabric {fabric}
Documentation=man:clearstream-route-watch(1)
After=network-online.target
Wants=network-online.target
# As long as an interface has no carrier its routes cannot be applied.
StartLimitIntervalSec=0

[Service]
Type=notify
# With the rights of root: a plan has more than routes.
ExecStartPre=+{apply}
ExecStart={command}
# A watch that hangs is killed after this time and restarted; the routes
# stay as it left them meanwhile.
WatchdogSec=5
Restart=always
RestartSec=1
# Which gateways are drained outlives a restart, not a boot.
RuntimeDirectory=clearstream
RuntimeDirectoryPreserve=yes
AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_NICE
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_NICE
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_UNIX
MemoryMax=256M

[Install]
WantedBy=multi-user.target
"
    )
}

/// A program and its arguments as a value of `ExecStart=`.
pub fn command_line(program: &str, arguments: &[String]) -> String {
    let fields: Vec<String> =
        std::iter::once(program).chain(arguments.iter().map(String::as_str)).map(quoted).collect();
    fields.join(" ")
}

/// An argument of `ExecStart=` (systemd.service(5), command lines): `%` begins a
/// specifier and `$` a variable.
fn quoted(argument: &str) -> String {
    let escaped = argument.replace('%', "%%").replace('$', "$$");
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/-_.:=@%$+,".contains(letter);
    if !argument.is_empty() && argument.chars().all(plain) {
        return escaped;
    }
    format!("\"{}\"", escaped.replace('\\', "\\\\").replace('"', "\\\""))
}
