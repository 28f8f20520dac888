//! The programs, simulated from end to end: what they count is what they should do.

use crate::common::{run, run_on, spec, user_ns};
use contend_machine::Machine;
use contend_sim::host::{Outcome, RunResult};

#[test]
fn hackbench_delivers_every_message_on_every_transport() {
    for transport in ["pipe", "socket"] {
        for preset in ["linux-2.6.37", "linux-5.2", "linux-6.18"] {
            let sets = [("groups", "2"), ("fds", "5"), ("loops", "30"), ("transport", transport), ("jitter_pct", "0")];
            let s = spec("hackbench", &sets);
            // Without SMT, so that work takes its nominal time.
            let r = run("2n2c", preset, &s);
            assert_eq!(r.outcome, Outcome::Finished, "{transport} {preset}");
            assert_eq!(r.metrics.counts["messages"], 2 * 5 * 5 * 30);
            assert!(r.metrics.counts["run_ns"] > 0 && r.metrics.counts["run_ns"] <= r.virtual_ns);
            assert_eq!(r.tasks.len(), 20);
            // Each message: 50 ns on either side. (A sender's work precedes its messages, a receiver's follows.)
            let work = 2 * 50 * r.metrics.counts["messages"];
            assert!((work..work + 10_000).contains(&user_ns(&r)), "{} for {work}", user_ns(&r));
        }
    }
}

#[test]
fn hackbench_with_messages_as_large_as_a_pipe_finishes() {
    let s = spec("hackbench", &[("groups", "1"), ("fds", "3"), ("loops", "9"), ("bytes", "65536")]);
    for transport in ["pipe", "socket"] {
        let mut s = s.clone();
        s.set("transport", transport).expect("a transport");
        assert_eq!(run("2c", "linux-6.18", &s).metrics.counts["messages"], 81);
    }
}

#[test]
fn ping_pong_alternates() {
    for channel in ["pipe", "futex"] {
        for pin in ["none", "same", "near", "far"] {
            let sets = [("pairs", "2"), ("round_trips", "500"), ("channel", channel), ("pin", pin), ("work_ns", "300")];
            let r = run("2n2c", "linux-6.18", &spec("ping-pong", &sets));
            assert_eq!(r.metrics.counts["round_trips"], 1000, "{channel} {pin}");
            let h = &r.metrics.latencies["round_trip"].histogram;
            assert_eq!(h.len(), 1000);
            assert!(h.min() >= 600, "both sides work between sends");
            assert!((2 * 2 * 500 * 300..2 * 2 * 500 * 300 + 100_000).contains(&user_ns(&r)));
        }
    }
}

#[test]
fn a_far_partner_costs_more_than_a_near_one() {
    let trip = |pin| {
        let r = run("2n4c", "linux-6.18", &spec("ping-pong", &[("round_trips", "2000"), ("pin", pin)]));
        r.metrics.latencies["round_trip"].histogram.mean()
    };
    assert!(trip("far") > trip("near"));
}

#[test]
fn schbench_measures_every_request() {
    let sets = [("workers", "4"), ("sleep_us", "500"), ("think_us", "300"), ("duration_ms", "200")];
    let r = run("4c", "linux-6.18", &spec("schbench", &sets));
    let (requests, wakeups) = (r.metrics.counts["requests"], r.metrics.latencies["wakeup"].histogram.len());
    // 2 message threads wake 4 workers each every 0.5 to 0.625 ms plus about 0.6 ms of work.
    assert!((8 * 100..8 * 400).contains(&requests), "{requests}");
    assert!((requests..=requests + 8).contains(&wakeups), "{wakeups} for {requests}");
    assert!(r.metrics.latencies["request"].histogram.min() >= 300_000);
}

#[test]
fn sembench_wakes_a_batch_when_so_many_wait() {
    for op in ["futex", "ipc"] {
        let sets = [
            ("threads", "12"),
            ("batch", "10"),
            ("op", op),
            ("burn_ns", "2000"),
            ("wakers", "2"),
            ("duration_ms", "50"),
        ];
        let r = run("2n2c", "linux-6.18", &spec("sembench", &sets));
        assert_eq!(r.outcome, Outcome::Horizon);
        let burns = r.metrics.counts["burns"];
        // Each burn is 2 to 2.5 us of work; what is under way at the end counts for nothing.
        let work = user_ns(&r);
        assert!((burns * 2000..burns * 2500 + 24 * 2500).contains(&work), "{op}: {work} ns for {burns}");
        assert!(burns > 2000, "{op}: {burns}");
        // Posts to threads come ten at a time. The array's lock is taken by each wait and once a batch.
        let posted: u64 = r.tasks.iter().filter(|t| t.name.starts_with("thread")).map(|t| t.wake.nr_wakeups).sum();
        assert!(posted <= burns + 24 && posted > burns / 2, "{op}: {posted} wake-ups for {burns} burns");
        let array: u64 = r.locks.iter().filter(|l| l.name.starts_with("array")).map(|l| l.stats.acquisitions).sum();
        if op == "ipc" {
            assert!((burns + burns / 10..burns + burns / 10 + 60).contains(&array), "{array} for {burns}");
        } else {
            assert_eq!(array, 0);
        }
    }
    let pinned = spec("sembench", &[("threads", "6"), ("batch", "6"), ("pin", "true"), ("duration_ms", "5")]);
    let r = run("4c", "linux-6.18", &pinned);
    assert_eq!(r.tasks.iter().map(|t| t.run.nr_migrations + t.wake.nr_wakeups_migrate).sum::<u64>(), 0);
    let more =
        spec("sembench", &[("threads", "4"), ("batch", "5")]).build(2, &|_| unreachable!()).err().expect("an error");
    let alone = pinned.build(1, &|_| unreachable!()).err().expect("an error");
    assert_eq!(
        alone.to_string(),
        "workload.pin: found true with 1 wakers on 1 CPUs; should be false, or more CPUs than wakers"
    );
    assert_eq!(
        more.to_string(),
        "workload.batch: found 5 at a time of 4 threads; should be at most as many as there are threads"
    );
}

#[test]
fn uperf_counts_every_message_that_arrives() {
    for preset in ["linux-2.6.37", "linux-5.2", "linux-6.18"] {
        let sets = [("threads", "5"), ("work_ns", "700"), ("duration_ms", "20")];
        let r = run("2n2c", preset, &spec("uperf", &sets));
        assert_eq!(r.outcome, Outcome::Horizon);
        let (messages, trips) = (r.metrics.counts["messages"], r.metrics.latencies["round_trip"].histogram.len());
        // A round trip is two messages; one of them may be under way for each of the 5 pairs.
        assert!((2 * trips..=2 * trips + 5).contains(&messages) && trips > 1000, "{messages} for {trips}");
        // A message is worked for before it is sent: a task may have done so, or be at it.
        let work = 700 * messages;
        assert!((work - 700 * 5..=work + 700 * 10).contains(&user_ns(&r)), "{} for {work}", user_ns(&r));
        assert!(r.metrics.latencies["round_trip"].histogram.min() >= 1400);
    }
}

#[test]
fn tbench_moves_the_payload_of_its_mix() {
    let r = run("2n2c", "linux-5.2", &spec("tbench", &[("clients", "6"), ("duration_ms", "100")]));
    let (ops, bytes) = (r.metrics.counts["ops"], r.metrics.counts["bytes"]);
    assert_eq!(ops, r.metrics.latencies["op"].histogram.len());
    // 307.8 MB/s for 1,000 s in 56.7 million operations, in the run that the mix is taken from.
    let mean = bytes as f64 / ops as f64 / (307_799e6 / 56_721_024.0);
    assert!(ops > 5000 && (0.9..1.1).contains(&mean), "{mean} of {ops}");
    let work = 2 * 2000 * ops;
    assert!((work..work + 6 * 4000).contains(&user_ns(&r)), "{} for {work}", user_ns(&r));
}

#[test]
fn dbench_commits_wake_all_who_wait_for_them() {
    for (clients, preset) in [("1", "linux-5.2"), ("5", "linux-5.2"), ("40", "linux-6.18")] {
        let sets = [("clients", clients), ("device_us", "100"), ("duration_ms", "100")];
        let r = run("8c", preset, &spec("dbench", &sets));
        let (commits, flushes) = (r.metrics.counts["commits"], r.metrics.counts["flushes"]);
        let (ops, bytes) = (r.metrics.counts["ops"], r.metrics.counts["bytes"]);
        assert!(flushes > 10 && commits <= flushes + 1, "{commits} for {flushes}");
        // One is alone in its transaction, many share it.
        assert!(if clients == "1" { flushes.abs_diff(commits) <= 1 } else { flushes > commits * 11 / 10 });
        // The transaction under way, one's own, and for 40 tasks on 8 CPUs the turns of the others.
        let h = &r.metrics.latencies["flush"].histogram;
        let max = if clients == "40" { 30_000_000 } else { 2 * 100_000 + 100_000 };
        assert!(h.min() >= 100_000 && h.max() <= max, "{clients}: {} to {}", h.min(), h.max());
        // The shares of the mix.
        assert!((0.8..1.2).contains(&(flushes as f64 / ops as f64 / 0.0121)), "{flushes} of {ops}");
        assert!((0.9..1.1).contains(&(bytes as f64 / ops as f64 / 5427.0)), "{bytes} of {ops}");
        // WriteX, Unlink, as many creations, Sfileinfo, Rename: 17.7 % of the operations (and one a commit).
        let lock = r.locks.iter().find(|l| l.name == "journal").expect("the lock").stats.acquisitions;
        let share = (lock - commits) as f64 / ops as f64;
        assert!((0.167..0.187).contains(&share), "{share}");
    }
}

#[test]
fn dbench_falls_when_hardware_threads_spin_beside_the_holder() {
    // 4 cores of two threads: 4 clients leave the lock's holder a core, 8 do not.
    let rate = |clients| {
        let sets = [("clients", clients), ("journal_ns", "50000"), ("duration_ms", "200"), ("device_us", "1")];
        run("1n1l4c2t", "linux-5.2", &spec("dbench", &sets)).metrics.counts["ops"]
    };
    let (one, four, eight) = (rate("1"), rate("4"), rate("8"));
    assert!(four < one * 2 && eight < four * 9 / 10, "{one} {four} {eight}");
}

#[test]
fn oltp_commits_in_groups() {
    for (threads, preset) in [("1", "linux-5.2"), ("6", "linux-5.2"), ("50", "linux-6.18")] {
        let sets = [("threads", threads), ("statement_us", "20"), ("log_us", "400"), ("duration_ms", "200")];
        let r = run("12c", preset, &spec("oltp", &sets));
        let (transactions, writes) = (r.metrics.counts["transactions"], r.metrics.counts["log_writes"]);
        let n: u64 = threads.parse().expect("a number");
        // 20 statements each; a client may be in the midst of one transaction.
        let statements = r.metrics.counts["statements"];
        assert!((20 * transactions..=20 * transactions + 19 * n).contains(&statements));
        assert!(transactions > 50 && writes <= transactions + n, "{writes} for {transactions}");
        assert!(if n == 1 { writes.abs_diff(transactions) <= 1 } else { transactions > writes * 3 / 2 });
        // One write at a time, and nobody's commit is forgotten: the write under way and one's own.
        assert!(writes <= 200_000 / 400 + 1);
        let h = &r.metrics.latencies["commit"].histogram;
        let max = if n == 50 { 50_000_000 } else { 2 * 400_000 + 300_000 };
        assert!(h.min() >= 400_000 && h.max() <= max, "{n}: {} to {}", h.min(), h.max());
        // Statements of 20 us and of 10 us at the client; one of each client is not complete, 235 % at most.
        let work = 30_000 * statements;
        let slack = work / 20 + n * 60_000;
        assert!((work - slack..work + slack).contains(&user_ns(&r)), "{} for {work}", user_ns(&r));
    }
}

#[test]
fn a_log_writer_posts_every_session_that_waits() {
    for (users, preset) in [("1", "linux-5.2"), ("10", "linux-5.2"), ("60", "linux-6.18")] {
        let sets = [("users", users), ("call_us", "20"), ("log_us", "400"), ("duration_ms", "300")];
        let r = run("16c", preset, &spec("oltp-dedicated", &sets));
        let (transactions, writes) = (r.metrics.counts["transactions"], r.metrics.counts["log_writes"]);
        let n: u64 = users.parse().expect("a number");
        let calls = r.metrics.counts["calls"];
        assert!((10 * transactions..=10 * transactions + 10 * n).contains(&calls), "{calls} for {transactions}");
        assert!(transactions > 50 && writes <= transactions + 1, "{writes} for {transactions}");
        assert!(if n == 1 { writes.abs_diff(transactions) <= 1 } else { transactions > writes * 6 / 5 });
        // A write takes 200 to 600 us and 20 us of work: the one under way, and one's own.
        let h = &r.metrics.latencies["commit"].histogram;
        let max = if n == 60 { 10_000_000 } else { 2 * 620_000 + 300_000 };
        assert!(h.min() >= 220_000 && h.max() <= max, "{n}: {} to {}", h.min(), h.max());
        let work = 20_500 * calls + 20_000 * writes;
        assert!((work * 9 / 10..work * 11 / 10).contains(&user_ns(&r)), "{} for {work}", user_ns(&r));
    }
}

#[test]
fn periodic_tasks_keep_their_periods() {
    let sets =
        [("tasks", "4"), ("run_us", "1000"), ("sleep_us", "1000"), ("sleep_steps", "1"), ("duration_ms", "1000")];
    let r = run("4c", "linux-6.18", &spec("periodic", &sets));
    // 500 periods of 2 ms each but for what the kernel takes; up to 63 of a task are not counted yet.
    assert!((1700..=2000).contains(&r.metrics.counts["periods"]), "{:?}", r.metrics.counts);
    let user = user_ns(&r) as f64 / 1e9;
    assert!((1.9..=2.0).contains(&user), "{user}");
}

#[test]
fn spinlock_loops_are_counted_as_the_lock_counts() {
    let sets = [("lock", "spinlock"), ("tasks", "4"), ("duration_ms", "20")];
    let r = run("4c", "linux-6.18", &spec("lock-loop", &sets));
    let lock = r.locks.iter().find(|l| l.name == "lock-loop").expect("the lock");
    let counted = r.metrics.counts["acquisitions"];
    assert!((counted..=counted + 4).contains(&lock.stats.acquisitions), "{counted} {}", lock.stats.acquisitions);
}

#[test]
fn mutexes_are_counted_beside_their_hash_buckets() {
    let run = |tasks| {
        let sets = [("lock", "mutex"), ("tasks", tasks), ("critical_ns", "20000"), ("duration_ms", "20")];
        run("4c", "linux-6.18", &spec("lock-loop", &sets))
    };
    let named = |r: &RunResult, kind, name| {
        let lock = r.locks.iter().find(|l| l.kind == kind && l.name == name).expect("the lock");
        lock.stats
    };
    let r = run("4");
    let mutex = named(&r, "mutex", "lock-loop");
    let counted = r.metrics.counts["acquisitions"];
    assert!((counted..=counted + 4).contains(&mutex.acquisitions), "{counted} {mutex:?}");
    // Four want it, 20 of 21 us each; one has it again before any other that was woken runs. Those wait for all the time.
    assert!(mutex.hold_ns > 18_000_000 && mutex.hold_ns <= r.virtual_ns, "{mutex:?}");
    assert!(mutex.contended >= 3 && mutex.wait_ns_max > 10_000_000, "{mutex:?}");
    assert!(mutex.wait_ns > 50_000_000 && mutex.wait_ns <= 4 * r.virtual_ns, "{mutex:?}");
    assert!(named(&r, "futex", "futex of lock-loop").hold_ns < mutex.hold_ns / 10);
    // One alone: always free, and no system call.
    let r = run("1");
    let mutex = named(&r, "mutex", "lock-loop");
    assert!(mutex.acquisitions > 900 && mutex.contended == 0 && mutex.hold_ns > 18_000_000, "{mutex:?}");
    assert_eq!(named(&r, "futex", "futex of lock-loop").acquisitions, 0);
}

#[test]
fn a_mix_ends_with_the_parts_that_end() {
    let text = "[workload]\nkind = \"mix\"\nparts = [\n{ kind = \"hogs\", tasks = 3, nice = 5 },\n\
                { kind = \"ping-pong\", round_trips = 100 },\n]\n";
    let table = toml::de::DeTable::parse(text).expect("valid TOML");
    let mut s = contend_workload::WorkloadSpec::from_toml(&table.get_ref()["workload"]).expect("a mix");
    s.set("parts.1.round_trips", "50").expect("a key of a part");
    let r = run("2c", "linux-6.18", &s);
    assert_eq!(r.outcome, Outcome::Finished);
    assert_eq!(r.metrics.counts["round_trips"], 50);
    assert_eq!(r.tasks.iter().filter(|t| t.name.starts_with("hog")).count(), 3);
}

#[test]
fn equal_seeds_give_equal_runs() {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/hackbench-2cpu.txt.gz");
    let all = [
        spec("hackbench", &[("groups", "2"), ("fds", "4"), ("loops", "20")]),
        spec("schbench", &[("duration_ms", "100"), ("sleep_us", "400"), ("think_us", "200")]),
        spec("ping-pong", &[("round_trips", "300")]),
        spec("periodic", &[("tasks", "20"), ("duration_ms", "200")]),
        spec("mmc", &[("jobs", "2000")]),
        spec("lock-loop", &[("duration_ms", "20")]),
        spec("hogs", &[("tasks", "5"), ("duration_ms", "100")]),
        spec("recording", &[("file", recording)]),
        spec("uperf", &[("threads", "9"), ("duration_ms", "5")]),
        spec("dbench", &[("clients", "9"), ("duration_ms", "20")]),
        spec("oltp", &[("threads", "9"), ("duration_ms", "20")]),
        spec("oltp-dedicated", &[("users", "9"), ("duration_ms", "20")]),
        spec("kernel-build", &[("jobs", "9"), ("compile_ms", "20"), ("duration_ms", "50")]),
        spec("guest-boot", &[("serial_ms", "1"), ("broadcasts", "9"), ("service_ms", "5")]),
        spec("ebizzy", &[("threads", "9"), ("duration_ms", "20")]),
        spec("tbench", &[("clients", "9"), ("duration_ms", "5")]),
    ];
    let machine = || Machine::load("1n1l4c2t").expect("a machine");
    for s in &all {
        let hash = |seed| run_on(machine(), "linux-6.18", s, seed).trace_hash;
        assert_eq!(hash(1), hash(1), "{}", s.kind());
    }
    let random = |seed| run_on(machine(), "linux-6.18", &all[4], seed).trace_hash;
    assert_ne!(random(1), random(2));
    let random = |seed| run_on(machine(), "linux-5.2", all.last().expect("some"), seed).metrics.counts.clone();
    assert_ne!(random(1), random(2));
}
