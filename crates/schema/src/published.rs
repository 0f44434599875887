//! What a study says about values of others: their tables, and the ratio of two levels that
//! is compared with theirs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{JsonSchema, human, record::Published};

/// A table as its source prints it: levels, then a metric per column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PublishedTable {
    /// What all rows have in common, one line.
    pub label: String,
    /// Paper and table.
    pub source: String,
    /// Levels of all rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub factors: BTreeMap<String, Value>,
    /// Factors whose levels are the first columns.
    pub levels: Vec<String>,
    /// Metrics of the columns after these.
    pub metrics: Vec<String>,
    /// Unit of all metrics, as printed.
    pub unit: String,
    /// Levels and values of each row.
    pub rows: Vec<Vec<Value>>,
}

impl PublishedTable {
    /// Every value by itself.
    ///
    /// # Errors
    /// The place of a row that has not a level or number for each column.
    pub fn values(&self) -> Result<Vec<Published>, usize> {
        let rows = self.rows.iter().enumerate().map(|(place, row)| self.row(row).ok_or(place));
        Ok(rows.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn row(&self, row: &[Value]) -> Option<Vec<Published>> {
        let (levels, values) = row.split_at_checked(self.levels.len())?;
        let fits = values.len() == self.metrics.len() && levels.iter().all(|one| !one.is_array());
        let named = self.levels.iter().zip(levels).filter(|_| fits);
        let mut label = self.label.clone();
        let mut factors = self.factors.clone();
        for (name, level) in named {
            label.push_str(&format!(", {name} {}", human::level(level)));
            factors.insert(name.clone(), level.clone());
        }
        let value = |(metric, value): (&String, &Value)| {
            let value = value.as_f64()?;
            Some(Published {
                label: format!("{label}, {}", metric.replace('-', " ")),
                source: self.source.clone(),
                factors: factors.clone(),
                metric: metric.clone(),
                unit: self.unit.clone(),
                low: Some(value),
                high: Some(value),
            })
        };
        self.metrics
            .iter()
            .zip(values)
            .filter(|_| fits)
            .map(value)
            .collect::<Option<Vec<_>>>()
            .filter(|_| fits)
    }
}

/// The ratio of two levels of a factor, such as a native mount over a projected one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Relation {
    /// The factor.
    pub factor: String,
    /// Its level whose values are divided.
    pub level: Value,
    /// The level by whose values they are divided.
    pub over: Value,
    /// Why the published ratio may be another, in a few words each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
}
