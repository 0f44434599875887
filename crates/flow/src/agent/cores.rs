//! Validates requested cores against those of the host.

use clearstream_host::HostRoot;
use clearstream_schema::{
    CoreList,
    control::{Failure, FailureKind},
};

/// Rejects a list with a core that this host does not have or that is offline.
pub(super) fn check(root: &HostRoot, option: &str, requested: Option<&CoreList>) -> Result<(), Failure> {
    let Some(requested) = requested else { return Ok(()) };
    let read = |name: &str| -> Option<CoreList> {
        root.read(&format!("sys/devices/system/cpu/{name}")).ok()?.trim().parse().ok()
    };
    // Without the lists (no /sys) pinning itself is the test.
    let Some(online) = read("online") else { return Ok(()) };
    let Some(core) = requested.0.iter().find(|core| !online.0.contains(core)) else { return Ok(()) };
    let offline = read("present").is_some_and(|present| present.0.contains(core));
    let what = if offline { "is offline" } else { "does not exist" };
    let message = format!("{option}: core {core} {what} on this host; choose from {online}");
    Err(Failure::new(FailureKind::Invalid, message))
}

/// The core of flow `flow`: cores are assigned round robin.
pub(super) fn of_flow(list: Option<&CoreList>, flow: u32) -> Option<u32> {
    let cores = list.map(|list| list.0.as_slice()).filter(|cores| !cores.is_empty())?;
    cores.get(flow as usize % cores.len()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_core_is_distinguished_from_an_offline_one() {
        let folder = std::env::temp_dir().join(format!("clearstream-flow-cores-{}", std::process::id()));
        let cpu = folder.join("sys/devices/system/cpu");
        std::fs::create_dir_all(&cpu).unwrap();
        std::fs::write(cpu.join("online"), "0,2-3\n").unwrap();
        std::fs::write(cpu.join("present"), "0-3\n").unwrap();
        let root = HostRoot::directory(&folder);
        let check_list = |list: &str| check(&root, "sender-cores", Some(&list.parse().unwrap()));
        check_list("0,2-3").unwrap();
        let offline = check_list("0-3").unwrap_err();
        assert_eq!(offline.message, "sender-cores: core 1 is offline on this host; choose from 0,2-3");
        let absent = check_list("4095").unwrap_err();
        assert_eq!(absent.kind, FailureKind::Invalid);
        assert!(absent.message.contains("core 4095 does not exist"), "{absent}");
        std::fs::remove_dir_all(folder).unwrap();
        check(&root, "sender-cores", Some(&CoreList(vec![4095]))).unwrap();
    }

    #[test]
    fn flows_are_assigned_round_robin() {
        let list = CoreList(vec![4, 7]);
        let cores: Vec<_> = (0..3).map(|flow| of_flow(Some(&list), flow)).collect();
        assert_eq!(cores, [Some(4), Some(7), Some(4)]);
        assert_eq!(of_flow(None, 0), None);
    }
}
