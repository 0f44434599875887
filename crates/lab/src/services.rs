//! Services: programs that run on hosts of a lab as long as it is up, such as the servers and clients of a
//! file system.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::lab::{LabFile, LabService};
use clearstream_sys::{
    document,
    namespace::NamespaceSet,
    process::bind_child_to_parent,
    program::{Program, ProgramError},
};

use crate::{LabError, node::Node, state::INSTANCE_VARIABLE};

/// Maximum time until a service is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time of one run of the command that asks whether a service is ready.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// End of a log that an error quotes.
const QUOTED_BYTES: u64 = 600;

/// A running service; dropping it kills its process. Those that it has started are found by the lab's
/// instance in their environment.
#[derive(Debug)]
pub(crate) struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where services of a lab keep their files.
struct Places {
    /// Of this service.
    folder: PathBuf,
    /// Of all services.
    shared: PathBuf,
    /// With a directory per mount point; every host has mounts of its own there.
    mounts: PathBuf,
}

impl Places {
    fn fill(&self, text: &str) -> String {
        let show = |path: &Path| path.to_string_lossy().into_owned();
        text.replace("{folder}", &show(&self.folder))
            .replace("{shared}", &show(&self.shared))
            .replace("{mounts}", &show(&self.mounts))
    }

    fn make(&self, service: &LabService) -> Result<(), LabError> {
        let mount = service.mount.as_ref().map(|name| self.mounts.join(name));
        for folder in [Some(&self.folder), Some(&self.shared), mount.as_ref()].into_iter().flatten() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(LabError::file("make", folder))?;
        }
        for (name, text) in &service.files {
            let path = self.folder.join(name);
            fs::write(&path, self.fill(text)).map_err(LabError::file("write", &path))?;
        }
        Ok(())
    }
}

/// Folder of the mount points, in that of the lab.
pub(crate) fn mounts(folder: &Path) -> PathBuf {
    folder.join("mounts")
}

/// Starts all services in the order of the file, each when the one before is ready. The calling thread must
/// outlive them.
pub(crate) fn start(
    file: &LabFile,
    nodes: &[Node],
    folder: &Path,
    instance: &str,
) -> Result<Vec<Service>, LabError> {
    let mut started = Vec::new();
    for (host, node) in file.hosts.iter().zip(nodes) {
        for service in &host.services {
            let places = Places {
                folder: folder.join("services").join(&host.name).join(&service.name),
                shared: folder.join("shared"),
                mounts: mounts(folder),
            };
            started.push(start_one(service, node, &places, instance)?);
        }
    }
    Ok(started)
}

fn start_one(
    service: &LabService,
    node: &Node,
    places: &Places,
    instance: &str,
) -> Result<Service, LabError> {
    places.make(service)?;
    let log = places.folder.join("log");
    let output = File::create(&log).map_err(LabError::file("write", &log))?;
    let errors = output.try_clone().map_err(LabError::file("write", &log))?;
    let mut command = command(&service.command, node, places, instance)?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    bind_child_to_parent(&mut command);
    let child = command.spawn().map_err(|error| not_started(service, node, &error))?;
    let mut running = Service(child);
    tracing::debug!(host = node.name, service = service.name, "started");
    wait_until_ready(&mut running, service, node, places, &log, instance)?;
    Ok(running)
}

/// A command in the namespaces of a host.
fn command(line: &[String], node: &Node, places: &Places, instance: &str) -> Result<Command, LabError> {
    let mut fields = line.iter().map(|field| places.fill(field));
    let mut command = Command::new(fields.next().unwrap_or_default());
    command.args(fields).current_dir(&places.folder).env(INSTANCE_VARIABLE, instance);
    let entered = NamespaceSet::of_process(node.pid()).and_then(|inside| inside.enter_with(&mut command));
    entered.map_err(LabError::system(format!("enter the host {}", node.name)))?;
    Ok(command)
}

fn wait_until_ready(
    running: &mut Service,
    service: &LabService,
    node: &Node,
    places: &Places,
    log: &Path,
    instance: &str,
) -> Result<(), LabError> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        if is_ready(service, node, places, instance)? {
            return Ok(());
        }
        let ended = running.0.try_wait().map_err(LabError::system(format!("wait for {}", service.name)))?;
        let reason = match ended {
            Some(status) => format!("ended with {status}"),
            None if Instant::now() > deadline => {
                format!("was not ready within {} s", READY_TIMEOUT.as_secs())
            }
            None => {
                thread::sleep(POLL_INTERVAL);
                continue;
            }
        };
        return Err(LabError::Service {
            host: node.name.clone(),
            service: service.name.clone(),
            reason: format!("{reason}{}", quoted(log)),
        });
    }
}

/// All conditions of the service together.
fn is_ready(service: &LabService, node: &Node, places: &Places, instance: &str) -> Result<bool, LabError> {
    if let Some(port) = service.ready_port {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if node.run(|| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_err())? {
            return Ok(false);
        }
    }
    if let Some(name) = &service.mount {
        let (point, around) = (places.mounts.join(name), &places.mounts);
        let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
        // A mount that is not served yet has no device.
        let is_mounted =
            node.run(|| matches!((device(&point), device(around)), (Ok(one), Ok(other)) if one != other))?;
        if !is_mounted {
            return Ok(false);
        }
    }
    let Some(line) = &service.ready else { return Ok(true) };
    let command = command(line, node, places, instance)?;
    // One that hangs is as one that says no: the service's own time passes.
    match Program::of(command).within(QUESTION_TIMEOUT).run() {
        Ok(output) => Ok(output.status.success()),
        Err(ProgramError::Silent { .. }) => Ok(false),
        Err(error) => Err(not_started(service, node, &error.into())),
    }
}

fn not_started(service: &LabService, node: &Node, error: &io::Error) -> LabError {
    let program = service.command.first().map_or("", String::as_str);
    let reason = match (error.kind(), &service.package) {
        (io::ErrorKind::NotFound, Some(package)) => {
            format!("{program} is not on this machine: apt-get install {package}")
        }
        _ => format!("{program} cannot be started: {error}"),
    };
    LabError::Service { host: node.name.clone(), service: service.name.clone(), reason }
}

/// The end of a log, in one line.
fn quoted(log: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = document::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(QUOTED_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(QUOTED_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { String::new() } else { format!("; it printed: {}", lines.join(" / ")) }
}
