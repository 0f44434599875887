//! `clearstream route new`

use std::path::{Path, PathBuf};

use clearstream_host::{HostRoot, capture};
use clearstream_netconfig::read;
use clearstream_route::{
    fabric,
    lint::{self, Subject},
    outline,
};
use clearstream_schema::routing::HostRouting;
use clearstream_tune::Assumed;

use super::{lint::unreadable, name_of};
use crate::{
    exit::CommandError,
    files,
    output::{self, Output},
};

/// Generate a fabric file from existing hosts: captures of both sides and of the
/// gateways, or their files. Comments in it name what could not be determined.
#[derive(Debug, clap::Args)]
pub struct NewArgs {
    /// A captured host; may be repeated
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// A folder with one host's files, or with a folder for each host
    #[arg(long, value_name = "DIR")]
    files: Vec<PathBuf>,
    /// Include this host
    #[arg(long)]
    here: bool,
    /// Name of the fabric
    #[arg(long, value_name = "NAME", default_value = "fabric")]
    name: String,
    /// File to write; it must not exist
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl NewArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let subjects = self.subjects()?;
        for missing in subjects.iter().flat_map(|subject| &subject.missing) {
            out.note(&format!("not read: {missing}"));
        }
        let hosts: Vec<HostRouting> = subjects.into_iter().map(|subject| subject.routing).collect();
        let text =
            outline::outline(&hosts, &self.name).map_err(|error| CommandError::Usage(error.to_string()))?;
        let fabric = fabric::parse(Path::new("the new file"), &text);
        match &self.out {
            None if out.is_human() => output::as_it_is(text.trim_end())?,
            None => {}
            Some(path) => write_new(path, &text)?,
        }
        // What is there is of use, and what it lacks is reported.
        let fabric = fabric?;
        if !out.is_human() {
            return Ok(out.document(fabric.file())?);
        }
        if let Some(path) = &self.out {
            let (networks, gateways) = (fabric.file().networks.len(), fabric.gateways().len());
            output::line(&format!("{}: {networks} networks, {gateways} gateways", path.display()))?;
        }
        Ok(())
    }

    fn subjects(&self) -> Result<Vec<Subject>, CommandError> {
        let mut hosts = Vec::new();
        for path in &self.files {
            let reading = read::folder(path).map_err(unreadable)?;
            for mut subject in lint::of_files(reading, &name_of(path), &Assumed::default()) {
                subject.routing.host.clone_from(&subject.name);
                hosts.push(subject);
            }
        }
        for path in &self.from {
            hosts.push(lint::of_host(capture::open(path)?.root(), &name_of(path)));
        }
        if self.here {
            hosts.push(lint::of_host(&HostRoot::live(), "this-host"));
        }
        if hosts.is_empty() {
            let how = "name hosts: --from for captured ones, --files for their files, --here for this one";
            return Err(CommandError::Usage(how.to_owned()));
        }
        Ok(hosts)
    }
}

fn write_new(path: &Path, text: &str) -> Result<(), CommandError> {
    if path.symlink_metadata().is_ok() {
        let source = std::io::ErrorKind::AlreadyExists.into();
        return Err(CommandError::File { what: "create".to_owned(), path: path.to_owned(), source });
    }
    files::write(path, text)
}
