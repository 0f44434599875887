//! `storage metadata` in separate jobs: what one creates others look up, read, rename and remove, by other ranks, after any
//! end; what is somebody else's stays, whatever its name is.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::common::{
    Mount, Run, assert_valid, clearstream, descendants, eventually, finish, inventory, run, signal,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A folder in memory, where there is one: thousands of items of which nothing is to be stored.
fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| disk())
}

fn metadata<'a>(directory: &'a Path, own: &[&'a str]) -> Vec<&'a str> {
    let verb = ["storage", "metadata", directory.to_str().unwrap()];
    [&verb[..], own].concat()
}

fn document(ended: &Run) -> Value {
    let document = ended.json();
    assert_valid("storage-metadata", &document);
    document
}

/// A job on what is in the folder `x`, by that many ranks.
fn job(directory: &Path, ranks: &str, own: &[&str]) -> Value {
    document(&run(&metadata(directory, &[own, &["--name", "x", "--tasks", ranks, "--json"]].concat())))
}

/// Operations of a kind, without the tree.
fn counts(document: &Value) -> BTreeMap<String, u64> {
    let phases = document["phases"].as_array().unwrap().iter();
    let of = |phase: &Value| {
        let name = format!("{} {}", phase["kind"].as_str().unwrap(), phase["operation"].as_str().unwrap());
        (name, phase["operation_count"].as_u64().unwrap())
    };
    phases.filter(|phase| phase["kind"] != "tree").map(of).collect()
}

fn notices(document: &Value) -> String {
    document["notices"].to_string()
}

/// Items below a folder, by the beginning of their names.
fn items(folder: &Path, kind: &str) -> u64 {
    let is_item = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(kind);
    inventory(folder).keys().filter(|path| is_item(path)).count() as u64
}

fn tree_has(folder: &Path, count: usize) {
    let tree = folder.join("tree.0");
    eventually(LIMIT, "items are there", || fs::read_dir(&tree).is_ok_and(|found| found.count() > count));
}

/// The jobs of mdtest: shapes, ends of the one that creates, numbers of ranks of the others.
#[test]
fn what_one_job_creates_others_look_up_and_remove_after_any_end() {
    let folder = memory();
    fs::write(folder.path().join("thesis.tex"), "of others").unwrap();
    let before = inventory(folder.path());
    let cases: [(&str, i32, &[&str]); 7] = [
        ("whole", 0, &["-n", "20", "-z", "1", "-b", "2"]),
        ("unique", 0, &["-n", "20", "-u", "-z", "1"]),
        ("iterations", 0, &["-n", "20", "-D", "-i", "3"]),
        ("stonewall", 0, &["-n", "9000000", "-F", "-W", "20ms"]),
        ("wear-out", 0, &["-n", "9000000", "-F", "-W", "20ms", "--wear-out", "-w", "10"]),
        ("interrupted", 130, &["-n", "9000000", "-F", "-w", "10"]),
        ("killed", -1, &["-n", "9000000", "-F"]),
    ];
    for (end, code, shape) in cases {
        let own = [&["-C", "--name", "x", "--tasks", "3", "--json"], shape].concat();
        let child = clearstream(&metadata(folder.path(), &own)).spawn().unwrap();
        let kept = folder.path().join("x");
        if code != 0 {
            tree_has(&kept, 50);
        }
        match code {
            130 => signal(child.id(), "INT"),
            -1 => descendants(child.id()).into_iter().for_each(|process| signal(process, "KILL")),
            _ => {}
        }
        let ended = finish(child, LIMIT);
        if code >= 0 {
            assert_eq!(ended.code(), code, "{end}: {}", ended.stderr);
        }
        let there = [("file", items(&kept, "file.")), ("directory", items(&kept, "directory."))];
        let there: Vec<(&str, u64)> = there.into_iter().filter(|(_, count)| *count > 0).collect();
        assert!(!there.is_empty(), "{end}");
        let made = inventory(&kept);
        for (ranks, stride) in [("3", "1"), ("5", "0")] {
            let found = job(folder.path(), ranks, &["-T", "-E", "-N", stride]);
            let expected = there.iter().flat_map(|(kind, count)| {
                ["stat", "read"].map(|operation| (format!("{kind} {operation}"), *count))
            });
            assert_eq!(counts(&found), expected.collect(), "{end} by {ranks}");
            assert_eq!(found["kept_folder"], "x", "{end}");
        }
        assert_eq!(inventory(&kept), made, "{end}: nothing is changed by those");
        // Names come and go; the last job knows them by the record.
        let renamed = job(folder.path(), "2", &["--phases", "rename,stat"]);
        assert_eq!(counts(&renamed).values().min(), there.iter().map(|(_, count)| count).min(), "{end}");
        let removed = job(folder.path(), "1", &["-r", "-i", "2"]);
        let expected = there.iter().map(|(kind, count)| (format!("{kind} remove"), *count));
        assert_eq!(counts(&removed), expected.collect(), "{end}");
        assert_eq!(inventory(folder.path()), before, "{end}: nothing of it is left, and all of others");
    }
    run(&metadata(folder.path(), &["-r", "--name", "x"])).refused(7, &["x", "No such file"]);
}

/// Some of the items are somebody else's meanwhile, or gone, and files of others are among them.
#[test]
fn a_removing_job_leaves_what_is_others_whatever_its_name_is() {
    let folder = disk();
    let kept = folder.path().join("x");
    let cases: [(&str, &[&str], u64); 7] = [
        ("tree.0/file.0.3", &["written over", "thesis"], 39),
        ("tree.0/file.1.19", &["replaced", "thesis"], 39),
        ("tree.0/file.1.0", &["link"], 39),
        ("tree.0/file.0.19", &["gone"], 39),
        ("tree.0/thesis.tex", &["added", "thesis"], 40),
        ("tree.0/directory.0.4/thesis.tex", &["added", "thesis"], 40),
        ("thesis.tex", &["added", "thesis"], 40),
    ];
    for (name, change, removed) in cases {
        let case = format!("{name} {change:?}");
        job(folder.path(), "2", &["-C", "-n", "20"]);
        let path = kept.join(name);
        // Past the granularity of the kernel's clock for files.
        std::thread::sleep(Duration::from_millis(12));
        match change {
            ["written over" | "added", text] => fs::write(&path, text).unwrap(),
            ["replaced", text] => {
                fs::remove_file(&path).unwrap();
                fs::write(&path, text).unwrap();
            }
            ["link"] => {
                fs::remove_file(&path).unwrap();
                symlink("/etc/passwd", &path).unwrap();
            }
            _ => fs::remove_file(&path).unwrap(),
        }
        let others = fs::symlink_metadata(&path).ok().map(|_| inventory(&kept)[&path].clone());
        if !name.contains("directory") {
            // Neither renames it nor forgets whose it is.
            job(folder.path(), "1", &["--phases", "rename"]);
        }
        let found = job(folder.path(), "3", &["-r"]);
        assert_eq!(counts(&found)["file remove"], removed, "{case}");
        let is_seen = found.to_string().contains("\"client_cache\":\"possible\"");
        assert_eq!(notices(&found).contains("seen-before"), is_seen, "{case}");
        match others {
            Some(others) => {
                let left = inventory(&kept);
                assert_eq!(left.get(&path), Some(&others), "{case}");
                // Beside it there are the directories above it alone.
                let above = |left: &PathBuf| path.starts_with(left);
                assert!(left.keys().all(above), "{case}: {:?}", left.keys());
                let notices = notices(&found);
                assert!(notices.contains("folder-remains") && notices.contains(name), "{case}: {notices}");
                fs::remove_dir_all(&kept).unwrap();
            }
            None => assert!(!notices(&found).contains("folder-remains"), "{case}"),
        }
        assert_eq!(inventory(folder.path()), BTreeMap::new(), "{case}");
    }
}

/// A directory of the tree that somebody else has made meanwhile stays, though it is empty.
#[test]
fn a_directory_of_others_in_the_tree_is_not_removed() {
    let folder = disk();
    let kept = folder.path().join("x");
    for place in ["tree.0", "tree.0/level.2"] {
        job(folder.path(), "2", &["-C", "-n", "6", "-z", "1", "-b", "2"]);
        let path = kept.join(place);
        fs::rename(&path, folder.path().join("moved")).unwrap();
        fs::create_dir(&path).unwrap();
        let others = inventory(&kept)[&path].clone();
        let found = job(folder.path(), "2", &["-r"]);
        let left = inventory(&kept);
        assert_eq!(left.get(&path), Some(&others), "{place}");
        assert!(left.keys().all(|left| path.starts_with(left)), "{place}: {:?}", left.keys());
        assert!(notices(&found).contains("not what the earlier run left"), "{place}: {}", notices(&found));
        fs::remove_dir_all(&kept).unwrap();
        fs::remove_dir_all(folder.path().join("moved")).unwrap();
    }
}

/// A link in the place of the tree leads to files that have the very names.
#[test]
fn no_link_leads_a_removing_job_out_of_its_folder() {
    let folder = disk();
    let kept = folder.path().join("x");
    for (inside, depth) in [("tree.0", "0"), ("tree.0/level.1", "1")] {
        job(folder.path(), "2", &["-C", "-n", "6", "-F", "-z", depth]);
        let victim = folder.path().join("victim");
        fs::rename(kept.join(inside), &victim).unwrap();
        symlink(&victim, kept.join(inside)).unwrap();
        let before = inventory(&victim);
        assert!(!before.is_empty(), "{inside}");
        let found = job(folder.path(), "2", &["-r"]);
        assert_eq!(inventory(&victim), before, "{inside}");
        assert!(notices(&found).contains("folder-remains"), "{inside}: {}", notices(&found));
        fs::remove_dir_all(&kept).unwrap();
        fs::remove_dir_all(&victim).unwrap();
    }
}

/// A job that removes is ended before it is done; another one goes on.
#[test]
fn a_removal_that_was_ended_early_is_gone_on_with() {
    let folder = memory();
    let kept = folder.path().join("x");
    for (end, phases) in [("INT", "remove"), ("KILL", "remove"), ("INT", "rename"), ("KILL", "rename")] {
        let case = format!("{end} {phases}");
        job(folder.path(), "2", &["-C", "-n", "8000", "-F"]);
        // Beside the tree: it is worked on after these, and one rank has all of the first one's items.
        let own = ["--phases", phases, "--name", "x", "--tasks", "3"];
        let child = clearstream(&metadata(folder.path(), &own)).spawn().unwrap();
        let begun = kept.join("tree.0").join("file.0.0");
        eventually(LIMIT, "it works", || !begun.exists());
        match end {
            "INT" => signal(child.id(), "INT"),
            _ => descendants(child.id()).into_iter().for_each(|process| signal(process, "KILL")),
        }
        let _ = finish(child, LIMIT);
        if kept.exists() {
            let left = items(&kept, "file.");
            let found = job(folder.path(), "1", &["-T"]);
            assert_eq!(counts(&found)["file stat"], left, "{case}");
            let found = job(folder.path(), "2", &["-r"]);
            assert_eq!(counts(&found)["file remove"], left, "{case}");
        }
        assert_eq!(inventory(folder.path()), BTreeMap::new(), "{case}");
    }
}

/// What is no record of kept items, and what was not kept, is left as it is.
#[test]
fn only_what_was_kept_is_used() {
    let folder = disk();
    job(folder.path(), "2", &["-C", "-n", "5", "-F"]);
    let of_stream = ["storage", "stream", folder.path().to_str().unwrap(), "-w", "-k", "--name", "stream"];
    run(&[&of_stream[..], &["-b", "64k", "-t", "64k"]].concat()).ok();
    for (name, text) in [
        ("others", None),
        ("damaged", Some("{")),
        (
            "shape",
            Some(
                "{\"format\":\"clearstream.storage-kept-metadata\",\"version\":1,\"iteration\":0,\"ranks\":1,\"tree\":{\"branching\":0,\"directories\":1,\"first\":0,\"per_directory\":0,\"items\":1,\"is_unique\":false},\"place\":0,\"places\":1,\"has_identities\":false,\"kinds\":[]}",
            ),
        ),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.join("tree.0")).unwrap();
        fs::write(path.join("tree.0/file.0.0"), "precious").unwrap();
        if let Some(text) = text {
            fs::write(path.join("clearstream-kept.json"), text).unwrap();
        }
    }
    let before = inventory(folder.path());
    let refused: [(i32, &[&str], &[&str]); 12] = [
        (2, &["-r", "--name", "others"], &["others", "no record", "--keep"]),
        (2, &["-r", "--name", "damaged"], &["clearstream-kept.json is no record"]),
        (2, &["-r", "--name", "shape"], &["clearstream-kept.json is no record"]),
        (2, &["-T", "--name", "stream"], &["clearstream-kept.json is no record"]),
        (7, &["-T", "--name", "never"], &["never", "No such file"]),
        (2, &["-T"], &["--name"]),
        (2, &["-T", "--name", "../x"], &["no name of a folder"]),
        (2, &["-C", "--name", "x"], &["x exists already"]),
        (2, &["-r", "--name", "x", "-D"], &["leave -F and -D out"]),
        (2, &["-T", "--name", "x", "-W", "1s"], &["stonewall"]),
        (2, &["--phases", "create,remove", "--keep"], &["keep and the phase remove"]),
        (2, &["-T", "--name", "x", "--against", "/tmp"], &["--against"]),
    ];
    for (code, own, parts) in refused {
        run(&metadata(folder.path(), own)).refused(code, parts);
        assert_eq!(inventory(folder.path()), before, "{own:?}");
    }
    // By streaming, too.
    let of_stream = ["storage", "stream", folder.path().to_str().unwrap(), "-r", "--name", "x"];
    run(&of_stream).refused(2, &["clearstream-kept.json is no record"]);
    assert_eq!(inventory(folder.path()), before);
}

/// Ranks are in the directories by turns, as with mdtest's -d; later jobs find their items there.
#[test]
fn several_directories_have_the_ranks_in_turns() {
    let folder = disk();
    let places = ["a", "b", "c"].map(|name| folder.path().join(name));
    for place in &places {
        fs::create_dir(place).unwrap();
        fs::write(place.join("thesis.tex"), "of others").unwrap();
    }
    let files = || {
        let mut found = inventory(folder.path());
        found.retain(|path, _| !places.contains(path));
        found
    };
    let before = files();
    let [a, b, c] = places.each_ref().map(|path| path.to_str().unwrap());
    let joined = format!("{a}@{b}@{c}");
    let create = ["storage", "metadata", "-d", &joined, "-u", "--tasks", "4", "-n", "6", "-F", "-C"];
    let found = document(&run(&[&create[..], &["--name", "x", "--json"]].concat()));
    assert_eq!(found["requested"]["more-directories"], serde_json::json!([b, c]), "{found}");
    let of = |place: &Path| {
        let names = fs::read_dir(place.join("x")).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("tree.")).collect();
        names.sort();
        names
    };
    assert_eq!(
        places.each_ref().map(|place| of(place)),
        [
            vec!["tree.0.0".to_owned(), "tree.0.3".to_owned()],
            vec!["tree.0.1".to_owned()],
            vec!["tree.0.2".to_owned()]
        ]
    );
    // In any order, by other ranks.
    let stat = ["storage", "metadata", c, a, b, "--tasks", "5", "-T", "-E", "--name", "x", "--json"];
    assert_eq!(counts(&document(&run(&stat)))["file read"], 24);
    run(&["storage", "metadata", a, b, "-T", "--name", "x", "--tasks", "2"]).refused(2, &["3 directories"]);
    let remove = ["storage", "metadata", b, c, a, "--tasks", "3", "-r", "--name", "x", "--json"];
    assert_eq!(counts(&document(&run(&remove)))["file remove"], 24);
    assert_eq!(files(), before);
    // All phases in one run, with what mdtest refuses.
    let all = ["storage", "metadata", a, b, "-u", "--tasks", "2", "-n", "5", "--json"];
    assert_eq!(counts(&document(&run(&all))).len(), 10);
    let refused: [(&[&str], &str); 4] = [
        (&[a, b, "--tasks", "2"], "--unique-directory"),
        (&[a, b, "--tasks", "2", "-u", "-N", "1"], "stride"),
        (&[a, b, "-u"], "--tasks"),
        (&[a, a, "--tasks", "2", "-u"], "twice"),
    ];
    for (own, part) in refused {
        run(&[&["storage", "metadata"], own].concat()).refused(2, &[part]);
    }
    // One that cannot be used leaves the others as they were.
    let missing = folder.path().join("missing");
    run(&["storage", "metadata", a, missing.to_str().unwrap(), "-u", "--tasks", "2"])
        .refused(7, &["missing", "No such file"]);
    assert_eq!(files(), before);
}

/// mdtest's -W: ranks that are behind go on to the number of the fastest, and both rates are shown.
#[test]
fn with_wear_out_ranks_have_equal_numbers_and_both_rates_are_shown() {
    let folder = memory();
    let own = ["-n", "9000000", "-F", "-W", "30ms", "--wear-out", "--tasks", "3"];
    let found = document(&run(&metadata(folder.path(), &[&own[..], &["--json"]].concat())));
    let phases: Vec<&Value> =
        found["phases"].as_array().unwrap().iter().filter(|phase| phase["kind"] == "file").collect();
    let ranks = phases[0]["rank_counts"].as_array().unwrap();
    assert!(ranks.iter().all(|count| *count == ranks[0]), "{ranks:?}");
    assert!(phases.iter().all(|phase| phase["rank_counts"] == phases[0]["rank_counts"]));
    let wall = &phases[0]["stonewall"];
    let whole = phases[0]["operation_count"].as_u64().unwrap();
    assert!(wall["operation_count"].as_u64().unwrap() <= whole, "{wall}");
    assert!(wall["time_ns"].as_u64().unwrap() >= 30_000_000, "{wall}");
    assert!(phases[1..].iter().all(|phase| phase.get("stonewall").is_none()), "{found}");
    let table = run(&metadata(folder.path(), &own));
    assert_eq!(table.ok().matches("at the stonewall: ").count(), 1, "{}", table.stdout);
}

/// A file system without room for more: what was made until then is named, and removed by a later job.
#[test]
fn root_what_was_made_before_a_failure_is_removed_later() {
    let folder = disk();
    let mount = folder.path().join("small");
    fs::create_dir(&mount).unwrap();
    let mounted = Mount::tmpfs(mount, "size=4m,nr_inodes=40");
    for own in [&["-F"][..], &["-D"], &["-F", "-w", "200k"]] {
        let create =
            metadata(&mounted.0, &[&["-C", "--name", "x", "-n", "100", "--tasks", "2"], own].concat());
        run(&create).refused(7, &["rank", "No space left on device", "--keep", "small/x"]);
        assert!(items(&mounted.0, if own == ["-D"] { "directory." } else { "file." }) > 0);
        let found = job(&mounted.0, "3", &["-r"]);
        assert!(!notices(&found).contains("kept-gone"), "{own:?}: {}", notices(&found));
        assert_eq!(inventory(&mounted.0), BTreeMap::new(), "{own:?}");
    }
}
