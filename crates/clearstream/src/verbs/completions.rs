//! `clearstream completions`: shell completions and manual pages, made from
//! the same lines as the options.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::CommandFactory;

use crate::{
    exit::CommandError,
    files,
    output::{self, Output},
};

/// Print completions for a shell, or write the manual pages.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct CompletionsArgs {
    /// Shell to print completions for
    #[arg(value_enum, group = "what")]
    shell: Option<clap_complete::Shell>,
    /// Write a manual page per verb into this folder
    #[arg(long, value_name = "FOLDER", group = "what")]
    man: Option<PathBuf>,
}

impl CompletionsArgs {
    /// Prints the script, or writes the pages.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        out.without_document("a script or a manual")?;
        let mut command = super::Cli::command();
        if let Some(shell) = self.shell {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "clearstream", &mut script);
            output::as_it_is(String::from_utf8_lossy(&script).trim_end())?;
        }
        if let Some(folder) = self.man {
            write_manual(command, &folder)?;
        }
        Ok(())
    }
}

/// Writes a page per verb, each whole or not at all.
fn write_manual(mut command: clap::Command, folder: &Path) -> Result<(), CommandError> {
    let fail = |source| CommandError::File {
        what: "write manual pages into".to_owned(),
        path: folder.to_owned(),
        source,
    };
    command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    render(&command, &mut pages).map_err(fail)?;
    clearstream_sys::file::make_folders(folder, 0o777).map_err(fail)?;
    pages.iter().try_for_each(|(name, page)| files::write(&folder.join(name), page))
}

/// The pages of a verb and of the verbs below it, with their file names.
fn render(command: &clap::Command, pages: &mut Vec<(String, String)>) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        render(below, pages)?;
    }
    let manual = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    manual.render(&mut page)?;
    pages.push((manual.get_filename(), String::from_utf8_lossy(&page).into_owned()));
    Ok(())
}
