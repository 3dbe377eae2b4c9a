//! Words of closed vocabularies, names that repeat, free text and tags.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, MapBuilder, MapFieldNames, StringBuilder, StringDictionaryBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, MapArray, StringArray};
use arrow_schema::{DataType, Field};
use tracewheel_timeline::vocab::{AttemptStatus, Operation, Phase, Protocol, Reason, RequestStatus, Source};

use super::{BadCell, Column};

/// A word of a closed vocabulary, never null.
pub(crate) struct Word<V>(PhantomData<V>);
/// A word of a closed vocabulary, or null.
pub(crate) struct OptWord<V>(PhantomData<V>);
/// A text that repeats, never null.
pub(crate) struct Name;
/// A text that repeats, or null.
pub(crate) struct OptName;
/// A text, or null.
pub(crate) struct Text;
/// A map of text to text, or null.
pub(crate) struct Tags;

/// Distinct values after which a dictionary is begun anew, so that names which never repeat stay bounded.
const DICTIONARY_VALUES: usize = 4096;

/// A closed vocabulary whose words are numbered in the order of its documentation.
pub(crate) trait Vocabulary: Copy + Send + 'static {
    /// Every word.
    const ALL: &'static [Self];
    /// The word as it is stored.
    fn word(self) -> &'static str;
    /// Position in [`Self::ALL`].
    fn position(self) -> i32;
    /// The variant behind a word.
    fn of(word: &str) -> Option<Self>;
}

macro_rules! vocabularies {
    ($($name:ident),+) => {$(
        impl Vocabulary for $name {
            const ALL: &'static [Self] = $name::ALL;
            fn word(self) -> &'static str {
                self.as_str()
            }
            fn position(self) -> i32 {
                self as i32
            }
            fn of(word: &str) -> Option<Self> {
                $name::parse(word)
            }
        }
    )+};
}
vocabularies!(AttemptStatus, Operation, Phase, Protocol, Reason, RequestStatus, Source);

/// Every text column that repeats has this type, in timelines and in runs.
fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// Collects positions of words; the dictionary is always the whole vocabulary.
pub(crate) struct WordBuilder {
    keys: Int32Builder,
    words: ArrayRef,
}

impl WordBuilder {
    fn new<V: Vocabulary>() -> Self {
        let words = V::ALL.iter().map(|value| Some(value.word())).collect::<StringArray>();
        Self { keys: Int32Builder::new(), words: Arc::new(words) }
    }

    fn finish(&mut self) -> ArrayRef {
        let keys = self.keys.finish();
        let array = DictionaryArray::<Int32Type>::try_new(keys, Arc::clone(&self.words));
        Arc::new(array.expect("every key is a position in the vocabulary"))
    }
}

/// A text column of one batch, each distinct value made once.
pub(crate) struct Interned<V> {
    values: Vec<Result<V, String>>,
    /// Position in `values`; `NULL_KEY` for null.
    keys: Vec<u32>,
}

const NULL_KEY: u32 = u32::MAX;

impl<V: Clone> Interned<V> {
    /// Takes a dictionary or a plain text column.
    fn new(array: &ArrayRef, make: impl Fn(&str) -> Result<V, String>) -> Option<Self> {
        if let Some(dictionary) = array.as_any_dictionary_opt() {
            let texts = dictionary.values().as_string_opt::<i32>()?;
            let values: Vec<_> = (0..texts.len())
                .map(|at| if texts.is_null(at) { Err(String::new()) } else { make(texts.value(at)) })
                .collect();
            if values.is_empty() {
                return Some(Self { values, keys: vec![NULL_KEY; array.len()] });
            }
            let keys = dictionary.normalized_keys().into_iter().enumerate();
            let keys = keys.map(
                |(row, key)| {
                    if array.is_null(row) || texts.is_null(key) { NULL_KEY } else { key as u32 }
                },
            );
            return Some(Self { keys: keys.collect(), values });
        }
        let texts = array.as_string_opt::<i32>()?;
        let mut values = Vec::new();
        let keys = texts.iter().map(|text| match text {
            None => NULL_KEY,
            Some(text) => {
                values.push(make(text));
                values.len() as u32 - 1
            }
        });
        Some(Self { keys: keys.collect(), values })
    }

    fn get(&self, index: usize) -> Result<Option<V>, BadCell> {
        match self.keys[index] {
            NULL_KEY => Ok(None),
            key => self.values[key as usize].clone().map(Some).map_err(BadCell::Word),
        }
    }
}

fn word_of<V: Vocabulary>(text: &str) -> Result<V, String> {
    V::of(text).ok_or_else(|| text.chars().take(80).collect())
}

impl<V: Vocabulary> Column for Word<V> {
    type Value = V;
    type Builder = WordBuilder;
    type Cells = Interned<V>;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        dictionary()
    }
    fn builder() -> Self::Builder {
        WordBuilder::new::<V>()
    }
    fn push(value: &V, builder: &mut Self::Builder) -> usize {
        builder.keys.append_value(value.position());
        4
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        builder.finish()
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        Interned::new(array, word_of)
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<V, BadCell> {
        cells.get(index)?.ok_or(BadCell::Null)
    }
    fn absent() -> Option<V> {
        None
    }
}

impl<V: Vocabulary> Column for OptWord<V> {
    type Value = Option<V>;
    type Builder = WordBuilder;
    type Cells = Interned<V>;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        dictionary()
    }
    fn builder() -> Self::Builder {
        WordBuilder::new::<V>()
    }
    fn push(value: &Option<V>, builder: &mut Self::Builder) -> usize {
        builder.keys.append_option(value.map(V::position));
        4
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        builder.finish()
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        Interned::new(array, word_of)
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<Option<V>, BadCell> {
        cells.get(index)
    }
    fn absent() -> Option<Option<V>> {
        Some(None)
    }
}

fn finish_names(builder: &mut StringDictionaryBuilder<Int32Type>) -> ArrayRef {
    let array = builder.finish_preserve_values();
    if array.values().len() > DICTIONARY_VALUES {
        *builder = StringDictionaryBuilder::new();
    }
    Arc::new(array)
}

impl Column for Name {
    type Value = Arc<str>;
    type Builder = StringDictionaryBuilder<Int32Type>;
    type Cells = Interned<Arc<str>>;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        dictionary()
    }
    fn builder() -> Self::Builder {
        StringDictionaryBuilder::new()
    }
    fn push(value: &Arc<str>, builder: &mut Self::Builder) -> usize {
        builder.append_value(value);
        4 + value.len()
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        finish_names(builder)
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        Interned::new(array, |text| Ok(text.into()))
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<Arc<str>, BadCell> {
        cells.get(index)?.ok_or(BadCell::Null)
    }
    fn absent() -> Option<Self::Value> {
        None
    }
}

impl Column for OptName {
    type Value = Option<Arc<str>>;
    type Builder = StringDictionaryBuilder<Int32Type>;
    type Cells = Interned<Arc<str>>;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        dictionary()
    }
    fn builder() -> Self::Builder {
        StringDictionaryBuilder::new()
    }
    fn push(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        builder.append_option(value.as_deref());
        4 + value.as_deref().map_or(0, str::len)
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        finish_names(builder)
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        Interned::new(array, |text| Ok(text.into()))
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<Self::Value, BadCell> {
        cells.get(index)
    }
    fn absent() -> Option<Self::Value> {
        Some(None)
    }
}

impl Column for Text {
    type Value = Option<Arc<str>>;
    type Builder = StringBuilder;
    type Cells = StringArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn builder() -> Self::Builder {
        StringBuilder::new()
    }
    fn push(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        builder.append_option(value.as_deref());
        4 + value.as_deref().map_or(0, str::len)
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        Arc::new(builder.finish())
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        array.as_string_opt().cloned()
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<Self::Value, BadCell> {
        Ok(cells.is_valid(index).then(|| cells.value(index).into()))
    }
    fn absent() -> Option<Self::Value> {
        Some(None)
    }
}

impl Column for Tags {
    type Value = Option<BTreeMap<Arc<str>, Arc<str>>>;
    type Builder = MapBuilder<StringBuilder, StringBuilder>;
    type Cells = MapArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        let pair = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)];
        DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(pair.into()), false)), false)
    }
    fn builder() -> Self::Builder {
        let names =
            MapFieldNames { entry: "key_value".to_owned(), key: "key".to_owned(), value: "value".to_owned() };
        MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
            .with_values_field(Field::new("value", DataType::Utf8, false))
    }
    fn push(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        let mut size = 4;
        for (key, value) in value.iter().flatten() {
            builder.keys().append_value(key);
            builder.values().append_value(value);
            size += 8 + key.len() + value.len();
        }
        builder.append(value.is_some()).expect("each key was appended together with its value");
        size
    }
    fn finish(builder: &mut Self::Builder) -> ArrayRef {
        Arc::new(builder.finish())
    }
    fn bind(array: &ArrayRef) -> Option<Self::Cells> {
        let map = array.as_map_opt()?;
        map.keys().as_string_opt::<i32>()?;
        map.values().as_string_opt::<i32>()?;
        Some(map.clone())
    }
    fn cell(cells: &Self::Cells, index: usize) -> Result<Self::Value, BadCell> {
        if cells.is_null(index) {
            return Ok(None);
        }
        let entries = cells.value(index);
        let (keys, values) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
        let pairs = keys.iter().zip(values).map(|(key, value)| Some((key?.into(), value?.into())));
        pairs.collect::<Option<_>>().map(Some).ok_or(BadCell::Null)
    }
    fn absent() -> Option<Self::Value> {
        Some(None)
    }
}
