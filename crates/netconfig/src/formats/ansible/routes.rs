//! A play with an inventory: what all hosts of a class have in common is a
//! variable of their group, the rest is the host's.

use std::{collections::BTreeMap, fmt::Write};

use clearstream_routing::marks;
use clearstream_schema::routing::HostRouting;

use super::variables;
use crate::routes::{
    APPLY, MARKS_TEMPLATE, REMOVE, RenderedFile, SITE, UNIT, batches, ip_arguments::nexthops_and_routes,
};

/// A variable and its value as YAML.
type Variable = (&'static str, String);

/// What has been written so far.
#[derive(Debug, Default)]
pub(crate) struct Play {
    groups: BTreeMap<String, Group>,
}

#[derive(Debug)]
struct Group {
    variables: Vec<Variable>,
    hosts: Vec<String>,
}

impl Play {
    /// Adds a host; gives its own file of variables. The first host of a class
    /// sets the variables of the group.
    pub(crate) fn add(&mut self, class: &str, routing: &HostRouting) -> RenderedFile {
        let variables = shared(routing);
        let group = self
            .groups
            .entry(group_name(class))
            .or_insert_with(|| Group { variables: variables.clone(), hosts: Vec::new() });
        group.hosts.push(routing.host.clone());
        let mut text = list(variables::LINKS, &batches::links(routing)) + "\n";
        let own = variables.iter().zip(&group.variables).filter(|(own, groups)| own != groups);
        for ((_, value), _) in own {
            text.push_str(value);
            text.push('\n');
        }
        RenderedFile::text(format!("host_vars/{}.yml", routing.host), text)
    }

    /// The play, the inventory and the variables of groups.
    pub(crate) fn files(&self) -> Vec<RenderedFile> {
        let mut inventory = format!("{}:\n  children:\n", variables::ALL_HOSTS);
        let mut files = Vec::new();
        for (name, group) in &self.groups {
            let _ = write!(inventory, "    {name}:\n      hosts:\n");
            for host in &group.hosts {
                let _ = writeln!(inventory, "        \"{host}\":");
            }
            let text = group.variables.iter().map(|(_, value)| format!("{value}\n")).collect();
            files.push(RenderedFile::text(format!("group_vars/{name}.yml"), text));
        }
        files.push(RenderedFile::text("inventory.yml", inventory));
        files.push(RenderedFile::text("site.yml", SITE.to_owned()));
        files.push(RenderedFile::text("templates/marks.nft.j2", MARKS_TEMPLATE.to_owned()));
        files.push(RenderedFile::program("files/apply", APPLY));
        files.push(RenderedFile::program("files/remove", REMOVE));
        files.push(RenderedFile::text("files/clearstream-routes.service", UNIT.to_owned()));
        files
    }
}

/// Group names of Ansible are letters, digits and underscores.
fn group_name(class: &str) -> String {
    let name: String = class.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("class_{name}") }
}

/// Everything that hosts of a class may share, always in the same order.
fn shared(routing: &HostRouting) -> Vec<Variable> {
    let nexthops_and_routes: Vec<String> = nexthops_and_routes(&routing.nexthops, &routing.routes).collect();
    let set = marks::set(&routing.connection_marks);
    let mut sysctls = format!("{}:", variables::SYSCTLS);
    if routing.sysctls.is_empty() {
        sysctls.push_str(" {}");
    }
    for (key, located) in &routing.sysctls {
        let _ = write!(sysctls, "\n  \"{key}\": {}", quoted(&located.value));
    }
    vec![
        (variables::MODES, list(variables::MODES, &batches::modes(routing))),
        (variables::ROUTES, list(variables::ROUTES, &nexthops_and_routes)),
        (variables::RULES4, list(variables::RULES4, &batches::rules(&routing.rules, false))),
        (variables::RULES6, list(variables::RULES6, &batches::rules(&routing.rules, true))),
        (variables::MARKS, list(variables::MARKS, &marks::arrivals(&routing.connection_marks))),
        (variables::MARK_SET, format!("{}: {}", variables::MARK_SET, quoted(&set))),
        (variables::SYSCTLS, sysctls),
    ]
}

fn list(name: &str, lines: &[String]) -> String {
    let mut text = format!("{name}:");
    if lines.is_empty() {
        text.push_str(" []");
    }
    for line in lines {
        let _ = write!(text, "\n  - {}", quoted(line));
    }
    text
}

/// A double-quoted scalar (YAML 1.2, 7.3.1); control characters do not get here.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\t', "\\t"))
}
