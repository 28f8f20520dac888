//! Lock and unlock with nobody else there: the price of a lock that one does not need.
//!
//!     cargo bench -p contend-bench --bench uncontended

use contend_bench::contenders::{self, Contender, NAMES, Visitor};
use std::hint::black_box;
use std::pin::pin;

fn main() {
    divan::main();
}

/// Pairs of lock and unlock in one sample's iteration.
const PAIRS: u32 = 1000;

struct Pairs<'a, 'b>(divan::Bencher<'a, 'b>);

impl Visitor for Pairs<'_, '_> {
    type Out = ();
    fn visit<C: Contender>(self) {
        let (lock, mut value) = (pin!(C::default()), 0u64);
        let lock = lock.as_ref();
        self.0.counter(divan::counter::ItemsCount::new(PAIRS)).bench_local(|| {
            for _ in 0..PAIRS {
                black_box(lock).with(|| value = black_box(value) + 1);
            }
        });
    }
}

#[divan::bench(args = NAMES)]
fn lock_unlock(bencher: divan::Bencher<'_, '_>, name: &str) {
    contenders::dispatch(name, Pairs(bencher)).expect("a name of the list");
}
