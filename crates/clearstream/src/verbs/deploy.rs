//! `clearstream deploy`: this program on another host, through the operator's own ssh.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    path::{Path, PathBuf},
    process::Output as Ended,
    time::{Duration, Instant},
};

use clearstream_control::{quote, run_by_ssh, ssh};
use clearstream_schema::JsonSchema;
use clearstream_sys::document;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::{
    endpoints::{FamilyArgs, own_program, report_start, ssh_agent, with_family},
    exit::CommandError,
    output::{Output, quantity},
};

/// Folder of a program that is named without one.
const FOLDER: &str = "~/.local/bin";

/// Copy this program to another host, and check that it works there.
#[derive(Debug, clap::Args)]
pub struct DeployArgs {
    /// The other host, as ssh knows it
    host: String,
    /// Program to copy, such as a static build for another architecture (default: this one)
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Path of the copy; a name without a folder is placed in ~/.local/bin, where other verbs find it
    #[arg(long, value_name = "PROGRAM", default_value = "clearstream")]
    remote_program: String,
    #[command(flatten)]
    family: FamilyArgs,
    /// Option for ssh: as it is when it begins with a dash (`-p2222`), else for `-o` (`Port=2222`)
    #[arg(long = "ssh-option", value_name = "OPTION", allow_hyphen_values = true)]
    ssh_options: Vec<String>,
}

/// A program that was copied, or was there already.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Deployed {
    /// The host, as ssh knows it.
    host: String,
    /// Path there.
    path: String,
    /// Version that the copied program reports, read before it replaces the previous one.
    program_version: String,
    /// Version that the previous program reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous_version: Option<String>,
    /// Its size.
    size_bytes: u64,
    /// Its SHA-256, in hexadecimal.
    sha256: String,
    /// False where the same file was there already.
    copied: bool,
    /// Other verbs find it without `--remote-program`.
    found_by_name: bool,
}

/// What is copied.
struct Binary {
    path: PathBuf,
    file: File,
    size_bytes: u64,
    sha256: String,
    /// As `uname -m` names it; empty where that is not known.
    machine: &'static str,
}

impl Binary {
    fn open(path: &Path) -> Result<Self, CommandError> {
        let failed = |source| CommandError::File { what: "read".to_owned(), path: path.to_owned(), source };
        let mut file = document::open(path).map_err(failed)?;
        let mut head = [0; 20];
        file.read_exact(&mut head).map_err(failed)?;
        let Some(machine) = machine(&head) else {
            return Err(CommandError::Usage(format!("{} is no program (ELF file)", path.display())));
        };
        file.rewind().map_err(failed)?;
        let mut sum = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut size_bytes = 0;
        loop {
            let count = file.read(&mut buffer).map_err(failed)?;
            if count == 0 {
                break;
            }
            sum.update(&buffer[..count]);
            size_bytes += count as u64;
        }
        file.rewind().map_err(failed)?;
        let sha256 = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path: path.to_owned(), file, size_bytes, sha256, machine })
    }
}

/// The machine of an ELF file (elf(5): `EI_DATA` at 5, `e_machine` at 18), by the name that
/// `uname -m` has for it; `None` for no ELF file.
fn machine(head: &[u8; 20]) -> Option<&'static str> {
    if head[..4] != *b"\x7fELF" {
        return None;
    }
    let bytes = [head[18], head[19]];
    let number = if head[5] == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
    Some(match number {
        21 => "ppc64le",
        22 => "s390x",
        62 => "x86_64",
        183 => "aarch64",
        243 => "riscv64",
        _ => "",
    })
}

/// What runs there, in one line: some login shells take no other. It reads the program into a
/// file beside its place, starts that, and renames it: at every moment the old one or the new
/// one is whole (rename(2)). What another user may have put at either name is neither run nor written through: the
/// file is made by `O_EXCL` (`set -C`), the old program asked if it is this user's. Its findings are lines that begin with MARK; what a start-up file
/// prints stands between them.
const SCRIPT: &str = concat!(
    r#"t=$1; size=$2; sum=$3; machine=$4; "#,
    r#"case $t in "~/"*) t="$HOME/${t#"~/"}";; esac; "#,
    r#"report() { printf "clearstream-deploy: %s\n" "$*"; }; "#,
    r#"sum_of() { command -v sha256sum >/dev/null 2>&1 && sha256sum < "$1" | cut -c1-64; }; "#,
    r#"found() { PATH="$PATH:$HOME/.local/bin"; report "found $(command -v clearstream)"; }; "#,
    r#"here=$(uname -m); "#,
    r#"if [ -n "$machine" ] && [ "$machine" != "$here" ]; then report "machine $here"; exit 10; fi; "#,
    r#"d=$(dirname -- "$t"); mkdir -p -- "$d" || exit 11; "#,
    r#"if [ -d "$t" ]; then echo "$t is a folder" >&2; exit 11; fi; "#,
    r#"report "path $t"; "#,
    r#"if [ -x "$t" ]; then if [ -O "$t" ]; then report "before $("$t" --version 2>/dev/null | head -n 1)"; fi; "#,
    r#"if [ "$(sum_of "$t")" = "$sum" ]; then report same; report "version $("$t" --version)"; found; exit 0; fi; fi; "#,
    r#"n="$d/.clearstream.deploy.$$"; rm -f -- "$n"; trap "rm -f -- \"$n\"" EXIT; trap "exit 12" HUP INT TERM; "#,
    r#"umask 077; set -C; cat > "$n" || exit 11; set +C; "#,
    r#"if [ "$(wc -c < "$n" | tr -d " ")" != "$size" ]; then echo "it did not arrive whole" >&2; exit 11; fi; "#,
    r#"got=$(sum_of "$n"); "#,
    r#"if [ -n "$got" ] && [ "$got" != "$sum" ]; then echo "it arrived damaged" >&2; exit 11; fi; "#,
    r#"chmod 755 "$n" || exit 11; sync "$n" 2>/dev/null; "#,
    r#"v=$("$n" --version 2>&1) || { echo "$v" >&2; exit 13; }; "#,
    r#"mv -f -- "$n" "$t" || exit 11; "#,
    r#"report "version $v"; found"#,
);
const MARK: &str = "clearstream-deploy: ";

/// The command line for the remote shell.
fn remote_command(target: &str, binary: &Binary) -> String {
    let size = binary.size_bytes.to_string();
    // A leading `~/` is for the script: not every shell expands it as an argument.
    let target = match target.strip_prefix("~/") {
        Some(below) => format!("'~/'{}", quote(below)),
        None => quote(target),
    };
    let rest = [size.as_str(), &binary.sha256, binary.machine].map(quote).join(" ");
    format!("exec sh -c {} clearstream-deploy {target} {rest}", quote(SCRIPT))
}

/// The findings of the script.
struct Findings(Vec<String>);

impl Findings {
    fn of(ended: &Ended) -> Self {
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        let marked = text.lines().filter_map(|line| line.split_once(MARK));
        Self(marked.map(|(_, finding)| finding.trim().to_owned()).collect())
    }

    fn value(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.map(str::trim).filter(|value| !value.is_empty())
    }
}

impl DeployArgs {
    /// Copies it, and opens a session with it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let path = match &self.program {
            Some(path) => path.clone(),
            None => own_program()?,
        };
        let mut binary = Binary::open(&path)?;
        let target = match self.remote_program.contains('/') {
            true => self.remote_program.clone(),
            false => format!("{FOLDER}/{}", self.remote_program),
        };
        let ended = self.copy(&target, &mut binary, out)?;
        let findings = Findings::of(&ended);
        self.check(&ended, &findings, &binary)?;
        let place = findings.value("path").unwrap_or(&target).to_owned();
        // The copy succeeded only if a session can be opened.
        let peer = ssh_agent(&self.host, &self.host, &place, &self.ssh_options, self.family)?;
        peer.shutdown();
        let deployed = Deployed {
            found_by_name: findings.value("found") == Some(place.as_str()),
            host: self.host.clone(),
            program_version: findings.value("version").unwrap_or_default().to_owned(),
            previous_version: findings.value("before").map(str::to_owned),
            size_bytes: binary.size_bytes,
            sha256: binary.sha256,
            copied: !findings.0.iter().any(|line| line == "same"),
            path: place,
        };
        Ok(out.result(&deployed, || deployed.text(findings.value("found")))?)
    }

    fn copy(&self, target: &str, binary: &mut Binary, out: &Output) -> Result<Ended, CommandError> {
        let mut command = ssh(&self.host, &with_family(&self.ssh_options, self.family));
        command.arg(remote_command(target, binary));
        let (started, size) = (Instant::now(), binary.size_bytes);
        let step = format!("copying {} to {}", quantity::bytes(size), self.host);
        let mut on_written = |written: u64| {
            let elapsed = started.elapsed();
            if elapsed > Duration::from_secs(2) {
                let left = elapsed.mul_f64(size.saturating_sub(written) as f64 / written.max(1) as f64);
                out.progress(left, &step);
            }
        };
        let ended = run_by_ssh(command, &self.host, &mut binary.file, &mut on_written, &mut |delay| {
            report_start(&self.host, delay)
        })?;
        out.end()?;
        Ok(ended)
    }

    /// The exit codes of the script.
    fn check(&self, ended: &Ended, findings: &Findings, binary: &Binary) -> Result<(), CommandError> {
        let stderr = String::from_utf8_lossy(&ended.stderr).lines().collect::<Vec<_>>().join(" | ");
        let (host, file) = (&self.host, binary.path.display());
        match ended.status.code() {
            Some(0) if findings.value("version").is_some() => Ok(()),
            Some(10) => Err(CommandError::Unsupported(format!(
                "{host} is a {} and {file} is for {}: name a program for it with --program FILE",
                findings.value("machine").unwrap_or("machine of another kind"),
                binary.machine
            ))),
            Some(13) => Err(CommandError::Unsupported(format!(
                "{file} does not start on {host} ({stderr}), nothing was changed: name a static build \
                 with --program FILE, or another folder with --remote-program"
            ))),
            Some(11 | 12) => Err(CommandError::File {
                what: "install the program at".to_owned(),
                path: format!("{host}:{}", findings.value("path").unwrap_or(&self.remote_program)).into(),
                source: io::Error::other(format!("{stderr}; nothing was changed")),
            }),
            _ => Err(CommandError::Unreachable {
                host: host.clone(),
                reason: format!(
                    "its shell did not run the script that copies the program ({}: {stderr})",
                    ended.status
                ),
            }),
        }
    }
}

impl Deployed {
    fn text(&self, found: Option<&str>) -> String {
        let Self { host, path, program_version: version, .. } = self;
        let size = quantity::bytes(self.size_bytes);
        let mut text = match (&self.previous_version, self.copied) {
            (_, false) => format!("{host} has it already: {version} at {path}"),
            (Some(before), true) => format!("{version} ({size}) is at {path} of {host}; before: {before}"),
            (None, true) => format!("{version} ({size}) is at {path} of {host}"),
        };
        if self.found_by_name {
            text.push_str(&format!("\nnow: clearstream flow {host}"));
            return text;
        }
        let name = quote(path);
        if let Some(other) = found {
            text.push_str(&format!("\nwithout --remote-program {other} is found there"));
        }
        text.push_str(&format!(
            "\nnow: clearstream flow {host} --remote-program {name}\nor once, in the file of defaults \
             (`clearstream defaults` names it):\n[host.\"{host}\"]\nremote-program = \"{path}\""
        ));
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may end by panic")]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, process::Command};

    use super::*;

    /// What a login shell would run, on this host with another home.
    fn runs(home: &Path, target: &str, binary: &Binary, input: &[u8]) -> (i32, Findings, String) {
        let mut command = Command::new("sh");
        command.args(["-c", &remote_command(target, binary)]).env("HOME", home);
        let ended =
            run_by_ssh(command, "dtn2", &mut io::Cursor::new(input), &mut |_| {}, &mut |_| true).unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended.status.code().unwrap(), Findings::of(&ended), stderr)
    }

    /// A binary whose content is this script, for any machine.
    fn script(text: &str) -> (Binary, Vec<u8>) {
        let bytes = text.as_bytes().to_vec();
        let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let size_bytes = bytes.len() as u64;
        let path = PathBuf::from("/dev/null");
        (Binary { file: File::open(&path).unwrap(), path, size_bytes, sha256, machine: "" }, bytes)
    }

    fn files(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_program_takes_its_place_after_it_has_started_there() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join(".local/bin");
        let (first, bytes) = script("#!/bin/sh\necho clearstream 1.0\n");
        let (code, findings, stderr) = runs(home.path(), "~/.local/bin/clearstream", &first, &bytes);
        assert_eq!((code, findings.value("version")), (0, Some("clearstream 1.0")), "{stderr}");
        assert_eq!(findings.value("path"), Some(place.join("clearstream").to_str().unwrap()));
        assert_eq!(findings.value("before"), None);
        assert_eq!(files(&place), ["clearstream"]);
        let mode = place.join("clearstream").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        // The same again, and the next version.
        let (_, findings, _) = runs(home.path(), "~/.local/bin/clearstream", &first, &bytes);
        assert!(findings.0.iter().any(|line| line == "same"), "{:?}", findings.0);
        let (second, bytes) = script("#!/bin/sh\necho clearstream 2.0\n");
        let (_, findings, _) = runs(home.path(), "~/.local/bin/clearstream", &second, &bytes);
        assert_eq!(findings.value("before"), Some("clearstream 1.0"));
        assert_eq!(findings.value("version"), Some("clearstream 2.0"));
    }

    #[test]
    fn root_a_program_of_another_user_is_replaced_and_not_run() {
        let home = tempfile::tempdir().unwrap();
        let (target, ran) = (home.path().join("clearstream"), home.path().join("ran"));
        std::fs::write(&target, format!("#!/bin/sh\ntouch {}\n", ran.display())).unwrap();
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&target, Some(65_534), None).unwrap();
        let (own, bytes) = script("#!/bin/sh\necho clearstream 1.0\n");
        let (code, findings, stderr) = runs(home.path(), target.to_str().unwrap(), &own, &bytes);
        assert_eq!((code, findings.value("version")), (0, Some("clearstream 1.0")), "{stderr}");
        assert!(findings.value("before").is_none() && !ran.exists(), "{:?}", findings.0);
        assert_eq!(files(home.path()), ["clearstream"]);
    }

    #[test]
    fn what_does_not_arrive_or_start_leaves_the_old_one() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("my folder/it's");
        let (old, bytes) = script("#!/bin/sh\necho clearstream 1.0\n");
        assert_eq!(runs(home.path(), target.to_str().unwrap(), &old, &bytes).0, 0);
        let (broken, bytes) = script("#!/bin/sh\necho 'GLIBC_9 not found' >&2\nexit 1\n");
        let run = |binary: &Binary, input: &[u8]| runs(home.path(), target.to_str().unwrap(), binary, input);
        let (code, _, stderr) = run(&broken, &bytes);
        assert!(code == 13 && stderr.contains("GLIBC_9"), "{code}: {stderr}");
        let (code, _, stderr) = run(&broken, &bytes[..10]);
        assert!(code == 11 && stderr.contains("whole"), "{code}: {stderr}");
        let mut damaged = bytes.clone();
        damaged[12] ^= 1;
        let (code, _, stderr) = run(&broken, &damaged);
        assert!(code == 11 && stderr.contains("damaged"), "{code}: {stderr}");
        let other = Binary { machine: "vax", ..script("x").0 };
        let (code, findings, _) = run(&other, b"x");
        assert!(code == 10 && findings.value("machine").is_some());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "#!/bin/sh\necho clearstream 1.0\n");
        assert_eq!(files(target.parent().unwrap()), ["it's"]);
    }

    #[test]
    fn machines_are_read_as_the_system_names_them() {
        let own = Command::new("uname").arg("-m").output().unwrap();
        let shell = Binary::open(Path::new("/bin/sh")).unwrap();
        assert_eq!(shell.machine, String::from_utf8(own.stdout).unwrap().trim());
        assert_eq!(machine(&[b'#'; 20]), None);
    }
}
