//! Values that make the kernel load a module when root writes them: names of
//! congestion controls (`tcp_set_default_congestion_control`) and of queueing
//! disciplines (`qdisc_set_default`, `qdisc_create`), and what tables of nft are
//! made of (`nft_request_module`).

use clearstream_netlink::Discipline;
use clearstream_schema::plan::Setting;

use crate::{
    Fault, SettingError,
    files::{self, Files},
    qdisc,
};

const CONGESTION_CONTROL: &str = "proc/sys/net/ipv4/tcp_congestion_control";
const CONGESTION_CONTROLS: &str = "proc/sys/net/ipv4/tcp_available_congestion_control";
const DEFAULT_DISCIPLINE: &str = "proc/sys/net/core/default_qdisc";

/// Disciplines that every kernel has (net/sched/sch_api.c, `pktsched_init`).
const ALWAYS: [&str; 5] = ["bfifo", "mq", "noqueue", "pfifo", "pfifo_fast"];

/// Keywords of nft(8) that nf_tables implements itself since Linux 5.2, or that
/// nft_ct implements: they match, mark, accept and drop. Others load modules
/// (`nat`, `fib`, `socket`, `tproxy`, `queue`, `log`, `limit` ...).
const TABLE_KEYWORDS: [&str; 43] = [
    "accept",
    "chain",
    "comment",
    "ct",
    "daddr",
    "direction",
    "dport",
    "drop",
    "established",
    "ether",
    "filter",
    "forward",
    "hook",
    "iif",
    "iifname",
    "input",
    "ip",
    "ip6",
    "l4proto",
    "mangle",
    "mark",
    "meta",
    "new",
    "oif",
    "oifname",
    "original",
    "output",
    "policy",
    "postrouting",
    "prerouting",
    "priority",
    "raw",
    "related",
    "reply",
    "return",
    "route",
    "saddr",
    "set",
    "sport",
    "state",
    "tcp",
    "type",
    "udp",
];

/// Fails for a value for which the kernel would load a module.
pub(crate) fn check(files: &Files, setting: &Setting, value: &str) -> Result<(), SettingError> {
    let needed = |module: &str| match is_there(files, module) {
        true => Ok(()),
        false => Err(Fault::NotLoaded { module: module.to_owned() }.of(setting)),
    };
    let discipline = |name: &str| match ALWAYS.contains(&name) {
        true => Ok(()),
        false => needed(&format!("sch_{name}")),
    };
    match setting {
        Setting::Sysctl(key) => match files::of_sysctl(setting, key)?.as_str() {
            CONGESTION_CONTROL => {
                let there = files.text(CONGESTION_CONTROLS).unwrap_or_default();
                match there.split_whitespace().any(|name| name == value.trim()) {
                    true => Ok(()),
                    false => Err(Fault::NotLoaded { module: format!("tcp_{}", value.trim()) }.of(setting)),
                }
            }
            DEFAULT_DISCIPLINE => discipline(value.trim()),
            _ => Ok(()),
        },
        Setting::Qdisc { .. } if !qdisc::is_default(value) => match value.parse::<Discipline>() {
            Ok(wanted) => discipline(wanted.kind()),
            // An invalid text is refused later.
            Err(_) => Ok(()),
        },
        Setting::NetfilterTable { .. } => {
            let keywords = table_keywords(value);
            if let Some(keyword) = keywords.iter().find(|keyword| !TABLE_KEYWORDS.contains(keyword)) {
                let reason =
                    format!("over TLS a table only matches, marks, accepts and drops: not \"{keyword}\"");
                return Err(Fault::Invalid { reason }.of(setting));
            }
            // Setting a field of a packet redirects it (nft(8), PAYLOAD STATEMENT).
            if keywords
                .iter()
                .zip(keywords.iter().skip(1))
                .any(|(before, word)| *word == "set" && *before != "mark")
            {
                let reason = "over TLS a table only matches, marks, accepts and drops: it sets marks alone";
                return Err(Fault::Invalid { reason: reason.to_owned() }.of(setting));
            }
            needed("nf_tables")?;
            if keywords.contains(&"ct") { needed("nft_ct") } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Keywords of a table, without names of chains and quoted strings.
fn table_keywords(text: &str) -> Vec<&str> {
    let plain = text.split('"').step_by(2);
    let is_between = |letter: char| letter.is_whitespace() || "{};,=!<>&|()".contains(letter);
    let keywords = plain.flat_map(|part| part.split(is_between)).filter(|keyword| !keyword.is_empty());
    let mut is_name = false;
    keywords
        .filter(|keyword| {
            let is_chain = std::mem::replace(&mut is_name, *keyword == "chain");
            // Numbers and addresses of links and hosts.
            let is_number = keyword
                .starts_with(|first: char| first.is_ascii_digit() || "-+.:".contains(first))
                || keyword.contains(':');
            !is_chain && !is_number
        })
        .collect()
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A host with these modules loaded, and sch_fq_codel built in.
    fn host(modules: &str) -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/modules", modules),
            ("proc/sys/kernel/osrelease", "6.1.0-56-amd64"),
            ("lib/modules/6.1.0-56-amd64/modules.builtin", "kernel/net/sched/sch_fq_codel.ko"),
            (CONGESTION_CONTROLS, "reno cubic"),
        ] {
            let file = folder.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{text}\n")).unwrap();
        }
        let files = Files::directory(folder.path());
        (folder, files)
    }

    fn refused(files: &Files, setting: &Setting, value: &str) -> Option<String> {
        check(files, setting, value).err().map(|error| error.to_string())
    }

    #[test]
    fn what_would_load_a_module_is_refused() {
        let (_folder, files) = host("nf_tables 300000 1 nft_ct, Live 0x0\nnft_ct 24576 0 - Live 0x0");
        let sysctl = |key: &str| Setting::Sysctl(key.to_owned());
        let qdisc = || Setting::Qdisc { interface: "eth0".to_owned() };
        let table = || Setting::NetfilterTable { name: "clearstream_a".to_owned() };
        let chain =
            |rule: &str| format!("chain in {{ type filter hook input priority 0; policy accept; {rule}; }};");
        for (setting, value, module) in [
            (sysctl("net.ipv4.tcp_congestion_control"), "bbr", "tcp_bbr"),
            (sysctl("net/ipv4/tcp_congestion_control"), "../x", "tcp_../x"),
            (sysctl("net.core.default_qdisc"), "fq", "sch_fq"),
            (sysctl("net.core.default_qdisc"), "netem", "sch_netem"),
            (qdisc(), "tbf rate 1mbit burst 10kb limit 100kb", "sch_tbf"),
        ] {
            let error = refused(&files, &setting, value).unwrap_or_else(|| panic!("{setting} {value}"));
            assert!(error.contains(&format!("would load the kernel module {module}")), "{error}");
        }
        for rule in [
            "masquerade",
            "dnat to 10.0.0.1",
            "tcp dport 22 redirect to :2222",
            "log",
            "limit rate 1/second",
            "queue num 0",
            "fib saddr oif 0 drop",
            "ip saddr @a drop",
            "meta nftrace set 1",
            "ip daddr set 192.0.2.1",
            "tcp dport 22 tcp dport set 23",
        ] {
            let error = refused(&files, &table(), &chain(rule)).unwrap_or_else(|| panic!("{rule}"));
            assert!(error.contains("only matches, marks, accepts and drops"), "{error}");
        }
        assert!(refused(&files, &table(), "chain n { type nat hook prerouting priority 0; };").is_some());
        for (setting, value) in [
            (sysctl("net.ipv4.tcp_congestion_control"), "cubic"),
            (sysctl("net.core.default_qdisc"), "fq_codel"),
            (sysctl("net.core.default_qdisc"), "pfifo_fast"),
            (sysctl("net.ipv4.tcp_sack"), "0"),
            (qdisc(), "pfifo limit 10p"),
            (qdisc(), "default noqueue"),
            (
                table(),
                &chain(
                    "iifname \"log\" ct state new ether saddr 02:00:00:00:00:01 ct mark set 7001 comment \"gw1 nat\"",
                ),
            ),
            (table(), &chain("ct direction reply meta mark set ct mark")),
            (table(), &chain("ip saddr 10.0.0.0/8 ip6 daddr fd01::/64 drop")),
        ] {
            assert_eq!(refused(&files, &setting, value), None, "{setting} {value}");
        }
        let (_folder, bare) = host("");
        let error = refused(&bare, &table(), &chain("drop")).unwrap();
        assert!(error.contains("nf_tables"), "{error}");
    }
}
