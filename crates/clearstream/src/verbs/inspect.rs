//! `clearstream inspect`

use std::path::PathBuf;

use clearstream_host::{
    HostRoot,
    capture::{self, AddressKey, Addresses, CaptureOptions},
};

use crate::{
    exit::CommandError,
    files,
    output::{self, Output, documents::Written, host},
};

/// Describe this host, or a captured one.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// Write a drawing of the machine's topology (SVG)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write an anonymized bundle that `--from` reads anywhere
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "svg"])]
    capture: Option<PathBuf>,
    /// Anonymize addresses with this key phrase: bundles made with the same phrase stay consistent with each other
    #[arg(long, value_name = "PHRASE", requires = "capture")]
    alike: Option<String>,
    /// Keep the host's name and the addresses that it routes by: for bundles that you do not pass on
    #[arg(long, requires = "capture", conflicts_with = "alike")]
    keep_addresses: bool,
    /// Describe a captured host instead of this one (a bundle, or a folder with `proc` and `sys`)
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

impl InspectArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if let Some(path) = &self.capture {
            files::write_with(path, |file| {
                capture::write_with(&HostRoot::live(), file, self.options()).map(drop)
            })?;
            let files = [path.display().to_string()];
            return Ok(
                out.result(&Written { files: &files }, || format!("captured this host into {}", files[0]))?
            );
        }
        let report = match &self.from {
            Some(path) => clearstream_host::inspect(capture::open(path)?.root()),
            None => clearstream_host::inspect(&HostRoot::live()),
        };
        if let Some(path) = &self.svg {
            files::write(path, &clearstream_report::machine_svg(&report))?;
        }
        if !out.is_human() {
            out.document(&report)?;
        } else if self.svg.is_none() {
            output::line(&host::describe(&report))?;
        }
        Ok(())
    }

    fn options(&self) -> CaptureOptions {
        let addresses = match &self.alike {
            Some(phrase) => Addresses::Keyed(AddressKey::of_phrase(phrase)),
            None if self.keep_addresses => Addresses::Kept,
            None => Addresses::Replaced,
        };
        CaptureOptions { keep_host_name: self.keep_addresses, addresses }
    }
}
