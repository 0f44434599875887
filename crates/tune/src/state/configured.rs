//! Which of a host's files sets a sysctl, and which takes precedence.

use std::collections::BTreeMap;

use clearstream_host::HostRoot;
use clearstream_schema::tune::Place;

use super::Tuned;
use crate::syntax;

/// Folders in descending precedence; a file hides files of the same name in later
/// folders (sysctl(8), sysctl.d(5)).
const FOLDERS: [&str; 5] =
    ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d"];

/// Program that applies a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// sysctl(8) and systemd-sysctl(8).
    Both,
    /// sysctl(8) alone: systemd-sysctl does not read `sysctl.conf`.
    Procps,
    /// tuned.
    Tuned,
}

/// An assignment in the host's own files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Assigned value.
    pub(crate) value: String,
    /// File and line.
    pub(crate) place: Place,
    /// Program that applies it.
    pub(crate) reader: Reader,
}

/// Assignments of the host's files by key; of those for one reader the last takes
/// precedence.
pub(super) fn read(root: &HostRoot, missing: &mut Vec<String>) -> BTreeMap<String, Vec<Assignment>> {
    let mut found = BTreeMap::new();
    for path in files(root) {
        gather(root, &path, Reader::Both, &mut found, missing);
    }
    let conf = "etc/sysctl.conf";
    let is_linked = root.list(FOLDERS[0]).unwrap_or_default().iter().any(|name| {
        let target = root.link_target(&format!("{}/{name}", FOLDERS[0]));
        target.is_ok_and(|target| target.ends_with("/sysctl.conf"))
    });
    let reader = if is_linked { Reader::Both } else { Reader::Procps };
    gather(root, conf, reader, &mut found, missing);
    found
}

/// Files of the folders, in the order in which they are applied.
fn files(root: &HostRoot) -> Vec<String> {
    let mut by_name: BTreeMap<String, String> = BTreeMap::new();
    for folder in FOLDERS {
        for name in root.list(folder).unwrap_or_default() {
            if name.ends_with(".conf") {
                by_name.entry(name.clone()).or_insert_with(|| format!("{folder}/{name}"));
            }
        }
    }
    by_name.into_values().collect()
}

fn gather(
    root: &HostRoot,
    path: &str,
    reader: Reader,
    found: &mut BTreeMap<String, Vec<Assignment>>,
    missing: &mut Vec<String>,
) {
    let text = match root.read(path) {
        Ok(text) => text,
        Err(error) if error.is_absent() => return,
        Err(error) => return missing.push(error.to_string()),
    };
    for statement in syntax::parse(&text).statements {
        let place = Place { file: format!("/{path}"), line: statement.line };
        let assignment = Assignment { value: statement.value, place, reader };
        found.entry(statement.key).or_default().push(assignment);
    }
}

/// Active profiles of tuned, and assignments of these and of included profiles.
pub(super) fn tuned(
    root: &HostRoot,
    configured: &mut BTreeMap<String, Vec<Assignment>>,
    missing: &mut Vec<String>,
) -> Option<Tuned> {
    let active = root.read("etc/tuned/active_profile").ok()?;
    let profiles: Vec<String> = active.split_whitespace().map(str::to_owned).collect();
    let main = root.read("etc/tuned/tuned-main.conf").unwrap_or_default();
    let option = main
        .lines()
        .filter_map(|line| line.split_once('='))
        .rfind(|(name, _)| name.trim() == "reapply_sysctl");
    let files_override =
        option.is_none_or(|(_, value)| !matches!(value.trim(), "0" | "false" | "False" | "no"));
    // Included profiles come first, so that the including one takes precedence.
    let mut order = Vec::new();
    let mut ahead: Vec<String> = profiles.iter().rev().cloned().collect();
    while let Some(name) = ahead.pop() {
        if order.iter().any(|(seen, _)| *seen == name) {
            continue;
        }
        match profile(root, &name) {
            Some(path) => {
                let text = root.read(&path).unwrap_or_default();
                ahead.extend(syntax::parse(&text).includes);
                order.push((name, path));
            }
            None => {
                missing.push(format!("tuned profile {name}: not found below /etc/tuned and /usr/lib/tuned"))
            }
        }
    }
    for (_, path) in order.iter().rev() {
        gather(root, path, Reader::Tuned, configured, missing);
    }
    Some(Tuned { profiles, is_running: root.exists("run/tuned/tuned.pid"), files_override })
}

fn profile(root: &HostRoot, name: &str) -> Option<String> {
    if name.contains('/') {
        return None;
    }
    let folders = ["etc/tuned", "etc/tuned/profiles", "usr/lib/tuned", "usr/lib/tuned/profiles"];
    let mut paths = folders.iter().map(|folder| format!("{folder}/{name}/tuned.conf"));
    paths.find(|path| root.exists(path))
}

#[cfg(test)]
mod tests {
    use clearstream_host::memory::MemoryTree;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> HostRoot {
        let mut tree = MemoryTree::default();
        for (path, text) in files {
            tree.file(path, *text);
        }
        HostRoot::memory(tree)
    }

    /// The order of sysctl(8): sorted by name whatever the folder, a name in
    /// /etc hides that name elsewhere, sysctl.conf last.
    #[test]
    fn files_override_one_another_in_the_order_of_sysctl() {
        let root = tree(&[
            ("etc/sysctl.d/50-net.conf", "net.ipv4.tcp_sack = 1\n"),
            ("usr/lib/sysctl.d/50-net.conf", "net.ipv4.tcp_sack = 0\nnet.ipv4.tcp_dsack = 0\n"),
            ("run/sysctl.d/90-run.conf", "net.core.rmem_max = 1\n"),
            ("usr/lib/sysctl.d/10-first.conf", "net.core.rmem_max = 2\n"),
            ("etc/sysctl.conf", "net.core.rmem_max = 3\n"),
            ("etc/sysctl.d/README", "net.core.rmem_max = 4\n"),
        ]);
        let mut missing = Vec::new();
        let found = read(&root, &mut missing);
        let values = |key: &str| {
            found[key].iter().map(|set| (set.value.as_str(), set.place.file.as_str())).collect::<Vec<_>>()
        };
        assert_eq!(values("net.ipv4.tcp_sack"), [("1", "/etc/sysctl.d/50-net.conf")]);
        assert!(!found.contains_key("net.ipv4.tcp_dsack"));
        assert_eq!(
            values("net.core.rmem_max"),
            [
                ("2", "/usr/lib/sysctl.d/10-first.conf"),
                ("1", "/run/sysctl.d/90-run.conf"),
                ("3", "/etc/sysctl.conf")
            ]
        );
        assert_eq!(found["net.core.rmem_max"][2].reader, Reader::Procps);
        assert!(missing.is_empty());
    }

    #[test]
    fn a_profile_wins_over_what_it_includes() {
        let root = tree(&[
            ("etc/tuned/active_profile", "mine\n"),
            ("etc/tuned/mine/tuned.conf", "[main]\ninclude=base\n[sysctl]\nnet.core.busy_read=50\n"),
            ("usr/lib/tuned/base/tuned.conf", "[main]\n[sysctl]\nnet.core.busy_read=0\nvm.swappiness=10\n"),
            ("run/tuned/tuned.pid", "1\n"),
        ]);
        let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
        let tuned = tuned(&root, &mut found, &mut missing).unwrap();
        assert_eq!(tuned, Tuned { profiles: vec!["mine".into()], is_running: true, files_override: true });
        assert_eq!(found["net.core.busy_read"].last().unwrap().value, "50");
        assert_eq!(found["vm.swappiness"][0].place.file, "/usr/lib/tuned/base/tuned.conf");
    }
}
