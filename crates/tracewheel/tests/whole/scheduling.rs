//! The real-time class and the binding to cores: what was asked for, and what of it was obtained.

use tracewheel_record::Run;

use crate::harness::{Place, QUICK};

#[test]
fn a_real_time_class_is_asked_for_and_the_run_tells_whether_it_was_obtained() {
    let place = Place::new();
    place.small_timeline(6);
    let mock = place.mock(QUICK);
    let base = ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m"];
    let more = ["--json", "--speed", "20", "--realtime", "--workers", "2"];
    let report = place.json(0, &[&base[..], &more].concat());
    assert_eq!(report["run"]["counts"]["ok"], 6);
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    let machine = &run.manifest().machine;
    assert_eq!(machine.scheduling_asked.as_deref(), Some("fifo"));
    let warned = run.manifest().warnings.iter().any(|warning| warning.contains("CAP_SYS_NICE"));
    let obtained = machine.scheduling_class.as_deref() == Some("fifo");
    assert!(obtained != machine.scheduling_refused.is_some(), "one of the two: {machine:?}");
    assert_eq!(machine.scheduling_refused.is_some(), warned);
    let gave_back = machine.scheduling_changes.iter().filter(|change| change.class == "other").count() as u64;
    assert_eq!(machine.scheduling_step_downs, Some(gave_back));
    let plain = place.json(0, &[&base[..], &["--json", "--speed", "20"]].concat());
    let plain = Run::open(&place.path(plain["run_dir"].as_str().unwrap())).unwrap();
    assert_eq!(plain.manifest().machine.scheduling_asked, None);
    assert_eq!(plain.manifest().machine.scheduling_step_downs, None);
}

#[test]
fn sending_threads_are_bound_to_cores_that_the_process_may_use_and_to_no_others() {
    let place = Place::new();
    place.small_timeline(4);
    let mock = place.mock(QUICK);
    let base = ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m"];
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let core = (0..nix::sched::CpuSet::count()).find(|core| set.is_set(*core).unwrap()).unwrap().to_string();
    let report = place.json(0, &[&base[..], &["--json", "--speed", "20", "--pin", &core]].concat());
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    assert_eq!(run.manifest().machine.pinned_cores, [core.parse::<u32>().unwrap()]);
    assert!(run.manifest().warnings.iter().all(|warning| !warning.contains("bound")));
    let told = place.fails(2, &[&base[..], &["--pin", "1000"]].concat());
    assert!(told.contains("core 1000") && told.contains("may use"), "{told}");
}
