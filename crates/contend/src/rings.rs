//! Rings that domains share: each has two ends, in the kernels of two domains of one Xen host.

use std::collections::BTreeMap;

use contend_sim::guest::Guests;
use contend_sim::program::{ObjectKind, RingEnd, Workload};

use crate::error::{At, ScenarioError};
use crate::scenario::Plan;

/// Both ends, those that were found: the guest's index, the end's event channel, its packets.
type Ends = [Vec<(usize, u32)>; 2];

/// Has each ring its two ends, where there can be any? `xen`: the guests are domains of a Xen host.
///
/// # Errors
/// What is missing, or too much, and where.
pub(crate) fn check(plan: &Plan, host: &Workload, guests: &Guests, xen: bool) -> Result<(), ScenarioError> {
    let refuse = |guest: Option<usize>, found: String, right: &str| {
        let key = guest.map_or("workload".into(), |g| format!("guest.workload (of {})", guests.specs[g].name));
        Err(ScenarioError::Value { at: At { file: plan.file.clone(), line: 0, key }, found, right: right.into() })
    };
    const DOMAINS: &str = "two domains of a Xen host ([xen]), one with iperf-client and one with iperf-server";
    if ends_of(host).next().is_some() {
        return refuse(None, "an end of a ring on a host".into(), DOMAINS);
    }
    let mut rings: BTreeMap<u32, Ends> = BTreeMap::new();
    for (i, guest) in guests.specs.iter().enumerate() {
        for (ring, end, bytes) in ends_of(&guest.workload) {
            if !xen {
                return refuse(Some(i), format!("the {} end of ring {ring}", end.name()), DOMAINS);
            }
            rings.entry(ring).or_default()[end as usize].push((i, bytes));
        }
    }
    for (ring, [front, back]) in rings {
        match (&front[..], &back[..]) {
            ([(a, _)], [(b, _)]) if a == b => {
                return refuse(
                    Some(*a),
                    format!("both ends of ring {ring}"),
                    "one end here, the other in another domain",
                );
            }
            ([(a, of_client)], [(_, of_server)]) if of_client != of_server => {
                let found = format!("packets of {of_client} bytes, and of {of_server} at the server of ring {ring}");
                return refuse(Some(*a), found, "the same chunk_kib at both ends");
            }
            ([_], [_]) => {}
            (clients, servers) => {
                let at = clients.first().or(servers.first()).map(|(g, _)| *g);
                let found =
                    format!("ring {ring} with {} iperf-client and {} iperf-server", clients.len(), servers.len());
                return refuse(at, found, "one of each, in two domains; ring tells several pairs apart");
            }
        }
    }
    Ok(())
}

fn ends_of(w: &Workload) -> impl Iterator<Item = (u32, RingEnd, u32)> {
    w.objects.iter().filter_map(|o| match o.kind {
        ObjectKind::Ring { channel, end, bytes, .. } => Some((channel, end, bytes)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;
    use crate::{RunOptions, run};
    use std::path::Path;

    fn refused(text: &str) -> String {
        let plan = Scenario::parse(text, "test.toml", Path::new("")).and_then(|s| s.plan()).expect("a right scenario");
        run(&plan, RunOptions::default()).map(|_| ()).expect_err("refused").to_string()
    }

    #[test]
    fn a_ring_on_one_kernel_is_refused() {
        let parts = "kind = \"mix\"\nparts = [{ kind = \"iperf-client\" }, { kind = \"iperf-server\" }]\n";
        let e = refused(&format!("machine = \"4c\"\n[workload]\n{parts}"));
        assert!(e.contains("an end of a ring on a host; should be two domains of a Xen host"), "{e}");
        let e = refused(&format!("machine = \"4c\"\n[[guest]]\nname = \"vm\"\nvcpus = 2\n[guest.workload]\n{parts}"));
        assert!(e.contains("(of vm): found the front end of ring 0; should be two domains of a Xen host"), "{e}");
    }
}
