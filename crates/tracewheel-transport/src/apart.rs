//! Late reads, taken apart.
//!
//! A read that finds several chunks waiting takes them all, and the kernel tells when the last of them came: the others'
//! arrival is then known as a bound only. The kernel still holds them as separate segments with a stamp each, as long as
//! it had no reason to merge them. So where more than one chunk may be waiting, the bytes are looked at first, and
//! each chunk is then taken by a read that ends where it ends: its stamp is that of its own segment.
//!
//! A look costs a system call, so it is not made before each read: only when the thread has just been seen late, or when
//! the answer has been silent for longer than its chunks are usually apart.

use std::cell::Cell;

use memchr::memmem;
use tracewheel_net::ReadStamp;

use crate::h1::Framing;

/// A read that comes so long after its bytes was late. Chunks that are closer together than this are not told apart.
const LATE_NS: i64 = 200_000;
/// Reads that earn one look. More looks than that on the whole would cost more than they tell: who is always late has
/// other troubles.
const READS_FOR_A_LOOK: u32 = 4;
/// What can be saved up: a thread that was stopped finds a chunk or two in each of its sockets.
const MOST_SAVED: u32 = 4096 * READS_FOR_A_LOOK;

thread_local! {
    static THREAD: Cell<Thread> = const { Cell::new(Thread { late: false, saved: MOST_SAVED }) };
}

/// What the reads of one thread say of it.
#[derive(Debug, Clone, Copy)]
struct Thread {
    /// The latest read came late.
    late: bool,
    saved: u32,
}

/// The pace of one answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// When its latest read's bytes came; 0 before the first.
    last_ns: i64,
    /// How far apart reads usually are; 0 while that is not known.
    usual_ns: i64,
}

impl Pace {
    /// Notes a read of the answer.
    pub(crate) fn note(&mut self, read: ReadStamp) {
        let at_ns = read.kernel_ns.unwrap_or(read.user_ns).0;
        if self.last_ns > 0 {
            let gap_ns = at_ns - self.last_ns;
            self.usual_ns += if self.usual_ns == 0 { gap_ns } else { (gap_ns - self.usual_ns) / 4 };
        }
        self.last_ns = at_ns;
        let late = read.kernel_ns.is_some_and(|kernel_ns| read.user_ns.since(kernel_ns) > LATE_NS);
        let saved = THREAD.get().saved;
        THREAD.set(Thread { late, saved: (saved + 1).min(MOST_SAVED) });
    }

    /// Whether a look before the next read, at `now_ns`, is worth its price; takes the price.
    pub(crate) fn wants_a_look(&self, now_ns: i64) -> bool {
        let silent_ns = now_ns - self.last_ns;
        let overdue = self.last_ns > 0 && self.usual_ns > LATE_NS && silent_ns > self.usual_ns / 2 * 3;
        let thread = THREAD.get();
        if !(overdue || thread.late) || thread.saved < READS_FOR_A_LOOK {
            return false;
        }
        THREAD.set(Thread { saved: thread.saved - READS_FOR_A_LOOK, ..thread });
        true
    }
}

/// Where the first of several chunks in `waiting` ends, read on in this framing; `None` where there is no second one.
pub(crate) fn first_of_several(mut framing: Framing, waiting: &[u8]) -> Option<usize> {
    let Framing::Chunked(_) = framing else {
        // Without chunks, the events of a stream end with a blank line.
        let end = memmem::find(waiting, b"\n\n")? + 2;
        return (end < waiting.len()).then_some(end);
    };
    let mut at = 0;
    framing.next(waiting, &mut at).ok()??;
    let end = at;
    framing.next(waiting, &mut at).ok()??;
    Some(end)
}

/// As [`first_of_several`], where an answer's head comes before.
pub(crate) fn first_after_head(waiting: &[u8]) -> Option<usize> {
    let head = memmem::find(waiting, b"\r\n\r\n")? + 4;
    let rest = &waiting[head..];
    // What are no chunks does not pass for two of them.
    let first =
        first_of_several(Framing::chunked(), rest).or_else(|| first_of_several(Framing::UntilClose, rest));
    first.map(|end| head + end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracewheel_clock::RunNs;

    const MS: i64 = 1_000_000;

    fn read(kernel_ns: i64, lag_ns: i64) -> ReadStamp {
        ReadStamp { user_ns: RunNs(kernel_ns + lag_ns), kernel_ns: Some(RunNs(kernel_ns)), bytes: 1 }
    }

    fn afresh() -> Pace {
        THREAD.set(Thread { late: false, saved: MOST_SAVED });
        Pace::default()
    }

    #[test]
    fn chunks_are_told_apart_and_a_single_one_is_left_whole() {
        let chunked = Framing::chunked();
        assert_eq!(first_of_several(chunked, b"3\r\nabc\r\n2\r\nde\r\n"), Some(6));
        assert_eq!(
            first_of_several(chunked, b"3\r\nabc\r\n2\r\nd"),
            Some(6),
            "of the second one a part is there"
        );
        assert_eq!(first_of_several(chunked, b"3\r\nabc\r\n"), None);
        assert_eq!(first_of_several(chunked, b"3\r\nabc\r\n0\r\n\r\n"), None, "the end is no chunk");
        assert_eq!(first_of_several(chunked, b"zz"), None);
        let mut inside = chunked;
        inside.next(b"5\r\nab", &mut 0).unwrap();
        assert_eq!(first_of_several(inside, b"cde\r\n1\r\nf\r\n"), Some(3));
    }

    #[test]
    fn events_are_told_apart_where_there_are_no_chunks() {
        for framing in [Framing::UntilClose, Framing::Length(99)] {
            assert_eq!(first_of_several(framing, b"data: a\n\ndata: b\n\n"), Some(9));
            assert_eq!(first_of_several(framing, b"data: a\n\n"), None);
            assert_eq!(first_of_several(framing, b"data: a"), None);
        }
    }

    #[test]
    fn a_head_goes_with_its_first_chunk() {
        let after = |rest: &str| {
            let head = "HTTP/1.1 200 OK\r\n\r\n";
            first_after_head(format!("{head}{rest}").as_bytes()).map(|end| end - head.len())
        };
        assert_eq!(after("3\r\nabc\r\n2\r\nde\r\n"), Some(6));
        assert_eq!(after("data: a\n\ndata: b\n\n"), Some(9));
        for single in ["", "x", "3\r\nabc\r\n", "3\r\nabc\r\n0\r\n\r\n", "data: a\n\n"] {
            assert_eq!(after(single), None, "{single:?}");
        }
        assert_eq!(first_after_head(b"HTTP/1.1 200"), None);
    }

    #[test]
    fn an_answer_at_its_pace_is_not_looked_at_and_one_that_is_overdue_is() {
        let mut pace = afresh();
        assert!(!pace.wants_a_look(5 * MS), "nothing is known yet");
        for chunk in 1..5 {
            pace.note(read(chunk * 2 * MS, 10_000));
            assert!(!pace.wants_a_look(chunk * 2 * MS + 2_900_000));
        }
        assert!(pace.wants_a_look(8 * MS + 3_100_000));
    }

    #[test]
    fn chunks_that_come_close_together_are_not_waited_for() {
        let mut pace = afresh();
        (1..5).for_each(|chunk| pace.note(read(chunk * 100_000, 10_000)));
        assert!(!pace.wants_a_look(MS), "what lies closer than a late read is not told apart");
    }

    #[test]
    fn a_late_read_makes_the_thread_look_at_its_other_answers_until_one_is_in_time() {
        let (mut late, other) = (afresh(), Pace::default());
        late.note(read(MS, 2 * MS));
        assert!(other.wants_a_look(3 * MS));
        late.note(read(4 * MS, 10_000));
        assert!(!other.wants_a_look(5 * MS));
    }

    #[test]
    fn who_is_always_late_looks_before_one_read_in_four() {
        let mut pace = afresh();
        let looks = (1..100_000).filter(|chunk| {
            pace.note(read(chunk * MS, 2 * MS));
            pace.wants_a_look(chunk * MS + 2 * MS)
        });
        assert_eq!(looks.count(), (99_999 + MOST_SAVED as usize) / READS_FOR_A_LOOK as usize);
    }

    #[test]
    fn without_the_kernels_stamps_no_thread_is_late() {
        let mut pace = afresh();
        pace.note(ReadStamp { user_ns: RunNs(MS), kernel_ns: None, bytes: 1 });
        assert!(!pace.wants_a_look(MS));
    }
}
