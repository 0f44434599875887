//! Options of iperf3 and their equivalents here; errors of the command line as
//! documents.

use std::ffi::OsString;

use clap::{
    Error,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clearstream_schema::{ExitCode, event::ErrorDocument};

use crate::output::Format;

/// Spellings of an option of iperf3, and its equivalent.
type Row = (&'static [&'static str], &'static str);

/// Options of every measuring verb.
const OF_OUTPUT: &[Row] = &[
    (&["-J"], "write --json"),
    (&["--logfile"], "redirect standard output, as in --json-stream > FILE"),
    (&["-T", "--title"], "leave it out: lines have no prefix, and --json names the hosts and the command"),
    (&["-f", "--format"], "leave it out: figures choose their unit, and --json has bits per second"),
    (
        &["-V", "--verbose"],
        "leave it out: settings and evidence are always shown, and --json has all of them",
    ),
    (
        &["-I", "--pidfile"],
        "leave it out: the shell has the process id ($!), systemd that of `clearstream serve`",
    ),
    (&["--connect-timeout"], "write --ssh-option ConnectTimeout=SECONDS"),
    (
        &["-L", "--flowlabel"],
        "leave it out: the kernel sets the IPv6 flow label (sysctl net.ipv6.auto_flowlabels)",
    ),
    (&["--get-server-output"], "leave it out: both ends are in every table and document"),
];

/// Options of a bulk flow (`flow`, `diagnose`, `improve`) by the spellings of iperf3.
const OF_FLOW: &[Row] = &[
    (&["-R", "--reverse"], "write --direction reverse"),
    (&["--bidir", "-d", "--dualtest"], "write --direction both"),
    (&["-u", "--udp"], "write --protocol udp"),
    (&["-b", "--bitrate", "--bandwidth", "--fq-rate"], "write --pacing RATE, as in --pacing 10Gb/s"),
    (&["-B", "--bind"], "write --bind-address ADDRESS, or --bind-interface NAME"),
    (&["--bind-dev"], "write --bind-interface NAME"),
    (&["--cport"], "write --source-port PORT"),
    (
        &["-A", "--affinity"],
        "write --sender-cores LIST and --receiver-cores LIST, as in --sender-cores 2 --receiver-cores 6",
    ),
    (&["-Z", "--zerocopy"], "write --method zerocopy, or --method sendfile as iperf3 does it"),
    (&["-M", "--set-mss"], "write --mss BYTES"),
    (&["-S", "--tos"], "write --dscp NAME or its number, the TOS divided by 4: TOS 0xb8 is --dscp ef"),
    (&["-k", "--blockcount"], "write --bytes BYTES: the count of blocks times their length"),
    (&["-F", "--file"], "leave it out: bytes come from memory and go to memory, no file is read or written"),
    (&["-m", "--mptcp"], "write --protocol mptcp"),
    (&["--skip-rx-copy"], "write --receive discard"),
    (&["-t", "--time"], "write --duration TIME (-t)"),
    (&["--num"], "write --bytes BYTES (-n)"),
    (&["--length"], "write --transfer BYTES (-l), with UDP --datagram BYTES"),
    (&["--parallel"], "write --flows COUNT (-P)"),
    (&["--omit"], "write --warm-up TIME (-O)"),
    (&["--congestion"], "write --congestion-control NAME (-C)"),
    (
        &["-N", "--no-delay"],
        "leave it out: transfers are large, and the time of small ones is `clearstream message`",
    ),
];

/// Options of `probe`.
const OF_PROBE: &[Row] = &[
    (&["-t", "--time"], "write --count COUNT (-c) and --interval TIME (-i): the time is their product"),
    (&["-n", "--num"], "write --count COUNT (-c)"),
    (&["-l", "--length"], "write --size BYTES (-s)"),
    (&["-u", "--udp"], "leave it out: round trips are measured by UDP and by TCP"),
];

/// Options of `message`.
const OF_MESSAGE: &[Row] = &[
    (&["--time"], "write --duration TIME (-t)"),
    (&["--num"], "write --iterations COUNT (-n)"),
    (&["-l", "--length"], "write --size BYTES (-s)"),
    (&["--omit"], "write --warm-up TIME (-O)"),
    (&["--bidir", "-d", "--dualtest"], "write --kind bidirectional"),
    (&["-N", "--no-delay"], "leave it out: TCP_NODELAY is set unless --nagle is there"),
    (&["-A", "--affinity"], "write --client-core CORE and --server-core CORE"),
];

/// Options of the program itself, which has verbs.
const OF_PROGRAM: &[Row] = &[
    (
        &["-s", "--server"],
        "no server has to be started: `clearstream flow HOST` starts the remote agent by ssh; for a daemon write \
         `clearstream serve`",
    ),
    (&["-c", "--client"], "write `clearstream flow HOST`"),
];

/// The error with the equivalent of an option of iperf3.
pub fn with_hint(mut error: Error, arguments: &[OsString]) -> Error {
    let Some(hint) = hint(&error, arguments) else { return error };
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
    let mut named = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    let verb = named.find(|argument| !argument.starts_with('-'));
    let tables: &[&[Row]] = match verb {
        Some("flow") => &[OF_FLOW, OF_OUTPUT, OF_PROGRAM],
        Some("diagnose" | "improve") => &[OF_FLOW, OF_OUTPUT],
        Some("probe") => &[OF_PROBE, OF_OUTPUT],
        Some("message") => &[OF_MESSAGE, OF_OUTPUT],
        Some(verb) if is_verb(verb) => &[],
        // The argument after `-c` is a host and no verb.
        _ => &[OF_PROGRAM],
    };
    let of_verb = equivalent(tables, option).map(str::to_owned);
    of_verb.or_else(|| of_flow_alone(verb?, option))
}

fn equivalent(tables: &[&[Row]], option: &str) -> Option<&'static str> {
    let mut rows = tables.iter().flat_map(|table| table.iter());
    rows.find(|(spellings, _)| spellings.contains(&option)).map(|(_, hint)| *hint)
}

/// A measuring verb has no such option, and a bulk flow has one.
fn of_flow_alone(verb: &str, option: &str) -> Option<String> {
    if !["probe", "message", "diagnose", "improve"].contains(&verb) {
        return None;
    }
    let here = format!("`clearstream {verb} --help` lists the options of {verb}");
    match equivalent(&[OF_FLOW], option) {
        Some(hint) => Some(format!("{option} is about a bulk flow: with `clearstream flow`, {hint}; {here}")),
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
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let error = Cli::try_parse_from(&arguments).expect_err(line);
        with_hint(error, &arguments).to_string()
    }

    /// Each of them failed with "to pass '-R' as a value, use '-- -R'".
    #[test]
    fn every_letter_of_iperf3_has_a_hint() {
        for (option, wanted) in [
            ("-R", "--direction reverse"),
            ("--bidir", "--direction both"),
            ("-u", "--protocol udp"),
            ("-b 10G", "--pacing"),
            ("-J", "--json"),
            ("-B 10.0.0.1", "--bind-address"),
            ("--cport 5000", "--source-port"),
            ("--cport=5000", "--source-port"),
            ("-A 1,2", "--sender-cores"),
            ("-Z", "--method zerocopy"),
            ("-V", "leave it out"),
            ("-M 1400", "--mss"),
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

    /// Every option that a hint names is one of the verb.
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
            for (spellings, hint) in table {
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
            ("diagnose dtn2 -R", "write --direction reverse"),
            ("improve dtn2 -Z", "write --method zerocopy"),
            ("improve dtn2 -F data.bin", "from memory"),
            ("diagnose dtn2 --cores scheduler", "--cores is an option of `clearstream flow`"),
            ("probe dtn2 -t 10", "write --count COUNT (-c) and --interval TIME (-i)"),
            ("probe dtn2 -l 1400", "write --size BYTES (-s)"),
            ("probe dtn2 -J", "write --json"),
            ("probe dtn2 -P 4", "-P is an option of `clearstream flow`"),
            ("probe dtn2 --window 1M", "--window is an option of `clearstream flow`"),
            (
                "probe dtn2 -R",
                "-R is about a bulk flow: with `clearstream flow`, write --direction reverse; `clearstream probe \
                 --help` lists the options of probe",
            ),
            ("message dtn2 -l 64", "write --size BYTES (-s)"),
            ("message dtn2 --bidir", "write --kind bidirectional"),
            ("message dtn2 -A 1,2", "write --client-core CORE"),
            ("message dtn2 -f g", "choose their unit"),
            ("message dtn2 -C cubic", "-C is an option of `clearstream flow`"),
            ("message dtn2 -M 1400", "with `clearstream flow`, write --mss BYTES"),
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
