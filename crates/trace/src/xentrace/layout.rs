//! Which words stand for which event: the records of Xen 4.17, and back.
//!
//! A record's words are a C struct in little endian. The table below gives each one's fields in order, with their
//! widths; both directions come from it, so they cannot disagree. Where it comes from: words of recordings of a Xen
//! 4.17 against what its `xenalyze` prints of them, and for events that no recording has, words made up to see what
//! `xenalyze` makes of them (`docs/xentrace.md`).
//!
//! [`decode`] is total: what does not fit (another length, a domain of 17 bits, a flag of 2) is
//! [`XenEvent::Other`]. What the compiler left between and after fields is kept beside the event as `pad`.

use contend_platform::CpuId;
use contend_sched::xen::event::{RunState, VcpuId, Words, XenEvent};

/// An event and what else its record holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// The event.
    pub event: XenEvent,
    /// Bytes between and after the fields: whatever lay there in Xen. 0 where there are none.
    pub pad: u32,
}

/// A record's number and words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// Event id, 28 bits.
    pub id: u32,
    /// The words.
    pub words: Words,
}

/// What a field of an event holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// A number: a duration, a credit, a pCPU, a run queue, ...
    Number(i128),
    /// Whether.
    Flag(bool),
    /// A vCPU.
    Vcpu(VcpuId),
    /// No such thing.
    None,
}

macro_rules! into_field {
    ($($type:ty),*) => {$(
        impl From<$type> for Field {
            fn from(number: $type) -> Self {
                Self::Number(number.into())
            }
        }
    )*};
}
into_field!(u8, u16, u32, i32, u64);

impl From<bool> for Field {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<VcpuId> for Field {
    fn from(vcpu: VcpuId) -> Self {
        Self::Vcpu(vcpu)
    }
}

impl From<CpuId> for Field {
    fn from(cpu: CpuId) -> Self {
        cpu.0.into()
    }
}

impl<T: Into<Self>> From<Option<T>> for Field {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

/// Bytes of a record.
struct Get<'a>(&'a [u8]);

impl Get<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// The padding, if nothing but `bytes` of it is left.
    fn pad(self, bytes: usize) -> Option<u32> {
        let mut word = [0; 4];
        (self.0.len() == bytes).then(|| word[..bytes].copy_from_slice(self.0))?;
        Some(u32::from_le_bytes(word))
    }
}

/// Bytes of a record that is being made.
struct Put {
    bytes: [u8; 4 * Words::MAX],
    len: usize,
}

impl Put {
    fn new() -> Self {
        Self { bytes: [0; 4 * Words::MAX], len: 0 }
    }

    fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.len..][..N].copy_from_slice(&bytes);
        self.len += N;
    }

    fn pad(mut self, bytes: usize, pad: u32) -> Words {
        self.bytes[self.len..][..bytes].copy_from_slice(&pad.to_le_bytes()[..bytes]);
        self.len += bytes;
        let mut words = [0; Words::MAX];
        for (word, bytes) in words.iter_mut().zip(self.bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        }
        Words::new(&words[..self.len / 4])
    }
}

/// How a field lies in a record.
trait Codec<T> {
    fn get(from: &mut Get<'_>) -> Option<T>;
    fn put(to: &mut Put, value: T);
}

/// A number, in as many bits as the name says.
macro_rules! number {
    ($($name:ident: $type:ty),*) => {$(
        struct $name;
        impl Codec<$type> for $name {
            fn get(from: &mut Get<'_>) -> Option<$type> {
                from.bytes().map(<$type>::from_le_bytes)
            }
            fn put(to: &mut Put, value: $type) {
                to.bytes(value.to_le_bytes());
            }
        }
    )*};
}
number!(U8: u8, U16: u16, U32: u32, I32: i32, U64: u64);

/// Two halves of a word: vCPU, then domain. Credit2 and RTDS, run states.
struct Pair;

impl Codec<VcpuId> for Pair {
    fn get(from: &mut Get<'_>) -> Option<VcpuId> {
        let (vcpu, dom) = (U16::get(from)?, U16::get(from)?);
        Some(VcpuId { dom, vcpu })
    }
    fn put(to: &mut Put, value: VcpuId) {
        U16::put(to, value.vcpu);
        U16::put(to, value.dom);
    }
}

/// Two words: domain, then vCPU. Generic events and Credit1.
struct Wide;

impl Codec<VcpuId> for Wide {
    fn get(from: &mut Get<'_>) -> Option<VcpuId> {
        let (dom, vcpu) = (Dom::get(from)?, Dom::get(from)?);
        Some(VcpuId { dom, vcpu })
    }
    fn put(to: &mut Put, value: VcpuId) {
        Dom::put(to, value.dom);
        Dom::put(to, value.vcpu);
    }
}

/// A domain in a whole word.
struct Dom;

impl Codec<u16> for Dom {
    fn get(from: &mut Get<'_>) -> Option<u16> {
        U32::get(from)?.try_into().ok()
    }
    fn put(to: &mut Put, value: u16) {
        U32::put(to, value.into());
    }
}

/// A pCPU in a whole word.
struct Cpu;

impl Codec<CpuId> for Cpu {
    fn get(from: &mut Get<'_>) -> Option<CpuId> {
        Dom::get(from).map(CpuId)
    }
    fn put(to: &mut Put, value: CpuId) {
        Dom::put(to, value.0);
    }
}

/// A pCPU in half a word.
struct Cpu16;

impl Codec<CpuId> for Cpu16 {
    fn get(from: &mut Get<'_>) -> Option<CpuId> {
        U16::get(from).map(CpuId)
    }
    fn put(to: &mut Put, value: CpuId) {
        U16::put(to, value.0);
    }
}

/// Whether, in a byte.
struct Flag;

impl Codec<bool> for Flag {
    fn get(from: &mut Get<'_>) -> Option<bool> {
        flag(U8::get(from)?)
    }
    fn put(to: &mut Put, value: bool) {
        U8::put(to, value.into());
    }
}

/// Whether, in a word.
struct Flag32;

impl Codec<bool> for Flag32 {
    fn get(from: &mut Get<'_>) -> Option<bool> {
        flag(U32::get(from)?.try_into().ok()?)
    }
    fn put(to: &mut Put, value: bool) {
        U32::put(to, value.into());
    }
}

/// Whether, in the lower half of a byte; [`High`] follows.
struct Low;

impl Codec<bool> for Low {
    fn get(from: &mut Get<'_>) -> Option<bool> {
        flag(from.0.first()? & 0xf)
    }
    fn put(to: &mut Put, value: bool) {
        to.bytes[to.len] = value.into();
    }
}

/// Whether, in the upper half of a byte.
struct High;

impl Codec<bool> for High {
    fn get(from: &mut Get<'_>) -> Option<bool> {
        flag(U8::get(from)? >> 4)
    }
    fn put(to: &mut Put, value: bool) {
        let low = to.bytes[to.len];
        U8::put(to, low | u8::from(value) << 4);
    }
}

fn flag(number: u8) -> Option<bool> {
    [false, true].get(usize::from(number)).copied()
}

/// Something, or nothing: a certain number stands for it.
macro_rules! optional {
    ($($(#[$doc:meta])* $name:ident: $type:ty as $codec:ident, $none:expr;)*) => {$(
        $(#[$doc])*
        struct $name;
        impl Codec<Option<$type>> for $name {
            fn get(from: &mut Get<'_>) -> Option<Option<$type>> {
                $codec::get(from).map(|number| (number != $none).then_some(number))
            }
            fn put(to: &mut Put, value: Option<$type>) {
                $codec::put(to, value.unwrap_or($none));
            }
        }
    )*};
}
optional! {
    /// A time slice; -1: no timer.
    Slice: u32 as U32, u32::MAX;
    /// What is left of a cap; the smallest number: no cap.
    Budget: i32 as I32, i32::MIN;
    /// A run queue of Credit2; -1: none.
    Rq: u16 as U16, u16::MAX;
}

/// A pCPU in a whole word, or -1: none.
struct CpuOrNone;

impl Codec<Option<CpuId>> for CpuOrNone {
    fn get(from: &mut Get<'_>) -> Option<Option<CpuId>> {
        match U32::get(from)? {
            u32::MAX => Some(None),
            cpu => cpu.try_into().ok().map(|cpu| Some(CpuId(cpu))),
        }
    }
    fn put(to: &mut Put, value: Option<CpuId>) {
        U32::put(to, value.map_or(u32::MAX, |cpu| cpu.0.into()));
    }
}

/// A run queue of Credit2 in a byte.
struct Rq8;

impl Codec<u16> for Rq8 {
    fn get(from: &mut Get<'_>) -> Option<u16> {
        U8::get(from).map(u16::from)
    }
    fn put(to: &mut Put, value: u16) {
        U8::put(to, value as u8);
    }
}

/// A run-state change: `RUNSTATE | old << 8 | new << 4`.
const RUNSTATE: u32 = 0x2_1001;

/// Makes both directions of a table of records: id, event, its fields in order, bytes after them.
macro_rules! layouts {
    ($($id:literal $event:ident { $($field:ident: $codec:ident),* } $(pad $pad:literal)?;)*) => {
        fn known(id: u32, bytes: &[u8]) -> Option<Decoded> {
            let mut from = Get(bytes);
            let (event, pad) = match id {
                $($id => {
                    $(let $field = $codec::get(&mut from)?;)*
                    (XenEvent::$event { $($field),* }, from.pad(0 $(+ $pad)?)?)
                })*
                _ if id & !0xff0 == RUNSTATE => {
                    let state = |shift: u32| RunState::from_number(id >> shift & 0xf);
                    let vcpu = Pair::get(&mut from)?;
                    (XenEvent::Runstate { vcpu, old: state(8)?, new: state(4)? }, from.pad(0)?)
                }
                _ => return None,
            };
            Some(Decoded { event, pad })
        }

        /// The record of an event with this padding.
        pub fn encode_padded(event: &XenEvent, pad: u32) -> Encoded {
            let mut to = Put::new();
            let (id, words) = match *event {
                $(XenEvent::$event { $($field),* } => {
                    $($codec::put(&mut to, $field);)*
                    ($id, to.pad(0 $(+ $pad)?, pad))
                })*
                XenEvent::Runstate { vcpu, old, new } => {
                    Pair::put(&mut to, vcpu);
                    (RUNSTATE | (old as u32) << 8 | (new as u32) << 4, to.pad(0, 0))
                }
                XenEvent::Other { id, words } => (id & 0xfff_ffff, words),
            };
            Encoded { id, words }
        }

        /// Gives the fields of an event by name, but for run-state changes and events that are kept as they stand.
        fn known_fields(event: &XenEvent, give: &mut dyn FnMut(&'static str, Field)) {
            match *event {
                $(XenEvent::$event { $($field),* } => { $(give(stringify!($field), $field.into());)* })*
                XenEvent::Runstate { .. } | XenEvent::Other { .. } => {}
            }
        }

        /// Ids in the table, ascending or not.
        const IDS: &[u32] = &[$($id),*];
    };
}

layouts! {
    0x2_1002 RunstateContinue { vcpu: Pair };

    0x2_8001 DomainAdd { dom: Dom };
    0x2_8002 DomainRemove { dom: Dom };
    0x2_8003 Sleep { vcpu: Wide };
    0x2_8004 Wake { vcpu: Wide };
    0x2_8005 Yield { vcpu: Wide };
    0x2_8006 Block { vcpu: Wide };
    0x2_8007 Shutdown { vcpu: Wide, reason: U32 };
    0x2_8009 Adjust { dom: Dom };
    0x2_800a Switch { prev: Wide, next: Wide };
    0x2_800e SwitchInfPrev { vcpu: Wide, ran_ns: U32 };
    0x2_800f SwitchInfNext { vcpu: Wide, waited_ns: U32, slice_ns: Slice };
    0x2_8010 ShutdownCode { vcpu: Wide, reason: U32 };
    0x2_8011 SwitchInfCont { vcpu: Wide, ran_ns: U32, slice_ns: Slice };

    0x2_2001 Credit1Tasklet {};
    0x2_2002 Credit1AcctStart { vcpu: Wide, active: U32 };
    0x2_2003 Credit1AcctStop { vcpu: Wide, active: U32 };
    0x2_2004 Credit1Stolen { peer: Cpu, vcpu: Wide };
    0x2_2005 Credit1PickedCpu { vcpu: Wide, cpu: Cpu };
    0x2_2006 Credit1Tickle { cpu: Cpu };
    0x2_2007 Credit1Boost { vcpu: Wide };
    0x2_2008 Credit1Unboost { vcpu: Wide };
    0x2_2009 Credit1Schedule { cpu: Cpu16, tasklet: Flag, idle: Flag };
    0x2_200a Credit1Ratelimit { vcpu: Pair, ran_ns: U32 };
    0x2_200b Credit1StealCheck { peer: Cpu, checked: Flag32 };

    0x2_2202 Credit2RunqPos { vcpu: Pair, pos: U32 };
    0x2_2203 Credit2CreditBurn { vcpu: Pair, credit: I32, budget: Budget, delta: I32 };
    0x2_2205 Credit2TickleCheck { vcpu: Pair, credit: I32, score: I32 };
    0x2_2206 Credit2Tickle { cpu: Cpu };
    0x2_2207 Credit2CreditReset { vcpu: Pair, start: I32, end: I32 };
    0x2_2208 Credit2Tasklet {};
    0x2_2209 Credit2UpdateLoad {};
    0x2_220a Credit2RunqAssign { vcpu: Pair, rq: U16 } pad 2;
    0x2_220b Credit2UpdateVcpuLoad { avgload: U64, vcpu: Pair, shift: U8 } pad 3;
    0x2_220c Credit2UpdateRunqLoad { avgload: U64, b_avgload: U64, load: U16, rq: Rq8, shift: U8 } pad 4;
    0x2_220d Credit2TickleNew { vcpu: Pair, cpu: Cpu, credit: I32 };
    0x2_220e Credit2RunqMaxWeight { rq: U16, weight: U16 };
    0x2_220f Credit2Migrate { vcpu: Pair, from: U16, to: U16 };
    0x2_2210 Credit2LoadCheck { lrq: U16, orq: U16, delta: U32 };
    0x2_2211 Credit2LoadBalance { lavg: U64, oavg: U64, lrq: U16, orq: U16 } pad 4;
    0x2_2213 Credit2PickedCpu { b_avgload: U64, vcpu: Pair, rq: Rq, cpu: Cpu16 };
    0x2_2214 Credit2RunqCandidate { vcpu: Pair, tickled: CpuOrNone, credit: I32 };
    0x2_2215 Credit2Schedule { cpu: Cpu16, rq: U16, tasklet: Flag, idle: Flag, smt_idle: Flag, tickled: Flag };
    0x2_2216 Credit2Ratelimit { vcpu: Pair, ran_ns: U32 };
    0x2_2217 Credit2CandidateCheck { vcpu: Pair };

    0x2_2801 RtdsTickle { cpu: Cpu };
    0x2_2802 RtdsRunqPick { vcpu: Pair, deadline: U64, budget: U64 };
    0x2_2803 RtdsBudgetBurn { vcpu: Pair, budget: U64, delta: I32 };
    0x2_2804 RtdsBudgetReplenish { vcpu: Pair, deadline: U64, budget: U64 };
    0x2_2805 RtdsTasklet {};
    0x2_2806 RtdsSchedule { cpu: Cpu16, tasklet: Flag, idle: Low, tickled: High };
}

/// The event of a record.
///
/// # Panics
/// There are more words than seven.
pub fn decode(id: u32, words: &[u32]) -> Decoded {
    let words = Words::new(words);
    let mut bytes = [0; 4 * Words::MAX];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words.as_slice()) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    decode_bytes(id, &bytes[..4 * words.as_slice().len()])
}

/// The same, from the words' bytes.
pub(super) fn decode_bytes(id: u32, bytes: &[u8]) -> Decoded {
    known(id, bytes).unwrap_or_else(|| {
        let mut words = [0; Words::MAX];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        }
        Decoded { event: XenEvent::Other { id, words: Words::new(&words[..bytes.len() / 4]) }, pad: 0 }
    })
}

/// The record of an event; padding is 0.
pub fn encode(event: &XenEvent) -> Encoded {
    encode_padded(event, 0)
}

/// Gives the fields of an event by name: run states by their numbers, words of an unknown event as `word0` and so on, after
/// its `id`.
pub fn fields(event: &XenEvent, mut give: impl FnMut(&'static str, Field)) {
    const WORDS: [&str; Words::MAX] = ["word0", "word1", "word2", "word3", "word4", "word5", "word6"];
    match *event {
        XenEvent::Runstate { vcpu, old, new } => {
            give("vcpu", vcpu.into());
            give("old", (old as u8).into());
            give("new", (new as u8).into());
        }
        XenEvent::Other { id, words } => {
            give("id", id.into());
            words.as_slice().iter().zip(WORDS).for_each(|(word, name)| give(name, (*word).into()));
        }
        _ => known_fields(event, &mut give),
    }
}

/// Whether the table has this number: such a record that is [`XenEvent::Other`] has an unknown layout.
pub fn is_known(id: u32) -> bool {
    IDS.contains(&id) || (id & !0xff0 == RUNSTATE && id >> 8 & 0xf < 4 && id >> 4 & 0xf < 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(record: &Encoded) -> Vec<u32> {
        record.words.as_slice().to_vec()
    }

    #[test]
    fn words_lie_where_xen_puts_them() {
        // From the recordings, with what xenalyze prints of each.
        let vcpu = VcpuId::new(1, 2);
        let check = |id: u32, words_: &[u32], event: XenEvent| {
            assert_eq!(decode(id, words_).event, event);
            assert_eq!(encode(&event).id, id);
            assert_eq!(words(&encode(&event)), words_);
        };
        check(0x2_1031, &[0x1_0002], XenEvent::Runstate { vcpu, old: RunState::Running, new: RunState::Offline });
        check(0x2_1211, &[0x1_0002], XenEvent::Runstate { vcpu, old: RunState::Blocked, new: RunState::Runnable });
        check(
            0x2_800f,
            &[0x7fff, 2, 0x2_08ab, u32::MAX],
            XenEvent::SwitchInfNext { vcpu: VcpuId::idle(CpuId(2)), waited_ns: 133_291, slice_ns: None },
        );
        check(0x2_2009, &[0x100_0002], XenEvent::Credit1Schedule { cpu: CpuId(2), tasklet: false, idle: true });
        check(
            0x2_2203,
            &[0x1_0002, 0x51_2dfd, 0x8000_0000, 0xffff_ffff],
            XenEvent::Credit2CreditBurn { vcpu, credit: 5_320_189, budget: None, delta: -1 },
        );
        check(
            0x2_2213,
            &[u32::MAX, 0x7fff_ffff, 0x1_0002, 0x3_ffff],
            XenEvent::Credit2PickedCpu { vcpu, rq: None, cpu: CpuId(3), b_avgload: i64::MAX as u64 },
        );
        check(
            0x2_2215,
            &[0x1_0003, 0x101_0100],
            XenEvent::Credit2Schedule {
                cpu: CpuId(3),
                rq: 1,
                tasklet: false,
                idle: true,
                smt_idle: true,
                tickled: true,
            },
        );
        check(
            0x2_2806,
            &[0x1100_0007],
            XenEvent::RtdsSchedule { cpu: CpuId(7), tasklet: false, idle: true, tickled: true },
        );
    }

    #[test]
    fn padding_is_kept() {
        let load = [0x6918a, 0, 0x6918a, 0, 0x1200_0001, 0xffff_8300];
        let d = decode(0x2_220c, &load);
        let event = XenEvent::Credit2UpdateRunqLoad { rq: 0, avgload: 0x6918a, b_avgload: 0x6918a, load: 1, shift: 18 };
        assert_eq!(d, Decoded { event, pad: 0xffff_8300 });
        assert_eq!(words(&encode_padded(&d.event, d.pad)), load);
        assert_eq!(words(&encode(&event))[5], 0);
    }

    #[test]
    fn what_does_not_fit_is_kept_as_it_stands() {
        for (id, words_) in [
            (0x2_8004, &[1][..]),
            (0x2_8004, &[0x1_0000, 0]),
            (0x2_2009, &[0x200_0000]),
            (0x2_1041, &[0]),
            (0x2_2218, &[1, 2, 3, 4, 5, 6, 7]),
        ] {
            let d = decode(id, words_);
            assert_eq!(d.event, XenEvent::Other { id, words: Words::new(words_) }, "{id:#x}");
            assert_eq!(words(&encode(&d.event)), words_);
        }
    }

    #[test]
    fn no_id_twice() {
        let mut ids = IDS.to_vec();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), IDS.len());
    }

    proptest! {
        /// Decode and encode give the same words, whatever the record.
        #[test]
        fn any_words_survive(
            id in prop_oneof![4 => prop::sample::select(IDS), 1 => 0x2_1000u32..0x2_1400, 1 => 0u32..1 << 28],
            words_ in prop::collection::vec(prop_oneof![0u32..4, any::<u32>(), Just(u32::MAX), 0u32..0x100_0000], 0..=7),
        ) {
            let d = decode(id, &words_);
            let e = encode_padded(&d.event, d.pad);
            prop_assert_eq!(e.id, id);
            prop_assert_eq!(words(&e), words_);
        }
    }
}
