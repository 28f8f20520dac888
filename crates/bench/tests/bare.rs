//! Locks on bare CPUs: the shapes that are known from real machines come out.

use contend_bench::bare::{self, BareRow};
use contend_bench::{Load, row};
use contend_machine::Machine;

fn load(threads: u32) -> Load {
    Load { threads, duration_ns: 20_000_000, ..Load::default() }
}

fn run(lock: &str, machine: &str, load: &Load) -> BareRow {
    bare::run(lock, &Machine::load(machine).unwrap(), load).unwrap_or_else(|e| panic!("{lock}: {e}"))
}

fn throughput(lock: &str, machine: &str, threads: u32) -> f64 {
    run(lock, machine, &load(threads)).throughput
}

/// One line for all waiters: each hand-over costs a transfer for each of them.
#[test]
fn ticket_collapses_with_the_number_of_pollers() {
    let of: Vec<f64> = [4, 16, 64].into_iter().map(|n| throughput("ticket", "64c", n)).collect();
    assert!(of[0] > 2.0 * of[1] && of[1] > 2.0 * of[2], "{of:?}");
    let row = run("ticket", "64c", &load(64));
    assert!(row.transfers > 60.0, "{row:?}");
}

/// A line for each waiter: the same cost however many wait, and across nodes what a transfer costs more there.
#[test]
fn queues_stay_flat_within_a_node_and_lose_a_bounded_factor_across() {
    for lock in ["queued", "mcs"] {
        let within: Vec<f64> = [8, 16, 64].into_iter().map(|n| throughput(lock, "8n64c", n)).collect();
        for t in &within {
            assert!((t / within[0] - 1.0).abs() < 0.02, "{lock}: {within:?}");
        }
        let machine = Machine::load("8n64c").unwrap();
        let farther = machine.costs.lines.remote[0].value as f64 / machine.costs.lines.llc.value as f64;
        for n in [128, 256] {
            // Queueing at the same moment, hundreds of CPUs hinder one another for ten milliseconds.
            let across = run(lock, "8n64c", &Load { duration_ns: 40_000_000, ..load(n) }).throughput;
            assert!(across < within[0], "{lock} on {n}: {across}, {within:?}");
            assert!(across > within[0] / (1.2 * farther), "{lock} on {n}: {across}, {within:?}");
        }
    }
}

#[test]
fn first_come_first_served_is_fair() {
    for lock in ["ticket", "queued", "mcs"] {
        for n in [2, 16, 64] {
            let row = run(lock, "8n8c", &load(n));
            assert!(row.max_min < 1.1 && row.jain > 0.999, "{row:?}");
            assert!(n < 9 || (row.far_share - 1.0).abs() < 0.01, "{row:?}");
        }
    }
}

/// Once the pollers have settled, the lock goes to the nearest of them: the node that has it keeps it.
#[test]
fn unfair_byte_starves_far_nodes() {
    for n in [16, 32] {
        let row = run("unfair-byte", "8n8c", &Load { critical_ns: 10_000, ..load(n) });
        assert!(row.far_share < 0.5, "{row:?}");
        assert!(row.max_min > 10.0 && row.jain < 0.6, "{row:?}");
        let fair = run("mcs", "8n8c", &Load { critical_ns: 10_000, ..load(n) });
        assert!((fair.far_share - 1.0).abs() < 0.05, "{fair:?}");
    }
}

/// It is the distance and not the CPU's number, by which the engine orders what happens at the same time: neighbours by
/// number are in different nodes here.
#[test]
fn unfair_byte_starves_by_distance() {
    let mut text =
        "name = \"interleaved\"\ndefaults = [\"lines\", \"interrupts\", \"cpu\", \"cache\", \"memory\", \"virt\", \"kernel\"]\n"
            .to_string();
    text += "[topology]\n";
    for cpu in 0..16 {
        text += &format!("[[topology.cpu]]\nid = {cpu}\ncore = {cpu}\nllc = {}\nnode = {}\n", cpu % 2, cpu % 2);
    }
    let machine = Machine::parse(&text, "interleaved.toml").unwrap();
    let row = bare::run("unfair-byte", &machine, &Load { critical_ns: 10_000, ..load(16) }).unwrap();
    assert!(row.far_share < 0.5, "{row:?}");
}

#[test]
fn every_lock_runs_alone_and_in_company() {
    for lock in bare::NAMES {
        assert!(bare::describe(lock).is_some_and(|d| d.len() > 5), "{lock}");
        let alone = run(lock, "8c", &load(1));
        // Alone: think (500 on average), critical section (100), and little else.
        let period = 1e9 / alone.throughput;
        assert!((600.0..700.0).contains(&period), "{lock}: {period} ns");
        assert_eq!((alone.transfers, alone.max_min, alone.handover_max_ns), (0.0, 1.0, 0), "{lock}");
        let few = run(lock, "2n4c2t", &load(16));
        assert!(few.acquisitions > 1_000 && few.wait_max_ns >= few.p99_ns && few.transfers_remote > 0.0, "{few:?}");
        assert!(few.all_once_ns < 1_000_000, "{few:?}");
    }
}

#[test]
fn the_same_twice_and_another_with_another_seed() {
    let once = |seed| run("queued", "2n8c", &Load { seed, ..load(12) });
    assert_eq!(once(1), once(1));
    assert_ne!(once(1).acquisitions, once(2).acquisitions);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let machine = Machine::load("4c").unwrap();
    let message = |lock: &str, load: Load| bare::run(lock, &machine, &load).unwrap_err().to_string();
    assert_eq!(message("mcs", load(5)), "threads = 5: 1n1l4c1t has 4 CPUs, and each thread is one");
    let hogs = Load { hogs: 2, ..load(2) };
    assert_eq!(message("mcs", hogs), "hogs = 2: bare CPUs run nothing beside the lock's loop; should be 0");
    assert!(message("msc", load(2)).starts_with("no lock named \"msc\"; there are unfair-byte, ticket, "));
    assert!(message("mcs", load(0)).contains("must lie between 1 and 1024"));
    assert_eq!(row::jain(&[1, 1]), 1.0);
}
