//! From the guests of a plan to those of a simulation.

use contend_platform::Time;
use contend_sim::guest::{GuestSpec, Guests};
use contend_sim::program::{Groups, Workload};
use contend_sim::xen::{Content, DomainSetup};
use contend_workload::WorkloadError;
use contend_workload::spec::{Origins, ReadFile, Target};

use crate::as_recorded::as_recorded;
use crate::error::ScenarioError;
use crate::scenario::Plan;
use crate::scenario::guest::GuestPlan;

/// The machines, each with its programs. What became of their files is added to `origins`, once for all copies.
pub(crate) fn build(plan: &Plan, read: ReadFile<'_>, origins: &mut Origins) -> Result<Guests, ScenarioError> {
    let cpus = plan.machine.topology.nr_cpus();
    let mut specs = Vec::new();
    let mut vcpus = 0;
    for guest in &plan.guests {
        let groups = guest.groups();
        for (copy, name) in guest.names().into_iter().enumerate() {
            let (workload, of_copy) = programs(plan, guest, read)?;
            let features = as_recorded(&guest.features, &guest.preset, guest.vcpus(), &of_copy.sources);
            if copy == 0 {
                origins.extend(of_copy);
            }
            specs.push(GuestSpec {
                name,
                topology: guest.topology.clone(),
                policy: guest.preset.policy,
                features,
                hz: guest.hz,
                workload,
                group: groups.get(copy).and_then(|path| plan.groups.find(path)).unwrap_or_default(),
                pin: guest.pins(vcpus, cpus),
                background: guest.background,
                memory: guest.memory,
            });
            vcpus += guest.vcpus();
        }
    }
    Ok(Guests { kvm: plan.kvm.clone(), specs })
}

/// What runs in one machine.
fn programs(plan: &Plan, guest: &GuestPlan, read: ReadFile<'_>) -> Result<(Workload, Origins), ScenarioError> {
    let target = Target { nr_cpus: guest.vcpus(), speed: plan.machine.costs.cpu.speed.value, capacity: &[] };
    let built = guest.workload.build_in(Groups::default(), target, read).map_err(|mut e| {
        if let WorkloadError::Spec(e) = &mut e {
            e.key = format!("guest.{}", e.key);
        }
        plan.unplaced(e)
    })?;
    if built.0.threads.is_some() {
        return Err(guest.refused("threads with stacks", "programs: only hosts run threads with stacks"));
    }
    Ok(built)
}

/// The domains of a Xen host, from the machines that [`build`] made of its guests.
pub(crate) fn domains(plan: &Plan, guests: Guests) -> Result<Vec<DomainSetup>, ScenarioError> {
    let xen = plan.xen.as_ref().expect("the host is Xen's");
    let mut domains = Vec::new();
    for (of, mut spec) in std::iter::zip(&xen.domains, guests.specs) {
        let guest = &plan.guests[of.guest];
        let domain = guest.domain.as_ref().expect("guests of a Xen host are domains");
        let content = if domain.kernel {
            Content::Kernel(Box::new(spec))
        } else {
            let workload = std::mem::take(&mut spec.workload);
            check_bare(guest, &workload)?;
            let programs = workload.tasks.into_iter().map(|t| t.program).collect();
            Content::Programs { name: spec.name, programs, background: spec.background }
        };
        let affinity = domain.affinity.clone();
        domains.push(DomainSetup { dom: of.dom, params: domain.params, pool: domain.pool, affinity, content });
    }
    Ok(domains)
}

/// Can the tasks run in vCPUs without a kernel?
fn check_bare(guest: &GuestPlan, workload: &Workload) -> Result<(), ScenarioError> {
    let (tasks, vcpus) = (workload.tasks.len(), guest.vcpus());
    if tasks != vcpus {
        let found = format!("{tasks} tasks with kernel = false");
        return Err(guest.refused(&found, &format!("{vcpus} tasks, one for each vCPU")));
    }
    if let Some(object) = workload.objects.first() {
        let found = format!("{} (\"{}\") with kernel = false", guest.workload.kind(), object.name);
        let right =
            "tasks that compute, sleep, yield and exit, such as hogs or periodic: what they wait at is a kernel's";
        return Err(guest.refused(&found, right));
    }
    if workload.tasks.iter().any(|t| t.sched.is_some() || t.affinity.is_some()) {
        let right = "without nice, sched and pin: cpus says where vCPUs run, weight how much";
        return Err(guest.refused("tasks with nice, sched or pin, and kernel = false", right));
    }
    Ok(())
}

/// Host and guests end together, as the parts of a mix do: where some end by themselves, the run ends with those, and the
/// others are in the background; else it ends when the longest does, which is returned.
pub(crate) fn one_end(host: &mut Workload, guests: &mut Guests) -> Option<Time> {
    if guests.specs.is_empty() {
        return None;
    }
    let host_ends = !host.tasks.is_empty() && host.horizon.is_none();
    let ends = host_ends || guests.specs.iter().any(|g| !g.background && g.workload.horizon.is_none());
    let mut longest = host.horizon.take();
    if ends && longest.is_some() {
        host.tasks.iter_mut().for_each(|t| t.background = true);
    }
    for guest in &mut guests.specs {
        let end = guest.workload.horizon.take();
        if !guest.background {
            longest = longest.max(end);
            guest.background = ends && end.is_some();
        }
    }
    longest.filter(|_| !ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use std::path::Path;

    fn built(host: &str, guests: &str) -> (Option<Time>, Workload, Guests) {
        let text = format!("machine = \"4c\"\n{guests}{host}");
        let plan = Scenario::parse(&text, "test", Path::new("")).and_then(|s| s.plan()).expect("a right scenario");
        let read = |_: &str| -> std::io::Result<Vec<u8>> { unreachable!("no files") };
        let host = plan.workload.as_ref().map(|w| w.build(4, &read)).transpose().expect("it fits");
        let mut host = host.unwrap_or_default();
        let mut guests = build(&plan, &read, &mut Origins::default()).expect("it fits");
        (one_end(&mut host, &mut guests), host, guests)
    }

    const ENDLESS: &str = "[workload]\nkind = \"periodic\"\ntasks = 1\nduration_ms = 7\n";
    const ENDS: &str = "[workload]\nkind = \"hackbench\"\ngroups = 1\nloops = 1\n";

    fn guest(table: &str) -> String {
        format!("[[guest]]\nvcpus = 2\ncopies = 2\n{}\n", table.replace("[workload]", "[guest.workload]"))
    }

    #[test]
    fn what_ends_by_itself_ends_the_run() {
        let (end, host, guests) = built(ENDLESS, &guest(ENDS));
        assert_eq!((end, host.horizon), (None, None));
        assert!(host.tasks.iter().all(|t| t.background));
        assert!(guests.specs.iter().all(|g| !g.background));
        let (end, host, guests) = built(ENDS, &guest(ENDLESS));
        assert_eq!(end, None);
        assert!(host.tasks.iter().all(|t| !t.background));
        assert!(guests.specs.iter().all(|g| g.background && g.workload.horizon.is_none()));
    }

    #[test]
    fn what_never_ends_runs_for_the_longest() {
        let (end, host, guests) = built("", &guest(ENDLESS));
        assert_eq!(end, Some(7_000_000));
        assert!(host.tasks.is_empty());
        assert!(guests.specs.iter().all(|g| !g.background && g.workload.horizon.is_none()));
        let (end, host, _) = built(&ENDLESS.replace('7', "9"), &guest(ENDLESS));
        assert_eq!(end, Some(9_000_000));
        assert!(host.tasks.iter().all(|t| !t.background));
    }

    #[test]
    fn pinned_vcpus_are_dealt_to_the_cpus_in_turn() {
        let (_, _, guests) = built("", &guest(&format!("pin = \"1:1\"\n{ENDS}")).replace("vcpus = 2", "vcpus = 3"));
        let cpus: Vec<usize> = guests.specs.iter().flat_map(|g| &g.pin).flat_map(|set| set.ones()).collect();
        assert_eq!(cpus, [0, 1, 2, 3, 0, 1]);
        assert!(guests.specs.iter().all(|g| g.topology.nr_llcs() == 3 && g.topology.nr_nodes() == 1));
        assert_eq!(guests.specs.iter().map(|g| g.name.as_str()).collect::<Vec<_>>(), ["vm0", "vm1"]);
    }
}
