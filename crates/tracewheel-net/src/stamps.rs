//! The stamps of one stream, shared between the stream and whoever measures it.

use std::sync::{Arc, Mutex};

use tracewheel_clock::RunNs;

/// When one read's bytes arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadStamp {
    /// The run clock right after the read returned.
    pub user_ns: RunNs,
    /// The kernel's receive stamp on the run clock; `None` where it gave none or a clock step voids it.
    pub kernel_ns: Option<RunNs>,
    /// Bytes that the read delivered.
    pub bytes: u32,
}

/// When the current exchange's request left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteMarks {
    /// The run clock right before the call with which the kernel accepted the first byte.
    pub first_call_ns: Option<RunNs>,
    /// The run clock right after that call returned: the kernel has the first byte.
    pub first_ns: Option<RunNs>,
    /// The run clock right after the latest call that accepted bytes: once all is written, the kernel has the last.
    pub last_ns: Option<RunNs>,
    /// Bytes accepted since the exchange began.
    pub bytes: u64,
}

/// A handle to a stream's stamps. Cheap to clone; lives as long as needed, also after the stream is gone.
#[derive(Clone, Debug)]
pub struct StreamStamps {
    _log: Arc<Mutex<()>>,
}

impl StreamStamps {
    /// Starts a new exchange: forgets the write marks. Reads that were not drained stay.
    pub fn begin_exchange(&self) {
        todo!()
    }

    /// The current exchange's write marks.
    pub fn write_marks(&self) -> WriteMarks {
        todo!()
    }

    /// Moves all logged reads to the end of `out`, oldest first.
    pub fn drain_reads(&self, out: &mut Vec<ReadStamp>) {
        let _ = out;
        todo!()
    }

    /// The run clock right after the read that found the end of the stream.
    pub fn eof_ns(&self) -> Option<RunNs> {
        todo!()
    }

    /// Reads whose bytes were added to the stamp of a later one because the log was full.
    pub fn merged_reads(&self) -> u64 {
        todo!()
    }
}
