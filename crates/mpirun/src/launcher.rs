//! `mpirun`: whose it is, and the command that starts a job.
//!
//! Settings are variables of the environment, which options of the user's own
//! command override: `OMPI_MCA_*` (Open MPI up to 4), `PRTE_MCA_*` (5),
//! `HYDRA_*` and those of UCX and libfabric (MPICH and relatives).

use std::{
    env,
    io::{self, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::control::{Failure, FailureKind};
use tempfile::TempDir;

use crate::failure;
use crate::ranks::{LabRanks, Ranks};

/// Maximum time of `mpirun --version`.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Options that name hosts, or their number: what the user wrote is kept.
const HOST_OPTIONS: [&str; 10] = [
    "-H",
    "-host",
    "--host",
    "-hosts",
    "--hosts",
    "-hostfile",
    "--hostfile",
    "-machinefile",
    "--machinefile",
    "-f",
];
const COUNT_OPTIONS: [&str; 5] = ["-n", "-np", "--np", "-c", "--n"];

/// Families of launchers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// Hydra, of MPICH and its relatives.
    Hydra,
    /// A launcher of a site, such as `srun`: it chooses the hosts itself.
    Other,
}

impl Kind {
    /// Recognises what `--version` prints.
    fn of_version(text: &str) -> Self {
        if text.contains("Open MPI") || text.contains("OpenRTE") {
            Self::OpenMpi
        } else if text.contains("HYDRA") || text.contains("Intel(R) MPI") {
            Self::Hydra
        } else {
            Self::Other
        }
    }
}

/// A launcher that exists.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) kind: Kind,
    program: String,
    options: Vec<String>,
}

/// A command with the files that it needs.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) command: Command,
    /// Has the launch agent of a lab.
    _folder: Option<TempDir>,
}

impl Launcher {
    /// Reads the user's command and queries what it is.
    pub(crate) fn find(requested: Option<&str>) -> Result<Self, Failure> {
        let mut fields = requested.unwrap_or("mpirun").split_whitespace().map(str::to_owned);
        let Some(program) = fields.next() else {
            return Err(failure(FailureKind::Invalid, "--mpirun needs a command, as in \"mpirun.openmpi\""));
        };
        let options = fields.collect();
        let text = version(&program).map_err(|error| not_started(&program, &error))?;
        Ok(Self { kind: Kind::of_version(&text), program, options })
    }

    /// Returns the command of a job, and its line for the document; `fabric` are options that choose what
    /// carries the messages.
    pub(crate) fn command(
        &self,
        ranks: &Ranks<'_>,
        fabric: &[String],
        program: &Path,
        arguments: &[String],
    ) -> Result<(Prepared, Vec<String>), Failure> {
        let mut line = vec![self.program.clone()];
        line.extend(fabric.iter().chain(&self.options).cloned());
        if !self.has_option(&COUNT_OPTIONS) {
            line.extend([if self.kind == Kind::Other { "-n" } else { "-np" }.to_owned(), "2".to_owned()]);
        }
        if !self.has_option(&HOST_OPTIONS) {
            line.extend(self.hosts(ranks)?);
        }
        line.push(program.to_string_lossy().into_owned());
        line.extend(arguments.iter().cloned());
        let mut command = Command::new(&self.program);
        command.args(&line[1..]);
        self.set_variables(&mut command, &self.common_variables());
        let Ranks::Lab(lab) = ranks else { return Ok((Prepared { command, _folder: None }, line)) };
        let (folder, agent) = launch_agent(lab)?;
        self.set_variables(&mut command, &self.lab_variables(lab, &agent));
        let command = lab.lab.command(&lab.client, command);
        let command = command.map_err(|error| failure(FailureKind::Internal, error.to_string()))?;
        Ok((Prepared { command, _folder: Some(folder) }, line))
    }

    fn has_option(&self, names: &[&str]) -> bool {
        self.options.iter().any(|option| names.contains(&option.as_str()))
    }

    /// Options that place one rank on each host; slots are given because Open MPI
    /// lets ranks yield the core where it counts more ranks than slots.
    fn hosts(&self, ranks: &Ranks<'_>) -> Result<Vec<String>, Failure> {
        let (client, server) = match ranks {
            Ranks::Here => ("localhost", None),
            // Hydra's processes on the other host connect to the name that this one has here.
            Ranks::Remote { client, server } if self.kind == Kind::Hydra => {
                (client.as_str(), Some(server.as_str()))
            }
            Ranks::Remote { server, .. } => ("localhost", Some(server.as_str())),
            Ranks::Lab(lab) => (lab.client.as_str(), Some(lab.server.as_str())),
        };
        let options = match (self.kind, server) {
            (Kind::OpenMpi, None) => ["-H".to_owned(), format!("{client}:2")],
            (Kind::OpenMpi, Some(server)) => ["-H".to_owned(), format!("{client}:1,{server}:1")],
            (Kind::Hydra, None) => ["-hosts".to_owned(), client.to_owned()],
            (Kind::Hydra, Some(server)) => ["-hosts".to_owned(), format!("{client},{server}")],
            (Kind::Other, _) if matches!(ranks, Ranks::Lab(_)) => {
                return Err(failure(
                    FailureKind::Unsupported,
                    format!(
                        "{} is neither Open MPI's nor MPICH's mpirun, and only these can be started in a lab",
                        self.program
                    ),
                ));
            }
            // The site's launcher has hosts of its own.
            (Kind::Other, _) => return Ok(Vec::new()),
        };
        Ok(options.to_vec())
    }

    /// Only variables that the user has not set.
    fn set_variables(&self, command: &mut Command, variables: &[(&str, String)]) {
        for (name, value) in variables {
            if env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
    }

    fn common_variables(&self) -> Vec<(&'static str, String)> {
        if self.kind != Kind::OpenMpi {
            return Vec::new();
        }
        [
            // A lab needs root, and the program that root starts is ours.
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            // Cores are those of --client-core and --server-core: by default, Open
            // MPI binds the first rank of every host to the first core, which is the
            // same one for hosts of a lab.
            ("OMPI_MCA_hwloc_base_binding_policy", "none"),
            ("PRTE_MCA_hwloc_default_binding_policy", "none"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .to_vec()
    }

    /// The lab's link instead of shared memory, which ranks on one kernel would use.
    fn lab_variables(&self, lab: &LabRanks<'_>, agent: &str) -> Vec<(&'static str, String)> {
        let [client, server] = &lab.interfaces;
        let interfaces = if client == server { client.clone() } else { format!("{client},{server}") };
        if self.kind == Kind::OpenMpi {
            return vec![
                ("OMPI_MCA_plm_rsh_agent", agent.to_owned()),
                ("PRTE_MCA_plm_ssh_agent", agent.to_owned()),
                ("OMPI_MCA_oob_tcp_if_include", interfaces.clone()),
                ("PRTE_MCA_prte_if_include", interfaces.clone()),
                ("OMPI_MCA_btl_tcp_if_include", interfaces),
                ("OMPI_MCA_btl", "self,tcp".to_owned()),
                ("OMPI_MCA_pml", "ob1".to_owned()),
            ];
        }
        let mut variables = vec![
            ("HYDRA_LAUNCHER", "ssh".to_owned()),
            ("HYDRA_LAUNCHER_EXEC", agent.to_owned()),
            ("MPIR_CVAR_NOLOCAL", "1".to_owned()),
            ("UCX_TLS", "tcp,self".to_owned()),
            ("UCX_NET_DEVICES", interfaces),
        ];
        if client == server {
            // One name for all hosts.
            variables.extend([("HYDRA_IFACE", client.clone()), ("FI_TCP_IFACE", client.clone())]);
        }
        variables
    }
}

/// Writes the program that the launcher takes for ssh: it enters a host of the lab.
fn launch_agent(lab: &LabRanks<'_>) -> Result<(TempDir, String), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let internal = |error: io::Error| {
        failure(FailureKind::Internal, format!("the launch agent of the lab cannot be written: {error}"))
    };
    let folder = tempfile::Builder::new().prefix("clearstream-mpi-").tempdir().map_err(internal)?;
    let path = folder.path().join("launch-agent");
    std::fs::write(&path, agent_script(&lab.program, &lab.lab.file().name)).map_err(internal)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).map_err(internal)?;
    let path = path.to_string_lossy().into_owned();
    Ok((folder, path))
}

/// As ssh: options, a host, and fields that a shell there reads as a line.
fn agent_script(program: &str, lab: &str) -> String {
    format!(
        "#!/bin/sh\nwhile :; do case $1 in -*) shift ;; *) break ;; esac; done\nhost=$1\nshift\n\
         exec {} lab exec {} \"$host\" -- sh -c \"$*\"\n",
        quoted(program),
        quoted(lab)
    )
}

/// A field of a shell's line.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn not_started(program: &str, error: &io::Error) -> Failure {
    let message = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{program} is not on this host: install an MPI library (apt-get install openmpi-bin or mpich), or name \
             its mpirun with --mpirun COMMAND"
        ),
        _ => format!("{program} cannot be started: {error}"),
    };
    failure(FailureKind::Unsupported, message)
}

/// What `--version` prints.
fn version(program: &str) -> io::Result<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let Some(stdout) = child.stdout.take() else { return Ok(String::new()) };
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        // What was read until an error is enough to recognise it.
        let _ = stdout.take(1 << 16).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    wait_bounded(&mut child)?;
    Ok(reader.join().unwrap_or_default())
}

fn wait_bounded(child: &mut Child) -> io::Result<()> {
    let deadline = Instant::now() + VERSION_TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "--version took longer than 10 s"));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: Kind, options: &[&str], ranks: &Ranks<'_>) -> String {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let launcher = Launcher { kind, program: "mpirun".to_owned(), options };
        let (_, line) =
            launcher.command(ranks, &[], Path::new("/bin/ranks"), &["--verify".to_owned()]).unwrap();
        line.join(" ")
    }

    #[test]
    fn launchers_are_recognised_by_their_version() {
        for (text, kind) in [
            ("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs", Kind::OpenMpi),
            ("mpirun (Open MPI) 5.0.3", Kind::OpenMpi),
            ("HYDRA build details:\n    Version:  4.0.2", Kind::Hydra),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.9", Kind::Hydra),
            ("slurm 22.05.8", Kind::Other),
        ] {
            assert_eq!(Kind::of_version(text), kind, "{text}");
        }
    }

    #[test]
    fn one_rank_is_placed_on_each_host_unless_the_user_places_them() {
        let remote = Ranks::Remote { client: "10.0.0.1".to_owned(), server: "dtn2".to_owned() };
        let tail = "/bin/ranks --verify";
        assert_eq!(line(Kind::OpenMpi, &[], &Ranks::Here), format!("mpirun -np 2 -H localhost:2 {tail}"));
        assert_eq!(line(Kind::OpenMpi, &[], &remote), format!("mpirun -np 2 -H localhost:1,dtn2:1 {tail}"));
        assert_eq!(line(Kind::Hydra, &[], &remote), format!("mpirun -np 2 -hosts 10.0.0.1,dtn2 {tail}"));
        assert_eq!(line(Kind::Hydra, &["-f", "file"], &remote), format!("mpirun -f file -np 2 {tail}"));
        assert_eq!(line(Kind::Other, &["-N", "2"], &remote), format!("mpirun -N 2 -n 2 {tail}"));
    }

    #[test]
    fn a_missing_launcher_is_named_with_what_to_install() {
        let refused = Launcher::find(Some("mpirun.nobody --mca a b")).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Unsupported);
        assert!(
            refused.message.contains("mpirun.nobody") && refused.message.contains("apt-get"),
            "{refused}"
        );
    }

    #[test]
    fn the_launch_agent_passes_a_line_to_a_shell_on_the_host() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("it's");
        std::fs::write(&program, "#!/bin/sh\nprintf '<%s>' \"$@\"\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let script = agent_script(&program.to_string_lossy(), "lab");
        let mut agent = Command::new("sh");
        agent.args(["-c", &script, "sh", "-x", "there", "orted", "-mca a \"b\""]);
        assert_eq!(
            String::from_utf8(agent.output().unwrap().stdout).unwrap(),
            "<lab><exec><lab><there><--><sh><-c><orted -mca a \"b\">"
        );
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
