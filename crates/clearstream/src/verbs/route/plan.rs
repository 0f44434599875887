//! `clearstream route plan`

use clearstream_route::{
    fabric::{self, HostId},
    planner::{Planner, shares::Population},
};

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
        let fabric = fabric::load(&self.fabric)?;
        let planner = Planner::new(&fabric);
        let first = (0..fabric.file().classes.len()).map(|class| HostId { class, index: 0 });
        let document = planner.document(&first.collect::<Vec<_>>(), &Population::default());
        Ok(output::json(&document, self.json)?)
    }
}
