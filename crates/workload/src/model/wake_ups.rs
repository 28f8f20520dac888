//! Who wakes whom, and which wait each wake-up ended.

use rustc_hash::{FxHashMap, FxHashSet};

use super::exact::Exact;
use super::step::What;

/// By waker and sleeper the waits and the posts, in order: the k-th belongs to the k-th, since wake-ups that ended no sleep are not in
/// the model. Waits are named by the step of the sleep.
pub(super) struct WakeUps {
    pub waits: FxHashMap<(u32, u32), Vec<usize>>,
    pub posts: FxHashMap<(u32, u32), Vec<usize>>,
}

impl WakeUps {
    pub fn of(model: &Exact) -> Self {
        let mut all = WakeUps { waits: FxHashMap::default(), posts: FxHashMap::default() };
        for (i, task) in (0u32..).zip(&model.tasks) {
            for at in task.from..task.to {
                match model.steps[at].what() {
                    What::By(waker) => all.waits.entry((waker, i)).or_default().push(at - 1),
                    What::Post(sleeper, _) => all.posts.entry((i, sleeper)).or_default().push(at),
                    _ => {}
                }
            }
        }
        all
    }

    /// The posts of one task to another.
    pub fn posts_of(&self, waker: u32, sleeper: u32) -> &[usize] {
        self.posts.get(&(waker, sleeper)).map_or(&[], |posts| posts)
    }

    /// Each wake-up: the waker, its post, and the wait that this ended.
    pub fn each(&self) -> impl Iterator<Item = (u32, usize, usize)> + '_ {
        self.waits.iter().flat_map(|(&(waker, sleeper), waits)| {
            std::iter::zip(self.posts_of(waker, sleeper), waits).map(move |(&post, &wait)| (waker, post, wait))
        })
    }

    /// Without those that are not played.
    pub fn leave_out(&mut self, dropped: &FxHashSet<usize>) {
        if !dropped.is_empty() {
            self.waits.values_mut().chain(self.posts.values_mut()).for_each(|at| at.retain(|at| !dropped.contains(at)));
        }
    }
}
