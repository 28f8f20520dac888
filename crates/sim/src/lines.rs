//! Cache lines: who has a copy, and until when the line is under way.
//!
//! The protocol is MESI with forwarding, reduced to what contention needs: an exclusive or last-writing `owner`,
//! further `sharers`, and `free_at`. A request by a CPU without the needed right starts when the line is free, lasts as
//! long as the farthest copy it must reach is away, and moves the rights at once (requests are served in the order in
//! which they are made). Latencies come from the machine file; David, Guerraoui and Trigonakis (SOSP'13) measured that
//! they depend on distance far more than on the operation.

use contend_machine::Topology;
use contend_platform::{CpuId, Nanos, Time};
use std::cell::{RefCell, UnsafeCell};

const NOBODY: u16 = u16::MAX;
const INLINE: usize = 5;
const NO_SPILL: u32 = u32::MAX;

/// How a line is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Atomic read-modify-write.
    Rmw,
}

/// What is asked at every touch: the owner and the kind of sharing in one word, so that the common question is one
/// comparison. The owner's number, plus [`SHARED`] if there are sharers, plus [`WATCHED`] if somebody sleeps on the line.
#[derive(Clone, Copy, Debug)]
struct Head(u32);

/// Flag in a [`Head`]: others than the owner have a copy.
const SHARED: u32 = 1 << 16;
/// Flag: somebody sleeps on the line.
const WATCHED: u32 = 1 << 17;

impl Head {
    #[inline]
    fn owner(self) -> u16 {
        self.0 as u16
    }
    fn set_owner(&mut self, owner: u16) {
        self.0 = self.0 & !0xffff | u32::from(owner);
    }
    /// Does the owner touch its line in a way that needs no transfer?
    #[inline]
    fn holds(self, cpu: CpuId, how: Touch) -> bool {
        let ignored = if how == Touch::Read { SHARED | WATCHED } else { WATCHED };
        self.0 & !ignored == u32::from(cpu.0)
    }
}

/// What only a touch without the right needs.
#[derive(Clone, Debug)]
struct Copies {
    free_at: Time,
    /// Sharers, in order of arrival, [`INLINE`] at most; the places after them hold [`NOBODY`].
    inline: [u16; 8],
    inline_len: u16,
    /// Number of the bitset of further sharers.
    spill: u32,
}

impl Copies {
    #[inline]
    fn inline(&self) -> &[u16] {
        &self.inline[..usize::from(self.inline_len).min(INLINE)]
    }
}

/// Latencies in ns, resolved from the machine file.
#[derive(Clone, Debug)]
pub struct LineCosts {
    /// Load or store with the right held.
    pub hit: Nanos,
    /// Atomic operation with the right held.
    pub atomic: Nanos,
    /// Transfer by distance class ([`Topology::distance`]; entry 0 is unused).
    pub transfer: Vec<Nanos>,
    /// First touch of a line nobody has: memory of the own node.
    pub memory: Nanos,
}

/// What a touch costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// The right is held: this many ns of private work.
    Hit(Nanos),
    /// A transfer that completes at this time.
    Until(Time),
}

/// All lines of a run. Heads lie close together, apart from the rest: they are what the simulator's own caches should hold.
#[derive(Debug)]
pub struct Lines {
    heads: Heads,
    rest: RefCell<Rest>,
}

/// The heads of all lines. Each is read and written whole; nothing borrows the table.
#[derive(Debug, Default)]
struct Heads(UnsafeCell<Vec<Head>>);

impl Heads {
    #[inline]
    fn get(&self, line: u32) -> Head {
        // SAFETY: the cell is private to this type, is not `Sync`, and no reference into it outlives a method: none exists
        // during the call.
        unsafe { (&*self.0.get())[line as usize] }
    }
    #[inline]
    fn set(&self, line: u32, head: Head) {
        // SAFETY: as in `get`.
        unsafe { (&mut *self.0.get())[line as usize] = head }
    }
    fn push(&self, head: Head) -> usize {
        // SAFETY: as in `get`.
        let heads = unsafe { &mut *self.0.get() };
        heads.push(head);
        heads.len() - 1
    }
}

/// What heads do not tell.
#[derive(Debug)]
struct Rest {
    copies: Vec<Copies>,
    /// Bitsets of sharers beyond the inline ones, `words` u64 each; freed sets are reused.
    spill: Vec<u64>,
    free_spill: Vec<u32>,
    words: usize,
    costs: LineCosts,
    /// CPUs asleep on a line, in order of arrival.
    watchers: rustc_hash::FxHashMap<u32, Vec<CpuId>>,
    /// Transfers so far, by distance class.
    transfers: Vec<u64>,
}

impl Lines {
    /// No lines yet.
    pub fn new(cpus: usize, costs: LineCosts) -> Self {
        let classes = costs.transfer.len();
        let rest = Rest {
            copies: Vec::new(),
            spill: Vec::new(),
            free_spill: Vec::new(),
            words: cpus.div_ceil(64),
            costs,
            watchers: rustc_hash::FxHashMap::default(),
            transfers: vec![0; classes],
        };
        Lines { heads: Heads::default(), rest: RefCell::new(rest) }
    }

    /// A fresh line that nobody has touched.
    pub fn create(&self) -> u32 {
        let line = self.heads.push(Head(u32::from(NOBODY)));
        let copies = Copies { free_at: 0, inline: [NOBODY; 8], inline_len: 0, spill: NO_SPILL };
        self.rest.borrow_mut().copies.push(copies);
        u32::try_from(line).expect("fewer than 2^32 lines")
    }

    /// Does `cpu` own the line, so that the touch needs no transfer? (A load by a sharer needs none either.)
    #[inline]
    pub fn holds(&self, line: u32, cpu: CpuId, how: Touch) -> bool {
        self.heads.get(line).holds(cpu, how)
    }

    /// `cpu`, which does not hold `line`, touches it at `now`: moves the rights and tells the cost.
    #[inline(always)]
    pub fn touch(&self, topo: &Topology, line: u32, cpu: CpuId, now: Time, how: Touch) -> Cost {
        if how == Touch::Read { self.load(topo, line, cpu, now) } else { self.store(topo, line, cpu, now) }
    }

    #[inline(always)]
    fn load(&self, topo: &Topology, line: u32, cpu: CpuId, now: Time) -> Cost {
        let mut head = self.heads.get(line);
        let rest = &mut *self.rest.borrow_mut();
        if rest.shares(head, line, cpu) {
            return Cost::Hit(rest.costs.hit);
        }
        let done = rest.fetch(topo, &mut head, line, cpu, now);
        self.heads.set(line, head);
        Cost::Until(done)
    }

    #[inline(always)]
    fn store(&self, topo: &Topology, line: u32, cpu: CpuId, now: Time) -> Cost {
        let mut head = self.heads.get(line);
        let done = self.rest.borrow_mut().claim(topo, &mut head, line, cpu, now);
        self.heads.set(line, head);
        Cost::Until(done)
    }

    /// `cpu` loads all `lines` at `now`: what the hits cost together, and when the last transfer completes.
    pub fn load_many(&self, topo: &Topology, lines: &[u32], cpu: CpuId, now: Time) -> (Nanos, Time) {
        let rest = &mut *self.rest.borrow_mut();
        let (mut hits, mut done) = (0, now);
        for &line in lines {
            let mut head = self.heads.get(line);
            if head.holds(cpu, Touch::Read) || rest.shares(head, line, cpu) {
                hits += rest.costs.hit;
            } else {
                done = done.max(rest.fetch(topo, &mut head, line, cpu, now));
                self.heads.set(line, head);
            }
        }
        (hits, done)
    }

    /// Has `cpu` a copy of each of `lines`, so that loads need no transfer?
    pub fn has_copies(&self, lines: &[u32], cpu: CpuId) -> bool {
        let rest = &*self.rest.borrow();
        lines.iter().all(|&line| {
            let head = self.heads.get(line);
            head.holds(cpu, Touch::Read) || rest.shares(head, line, cpu)
        })
    }

    /// Transfers so far, by distance class.
    pub fn transfers(&self) -> Vec<u64> {
        self.rest.borrow().transfers.clone()
    }

    /// `cpu` goes to sleep on the line.
    pub fn watch(&self, line: u32, cpu: CpuId) {
        self.heads.set(line, Head(self.heads.get(line).0 | WATCHED));
        self.rest.borrow_mut().watchers.entry(line).or_default().push(cpu);
    }

    /// Does somebody sleep on the line?
    #[inline]
    pub fn is_watched(&self, line: u32) -> bool {
        self.heads.get(line).0 & WATCHED != 0
    }

    /// Remove `cpu` from the line's sleepers (it stopped waiting).
    pub fn unwatch(&self, line: u32, cpu: CpuId) {
        let watchers = &mut self.rest.borrow_mut().watchers;
        if let Some(list) = watchers.get_mut(&line) {
            list.retain(|c| *c != cpu);
            if list.is_empty() {
                watchers.remove(&line);
                self.heads.set(line, Head(self.heads.get(line).0 & !WATCHED));
            }
        }
    }

    /// Take everybody who sleeps on the line, in order of arrival.
    pub fn take_watchers(&self, line: u32) -> Vec<CpuId> {
        self.heads.set(line, Head(self.heads.get(line).0 & !WATCHED));
        self.rest.borrow_mut().watchers.remove(&line).unwrap_or_default()
    }
}

impl Rest {
    /// Is `cpu` one of the sharers?
    #[inline]
    fn shares(&self, head: Head, line: u32, cpu: CpuId) -> bool {
        if head.0 & SHARED == 0 {
            return false;
        }
        let copies = &self.copies[line as usize];
        // All places at once, without branches: `contains` looks at one after the other.
        copies.inline.iter().fold(false, |found, c| found | (*c == cpu.0))
            || (copies.spill != NO_SPILL
                && self.spill[copies.spill as usize * self.words + cpu.index() / 64] >> (cpu.0 % 64) & 1 == 1)
    }

    /// A load by a CPU that has no copy; returns when it completes.
    #[inline(always)]
    fn fetch(&mut self, topo: &Topology, head: &mut Head, line: u32, cpu: CpuId, now: Time) -> Time {
        let me = cpu.0;
        let copies = &mut self.copies[line as usize];
        // Who answers: the nearest of the owner (it wrote last, or fetched first) and the inline sharers, since a cache in
        // the same LLC answers before a remote one; memory if nobody has it.
        let latency = if head.owner() == NOBODY {
            head.set_owner(me);
            self.costs.memory
        } else {
            let near = topo.nearest(cpu, CpuId(head.owner()), copies.inline().iter().map(|&c| CpuId(c)));
            self.transfers[near] += 1;
            head.0 |= SHARED;
            if usize::from(copies.inline_len) < INLINE {
                copies.inline[usize::from(copies.inline_len)] = me;
                copies.inline_len += 1;
            } else {
                let words = self.words;
                if copies.spill == NO_SPILL {
                    copies.spill = match self.free_spill.pop() {
                        Some(set) => {
                            self.spill[set as usize * words..][..words].fill(0);
                            set
                        }
                        None => {
                            let set = self.spill.len() / words;
                            self.spill.resize(self.spill.len() + words, 0);
                            u32::try_from(set).expect("fewer spill sets than lines")
                        }
                    };
                }
                self.spill[copies.spill as usize * words + usize::from(me) / 64] |= 1 << (me % 64);
            }
            self.costs.transfer[near]
        };
        copies.free_at = now.max(copies.free_at) + latency;
        copies.free_at
    }

    /// A store, or a load to that end, by a CPU that is not the only one with a copy: it invalidates (and fetches) the
    /// farthest; memory answers if nobody has one. Returns when it completes.
    #[inline(always)]
    fn claim(&mut self, topo: &Topology, head: &mut Head, line: u32, cpu: CpuId, now: Time) -> Time {
        let me = cpu.0;
        let copies = &mut self.copies[line as usize];
        let farthest = topo.nr_distances() - 1;
        let mut worst = None;
        let mut see = |c: u16| {
            if c != me && c != NOBODY {
                worst = worst.max(Some(topo.distance(cpu, CpuId(c))));
            }
            worst == Some(farthest)
        };
        // Whoever is as far away as can be settles it.
        let settled = see(head.owner()) || copies.inline().iter().any(|&c| see(c));
        let spill = std::mem::replace(&mut copies.spill, NO_SPILL);
        if spill != NO_SPILL {
            if !settled {
                let words = &self.spill[spill as usize * self.words..][..self.words];
                'all: for (i, &word) in words.iter().enumerate() {
                    let mut w = word;
                    while w != 0 {
                        if see((i * 64) as u16 + w.trailing_zeros() as u16) {
                            break 'all;
                        }
                        w &= w - 1;
                    }
                }
            }
            self.free_spill.push(spill);
        }
        let latency = match worst {
            None => self.costs.memory,
            Some(d) => {
                self.transfers[d] += 1;
                self.costs.transfer[d]
            }
        };
        head.0 = head.0 & WATCHED | u32::from(me);
        if copies.inline_len != 0 {
            copies.inline = [NOBODY; 8];
            copies.inline_len = 0;
        }
        copies.free_at = now.max(copies.free_at) + latency;
        copies.free_at
    }
}
