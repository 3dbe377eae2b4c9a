//! Invariant 3: decoders give equal events under any split of the bytes.

use proptest::prelude::*;

use super::*;

/// A message as a server or something that is none would send it.
fn messages() -> impl Strategy<Value = String> {
    let text = "[a-z\u{e9}\u{4e2d}\u{1F600}\u{2028}\"\\\\\n]{0,8}";
    let delta = (text, prop::sample::select(&["content", "reasoning", "refusal", "role", "x"][..]))
        .prop_map(|(text, key)| format!("{{\"{key}\":{}}}", serde_json::to_string(&text).unwrap()));
    let choice = (delta, 0..3_u32, prop::option::of(0..4_usize)).prop_map(|(delta, index, ids)| {
        let ids = ids.map_or(String::new(), |ids| format!(",\"token_ids\":{:?}", vec![7; ids]));
        format!("{{\"index\":{index},\"delta\":{delta}{ids}}}")
    });
    let usage = prop::option::of(0..50_u32).prop_map(|total| match total {
        Some(total) => format!("{{\"prompt_tokens\":5,\"completion_tokens\":{total}}}"),
        None => "null".to_owned(),
    });
    let chunk = (prop::collection::vec(choice, 0..3), usage)
        .prop_map(|(choices, usage)| format!("{{\"choices\":[{}],\"usage\":{usage}}}", choices.join(",")));
    prop_oneof![
        8 => chunk,
        1 => Just("[DONE]".to_owned()),
        1 => Just("{\"error\":{\"message\":\"m\"}}".to_owned()),
        1 => Just("{\"broken".to_owned()),
        1 => Just(String::new()),
        1 => Just(": wrapped".to_owned()),
    ]
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let end = prop::sample::select(&["\n\n", "\r\n\r\n", "\r\r", "\n", "\n: ping\n\n"][..]);
    let prefix = prop::sample::select(&["data: ", "data:", "event: note\ndata: ", "\u{feff}data: ", ""][..]);
    let event =
        (prefix, messages(), end).prop_map(|(prefix, message, end)| format!("{prefix}{message}{end}"));
    prop_oneof![
        4 => prop::collection::vec(event, 0..12).prop_map(|events| events.concat().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..300),
        1 => messages().prop_map(String::into_bytes),
    ]
}

fn cut<'a>(body: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|index| index.index(body.len() + 1)).collect();
    places.extend([0, body.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn events_are_equal_under_any_cut(
        body in bodies(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..16),
        status in prop::sample::select(&[200_u16, 200, 200, 429][..]),
    ) {
        let head = ResponseHead { status, content_type: None };
        prop_assert_eq!(decode_reads(&head, cut(&body, &cuts)), decode_reads(&head, [&body[..]]));
    }

    #[test]
    fn outputs_are_never_empty_and_offsets_never_fall(body in bodies()) {
        let decoded = decode_reads(&STREAM, body.chunks(7));
        let mut last = 0;
        for event in &decoded.events {
            prop_assert!(!event.kind.is_output() || event.bytes > 0);
            prop_assert!(event.end_offset >= last && event.end_offset <= body.len() as u64);
            last = event.end_offset;
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_only_an_end_marker_or_an_answer_is_a_success(
        body in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let decoded = decode_reads(&STREAM, [&body[..]]);
        prop_assert!(!decoded.end.is_success());
    }
}
