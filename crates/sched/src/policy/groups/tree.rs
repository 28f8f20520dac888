//! Which groups there are: paths, weights, who is in whom.

use super::{Fair, Grouped};
use crate::bandwidth::Limit;
use crate::features::Features;

/// A group of tasks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupId(pub u16);

impl GroupId {
    /// The group of whoever is in no other.
    pub const ROOT: GroupId = GroupId(0);
}

/// What a group is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its path, as in `/sys/fs/cgroup`: `/batch/web`.
    pub name: String,
    /// The group that it is an entity of; one before it.
    pub parent: GroupId,
    /// What it has against its siblings, as a load weight (nice 0: 1024), 2 to 2^20.
    pub shares: u64,
    /// What it may use of all CPUs together (`cpu.max`); `None`: as much as it gets.
    pub limit: Option<Limit>,
    /// It is a session: a group only where the kernel makes them groups (`autogroup`).
    pub session: bool,
}

/// Most groups of a machine.
pub const GROUPS_MAX: usize = 4096;
/// Most groups within one another.
pub const DEPTH_MAX: usize = 16;
/// Longest path, in bytes.
const PATH_MAX: usize = 255;
/// A group's `cpu.weight` unless it says another.
pub const WEIGHT_DEFAULT: u64 = 100;
/// The most that `cpu.weight` can be; the least is 1.
pub const WEIGHT_MAX: u64 = 10_000;

/// Shares of a `cpu.weight`: 1,024 for 100, as a task of nice 0 has.
pub fn shares_of(weight: u64) -> u64 {
    (weight * 1024 + 50) / 100
}

/// The `cpu.weight` of shares.
pub fn weight_of(shares: u64) -> u64 {
    (shares * 100 + 512) / 1024
}

/// Least and most shares.
pub const SHARES: std::ops::RangeInclusive<u64> = 2..=1 << 20;

/// The groups of a machine, the root left out: `GroupId(i + 1)` is the one of index `i`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Groups(Vec<Group>);

impl Groups {
    /// Add a group.
    ///
    /// # Panics
    /// Its parent is not there, its shares are none, or there are too many: whoever reads them from a file checks.
    pub fn add(&mut self, group: Group) -> GroupId {
        assert!(group.parent.0 as usize <= self.0.len(), "the parent comes first");
        assert!(SHARES.contains(&group.shares), "shares of {}", group.shares);
        assert!(self.0.len() < GROUPS_MAX);
        self.0.push(group);
        assert!(self.path(GroupId(self.0.len() as u16)).count() <= DEPTH_MAX, "groups within groups");
        GroupId(self.0.len() as u16)
    }
    /// The group of this path; one that is not there is made, with those that it is in and weights of [`WEIGHT_DEFAULT`].
    ///
    /// # Errors
    /// Not a path ([`Groups::PATH`] says what is), or too many groups.
    pub fn at(&mut self, path: &str) -> Result<GroupId, &'static str> {
        let fine = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains(char::is_whitespace);
        let names = path.strip_prefix('/').ok_or(Self::PATH)?;
        if path.len() > PATH_MAX {
            return Err(Self::PATH);
        }
        let (mut parent, mut end) = (GroupId::ROOT, 0);
        for (depth, name) in names.split('/').enumerate().filter(|_| !names.is_empty()) {
            if !fine(name) || depth == DEPTH_MAX {
                return Err(Self::PATH);
            }
            end += 1 + name.len();
            let whole = &path[..end];
            parent = match self.find(whole) {
                Some(group) => group,
                None if self.0.len() == GROUPS_MAX => return Err("at most 4096 groups"),
                None => {
                    let shares = shares_of(WEIGHT_DEFAULT);
                    self.add(Group { name: whole.into(), parent, shares, limit: None, session: false })
                }
            };
        }
        Ok(parent)
    }
    /// What [`Groups::at`] takes.
    pub const PATH: &'static str = "a path such as /web or /web/api, at most 16 deep, as below /sys/fs/cgroup";

    /// Give a group, which is not the root, another weight.
    ///
    /// # Panics
    /// Not from 1 to 10,000.
    pub fn set_weight(&mut self, group: GroupId, weight: u64) {
        assert!((1..=WEIGHT_MAX).contains(&weight));
        self.0[group.0 as usize - 1].shares = shares_of(weight);
    }
    /// Limit a group, which is not the root.
    pub fn set_limit(&mut self, group: GroupId, limit: Limit) {
        self.0[group.0 as usize - 1].limit = Some(limit);
    }
    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// How many, the root not counted.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// A group; `None`: the root.
    pub fn get(&self, group: GroupId) -> Option<&Group> {
        self.0.get((group.0 as usize).checked_sub(1)?)
    }
    /// All but the root.
    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> + Clone {
        self.0.iter().enumerate().map(|(i, g)| (GroupId(i as u16 + 1), g))
    }
    /// A group's path; `/` is the root's.
    pub fn path_of(&self, group: GroupId) -> &str {
        self.get(group).map_or("/", |g| &g.name)
    }
    /// The group of this name.
    pub fn find(&self, name: &str) -> Option<GroupId> {
        self.iter().find(|(_, g)| g.name == name).map(|(id, _)| id)
    }
    /// `policy` for tasks of these groups, on a machine of `cpus` CPUs.
    pub fn of<L: Fair>(self, policy: L, cpus: usize, features: &Features) -> Grouped<L> {
        Grouped::new(policy, self, cpus, features.autogroup)
    }
    /// The group, its parent, and so on; the root left out.
    pub fn path(&self, group: GroupId) -> impl Iterator<Item = GroupId> {
        std::iter::successors(Some(group), |g| self.get(*g).map(|g| g.parent)).take_while(|g| *g != GroupId::ROOT)
    }
    /// What a kernel makes of them that knows no sessions: their members are in the group that the session is in.
    pub fn effective(&self, autogroup: bool, group: GroupId) -> GroupId {
        self.path(group).find(|g| autogroup || self.get(*g).is_some_and(|g| !g.session)).unwrap_or(GroupId::ROOT)
    }
}
