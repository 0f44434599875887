//! Agents on other machines, started through the operator's own ssh, as rsync
//! does: their configuration, keys, agents and jump hosts apply.

use std::{net::IpAddr, process::Command, time::Instant};

/// Default program on the remote host.
const PROGRAM: &str = "clearstream";

/// The command that runs `program agent` on `destination` (`host`, `user@host` or a name out of
/// `~/.ssh/config`). `program` is quoted for the remote shell; `clearstream` alone is also searched in
/// `~/.local/bin`, which is not in the PATH of every host's non-interactive shell. Options as of [`ssh`].
pub fn ssh_command(destination: &str, program: &str, options: &[String]) -> Command {
    // `exec` leaves no shell between sshd and the agent: one process to end. Whatever the login shell is,
    // `sh` parses what is quoted for it.
    let remote = match program {
        PROGRAM => r#"exec sh -c 'PATH="$PATH:$HOME/.local/bin"; exec clearstream agent'"#.to_owned(),
        program => format!("exec {} agent", quote(program)),
    };
    let mut command = ssh(destination, options);
    command.arg(remote);
    command
}

/// ssh to `destination`, without a remote command. Each of `options` goes to ssh: as it
/// is when it begins with a dash (`-p2222`), else as the value of `-o` (`Port=2222`). An IPv6
/// address may be in brackets, also followed by a port.
///
/// Passwords may be requested on the terminal. `-T`: no remote terminal, which would garble the stream. `--`
/// keeps a destination from being parsed as an option. The login is
/// logged, which is how it is detected; ssh takes the first value of an option, so that
/// those of `options` win.
pub fn ssh(destination: &str, options: &[String]) -> Command {
    let mut command = Command::new("ssh");
    for option in options {
        if !option.starts_with('-') {
            command.arg("-o");
        }
        command.arg(option);
    }
    let (destination, port) = without_brackets(destination);
    if let Some(port) = port {
        command.args(["-p", &port.to_string()]);
    }
    command.args(["-o", "LogLevel=VERBOSE", "-T", "--"]).arg(destination);
    command
}

/// `[::1]`, `user@[::1]` and `[::1]:2222` as ssh accepts them: the address without brackets.
fn without_brackets(destination: &str) -> (String, Option<u16>) {
    let (user, host) = match destination.rsplit_once('@') {
        Some((user, host)) => (format!("{user}@"), host),
        None => (String::new(), destination),
    };
    let inside = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    match inside {
        Some((address, "")) => (user + address, None),
        Some((address, port)) => match port.strip_prefix(':').and_then(|port| port.parse().ok()) {
            Some(port) => (user + address, Some(port)),
            None => (destination.to_owned(), None),
        },
        None => (destination.to_owned(), None),
    }
}

/// Whether a program is ssh, by its name.
pub(crate) fn is_ssh(program: &str) -> bool {
    std::path::Path::new(program).file_name().is_some_and(|name| name == "ssh")
}

/// A login reported by ssh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Login {
    /// Time of the report.
    pub(crate) at: Instant,
    /// The address it is connected to; absent through a proxy or jump host.
    pub(crate) address: Option<IpAddr>,
}

impl Login {
    /// Reads a line of ssh at the log level VERBOSE: `Authenticated to dtn2
    /// ([192.0.2.2]:22) using "publickey".`, or `(via proxy)` (sshconnect2.c of OpenSSH).
    pub(crate) fn read(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("Authenticated to ")?;
        let address = rest.split_once("([").and_then(|(_, rest)| rest.split_once(']'));
        let address = address.and_then(|(address, _)| address.parse().ok());
        Some(Self { at: Instant::now(), address })
    }
}

/// Lines of ssh that explain no failure: statistics, and a newly added host key.
pub(crate) fn is_noise(line: &str) -> bool {
    let starts = ["Transferred: sent ", "Bytes per second: sent ", "Warning: Permanently added "];
    starts.iter().any(|start| line.starts_with(start))
}

/// Quotes an argument for a POSIX shell. A leading `~/` stays unquoted, so that `~/bin/clearstream` is
/// expanded.
pub fn quote(argument: &str) -> String {
    let (home, rest) = match argument.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", argument),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !rest.is_empty() && rest.chars().all(plain) {
        return argument.to_owned();
    }
    format!("{home}'{}'", rest.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(command: &Command) -> Vec<String> {
        command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn destination_can_never_be_an_option() {
        let command = ssh_command(
            "-oProxyCommand=touch /tmp/x",
            "/opt/clearstream",
            &["-p2222".to_owned(), "ConnectTimeout=3".to_owned()],
        );
        assert_eq!(
            arguments(&command),
            [
                "-p2222",
                "-o",
                "ConnectTimeout=3",
                "-o",
                "LogLevel=VERBOSE",
                "-T",
                "--",
                "-oProxyCommand=touch /tmp/x",
                "exec /opt/clearstream agent"
            ]
        );
    }

    #[test]
    fn brackets_of_an_address_are_taken_off() {
        for (written, destination, port) in [
            ("[::1]", "::1", None),
            ("op@[fd72::2]", "op@fd72::2", None),
            ("[fe80::1%eth0]:2222", "fe80::1%eth0", Some(2222)),
            ("::1", "::1", None),
            ("dtn2", "dtn2", None),
            ("[::1]:ssh", "[::1]:ssh", None),
        ] {
            assert_eq!(without_brackets(written), (destination.to_owned(), port), "{written}");
        }
        let arguments = arguments(&ssh_command("op@[::1]:2222", "cs", &[]));
        assert_eq!(
            arguments,
            ["-p", "2222", "-o", "LogLevel=VERBOSE", "-T", "--", "op@::1", "exec cs agent"]
        );
    }

    #[test]
    fn logins_are_read_as_openssh_writes_them() {
        // OpenSSH 9.2 and 8.0; through a jump host; another line.
        for (line, address) in [
            ("Authenticated to dtn2 ([192.0.2.2]:22) using \"publickey\".", Some("192.0.2.2")),
            ("Authenticated to ::1 ([::1]:2222).", Some("::1")),
            ("Authenticated to dtn2 (via proxy) using \"publickey\".", None),
        ] {
            let login = Login::read(line).unwrap();
            assert_eq!(login.address.map(|address| address.to_string()).as_deref(), address, "{line}");
        }
        assert_eq!(Login::read("Warning: Permanently added '[127.0.0.1]:22' to the list"), None);
    }

    #[test]
    fn quoted_arguments_survive_a_real_shell() {
        for argument in
            ["plain", "two parts", "it's", "$HOME `id` \\ \"x\" ;&|<>*?", "", "-n", "line\nbreak", "~root"]
        {
            let script = format!("printf %s {}", quote(argument));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), argument, "{script}");
        }
        assert_eq!(quote("~/my bin/clearstream"), "~/'my bin/clearstream'");
    }
}
