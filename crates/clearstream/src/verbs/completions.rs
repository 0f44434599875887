//! `clearstream completions`: shell completions and manual pages, made from
//! the same lines as the options.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::{exit::CommandError, output};

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
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        let mut command = super::Cli::command();
        if let Some(shell) = self.shell {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "clearstream", &mut script);
            output::line(String::from_utf8_lossy(&script).trim_end())?;
        }
        if let Some(folder) = self.man {
            let fail = |source| CommandError::File {
                what: "write manual pages into".to_owned(),
                path: folder.clone(),
                source,
            };
            std::fs::create_dir_all(&folder).map_err(fail)?;
            clap_mangen::generate_to(command, &folder).map_err(fail)?;
        }
        Ok(())
    }
}
