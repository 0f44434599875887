//! Programs that measure storage with the same shape: ours, IOR and mdtest, elbencho; their command lines and what
//! they print.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{error::BenchError, program, run::reaped_output_of, tool::shown};

/// Time that a run takes at most, in seconds.
const SECONDS: u32 = 60;
/// Bytes of each rank, small enough that those of all fit into memory.
pub(crate) const BLOCK_MIB: u32 = 512;
/// Files of each rank.
pub(crate) const ITEMS: u32 = 50_000;
/// Key of the CPU time among the figures, in seconds.
pub(crate) const CPU: &str = "CPU time";

/// Figures of one run: rates by operation, higher is better, and [`CPU`].
pub(crate) type Figures = BTreeMap<&'static str, f64>;

/// What is compared.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) directory: PathBuf,
    pub(crate) is_memory: bool,
    pub(crate) ranks: u32,
    pub(crate) is_metadata: bool,
}

impl Case {
    pub(crate) fn title(&self) -> String {
        let place = if self.is_memory { "tmpfs" } else { "disk" };
        let what = if self.is_metadata { "files" } else { "streaming" };
        format!("{what}, {place}, {} rank{}", self.ranks, if self.ranks == 1 { "" } else { "s" })
    }

    pub(crate) fn operations(&self) -> &'static [&'static str] {
        if self.is_metadata { &["create", "stat", "remove", CPU] } else { &["write", "read", CPU] }
    }
}

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Ours,
    /// IOR, or mdtest.
    OfMpi,
    Elbencho,
}

impl Program {
    /// All of them, where the last one is in PATH.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::Ours, Self::OfMpi];
        all.extend(program::is_in_path("elbencho").then_some(Self::Elbencho));
        all
    }

    pub(crate) fn run(self, case: &Case) -> Result<Figures, BenchError> {
        let (command, json) = match self {
            Self::Ours => (ours(case), None),
            Self::OfMpi => (of_mpi(case), None),
            Self::Elbencho => {
                let json = case.directory.with_extension("json");
                // It appends.
                let _ = std::fs::remove_file(&json);
                (elbencho(case, &json), Some(json))
            }
        };
        let line = shown(&command);
        let (output, reaped) = reaped_output_of(command, SECONDS)?;
        let output = match json {
            // What is not there has no phases, which is the error.
            Some(json) => {
                let text = std::fs::read_to_string(&json).unwrap_or_default();
                let _ = std::fs::remove_file(json);
                text
            }
            None => output,
        };
        let read = match (self, case.is_metadata) {
            (Self::Ours, false) => read_stream(&output),
            (Self::Ours, true) => read_metadata(&output),
            (Self::OfMpi, false) => read_ior(&output),
            (Self::OfMpi, true) => read_mdtest(&output),
            (Self::Elbencho, is_metadata) => read_elbencho(&output, is_metadata),
        };
        let mut figures = read.map_err(|message| BenchError::Run { line, message })?;
        figures.insert(CPU, (reaped.user + reaped.system).as_secs_f64());
        Ok(figures)
    }
}

fn ours(case: &Case) -> Command {
    let mut command = Command::new(program::path());
    let verb = if case.is_metadata { "metadata" } else { "stream" };
    command.args(["storage", verb]).arg(&case.directory).args(["--json", "--tasks"]);
    command.arg(case.ranks.to_string());
    match case.is_metadata {
        true => command.args(["-F", "-n", &ITEMS.to_string(), "--phases", "create,stat,remove"]),
        false => command.args(["-b", &format!("{BLOCK_MIB}m"), "-t", "1m"]),
    };
    command
}

fn of_mpi(case: &Case) -> Command {
    let peer = if case.is_metadata { "mdtest" } else { "ior" };
    let mut command = Command::new("mpirun");
    // Ranks of ours may use every core, and so may theirs.
    let ranks = case.ranks.to_string();
    command.args(["-H", &format!("localhost:{ranks}"), "-np", &ranks, "--bind-to", "none", peer]);
    let path = case.directory.join("peer");
    match case.is_metadata {
        true => command.args(["-F", "-C", "-T", "-r", "-n", &ITEMS.to_string(), "-d"]).arg(path),
        false => {
            let block = format!("{BLOCK_MIB}m");
            command
                .args(["-a", "POSIX", "-w", "-r", "-b", &block, "-t", "1m", "-O", "summaryFormat=JSON", "-o"])
                .arg(path)
        }
    };
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

/// Its threads share one file, or one directory, as the ranks of the others do.
fn elbencho(case: &Case, json: &Path) -> Command {
    let mut command = Command::new("elbencho");
    command.args(["-w", "-F", "--nolive", "-t", &case.ranks.to_string(), "--jsonfile"]).arg(json);
    match case.is_metadata {
        true => {
            let items = ITEMS.to_string();
            command.args(["-d", "-D", "--stat", "--dirsharing", "-s", "0", "-n", "1", "-N", &items]);
            command.arg(&case.directory)
        }
        false => {
            let bytes = format!("{}m", BLOCK_MIB * case.ranks);
            command.args(["-r", "-b", "1m", "-s", &bytes]).arg(case.directory.join("elbencho"))
        }
    };
    command
}

fn document(output: &str) -> Result<Value, String> {
    let begin = output.find('{').ok_or("no JSON")?;
    serde_json::from_str(&output[begin..]).map_err(|error| format!("no JSON: {error}"))
}

fn read_stream(output: &str) -> Result<Figures, String> {
    let document = document(output)?;
    let all = document["statistics"].as_array().ok_or("no statistics")?;
    let rate = |name: &'static str| {
        let found = all.iter().find(|one| one["phase"] == name).ok_or_else(|| format!("no {name}"))?;
        let bps = found["bandwidth_bps"]["mean"].as_f64().ok_or("no mean")?;
        Ok::<_, String>((name, bps / 8.0 / 1_048_576.0))
    };
    ["write", "read"].into_iter().map(rate).collect()
}

fn read_ior(output: &str) -> Result<Figures, String> {
    let document = document(output)?;
    let all = document["summary"].as_array().ok_or("no summary")?;
    let rate = |name: &'static str| {
        let found = all.iter().find(|one| one["operation"] == name).ok_or_else(|| format!("no {name}"))?;
        Ok::<_, String>((name, found["bwMeanMIB"].as_f64().ok_or("no mean")?))
    };
    ["write", "read"].into_iter().map(rate).collect()
}

const OPERATIONS: [(&str, &str); 3] =
    [("create", "File creation"), ("stat", "File stat"), ("remove", "File removal")];

fn read_metadata(output: &str) -> Result<Figures, String> {
    let document = document(output)?;
    let all = document["summary"].as_array().ok_or("no summary")?;
    let rate = |(name, _): (&'static str, &str)| {
        let is_it = |one: &&Value| one["operation"] == name && one["kind"] == "file";
        let found = all.iter().find(is_it).ok_or_else(|| format!("no {name}"))?;
        let rate = found["operations_per_second"]["mean"].as_f64().ok_or("no mean")?;
        Ok::<_, String>((name, rate))
    };
    OPERATIONS.into_iter().map(rate).collect()
}

fn read_mdtest(output: &str) -> Result<Figures, String> {
    let rate = |(name, label): (&'static str, &str)| {
        let line = output.lines().find_map(|line| line.trim().strip_prefix(label));
        let mean =
            line.and_then(|line| line.split_whitespace().nth(2)).ok_or_else(|| format!("no {label}"))?;
        let mean = mean.parse().map_err(|_| format!("{label}: {mean} is no rate"))?;
        Ok::<_, String>((name, mean))
    };
    OPERATIONS.into_iter().map(rate).collect()
}

/// A line of JSON for each phase; rates are those at the end of the last thread.
fn read_elbencho(output: &str, is_metadata: bool) -> Result<Figures, String> {
    let phases: Vec<Value> = output
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let rate = |(name, phase, key, divisor): (&'static str, &str, &str, f64)| {
        let found = phases.iter().find(|one| one["phase_type"] == phase);
        let text = found.and_then(|one| one["last_done"][key].as_str());
        let rate = text.and_then(|text| text.parse::<f64>().ok()).ok_or_else(|| format!("no {phase}"))?;
        Ok::<_, String>((name, rate / divisor))
    };
    let entries = |name, phase| (name, phase, "entries/s", 1.0);
    let bytes = |name, phase| (name, phase, "bytes/s", 1_048_576.0);
    let all = match is_metadata {
        true => vec![entries("create", "WRITE"), entries("stat", "STAT"), entries("remove", "RMFILES")],
        false => vec![bytes("write", "WRITE"), bytes("read", "READ")],
    };
    all.into_iter().map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As IOR 4.1.0+dev, mdtest of the same sources and elbencho 3.1-10 print it.
    #[test]
    fn outputs_of_the_peers_are_read() {
        let ior = "IOR-4.1.0+dev\n{\"summary\": [{\"operation\": \"write\", \"bwMeanMIB\": 1157.1142}, \
                   {\"operation\": \"read\", \"bwMeanMIB\": 4576.6315}]}";
        assert_eq!(read_ior(ior), Ok(Figures::from([("write", 1157.1142), ("read", 4576.6315)])));
        let mdtest = "   File creation             165338.379     165338.379     165338.379          0.000\n\
                      \x20  File stat                 611949.810     611949.810     611949.810          0.000\n\
                      \x20  File removal              227802.737     227802.737     227802.737          0.000\n";
        let expected = Figures::from([("create", 165338.379), ("stat", 611949.81), ("remove", 227802.737)]);
        assert_eq!(read_mdtest(mdtest), Ok(expected));
        assert!(read_mdtest("").is_err() && read_ior("{}").is_err());
        let phase = |phase: &str, key: &str, first: &str, last: &str| {
            format!(
                "{{\"phase_type\":\"{phase}\",\"first_done\":{{\"{key}\":\"{first}\"}},\
                 \"last_done\":{{\"{key}\":\"{last}\"}}}}\n"
            )
        };
        let stream = phase("WRITE", "bytes\\/s", "1882146204", "1845285012")
            + &phase("READ", "bytes\\/s", "4256488638", "4160048599");
        let found = read_elbencho(&stream, false).unwrap();
        assert!((found["write"] - 1759.8).abs() < 0.1 && (found["read"] - 3967.3).abs() < 0.1, "{found:?}");
        let files = phase("MKDIRS", "entries\\/s", "2732", "505")
            + &phase("WRITE", "entries\\/s", "163995", "152610")
            + &phase("STAT", "entries\\/s", "855724", "793414")
            + &phase("RMFILES", "entries\\/s", "140636", "135053");
        let expected = Figures::from([("create", 152610.0), ("stat", 793414.0), ("remove", 135053.0)]);
        assert_eq!(read_elbencho(&files, true), Ok(expected));
        assert!(read_elbencho("", true).is_err());
    }
}
