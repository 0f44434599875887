//! Programs that hold a socket, by its inode: the links `socket:[INODE]` in `/proc/PID/fd`.

use std::collections::HashMap;

use clearstream_schema::connections::SocketOwner;

use crate::{
    parse::stat,
    root::{HostRoot, ReadError},
};

/// Owners of all sockets of a host at one time.
#[derive(Debug, Clone, Default)]
pub struct SocketOwners {
    by_inode: HashMap<u32, Vec<SocketOwner>>,
    /// Processes whose open files this process may not read (needs `CAP_SYS_PTRACE`).
    pub unreadable_count: u64,
}

impl SocketOwners {
    /// Reads them. A process that ends meanwhile is omitted.
    pub fn read(root: &HostRoot) -> Self {
        let mut owners = Self::default();
        let names = root.list("proc").unwrap_or_default();
        for pid in names.iter().filter_map(|name| name.parse::<u32>().ok()) {
            let folder = format!("proc/{pid}/fd");
            match root.list(&folder) {
                Ok(files) => owners.add(root, pid, &folder, &files),
                Err(ReadError::Refused { .. }) => owners.unreadable_count += 1,
                Err(_) => {}
            }
        }
        owners
    }

    fn add(&mut self, root: &HostRoot, pid: u32, folder: &str, files: &[String]) {
        let mut program = None;
        for file in files {
            let Ok(target) = root.link_target(&format!("{folder}/{file}")) else { continue };
            let Some(inode) = socket_inode(&target) else { continue };
            let program = program.get_or_insert_with(|| name(root, pid));
            let holders = self.by_inode.entry(inode).or_default();
            // A process may hold a socket by several descriptors.
            if holders.last().is_none_or(|last| last.pid != pid) {
                holders.push(SocketOwner {
                    pid,
                    program: program.clone(),
                    stopped: false,
                    busiest_thread_ratio: None,
                });
            }
        }
    }

    /// Processes that hold the socket; none where they could not be read.
    pub fn of(&self, inode: u32) -> &[SocketOwner] {
        self.by_inode.get(&inode).map_or(&[], Vec::as_slice)
    }
}

fn socket_inode(target: &str) -> Option<u32> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

fn name(root: &HostRoot, pid: u32) -> String {
    root.read(&format!("proc/{pid}/comm")).map(|name| name.trim_end().to_owned()).unwrap_or_default()
}

/// Time that each thread of a process ran or waited for a core since its start; empty when the process has
/// ended.
pub fn thread_times(root: &HostRoot, pid: u32) -> HashMap<u32, u64> {
    let folder = format!("proc/{pid}/task");
    let threads = root.list(&folder).unwrap_or_default();
    let time = |id: u32| {
        let (run_ns, wait_ns) =
            root.parse(&format!("{folder}/{id}/schedstat"), stat::thread_schedule).ok()?;
        Some((id, run_ns.saturating_add(wait_ns)))
    };
    threads.iter().filter_map(|name| name.parse().ok()).filter_map(time).collect()
}

/// Whether a process is stopped by a signal or a debugger (`T` or `t`, proc_pid_stat(5)).
pub fn is_stopped(root: &HostRoot, pid: u32) -> bool {
    let text = root.read(&format!("proc/{pid}/stat")).unwrap_or_default();
    let state = text.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().next());
    matches!(state, Some("T" | "t"))
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, process};

    use super::*;

    #[test]
    fn this_process_owns_its_socket() {
        let root = HostRoot::live();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = rustix::fs::fstat(&listener).unwrap().st_ino;
        let owners = SocketOwners::read(&root);
        let [owner] = owners.of(u32::try_from(inode).unwrap()) else { panic!("{owners:?}") };
        assert_eq!(owner.pid, process::id());
        let name = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(owner.program, name.trim_end());
        assert!(owners.of(0).is_empty() && !is_stopped(&root, process::id()));
        assert!(thread_times(&root, process::id()).contains_key(&process::id()));
        assert!(thread_times(&root, u32::MAX).is_empty());
    }

    #[test]
    fn other_links_are_no_sockets() {
        assert_eq!(socket_inode("socket:[77]"), Some(77));
        for target in ["pipe:[77]", "socket:[x]", "/dev/null", "socket:[77"] {
            assert_eq!(socket_inode(target), None, "{target}");
        }
    }
}
