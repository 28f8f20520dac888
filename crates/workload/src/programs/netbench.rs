//! The load that dbench and tbench replay: what a NetBench client asks of an SMB server.
//!
//! Both tools read it from the file client.txt, a recording of some 500,000 operations (dbench(1)). Here operations are
//! drawn at random with the recording's proportions. They are those of the table that dbench prints, from a run of
//! 1,000 s with 10 clients: Yufen Yu's 2020 postings on the stripe size of md/raid5 (56.7 million operations at 307.8
//! MB/s). The mix is the recording's, whatever the system.
//!
//! That run moved 307.8 MB/s x 1,000 s / (ReadX + WriteX) = 15,200 bytes a transfer. The sizes behind this mean are an
//! estimate: a page or 64 KiB, and as many of the latter as the mean asks for.

use rand::Rng;

/// What an operation does to a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Looks something up, or closes it; changes nothing on disk.
    Look,
    /// Changes metadata.
    Change,
    /// Reads a file.
    Read,
    /// Writes to a file.
    Write,
    /// Waits until the file is on disk (fsync).
    Flush,
}

/// Name, count in that run, kind; the most frequent first. NTCreateX opens files more often than it creates them.
const OPS: [(&str, u32, Kind); 16] = [
    ("ReadX", 15_370_483, Kind::Read),
    ("NTCreateX", 9_805_011, Kind::Look),
    ("Qpathinfo", 8_887_512, Kind::Look),
    ("Close", 7_202_525, Kind::Look),
    ("WriteX", 4_887_239, Kind::Write),
    ("Find", 3_436_004, Kind::Look),
    ("Unlink", 1_980_066, Kind::Change),
    ("Qfsinfo", 1_629_582, Kind::Look),
    ("Qfileinfo", 1_557_262, Kind::Look),
    ("Sfileinfo", 798_756, Kind::Change),
    ("Flush", 687_205, Kind::Flush),
    ("Rename", 415_213, Kind::Change),
    ("LockX", 31_934, Kind::Look),
    ("UnlockX", 31_933, Kind::Look),
    ("Deltree", 240, Kind::Change),
    ("Mkdir", 120, Kind::Change),
];
const NT_CREATE: usize = 1;
const UNLINK: usize = 6;

/// All of them.
const TOTAL: u32 = {
    let (mut sum, mut i) = (0, 0);
    while i < OPS.len() {
        sum += OPS[i].1;
        i += 1;
    }
    sum
};
/// NTCreateX that create: what is unlinked must have been created.
const CREATES: u32 = OPS[UNLINK].1;

/// Sizes of a transfer, and the share of the larger in per cent: the mean is 15,155 bytes.
const SMALL: u32 = 4096;
const LARGE: u32 = 65_536;
const LARGE_PCT: u32 = 18;

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    pub kind: Kind,
    /// Payload of ReadX and WriteX, which is what the tools' MB/s count; else 0.
    pub bytes: u32,
}

/// The next operation.
pub(super) fn draw(rng: &mut impl Rng) -> Operation {
    let r = rng.next_u64();
    // The upper half picks the operation, the lower the size.
    let mut at = (((r >> 32) * u64::from(TOTAL)) >> 32) as u32;
    let mut i = 0;
    while at >= OPS[i].1 {
        at -= OPS[i].1;
        i += 1;
    }
    let kind = if i == NT_CREATE && at < CREATES { Kind::Change } else { OPS[i].2 };
    let large = (r & 0xffff_ffff) * 100 < u64::from(LARGE_PCT) << 32;
    let bytes = match kind {
        Kind::Read | Kind::Write => {
            if large {
                LARGE
            } else {
                SMALL
            }
        }
        _ => 0,
    };
    Operation { kind, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn the_mix_is_that_of_the_published_run() {
        let mut rng = Pcg64Mcg::new(1);
        let n = 1_000_000_u32;
        let (mut transfers, mut bytes) = (0_u32, 0_u64);
        let mut kinds = [0_u32; 5];
        for _ in 0..n {
            let o = draw(&mut rng);
            assert_eq!(o.bytes > 0, matches!(o.kind, Kind::Read | Kind::Write));
            kinds[o.kind as usize] += 1;
            transfers += u32::from(o.bytes > 0);
            bytes += u64::from(o.bytes);
        }
        let share = |count: u32| f64::from(count) / f64::from(TOTAL);
        let changes: u32 = OPS.iter().filter(|o| o.2 == Kind::Change).map(|o| o.1).sum();
        for (kind, count) in [
            (Kind::Read, OPS[0].1),
            (Kind::Write, OPS[4].1),
            (Kind::Flush, OPS[10].1),
            (Kind::Change, changes + CREATES),
        ] {
            let got = f64::from(kinds[kind as usize]) / f64::from(n);
            assert!((got / share(count) - 1.0).abs() < 0.03, "{kind:?}: {got} for {}", share(count));
        }
        // 307.799 MB/s for 1,000 s.
        let published = 307_799e6 / f64::from(OPS[0].1 + OPS[4].1);
        let mean = bytes as f64 / f64::from(transfers);
        assert!((mean / published - 1.0).abs() < 0.01, "{mean} for {published}");
    }
}
