//! Folders and files on disk: which of them are configurations, and of which
//! hosts.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clearstream_sys::document;

use super::{ReadError, Reading, Source, detect, nearest};
use crate::formats::ansible;

/// Bytes of all configurations of a host.
const MOST_BYTES: u64 = 64 << 20;

/// Files that are looked at for what they are, where none is read.
const MOST_NAMED: usize = 64;

/// Folders deeper than this are not entered.
const MOST_DEPTH: usize = 12;

/// Names of folders that lie in one host's tree, not beside other hosts.
const OF_ONE_HOST: [&str; 19] = [
    "etc",
    "usr",
    "run",
    "proc",
    "sys",
    "NetworkManager",
    "system-connections",
    "systemd",
    "network",
    "netplan",
    "sysconfig",
    "network-scripts",
    "sysctl.d",
    "iproute2",
    "clearstream",
    "routes",
    "nftables.d",
    "interfaces.d",
    "host_vars",
];

/// Reads a folder: one host's files, at their places below it (`etc/...`) or
/// side by side, a folder per host, or an inventory of Ansible. Files that are
/// no configuration are passed over. Fails when a file cannot be read, or none
/// is a configuration.
pub fn folder(path: &Path) -> Result<Reading, ReadError> {
    if path.is_file() {
        return files(&[path.to_owned()]);
    }
    if ansible::is_inventory(path) {
        return ansible::folder(path);
    }
    let children = sorted_children(path)?;
    let folders: Vec<&PathBuf> = children.iter().filter(|child| is_plain_folder(child)).collect();
    let is_known_file = |child: &&PathBuf| child.is_file() && known(child).is_some();
    let is_one_host = folders.is_empty()
        || folders.iter().any(|folder| OF_ONE_HOST.contains(&name_of(folder).as_str()))
        || children.iter().any(|child| is_known_file(&child));
    let mut reading = Reading::default();
    if is_one_host {
        add_host(path, "", &mut reading)?;
    } else {
        for folder in folders {
            add_host(folder, &name_of(folder), &mut reading)?;
        }
    }
    if is_nothing(&reading) {
        let nearest =
            reading.unread.first().map(|unread| format!("{}: {}", unread.place.file, unread.reason));
        let nearest =
            nearest.or_else(|| nearest_of(&children)).unwrap_or_else(|| "no file of a known name".to_owned());
        return Err(ReadError::Nothing { path: path.to_owned(), nearest });
    }
    Ok(reading)
}

/// What the first of some files is that is of a kind which is not read.
fn nearest_of(files: &[PathBuf]) -> Option<String> {
    let named =
        |path: &PathBuf| Some(format!("{}: {}", path.display(), nearest::foreign(&source(path).ok()?)?));
    files.iter().filter(|path| path.is_file()).take(MOST_NAMED).find_map(named)
}

/// Reads files of one host; folders among them are read with all they hold.
/// A file of which nothing is understood is reported.
pub fn files(paths: &[PathBuf]) -> Result<Reading, ReadError> {
    let (mut sources, mut left) = (Vec::new(), MOST_BYTES);
    for path in paths {
        if path.is_dir() {
            collect(path, 0, &mut sources, &mut left)?;
        } else {
            sources.push(source(path)?);
        }
    }
    let reading = super::sources(&sources);
    if is_nothing(&reading) {
        // A line of which it is known why it was not read says more than what the file looks like.
        let by_line = reading.unread.iter().find(|unread| !unread.reason.starts_with(super::NOTHING));
        let nearest = match (by_line, sources.first()) {
            (Some(unread), Some(source)) if !nearest::is_foreign_configuration(source) => {
                format!("{}: {}", unread.text, unread.reason)
            }
            (_, source) => source.map_or_else(|| "no file was given".to_owned(), nearest::form),
        };
        return Err(ReadError::Nothing { path: paths.first().cloned().unwrap_or_default(), nearest });
    }
    Ok(reading)
}

/// Whether of no host any file was understood.
fn is_nothing(reading: &Reading) -> bool {
    reading.hosts.iter().all(|host| host.files.read_files.is_empty())
}

fn add_host(path: &Path, name: &str, reading: &mut Reading) -> Result<(), ReadError> {
    let (mut sources, mut left) = (Vec::new(), MOST_BYTES);
    collect(path, 0, &mut sources, &mut left)?;
    if sources.is_empty() {
        return Ok(());
    }
    let mut of_host = super::sources(&sources);
    // Other documents lie beside configurations; a host without any is reported.
    if is_nothing(&of_host) {
        reading.not_understood.append(&mut of_host.not_understood);
    }
    let own_name = match document::read_text(&path.join("etc/hostname"), document::DOCUMENT_BYTES) {
        Ok(text) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => name.to_owned(),
    };
    for mut routing in of_host.hosts {
        if routing.host.is_empty() {
            routing.host.clone_from(&own_name);
        }
        reading.hosts.push(routing);
    }
    reading.unread.extend(of_host.unread);
    Ok(())
}

/// Configurations below a folder; links are not followed.
fn collect(path: &Path, depth: usize, sources: &mut Vec<Source>, left: &mut u64) -> Result<(), ReadError> {
    for child in sorted_children(path)? {
        if is_plain_folder(&child) {
            if depth < MOST_DEPTH {
                collect(&child, depth + 1, sources, left)?;
            }
        } else if child.is_file() && !child.is_symlink() {
            let Some(source) = known(&child) else { continue };
            *left = left.checked_sub(source.text.len() as u64).ok_or_else(|| {
                let problem = format!("the configurations so far have more than {} MiB", MOST_BYTES >> 20);
                let source = io::Error::new(io::ErrorKind::FileTooLarge, problem);
                ReadError::File { path: child.clone(), source }
            })?;
            sources.push(source);
        }
    }
    Ok(())
}

/// A file that is a configuration; unreadable ones beside others are none.
fn known(path: &Path) -> Option<Source> {
    let source = source(path).ok()?;
    detect::known(&source).is_some().then_some(source)
}

fn source(path: &Path) -> Result<Source, ReadError> {
    let fail = |source| ReadError::File { path: path.to_owned(), source };
    let bytes = document::read(path, document::DOCUMENT_BYTES).map_err(fail)?;
    Ok(Source { path: path.display().to_string(), text: String::from_utf8_lossy(&bytes).into_owned() })
}

fn sorted_children(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let fail = |source| ReadError::File { path: path.to_owned(), source };
    let mut children = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        children.push(entry.map_err(fail)?.path());
    }
    children.sort();
    Ok(children)
}

fn is_plain_folder(path: &Path) -> bool {
    path.is_dir() && !path.is_symlink()
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
