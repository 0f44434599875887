//! The document of a run, of its phases: the same one whether rank 0 ends by itself or is stopped before it can say
//! how.

use clearstream_schema::{
    notice::Notice,
    storage::{
        ClientCache,
        metadata::{
            MetadataConfig, MetadataKind, MetadataOperation, MetadataPhase, STORAGE_METADATA_SCHEMA,
            StorageMetadata,
        },
    },
};

use super::{phase, tree::Tree};
use crate::{StorageError, calls::ItemShape, clock::late_rank, mount::Mount};

/// What a document has beside the phases.
pub(super) struct Facts {
    /// Host of each rank.
    pub(super) hosts: Vec<String>,
    /// Of each directory.
    pub(super) mounts: Vec<Mount>,
    pub(super) transport: String,
    /// Folder that stays.
    pub(super) kept_folder: Option<String>,
    /// Of items of an earlier run.
    pub(super) shape: Option<ItemShape>,
}

/// The document; `complete` says whether all phases ran to their end.
///
/// # Errors
/// [`StorageError::Invalid`].
pub(super) fn document(
    config: &MetadataConfig,
    facts: Facts,
    phases: Vec<MetadataPhase>,
    complete: bool,
    more: impl IntoIterator<Item = Notice>,
) -> Result<StorageMetadata, StorageError> {
    let tree = Tree::new(config).map_err(StorageError::from)?;
    let Facts { mut hosts, mounts, transport, kept_folder, shape } = facts;
    hosts.sort();
    hosts.dedup();
    let mut notices = notices(config, tree.items, (&hosts, &mounts), &phases, complete);
    notices.extend(more);
    let of_options = ItemShape { tree_count: tree.directories, item_count: tree.items };
    let ItemShape { tree_count, item_count } = shape.unwrap_or(of_options);
    let mut names: Vec<String> = mounts.into_iter().map(|mount| mount.name).collect();
    names.dedup();
    Ok(StorageMetadata {
        schema: STORAGE_METADATA_SCHEMA.to_owned(),
        version: 1,
        directory: config.directory.clone(),
        file_system: names.join(", "),
        kept_folder,
        requested: config.clone(),
        transport,
        hosts,
        tree_count,
        item_count,
        complete,
        failure: None,
        summary: phase::summary(&phases),
        phases,
        notices,
    })
}

fn notices(
    config: &MetadataConfig,
    items: u64,
    (hosts, mounts): (&[String], &[Mount]),
    phases: &[MetadataPhase],
    complete: bool,
) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut add = |id: &str, message: &str| {
        notices.push(Notice { id: id.to_owned(), message: message.to_owned() });
    };
    if config.iterations > 1 && !config.uses_earlier() {
        add(
            "new-trees",
            "every iteration has a new tree: file systems may pass over names and inodes that were removed shortly \
             before, and a repetition in the same directories would measure that",
        );
    }
    if !mounts.iter().all(Mount::is_memory) {
        add(
            "may-be-cached",
            "stat and read may come from this host's caches of names, attributes and pages: their rates (*) are those \
             of the client, not of the storage",
        );
    }
    let is_seen = |phase: &MetadataPhase| {
        let is_look = matches!(phase.operation, MetadataOperation::Stat | MetadataOperation::Read);
        phase.client_cache == Some(ClientCache::Possible) && !is_look
    };
    if phases.iter().any(is_seen) {
        add(
            "seen-before",
            "what an earlier run left is looked at before it is renamed or removed, so that what is others' stays: these \
             rates (*) are of names in this host's caches",
        );
    }
    let ranks = phases.first().map_or(0, |phase| phase.rank_counts.len());
    if config.stride > 0 && hosts.len() == 1 {
        add(
            "stride-within-host",
            match ranks {
                0 | 1 => "the stride has no effect with one rank",
                _ => "all ranks are on one host: items of another rank are in the same caches",
            },
        );
    }
    let is_short = |phase: &MetadataPhase| {
        phase.kind != MetadataKind::Tree && phase.rank_counts.iter().any(|count| *count < items)
    };
    if complete && config.stonewall.is_some() && phases.iter().any(is_short) {
        add("stonewall", "the stonewall ended creation: later phases are of the items that there were");
    }
    let named = phases.iter().map(|phase| {
        let name = format!(
            "{} of the {} in iteration {}",
            phase.operation.name(),
            phase.kind.name(),
            phase.iteration
        );
        (name, phase.total_ns, phase.rank_spans.clone())
    });
    notices.extend(late_rank(named));
    for notice in mounts.iter().flat_map(|mount| mount.notices(false)) {
        if !notices.contains(&notice) {
            notices.push(notice);
        }
    }
    notices
}
