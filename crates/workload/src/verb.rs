//! The part of the contract that makes a workload a verb of the command line: its document, and what people see of it.
//! Everything else of the verb (hosts, options, progress, events, exit code) follows from [`Workload`].

use std::fmt::Debug;

use clap::Args;
use clearstream_output::Paint;
use clearstream_schema::{WithSchema, control::Failure};
use serde::{Serialize, de::DeserializeOwned};

use crate::Workload;

/// A workload that is a verb.
pub trait Verb: Workload<Config: Args + Debug> + Default + Debug {
    /// The document of its outcomes, which the verb prints.
    type Document: Serialize + DeserializeOwned + WithSchema + Debug;

    /// Name and version of the document as it is printed.
    const DOCUMENT: (&'static str, u32);

    /// What the verb is for, in one line.
    const ABOUT: &'static str;

    /// Rejects options that have no effect beside the others. A study may have them beside a factor.
    ///
    /// # Errors
    /// The option, and what to do.
    fn check_effect(&self, config: &Self::Config) -> Result<(), Failure> {
        let _ = config;
        Ok(())
    }

    /// The results for people, a table of at most 80 columns first.
    fn table(&self, document: &Self::Document, paint: Paint) -> String;

    /// Formats of other programs that the results can be printed in, with what each is.
    fn formats(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The results in one of [`Self::formats`].
    fn formatted(&self, document: &Self::Document, format: &str) -> String {
        let _ = (document, format);
        String::new()
    }
}
