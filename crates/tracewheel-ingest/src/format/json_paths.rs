//! Finds values in a JSON object by dotted path and gives their text, without building a tree of it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Deepest nesting that is listed, and most paths.
const LISTED_DEPTH: usize = 5;
const LISTED_PATHS: usize = 60;

/// A set of dotted paths.
///
/// A key of the object may hold dots itself: `gen_ai.usage.input_tokens` is found both as one key and as three levels.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    root: Node,
    count: usize,
}

#[derive(Debug, Default)]
struct Node {
    slots: Vec<usize>,
    children: Vec<(String, Node)>,
}

impl Paths {
    pub(crate) fn new<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        for path in paths {
            all.root.insert(path, all.count);
            all.count += 1;
        }
        all
    }

    /// The text of each path's value in the object `json`, in the order of the paths; of a key that stands twice, the
    /// last. `None` where `json` is no JSON object.
    pub(crate) fn find<'de>(&self, json: &'de str) -> Option<Vec<Option<&'de str>>> {
        if !json.trim_start().starts_with('{') {
            return None;
        }
        let mut slots = vec![None; self.count];
        let mut deserializer = serde_json::Deserializer::from_str(json);
        Search { node: &self.root, slots: &mut slots }.deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        Some(slots)
    }
}

impl Node {
    fn insert(&mut self, path: &str, slot: usize) {
        for (dot, _) in path.match_indices('.').filter(|(dot, _)| *dot > 0 && dot + 1 < path.len()) {
            self.child(&path[..dot]).insert(&path[dot + 1..], slot);
        }
        self.child(path).slots.push(slot);
    }

    fn child(&mut self, key: &str) -> &mut Self {
        let at = self.children.iter().position(|(name, _)| name == key).unwrap_or_else(|| {
            self.children.push((key.to_owned(), Self::default()));
            self.children.len() - 1
        });
        &mut self.children[at].1
    }
}

/// Looks for a node's children in a value.
struct Search<'t, 's, 'de> {
    node: &'t Node,
    slots: &'s mut [Option<&'de str>],
}

impl<'de> DeserializeSeed<'de> for Search<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Search<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(Key(self.node))? {
            let Some(child) = child else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if child.slots.is_empty() {
                map.next_value_seed(Search { node: child, slots: self.slots })?;
                continue;
            }
            let raw = map.next_value::<&'de RawValue>()?.get();
            for slot in &child.slots {
                self.slots[*slot] = Some(raw);
            }
            if !child.children.is_empty() && raw.starts_with('{') {
                let mut inner = serde_json::Deserializer::from_str(raw);
                // Well formed: it was just read as a whole.
                let _ = Search { node: child, slots: self.slots }.deserialize(&mut inner);
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// The child that a key names.
struct Key<'t>(&'t Node);

impl<'de, 't> DeserializeSeed<'de> for Key<'t> {
    type Value = Option<&'t Node>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'t> Visitor<'_> for Key<'t> {
    type Value = Option<&'t Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.children.iter().find(|(name, _)| name == key).map(|(_, node)| node))
    }
}

/// The dotted paths of all values in the objects, in the order of their first appearance.
pub(crate) fn listed<'a>(objects: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut paths = Vec::new();
    for object in objects {
        if let Ok(value) = serde_json::from_str(object) {
            list(&value, "", LISTED_DEPTH, &mut paths);
        }
    }
    paths
}

fn list(value: &serde_json::Value, at: &str, depth: usize, paths: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(object) if depth > 0 => {
            for (key, value) in object {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                list(value, &path, depth - 1, paths);
            }
        }
        _ if at.is_empty() || paths.len() >= LISTED_PATHS || paths.iter().any(|path| path == at) => {}
        _ => paths.push(at.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'de>(paths: &[&str], json: &'de str) -> Option<Vec<Option<&'de str>>> {
        Paths::new(paths.iter().copied()).find(json)
    }

    #[test]
    fn values_are_found_by_dotted_path_and_keep_their_text() {
        let json = r#"{"a":{"b":1.50,"x":[{"b":2}]},"c":"é","big":18446744073709551615,"a2":null}"#;
        assert_eq!(
            find(&["a.b", "c", "big", "a2", "nope", "a.x"], json),
            Some(vec![
                Some("1.50"),
                Some("\"é\""),
                Some("18446744073709551615"),
                Some("null"),
                None,
                Some(r#"[{"b":2}]"#)
            ])
        );
    }

    #[test]
    fn a_dot_may_belong_to_a_key() {
        let paths = ["gen_ai.usage.input"];
        for json in [
            r#"{"gen_ai.usage.input":7}"#,
            r#"{"gen_ai":{"usage":{"input":7}}}"#,
            r#"{"gen_ai.usage":{"input":7}}"#,
        ] {
            assert_eq!(find(&paths, json), Some(vec![Some("7")]), "{json}");
        }
    }

    #[test]
    fn an_object_and_a_value_in_it_can_both_be_asked_for() {
        assert_eq!(find(&["u", "u.n"], r#"{"u":{"n":1}}"#), Some(vec![Some(r#"{"n":1}"#), Some("1")]));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for json in ["", "[1]", "{", "{}x", "{\"a\":}", "12"] {
            assert_eq!(find(&["a"], json), None, "{json}");
        }
        assert_eq!(find(&["a.b"], r#"{"a":[1,2]}"#), Some(vec![None]));
    }

    #[test]
    fn paths_are_listed_for_people() {
        assert_eq!(listed([r#"{"a":{"b":1},"c":[1]}"#, r#"{"d":2,"c":3}"#, "nonsense"]), ["a.b", "c", "d"]);
    }
}
