//! A table: a record's columns in their order.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, SchemaRef};

use super::BadCell;

/// A record that is a row of a table.
pub(crate) trait Table: Sized + Send + 'static {
    /// Name of the table: of its directory and of its journal segments.
    const NAME: &'static str;
    /// One builder a column.
    type Builders: Send;
    /// One batch, made ready for reading.
    type View: Send;

    /// The columns in their order.
    fn fields() -> Vec<Field>;
    /// Empty builders.
    fn builders() -> Self::Builders;
    /// Appends a row; returns its size in bytes, roughly.
    fn push(&self, builders: &mut Self::Builders) -> usize;
    /// Takes the rows collected so far, a column an array.
    fn finish(builders: &mut Self::Builders) -> Vec<ArrayRef>;
    /// Finds the columns of a batch by name.
    fn bind(batch: &RecordBatch) -> Result<Self::View, BadBatch>;
    /// The row at a position of the batch.
    fn row(view: &Self::View, index: usize) -> Result<Self, BadBatch>;
}

/// Takes the rows collected so far as a batch of `schema`, which has the table's columns.
pub(crate) fn finish_batch<T: Table>(builders: &mut T::Builders, schema: &SchemaRef) -> RecordBatch {
    RecordBatch::try_new(Arc::clone(schema), T::finish(builders))
        .expect("the builders' arrays are those of the table's fields, all of one length")
}

/// Why a batch is not one of its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadBatch {
    /// A column is missing or of another type.
    Column {
        /// The column.
        name: &'static str,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
    /// A cell is not a value of its column.
    Cell {
        /// The column.
        name: &'static str,
        /// Why not.
        bad: BadCell,
    },
}

/// Declares the columns of a record: `name: Column`, or `name in part: Column` for a field of a part of the record,, in the order of the schema. A later minor version
/// appends nullable columns and never reorders.
macro_rules! table {
    ($row:ident, $table:literal, $builders:ident, $view:ident {
        $($name:ident $(in $part:ident)?: $column:ty,)+
    }) => {
        /// The builders of the table's columns.
        pub(crate) struct $builders {
            $($name: <$column as $crate::columns::Column>::Builder,)+
        }

        /// The columns of one batch; `None` where the file has no such column.
        pub(crate) struct $view {
            $($name: Option<<$column as $crate::columns::Column>::Cells>,)+
        }

        impl $crate::columns::Table for $row {
            const NAME: &'static str = $table;
            type Builders = $builders;
            type View = $view;

            fn fields() -> Vec<arrow_schema::Field> {
                use $crate::columns::Column;
                vec![$(arrow_schema::Field::new(
                    stringify!($name),
                    <$column>::data_type(),
                    <$column>::NULLABLE,
                )),+]
            }

            fn builders() -> $builders {
                use $crate::columns::Column;
                $builders { $($name: <$column>::builder(),)+ }
            }

            fn push(&self, builders: &mut $builders) -> usize {
                use $crate::columns::Column;
                0 $(+ <$column>::push(&self.$($part.)?$name, &mut builders.$name))+
            }

            fn finish(builders: &mut $builders) -> Vec<arrow_array::ArrayRef> {
                use $crate::columns::Column;
                vec![$(<$column>::finish(&mut builders.$name)),+]
            }

            fn bind(batch: &arrow_array::RecordBatch) -> Result<$view, $crate::columns::BadBatch> {
                Ok($view { $($name: $crate::columns::table::bind_column::<$column>(batch, stringify!($name))?,)+ })
            }

            fn row(view: &$view, index: usize) -> Result<Self, $crate::columns::BadBatch> {
                let mut row = Self::default();
                $(row.$($part.)?$name =
                    $crate::columns::table::cell::<$column>(&view.$name, stringify!($name), index)?;)+
                Ok(row)
            }
        }
    };
}
pub(crate) use table;

/// Finds a column of a batch; `None` where it may be missing and is.
pub(crate) fn bind_column<C: super::Column>(
    batch: &RecordBatch,
    name: &'static str,
) -> Result<Option<C::Cells>, BadBatch> {
    let wrong = |found: String| BadBatch::Column { name, found, expected: C::data_type().to_string() };
    match batch.column_by_name(name) {
        None if C::absent().is_some() => Ok(None),
        None => Err(wrong("missing".to_owned())),
        Some(array) => C::bind(array).map(Some).ok_or_else(|| wrong(array.data_type().to_string())),
    }
}

/// The cell of a column that may be missing.
pub(crate) fn cell<C: super::Column>(
    cells: &Option<C::Cells>,
    name: &'static str,
    index: usize,
) -> Result<C::Value, BadBatch> {
    let value = match cells {
        Some(cells) => C::cell(cells, index),
        None => C::absent().ok_or(BadCell::Null),
    };
    value.map_err(|bad| BadBatch::Cell { name, bad })
}
