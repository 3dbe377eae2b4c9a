//! Columns: how one kind of cell travels between a record's field and an Arrow array, and the tables made of them.
//!
//! Rows are appended straight to typed builders; nothing here looks at a type at run time for each row.

mod lists;
mod scalar;
mod table;
mod tables;
mod text;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

pub(crate) use lists::{Events, OptCounts, Reads};
pub(crate) use scalar::{Flag, Num, OptFlag, OptNum};
pub(crate) use table::{BadBatch, Table, finish_batch};
pub(crate) use text::{Name, OptName, OptWord, Tags, Text, Word};

/// The way of one kind of column. All functions are associated: a column holds no data.
pub(crate) trait Column {
    /// The field of the record.
    type Value;
    /// Collects the cells of one batch.
    type Builder: Send;
    /// One batch's array, made ready for reading.
    type Cells: Send;

    /// Whether cells may be null.
    const NULLABLE: bool;

    /// The Arrow type as it is written.
    fn data_type() -> DataType;
    /// An empty builder.
    fn builder() -> Self::Builder;
    /// Appends one cell; returns its size in bytes, roughly.
    fn push(value: &Self::Value, builder: &mut Self::Builder) -> usize;
    /// Takes the cells collected so far.
    fn finish(builder: &mut Self::Builder) -> ArrayRef;
    /// Takes an array of the column's type (dictionary columns also as plain text); `None` for any other type.
    fn bind(array: &ArrayRef) -> Option<Self::Cells>;
    /// The cell of a row of the batch.
    fn cell(cells: &Self::Cells, index: usize) -> Result<Self::Value, BadCell>;
    /// What every cell is where a file has no such column; `None` where the column must be there.
    fn absent() -> Option<Self::Value>;
}

/// Why a cell is not a value of its column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadCell {
    /// Null in a column that is never null.
    Null,
    /// A text or code outside the column's vocabulary.
    Word(String),
}
