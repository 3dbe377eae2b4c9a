//! Numbers and booleans.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray};
use arrow_schema::DataType;

use super::{BadCell, Column};

/// A number, never null.
pub(crate) struct Num<P>(PhantomData<P>);
/// A number, or null.
pub(crate) struct OptNum<P>(PhantomData<P>);
/// A boolean, never null.
pub(crate) struct Flag;
/// A boolean, or null.
pub(crate) struct OptFlag;

impl<P: ArrowPrimitiveType> Column for Num<P> {
    type Value = P::Native;
    type Builder = PrimitiveBuilder<P>;
    type Cells = PrimitiveArray<P>;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        P::DATA_TYPE
    }
    fn builder() -> Self::Builder {
        PrimitiveBuilder::new()
    }
    fn push(value: &P::Native, builder: &mut Self::Builder) -> usize {
        builder.append_value(*value);
        size_of::<P::Native>()
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        Arc::new(builder.finish())
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        array.as_primitive_opt::<P>().cloned()
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<P::Native, BadCell> {
        if cells.is_null(index) { Err(BadCell::Null) } else { Ok(cells.value(index)) }
    }
    fn absent() -> Option<Self::Value> {
        None
    }
}

impl<P: ArrowPrimitiveType> Column for OptNum<P> {
    type Value = Option<P::Native>;
    type Builder = PrimitiveBuilder<P>;
    type Cells = PrimitiveArray<P>;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        P::DATA_TYPE
    }
    fn builder() -> Self::Builder {
        PrimitiveBuilder::new()
    }
    fn push(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        builder.append_option(*value);
        size_of::<P::Native>()
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        Arc::new(builder.finish())
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        array.as_primitive_opt::<P>().cloned()
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<Self::Value, BadCell> {
        Ok(cells.is_valid(index).then(|| cells.value(index)))
    }
    fn absent() -> Option<Self::Value> {
        Some(None)
    }
}

impl Column for Flag {
    type Value = bool;
    type Builder = BooleanBuilder;
    type Cells = BooleanArray;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Boolean
    }
    fn builder() -> Self::Builder {
        BooleanBuilder::new()
    }
    fn push(value: &bool, builder: &mut Self::Builder) -> usize {
        builder.append_value(*value);
        1
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        Arc::new(builder.finish())
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        array.as_boolean_opt().cloned()
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<bool, BadCell> {
        if cells.is_null(index) { Err(BadCell::Null) } else { Ok(cells.value(index)) }
    }
    fn absent() -> Option<bool> {
        None
    }
}

impl Column for OptFlag {
    type Value = Option<bool>;
    type Builder = BooleanBuilder;
    type Cells = BooleanArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Boolean
    }
    fn builder() -> Self::Builder {
        BooleanBuilder::new()
    }
    fn push(value: &Option<bool>, builder: &mut Self::Builder) -> usize {
        builder.append_option(*value);
        1
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        Arc::new(builder.finish())
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        array.as_boolean_opt().cloned()
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<Option<bool>, BadCell> {
        Ok(cells.is_valid(index).then(|| cells.value(index)))
    }
    fn absent() -> Option<Option<bool>> {
        Some(None)
    }
}
