//! Storage by ranks of one host, beside IOR, mdtest and elbencho: the same shape on the same directories, in memory and
//! on the disk of this tree, in rounds.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    error::BenchError,
    fingerprint, program,
    results::{Spread, range, spread},
    storage_program::{BLOCK_MIB, CPU, Case, Figures, ITEMS, Program},
};

/// Heading of this part of the page.
pub(crate) const TITLE: &str = "# Storage";

/// Rounds of a streaming case for each one that was requested: its phases take a fraction of a second.
const STREAMING_ROUNDS: u32 = 3;

/// Figures of a round, in the order of the programs.
type Round = Vec<Figures>;

/// Whether the peers are in PATH.
pub(crate) fn has_peers() -> bool {
    ["ior", "mdtest", "mpirun"].into_iter().all(program::is_in_path)
}

/// Runs the rounds of every case whose title has `matching`; returns this part of the page, also when it ended early.
pub(crate) fn compare(
    rounds: u32,
    matching: &str,
    command: &str,
    stop: &AtomicBool,
) -> (String, Result<(), BenchError>) {
    let mut measured = Vec::new();
    let mut outcome = Ok(());
    let programs = Program::all();
    let places = match directories() {
        Ok(places) => places,
        Err(error) => return (page(command, &programs, &[], Some(&error)), Err(error)),
    };
    for case in cases(&places).into_iter().filter(|case| case.title().contains(matching)) {
        println!("  {}", case.title());
        let mut all = Vec::new();
        let rounds = if case.is_metadata { rounds } else { rounds * STREAMING_ROUNDS };
        for number in 0..rounds {
            match round(&case, &programs, number as usize, stop) {
                Ok(one) => all.push(one),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        measured.push((case, all));
        if outcome.is_err() {
            break;
        }
    }
    for place in places {
        place.leave();
    }
    (page(command, &programs, &measured, outcome.as_ref().err()), outcome)
}

/// Every program once. Another one begins in each round, and what the ones before have written is on the disk, where
/// it slows nobody down.
fn round(case: &Case, programs: &[Program], number: usize, stop: &AtomicBool) -> Result<Round, BenchError> {
    let mut round = vec![Figures::new(); programs.len()];
    for turn in 0..programs.len() {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        let place = (turn + number) % programs.len();
        rustix::fs::sync();
        round[place] = programs[place].run(case)?;
    }
    Ok(round)
}

/// A directory that is measured in.
struct Place {
    directory: PathBuf,
    /// A name of it elsewhere, since elbencho works on nothing below `/dev`.
    link: Option<PathBuf>,
    is_memory: bool,
}

impl Place {
    fn leave(self) {
        // The directory is empty, unless a run was killed.
        let _ = std::fs::remove_dir(&self.directory);
        if let Some(link) = self.link {
            let _ = std::fs::remove_file(link);
        }
    }
}

fn directories() -> Result<[Place; 2], BenchError> {
    let name = format!("clearstream-bench-{}", std::process::id());
    let memory = Path::new("/dev/shm").join(&name);
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let (disk, link) = (target.join(&name), target.join(format!("{name}-memory")));
    let made = std::fs::create_dir(&memory)
        .and_then(|()| std::fs::create_dir(&disk))
        .and_then(|()| std::os::unix::fs::symlink(&memory, &link));
    made.map_err(|source| BenchError::File { path: target, source })?;
    Ok([
        Place { directory: memory, link: Some(link), is_memory: true },
        Place { directory: disk, link: None, is_memory: false },
    ])
}

fn cases(places: &[Place]) -> Vec<Case> {
    let mut cases = Vec::new();
    for Place { directory, link, is_memory } in places {
        for is_metadata in [false, true] {
            for ranks in [1, 2] {
                let directory = link.as_ref().unwrap_or(directory).clone();
                cases.push(Case { directory, is_memory: *is_memory, ranks, is_metadata });
            }
        }
    }
    cases
}

/// The bound of a ratio to each peer: memory shows the programs alone, and CPU time may not be more.
fn is_met(case: &Case, operation: &str, ratio: f64) -> bool {
    match (operation, case.is_memory) {
        (CPU, _) => ratio <= 1.0,
        (_, true) => ratio >= 1.0,
        (_, false) => ratio >= 0.98,
    }
}

fn page(
    command: &str,
    programs: &[Program],
    measured: &[(Case, Vec<Round>)],
    ended: Option<&BenchError>,
) -> String {
    let mut page = format!(
        "{TITLE}\n\nMade by `{command}`. `storage stream` beside IOR and elbencho ({BLOCK_MIB} MiB of each rank \
         in one shared file, transfers of 1 MiB, written and read back from the page cache), `storage metadata` \
         beside mdtest and elbencho (create, stat and remove of {ITEMS} empty files of each rank in one \
         directory), one after the other, each after sync(2), taking turns in who begins. Ranks of ours and \
         elbencho's are threads, those of IOR and mdtest processes of Open MPI. MiB/s, operations per second, and \
         CPU time of all processes in seconds, with starting. Medians with the least and the largest of the \
         rounds; ratios are those within a round. Targets for the ratio to each peer: 0.98 on the disk, 1.0 in \
         memory, no more CPU time.\n\n"
    );
    if let Some(error) = ended {
        let _ = writeln!(page, "**Note:** not complete: {error}\n");
    }
    if !programs.contains(&Program::Elbencho) {
        page.push_str("**Note:** elbencho is not in the PATH.\n\n");
    }
    page.push_str(
        "| case | operation | rounds | ours | IOR, mdtest | elbencho | to IOR, mdtest | to elbencho | verdict |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (case, rounds) in measured.iter().filter(|(_, rounds)| !rounds.is_empty()) {
        for operation in case.operations() {
            page.push_str(&row(case, operation, programs, rounds));
        }
    }
    page.push('\n');
    page.push_str(&fingerprint::table(&fingerprint::machine()));
    page
}

fn row(case: &Case, operation: &str, programs: &[Program], rounds: &[Round]) -> String {
    let place = |program| programs.iter().position(|one| *one == program);
    let figures = |place: usize| spread(rounds.iter().map(|round| round[place][operation]));
    let ratio =
        |place: usize| spread(rounds.iter().map(|round| round[0][operation] / round[place][operation]));
    let digits = if operation == CPU { 2 } else { 0 };
    let peers = [place(Program::OfMpi), place(Program::Elbencho)];
    let text = |cell: Option<Spread>, digits| cell.map_or("-".to_owned(), |cell| range(cell, digits));
    let ratios = peers.map(|peer| peer.map(ratio));
    let all_met = ratios.iter().flatten().all(|ratio| is_met(case, operation, ratio.median));
    format!(
        "| {} | {operation} | {} | {} | {} | {} | **{}** | **{}** | {} |\n",
        case.title(),
        rounds.len(),
        range(figures(0), digits),
        text(peers[0].map(figures), digits),
        text(peers[1].map(figures), digits),
        text(ratios[0], 2),
        text(ratios[1], 2),
        if all_met { "met" } else { "missed" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_to_any_peer_beyond_its_bound_is_missed() {
        let case = |is_memory| Case { directory: "/x".into(), is_memory, ranks: 1, is_metadata: false };
        let figures = |write, cpu| Figures::from([("write", write), ("read", 1.0), (CPU, cpu)]);
        let programs = [Program::Ours, Program::OfMpi, Program::Elbencho];
        let rounds = vec![vec![figures(0.99, 1.0), figures(0.5, 1.0), figures(1.0, 0.9)]];
        let measured = [(case(true), rounds.clone()), (case(false), rounds)];
        let page = page("make bench", &programs, &measured, None);
        let verdicts = |operation: &str| -> Vec<String> {
            let rows = page.lines().filter(|line| line.contains(&format!("| {operation} |")));
            rows.map(|line| line.rsplit("| ").next().unwrap().to_owned()).collect()
        };
        assert_eq!(verdicts("write"), ["missed |", "met |"], "{page}");
        assert_eq!(verdicts("read"), ["met |", "met |"], "{page}");
        assert_eq!(verdicts(CPU), ["missed |", "missed |"], "{page}");
    }
}
