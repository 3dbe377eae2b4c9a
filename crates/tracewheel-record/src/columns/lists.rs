//! Lists: the reads and events of an attempt, never null (an attempt without an answer has empty lists); counts of a
//! histogram, null where unknown.

use std::any::Any;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, Int64Builder, ListBuilder, UInt8Builder, UInt16Builder, UInt32Builder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, Int64Array, ListArray, PrimitiveArray, StructArray, UInt8Array,
    UInt16Array, UInt32Array,
};
use arrow_schema::{DataType, Field, Fields};
use tracewheel_timeline::vocab::EventKind;

use super::{BadCell, Column};
use crate::rows::{EventRow, ReadStampRow};

/// `list<struct<user_ns, kernel_ns?, bytes>>`.
pub(crate) struct Reads;
/// `list<struct<read, kind, tokens?, bytes, choice>>`.
pub(crate) struct Events;

/// `list<u32>?` of a fixed number of counts.
pub(crate) struct OptCounts<const N: usize>;

fn read_fields() -> Fields {
    Fields::from(vec![
        Field::new("user_ns", DataType::Int64, false),
        Field::new("kernel_ns", DataType::Int64, true),
        Field::new("bytes", DataType::UInt32, false),
    ])
}

fn event_fields() -> Fields {
    Fields::from(vec![
        Field::new("read", DataType::UInt32, false),
        Field::new("kind", DataType::UInt8, false),
        Field::new("tokens", DataType::UInt16, true),
        Field::new("bytes", DataType::UInt32, false),
        Field::new("choice", DataType::UInt8, false),
    ])
}

fn element(fields: Fields) -> Field {
    Field::new("element", DataType::Struct(fields), false)
}

/// Collects reads, whichever attempt they belong to.
pub(crate) struct ReadsBuilder {
    fields: Fields,
    user_ns: Int64Builder,
    kernel_ns: Int64Builder,
    bytes: UInt32Builder,
}

/// Collects events, whichever attempt they belong to.
pub(crate) struct EventsBuilder {
    fields: Fields,
    read: UInt32Builder,
    kind: UInt8Builder,
    tokens: UInt16Builder,
    bytes: UInt32Builder,
    choice: UInt8Builder,
}

/// Lets a builder of structs stand inside a list builder.
macro_rules! struct_builder {
    ($builder:ident { $first:ident $(, $rest:ident)* }) => {
        impl ArrayBuilder for $builder {
            fn len(&self) -> usize {
                self.$first.len()
            }
            fn finish(&mut self) -> ArrayRef {
                let columns: Vec<ArrayRef> =
                    vec![Arc::new(self.$first.finish()), $(Arc::new(self.$rest.finish())),*];
                Arc::new(StructArray::new(self.fields.clone(), columns, None))
            }
            fn finish_cloned(&self) -> ArrayRef {
                let columns: Vec<ArrayRef> =
                    vec![Arc::new(self.$first.finish_cloned()), $(Arc::new(self.$rest.finish_cloned())),*];
                Arc::new(StructArray::new(self.fields.clone(), columns, None))
            }
            fn as_any(&self) -> &dyn Any {
                self
            }
            fn as_any_mut(&mut self) -> &mut dyn Any {
                self
            }
            fn into_box_any(self: Box<Self>) -> Box<dyn Any> {
                self
            }
        }
    };
}
struct_builder!(ReadsBuilder { user_ns, kernel_ns, bytes });
struct_builder!(EventsBuilder { read, kind, tokens, bytes, choice });

/// A field of a list's structs as a typed array; `None` where it is missing, of another type, or null where it
/// must not be.
fn child<P: ArrowPrimitiveType>(list: &ListArray, name: &str, nullable: bool) -> Option<PrimitiveArray<P>> {
    let structs = list.values().as_struct_opt()?;
    let array = structs.column_by_name(name)?.as_primitive_opt::<P>()?;
    (structs.null_count() == 0 && (nullable || array.null_count() == 0)).then(|| array.clone())
}

fn range(list: &ListArray, index: usize) -> Result<std::ops::Range<usize>, BadCell> {
    if list.is_null(index) {
        return Err(BadCell::Null);
    }
    let offsets = list.value_offsets();
    Ok(offsets[index] as usize..offsets[index + 1] as usize)
}

/// The reads of one batch.
pub(crate) struct ReadCells {
    list: ListArray,
    user_ns: Int64Array,
    kernel_ns: Int64Array,
    bytes: UInt32Array,
}

/// The events of one batch.
pub(crate) struct EventCells {
    list: ListArray,
    read: UInt32Array,
    kind: UInt8Array,
    tokens: UInt16Array,
    bytes: UInt32Array,
    choice: UInt8Array,
}

impl Column for Reads {
    type Value = Vec<ReadStampRow>;
    type Builder = ListBuilder<ReadsBuilder>;
    type Cells = ReadCells;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::List(Arc::new(element(read_fields())))
    }
    fn builder() -> Self::Builder {
        let reads = ReadsBuilder {
            fields: read_fields(),
            user_ns: Int64Builder::new(),
            kernel_ns: Int64Builder::new(),
            bytes: UInt32Builder::new(),
        };
        ListBuilder::new(reads).with_field(element(read_fields()))
    }
    fn push(value: &Vec<ReadStampRow>, builder: &mut Self::Builder) -> usize {
        let reads = builder.values();
        for read in value {
            reads.user_ns.append_value(read.user_ns);
            reads.kernel_ns.append_option(read.kernel_ns);
            reads.bytes.append_value(read.bytes);
        }
        builder.append(true);
        4 + 20 * value.len()
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        Arc::new(builder.finish())
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        let list = array.as_list_opt::<i32>()?.clone();
        Some(ReadCells {
            user_ns: child::<Int64Type>(&list, "user_ns", false)?,
            kernel_ns: child::<Int64Type>(&list, "kernel_ns", true)?,
            bytes: child::<UInt32Type>(&list, "bytes", false)?,
            list,
        })
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<Self::Value, BadCell> {
        let reads = range(&cells.list, index)?.map(|at| ReadStampRow {
            user_ns: cells.user_ns.value(at),
            kernel_ns: cells.kernel_ns.is_valid(at).then(|| cells.kernel_ns.value(at)),
            bytes: cells.bytes.value(at),
        });
        Ok(reads.collect())
    }
    fn absent() -> Option<Self::Value> {
        Some(Vec::new())
    }
}

impl Column for Events {
    type Value = Vec<EventRow>;
    type Builder = ListBuilder<EventsBuilder>;
    type Cells = EventCells;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::List(Arc::new(element(event_fields())))
    }
    fn builder() -> Self::Builder {
        let events = EventsBuilder {
            fields: event_fields(),
            read: UInt32Builder::new(),
            kind: UInt8Builder::new(),
            tokens: UInt16Builder::new(),
            bytes: UInt32Builder::new(),
            choice: UInt8Builder::new(),
        };
        ListBuilder::new(events).with_field(element(event_fields()))
    }
    fn push(value: &Vec<EventRow>, builder: &mut Self::Builder) -> usize {
        let events = builder.values();
        for event in value {
            events.read.append_value(event.read);
            events.kind.append_value(event.kind.code());
            events.tokens.append_option(event.tokens);
            events.bytes.append_value(event.bytes);
            events.choice.append_value(event.choice);
        }
        builder.append(true);
        4 + 12 * value.len()
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        Arc::new(builder.finish())
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        let list = array.as_list_opt::<i32>()?.clone();
        Some(EventCells {
            read: child::<UInt32Type>(&list, "read", false)?,
            kind: child::<UInt8Type>(&list, "kind", false)?,
            tokens: child::<UInt16Type>(&list, "tokens", true)?,
            bytes: child::<UInt32Type>(&list, "bytes", false)?,
            choice: child::<UInt8Type>(&list, "choice", false)?,
            list,
        })
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<Self::Value, BadCell> {
        let event = |at: usize| {
            let code = cells.kind.value(at);
            Ok(EventRow {
                read: cells.read.value(at),
                kind: EventKind::from_code(code).ok_or_else(|| BadCell::Word(code.to_string()))?,
                tokens: cells.tokens.is_valid(at).then(|| cells.tokens.value(at)),
                bytes: cells.bytes.value(at),
                choice: cells.choice.value(at),
            })
        };
        range(&cells.list, index)?.map(event).collect()
    }
    fn absent() -> Option<Self::Value> {
        Some(Vec::new())
    }
}

fn count_element() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::UInt32, false))
}

impl<const N: usize> Column for OptCounts<N> {
    type Value = Option<[u32; N]>;
    type Builder = ListBuilder<UInt32Builder>;
    type Cells = (ListArray, UInt32Array);
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::List(count_element())
    }
    fn builder() -> Self::Builder {
        ListBuilder::new(UInt32Builder::new()).with_field(count_element())
    }
    fn push(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        if let Some(counts) = value {
            builder.values().append_slice(counts);
        }
        builder.append(value.is_some());
        4 + value.map_or(0, |_| 4 * N)
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        Arc::new(builder.finish())
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        let list = array.as_list_opt::<i32>()?.clone();
        let counts = list.values().as_primitive_opt::<UInt32Type>()?.clone();
        (counts.null_count() == 0).then_some((list, counts))
    }
    fn cell((list, counts): &Self::Cells, index: usize) -> Result<Self::Value, BadCell> {
        if list.is_null(index) {
            return Ok(None);
        }
        // Counts of other bounds than ours say nothing to us.
        let cell: Vec<u32> = range(list, index)?.map(|at| counts.value(at)).collect();
        Ok(cell.try_into().ok())
    }
    fn absent() -> Option<Self::Value> {
        Some(None)
    }
}
