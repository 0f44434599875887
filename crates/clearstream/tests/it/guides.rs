//! What README and guides show is what the program does.

use std::{fs, path::PathBuf};

use crate::common::{Lab, clearstream, finish, program, run};
use clap::Parser as _;
use clearstream::verbs::Cli;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Commands in the table of tasks.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let code = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    code.filter(|code| code.starts_with("clearstream "))
        .map(|code| code.split_whitespace().collect())
        .collect()
}

#[test]
fn the_table_of_the_readme_has_valid_commands_and_every_guide() {
    let text = page("README.md");
    let commands = commands(&text);
    assert!(commands.len() > 30, "{commands:#?}");
    for command in commands {
        if let Err(error) = Cli::try_parse_from(&command) {
            panic!("{}: {error}", command.join(" "));
        }
    }
    for guide in fs::read_dir(root().join("docs/guide")).unwrap().flatten() {
        let link = format!("](docs/guide/{})", guide.file_name().display());
        assert!(text.contains(&link), "{link}");
    }
}

/// A reader has no fabric file yet; what takes one comes after the line that writes it.
#[test]
fn the_readme_plans_routes_of_a_fabric_that_is_there() {
    let text = page("README.md");
    let routes: Vec<Vec<&str>> =
        commands(&text).into_iter().filter(|command| command[1] == "route").collect();
    assert_eq!(routes[0][1..3], ["route", "plan"]);
    assert!(run(&routes[0][1..]).ok().contains("gateway"));
    let written = routes.iter().position(|command| command.ends_with(&["--out", "fabric.toml"])).unwrap();
    assert!(routes[..written].iter().all(|command| !command.contains(&"fabric.toml")), "{routes:#?}");
    let apply = routes.iter().find(|command| command[2] == "apply").unwrap();
    assert!(apply.contains(&"--host"), "{apply:?}");
}

/// `docs/images/make` writes the picture from a real run.
#[test]
fn the_picture_of_the_readme_is_a_diagnosis_in_80_columns() {
    let text = page("README.md");
    let (alternative, _) = text.split_once("](docs/images/diagnosis.svg)").unwrap();
    let (_, alternative) = alternative.rsplit_once("![").unwrap();
    let picture = page("docs/images/diagnosis.svg");
    let rows: Vec<String> = picture
        .lines()
        .filter(|line| line.starts_with("<text "))
        .map(|line| line.split(['<', '>']).step_by(2).collect::<String>())
        .map(|row| row.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        .collect();
    for row in &rows {
        assert!(row.chars().count() <= 80, "{row}");
    }
    let command: Vec<&str> = rows[0].strip_prefix("$ ").unwrap().split_whitespace().collect();
    assert_eq!(command[..2], ["clearstream", "diagnose"]);
    if let Err(error) = Cli::try_parse_from(&command) {
        panic!("{}: {error}", rows[0]);
    }
    for block in ["limit ", "evidence", "suggestions"] {
        assert!(rows.iter().any(|row| row.starts_with(block)), "{block}: {rows:#?}");
    }
    // The figure and the setting that the text for those who do not see it has.
    for shown in alternative.split([' ', ',', ';', '\n']).filter(|token| token.contains('.')) {
        assert!(rows.iter().any(|row| row.contains(shown)), "{shown}: {rows:#?}");
    }
    assert!(!["href", "url(", "<script"].iter().any(|foreign| picture.contains(foreign)));
}

#[test]
fn guides_have_the_options_of_the_help() {
    for entry in fs::read_dir(root().join("docs/guide")).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap();
        for line in text.lines().filter(|line| line.contains("--destination-port")) {
            assert!(line.contains("--port"), "{}: {line}", entry.path().display());
        }
    }
    for page_name in ["README.md", "docs/guide/install.md"] {
        let text = page(page_name);
        assert!(text.contains("clearstream deploy dtn2") && !text.contains("scp "), "{page_name}");
    }
}

/// The daemon of the package, the unit that `--unit` prints and both guides have one folder.
#[test]
fn the_daemon_has_one_identity() {
    let folder = "--identity /var/lib/clearstream/serve";
    let printed = run(&["serve", "--unit"]);
    let unit = printed.ok();
    assert!(
        unit.contains(folder) && unit.contains("StateDirectory=clearstream/serve clearstream/plans"),
        "{unit}"
    );
    for name in
        ["docs/guide/agents.md", "docs/guide/install.md", "packaging/systemd/clearstream-serve.service"]
    {
        let text = page(name);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("--identity /var/lib")).collect();
        assert!(!lines.is_empty() && lines.iter().all(|line| line.contains(folder)), "{name}: {lines:#?}");
    }
}

/// The guide's own study with an invalid key fails with the error that the guide shows.
#[test]
fn the_error_in_the_guide_is_that_of_the_program() {
    let guide = page("docs/guide/studies.md");
    let study = guide.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("my-study.toml"), study.replace("transfer = [", "transfr = [")).unwrap();
    let mut command = clearstream(&["study", "run", "my-study.toml", "--to", "localhost", "--dry-run"]);
    let ended =
        finish(command.current_dir(folder.path()).spawn().unwrap(), std::time::Duration::from_secs(60));
    ended.refused(2, &["did you mean `transfer`?"]);
    let message = ended.stderr.trim().strip_prefix("clearstream: ").unwrap();
    // The guide leaves the list of all options out.
    let shown = |line: &str| line.strip_suffix(" ...").is_some_and(|begin| message.starts_with(begin));
    let begin = message.split(": ").next().unwrap();
    assert!(
        guide.lines().any(|line| line.starts_with(begin) && shown(line)),
        "the guide does not show:\n{message}"
    );
}

/// A host of a lab is changed by the guide's commands, line after line.
#[test]
fn root_the_guide_of_plans_is_run() {
    let guide = page("docs/guide/plan.md");
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "guide-plan");
    let file = folder.path().join("plan.json");
    let example = guide.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let mut verbs = Vec::new();
    for line in example.lines() {
        let line = line.split(" #").next().unwrap().replace("plan.json", file.to_str().unwrap());
        let arguments: Vec<&str> = line.split_whitespace().skip(1).collect();
        let exec = ["lab", "exec", &lab.0, "here", "--", program().to_str().unwrap()];
        let mut command = clearstream(&[&exec, arguments.as_slice()].concat());
        command.env("CLEARSTREAM_PLANS", folder.path().join("plans"));
        command.env("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 22");
        finish(command.spawn().unwrap(), std::time::Duration::from_secs(60)).ok();
        verbs.push(arguments[1].to_owned());
    }
    assert_eq!(verbs, ["plan", "show", "apply", "confirm", "verify", "history", "revert", "recover"]);
}

/// The jobs of the guide, one after the other, with fewer items: each finds what the one before left, and the last one
/// leaves nothing.
#[test]
fn the_separate_jobs_of_the_guide_are_a_script_that_runs() {
    let guide = page("docs/guide/storage-metadata.md");
    let section = guide.split("## Separate jobs").nth(1).unwrap();
    let script = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(script.lines().filter(|line| line.starts_with("clearstream storage metadata ")).count(), 4);
    let folder = tempfile::tempdir().unwrap();
    let script = script.replace("/mnt/scratch", folder.path().to_str().unwrap()).replace("10000", "20");
    let script = script.replace("clearstream ", &format!("{} ", program().display()));
    let mut command = std::process::Command::new("sh");
    command.args(["-e", "-c", &script]).stdin(std::process::Stdio::null());
    let ended = command.output().unwrap();
    let text = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    assert!(ended.status.success(), "{script}\n{text}");
    for phase in ["create", "stat", "read", "remove"] {
        assert!(text.contains(phase), "{phase}: {text}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{text}");
}
