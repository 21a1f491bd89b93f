//! Reading rows so that one bad record never hides the others.

use rusqlite::types::FromSql;
use rusqlite::{Row, Rows};
use serde::Serialize;

use super::errors::StoreError;
use crate::policy::AgentId;

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed<T> {
    /// What could be read, in the list's order.
    pub rows: Vec<T>,
    /// What could not be read.
    pub skipped: Vec<Skipped>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<String>,
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Skipped {
    /// Its id, as far as that can be read.
    pub id: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What is wrong with a row; a bad value, not a failing database.
pub(super) type Fault = String;

/// The most rows one page can have, whatever the caller asks for.
const MAX_PAGE: usize = 500;

pub(super) fn page_size(limit: usize) -> usize {
    limit.clamp(1, MAX_PAGE)
}

/// A count or size as SQLite stores it.
pub(super) fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn field<T: FromSql>(row: &Row<'_>, name: &str) -> Result<T, Fault> {
    row.get(name).map_err(|error| format!("{name}: {error}"))
}

/// A stored number that cannot be negative.
pub(super) fn count(row: &Row<'_>, name: &str) -> Result<u64, Fault> {
    let value: i64 = field(row, name)?;
    u64::try_from(value).map_err(|_| format!("{name} is negative"))
}

/// A stored word of a closed set.
pub(super) fn word<T>(row: &Row<'_>, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Fault> {
    let text: String = field(row, name)?;
    parse(&text).ok_or_else(|| format!("{name} has the unknown value {text:?}"))
}

/// Stored JSON, if there is any.
pub(super) fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, name: &str) -> Result<Option<T>, Fault> {
    let text: Option<String> = field(row, name)?;
    text.map(|text| serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))).transpose()
}

pub(super) fn agents(row: &Row<'_>, name: &str) -> Result<Vec<AgentId>, Fault> {
    word(row, name, |text| text.split(',').filter(|id| !id.is_empty()).map(AgentId::parse).collect())
}

/// Splits rows into those that could be read and those that could not; every row has an `id`.
pub(super) fn read_all<T>(
    mut rows: Rows<'_>,
    mut read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
) -> Result<(Vec<T>, Vec<Skipped>), StoreError> {
    let (mut good, mut skipped) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        match read(row) {
            Ok(value) => good.push(value),
            Err(reason) => {
                let id = row.get::<_, rusqlite::types::Value>("id").ok();
                skipped.push(Skipped { id: id.map(|id| readable(&id)).unwrap_or_default(), reason });
            }
        }
    }
    Ok((good, skipped))
}

/// Reads the first row, if there is one; here a bad record is an error.
pub(super) fn read_one<T>(
    mut rows: Rows<'_>,
    kind: &'static str,
    id: &str,
    read: impl FnOnce(&Row<'_>) -> Result<T, Fault>,
) -> Result<Option<T>, StoreError> {
    match rows.next()? {
        None => Ok(None),
        Some(row) => {
            read(row).map(Some).map_err(|detail| StoreError::RowCorrupt { kind, id: id.to_owned(), detail })
        }
    }
}

fn readable(value: &rusqlite::types::Value) -> String {
    match value {
        rusqlite::types::Value::Text(text) => text.chars().take(80).collect(),
        rusqlite::types::Value::Integer(number) => number.to_string(),
        _ => String::new(),
    }
}
