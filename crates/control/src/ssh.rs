//! Agents on other machines, started through the operator's own ssh, as rsync
//! does: their configuration, keys, agents and jump hosts apply.

use std::process::Command;

/// The command that runs `program agent` on `destination` (`host`,
/// `user@host` or a name out of `~/.ssh/config`). `program` is quoted for the
/// remote shell. Each of `options` goes to ssh: as it is when it begins with a
/// dash (`-p2222`), else as the value of `-o` (`Port=2222`).
///
/// Passwords may be asked for on the terminal. `-T`: no terminal there, it
/// would garble the stream. `--` keeps a destination from being an option.
pub fn ssh_command(destination: &str, program: &str, options: &[String]) -> Command {
    let mut command = Command::new("ssh");
    for option in options {
        if !option.starts_with('-') {
            command.arg("-o");
        }
        command.arg(option);
    }
    // `exec` leaves no shell between sshd and the agent: one process to end.
    command.arg("-T").arg("--").arg(destination).arg(format!("exec {} agent", quote(program)));
    command
}

/// One word for a POSIX shell. A leading `~/` stays open to expansion, so that
/// `~/bin/clearstream` means what it says.
fn quote(word: &str) -> String {
    let (home, rest) = match word.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", word),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !rest.is_empty() && rest.chars().all(plain) {
        return word.to_owned();
    }
    format!("{home}'{}'", rest.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_can_never_be_an_option() {
        let command = ssh_command(
            "-oProxyCommand=touch /tmp/x",
            "clearstream",
            &["-p2222".to_owned(), "ConnectTimeout=3".to_owned()],
        );
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
        assert_eq!(
            args,
            [
                "-p2222",
                "-o",
                "ConnectTimeout=3",
                "-T",
                "--",
                "-oProxyCommand=touch /tmp/x",
                "exec clearstream agent"
            ]
        );
    }

    #[test]
    fn words_survive_a_real_shell() {
        for word in
            ["plain", "two words", "it's", "$HOME `id` \\ \"x\" ;&|<>*?", "", "-n", "line\nbreak", "~root"]
        {
            let script = format!("printf %s {}", quote(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word, "{script}");
        }
        assert_eq!(quote("~/my bin/clearstream"), "~/'my bin/clearstream'");
    }
}
