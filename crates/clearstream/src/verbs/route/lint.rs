//! `clearstream route lint`

use std::path::PathBuf;

use clearstream_host::{HostRoot, capture};
use clearstream_netconfig::read::{self, ReadError};
use clearstream_route::{
    fabric,
    lint::{self, Subject},
};
use clearstream_schema::human::few;
use clearstream_tune::{Assumed, KernelVersion};

use super::name_of;
use crate::{exit::CommandError, output::Output, verbs::tune::lint::Showing};

/// Check routing configuration for mistakes: files of NetworkManager, networkd,
/// netplan, ifcfg, ifupdown, nmstate, Ansible or ip, captured hosts, or this host. Several
/// hosts are compared with each other.
#[derive(Debug, clap::Args)]
pub struct LintArgs {
    /// Files of one host, or folders: each with the files of one host, or with a folder per host
    paths: Vec<PathBuf>,
    /// A captured host; may be repeated
    #[arg(long, visible_alias = "capture", value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Fabric of the hosts: name of a built-in fabric, or a fabric file
    #[arg(long, value_name = "FABRIC")]
    fabric: Option<String>,
    /// Kernel that the files are for, as `uname -r` has it
    #[arg(long, value_name = "RELEASE", requires = "paths")]
    kernel: Option<KernelVersion>,
    #[command(flatten)]
    showing: Showing,
}

impl LintArgs {
    /// Runs it. Findings of severity error exit with code 8, and files of which nothing was understood.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let mute = self.showing.mute_list()?;
        let fabric = self.fabric.as_deref().map(fabric::load).transpose()?;
        let (mut hosts, not_understood) = self.of_files()?;
        for path in &self.from {
            hosts.push(lint::of_host(capture::open(path)?.root(), &name_of(path)));
        }
        if hosts.is_empty() {
            hosts.push(lint::of_host(&HostRoot::live(), "this host"));
        }
        let report = lint::lint(&hosts, fabric.as_ref(), &mute);
        self.showing.show(&report, "clearstream route lint", out)?;
        // Nothing read is not nothing wrong.
        match &not_understood[..] {
            [] => Ok(()),
            files => Err(CommandError::Partial(format!("nothing was understood in {}", few(files)))),
        }
    }

    /// Each folder by itself, all files together.
    /// With the files of which nothing was understood.
    fn of_files(&self) -> Result<(Vec<Subject>, Vec<String>), CommandError> {
        let assumed = Assumed { release: self.kernel.map(|kernel| kernel.to_string()), ..Assumed::default() };
        let (folders, files): (Vec<&PathBuf>, Vec<&PathBuf>) =
            self.paths.iter().partition(|path| path.is_dir());
        let (mut hosts, mut not_understood) = (Vec::new(), Vec::new());
        for folder in folders {
            let mut reading = read::folder(folder).map_err(unreadable)?;
            not_understood.append(&mut reading.not_understood);
            hosts.extend(lint::of_files(reading, &name_of(folder), &assumed));
        }
        if let [first, ..] = &files[..] {
            let name = name_of(first);
            let files: Vec<PathBuf> = files.into_iter().cloned().collect();
            let mut reading = read::files(&files).map_err(unreadable)?;
            not_understood.append(&mut reading.not_understood);
            hosts.extend(lint::of_files(reading, &name, &assumed));
        }
        Ok((hosts, not_understood))
    }
}

pub(super) fn unreadable(error: ReadError) -> CommandError {
    match error {
        ReadError::File { path, source } => CommandError::File { what: "read".to_owned(), path, source },
        nothing @ ReadError::Nothing { .. } => CommandError::Usage(nothing.to_string()),
    }
}
