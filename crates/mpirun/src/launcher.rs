//! `mpirun`: whose it is, and the command that starts a job.
//!
//! Settings are variables of the environment, which options of the user's own
//! command override: `OMPI_MCA_*` (Open MPI up to 4), `PRTE_MCA_*` (5),
//! `HYDRA_*` and those of UCX and libfabric (MPICH and relatives).

use std::{env, io, path::Path, process::Command, time::Duration};

use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
};
use clearstream_sys::program::{Program, ProgramError};
use tempfile::TempDir;

use crate::ranks::{LabRanks, Ranks};

/// Maximum time of `mpirun --version`.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
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
    /// Slurm's `srun`.
    Slurm,
    /// Another launcher of a site: it chooses the hosts itself.
    Other,
}

impl Kind {
    /// Recognises what `--version` prints.
    fn of_version(text: &str) -> Self {
        if text.contains("Open MPI") || text.contains("OpenRTE") {
            Self::OpenMpi
        } else if text.contains("HYDRA") || text.contains("Intel(R) MPI") {
            Self::Hydra
        } else if text.starts_with("slurm") {
            Self::Slurm
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
    /// Has the launch agent of a lab, and names of hosts.
    _folder: TempDir,
}

impl Launcher {
    /// Reads the user's command and queries what it is.
    pub(crate) fn find(requested: Option<&str>) -> Result<Self, Failure> {
        let mut fields = requested.unwrap_or("mpirun").split_whitespace().map(str::to_owned);
        let Some(program) = fields.next() else {
            return Err(Failure::new(
                FailureKind::Invalid,
                "--mpirun needs a command, as in \"mpirun.openmpi\"",
            ));
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
        let folder = tempfile::Builder::new().prefix("clearstream-mpi-").tempdir();
        let folder = folder.map_err(|error| not_written(&error))?;
        let mut line = vec![self.program.clone()];
        line.extend(fabric.iter().chain(&self.options).cloned());
        if !self.has_option(&COUNT_OPTIONS) {
            let is_long = matches!(self.kind, Kind::OpenMpi | Kind::Hydra);
            line.extend([if is_long { "-np" } else { "-n" }.to_owned(), ranks.count().to_string()]);
        }
        if !self.has_option(&HOST_OPTIONS) {
            line.extend(self.hosts(ranks)?);
        }
        line.push(program.to_string_lossy().into_owned());
        line.extend(arguments.iter().cloned());
        let mut command = Command::new(&self.program);
        command.args(line.iter().skip(1));
        self.set_variables(&mut command, &self.common_variables());
        if self.kind == Kind::Slurm && ranks.lab.is_some() {
            // A line per rank: the order of a list of nodes is Slurm's (srun(1), --distribution=arbitrary).
            let file = folder.path().join("hosts");
            let repeated = |host: &String| format!("{host}\n").repeat(ranks.per_host);
            let text: String = ranks.hosts.iter().map(repeated).collect();
            std::fs::write(&file, text).map_err(|error| not_written(&error))?;
            self.set_variables(&mut command, &[("SLURM_HOSTFILE", file.to_string_lossy().into_owned())]);
        }
        let Some(lab) = &ranks.lab else { return Ok((Prepared { command, _folder: folder }, line)) };
        let agent = launch_agent(folder.path(), lab).map_err(|error| not_written(&error))?;
        let mut variables = self.lab_variables(lab, &agent);
        // srun's --export sets no variable that there is already.
        variables.retain(|(name, _)| !fabric.iter().any(|option| option.contains(&format!("{name}="))));
        self.set_variables(&mut command, &variables);
        let first = ranks.hosts.first().map_or("", String::as_str);
        let command = lab.lab.command(first, command);
        let command = command.map_err(|error| error.to_failure())?;
        Ok((Prepared { command, _folder: folder }, line))
    }

    fn has_option(&self, names: &[&str]) -> bool {
        self.options.iter().any(|option| names.contains(&option.as_str()))
    }

    /// Options that place the ranks; slots are given because Open MPI lets ranks yield the core where it counts
    /// more ranks than slots.
    fn hosts(&self, ranks: &Ranks<'_>) -> Result<Vec<String>, Failure> {
        let per_host = ranks.per_host;
        let all = |names: &mut dyn Iterator<Item = &str>, slots: &dyn Fn(&str) -> String| {
            names.map(slots).collect::<Vec<_>>().join(",")
        };
        let names = || ranks.hosts.iter().map(String::as_str);
        let is_here = ranks.hosts.is_empty();
        Ok(match self.kind {
            Kind::OpenMpi if is_here => vec!["-H".to_owned(), format!("localhost:{per_host}")],
            Kind::OpenMpi => {
                vec!["-H".to_owned(), all(&mut names(), &|name| format!("{name}:{per_host}"))]
            }
            Kind::Hydra if is_here => vec!["-hosts".to_owned(), "localhost".to_owned()],
            Kind::Hydra => {
                // Processes on other hosts connect to the name that this one has here.
                let own = ranks.own.as_deref();
                let mut names = names().enumerate().map(|(place, name)| match own {
                    Some(own) if place == 0 => own,
                    _ => name,
                });
                let slots = |name: &str| match per_host {
                    1 => name.to_owned(),
                    count => format!("{name}:{count}"),
                };
                vec!["-hosts".to_owned(), all(&mut names, &slots)]
            }
            Kind::Slurm if ranks.lab.is_some() => vec!["--distribution=arbitrary".to_owned()],
            Kind::Other if ranks.lab.is_some() => {
                return Err(Failure::new(
                    FailureKind::Unsupported,
                    format!(
                        "{} is neither Open MPI's nor MPICH's mpirun, nor srun, and only these can be started in a lab",
                        self.program
                    ),
                ));
            }
            // The site's launcher has hosts of its own.
            Kind::Slurm | Kind::Other => Vec::new(),
        })
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
        if matches!(self.kind, Kind::Hydra | Kind::Other) {
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
        let mut names = lab.interfaces.clone();
        names.sort();
        names.dedup();
        let interfaces = names.join(",");
        let open_mpi = [
            ("OMPI_MCA_plm_rsh_agent", agent.to_owned()),
            ("PRTE_MCA_plm_ssh_agent", agent.to_owned()),
            ("OMPI_MCA_oob_tcp_if_include", interfaces.clone()),
            ("PRTE_MCA_prte_if_include", interfaces.clone()),
            ("OMPI_MCA_btl_tcp_if_include", interfaces.clone()),
            ("OMPI_MCA_btl", "self,tcp".to_owned()),
            ("OMPI_MCA_pml", "ob1".to_owned()),
        ];
        let mut mpich = vec![
            ("HYDRA_LAUNCHER", "ssh".to_owned()),
            ("HYDRA_LAUNCHER_EXEC", agent.to_owned()),
            ("MPIR_CVAR_NOLOCAL", "1".to_owned()),
            ("UCX_TLS", "tcp,self".to_owned()),
            ("UCX_NET_DEVICES", interfaces),
        ];
        if let [name] = &names[..] {
            // One name for all hosts.
            mpich.extend([("HYDRA_IFACE", name.clone()), ("FI_TCP_IFACE", name.clone())]);
        }
        match self.kind {
            Kind::OpenMpi => open_mpi.to_vec(),
            Kind::Hydra => mpich,
            // It starts programs of any library.
            Kind::Slurm | Kind::Other => open_mpi.into_iter().chain(mpich).collect(),
        }
    }
}

/// Writes the program that the launcher takes for ssh: it enters a host of the lab.
fn launch_agent(folder: &Path, lab: &LabRanks<'_>) -> io::Result<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join("launch-agent");
    std::fs::write(&path, agent_script(&lab.program, &lab.lab.file().name))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
    Ok(path.to_string_lossy().into_owned())
}

fn not_written(error: &io::Error) -> Failure {
    Failure::of_system("write the files of the launcher", error)
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

fn not_started(program: &str, error: &ProgramError) -> Failure {
    let message = match error.is_missing() {
        true => format!(
            "{program} is not on this host: install an MPI library (apt-get install openmpi-bin or mpich), or name \
             its mpirun with --mpirun COMMAND"
        ),
        false => error.to_string(),
    };
    Failure::new(FailureKind::Unsupported, message)
}

/// What `--version` prints.
fn version(program: &str) -> Result<String, ProgramError> {
    let output = Program::new(program).args(["--version"]).within(VERSION_TIMEOUT).run()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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
            ("slurm 22.05.8", Kind::Slurm),
            ("aprun (ALPS) 6.6", Kind::Other),
        ] {
            assert_eq!(Kind::of_version(text), kind, "{text}");
        }
    }

    fn ranks(hosts: &[&str], per_host: usize, own: Option<&str>) -> Ranks<'static> {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        Ranks { hosts, per_host, own: own.map(str::to_owned), lab: None, program: std::path::PathBuf::new() }
    }

    #[test]
    fn ranks_are_placed_on_the_hosts_unless_the_user_places_them() {
        let (here, remote) = (ranks(&[], 2, None), ranks(&["localhost", "dtn2"], 1, Some("10.0.0.1")));
        let many = ranks(&["a", "b"], 4, None);
        let tail = "/bin/ranks --verify";
        assert_eq!(line(Kind::OpenMpi, &[], &here), format!("mpirun -np 2 -H localhost:2 {tail}"));
        assert_eq!(line(Kind::OpenMpi, &[], &remote), format!("mpirun -np 2 -H localhost:1,dtn2:1 {tail}"));
        assert_eq!(line(Kind::OpenMpi, &[], &many), format!("mpirun -np 8 -H a:4,b:4 {tail}"));
        assert_eq!(line(Kind::Hydra, &[], &here), format!("mpirun -np 2 -hosts localhost {tail}"));
        assert_eq!(line(Kind::Hydra, &[], &remote), format!("mpirun -np 2 -hosts 10.0.0.1,dtn2 {tail}"));
        assert_eq!(line(Kind::Hydra, &[], &many), format!("mpirun -np 8 -hosts a:4,b:4 {tail}"));
        assert_eq!(line(Kind::Hydra, &["-f", "file"], &remote), format!("mpirun -f file -np 2 {tail}"));
        assert_eq!(line(Kind::Slurm, &["-N", "2"], &remote), format!("mpirun -N 2 -n 2 {tail}"));
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
