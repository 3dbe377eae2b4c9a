//! Codecs of cells that hold more than one value: lists and maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, ListBuilder, MapBuilder, MapFieldNames, PrimitiveBuilder, StringBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, ListArray, MapArray};
use arrow_schema::{DataType, Field};

use super::{BadCell, Codec, ListOf, Number, Tags, text_bytes};
use crate::pack::{Texts, Unpacking};

fn element_field<P: ArrowPrimitiveType>() -> Field {
    Field::new("element", P::DATA_TYPE, false)
}

impl<P: Number> Codec for ListOf<P> {
    type Value = Option<Vec<P::Native>>;
    type Builder = ListBuilder<PrimitiveBuilder<P>>;
    type Reader = ListArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::List(Arc::new(element_field::<P>()))
    }
    fn is_known(value: &Self::Value) -> bool {
        value.is_some()
    }
    fn builder() -> Self::Builder {
        ListBuilder::new(PrimitiveBuilder::new()).with_field(element_field::<P>())
    }
    fn append_nulls(count: usize, builder: &mut Self::Builder) {
        (0..count).for_each(|_| builder.append(false));
    }
    fn append(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        let elements = value.as_deref().unwrap_or_default();
        builder.values().append_slice(elements);
        builder.append(value.is_some());
        4 + size_of_val(elements)
    }
    fn finish(builder: &mut Self::Builder) -> Option<ArrayRef> {
        Some(ArrayBuilder::finish(builder))
    }
    fn reader(array: &ArrayRef) -> Option<Self::Reader> {
        let list = array.as_list_opt::<i32>()?;
        list.values().as_primitive_opt::<P>()?;
        Some(list.clone())
    }
    fn read(reader: &Self::Reader, index: usize) -> Result<Self::Value, BadCell> {
        if reader.is_null(index) {
            return Ok(None);
        }
        let elements = reader.value(index);
        let elements = elements.as_primitive::<P>();
        if elements.null_count() > 0 { Err(BadCell::Null) } else { Ok(Some(elements.values().to_vec())) }
    }
    fn canonical(value: &Self::Value, out: &mut Vec<u8>) -> bool {
        let Some(elements) = value else { return false };
        out.extend_from_slice(&(elements.len() as u64).to_le_bytes());
        P::all_bytes(elements, out);
        true
    }
    fn pack(value: &Self::Value, _: &mut Texts, out: &mut Vec<u8>) -> bool {
        let Some(elements) = value else { return false };
        out.extend_from_slice(&(elements.len() as u32).to_le_bytes());
        P::all_bytes(elements, out);
        true
    }
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self::Value> {
        let mut value = None;
        Self::unpack_into(bytes, &mut value)?;
        Some(value)
    }
    fn unpack_into(bytes: &mut Unpacking<'_>, value: &mut Self::Value) -> Option<()> {
        let width = size_of::<P::Native>();
        let length = bytes.length()?.checked_mul(width)?;
        let bytes = bytes.take(length)?;
        let elements = value.get_or_insert_default();
        elements.clear();
        // Each chunk has a number's width.
        elements.extend(bytes.chunks_exact(width).map(|element| P::from_bytes(element).unwrap_or_default()));
        Some(())
    }
}

impl Codec for Tags {
    type Value = Option<BTreeMap<Arc<str>, Arc<str>>>;
    type Builder = MapBuilder<StringBuilder, StringBuilder>;
    type Reader = MapArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        let pair = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)];
        DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(pair.into()), false)), false)
    }
    fn is_known(value: &Self::Value) -> bool {
        value.is_some()
    }
    fn builder() -> Self::Builder {
        let names =
            MapFieldNames { entry: "key_value".to_owned(), key: "key".to_owned(), value: "value".to_owned() };
        MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
            .with_values_field(Field::new("value", DataType::Utf8, false))
    }
    fn append_nulls(count: usize, builder: &mut Self::Builder) {
        (0..count).for_each(|_| builder.append(false).expect("no key was appended"));
    }
    fn append(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        let mut size = 4;
        for (key, value) in value.iter().flatten() {
            builder.keys().append_value(key);
            builder.values().append_value(value);
            size += 8 + key.len() + value.len();
        }
        builder.append(value.is_some()).expect("each key was appended together with its value");
        size
    }
    fn finish(builder: &mut Self::Builder) -> Option<ArrayRef> {
        Some(ArrayBuilder::finish(builder))
    }
    fn reader(array: &ArrayRef) -> Option<Self::Reader> {
        let map = array.as_map_opt()?;
        map.keys().as_string_opt::<i32>()?;
        map.values().as_string_opt::<i32>()?;
        Some(map.clone())
    }
    fn read(reader: &Self::Reader, index: usize) -> Result<Self::Value, BadCell> {
        if reader.is_null(index) {
            return Ok(None);
        }
        let entries = reader.value(index);
        let (keys, values) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
        let pairs = keys.iter().zip(values).map(|(key, value)| Some((key?.into(), value?.into())));
        pairs.collect::<Option<_>>().map(Some).ok_or(BadCell::Null)
    }
    fn canonical(value: &Self::Value, out: &mut Vec<u8>) -> bool {
        let Some(tags) = value else { return false };
        out.extend_from_slice(&(tags.len() as u64).to_le_bytes());
        for (key, value) in tags {
            text_bytes(key, out);
            text_bytes(value, out);
        }
        true
    }
    fn pack(value: &Self::Value, texts: &mut Texts, out: &mut Vec<u8>) -> bool {
        let Some(tags) = value else { return false };
        out.extend_from_slice(&(tags.len() as u32).to_le_bytes());
        for (key, value) in tags {
            texts.pack(key, out);
            texts.pack(value, out);
        }
        true
    }
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self::Value> {
        let length = bytes.length()?;
        (0..length).map(|_| Some((bytes.text()?, bytes.text()?))).collect::<Option<_>>().map(Some)
    }
}
