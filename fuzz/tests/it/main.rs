//! Every target takes its corpus, mutations of it and the inputs that are hostile to any reader: the same in every run, in
//! seconds. What cargo-fuzz finds becomes a file of the corpus.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test may end by panic")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use clearstream_fuzz::{TARGETS, run};
use clearstream_stats::Random;

/// Mutations of each file of the corpus.
const MUTATIONS: u64 = 120;
const SEED: u64 = 20;
/// What the whole of it may take of memory.
const MOST_KIBIBYTES: u64 = 512 << 10;
/// Pieces that mean something to one reader or another.
const PIECES: [&[u8]; 22] = [
    b"\0",
    b"\n",
    b"\r",
    b"\"",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b"=",
    b"-1",
    b"0",
    b"true",
    b"null",
    b"[1-99]",
    b"18446744073709551616",
    b"-9223372036854775808",
    b"1e999",
    b"\xff",
    b"\xf0\x9f\x92\xa9",
    b"../",
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let files = fs::read_dir(corpus().join(name)).unwrap_or_else(|_| panic!("fuzz/corpus/{name} is missing"));
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "fuzz/corpus/{name} is empty");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// A place in the input, its end included.
fn place(random: &mut Random, input: &[u8]) -> usize {
    random.below(input.len() + 1)
}

fn mutated(seed: &[u8], others: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seed.to_vec();
    for _ in 0..=random.below(4) {
        let (one, two) = (place(random, &input), place(random, &input));
        let (from, to) = (one.min(two), one.max(two));
        match random.below(6) {
            0 => drop(input.drain(from..to)),
            1 => input.truncate(to),
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                input.splice(from..from, piece.iter().copied());
            }
            3 => {
                let part = input[from..to].to_vec();
                input.splice(to..to, part);
            }
            4 => {
                let other = &others[random.below(others.len())];
                let at = place(random, other);
                input.splice(from..to, other[at..].iter().copied());
            }
            _ => {
                if let Some(byte) = input.get_mut(from) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    input
}

/// Nested, chained and long; behind each byte that may select what is read.
fn hostile() -> Vec<Vec<u8>> {
    const LENGTH: usize = 1 << 14;
    let mut inputs: Vec<Vec<u8>> =
        ["", "null", "true", "1", "\"x\"", "[]", "{}", "[1]"].map(|text| text.as_bytes().to_vec()).into();
    let repeated = [
        "[", "{\"a\":", "(", "{", "x", "- ", "a+", "1,", "\n", "a = [", "a.", "\0", "\u{ff}", "-", "&a [*a,",
    ];
    inputs.extend(repeated.iter().map(|piece| piece.repeat(LENGTH / piece.len()).into_bytes()));
    inputs.push(vec![0xff; LENGTH]);
    inputs
}

#[test]
fn targets_are_the_folders_of_the_corpus() {
    let folders: BTreeSet<String> =
        fs::read_dir(corpus()).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(folders, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect());
}

#[test]
fn readers_stand_their_corpus_and_what_it_becomes() {
    for &(name, target) in TARGETS {
        let began = Instant::now();
        let seeds = seeds(name);
        for (number, seed) in seeds.iter().enumerate() {
            run(name, seed);
            for mutation in 0..MUTATIONS {
                let mut random = Random::split(SEED, (number as u64) << 32 | mutation);
                target(&mutated(seed, &seeds, &mut random));
            }
        }
        // Shown where it fails, and with --no-capture.
        println!("{name}: {:?}", began.elapsed());
    }
}

#[test]
fn readers_stand_what_is_hostile_to_any() {
    let inputs = hostile();
    for &(name, target) in TARGETS {
        let began = Instant::now();
        for input in &inputs {
            target(input);
            target(&[&b"0"[..], input].concat());
            target(&[&b"1"[..], input].concat());
        }
        println!("{name}: {:?}", began.elapsed());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kibibytes: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kibibytes < MOST_KIBIBYTES, "{kibibytes} KiB");
}
