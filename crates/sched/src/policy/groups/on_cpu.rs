//! A CPU's queues: the root's, and one of each group with the group's entity in its parent's.

use super::tree::{GROUPS_MAX, GroupId};
use super::{At, Policy};
use crate::pelt::Average;
use contend_platform::{TaskId, Time};

/// One CPU's queues.
pub struct GroupedRq<L: Policy> {
    pub(super) root: L::Rq,
    /// By [`GroupId`], the root left out.
    pub(super) groups: Box<[OnCpu<L>]>,
    pub(super) cpu: usize,
}

/// A group on a CPU.
pub(super) struct OnCpu<L: Policy> {
    pub rq: L::Rq,
    /// Itself, as its parent's.
    pub entity: L::Task,
    pub at: At,
    pub parent: GroupId,
    /// Entities in its queue, sleeping ones included, and the running one.
    pub nr: u32,
    /// Their weights.
    pub weight: u64,
    /// The average of `weight`.
    pub load: Average,
    /// What of it is in the group's total of those present.
    pub counted: Option<u64>,
}

/// The name of a group as an entity: no task has it.
pub(super) fn entity_id(group: GroupId) -> TaskId {
    TaskId(u32::MAX - u32::from(group.0))
}

/// The group of that name.
#[inline]
pub(super) fn group_of(id: TaskId) -> Option<GroupId> {
    let n = u32::MAX - id.0;
    (n <= GROUPS_MAX as u32).then_some(GroupId(n as u16))
}

impl<L: Policy> GroupedRq<L> {
    #[inline]
    pub(super) fn on_cpu(&mut self, group: GroupId) -> &mut OnCpu<L> {
        &mut self.groups[group.0 as usize - 1]
    }
    pub(super) fn look(&self, group: GroupId) -> &OnCpu<L> {
        &self.groups[group.0 as usize - 1]
    }
    pub(super) fn queue(&mut self, group: GroupId) -> &mut L::Rq {
        if group == GroupId::ROOT { &mut self.root } else { &mut self.on_cpu(group).rq }
    }
    /// A group's entity and the queue that it is in.
    pub(super) fn entity(&mut self, group: GroupId) -> (&mut L::Rq, &mut L::Task) {
        let (before, rest) = self.groups.split_at_mut(group.0 as usize - 1);
        let here = &mut rest[0];
        let rq = match here.parent {
            GroupId::ROOT => &mut self.root,
            // Parents come first.
            parent => &mut before[parent.0 as usize - 1].rq,
        };
        (rq, &mut here.entity)
    }
    /// The group and those that it is in, from the inside.
    pub(super) fn path(&self, group: GroupId) -> impl Iterator<Item = GroupId> + use<'_, L> {
        let inner = |g: GroupId| Some(g).filter(|g| *g != GroupId::ROOT);
        std::iter::successors(inner(group), move |g| inner(self.look(*g).parent))
    }
    pub(super) fn depth(&self, group: GroupId) -> usize {
        self.path(group).count()
    }
    /// The group in which two meet, and by which of its groups each of them is there (`None`: as itself).
    pub(super) fn meeting(&self, a: GroupId, b: GroupId) -> (GroupId, Option<GroupId>, Option<GroupId>) {
        let up = |g: GroupId| (self.look(g).parent, Some(g));
        let (mut a, mut b, mut by_a, mut by_b) = (a, b, None, None);
        while self.depth(a) > self.depth(b) {
            (a, by_a) = up(a);
        }
        while self.depth(b) > self.depth(a) {
            (b, by_b) = up(b);
        }
        while a != b {
            (a, by_a) = up(a);
            (b, by_b) = up(b);
        }
        (a, by_a, by_b)
    }
    /// Bring the averages of a group and those that it is in up to date, before their weights change.
    pub(super) fn touch(&mut self, group: GroupId, now: Time) {
        let mut g = group;
        while g != GroupId::ROOT {
            let here = self.on_cpu(g);
            here.load.update(now, here.weight);
            g = here.parent;
        }
    }
    /// One more or one less in a group's queue.
    pub(super) fn count(&mut self, group: GroupId, nr: i32, weight: u64) {
        if group != GroupId::ROOT {
            let here = self.on_cpu(group);
            here.nr = here.nr.checked_add_signed(nr).expect("entities are counted in and out");
            here.weight = here.weight.checked_add_signed(nr as i64 * weight as i64).expect("so are their weights");
        }
    }
}
