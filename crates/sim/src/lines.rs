//! Cache lines: who has a copy, and until when the line is under way.
//!
//! The protocol is MESI with forwarding, reduced to what contention needs: an exclusive or last-writing `owner`,
//! further `sharers`, and `free_at`. A request by a CPU without the needed right starts when the line is free, lasts as
//! long as the farthest copy it must reach is away, and moves the rights at once (requests are served in the order in
//! which they are made). Latencies come from the machine file; David, Guerraoui and Trigonakis (SOSP'13) measured that
//! they depend on distance far more than on the operation.

use contend_machine::Topology;
use contend_platform::{CpuId, Nanos, Time};

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

#[derive(Clone, Debug)]
struct LineState {
    /// Owner and kind of sharing in one word, so that the common question is one comparison: the owner's number, plus
    /// [`SHARED`] if there are sharers, plus [`WATCHED`] if somebody sleeps on the line.
    head: u32,
    /// Number of sharers in `inline`; the rest is in the spill bitset.
    inline_len: u16,
    inline: [u16; INLINE],
    spill: u32,
    free_at: Time,
}

/// Flag in [`LineState::head`]: others than the owner have a copy.
const SHARED: u32 = 1 << 16;
/// Flag: somebody sleeps on the line.
const WATCHED: u32 = 1 << 17;

impl LineState {
    fn owner(&self) -> u16 {
        self.head as u16
    }
    fn set_owner(&mut self, owner: u16) {
        self.head = self.head & !0xffff | u32::from(owner);
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

/// All lines of a run.
#[derive(Debug)]
pub struct Lines {
    lines: Vec<LineState>,
    /// Bitsets of sharers beyond the inline ones, `words` u64 each; freed sets are reused.
    spill: Vec<u64>,
    free_spill: Vec<u32>,
    words: usize,
    costs: LineCosts,
    /// CPUs asleep on a line, in order of arrival.
    watchers: rustc_hash::FxHashMap<u32, Vec<CpuId>>,
    /// Transfers so far, by distance class.
    pub transfers: Vec<u64>,
}

impl Lines {
    /// No lines yet.
    pub fn new(cpus: usize, costs: LineCosts) -> Self {
        let classes = costs.transfer.len();
        Lines {
            lines: Vec::new(),
            spill: Vec::new(),
            free_spill: Vec::new(),
            words: cpus.div_ceil(64),
            costs,
            watchers: rustc_hash::FxHashMap::default(),
            transfers: vec![0; classes],
        }
    }

    /// A fresh line that nobody has touched.
    pub fn create(&mut self) -> u32 {
        self.lines.push(LineState {
            head: u32::from(NOBODY),
            inline_len: 0,
            inline: [NOBODY; INLINE],
            spill: NO_SPILL,
            free_at: 0,
        });
        u32::try_from(self.lines.len() - 1).expect("fewer than 2^32 lines")
    }

    /// `cpu` touches `line` at `now`: moves the rights and tells the cost.
    #[inline]
    pub fn touch(&mut self, topo: &Topology, line: u32, cpu: CpuId, now: Time, how: Touch) -> Cost {
        if self.holds(line, cpu, how) {
            return Cost::Hit(if how == Touch::Rmw { self.costs.atomic } else { self.costs.hit });
        }
        self.miss(topo, line, cpu, now, how)
    }

    /// Does the owner touch its line in a way that needs no transfer?
    #[inline]
    pub fn holds(&self, line: u32, cpu: CpuId, how: Touch) -> bool {
        let head = self.lines[line as usize].head & !WATCHED;
        let shared = if how == Touch::Read { SHARED } else { 0 };
        head & !shared == u32::from(cpu.0)
    }

    fn miss(&mut self, topo: &Topology, line: u32, cpu: CpuId, now: Time, how: Touch) -> Cost {
        let me = cpu.0;
        if how == Touch::Read && self.is_sharer(line, me) {
            return Cost::Hit(self.costs.hit);
        }
        let far = if how == Touch::Read { self.supplier(topo, line, cpu) } else { self.farthest(topo, line, cpu) };
        let latency = match far {
            None => self.costs.memory,
            Some(d) => {
                self.transfers[d] += 1;
                self.costs.transfer[d]
            }
        };
        let l = &mut self.lines[line as usize];
        let done = now.max(l.free_at) + latency;
        l.free_at = done;
        match how {
            Touch::Read if l.owner() == NOBODY => l.set_owner(me),
            Touch::Read => self.add_sharer(line, me),
            Touch::Write | Touch::Rmw => {
                l.head = l.head & WATCHED | u32::from(me);
                l.inline_len = 0;
                let spill = std::mem::replace(&mut l.spill, NO_SPILL);
                if spill != NO_SPILL {
                    self.free_spill.push(spill);
                }
            }
        }
        Cost::Until(done)
    }

    fn spill_words(&self, spill: u32) -> &[u64] {
        let at = spill as usize * self.words;
        &self.spill[at..at + self.words]
    }

    fn is_sharer(&self, line: u32, cpu: u16) -> bool {
        let l = &self.lines[line as usize];
        l.inline[..l.inline_len as usize].contains(&cpu)
            || (l.spill != NO_SPILL && self.spill_words(l.spill)[cpu as usize / 64] >> (cpu % 64) & 1 == 1)
    }

    fn add_sharer(&mut self, line: u32, cpu: u16) {
        let l = &mut self.lines[line as usize];
        l.head |= SHARED;
        if (l.inline_len as usize) < INLINE {
            l.inline[l.inline_len as usize] = cpu;
            l.inline_len += 1;
            return;
        }
        if l.spill == NO_SPILL {
            l.spill = self.free_spill.pop().unwrap_or_else(|| {
                let id = self.spill.len() / self.words;
                self.spill.resize(self.spill.len() + self.words, 0);
                u32::try_from(id).expect("fewer spill sets than lines")
            });
            let at = l.spill as usize * self.words;
            self.spill[at..at + self.words].fill(0);
        }
        let at = l.spill as usize * self.words;
        self.spill[at + cpu as usize / 64] |= 1 << (cpu % 64);
    }

    /// Who answers a load: the owner (it wrote last, or fetched first). `None`: memory.
    fn supplier(&self, topo: &Topology, line: u32, cpu: CpuId) -> Option<usize> {
        let l = &self.lines[line as usize];
        if l.owner() == NOBODY {
            return None;
        }
        // The nearest of the owner and the inline sharers: a cache in the same LLC answers before a remote one.
        let mut best = topo.distance(cpu, CpuId(l.owner()));
        for &s in &l.inline[..l.inline_len as usize] {
            best = best.min(topo.distance(cpu, CpuId(s)));
        }
        Some(best)
    }

    /// The farthest copy that a store must invalidate (or fetch). `None`: nobody has one.
    fn farthest(&self, topo: &Topology, line: u32, cpu: CpuId) -> Option<usize> {
        let l = &self.lines[line as usize];
        let mut worst = None;
        let mut see = |c: u16| {
            if c != cpu.0 && c != NOBODY {
                worst = worst.max(Some(topo.distance(cpu, CpuId(c))));
            }
        };
        see(l.owner());
        l.inline[..l.inline_len as usize].iter().for_each(|&c| see(c));
        if l.spill != NO_SPILL {
            for (i, &word) in self.spill_words(l.spill).iter().enumerate() {
                let mut w = word;
                while w != 0 {
                    see((i * 64) as u16 + w.trailing_zeros() as u16);
                    w &= w - 1;
                }
            }
        }
        worst
    }

    /// `cpu` goes to sleep on the line.
    pub fn watch(&mut self, line: u32, cpu: CpuId) {
        self.lines[line as usize].head |= WATCHED;
        self.watchers.entry(line).or_default().push(cpu);
    }

    /// Does somebody sleep on the line?
    #[inline]
    pub fn is_watched(&self, line: u32) -> bool {
        self.lines[line as usize].head & WATCHED != 0
    }

    /// Remove `cpu` from the line's sleepers (it stopped waiting).
    pub fn unwatch(&mut self, line: u32, cpu: CpuId) {
        if let Some(list) = self.watchers.get_mut(&line) {
            list.retain(|c| *c != cpu);
            if list.is_empty() {
                self.lines[line as usize].head &= !WATCHED;
                self.watchers.remove(&line);
            }
        }
    }

    /// Take everybody who sleeps on the line, in order of arrival.
    pub fn take_watchers(&mut self, line: u32) -> Vec<CpuId> {
        self.lines[line as usize].head &= !WATCHED;
        self.watchers.remove(&line).unwrap_or_default()
    }
}
