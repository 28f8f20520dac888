//! Crews: equal threads, hogs beside them, and what they record.

use crate::common::{MS, machine, preset};
use contend_platform::Platform;
use contend_sim::crew::Crew;
use contend_sim::host::Outcome;

fn crew(on: &str, threads: usize, hogs: usize) -> Crew {
    let p = preset("linux-6.18");
    Crew { threads, hogs, ..Crew::new(machine(on), p.policy, p.features) }
}

#[test]
fn records_come_back_by_number() {
    let (r, records) = crew("2c", 5, 0).run(|_| (), |t, (), mine: &mut u16| *mine = 10 + t.cpu().0).expect("stacks");
    assert_eq!(r.outcome, Outcome::Finished);
    assert_eq!(records, [10, 11, 12, 13, 14]);
}

#[test]
fn a_horizon_keeps_what_was_recorded() {
    let crew = Crew { horizon: 10 * MS, ..crew("2c", 4, 0) };
    let (r, records) = crew
        .run(
            |_| (),
            |t, (), mine: &mut u64| loop {
                t.compute(1000);
                *mine += 1;
            },
        )
        .expect("stacks");
    assert_eq!(r.outcome, Outcome::Horizon);
    let all: u64 = records.iter().sum();
    assert!((19_000..=20_000).contains(&all), "{records:?}");
}

#[test]
fn hogs_take_their_share() {
    let computed = |hogs| {
        let crew = Crew { horizon: 300 * MS, ..crew("2c", 2, hogs) };
        let run = crew.run(
            |_| (),
            |t, (), mine: &mut u64| loop {
                t.compute(10_000);
                *mine += 1;
            },
        );
        run.expect("stacks").1.iter().sum::<u64>() as f64
    };
    let share = computed(2) / computed(0);
    assert!((0.45..0.56).contains(&share), "{share}");
}
