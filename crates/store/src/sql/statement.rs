//! A statement as data: the same for every database, with its values apart from its words.

use sqlx::database::{Database, HasStatementCache};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ColumnIndex, Decode, Encode, Type};

/// One statement.
///
/// Its words are those of this program: only what was there when it was compiled can be pushed.
/// Everything else is a value.
pub(crate) struct Statement {
    sql: String,
    values: Vec<Value>,
    columns: &'static [Kind],
    is_usual: bool,
}

/// A value that goes into a statement or comes out of a row.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    /// No text, or nothing that can be read.
    Missing,
}

/// What a column of the answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
}

/// One row of the answer.
pub(crate) type Row = Vec<Value>;

impl Statement {
    /// One that answers nothing.
    pub(crate) fn new(sql: &'static str) -> Self {
        Self::asking(sql, &[])
    }

    /// One that answers with rows of these columns.
    pub(crate) fn asking(sql: &'static str, columns: &'static [Kind]) -> Self {
        Self { sql: sql.to_owned(), values: Vec::new(), columns, is_usual: true }
    }

    /// Not worth being remembered by a connection: hardly ever is one the same.
    pub(crate) fn rare(mut self) -> Self {
        self.is_usual = false;
        self
    }

    /// With the value of the next placeholder in its words.
    pub(crate) fn with(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Goes on with these words.
    pub(crate) fn push(&mut self, sql: &'static str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    /// Goes on with a value.
    pub(crate) fn push_value(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        self.sql.push('$');
        self.sql.push_str(&self.values.len().to_string());
        self
    }

    /// Goes on with each of these, and commas between.
    pub(crate) fn push_each<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        push: impl Fn(&mut Self, T),
    ) -> &mut Self {
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.sql.push_str(", ");
            }
            push(self, item);
        }
        self
    }

    /// The columns of its answer.
    pub(crate) fn columns(&self) -> &'static [Kind] {
        self.columns
    }

    /// The same with other texts as values.
    pub(crate) fn spelled(mut self, spell: impl Fn(String) -> String) -> Self {
        for value in &mut self.values {
            if let Value::Text(text) = value {
                *text = spell(std::mem::take(text));
            }
        }
        self
    }
}

impl Value {
    /// The text in a column that was asked for as one.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Number(_) | Self::Missing => String::new(),
        }
    }

    /// The number in a column that was asked for as one.
    pub(crate) fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            Self::Text(_) | Self::Missing => 0,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value {
    /// What does not fit is more than there can be.
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        text.map_or(Self::Missing, Self::from)
    }
}

/// A statement as a driver takes it.
pub(crate) fn bind<DB>(statement: Statement) -> Query<'static, DB, DB::Arguments>
where
    DB: Database + HasStatementCache,
    String: for<'value> Encode<'value, DB> + Type<DB>,
    Option<String>: for<'value> Encode<'value, DB> + Type<DB>,
    i64: for<'value> Encode<'value, DB> + Type<DB>,
{
    let mut query = sqlx::query(AssertSqlSafe(statement.sql));
    for value in statement.values {
        query = match value {
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
            Value::Missing => query.bind(None::<String>),
        };
    }
    query.persistent(statement.is_usual)
}

/// A driver's row as values. What cannot be read as what it should be is missing: one row whose
/// bytes are damaged is no reason to withhold the others.
pub(crate) fn cells<R>(row: &R, columns: &[Kind]) -> Result<Row, sqlx::Error>
where
    R: sqlx::Row,
    usize: ColumnIndex<R>,
    String: for<'row> Decode<'row, R::Database> + Type<R::Database>,
    i64: for<'row> Decode<'row, R::Database> + Type<R::Database>,
{
    let cell = |(index, kind): (usize, &Kind)| {
        let read = match kind {
            Kind::Text => row.try_get(index).map(Value::Text),
            Kind::Number => row.try_get(index).map(Value::Number),
        };
        match read {
            Err(sqlx::Error::ColumnDecode { .. }) => Ok(Value::Missing),
            read => read,
        }
    };
    columns.iter().enumerate().map(cell).collect()
}
