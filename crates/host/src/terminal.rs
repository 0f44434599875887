//! Programs that prompt on the terminal.

use crate::root::HostRoot;

/// Maximum processes looked at below the first: ssh through a chain of jump hosts has one for each.
const PROCESSES_MAX: usize = 32;

/// Whether the process or one that it started prompts on the terminal: readpassphrase(3) opens `/dev/tty` by
/// name, as ssh does for passwords, passphrases and unknown host keys, and closes it after the reply. `None`
/// where the open files of the process cannot be listed.
pub fn is_prompting(root: &HostRoot, pid: u32) -> Option<bool> {
    let mut pending = vec![pid];
    let mut seen = 0;
    while let Some(process) = pending.pop() {
        seen += 1;
        match has_terminal_open(root, process) {
            Some(true) => return Some(true),
            Some(false) => {}
            None if process == pid => return None,
            // One that has ended since, or that runs as another user.
            None => continue,
        }
        if seen + pending.len() < PROCESSES_MAX {
            // Absent in kernels without CONFIG_PROC_CHILDREN.
            let children = root.read(&format!("proc/{process}/task/{process}/children")).unwrap_or_default();
            pending.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    Some(false)
}

fn has_terminal_open(root: &HostRoot, pid: u32) -> Option<bool> {
    let folder = format!("proc/{pid}/fd");
    let numbers = root.list(&folder).ok()?;
    let mut targets =
        numbers.iter().filter_map(|number| root.link_target(&format!("{folder}/{number}")).ok());
    Some(targets.any(|target| target == "/dev/tty"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_prompt_of_a_child_counts_and_a_terminal_of_a_standard_stream_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = HostRoot::directory(folder.path());
        let process = |pid: u32, children: &str, open: &[&str]| {
            let base = folder.path().join(format!("proc/{pid}"));
            fs::create_dir_all(base.join(format!("task/{pid}"))).unwrap();
            fs::create_dir_all(base.join("fd")).unwrap();
            fs::write(base.join(format!("task/{pid}/children")), children).unwrap();
            for (number, target) in open.iter().enumerate() {
                symlink(target, base.join(format!("fd/{number}"))).unwrap();
            }
        };
        process(7, "8 9 ", &["pipe:[1]", "/dev/pts/0"]);
        process(8, "", &["/dev/null"]);
        assert_eq!(is_prompting(&root, 7), Some(false));
        assert_eq!(is_prompting(&root, 10), None);
        process(9, "", &["/dev/null", "/dev/tty"]);
        assert_eq!(is_prompting(&root, 7), Some(true));
    }

    #[test]
    fn this_process_does_not_prompt() {
        assert_eq!(is_prompting(&HostRoot::live(), std::process::id()), Some(false));
    }
}
