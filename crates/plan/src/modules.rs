//! Modules of the kernel, some of which it loads when root writes a value.

use crate::{Fault, files::Files};

/// Disciplines that every kernel has (net/sched/sch_api.c, `pktsched_init`).
const ALWAYS: [&str; 5] = ["bfifo", "mq", "noqueue", "pfifo", "pfifo_fast"];

/// Fails where the kernel would load this module.
pub(crate) fn check(files: &Files, module: &str) -> Result<(), Fault> {
    match is_there(files, module) {
        true => Ok(()),
        false => Err(Fault::NotLoaded { module: module.to_owned() }),
    }
}

/// Fails where the kernel would load the module of a queueing discipline.
pub(crate) fn check_discipline(files: &Files, name: &str) -> Result<(), Fault> {
    match ALWAYS.contains(&name) {
        true => Ok(()),
        false => check(files, &format!("sch_{name}")),
    }
}

/// Whether a module is loaded or part of the kernel; a kernel without module
/// loading needs no check.
fn is_there(files: &Files, module: &str) -> bool {
    let loaded = match files.text("proc/modules") {
        Err(error) if error.is_absent() => return true,
        found => found.unwrap_or_default(),
    };
    let is_loaded = loaded.lines().any(|line| line.split(' ').next() == Some(module));
    let built_in = || {
        let release = files.text("proc/sys/kernel/osrelease").unwrap_or_default();
        let list = files.text(&format!("lib/modules/{release}/modules.builtin")).unwrap_or_default();
        let file = format!("/{module}.ko");
        list.lines().any(|line| line.ends_with(&file))
    };
    is_loaded || built_in()
}
