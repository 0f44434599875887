//! A folder with an inventory: hosts, their groups, and the variables of both.

use std::{collections::BTreeMap, path::Path};

use clearstream_sys::document;

use super::{read, variables};
use crate::read::{
    ReadError, Reading,
    gathering::Gathering,
    yaml::{self, Yaml},
};

/// Whether a folder is one.
pub(crate) fn is_inventory(path: &Path) -> bool {
    path.join("inventory.yml").is_file() && path.join("host_vars").is_dir()
}

/// A file of variables and its documents.
struct Variables {
    file: String,
    documents: Vec<Yaml>,
}

/// Reads it: a variable of a host takes the place of its group's, as in Ansible.
pub(crate) fn folder(path: &Path) -> Result<Reading, ReadError> {
    let mut reading = Reading::default();
    let mut gathering = Gathering::default();
    let Some(inventory) = variables_of(&path.join("inventory.yml"), &mut gathering)? else {
        let nearest = "an inventory of Ansible without groups".to_owned();
        return Err(ReadError::Nothing { path: path.to_owned(), nearest });
    };
    let mut groups: BTreeMap<String, Option<Variables>> = BTreeMap::new();
    let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for document in &inventory.documents {
        for (name, group) in document.entries() {
            members(name.text().unwrap_or_default(), group, &mut hosts);
        }
    }
    for (host, names) in hosts {
        let own = variables_of(&path.join("host_vars").join(format!("{host}.yml")), &mut gathering)?;
        let mut host_gathering = Gathering::default();
        for name in &names {
            if !groups.contains_key(name) {
                let file = path.join("group_vars").join(format!("{name}.yml"));
                groups.insert(name.clone(), variables_of(&file, &mut gathering)?);
            }
        }
        let group_variables: Vec<&Variables> =
            names.iter().filter_map(|name| groups.get(name)).flatten().collect();
        read_host(&group_variables, own.as_ref(), &mut host_gathering);
        let (mut routing, unread) = host_gathering.finish();
        routing.host = host;
        routing.files.read_files.insert(inventory.file.clone());
        reading.hosts.push(routing);
        reading.unread.extend(unread);
    }
    reading.unread.extend(gathering.finish().1);
    Ok(reading)
}

fn read_host(groups: &[&Variables], own: Option<&Variables>, gathering: &mut Gathering) {
    let has =
        |variables: &Variables, name: &str| variables.documents.iter().any(|known| known.get(name).is_some());
    for variables in groups.iter().copied() {
        for document in &variables.documents {
            for (key, value) in document.entries() {
                let name = key.text().unwrap_or_default();
                if own.is_none_or(|own| !has(own, name)) {
                    read::entry(&variables.file, key, value, gathering);
                }
            }
        }
    }
    for document in own.iter().flat_map(|own| &own.documents) {
        read::read(own.map_or("", |own| own.file.as_str()), document, gathering);
    }
}

/// Hosts of a group and of its children. The group of all hosts has no
/// variables of its own.
fn members(name: &str, group: &Yaml, hosts: &mut BTreeMap<String, Vec<String>>) {
    for (host, _) in group.get("hosts").map(Yaml::entries).unwrap_or_default() {
        let groups = hosts.entry(host.text().unwrap_or_default().to_owned()).or_default();
        if name != variables::ALL_HOSTS {
            groups.push(name.to_owned());
        }
    }
    for (child, group) in group.get("children").map(Yaml::entries).unwrap_or_default() {
        members(child.text().unwrap_or_default(), group, hosts);
    }
}

fn variables_of(path: &Path, gathering: &mut Gathering) -> Result<Option<Variables>, ReadError> {
    let file = path.display().to_string();
    let bytes = match document::read(path, document::DOCUMENT_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ReadError::File { path: path.to_owned(), source }),
    };
    match yaml::documents(&String::from_utf8_lossy(&bytes)) {
        Ok(documents) => Ok(Some(Variables { file, documents })),
        Err(yaml::NoYaml(line, reason)) => {
            gathering.unread(&file, line, "", format!("no YAML: {reason}"));
            Ok(None)
        }
    }
}
