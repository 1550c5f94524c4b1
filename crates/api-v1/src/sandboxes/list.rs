//! Which sandboxes, as a query.

use std::str::FromStr;

use control::{LeaseQuery, Order, Sort};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Item;
use crate::ApiError;

/// One page of sandboxes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Listed {
    /// Those on this page.
    pub items: Vec<Item>,
    /// How many match in all.
    pub total_items: u64,
}

/// Which sandboxes, and in which order. Names with hyphens may also be written with underscores.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only those in this state, or in one of several with commas between.
    #[serde(default)]
    pub state: Option<String>,
    /// Only those with this label, as `key=value`; may be repeated.
    #[serde(default)]
    pub label: Vec<String>,
    /// Only those made from this template.
    #[serde(default)]
    pub template: Option<String>,
    /// What to put them in order by.
    #[serde(default)]
    #[param(pattern = "^(created_at|state)$")]
    pub sort: Option<String>,
    /// In which direction.
    #[serde(default, rename = "order-by")]
    #[param(pattern = "^(asc|desc)$")]
    pub order_by: Option<String>,
    /// Which page, from 1.
    #[serde(default)]
    #[param(minimum = 1)]
    pub page: Option<u64>,
    /// How many on a page.
    #[serde(default, rename = "page-size")]
    #[param(minimum = 1, maximum = 100)]
    pub page_size: Option<u64>,
}

/// The states by name.
const STATES: [&str; 11] = [
    "starting",
    "snapshotting",
    "running",
    "pausing",
    "paused",
    "unpausing",
    "stopping",
    "stopped",
    "deleting",
    "deleted",
    "error",
];

/// Reads a query; what it does not know it ignores.
pub(super) fn query(pairs: &[(String, String)]) -> Result<LeaseQuery, ApiError> {
    let mut query = LeaseQuery::default();
    let (mut page, mut size) = (1, 20);
    for (name, value) in pairs {
        match name.as_str() {
            "state" => {
                for state in value.split(',').filter(|state| !state.is_empty()) {
                    if !STATES.contains(&state) {
                        let error = format!("it has to be one of {}", STATES.join(", "));
                        return Err(ApiError::wrong("state", error));
                    }
                    query.states.push(state.to_owned());
                }
            }
            "label" => {
                let (key, value) = value
                    .split_once('=')
                    .ok_or_else(|| ApiError::wrong("label", "it has to be key=value"))?;
                query.labels.insert(key.to_owned(), value.to_owned());
            }
            "template" => query.template = Some(value.clone()),
            "sort" => {
                query.sort = match value.as_str() {
                    "created_at" => Sort::CreatedAt,
                    "state" => Sort::State,
                    _ => return Err(ApiError::wrong("sort", "it has to be created_at or state")),
                }
            }
            "order-by" | "order_by" => {
                query.order = match value.as_str() {
                    "asc" => Order::Ascending,
                    "desc" => Order::Descending,
                    _ => return Err(ApiError::wrong("order-by", "it has to be asc or desc")),
                }
            }
            "page" => page = number("page", value, u64::from(u32::MAX))?,
            "page-size" | "page_size" => size = number("page-size", value, 100)?,
            _ => {}
        }
    }
    query.offset = (page - 1) * size;
    query.limit = Some(size);
    Ok(query)
}

fn number(field: &str, text: &str, most: u64) -> Result<u64, ApiError> {
    let number = u64::from_str(text).ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| ApiError::wrong(field, format!("it has to be between 1 and {most}")))
}
