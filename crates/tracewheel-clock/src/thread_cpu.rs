//! CPU time of one thread.

use nix::time::{ClockId, clock_gettime};

/// CPU time that the calling thread has used so far, user and system, in nanoseconds. A system call: not for the hot path.
/// `None` where the system does not tell.
pub fn thread_cpu_ns() -> Option<i64> {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    Some(used.tv_sec().saturating_mul(1_000_000_000).saturating_add(used.tv_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_cpu_time_and_sleep_hardly_any() {
        let before = thread_cpu_ns().expect("Linux tells");
        let mut sum = 0_u64;
        while thread_cpu_ns().expect("Linux tells") - before < 2_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let worked = thread_cpu_ns().expect("Linux tells");
        crate::blocking::sleep(50_000_000);
        let slept = thread_cpu_ns().expect("Linux tells") - worked;
        assert!(worked - before >= 2_000_000 && slept < 40_000_000, "{slept}");
    }
}
