//! A folder of hosts: written beside its place and moved there when complete,
//! so that a failure leaves nothing.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    thread,
};

use clearstream_schema::JsonSchema;
use clearstream_schema::routing::HostRouting;
use clearstream_sys::file;
use serde::Serialize;
use tempfile::TempDir;

use super::{Content, Format, RenderError, RenderedFile, check, host};
use crate::formats::ansible::Play;

/// Writes the files of many hosts: a folder each, or an Ansible play for all.
#[derive(Debug)]
pub struct FolderWriter {
    out: PathBuf,
    folder: TempDir,
    format: Format,
    host_count: usize,
    file_count: usize,
    notices: BTreeMap<String, usize>,
    play: Play,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// The folder.
    pub folder: PathBuf,
    /// Hosts in it.
    pub host_count: usize,
    /// Files in it.
    pub file_count: usize,
    /// What the tool cannot say, what was written instead, and for how many hosts.
    pub notices: BTreeMap<String, usize>,
}

/// Result of one thread.
#[derive(Default)]
struct Done {
    file_count: usize,
    notices: BTreeMap<String, usize>,
}

impl FolderWriter {
    /// Starts a folder. Fails when `out` is there and not empty, or nothing can be
    /// written beside it.
    pub fn create(out: &Path, format: Format) -> Result<Self, RenderError> {
        let fail = |source| RenderError::Write { path: out.to_owned(), source };
        match fs::read_dir(out) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(RenderError::NotEmpty { path: out.to_owned() });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
        }
        let parent = match out.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let folder =
            tempfile::Builder::new().prefix(".clearstream-render-").tempdir_in(parent).map_err(fail)?;
        Ok(Self {
            out: out.to_owned(),
            folder,
            format,
            host_count: 0,
            file_count: 0,
            notices: BTreeMap::new(),
            play: Play::default(),
        })
    }

    /// Adds hosts. `plan` gives the name of a host's class and what it routes
    /// by; it is called on as many threads as there are cores, so that no more
    /// hosts are held than are written. Fails when a name or value cannot stand
    /// in a file, when a host comes twice, and when the system refuses; the
    /// writer is of no use then.
    pub fn add<H: Sync>(
        &mut self,
        hosts: &[H],
        plan: &(impl Fn(&H) -> (String, HostRouting) + Sync),
    ) -> Result<(), RenderError> {
        self.host_count += hosts.len();
        if self.format.is_play() {
            make_folder(&self.folder.path().join("host_vars"))?;
            for known in hosts {
                let (class, routing) = plan(known);
                check::host(&routing)?;
                let file = self.play.add(&class, &routing);
                write(self.folder.path(), &file).map_err(|error| twice(error, &routing.host))?;
                self.file_count += 1;
            }
            return Ok(());
        }
        let (root, format) = (self.folder.path(), self.format);
        let share = hosts.len().div_ceil(thread::available_parallelism().map_or(1, usize::from)).max(1);
        let results: Vec<Result<Done, RenderError>> = thread::scope(|scope| {
            let running: Vec<_> = hosts
                .chunks(share)
                .map(|part| {
                    scope.spawn(move || write_hosts(root, format, part.iter().map(|known| plan(known).1)))
                })
                .collect();
            let joined = running.into_iter().map(|thread| {
                let died = |_| {
                    let source = io::Error::other("a writing thread ended early");
                    Err(RenderError::Write { path: root.to_owned(), source })
                };
                thread.join().unwrap_or_else(died)
            });
            joined.collect()
        });
        for result in results {
            let done = result?;
            self.file_count += done.file_count;
            for (notice, count) in done.notices {
                *self.notices.entry(notice).or_default() += count;
            }
        }
        Ok(())
    }

    /// Moves the folder to its place, which has all of it then or nothing, also after a crash.
    pub fn finish(mut self) -> Result<Summary, RenderError> {
        if self.format.is_play() {
            let mut folders = HashSet::new();
            let files = self.play.files();
            for rendered in &files {
                make_parents(self.folder.path(), &rendered.path, &mut folders)?;
                write(self.folder.path(), rendered)?;
                self.file_count += 1;
            }
        }
        let fail = |source| RenderError::Write { path: self.out.clone(), source };
        fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(0o755)).map_err(fail)?;
        file::publish_folder(self.folder.path(), &self.out).map_err(fail)?;
        // Nothing is left at the old place to clean up.
        let _ = self.folder.keep();
        Ok(Summary {
            folder: self.out,
            host_count: self.host_count,
            file_count: self.file_count,
            notices: self.notices,
        })
    }
}

fn write_hosts(
    root: &Path,
    format: Format,
    hosts: impl Iterator<Item = HostRouting>,
) -> Result<Done, RenderError> {
    let mut done = Done::default();
    for routing in hosts {
        let rendered = host(&routing, format)?;
        let folder = root.join(&routing.host);
        let made = DirBuilder::new().mode(0o755).create(&folder);
        made.map_err(|source| twice(RenderError::Write { path: folder.clone(), source }, &routing.host))?;
        let mut folders = HashSet::new();
        for file in &rendered.files {
            make_parents(&folder, &file.path, &mut folders)?;
            write(&folder, file)?;
        }
        done.file_count += rendered.files.len();
        for notice in rendered.notices {
            *done.notices.entry(notice).or_default() += 1;
        }
    }
    Ok(done)
}

/// What is there already is of a host of the same name.
fn twice(error: RenderError, host: &str) -> RenderError {
    match error {
        RenderError::Write { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
            RenderError::Twice(host.to_owned())
        }
        other => other,
    }
}

fn make_folder(path: &Path) -> Result<(), RenderError> {
    let made = DirBuilder::new().mode(0o755).create(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(RenderError::Write { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// Folders that a file lies in; each is made once.
fn make_parents<'a>(root: &Path, file: &'a str, made: &mut HashSet<&'a str>) -> Result<(), RenderError> {
    for (at, _) in file.match_indices('/') {
        let folder = &file[..at];
        if made.insert(folder) {
            make_folder(&root.join(folder))?;
        }
    }
    Ok(())
}

fn write(root: &Path, file: &RenderedFile) -> Result<(), RenderError> {
    let path = root.join(&file.path);
    let written = match &file.content {
        Content::Text { text, mode } => OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(*mode)
            .open(&path)
            .and_then(|mut open| open.write_all(text.as_bytes())),
        Content::Link { target } => symlink(target, &path),
    };
    written.map_err(|source| RenderError::Write { path, source })
}
