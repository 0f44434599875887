//! Channels and the indirection table of a model of a card, by the rules of the
//! kernel: net/ethtool/channels.c refuses channels that a configured table names,
//! net/ethtool/ioctl.c refuses queues that are not there.

use std::{
    io,
    sync::{Arc, Mutex},
};

use clearstream_plan::{Fault, Identity, Options, PlanError, SettingError, Target, apply, revert};
use clearstream_schema::{
    indirection::Indirection,
    plan::{Setting, Step, Value},
};

use crate::common::{plan, step};

const SIZE: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Card {
    channels: u32,
    table: Vec<u32>,
    /// `IFF_RXFH_CONFIGURED`.
    is_set: bool,
}

#[derive(Clone)]
struct Model(Arc<Mutex<Card>>);

fn channels() -> Setting {
    let (interface, group, name) = ("eth1".to_owned(), "channels".to_owned(), "combined".to_owned());
    Setting::Ethtool { interface, group, name }
}

fn table() -> Setting {
    let (interface, group, name) = ("eth1".to_owned(), "rss".to_owned(), "indirection".to_owned());
    Setting::Ethtool { interface, group, name }
}

impl Target for Model {
    fn read(&self, setting: &Setting) -> Result<Option<Value>, SettingError> {
        let card = self.0.lock().unwrap();
        Ok(Some(Value::Text(if *setting == channels() {
            card.channels.to_string()
        } else {
            Indirection::of(&card.table).to_string()
        })))
    }

    fn write(&self, setting: &Setting, value: &Value) -> Result<(), SettingError> {
        let value = value.to_string();
        let mut card = self.0.lock().unwrap();
        let highest = *card.table.iter().max().unwrap();
        let spread = |count: u32| Indirection::Equal(count).entries(SIZE).unwrap();
        let is_refused = if *setting == channels() {
            let count: u32 = value.parse().unwrap();
            let is_refused = card.is_set && highest >= count;
            if !is_refused {
                card.channels = count;
                if !card.is_set {
                    card.table = spread(count);
                }
            }
            is_refused
        } else {
            let wanted: Indirection = value.parse().unwrap();
            let entries = wanted.entries(SIZE).unwrap();
            let is_refused = entries.iter().any(|queue| *queue >= card.channels);
            if !is_refused {
                // As `Ethtool::set_value`: the default is a reset.
                card.is_set = entries != spread(card.channels);
                card.table = entries;
            }
            is_refused
        };
        if is_refused {
            let source = io::Error::from_raw_os_error(22);
            return Err(Fault::Rejected { value, source }.of(setting));
        }
        Ok(())
    }

    fn check(&self, _: &Setting, _: &Value) -> Result<(), SettingError> {
        Ok(())
    }

    fn identity(&self) -> Result<Identity, PlanError> {
        let text = "model".to_owned();
        Ok(Identity { name: text.clone(), kernel: text.clone(), boot: text, namespace: None })
    }

    fn is_live(&self) -> bool {
        false
    }
}

/// Applies and reverts; returns the effective values in between.
fn applied(before: &Card, steps: Vec<Step>) -> Result<Card, PlanError> {
    let model = Model(Arc::new(Mutex::new(before.clone())));
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new(model.clone(), folder.path());
    let journal = apply(&plan("model", "model", steps.clone()), &options)?.journal.unwrap();
    let between = model.0.lock().unwrap().clone();
    assert_eq!(apply(&plan("model", "model", steps), &options).unwrap().journal, None, "applied twice");
    revert(&journal, false, &options).unwrap();
    let after = model.0.lock().unwrap().clone();
    assert_eq!((&after.table, after.channels), (&before.table, before.channels));
    Ok(between)
}

#[test]
fn a_table_that_somebody_set_comes_back_with_the_channels() {
    let fewer = || step(channels(), "4");
    for text in ["equal 8", "0*64,5*32,7*32"] {
        let entries = text.parse::<Indirection>().unwrap().entries(SIZE).unwrap();
        let card = Card { channels: 8, table: entries, is_set: true };
        let error = applied(&card, vec![fewer()]).unwrap_err();
        assert!(matches!(error, PlanError::StepFailed { step: 1, .. }), "{error}");
        let between = applied(&card, vec![step(table(), "equal 4"), fewer()]).unwrap();
        assert_eq!((between.channels, between.table.iter().max()), (4, Some(&3)), "{text}");
    }
    // Added channels stay without packets as long as the table does not name them.
    let weights = "0*96,1*32".parse::<Indirection>().unwrap().entries(SIZE).unwrap();
    let card = Card { channels: 4, table: weights, is_set: true };
    let between = applied(&card, vec![step(channels(), "8"), step(table(), "equal 8")]).unwrap();
    assert_eq!((between.channels, between.table.iter().max(), between.is_set), (8, Some(&7), false));
}
