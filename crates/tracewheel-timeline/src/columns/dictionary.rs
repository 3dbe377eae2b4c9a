//! Collects a dictionary column. A text is looked up by where it lies, not by its letters: rows share their texts.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use arrow_array::builder::PrimitiveBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, StringArray};

use super::codec::DictValue;
use crate::stats::Mixer;

/// The cells of one batch.
pub(crate) struct DictionaryBuilder<V> {
    keys: PrimitiveBuilder<Int32Type>,
    /// The distinct values. They keep their texts where they are.
    values: Vec<V>,
    key_of: HashMap<usize, i32, BuildHasherDefault<Mixer>>,
    /// Place and key of the latest value: in most columns the next one too.
    latest: Option<(usize, i32)>,
}

impl<V: DictValue> DictionaryBuilder<V> {
    pub(super) fn new() -> Self {
        Self { keys: PrimitiveBuilder::new(), values: Vec::new(), key_of: HashMap::default(), latest: None }
    }

    pub(super) fn append(&mut self, value: Option<&V>) {
        let Some(value) = value else { return self.keys.append_null() };
        let place = value.place();
        if let Some((_, key)) = self.latest.filter(|(latest, _)| *latest == place) {
            return self.keys.append_value(key);
        }
        let values = &mut self.values;
        let key = *self.key_of.entry(place).or_insert_with(|| {
            values.push(value.clone());
            values.len() as i32 - 1
        });
        self.latest = Some((place, key));
        self.keys.append_value(key);
    }

    pub(super) fn append_nulls(&mut self, count: usize) {
        self.keys.append_nulls(count);
    }

    /// The cells so far; the builder is empty again.
    pub(super) fn finish(&mut self) -> ArrayRef {
        let texts = StringArray::from_iter_values(self.values.iter().map(DictValue::text));
        self.values.clear();
        self.key_of.clear();
        self.latest = None;
        let array = DictionaryArray::new(self.keys.finish(), Arc::new(texts));
        Arc::new(array)
    }
}
