//! Storage by ranks of one host, beside IOR and mdtest: the same shape on the same directories, in memory and on the disk
//! of this tree, in pairs.

use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::Value;

use crate::{
    error::BenchError,
    fingerprint, program,
    results::{range, spread},
    run::output_of,
    tool::shown,
};

/// Heading of this part of the page.
pub(crate) const TITLE: &str = "# Storage";

/// Time that a run takes at most, in seconds.
const SECONDS: u32 = 60;
/// Bytes of each rank, small enough that both fit into memory.
const BLOCK: &str = "128m";
const ITEMS: &str = "20000";

/// Rates of one run by operation; higher is better.
type Rates = BTreeMap<&'static str, f64>;

/// What is compared.
#[derive(Debug, Clone)]
struct Case {
    directory: PathBuf,
    is_memory: bool,
    ranks: u32,
    is_metadata: bool,
}

impl Case {
    fn title(&self) -> String {
        let place = if self.is_memory { "tmpfs" } else { "disk" };
        let what = if self.is_metadata { "files" } else { "streaming" };
        format!("{what}, {place}, {} rank{}", self.ranks, if self.ranks == 1 { "" } else { "s" })
    }

    /// The least ratio: memory shows the programs alone.
    fn bar(&self) -> f64 {
        if self.is_memory { 1.0 } else { 0.98 }
    }

    fn ours(&self) -> Command {
        let (directory, ranks) = (&self.directory, self.ranks.to_string());
        let mut command = Command::new(program::path());
        let verb = if self.is_metadata { "metadata" } else { "stream" };
        command.args(["storage", verb]).arg(directory).args(["--json", "--tasks", &ranks]);
        match self.is_metadata {
            true => command.args(["-F", "-n", ITEMS]),
            false => command.args(["-b", BLOCK, "-t", "1m"]),
        };
        command
    }

    fn peer(&self) -> Command {
        let peer = if self.is_metadata { "mdtest" } else { "ior" };
        let mut command = Command::new("mpirun");
        // Ranks of ours may use every core, and so may theirs.
        let ranks = self.ranks.to_string();
        command.args(["-H", &format!("localhost:{ranks}"), "-np", &ranks, "--bind-to", "none", peer]);
        let path = self.directory.join("peer");
        match self.is_metadata {
            true => command.args(["-F", "-n", ITEMS, "-d"]).arg(path),
            false => command
                .args(["-a", "POSIX", "-w", "-r", "-b", BLOCK, "-t", "1m", "-O", "summaryFormat=JSON", "-o"])
                .arg(path),
        };
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command
    }

    fn run(&self, is_ours: bool, stop: &AtomicBool) -> Result<Rates, BenchError> {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        let command = if is_ours { self.ours() } else { self.peer() };
        let line = shown(&command);
        let output = output_of(command, SECONDS)?;
        let read = match (is_ours, self.is_metadata) {
            (true, false) => read_stream(&output),
            (true, true) => read_metadata(&output),
            (false, false) => read_ior(&output),
            (false, true) => read_mdtest(&output),
        };
        read.map_err(|message| BenchError::Run { line, message })
    }
}

/// Whether the peers are in PATH.
pub(crate) fn has_peers() -> bool {
    ["ior", "mdtest", "mpirun"].into_iter().all(program::is_in_path)
}

/// Runs the pairs of every case; returns this part of the page, also when it ended early.
pub(crate) fn compare(pairs: u32, command: &str, stop: &AtomicBool) -> (String, Result<(), BenchError>) {
    let mut measured = Vec::new();
    let mut outcome = Ok(());
    'cases: for case in cases() {
        println!("  {}", case.title());
        let mut runs = Vec::new();
        for pair in 0..pairs {
            let first = pair % 2 == 0;
            let one = case.run(first, stop).and_then(|one| Ok((one, case.run(!first, stop)?)));
            match one {
                Ok((one, other)) => runs.push(if first { (one, other) } else { (other, one) }),
                Err(error) => {
                    outcome = Err(error);
                    break 'cases;
                }
            }
        }
        measured.push((case, runs));
    }
    for directory in directories() {
        // It is empty, unless a run was killed.
        let _ = std::fs::remove_dir(directory.0);
    }
    (page(command, &measured, outcome.as_ref().err()), outcome)
}

fn directories() -> [(PathBuf, bool); 2] {
    let name = format!("clearstream-bench-{}", std::process::id());
    let disk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target").join(&name);
    [(Path::new("/dev/shm").join(&name), true), (disk, false)]
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (directory, is_memory) in directories() {
        // A directory that cannot be made is reported by the first run.
        let _ = std::fs::create_dir_all(&directory);
        for is_metadata in [false, true] {
            for ranks in [1, 2] {
                cases.push(Case { directory: directory.clone(), is_memory, ranks, is_metadata });
            }
        }
    }
    cases
}

fn document(output: &str) -> Result<Value, String> {
    let begin = output.find('{').ok_or("no JSON")?;
    serde_json::from_str(&output[begin..]).map_err(|error| format!("no JSON: {error}"))
}

fn read_stream(output: &str) -> Result<Rates, String> {
    let document = document(output)?;
    let all = document["statistics"].as_array().ok_or("no statistics")?;
    let rate = |name: &'static str| {
        let found = all.iter().find(|one| one["phase"] == name).ok_or_else(|| format!("no {name}"))?;
        let bps = found["bandwidth_bps"]["mean"].as_f64().ok_or("no mean")?;
        Ok::<_, String>((name, bps / 8.0 / 1_048_576.0))
    };
    ["write", "read"].into_iter().map(rate).collect()
}

fn read_ior(output: &str) -> Result<Rates, String> {
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

fn read_metadata(output: &str) -> Result<Rates, String> {
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

fn read_mdtest(output: &str) -> Result<Rates, String> {
    let rate = |(name, label): (&'static str, &str)| {
        let line = output.lines().find_map(|line| line.trim().strip_prefix(label));
        let mean =
            line.and_then(|line| line.split_whitespace().nth(2)).ok_or_else(|| format!("no {label}"))?;
        let mean = mean.parse().map_err(|_| format!("{label}: {mean} is no rate"))?;
        Ok::<_, String>((name, mean))
    };
    OPERATIONS.into_iter().map(rate).collect()
}

fn page(command: &str, measured: &[(Case, Vec<(Rates, Rates)>)], ended: Option<&BenchError>) -> String {
    let mut page = format!(
        "{TITLE}\n\nMade by `{command}`. `storage stream` beside IOR (blocks of 128 MiB in one shared file, transfers of \
         1 MiB, written and read back from the page cache), `storage metadata` beside mdtest ({ITEMS} empty files of \
         each rank in one directory), one after the other, taking turns in who begins. Ranks of ours are threads, \
         theirs processes of Open MPI. MiB/s and operations per second; medians with the least and the largest of \
         the pairs. Targets: 0.98 on the disk, 1.0 in memory.\n\n"
    );
    if let Some(error) = ended {
        let _ = writeln!(page, "**Note:** not complete: {error}\n");
    }
    page.push_str(
        "| case | operation | pairs | ours | peer | ratio | verdict |\n|---|---|---|---|---|---|---|\n",
    );
    for (case, runs) in measured.iter().filter(|(_, runs)| !runs.is_empty()) {
        let operations: &[&str] =
            if case.is_metadata { &["create", "stat", "remove"] } else { &["write", "read"] };
        for operation in operations {
            let ratio = spread(runs.iter().map(|(ours, peer)| ours[operation] / peer[operation]));
            let _ = writeln!(
                page,
                "| {} | {operation} | {} | {} | {} | **{}** | {} |",
                case.title(),
                runs.len(),
                range(spread(runs.iter().map(|(ours, _)| ours[operation])), 0),
                range(spread(runs.iter().map(|(_, peer)| peer[operation])), 0),
                range(ratio, 2),
                if ratio.median >= case.bar() { "met" } else { "missed" }
            );
        }
    }
    page.push('\n');
    page.push_str(&fingerprint::table(&fingerprint::machine()));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As IOR 4.1.0+dev and mdtest of the same sources print it.
    #[test]
    fn outputs_of_the_peers_are_read() {
        let ior = "IOR-4.1.0+dev\n{\"summary\": [{\"operation\": \"write\", \"bwMeanMIB\": 1157.1142}, \
                   {\"operation\": \"read\", \"bwMeanMIB\": 4576.6315}]}";
        assert_eq!(read_ior(ior), Ok(Rates::from([("write", 1157.1142), ("read", 4576.6315)])));
        let mdtest = "   File creation             165338.379     165338.379     165338.379          0.000\n\
                      \x20  File stat                 611949.810     611949.810     611949.810          0.000\n\
                      \x20  File removal              227802.737     227802.737     227802.737          0.000\n";
        let expected = Rates::from([("create", 165338.379), ("stat", 611949.81), ("remove", 227802.737)]);
        assert_eq!(read_mdtest(mdtest), Ok(expected));
        assert!(read_mdtest("").is_err() && read_ior("{}").is_err());
    }

    #[test]
    fn a_ratio_below_its_bar_is_missed() {
        let case = |is_memory| Case { directory: "/x".into(), is_memory, ranks: 1, is_metadata: false };
        let rates = |write| Rates::from([("write", write), ("read", 1.0)]);
        let runs = vec![(rates(0.99), rates(1.0))];
        let page = page("make bench", &[(case(true), runs.clone()), (case(false), runs)], None);
        let verdicts: Vec<&str> = page
            .lines()
            .filter(|line| line.contains("| write |"))
            .map(|line| line.rsplit("| ").next().unwrap())
            .collect();
        assert_eq!(verdicts, ["missed |", "met |"], "{page}");
    }
}
