//! What can be asked for.

use domain::{Labels, Owner, SandboxName, Timestamp};

/// Which sandboxes, and in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseQuery {
    /// Those of this owner; of all when unset.
    pub owner: Option<Owner>,
    /// Those in one of these states, by name; in any when empty.
    pub states: Vec<String>,
    /// Those with all of these labels.
    pub labels: Labels,
    /// Those made from this template.
    pub template: Option<String>,
    /// The one with this name.
    pub name: Option<SandboxName>,
    /// Those whose id begins like this.
    pub prefix: Option<String>,
    /// Those made at this moment or later.
    pub created_from: Option<Timestamp>,
    /// In which order; ids break ties.
    pub sort: Sort,
    /// Up or down.
    pub order: Order,
    /// How many to leave out.
    pub offset: u64,
    /// How many at the most; all when unset.
    pub limit: Option<u64>,
}

/// What sandboxes are put in order by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    /// When they were made.
    #[default]
    CreatedAt,
    /// The names of their states, then when they were made.
    State,
}

/// Up or down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// The last first.
    #[default]
    Descending,
    /// The first first.
    Ascending,
}

/// Some of what matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// What was asked for.
    pub items: Vec<T>,
    /// How many match in all.
    pub total: u64,
    /// What belongs on the page and cannot be read: by name, as far as that can be.
    pub unreadable: Vec<Unreadable>,
}

/// A row that cannot be read. What it held stays out of it: it may be a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Which sandbox it is about.
    pub id: String,
    /// What is wrong with it.
    pub reason: String,
}
