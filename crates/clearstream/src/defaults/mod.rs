//! The file of defaults, `~/.config/clearstream/config.toml`: options that would be repeated
//! on every call. They become arguments of the command line before it is parsed, so that
//! each option has one name, one form and one check, wherever it is written.
//!
//! The command line wins over a host's table, and that over the general one; ssh options add
//! up in this order, since ssh itself takes the first value of each.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io::ErrorKind,
    path::PathBuf,
};

use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory as _, parser::ValueSource};
use clearstream_configfile::{ConfigError, Fault, FileKind, Source, did_you_mean};
use clearstream_control::pairing;
use clearstream_schema::config::{CONFIG_SCHEMA, ConfigFile, Options};
use serde_json::Value;

use crate::{exit::CommandError, verbs::Cli};

const CONFIG: FileKind =
    FileKind { noun: "configuration", schema: CONFIG_SCHEMA, version: 1, folder: "", built_in: &[] };

/// Another file than the usual one; empty for none.
const VARIABLE: &str = "CLEARSTREAM_CONFIG";

/// Options that mean the same with every verb, by the ids of their arguments: they may stand
/// outside of the table of a verb.
const SHARED: [&str; 9] = [
    "address",
    "destination_port",
    "ipv4",
    "ipv6",
    "pairing",
    "receiver_cores",
    "remote_program",
    "sender_cores",
    "ssh_options",
];
/// Arguments of other verbs that are one of those under another id.
const PORT_IDS: [&str; 2] = ["port", "destination_port"];
/// Options that only a table of a host may have: they are of one host.
const OF_A_HOST: [&str; 2] = ["address", "pairing"];

/// A file of defaults that was read and checked.
#[derive(Debug)]
pub struct Defaults {
    source: Source,
    file: ConfigFile,
}

/// A value of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Where it stands, `host.dtn2.flow.duration`.
    pub key: String,
    /// Verb whose table it stands in; absent for all verbs.
    pub verb: Option<String>,
    /// Host whose table it stands in; absent for all hosts.
    pub host: Option<String>,
    /// The option, without its dashes.
    pub option: String,
    /// Its value.
    pub value: Value,
    /// Line in the file.
    pub line: usize,
}

/// The path of the file, and whether the environment names it.
pub fn path() -> Option<(PathBuf, bool)> {
    match std::env::var_os(VARIABLE) {
        Some(name) if name.is_empty() => None,
        Some(name) => Some((name.into(), true)),
        None => pairing::default_directory().ok().map(|folder| (folder.join("config.toml"), false)),
    }
}

impl Defaults {
    /// Reads and checks the file; `None` where there is none and none is named.
    ///
    /// # Errors
    /// A file that cannot be read or is invalid, with its line, key and a suggestion.
    pub fn load() -> Result<Option<Self>, CommandError> {
        let Some((path, named)) = path() else { return Ok(None) };
        // A bare name is a file here: there are no built-in ones.
        let path = if path.components().count() == 1 { PathBuf::from(".").join(path) } else { path };
        match CONFIG.find(&path.to_string_lossy()) {
            Ok(source) => Self::read(source).map(Some).map_err(CommandError::from),
            // It was not named, and a user without access to the folder has none there.
            Err(ConfigError::Read { source, .. })
                if !named && matches!(source.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn read(source: Source) -> Result<Self, ConfigError> {
        let file: ConfigFile = CONFIG.read(&source)?;
        let defaults = Self { source, file };
        let mut root = Cli::command();
        root.build();
        defaults.check(&root).map_err(|fault| defaults.source.invalid(fault))?;
        Ok(defaults)
    }

    /// The file, for messages.
    pub fn path(&self) -> &std::path::Path {
        self.source.path()
    }

    /// Every value of the file: with a host those that a call to it has, a host's table in
    /// front of the general one.
    pub fn settings(&self, host: Option<&str>) -> Vec<Setting> {
        let mut found = Vec::new();
        let tables: Vec<(&String, &Options)> = match host {
            Some(host) => {
                names(host).into_iter().filter_map(|name| self.file.host.get_key_value(name)).collect()
            }
            None => self.file.host.iter().collect(),
        };
        for (name, options) in tables {
            self.collect(&format!("host.{name}"), Some(name), &[], options, &mut found);
        }
        self.collect("defaults", None, &[], &self.file.defaults, &mut found);
        if host.is_some() {
            let mut seen = BTreeSet::new();
            found.retain(|setting| {
                let adds_up = ["ssh-option", "ssh-options"].contains(&setting.option.as_str());
                seen.insert((setting.verb.clone(), setting.option.clone())) || adds_up
            });
        }
        found
    }

    fn collect(
        &self,
        prefix: &str,
        host: Option<&str>,
        verb: &[&str],
        options: &Options,
        found: &mut Vec<Setting>,
    ) {
        for (name, value) in options {
            let key = format!("{prefix}.{name}");
            if let Value::Object(table) = value {
                let table: Options =
                    table.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                self.collect(&key, host, &[verb, &[name.as_str()]].concat(), &table, found);
                continue;
            }
            found.push(Setting {
                line: self.source.line_of(&key),
                key,
                verb: (!verb.is_empty()).then(|| verb.join(" ")),
                host: host.map(str::to_owned),
                option: name.clone(),
                value: value.clone(),
            });
        }
    }

    /// Each key is an option that there is, in a table that may have it.
    fn check(&self, root: &Command) -> Result<(), Fault> {
        let tables = self.file.host.iter().map(|(name, options)| (format!("host.{name}"), true, options));
        for (prefix, of_host, options) in tables.chain([("defaults".to_owned(), false, &self.file.defaults)])
        {
            check_table(&prefix, of_host, root, &mut Vec::new(), options)?;
        }
        Ok(())
    }

    /// Arguments that the file adds to a command line, each with the key that it is from.
    fn arguments(&self, call: &Call<'_>) -> Vec<(String, String)> {
        let (mut taken, mut decided) = (call.given.clone(), call.given.clone());
        let mut arguments = Vec::new();
        for setting in self.settings_for(call) {
            let Some(arg) = find(call.verb, &setting.option, setting.verb.is_none()) else { continue };
            let id = arg.get_id().to_string();
            let adds_up = matches!(arg.get_action(), ArgAction::Append) && id == "ssh_options";
            let excluded = taken.iter().any(|other| call.exclude(arg, other));
            if (decided.contains(&id) && !adds_up) || excluded || !call.has_effect(&id, &setting) {
                continue;
            }
            let long = arg.get_long().unwrap_or_default();
            for argument in as_arguments(long, arg, &setting.value) {
                arguments.push((argument, setting.key.clone()));
                taken.insert(id.clone());
            }
            // Also one that is off, which excludes nothing.
            decided.insert(id);
        }
        arguments.retain(|(argument, _)| needs::are_met(argument, &taken));
        arguments
    }

    /// Values for a call, those that win first: of the host's table the verb's own, the
    /// shared ones, then the general table's.
    fn settings_for(&self, call: &Call<'_>) -> Vec<Setting> {
        let fits = |setting: &Setting| setting.verb.as_ref().is_none_or(|verb| *verb == call.verb_path);
        let hosts = call.host.map(names).unwrap_or_default();
        let mut settings: Vec<Setting> = self.settings(None).into_iter().filter(fits).collect();
        settings.retain(|setting| setting.host.as_ref().is_none_or(|host| hosts.contains(&host.as_str())));
        let rank = |setting: &Setting| {
            let host = setting.host.as_ref().and_then(|host| hosts.iter().position(|name| name == host));
            (host.unwrap_or(hosts.len()), setting.verb.is_none())
        };
        settings.sort_by_key(rank);
        settings
    }
}

/// Names of a host whose tables a call takes: as it is written, and without user and brackets.
fn names(host: &str) -> Vec<&str> {
    let bare = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let bare = bare.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(bare, |(host, _)| host);
    if bare == host { vec![host] } else { vec![host, bare] }
}

fn check_table(
    prefix: &str,
    of_host: bool,
    command: &Command,
    verb: &mut Vec<String>,
    options: &Options,
) -> Result<(), Fault> {
    for (name, value) in options {
        let key = format!("{prefix}.{name}");
        let fault = |problem: String| Err(Fault { key: key.clone(), problem });
        if let Value::Object(table) = value {
            let Some(below) = command.find_subcommand(name).filter(|verb| reaches_hosts(verb)) else {
                let verbs: Vec<&str> = command
                    .get_subcommands()
                    .filter(|verb| reaches_hosts(verb))
                    .map(Command::get_name)
                    .collect();
                let hint = did_you_mean(name, verbs.iter().copied());
                return fault(format!("no verb `{name}` calls a host{hint} (known: {})", verbs.join(", ")));
            };
            verb.push(name.clone());
            let table: Options = table.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            check_table(&key, of_host, below, verb, &table)?;
            verb.pop();
            continue;
        }
        if value.as_array().is_some_and(|items| items.iter().any(|item| item.is_object() || item.is_array()))
        {
            return fault("an option is a text, a number, true, false, or a list of them".to_owned());
        }
        let known: Vec<String> = if verb.is_empty() {
            shared_options(of_host)
        } else {
            options_of(command).map(str::to_owned).collect()
        };
        let is_known = match verb.is_empty() {
            true => known.contains(name) || ["destination-port", "ssh-option"].contains(&name.as_str()),
            false => find(command, name, false).is_some(),
        };
        if !is_known {
            if verb.is_empty() && !of_host && OF_A_HOST.contains(&name.as_str()) {
                return fault("it is of one host: write it below [host.NAME]".to_owned());
            }
            let hint = did_you_mean(name, known.iter().map(String::as_str));
            let place =
                if verb.is_empty() { "; what one verb has stands in its table, [defaults.flow]" } else { "" };
            return fault(format!(
                "there is no option `{name}` here{hint} (known: {}){place}",
                known.join(", ")
            ));
        }
    }
    Ok(())
}

/// Names of the options that need no table of a verb.
fn shared_options(of_host: bool) -> Vec<String> {
    let fits = |id: &&&str| of_host || !OF_A_HOST.contains(*id);
    let name = |id: &&str| match *id {
        "destination_port" => "port".to_owned(),
        id => id.replace('_', "-"),
    };
    SHARED.iter().filter(fits).map(name).collect()
}

/// Whether a verb, or one below it, runs something on another host.
fn reaches_hosts(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == "remote_program")
        || command.get_subcommands().any(reaches_hosts)
}

/// Options of a verb that a file may set.
fn options_of(command: &Command) -> impl Iterator<Item = &str> {
    command.get_arguments().filter(|arg| may_be_set(arg)).filter_map(Arg::get_long)
}

fn may_be_set(arg: &Arg) -> bool {
    let decides_output = ["json", "json_stream", "log", "help", "version"].contains(&arg.get_id().as_str());
    !decides_output && !arg.is_hide_set()
}

/// The option of a verb that a key names: by its name, an older one, or as a list of hosts has
/// it (`ssh-options`). A shared one is only found where it means what it means everywhere.
fn find<'a>(verb: &'a Command, key: &str, shared: bool) -> Option<&'a Arg> {
    let arg = verb.get_arguments().filter(|arg| may_be_set(arg)).find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        let id = arg.get_id().as_str().replace('_', "-");
        arg.get_long().is_some() && (arg.get_long() == Some(key) || aliases.contains(&key) || id == key)
    })?;
    let id = arg.get_id().as_str();
    let fits = !shared || SHARED.contains(&id) || PORT_IDS.contains(&id);
    fits.then_some(arg)
}

/// Arguments of the command line for a value.
fn as_arguments(long: &str, arg: &Arg, value: &Value) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match value {
        Value::Bool(on) if !arg.get_action().takes_values() => {
            if *on {
                vec![format!("--{long}")]
            } else {
                Vec::new()
            }
        }
        Value::Array(items) if matches!(arg.get_action(), ArgAction::Append) => {
            items.iter().map(|item| format!("--{long}={}", text(item))).collect()
        }
        Value::Array(items) => {
            vec![format!("--{long}={}", items.iter().map(text).collect::<Vec<_>>().join(","))]
        }
        value => vec![format!("--{long}={}", text(value))],
    }
}

/// Access method of the other host of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// No other host, or a file that describes each.
    Other,
    Localhost,
    Daemon,
    Ssh,
}

/// A command line that was read once, without defaults.
struct Call<'a> {
    /// Names of the verb and its parents, `study run`.
    verb_path: String,
    verb: &'a Command,
    host: Option<&'a str>,
    access: Access,
    /// Ids of the arguments that were written.
    given: BTreeSet<String>,
}

impl<'a> Call<'a> {
    fn of(root: &'a Command, matches: &'a ArgMatches, file: &Defaults) -> Option<Self> {
        let (mut verb, mut matches, mut path) = (root, matches, Vec::new());
        while let Some((name, below)) = matches.subcommand() {
            verb = verb.find_subcommand(name)?;
            matches = below;
            path.push(name);
        }
        if !reaches_hosts(verb) {
            return None;
        }
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let ids = verb.get_arguments().map(|arg| arg.get_id().as_str());
        let given: BTreeSet<String> = ids.filter(|id| is_given(id)).map(str::to_owned).collect();
        let has = |id: &str| verb.get_arguments().any(|arg| arg.get_id() == id);
        let value = |id: &str| matches.try_get_one::<String>(id).ok().flatten().map(String::as_str);
        // SERVER of `rdma send`, `write` and `read` is reached without an agent: only `--to` has one.
        let has_server = has("to") && has("local");
        let host = value("to").or_else(|| value("host").filter(|_| !has_server));
        let mut call = Self { verb_path: path.join(" "), verb, host, access: Access::Other, given };
        call.access = call.access_to(file, has("to") || has("host"));
        Some(call)
    }

    fn access_to(&self, file: &Defaults, names_a_host: bool) -> Access {
        let given = |id: &str| self.given.contains(id);
        let argument = |id: &str| self.verb.get_arguments().find(|arg| arg.get_id() == id);
        // `route prove --host` is a choice among hosts and no file of them.
        let of_a_file = argument("hosts").is_some_and(|arg| arg.get_long() == Some("hosts"));
        if given("lab") || (given("hosts") && of_a_file) || given("local") {
            return Access::Other;
        }
        match self.host {
            Some("localhost") => Access::Localhost,
            Some(_) if given("pairing") => Access::Daemon,
            Some(_) => {
                let paired = argument("pairing").is_some()
                    && file.settings_for(self).iter().any(|setting| setting.option == "pairing");
                let by_ssh = given("ssh_options") || given("remote_program");
                if paired && !by_ssh { Access::Daemon } else { Access::Ssh }
            }
            // Several hosts that something else names, all by ssh.
            None if !names_a_host => Access::Ssh,
            None => Access::Other,
        }
    }

    /// Whether an option has an effect with this access: one without is an error on the command
    /// line, and ignored as a default.
    fn has_effect(&self, id: &str, setting: &Setting) -> bool {
        match (id, self.access) {
            ("ssh_options" | "remote_program", access) => access == Access::Ssh,
            ("pairing", access) => access == Access::Daemon,
            // Of all hosts, but a lab and this host itself are none.
            _ if setting.verb.is_none() && setting.host.is_none() => {
                matches!(self.access, Access::Ssh | Access::Daemon)
            }
            _ => true,
        }
    }

    /// Whether an argument and a present one exclude each other.
    fn exclude(&self, arg: &Arg, there: &str) -> bool {
        let Some(other) = self.verb.get_arguments().find(|arg| arg.get_id() == there) else { return false };
        let conflicts = |one: &Arg, other: &Arg| {
            self.verb.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id())
        };
        arg.get_id() != other.get_id() && (conflicts(arg, other) || conflicts(other, arg))
    }
}

/// The command line with the options of the file of defaults, and a line that names them;
/// `None` where it adds nothing.
///
/// # Errors
/// A file that is invalid, with line and key, also for a value that its option rejects.
pub fn extend(
    matches: &ArgMatches,
    arguments: &[OsString],
) -> Result<Option<(Vec<OsString>, String)>, CommandError> {
    // Building all verbs takes milliseconds, which a call without a file does not pay.
    if path().is_none_or(|(path, named)| !named && !path.exists()) {
        return Ok(None);
    }
    let mut root = Cli::command();
    root.build();
    if !matches_reach_hosts(&root, matches) {
        return Ok(None);
    }
    let Some(file) = Defaults::load()? else { return Ok(None) };
    let Some(call) = Call::of(&root, matches, &file) else { return Ok(None) };
    let added = file.arguments(&call);
    if added.is_empty() {
        return Ok(None);
    }
    let mut all = arguments.to_vec();
    // Arguments after `--` are no options.
    let end = all.iter().position(|argument| argument == "--").unwrap_or(all.len());
    all.splice(end..end, added.iter().map(|(argument, _)| OsString::from(argument)));
    if let Err(error) = Cli::command().try_get_matches_from(&all) {
        return Err(file.rejected(&added, &error).into());
    }
    let names: Vec<&str> = added.iter().map(|(argument, _)| argument.as_str()).collect();
    Ok(Some((all, format!("note: {} adds {}", file.path().display(), names.join(" ")))))
}

fn matches_reach_hosts(root: &Command, matches: &ArgMatches) -> bool {
    let (mut verb, mut matches) = (root, matches);
    while let Some((name, below)) = matches.subcommand() {
        let Some(found) = verb.find_subcommand(name) else { return false };
        (verb, matches) = (found, below);
    }
    reaches_hosts(verb)
}

impl Defaults {
    /// A value that its option rejects, as an error of the file.
    fn rejected(&self, added: &[(String, String)], error: &clap::Error) -> ConfigError {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let option = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
        let mut named: BTreeMap<usize, &str> = BTreeMap::new();
        for (argument, key) in added {
            // The first option that the message names is the one it is about.
            if let Some(at) = first.find(&option(argument)) {
                named.entry(at).or_insert(key);
            }
        }
        let key = named.first_key_value().map_or_else(|| added[0].1.clone(), |(_, key)| (*key).to_owned());
        let problem = first.trim_start_matches("error: ").to_owned();
        self.source.invalid(Fault { key, problem })
    }
}

mod needs;
#[cfg(test)]
mod tests;
