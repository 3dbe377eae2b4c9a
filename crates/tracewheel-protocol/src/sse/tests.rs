use proptest::prelude::*;

use super::*;

/// A frame that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Event(String, String, u64),
    Comment(String, u64),
    Oversize(u64),
}

fn own(frame: Frame<'_>) -> Owned {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match frame {
        Frame::Event { name, data, end_offset } => Owned::Event(text(name), text(data), end_offset),
        Frame::Comment { text: comment, end_offset } => Owned::Comment(text(comment), end_offset),
        Frame::Oversize { end_offset } => Owned::Oversize(end_offset),
    }
}

fn frames_of(mut framer: Framer, reads: &[&[u8]]) -> (Vec<Owned>, Tail) {
    let mut frames = Vec::new();
    for read in reads {
        framer.feed(read, |frame| frames.push(own(frame)));
    }
    (frames, framer.finish())
}

/// Frames of `stream`, made sure to be the same in one read, byte by byte, and cut at each place.
fn frames(stream: impl AsRef<[u8]>) -> (Vec<Owned>, Tail) {
    let stream = stream.as_ref();
    let whole = frames_of(Framer::new(), &[stream]);
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(frames_of(Framer::new(), &bytes), whole, "byte by byte");
    for cut in 0..=stream.len() {
        let (left, right) = stream.split_at(cut);
        assert_eq!(frames_of(Framer::new(), &[left, right]), whole, "cut at {cut}");
    }
    whole
}

fn event(data: &str, end_offset: u64) -> Owned {
    Owned::Event(String::new(), data.to_owned(), end_offset)
}

#[test]
fn lines_end_in_lf_cr_or_crlf_even_when_the_pair_is_cut() {
    for (end, offset) in [("\n", 9), ("\r", 9), ("\r\n", 10)] {
        let stream = format!("data: a{end}{end}data: b{end}{end}");
        let (frames, tail) = frames(&stream);
        assert_eq!(frames, [event("a", offset), event("b", stream.len() as u64 - (end.len() as u64 - 1))]);
        assert_eq!(tail, Tail::Clean);
    }
    assert_eq!(frames("data: a\r\rdata: b\n\r\n").0, [event("a", 9), event("b", 18)]);
}

#[test]
fn unicode_line_separators_are_not_line_ends() {
    let text = "{\"a\":\"x\u{2028}y\u{2029}z\u{85}\"}";
    assert_eq!(frames(format!("data: {text}\n\n")).0, [event(text, text.len() as u64 + 8)]);
}

#[test]
fn characters_that_straddle_reads_stay_whole() {
    let (frames, _) = frames("data: \u{1F600}\u{e9}\u{4e2d}\n\n");
    assert_eq!(frames, [event("\u{1F600}\u{e9}\u{4e2d}", 17)]);
}

#[test]
fn at_most_one_space_is_dropped_after_the_colon() {
    assert_eq!(frames("data:  a \n\n").0, [event(" a ", 11)]);
    assert_eq!(frames("data:a\n\n").0, [event("a", 8)]);
    assert_eq!(frames("data:\ta\n\n").0, [event("\ta", 9)]);
}

#[test]
fn several_data_lines_are_joined_with_lf() {
    assert_eq!(frames("data: a\ndata: b\r\ndata:\n\n").0, [event("a\nb\n", 24)]);
}

#[test]
fn lines_that_begin_with_a_colon_are_comments() {
    let stream = ": OPENROUTER PROCESSING\n\n:\n\ndata: a\n: inside\n\n:last\r\n";
    let (frames, tail) = frames(stream);
    assert_eq!(
        frames,
        [
            Owned::Comment(" OPENROUTER PROCESSING".into(), 24),
            Owned::Comment(String::new(), 27),
            Owned::Comment(" inside".into(), 45),
            event("a", 46),
            Owned::Comment("last".into(), 52),
        ]
    );
    assert_eq!(tail, Tail::Clean);
}

#[test]
fn a_blank_line_without_data_completes_nothing_and_forgets_the_name() {
    let (frames, tail) = frames("id: 7\n\nevent: x\n\n\n\nretry: 5\n\ndata: a\n\n");
    assert_eq!(frames, [event("a", 38)]);
    assert_eq!(tail, Tail::Clean);
}

#[test]
fn empty_data_is_an_event_with_empty_data() {
    assert_eq!(frames("data:\n\ndata\n\ndata: \n\n").0, [event("", 7), event("", 13), event("", 21)]);
}

#[test]
fn what_no_blank_line_completed_is_a_tail() {
    for stream in ["data: a", "data: a\n", "data: a\n: c\n", "da", "data: a\n\ndata: b\r\n", "\u{feff}d"] {
        assert_eq!(frames(stream).1, Tail::Unterminated, "{stream:?}");
    }
    for stream in
        ["", "\n", ": comment", "event: x\n", "data: a\n\n", "data: a\n\r\n", "\u{feff}", "\u{feff}: c"]
    {
        assert_eq!(frames(stream).1, Tail::Clean, "{stream:?}");
    }
}

#[test]
fn an_event_over_many_reads_ends_where_its_blank_line_ends() {
    let reads: [&[u8]; 5] = [b"da", b"ta: {\"a\"", b":1}\n", b"\n", b"data: b\n\n"];
    assert_eq!(frames_of(Framer::new(), &reads).0, [event("{\"a\":1}", 15), event("b", 24)]);
}

#[test]
fn an_event_beyond_the_bound_stops_the_framing_at_the_same_byte_for_every_cut() {
    let limited = || Framer::with_limit(20);
    for stream in [
        "data: 0123456789ab\n\ndata: 0123456789abc\n\ndata: x\n\n",
        "data: a\n\ndata: b\ndata: c\ndata: d\n\n",
    ] {
        let whole = frames_of(limited(), &[stream.as_bytes()]);
        assert!(matches!(whole.0[..], [Owned::Event(..), Owned::Oversize(_)]), "{whole:?}");
        for size in 1..stream.len() {
            let reads: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            assert_eq!(frames_of(limited(), &reads), whole, "reads of {size}");
        }
    }
    // Many small events and comments are not one large event.
    let many = ": ping\n\ndata: a\n\n".repeat(50);
    assert_eq!(frames_of(limited(), &[many.as_bytes()]).0.len(), 100);
}

#[test]
fn an_event_of_many_megabytes_is_taken_whole() {
    let mut stream = b"data: ".to_vec();
    stream.resize(MAX_EVENT_BYTES as usize - 2, b'x');
    stream.extend_from_slice(b"\n\n");
    for size in [64 * 1024, stream.len()] {
        let mut framer = Framer::new();
        let mut seen = Vec::new();
        for read in stream.chunks(size) {
            framer.feed(read, |frame| match frame {
                Frame::Event { data, end_offset, .. } => seen.push((data.len() as u64, end_offset)),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(seen, [(MAX_EVENT_BYTES - 8, MAX_EVENT_BYTES)]);
    }
}

#[test]
fn names_are_kept_and_the_last_one_counts() {
    let (frames, _) = frames("event: a\nevent:  b\ndata: 1\n\ndata: 2\n\n");
    assert_eq!(frames, [Owned::Event(" b".into(), "1".into(), 28), event("2", 37)]);
}

#[test]
fn a_leading_byte_order_mark_is_skipped_once() {
    assert_eq!(frames("\u{feff}data: a\n\n\u{feff}data: b\n\n").0, [event("a", 12)]);
    assert_eq!(frames("\u{feff}\ndata: a\n\n").0, [event("a", 13)]);
    assert_eq!(frames("\u{feff}\u{feff}data: a\n\n").0, []);
}

#[test]
fn fields_of_other_names_are_skipped() {
    assert_eq!(frames("dat: x\nDATA: x\ndatax: y\n: c\n\nfoo\n\n").0, [Owned::Comment(" c".into(), 28)]);
}

/// Cuts `stream` at `cuts` (taken modulo its length).
fn cut<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|index| index.index(stream.len() + 1)).collect();
    places.extend([0, stream.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}

/// Bytes that are likely to be a stream.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just("data: ".to_owned()),
        Just("data:".to_owned()),
        Just("event: e".to_owned()),
        Just(": ping".to_owned()),
        Just("\n".to_owned()),
        Just("\r".to_owned()),
        Just("\r\n".to_owned()),
        Just("\n\n".to_owned()),
        Just("\u{feff}".to_owned()),
        "[a-z:\u{e9}\u{2028} ]{0,6}",
    ];
    prop_oneof![
        3 => prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_frames(
        stream in streams(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        limit in prop_oneof![Just(MAX_EVENT_BYTES), 1_u64..60],
    ) {
        let whole = frames_of(Framer::with_limit(limit), &[&stream]);
        let pieces = frames_of(Framer::with_limit(limit), &cut(&stream, &cuts));
        prop_assert_eq!(pieces, whole);
    }

    #[test]
    fn end_offsets_rise_and_stay_inside_the_stream(stream in streams()) {
        let mut last = 0;
        for frame in frames_of(Framer::new(), &[&stream]).0 {
            let (Owned::Event(_, _, end) | Owned::Comment(_, end) | Owned::Oversize(end)) = frame;
            prop_assert!(end > last && end <= stream.len() as u64);
            last = end;
        }
    }
}
