//! Codecs: how one kind of column travels between a row's field and an Arrow array.

mod nested;

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, BinaryBuilder, BooleanBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type};
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, StringArray};
use arrow_schema::DataType;
use bytes::Bytes;

use super::dictionary::DictionaryBuilder;
use super::pages::Encoded;
use crate::pack::{Texts, Unpacking, pack_bytes};
use crate::vocab::{ArrivalSource, BodyState, Operation, Source, TtftKind, UnknownWord};

/// The way of one kind of column. All functions are associated: a codec holds no data.
pub(crate) trait Codec {
    /// The field of the row.
    type Value: Default;
    /// Collects cells for one batch.
    type Builder;
    /// One batch's array, made ready for reading.
    type Reader;

    /// The Arrow type as it is written.
    fn data_type() -> DataType;
    /// Whether cells may be null.
    const NULLABLE: bool;
    /// Whether a cell is not null.
    fn is_known(value: &Self::Value) -> bool;
    /// An empty builder.
    fn builder() -> Self::Builder;
    /// Appends so many nulls: most columns of most logs have nothing else, and are filled at once.
    fn append_nulls(count: usize, builder: &mut Self::Builder);
    /// Appends one cell; returns its size in bytes, roughly.
    fn append(value: &Self::Value, builder: &mut Self::Builder) -> usize;
    /// The cells so far, and the builder is empty again; `None` where it encodes them itself.
    fn finish(builder: &mut Self::Builder) -> Option<ArrayRef>;
    /// The builder where it encodes its cells itself.
    fn encoded(_: &mut Self::Builder) -> Option<&mut dyn Encoded> {
        None
    }
    /// Takes an array of [`Codec::data_type`] (dictionary columns also as plain text); `None` for any other type.
    fn reader(array: &ArrayRef) -> Option<Self::Reader>;
    /// The cell of a row of the batch.
    fn read(reader: &Self::Reader, index: usize) -> Result<Self::Value, BadCell>;
    /// Appends the cell's canonical bytes; false, and nothing appended, where the cell is null.
    fn canonical(value: &Self::Value, out: &mut Vec<u8>) -> bool;
    /// Appends the cell in packed form; false, and nothing appended, where the cell is null.
    fn pack(value: &Self::Value, texts: &mut Texts, out: &mut Vec<u8>) -> bool;
    /// Takes a cell that is not null out of its packed form.
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self::Value>;
    /// The same in place of another cell, whose memory may be used again.
    fn unpack_into(bytes: &mut Unpacking<'_>, value: &mut Self::Value) -> Option<()> {
        *value = Self::unpack(bytes)?;
        Some(())
    }
}

/// Why a cell is not a value of its column.
pub(crate) enum BadCell {
    /// Null in a column that is never null.
    Null,
    /// A text outside the column's vocabulary.
    Word(UnknownWord),
}

/// A column of another codec that is never null.
pub(crate) struct Required<C>(PhantomData<C>);
/// A number, or null.
pub(crate) struct Num<P>(PhantomData<P>);
/// A boolean, or null.
pub(crate) struct Flag;
/// A text or a word of a vocabulary stored through a dictionary, or null.
pub(crate) struct Dict<V>(PhantomData<V>);
/// A text, or null.
pub(crate) struct Text;
/// Bytes, or null.
pub(crate) struct Blob;
/// A list of numbers, or null.
pub(crate) struct ListOf<P>(PhantomData<P>);
/// A map of text to text, or null.
pub(crate) struct Tags;

/// What a dictionary column can carry: free text, or the words of a vocabulary.
pub(crate) trait DictValue: Clone {
    fn text(&self) -> &str;
    /// A number that two values share only if they are one: where a text lies, which word it is.
    fn place(&self) -> usize;
    fn from_text(text: &str) -> Result<Self, UnknownWord>;
    fn pack(&self, texts: &mut Texts, out: &mut Vec<u8>);
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self>;
}

impl DictValue for Arc<str> {
    fn text(&self) -> &str {
        self
    }
    fn place(&self) -> usize {
        Arc::as_ptr(self).cast::<u8>() as usize
    }
    fn from_text(text: &str) -> Result<Self, UnknownWord> {
        Ok(text.into())
    }
    fn pack(&self, texts: &mut Texts, out: &mut Vec<u8>) {
        texts.pack(self, out);
    }
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self> {
        bytes.text()
    }
}

macro_rules! words {
    ($($name:ident),+) => {$(
        impl DictValue for $name {
            fn text(&self) -> &str {
                self.as_str()
            }
            fn place(&self) -> usize {
                *self as usize
            }
            fn from_text(text: &str) -> Result<Self, UnknownWord> {
                text.parse()
            }
            fn pack(&self, _: &mut Texts, out: &mut Vec<u8>) {
                // `ALL` has the order of the declaration.
                out.push(*self as u8);
            }
            fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self> {
                let [place] = bytes.array()?;
                Self::ALL.get(usize::from(place)).copied()
            }
        }
    )+};
}
words!(ArrivalSource, BodyState, Operation, Source, TtftKind);

/// A number that has canonical bytes: little endian, as wide as its type.
pub(crate) trait Number: ArrowPrimitiveType {
    fn bytes(value: Self::Native, out: &mut Vec<u8>);
    /// The bytes of many numbers, end to end.
    fn all_bytes(values: &[Self::Native], out: &mut Vec<u8>);
    /// A number from exactly its bytes.
    fn from_bytes(bytes: &[u8]) -> Option<Self::Native>;
}

macro_rules! numbers {
    ($($name:ident),+) => {$(
        impl Number for arrow_array::types::$name {
            fn bytes(value: Self::Native, out: &mut Vec<u8>) {
                out.extend_from_slice(&value.to_le_bytes());
            }
            fn all_bytes(values: &[Self::Native], out: &mut Vec<u8>) {
                let start = out.len();
                out.resize(start + size_of_val(values), 0);
                let (places, _) = out[start..].as_chunks_mut();
                for (place, value) in places.iter_mut().zip(values) {
                    *place = value.to_le_bytes();
                }
            }
            fn from_bytes(bytes: &[u8]) -> Option<Self::Native> {
                bytes.try_into().ok().map(Self::Native::from_le_bytes)
            }
        }
    )+};
}
numbers!(Int64Type, UInt16Type, UInt32Type, UInt64Type, Float64Type);

impl<C, V> Codec for Required<C>
where
    C: Codec<Value = Option<V>>,
    V: Default + Clone,
{
    type Value = V;
    type Builder = C::Builder;
    type Reader = C::Reader;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        C::data_type()
    }
    fn is_known(_: &V) -> bool {
        true
    }
    fn builder() -> Self::Builder {
        C::builder()
    }
    fn append_nulls(count: usize, builder: &mut Self::Builder) {
        C::append_nulls(count, builder);
    }
    fn append(value: &V, builder: &mut Self::Builder) -> usize {
        C::append(&Some(value.clone()), builder)
    }
    fn finish(builder: &mut Self::Builder) -> Option<ArrayRef> {
        C::finish(builder)
    }
    fn encoded(builder: &mut Self::Builder) -> Option<&mut dyn Encoded> {
        C::encoded(builder)
    }
    fn reader(array: &ArrayRef) -> Option<Self::Reader> {
        C::reader(array)
    }
    fn read(reader: &Self::Reader, index: usize) -> Result<V, BadCell> {
        C::read(reader, index)?.ok_or(BadCell::Null)
    }
    fn canonical(value: &V, out: &mut Vec<u8>) -> bool {
        C::canonical(&Some(value.clone()), out)
    }
    fn pack(value: &V, texts: &mut Texts, out: &mut Vec<u8>) -> bool {
        C::pack(&Some(value.clone()), texts, out)
    }
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<V> {
        C::unpack(bytes)?
    }
}

impl<P: Number> Codec for Num<P> {
    type Value = Option<P::Native>;
    type Builder = PrimitiveBuilder<P>;
    type Reader = PrimitiveArray<P>;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        P::DATA_TYPE
    }
    fn is_known(value: &Self::Value) -> bool {
        value.is_some()
    }
    fn builder() -> Self::Builder {
        PrimitiveBuilder::new()
    }
    fn append_nulls(count: usize, builder: &mut Self::Builder) {
        builder.append_nulls(count);
    }
    fn append(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        builder.append_option(*value);
        size_of::<P::Native>()
    }
    fn finish(builder: &mut Self::Builder) -> Option<ArrayRef> {
        Some(ArrayBuilder::finish(builder))
    }
    fn reader(array: &ArrayRef) -> Option<Self::Reader> {
        array.as_primitive_opt::<P>().cloned()
    }
    fn read(reader: &Self::Reader, index: usize) -> Result<Self::Value, BadCell> {
        Ok(reader.is_valid(index).then(|| reader.value(index)))
    }
    fn canonical(value: &Self::Value, out: &mut Vec<u8>) -> bool {
        value.map(|value| P::bytes(value, out)).is_some()
    }
    fn pack(value: &Self::Value, _: &mut Texts, out: &mut Vec<u8>) -> bool {
        Self::canonical(value, out)
    }
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self::Value> {
        bytes.take(size_of::<P::Native>()).and_then(P::from_bytes).map(Some)
    }
}

impl Codec for Flag {
    type Value = Option<bool>;
    type Builder = BooleanBuilder;
    type Reader = BooleanArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Boolean
    }
    fn is_known(value: &Self::Value) -> bool {
        value.is_some()
    }
    fn builder() -> Self::Builder {
        BooleanBuilder::new()
    }
    fn append_nulls(count: usize, builder: &mut Self::Builder) {
        builder.append_nulls(count);
    }
    fn append(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        builder.append_option(*value);
        1
    }
    fn finish(builder: &mut Self::Builder) -> Option<ArrayRef> {
        Some(ArrayBuilder::finish(builder))
    }
    fn reader(array: &ArrayRef) -> Option<Self::Reader> {
        array.as_boolean_opt().cloned()
    }
    fn read(reader: &Self::Reader, index: usize) -> Result<Self::Value, BadCell> {
        Ok(reader.is_valid(index).then(|| reader.value(index)))
    }
    fn canonical(value: &Self::Value, out: &mut Vec<u8>) -> bool {
        value.map(|value| out.push(u8::from(value))).is_some()
    }
    fn pack(value: &Self::Value, _: &mut Texts, out: &mut Vec<u8>) -> bool {
        Self::canonical(value, out)
    }
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self::Value> {
        bytes.array().map(|[truth]| Some(truth != 0))
    }
}

/// A text column of one batch, each distinct value made once.
pub(crate) struct Interned<V> {
    values: Vec<Result<V, UnknownWord>>,
    /// Position in `values` for each row; `None` for null.
    keys: Vec<Option<u32>>,
}

impl<V: DictValue> Interned<V> {
    /// Takes a dictionary or plain text column. Values that no row uses are not made.
    fn new(array: &ArrayRef) -> Option<Self> {
        let mut values = Vec::new();
        let mut keys = Vec::with_capacity(array.len());
        if let Some(dictionary) = array.as_dictionary_opt::<Int32Type>() {
            let texts: &StringArray = dictionary.values().as_string_opt()?;
            let mut made: Vec<Option<u32>> = vec![None; texts.len()];
            for key in dictionary.keys() {
                let key = key.and_then(|key| usize::try_from(key).ok()).filter(|key| texts.is_valid(*key));
                keys.push(key.map(|key| {
                    *made[key].get_or_insert_with(|| {
                        values.push(V::from_text(texts.value(key)));
                        values.len() as u32 - 1
                    })
                }));
            }
        } else {
            let texts: &StringArray = array.as_string_opt()?;
            for text in texts {
                keys.push(text.map(|text| {
                    values.push(V::from_text(text));
                    values.len() as u32 - 1
                }));
            }
        }
        Some(Self { values, keys })
    }

    fn get(&self, index: usize) -> Result<Option<V>, BadCell> {
        let value = self.keys[index].map(|key| self.values[key as usize].clone());
        value.transpose().map_err(BadCell::Word)
    }
}

fn text_bytes(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

impl<V: DictValue> Codec for Dict<V> {
    type Value = Option<V>;
    type Builder = DictionaryBuilder<V>;
    type Reader = Interned<V>;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
    }
    fn is_known(value: &Self::Value) -> bool {
        value.is_some()
    }
    fn builder() -> Self::Builder {
        DictionaryBuilder::new()
    }
    fn append_nulls(count: usize, builder: &mut Self::Builder) {
        builder.append_nulls(count);
    }
    fn append(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        match value {
            Some(value) => builder.append(value),
            None => builder.append_nulls(1),
        }
        4
    }
    fn finish(_: &mut Self::Builder) -> Option<ArrayRef> {
        None
    }
    fn encoded(builder: &mut Self::Builder) -> Option<&mut dyn Encoded> {
        Some(builder)
    }
    fn reader(array: &ArrayRef) -> Option<Self::Reader> {
        Interned::new(array)
    }
    fn read(reader: &Self::Reader, index: usize) -> Result<Self::Value, BadCell> {
        reader.get(index)
    }
    fn canonical(value: &Self::Value, out: &mut Vec<u8>) -> bool {
        value.as_ref().map(|value| text_bytes(value.text(), out)).is_some()
    }
    fn pack(value: &Self::Value, texts: &mut Texts, out: &mut Vec<u8>) -> bool {
        value.as_ref().map(|value| value.pack(texts, out)).is_some()
    }
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self::Value> {
        V::unpack(bytes).map(Some)
    }
}

impl Codec for Text {
    type Value = Option<Arc<str>>;
    type Builder = StringBuilder;
    type Reader = StringArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn is_known(value: &Self::Value) -> bool {
        value.is_some()
    }
    fn builder() -> Self::Builder {
        StringBuilder::new()
    }
    fn append_nulls(count: usize, builder: &mut Self::Builder) {
        builder.append_nulls(count);
    }
    fn append(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        builder.append_option(value.as_deref());
        4 + value.as_deref().map_or(0, str::len)
    }
    fn finish(builder: &mut Self::Builder) -> Option<ArrayRef> {
        Some(ArrayBuilder::finish(builder))
    }
    fn reader(array: &ArrayRef) -> Option<Self::Reader> {
        array.as_string_opt().cloned()
    }
    fn read(reader: &Self::Reader, index: usize) -> Result<Self::Value, BadCell> {
        Ok(reader.is_valid(index).then(|| reader.value(index).into()))
    }
    fn canonical(value: &Self::Value, out: &mut Vec<u8>) -> bool {
        value.as_deref().map(|text| text_bytes(text, out)).is_some()
    }
    fn pack(value: &Self::Value, texts: &mut Texts, out: &mut Vec<u8>) -> bool {
        value.as_ref().map(|text| texts.pack(text, out)).is_some()
    }
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self::Value> {
        bytes.text().map(Some)
    }
}

impl Codec for Blob {
    type Value = Option<Bytes>;
    type Builder = BinaryBuilder;
    type Reader = BinaryArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Binary
    }
    fn is_known(value: &Self::Value) -> bool {
        value.is_some()
    }
    fn builder() -> Self::Builder {
        BinaryBuilder::new()
    }
    fn append_nulls(count: usize, builder: &mut Self::Builder) {
        builder.append_nulls(count);
    }
    fn append(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        builder.append_option(value.as_deref());
        4 + value.as_deref().map_or(0, <[u8]>::len)
    }
    fn finish(builder: &mut Self::Builder) -> Option<ArrayRef> {
        Some(ArrayBuilder::finish(builder))
    }
    fn reader(array: &ArrayRef) -> Option<Self::Reader> {
        array.as_binary_opt().cloned()
    }
    fn read(reader: &Self::Reader, index: usize) -> Result<Self::Value, BadCell> {
        Ok(reader.is_valid(index).then(|| Bytes::copy_from_slice(reader.value(index))))
    }
    fn canonical(value: &Self::Value, out: &mut Vec<u8>) -> bool {
        let Some(bytes) = value else { return false };
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(bytes);
        true
    }
    fn pack(value: &Self::Value, _: &mut Texts, out: &mut Vec<u8>) -> bool {
        value.as_deref().map(|bytes| pack_bytes(bytes, out)).is_some()
    }
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self::Value> {
        let length = bytes.length()?;
        bytes.take(length).map(|bytes| Some(Bytes::copy_from_slice(bytes)))
    }
}
