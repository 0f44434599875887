//! Options of iperf3: those that mean the same are taken by their names here, the others have a hint. Errors of the
//! command line as documents.

use std::ffi::OsString;

use clap::{
    Error,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clearstream_schema::{ExitCode, event::ErrorDocument};

use crate::output::Format;

/// Spellings of an option of iperf3, and what it is here.
type Row = (&'static [&'static str], Here);

/// What an option of iperf3 is here.
#[derive(Clone, Copy)]
enum Here {
    /// Another name of an option with a value.
    Named(&'static str),
    /// An option without a value of its own.
    Is(&'static str),
    /// Something else, in words.
    Hint(&'static str),
}
use Here::{Hint, Is, Named};

/// Options of every measuring verb.
const OF_OUTPUT: &[Row] = &[
    (&["-J"], Is("--json")),
    (&["--logfile"], Hint("redirect standard output, as in --json-stream > FILE")),
    (
        &["-T", "--title"],
        Hint("leave it out: lines have no prefix, and --json names the hosts and the command"),
    ),
    (&["-f", "--format"], Hint("leave it out: figures choose their unit, and --json has bits per second")),
    (
        &["-V", "--verbose"],
        Hint("leave it out: settings and evidence are always shown, and --json has all of them"),
    ),
    (
        &["-I", "--pidfile"],
        Hint("leave it out: the shell has the process id ($!), systemd that of `clearstream serve`"),
    ),
    (&["--connect-timeout"], Hint("write --ssh-option ConnectTimeout=SECONDS")),
    (
        &["-L", "--flowlabel"],
        Hint("leave it out: the kernel sets the IPv6 flow label (sysctl net.ipv6.auto_flowlabels)"),
    ),
    (&["--get-server-output"], Hint("leave it out: both ends are in every table and document")),
];

/// Options of a bulk flow (`flow`, `diagnose`, `improve`) by the spellings of iperf3.
const OF_FLOW: &[Row] = &[
    (&["-R", "--reverse"], Is("--direction=reverse")),
    (&["--bidir", "-d", "--dualtest"], Is("--direction=both")),
    (&["-u", "--udp"], Is("--protocol=udp")),
    (&["-b", "--bitrate", "--bandwidth", "--fq-rate"], Named("--pacing")),
    (&["-B", "--bind"], Named("--bind-address")),
    (&["--bind-dev"], Named("--bind-interface")),
    (&["--cport"], Named("--source-port")),
    (
        &["-A", "--affinity"],
        Hint(
            "write --sender-cores LIST and --receiver-cores LIST, as in --sender-cores 2 --receiver-cores 6",
        ),
    ),
    // As iperf3 does it.
    (&["-Z", "--zerocopy"], Is("--method=sendfile")),
    (&["-M", "--set-mss"], Named("--mss")),
    (&["-S", "--tos"], Hint("write --dscp NAME or its number, the TOS divided by 4: TOS 0xb8 is --dscp ef")),
    (&["-k", "--blockcount"], Hint("write --bytes BYTES: the count of blocks times their length")),
    (
        &["-F", "--file"],
        Hint("leave it out: bytes come from memory and go to memory, no file is read or written"),
    ),
    (&["-m", "--mptcp"], Is("--protocol=mptcp")),
    (&["--skip-rx-copy"], Is("--receive=discard")),
    (&["--time"], Named("--duration")),
    (&["--num"], Named("--bytes")),
    (&["--length"], Named("--transfer")),
    (&["--parallel"], Named("--flows")),
    (&["--omit"], Named("--warm-up")),
    (&["--congestion"], Named("--congestion-control")),
    (
        &["-N", "--no-delay"],
        Hint("leave it out: transfers are large, and the time of small ones is `clearstream message`"),
    ),
];

/// Options of `probe`.
const OF_PROBE: &[Row] = &[
    (&["-t", "--time"], Hint("write --count COUNT (-c) and --interval TIME (-i): the time is their product")),
    (&["-n", "--num"], Named("--count")),
    (&["-l", "--length"], Named("--size")),
    (&["-u", "--udp"], Hint("leave it out: round trips are measured by UDP and by TCP")),
];

/// Options of `message`.
const OF_MESSAGE: &[Row] = &[
    (&["--time"], Named("--duration")),
    (&["--num"], Named("--iterations")),
    (&["-l", "--length"], Named("--size")),
    (&["--omit"], Named("--warm-up")),
    (&["--bidir", "-d", "--dualtest"], Is("--kind=bidirectional")),
    (&["-N", "--no-delay"], Hint("leave it out: TCP_NODELAY is set unless --nagle is there")),
    (&["-A", "--affinity"], Hint("write --client-core CORE and --server-core CORE")),
];

/// Options of the program itself, which has verbs.
const OF_PROGRAM: &[Row] = &[
    (
        &["-s", "--server"],
        Hint(
            "no server has to be started: `clearstream flow HOST` starts the remote agent by ssh; for a daemon write \
             `clearstream serve`",
        ),
    ),
    (&["-c", "--client"], Hint("write `clearstream flow HOST`")),
];

impl Here {
    /// As part of an error.
    fn in_words(self) -> String {
        match self {
            Named(option) => format!("write {option}"),
            Is(option) => format!("write {}", option.replace('=', " ")),
            Hint(text) => text.to_owned(),
        }
    }
}

/// The options of iperf3 that a verb has.
fn tables(verb: Option<&str>) -> &'static [&'static [Row]] {
    match verb {
        Some("flow") => &[OF_FLOW, OF_OUTPUT, OF_PROGRAM],
        Some("diagnose" | "improve") => &[OF_FLOW, OF_OUTPUT],
        Some("probe") => &[OF_PROBE, OF_OUTPUT],
        Some("message") => &[OF_MESSAGE, OF_OUTPUT],
        Some(verb) if is_verb(verb) => &[],
        // The argument after `-c` is a host and no verb.
        _ => &[OF_PROGRAM],
    }
}

fn verb_of(arguments: &[OsString]) -> Option<&str> {
    let mut named = arguments
        .iter()
        .skip(1)
        .filter_map(|argument| argument.to_str())
        .filter(|word| !word.starts_with('-'));
    let first = named.clone().next();
    // Words before it are values of options of the program, as in `--log info flow`.
    named.find(|word| is_verb(word)).or(first)
}

/// The command line with the options of iperf3 by their names here, as far as they mean the same.
pub fn translated(arguments: Vec<OsString>) -> Vec<OsString> {
    let tables = tables(verb_of(&arguments));
    let mut is_over = false;
    let translate = |argument: OsString| {
        is_over |= argument == "--";
        let found = argument.to_str().filter(|_| !is_over).and_then(|text| option_here(tables, text));
        found.map_or(argument, OsString::from)
    };
    arguments.into_iter().map(translate).collect()
}

/// `-R`, `-b`, `-b10G`, `--bitrate` and `--bitrate=10G` by the names here.
fn option_here(tables: &[&[Row]], text: &str) -> Option<String> {
    let name = text.split('=').next().unwrap_or(text);
    match equivalent(tables, name) {
        Some(Is(option)) if name == text => return Some(option.to_owned()),
        Some(Named(option)) => return Some(format!("{option}{}", &text[name.len()..])),
        Some(Is(_) | Hint(_)) => return None,
        None => {}
    }
    // The value behind a letter.
    let letter = text.get(..2).filter(|_| !text.starts_with("--"))?;
    let Some(Named(option)) = equivalent(tables, letter) else { return None };
    Some(format!("{option}={}", &text[2..]))
}

/// The error with the equivalent of an option of iperf3, or where the options are that there are.
pub fn with_hint(mut error: Error, arguments: &[OsString]) -> Error {
    let hint = hint(&error, arguments).or_else(|| of_unknown_option(&error, arguments));
    let Some(hint) = hint else { return error };
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::SuggestedValue);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    error
}

fn hint(error: &Error, arguments: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let option = option.split('=').next().unwrap_or(option);
    let verb = verb_of(arguments);
    let of_verb = equivalent(tables(verb), option).map(Here::in_words);
    of_verb.or_else(|| of_flow_alone(verb?, option))
}

/// Of an option that resembles none: an option is meant, and not the value that starts with a dash that clap suggests.
fn of_unknown_option(error: &Error, arguments: &[OsString]) -> Option<String> {
    let resembles = error.get(ContextKind::SuggestedArg).is_some();
    if error.kind() != ErrorKind::UnknownArgument || resembles || error.get(ContextKind::Suggested).is_none()
    {
        return None;
    }
    Some(format!("`clearstream {} --help` lists the options", verbs_of(arguments).join(" ")))
}

/// The verb and those below it, as far as words of the command line name them.
fn verbs_of(arguments: &[OsString]) -> Vec<&str> {
    use clap::CommandFactory as _;
    let (mut command, mut path) = (crate::verbs::Cli::command(), Vec::new());
    for word in arguments.iter().skip(1).filter_map(|argument| argument.to_str()) {
        if let Some(below) = command.find_subcommand(word).cloned() {
            (command, path) = (below, [path, vec![word]].concat());
        }
    }
    path
}

fn equivalent(tables: &[&[Row]], option: &str) -> Option<Here> {
    let mut rows = tables.iter().flat_map(|table| table.iter());
    rows.find(|(spellings, _)| spellings.contains(&option)).map(|(_, here)| *here)
}

/// A measuring verb has no such option, and a bulk flow has one.
fn of_flow_alone(verb: &str, option: &str) -> Option<String> {
    if !["probe", "message", "diagnose", "improve"].contains(&verb) {
        return None;
    }
    let here = format!("`clearstream {verb} --help` lists the options of {verb}");
    match equivalent(&[OF_FLOW], option) {
        Some(flow) => {
            let hint = flow.in_words();
            Some(format!("{option} is about a bulk flow: with `clearstream flow`, {hint}; {here}"))
        }
        None => {
            is_option_of_flow(option).then(|| format!("{option} is an option of `clearstream flow`; {here}"))
        }
    }
}

fn is_option_of_flow(option: &str) -> bool {
    use clap::CommandFactory as _;
    let mut command = crate::verbs::Cli::command();
    command.build();
    let Some(flow) = command.find_subcommand("flow") else { return false };
    flow.get_arguments().any(|known| {
        let long = option.strip_prefix("--");
        let short = option.strip_prefix('-').filter(|_| long.is_none());
        known.get_long().is_some_and(|name| Some(name) == long)
            || known.get_short().is_some_and(|letter| short.is_some_and(|name| name.chars().eq([letter])))
    })
}

fn is_verb(name: &str) -> bool {
    use clap::CommandFactory as _;
    crate::verbs::Cli::command().find_subcommand(name).is_some()
}

/// The format for the error of an invalid command line: its options were not
/// parsed, so the raw arguments are searched.
pub fn requested_format(arguments: &[OsString]) -> Format {
    let mut options = arguments.iter().skip(1).take_while(|argument| *argument != "--");
    options
        .find_map(|option| match option.to_str() {
            Some("--json") => Some(Format::Json),
            Some("--json-stream") => Some(Format::JsonStream),
            _ => None,
        })
        .unwrap_or(Format::Human)
}

/// The error in one line, without the usage that follows it.
pub fn document(error: &Error) -> ErrorDocument {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    let message = lines.join("; ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    ErrorDocument::new(ExitCode::Usage, message.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::verbs::Cli;

    fn shown(line: &str) -> String {
        let arguments = translated(line.split_whitespace().map(OsString::from).collect());
        let error = Cli::try_parse_from(&arguments).expect_err(line);
        with_hint(error, &arguments).to_string()
    }

    /// What a command line asks for.
    fn read(line: &str) -> String {
        let arguments = translated(line.split(' ').map(OsString::from).collect());
        format!("{:?}", Cli::try_parse_from(&arguments).unwrap_or_else(|error| panic!("{line}: {error}")))
    }

    #[test]
    fn options_of_iperf3_are_those_of_here() {
        for (theirs, ours) in [
            ("flow dtn2 -R", "flow dtn2 --direction reverse"),
            ("flow dtn2 --bidir", "flow dtn2 --direction both"),
            ("flow dtn2 -u -b 10G", "flow dtn2 --protocol udp --pacing 10G"),
            ("flow dtn2 -b10G", "flow dtn2 --pacing 10G"),
            ("flow dtn2 --bitrate=1G --json", "flow dtn2 --pacing 1G --json"),
            ("flow dtn2 -J -t 5 --parallel 3", "flow dtn2 --json -t 5 -P 3"),
            ("flow dtn2 -B 10.0.0.1 --cport 5000", "flow dtn2 --bind-address 10.0.0.1 --source-port 5000"),
            ("flow dtn2 --cport=5000 --bind-dev eth1", "flow dtn2 --source-port 5000 --bind-interface eth1"),
            ("flow dtn2 -Z -M 1400", "flow dtn2 --method sendfile --mss 1400"),
            ("flow dtn2 -m --skip-rx-copy", "flow dtn2 --protocol mptcp --receive discard"),
            ("flow dtn2 --time 5 --omit 1 --length 1M", "flow dtn2 --duration 5 --warm-up 1 --transfer 1M"),
            ("flow dtn2 --num 1G --congestion cubic", "flow dtn2 --bytes 1G --congestion-control cubic"),
            ("--log info flow dtn2 -R", "--log info flow dtn2 --direction reverse"),
            ("diagnose dtn2 -R", "diagnose dtn2 --direction reverse"),
            ("improve dtn2 -Z -J", "improve dtn2 --method sendfile --json"),
            ("probe dtn2 -n 20 -l 1400", "probe dtn2 --count 20 --size 1400"),
            ("message dtn2 --bidir -l 64", "message dtn2 --kind bidirectional --size 64"),
            ("message dtn2 --time 5 --omit 1", "message dtn2 --duration 5 --warm-up 1"),
            ("message dtn2 --num 7", "message dtn2 --iterations 7"),
        ] {
            let (theirs, ours) =
                (read(&format!("clearstream {theirs}")), read(&format!("clearstream {ours}")));
            assert_eq!(theirs, ours);
        }
        // Of a program that is run, they are the program's.
        let line = "clearstream lab exec two-hosts here -- iperf3 -R -J";
        assert_eq!(read(line), format!("{:?}", Cli::try_parse_from(line.split(' ')).expect(line)));
    }

    #[test]
    fn an_unknown_option_is_no_value_that_starts_with_a_dash() {
        for (line, verbs) in [
            ("clearstream study run mesh --zyx x", "study run"),
            ("clearstream route lint --zyx", "route lint"),
            ("clearstream probe dtn2 --zyx", "probe"),
        ] {
            let text = shown(line);
            assert!(text.contains(&format!("`clearstream {verbs} --help` lists the options")), "{text}");
            assert!(!text.contains("as a value"), "{text}");
        }
    }

    #[test]
    fn every_other_letter_of_iperf3_has_a_hint() {
        for (option, wanted) in [
            ("-A 1,2", "--sender-cores"),
            ("-V", "leave it out"),
            ("-S 0xb8", "--dscp ef"),
            ("-f g", "choose their unit"),
            ("-k 100", "--bytes"),
            ("--logfile out.txt", "redirect"),
            ("-s", "clearstream serve"),
            ("-c dtn2", "clearstream flow HOST"),
            ("-F data.bin", "from memory"),
            ("-I iperf.pid", "process id"),
            ("-T lab", "no prefix"),
            ("-L 7", "net.ipv6.auto_flowlabels"),
            ("--connect-timeout 500", "--ssh-option ConnectTimeout=SECONDS"),
        ] {
            let text = shown(&format!("clearstream flow dtn2 {option}"));
            assert!(text.contains(wanted), "{option}: {text}");
            assert!(!text.contains("as a value"), "{option}: {text}");
        }
    }

    #[test]
    fn a_command_line_of_iperf3_without_a_verb_is_led_to_one() {
        assert!(shown("clearstream -s").contains("clearstream serve"));
        assert!(shown("clearstream -c dtn2 -R").contains("clearstream flow HOST"));
    }

    /// Every option that is named is one of the verb, and no option of the verb is taken for another.
    #[test]
    fn hints_name_options_that_there_are() {
        use clap::CommandFactory as _;
        let mut command = Cli::command();
        command.build();
        for (verb, table) in [
            ("flow", OF_FLOW),
            ("diagnose", OF_FLOW),
            ("improve", OF_FLOW),
            ("probe", OF_PROBE),
            ("message", OF_MESSAGE),
            ("flow", OF_OUTPUT),
            ("diagnose", OF_OUTPUT),
            ("improve", OF_OUTPUT),
            ("probe", OF_OUTPUT),
            ("message", OF_OUTPUT),
        ] {
            let options = command.find_subcommand(verb).expect("the verb");
            let known: Vec<String> =
                options.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
            let shorts: Vec<String> =
                options.get_arguments().filter_map(|arg| Some(format!("-{}", arg.get_short()?))).collect();
            for (spellings, here) in table {
                let own = |spelling: &&&str| known.iter().chain(&shorts).any(|one| one == **spelling);
                let is_taken = !matches!(here, Hint(_));
                assert_eq!(spellings.iter().find(own).filter(|_| is_taken), None, "{verb} has it itself");
                let hint = here.in_words();
                let named = hint.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                for option in named.filter(|part| part.starts_with("--")) {
                    assert!(known.iter().any(|one| one == option), "{verb} {spellings:?}: {option}");
                }
            }
        }
    }

    /// The letters of iperf3 with the other measuring verbs.
    #[test]
    fn every_measuring_verb_has_hints() {
        for (line, wanted) in [
            ("improve dtn2 -F data.bin", "from memory"),
            ("diagnose dtn2 --cores scheduler", "--cores is an option of `clearstream flow`"),
            ("probe dtn2 -t 10", "write --count COUNT (-c) and --interval TIME (-i)"),
            ("probe dtn2 -P 4", "-P is an option of `clearstream flow`"),
            ("probe dtn2 --window 1M", "--window is an option of `clearstream flow`"),
            (
                "probe dtn2 -R",
                "-R is about a bulk flow: with `clearstream flow`, write --direction reverse; `clearstream probe \
                 --help` lists the options of probe",
            ),
            ("message dtn2 -A 1,2", "write --client-core CORE"),
            ("message dtn2 -f g", "choose their unit"),
            ("message dtn2 -C cubic", "-C is an option of `clearstream flow`"),
            ("message dtn2 -M 1400", "with `clearstream flow`, write --mss"),
        ] {
            let text = shown(&format!("clearstream {line}"));
            let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(joined.contains(wanted), "{line}: {text}");
            assert!(!text.contains("as a value"), "{line}: {text}");
        }
    }

    #[test]
    fn errors_of_other_verbs_and_options_stay_unchanged() {
        assert!(!shown("clearstream inspect dtn2 -R").contains("--direction"));
        assert!(!shown("clearstream message dtn2 --iteration 5").contains("clearstream flow"));
        assert!(shown("clearstream flow dtn2 --durations 3s").contains("--duration"));
    }

    #[test]
    fn the_last_of_a_repeated_option_wins() {
        let parsed = Cli::try_parse_from("clearstream flow dtn2 -t 5 -P 2 -t 20 --json --json".split(' '));
        let text = format!("{:?}", parsed.expect("an alias adds options before those of the line"));
        assert!(text.contains("duration: TimeSpan(20000000000)"), "{text}");
    }

    #[test]
    fn an_error_is_one_line_for_programs() {
        let error =
            Cli::try_parse_from(["clearstream", "flow", "dtn2", "--window", "big"]).expect_err("no size");
        let document = document(&error);
        assert_eq!((document.exit_code, document.name.as_str()), (2, "usage"));
        assert!(document.message.contains("512KiB") && !document.message.contains("Usage"), "{document:?}");
        let arguments = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(requested_format(&arguments("clearstream flow -R --json")), Format::Json);
        assert_eq!(requested_format(&arguments("clearstream lab exec a b -- x --json")), Format::Human);
    }
}
