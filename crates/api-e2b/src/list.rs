//! Lists of sandboxes, page by page.

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use control::Control;
use control::{LeaseQuery, Order};
use domain::{Labels, Timestamp};
use http::HeaderName;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::error::Failure;
use crate::sandboxes::Asking;
use crate::view;

/// How many are on a page at the most, and when nobody says.
const PAGE: u64 = 100;

/// Where clients find the token of the next page.
const NEXT: HeaderName = HeaderName::from_static("x-next-token");

pub(crate) async fn list(
    State(control): State<Control>,
    Asking(caller): Asking,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Result<Response, Failure> {
    let Some(query) = read(&pairs)? else { return Ok(Json(Vec::<Value>::new()).into_response()) };
    let page = control.list(&caller, query.clone()).await?;
    let next = query.offset + page.items.len() as u64;
    let shown: Vec<Value> = page.items.iter().map(view::listed).collect();
    if next < page.total && !page.items.is_empty() {
        return Ok(([(NEXT, next.to_string())], Json(shown)).into_response());
    }
    Ok(Json(shown).into_response())
}

/// The query; `None` when nothing can match it.
fn read(pairs: &[(String, String)]) -> Result<Option<LeaseQuery>, Failure> {
    let mut query = LeaseQuery {
        states: states(&["running", "paused"]),
        order: Order::Descending,
        limit: Some(PAGE),
        ..LeaseQuery::default()
    };
    for (name, value) in pairs {
        match name.as_str() {
            "metadata" => query.labels = metadata(value),
            "state" => {
                query.states = states(&value.split(',').collect::<Vec<_>>());
                if query.states.is_empty() {
                    return Ok(None);
                }
            }
            "order" if value == "asc" => query.order = Order::Ascending,
            "template" => query.template = Some(value.clone()),
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=PAGE).contains(limit));
                query.limit = Some(limit.ok_or_else(|| {
                    Failure::invalid(format!("`limit` has to be between 1 and {PAGE}"))
                })?);
            }
            "nextToken" => {
                let offset = value.parse();
                query.offset =
                    offset.map_err(|_| Failure::invalid("`nextToken` is none of ours"))?;
            }
            "startedAfter" => {
                let moment = Timestamp::parse(value).ok_or_else(|| {
                    Failure::invalid("`startedAfter` has to be a time such as 2026-01-31T12:00:00Z")
                })?;
                query.created_from = Some(moment);
            }
            _ => {}
        }
    }
    Ok(Some(query))
}

/// The states by the names that this dialect has for them.
fn states(named: &[&str]) -> Vec<String> {
    let ours = |name: &&str| match *name {
        "running" => vec!["running", "unpausing"],
        "paused" => vec!["paused", "pausing"],
        _ => Vec::new(),
    };
    named.iter().flat_map(ours).map(ToOwned::to_owned).collect()
}

/// Clients encode keys and values, the pairs of them as a form, and the form as a value.
fn metadata(form: &str) -> Labels {
    let decode = |text: &str| {
        let once = percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        percent_decode_str(&once).decode_utf8_lossy().into_owned()
    };
    form.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (decode(key), decode(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_decoded_as_often_as_it_was_encoded() {
        // As the SDK sends it, after the query itself was decoded.
        let labels = metadata("a%2520b=c%2526d");
        assert_eq!(labels, Labels::from([("a b".to_owned(), "c&d".to_owned())]));
        assert_eq!(metadata("k=v&x=y").len(), 2);
    }
}
