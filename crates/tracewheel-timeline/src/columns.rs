//! The columns of the timeline, each written once: name, Rust field, Arrow type, and how a cell is appended, read and
//! brought into canonical bytes.
//!
//! [`for_each_column!`] is the one list. A [`Codec`] is the way of one kind of column between a field of
//! [`RequestRow`](crate::RequestRow) and an Arrow array.

mod codec;
mod dictionary;
mod hashes;
mod pages;
mod runs;

use std::sync::Arc;

use arrow_array::types::{Float64Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field};

use crate::pack::{Texts, Unpacking};
use crate::row::RequestRow;
use crate::vocab::{ArrivalSource, BodyState, Operation, Source, TtftKind};
pub(crate) use codec::BadCell;
use codec::{Blob, Codec, Dict, Flag, ListOf, Num, Required, Tags, Text};
use hashes::Hashes;
pub(crate) use pages::{Encoded, Zstd};

/// Calls a macro with every column, `field: Codec`, in the order of the schema. The position is the column's number in
/// the digest: a later version appends and never reorders.
macro_rules! for_each_column {
    ($callback:ident) => {
        $callback! {
            arrival_unix_ns: Num<Int64Type>,
            arrival_precision_ns: Required<Num<Int64Type>>,
            arrival_source: Required<Dict<ArrivalSource>>,
            source_id_hash: Num<UInt64Type>,
            session_hash: Num<UInt64Type>,
            tenant_hash: Num<UInt64Type>,
            user_hash: Num<UInt64Type>,
            turn: Num<UInt32Type>,
            think_ns: Num<Int64Type>,
            retry_of_row: Num<UInt64Type>,
            operation: Required<Dict<Operation>>,
            method: Dict<Arc<str>>,
            path: Dict<Arc<str>>,
            endpoint: Dict<Arc<str>>,
            model: Dict<Arc<str>>,
            model_served: Dict<Arc<str>>,
            provider: Dict<Arc<str>>,
            route: Dict<Arc<str>>,
            stream: Flag,
            input_tokens: Num<UInt32Type>,
            input_tokens_source: Dict<Source>,
            output_tokens: Num<UInt32Type>,
            output_tokens_source: Dict<Source>,
            cached_tokens: Num<UInt32Type>,
            cached_tokens_source: Dict<Source>,
            cache_write_tokens: Num<UInt32Type>,
            cache_write_tokens_source: Dict<Source>,
            reasoning_tokens: Num<UInt32Type>,
            reasoning_tokens_source: Dict<Source>,
            prefix_hashes: Hashes,
            prefix_block_tokens: ListOf<UInt32Type>,
            images: Num<UInt16Type>,
            tools: Num<UInt16Type>,
            params: Text,
            body: Blob,
            body_state: Required<Dict<BodyState>>,
            served_by_gateway_cache: Flag,
            client_gone: Flag,
            cancel_after_ns: Num<Int64Type>,
            prod_status: Num<UInt16Type>,
            prod_error: Dict<Arc<str>>,
            prod_attempts: Num<UInt16Type>,
            prod_ttft_ns: Num<Int64Type>,
            prod_ttft_kind: Dict<TtftKind>,
            prod_e2e_ns: Num<Int64Type>,
            prod_event_ns: ListOf<Int64Type>,
            sample_rate: Num<Float64Type>,
            tags: Tags,
            source_file: Required<Dict<Arc<str>>>,
            source_offset: Required<Num<UInt64Type>>,
            request_headers: Tags,
        }
    };
}

macro_rules! table {
    ($($name:ident: $codec:ty,)+) => {
        /// Every column's name, in the order of the schema.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),+];

        /// Every column as an Arrow field; arrivals as a baseline has them, nullable.
        pub(crate) fn fields() -> Vec<Field> {
            vec![$(Field::new(stringify!($name), <$codec>::data_type(), <$codec>::NULLABLE)),+]
        }

        /// Collects rows for one batch.
        pub(crate) struct RowBuilder {
            rows: usize,
            /// How many rows each column has had appended: the nulls since its last known cell are missing.
            filled: [usize; NAMES.len()],
            $($name: <$codec as Codec>::Builder,)+
        }

        impl RowBuilder {
            pub(crate) fn new() -> Self {
                Self { rows: 0, filled: [0; NAMES.len()], $($name: <$codec>::builder(),)+ }
            }

            /// Appends a row; returns its size in bytes, roughly.
            pub(crate) fn append(&mut self, row: &RequestRow) -> usize {
                let RequestRow { $($name),+ } = row;
                let (mut size, mut column) = (0, self.filled.iter_mut());
                $(
                    let filled = column.next().expect("one place a column");
                    if <$codec>::is_known($name) {
                        if *filled < self.rows {
                            <$codec>::append_nulls(self.rows - *filled, &mut self.$name);
                        }
                        *filled = self.rows + 1;
                        size += <$codec>::append($name, &mut self.$name);
                    }
                )+
                self.rows += 1;
                size
            }

            /// Ends a batch: its columns in the order of the schema. The builder is empty again, but for columns that
            /// are encoded here.
            pub(crate) fn finish(&mut self) -> Vec<Cells> {
                let rows = std::mem::take(&mut self.rows);
                let mut filled = std::mem::replace(&mut self.filled, [0; NAMES.len()]).into_iter();
                vec![$({
                    let filled = filled.next().unwrap_or(rows);
                    if filled > 0 || <$codec>::encoded(&mut self.$name).is_some() {
                        <$codec>::append_nulls(rows - filled, &mut self.$name);
                        <$codec>::finish(&mut self.$name).map_or(Cells::Encoded, Cells::Array)
                    } else {
                        Cells::Null(rows)
                    }
                }),+]
            }

            /// Every column in the order of the schema, if it is encoded here.
            pub(crate) fn encoded(&mut self) -> [Option<&mut dyn Encoded>; NAMES.len()] {
                [$(<$codec>::encoded(&mut self.$name)),+]
            }
        }

        /// One batch, made ready for reading row by row. Columns that the batch has not stay at their default.
        pub(crate) struct RowReader {
            $($name: Option<<$codec as Codec>::Reader>,)+
        }

        impl RowReader {
            /// Finds columns by name; columns that are not ours are passed over.
            pub(crate) fn new(batch: &RecordBatch) -> Result<Self, WrongType> {
                Ok(Self {
                    $($name: match batch.column_by_name(stringify!($name)) {
                        None => None,
                        Some(array) => match <$codec>::reader(array) {
                            None => return Err(WrongType {
                                column: stringify!($name),
                                found: array.data_type().clone(),
                                expected: <$codec>::data_type(),
                            }),
                            reader => reader,
                        },
                    },)+
                })
            }

            /// The row at a position of the batch; on failure the column that is at fault.
            pub(crate) fn read(&self, index: usize) -> Result<RequestRow, (&'static str, BadCell)> {
                Ok(RequestRow {
                    $($name: match &self.$name {
                        None => Default::default(),
                        Some(reader) => <$codec>::read(reader, index).map_err(|bad| (stringify!($name), bad))?,
                    },)+
                })
            }
        }

        /// Appends a row's known cells in canonical form: for each the column's number, then its bytes. Columns in
        /// `except` (by number) are left out.
        pub(crate) fn canonical(row: &RequestRow, except: std::ops::Range<u16>, out: &mut Vec<u8>) {
            let RequestRow { $($name),+ } = row;
            let mut number = 0_u16;
            $(
                if <$codec>::is_known($name) && !except.contains(&number) {
                    out.extend_from_slice(&number.to_le_bytes());
                    <$codec>::canonical($name, out);
                }
                number += 1;
            )+
            debug_assert_eq!(usize::from(number), NAMES.len());
        }

        /// Appends a row's known cells in packed form; the bit of each known column is set in the result.
        pub(crate) fn pack(row: &RequestRow, texts: &mut Texts, out: &mut Vec<u8>) -> u64 {
            let RequestRow { $($name),+ } = row;
            let (mut known, mut number) = (0, 0_u32);
            $(
                if <$codec>::is_known($name) {
                    <$codec>::pack($name, texts, out);
                    known |= 1 << number;
                }
                number += 1;
            )+
            debug_assert_eq!(number as usize, NAMES.len());
            known
        }

        /// Makes the row that of the known cells which were packed; `None` where the bytes are something else.
        pub(crate) fn unpack(known: u64, bytes: &mut Unpacking<'_>, row: &mut RequestRow) -> Option<()> {
            let RequestRow { $($name),+ } = row;
            let mut rest = known;
            $(
                if rest & 1 != 0 {
                    <$codec>::unpack_into(bytes, $name)?;
                } else if <$codec>::is_known($name) {
                    *$name = Default::default();
                }
                rest >>= 1;
            )+
            (rest == 0).then_some(())
        }

        const _: () = assert!(NAMES.len() <= 64, "a packed row has one bit a column");
    };
}
for_each_column!(table);

/// One column of a batch.
pub(crate) enum Cells {
    Array(ArrayRef),
    /// So many nulls and nothing else: most columns of most logs.
    Null(usize),
    /// With the column's [`Encoded`] already.
    Encoded,
}

/// A column whose type is not the schema's.
pub(crate) struct WrongType {
    pub(crate) column: &'static str,
    pub(crate) found: DataType,
    pub(crate) expected: DataType,
}
