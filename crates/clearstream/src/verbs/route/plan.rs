//! `clearstream route plan`

use clearstream_route::fabric;

use crate::{exit::CommandError, output};

/// Plan what each host of a fabric will route by, and why. Nothing is changed.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// Name of a built-in fabric, or a fabric file
    fabric: String,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl PlanArgs {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        let file = fabric::load(&self.fabric)?;
        if self.json {
            return Ok(output::json(&file, true)?);
        }
        Ok(output::line(&format!(
            "{}: {} networks, {} classes of hosts",
            file.name,
            file.networks.len(),
            file.classes.len()
        ))?)
    }
}
