//! Batches of `ip` with a unit of systemd; as a reader, whatever calls `ip` or
//! was printed by it, the names that it knows, and rules of nftables.

use clearstream_schema::routing::Located;

use crate::{
    backend::Backend,
    read::{
        Source,
        detect::{FileName, Reader, Turn},
        gathering::{Gathering, place},
        ini, ip_arguments, nftables, script, values,
    },
    routes::{RouteFiles, Routes},
};

#[derive(Debug)]
pub(crate) struct Iproute2;

static ROUTES: Routes = Routes {
    next_step: "copy a host's folder to its /, then: systemctl daemon-reload; systemctl start clearstream-routes",
    files: RouteFiles::Batches,
};

const NFTABLES: Reader = Reader { turn: Turn::Nftables, read: nftables::read };

impl Backend for Iproute2 {
    fn name(&self) -> &'static str {
        "iproute2"
    }

    fn routes(&self) -> Option<&'static Routes> {
        Some(&ROUTES)
    }

    fn named(&self, name: &FileName<'_>) -> Option<Reader> {
        Some(match (name.name, name.folder, name.extension) {
            ("rt_tables", ..) | (_, "rt_tables.d", "conf") => Reader {
                turn: Turn::Names,
                read: |source, gathering| {
                    gathering.understood();
                    gathering.names.read_tables(&source.text);
                },
            },
            ("rt_protos", ..) | (_, "rt_protos.d", "conf") => Reader {
                turn: Turn::Names,
                read: |source, gathering| {
                    gathering.understood();
                    gathering.names.read_protocols(&source.text);
                },
            },
            ("modes", "routes", _) => Reader { turn: Turn::Interfaces, read: modes },
            (_, _, "nft") => NFTABLES,
            (_, _, "service") => Reader { turn: Turn::Units, read: unit },
            (_, _, "batch" | "sh") => script_of(name.name.contains("6.")),
            _ => return None,
        })
    }

    fn holding(&self, name: &FileName<'_>, text: &str) -> Option<Reader> {
        let is_of_nft = ["ct mark set", "masquerade", "snat "].iter().any(|keyword| text.contains(keyword));
        if is_of_nft && text.contains("chain ") {
            return Some(NFTABLES);
        }
        let ipv6 = ["rule6", "rules6", "-6"].iter().any(|part| name.name.contains(part));
        let is_printed = script::json::is_json(text)
            || script::net_tables::is_table(text)
            || text.lines().any(|line| is_of_ip(script::printed::behind_prompt(line).unwrap_or(line)));
        is_printed.then(|| script_of(ipv6))
    }
}

/// A script or batch; its name may show that it is for IPv6.
fn script_of(ipv6: bool) -> Reader {
    let read: fn(&Source, &mut Gathering) = if ipv6 {
        |source, gathering| script::read(source, Some(true), gathering)
    } else {
        |source, gathering| script::read(source, None, gathering)
    };
    Reader { turn: Turn::Scripts, read }
}

/// A line that calls `ip` or that `ip` printed.
fn is_of_ip(line: &str) -> bool {
    let mut tokens = line.split_whitespace().skip_while(|token| matches!(*token, "up" | "post-up" | "sudo"));
    let (mut first, mut second) = (tokens.next().unwrap_or_default(), tokens.next().unwrap_or_default());
    // `ip -details` begins each route with its type.
    if ip_arguments::TYPES.contains(&first) {
        (first, second) = (second, tokens.next().unwrap_or_default());
    }
    match (first, second) {
        (program, "route" | "rule" | "nexthop" | "-4" | "-6" | "address" | "addr" | "ro" | "ru" | "link")
            if program == "ip" || program.ends_with("/ip") =>
        {
            true
        }
        ("default", "via" | "dev" | "proto" | "nhid" | "table") => true,
        ("id", number) => {
            number.parse::<u32>().is_ok() && (line.contains(" via ") || line.contains(" group "))
        }
        (number, "from" | "not") => {
            number.strip_suffix(':').is_some_and(|number| number.parse::<u32>().is_ok())
        }
        (number, name) if number.strip_suffix(':').is_some_and(|number| number.parse::<u32>().is_ok()) => {
            name.ends_with(':') && line.contains(" mtu ")
        }
        ("nexthop", "via" | "dev") => true,
        (prefix, "via" | "dev" | "proto" | "nhid" | "nexthop" | "table" | "metric" | "scope" | "\\") => {
            values::prefix(prefix).is_some()
        }
        _ => false,
    }
}

/// `ib0 connected`.
fn modes(source: &Source, gathering: &mut Gathering) {
    for (line, text) in (1..).zip(source.text.lines()) {
        let mut tokens = text.split_whitespace();
        match (tokens.next(), tokens.next().and_then(script::infiniband_mode)) {
            (Some(interface), Some(value)) => {
                let place = Some(place(&source.path, line));
                gathering.interface(interface).infiniband_mode = Some(Located { value, place });
            }
            (Some(_), None) => gathering.unread(&source.path, line, text, "no interface with its mode"),
            (None, _) => {}
        }
    }
}

/// `ExecStart=/sbin/ip rule add ...`
fn unit(source: &Source, gathering: &mut Gathering) {
    let (sections, _) = ini::sections(&source.text);
    let service = sections.iter().filter(|section| section.name == "Service");
    for entry in service.flat_map(|section| &section.entries) {
        if matches!(entry.key, "ExecStart" | "ExecStartPre" | "ExecStartPost") {
            let command = entry.value.trim_start_matches(['-', '@', '+', '!', ':']);
            script::line(&source.path, entry.line, command, gathering);
        }
    }
}
