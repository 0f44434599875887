//! A play that installs sysctls, and a script for the rest.

use std::fmt::Write;

use clearstream_schema::plan::Setting;

use crate::{
    formats::{shell, sysctl},
    settings::{File, Kept},
};

/// Sysctls go into sysctl.d; the rest into a script that a unit runs at boot.
pub(super) fn files(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    let mut text = format!(
        "---\n{head}- name: Settings planned by clearstream\n  hosts: \"{{{{ target | default('all') }}}}\"\n  become: true\n  tasks:\n"
    );
    let sysctls = sysctl::lines(kept);
    if !sysctls.is_empty() {
        text.push_str(&copy("Keep the sysctls", sysctl::SYSCTL_PATH, "0644", sysctls.trim_start()));
        text.push_str(&run("Set the sysctls", &["sysctl", "-q", "-p", sysctl::SYSCTL_PATH]));
    }
    if kept.iter().any(|kept| !matches!(kept.step.setting, Setting::Sysctl(_))) {
        let path = "/usr/local/sbin/clearstream-settings";
        text.push_str(&copy("Keep the other settings", path, "0755", &shell::script("", kept, false)));
        let unit = format!(
            "[Unit]\nDescription=Settings planned by clearstream\nAfter=network.target\n\n\
             [Service]\nType=oneshot\nExecStart={path}\n\n[Install]\nWantedBy=multi-user.target\n"
        );
        text.push_str(&copy(
            "Keep them over a boot",
            "/etc/systemd/system/clearstream-settings.service",
            "0644",
            &unit,
        ));
        text.push_str(&run("Reload the units", &["systemctl", "daemon-reload"]));
        text.push_str(&run(
            "Set the other settings",
            &["systemctl", "enable", "clearstream-settings.service"],
        ));
        text.push_str(&run("Make them now", &[path]));
    }
    vec![File { path: "clearstream.yml".to_owned(), mode: 0o644, text }]
}

fn copy(name: &str, path: &str, mode: &str, content: &str) -> String {
    let mut text = format!(
        "    - name: {name}\n      ansible.builtin.copy:\n        dest: {path}\n        mode: \"{mode}\"\n        content: |\n"
    );
    for line in content.lines() {
        // Text that Ansible would take for a template of its own is in reasons only.
        let line = line.replace("{{", "{ {").replace("{%", "{ %").replace("{#", "{ #");
        let _ = writeln!(text, "{}", format!("          {line}").trim_end());
    }
    text
}

fn run(name: &str, arguments: &[&str]) -> String {
    let mut text = format!("    - name: {name}\n      ansible.builtin.command:\n        argv:\n");
    for argument in arguments {
        let _ = writeln!(text, "          - \"{argument}\"");
    }
    text.push_str("      changed_when: true\n");
    text
}
