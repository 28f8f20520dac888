"""The tables of docs/guests-beyond-the-posts.md: `guests_beyond.py TABLES [SEEDS [PICTURE]]`. TABLES is one of

storm, dbench: versions of the directed yield on a boot and on overcommitted file servers
locks: a map of locks over overcommit and critical section, their waits, and preemption
exits: some of it without pause-loop exits
sleep: some of it on a host whose idle CPUs sleep deeply
machines: parts of two machines exchanged one by one, and what the host does
"""

from __future__ import annotations

import itertools
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import contend
from contend import plot

MACHINES = Path(__file__).parent.parent / "machines"
Summary = dict[str, Any]
Key = tuple[Any, ...]

# The hypervisor of 2012 but for its handler, and what came since.
KVM_2012 = {
    "kvm.ple_window_grow": 0, "kvm.halt_poll_ns": 0, "kvm.pv_kick_yield": False, "kvm.pv_preempted": False,
    "kvm.pv_sched_yield": False,
}  # fmt: skip
KVM_TODAY = {"kvm.directed_yield": "today"}
# Host and guests of 2015, as in the study pv-qspinlock-2015.
HOST_2015 = {
    **KVM_2012, "kvm.directed_yield": "3.10-preempted", "kvm.ple_window_grow": 2, "idle_polling": True,
    "wake_wide": True, "balance": "5.2",
}  # fmt: skip
GUEST_2015 = {"idle_polling": False, "wake_wide": True, "balance": "5.2"}
# A host tuned for latency: idle CPUs go no deeper than C1.
SHALLOW = {f"machine.interrupts.{state}_residency": 1_000_000_000 for state in ("c1e", "c6")}
TUNED_2015 = {**HOST_2015, **SHALLOW}

LOCKS = [
    "ticket", "pv-ticket", "pv-queued", "pv-queued-2015", "unfair-byte", "unfair-queued", "hybrid", "adaptive",
]  # fmt: skip
CPUS = 32
SHAPES = [(32, "1:1"), (32, "none"), (40, "none"), (48, "none"), (64, "none"), (96, "none")]
"""Virtual CPUs, and whether each has a CPU of its own."""
SECTIONS_NS = [500, 2_000, 10_000, 50_000]
DEMANDS = [0.5, 2.0]
"""How much of one lock the CPUs want, if none waits."""


def scenario(machine: str, settings: Summary, guest: Summary, workload: Summary, warmup_s: float) -> Summary:
    """A scenario of one kind of guest."""
    guests = [{"name": "vm", "policy": "linux-3.6", **guest, "workload": workload}]
    return {"machine": machine, "policy": "linux-3.6", "warmup_s": warmup_s, "set": settings, "guest": guests}


def run_all(runs: dict[Key, Summary], seeds: int) -> dict[Key, list[Summary]]:
    """The summaries of every run, one for each seed."""

    def one(job: tuple[Key, int]) -> Summary:
        summary = contend.run(runs[job[0]], seed=job[1]).summary
        if summary["outcome"] not in ("finished", "horizon"):
            sys.exit(f"{job}: {summary['outcome']}: {summary['outcome_detail']}")
        return summary

    jobs = list(itertools.product(runs, range(1, seeds + 1)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(one, jobs))
    return {key: done[i : i + seeds] for i, (key, _) in enumerate(jobs) if i % seeds == 0}


def mean(found: Sequence[Summary], number: Callable[[Summary], float]) -> float:
    """Mean over the seeds."""
    return statistics.fmean(number(s) for s in found)


def spread(found: Sequence[Summary], number: Callable[[Summary], float]) -> float:
    """Largest distance of a seed from the mean, in per cent of it."""
    values = [number(s) for s in found]
    middle = statistics.fmean(values)
    return 100 * max(abs(v - middle) for v in values) / middle if middle else 0.0


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table as Markdown."""
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def rate(name: str) -> Callable[[Summary], float]:
    """A program's counter a virtual second, after the warm-up."""
    return lambda s: float(s["metrics"]["counts"][name]["per_s"])


def history(chosen: str, seeds: int) -> None:
    """Versions of the directed yield under the loads whose name begins with `chosen`."""
    old = ["ple-off", "3.6", "theurer", "3.7-eligible", "3.9-nr-running", "3.10-preempted", "5.7-ready", "today"]
    ideas = ["skip-yielding-rq", "skip-not-in-guest", "trylock"]
    steps: dict[str, Summary] = {v: {**KVM_2012, "kvm.directed_yield": v} for v in (*old, *ideas)}
    steps["3.6, window grows"] = {**steps["3.6"], "kvm.ple_window_grow": 2}
    steps["today, window grows"] = {**steps["today"], "kvm.ple_window_grow": 2}
    steps["today, all of it"] = KVM_TODAY
    steps["+ host linux-6.18"] = {**KVM_TODAY, "host": "linux-6.18"}
    steps["+ guests pv-queued"] = {**KVM_TODAY, "host": "linux-6.18", "guest.spinlock": "pv-queued"}
    boot = {
        "kind": "guest-boot", "serial_ms": 5, "bringup_us": 20, "init_us": 50, "broadcasts": 0,
        "broadcasts_per_cpu": 0, "services_per_cpu": 1, "service_ms": 20,
    }  # fmt: skip
    dbench = {"kind": "dbench", "file_system": "tmpfs", "dcache_ns": 300, "duration_ms": 280}
    loads: dict[str, tuple[Summary, Summary]] = {
        "storm: one guest of 80 virtual CPUs": ({"vcpus": 80}, boot),
        "dbench: 10 guests of 16": ({"vcpus": 16, "copies": 10}, {**dbench, "clients": 16}),
        "dbench: 16 guests of 8": ({"vcpus": 8, "copies": 16}, {**dbench, "clients": 8}),
    }
    loads = {name: load for name, load in loads.items() if name.startswith(chosen)}
    runs = {}
    for (load, (guest, workload)), (step, settings) in itertools.product(loads.items(), steps.items()):
        features = {"spinlock": settings.get("guest.spinlock", "ticket")}
        host = {k: v for k, v in settings.items() if k not in ("host", "guest.spinlock")}
        # Convoys build up for 100 ms and more.
        warmup_s = 0.02 if chosen == "storm" else 0.2
        made = scenario("westmere-ex-4s-40c-80t", host, {**guest, "set": features}, workload, warmup_s)
        runs[load, step] = {**made, "policy": settings.get("host", "linux-3.6")}
    done = run_all(runs, seeds)
    for load in loads:
        boots = load.startswith("storm")
        result = (lambda s: 1e3 * s["virtual_s"]) if boots else (lambda s: rate("ops")(s) / 1e6)
        rows = []
        for step in steps:
            found = done[load, step]
            attempts = mean(found, lambda s: s["kvm"]["yield_to_attempted"] / 1e6)
            succeeded = mean(found, lambda s: s["kvm"]["yield_to_succeeded"] / 1e6)
            # The handler of 3.6 checks nothing before it takes both run queues' locks.
            unlocked = mean(found, lambda s: s["kvm"]["yield_to_failed_unlocked"] / 1e6)
            ledger = [mean(found, lambda s, a=a: s["ledger_pct"][a]) for a in ("rq_lock_wait", "ple", "guest_spin")]
            share = [f"{100 * x / attempts:.3g} %" if attempts else "-" for x in (succeeded, unlocked)]
            useful = mean(found, lambda s: s["ledger_pct"]["guest_user"] + s["ledger_pct"]["guest_kernel"])
            rows.append(
                [step, f"{mean(found, result):.4g}", f"{spread(found, result):.0f} %", f"{attempts:.3f} M", *share,
                 *(f"{x:.1f} %" for x in ledger), f"{useful:.1f} %"]
            )  # fmt: skip
        head = ["handler", "ms of virtual time" if boots else "M operations/s", "+-", "attempts", "succeed",
                "avoid the locks", "rq_lock_wait", "ple", "guest_spin", "guest work"]  # fmt: skip
        table(load, head, rows)


def ratio(shape: tuple[int, str]) -> str:
    """Virtual CPUs for each CPU."""
    return f"{shape[0] / CPUS:g}{', pinned' if shape[1] == '1:1' else ''}"


def lock_of(s: Summary) -> Summary:
    """The lock that the tasks loop on."""
    return next(x for x in s["guests"][0]["locks"] if x["name"] == "lock-loop")


def loops(demand: float, shape: tuple[int, str], section: int, lock: str, host: Summary) -> Summary:
    """One guest whose tasks take one lock of its kernel in turn."""
    # From half to one and a half of what the demand asks for.
    loop = {
        "kind": "lock-loop", "lock": "spinlock", "tasks": shape[0], "pin": True, "critical_ns": section,
        "outside_ns": int(section * (CPUS / demand - 1) / 2), "jitter_pct": 200, "duration_ms": 200,
    }  # fmt: skip
    guest = {"vcpus": shape[0], "pin": shape[1], "set": {**GUEST_2015, "spinlock": lock}}
    return scenario("haswell-ex-4s-32c", host, guest, loop, 0.06)


def share_of_ideal(found: Sequence[Summary], demand: float, section: int) -> float:
    """Throughput in per cent of what a free hand-over would give."""
    return 100 * mean(found, rate("acquisitions")) / (min(demand, 1) / section * 1e9)


def exits(seeds: int, _: str | None) -> None:
    """What pause-loop exits do to locks."""
    off = {**TUNED_2015, "kvm.directed_yield": "ple-off"}
    shapes = [(0.5, (32, "none")), (2.0, (64, "none"))]
    grid = list(itertools.product(shapes, ["ticket", "pv-ticket", "unfair-byte"], [("on", TUNED_2015), ("off", off)]))
    done = run_all({(*at, lock, name): loops(*at, 2_000, lock, host) for at, lock, (name, host) in grid}, seeds)
    rows = []
    for (demand, shape), lock, (name, _host) in grid:
        found = done[demand, shape, lock, name]
        taken = mean(found, lambda s: lock_of(s)["acquisitions"] / 1e3)
        lost = [mean(found, lambda s, w=w: lock_of(s)["preemption"][w]) / taken for w in ("holder", "waiter")]
        longest = max(lock_of(s)["wait_max_us"] for s in found)
        idle = mean(found, lambda s: s["ledger_pct"]["idle"])
        rows.append(
            [ratio(shape), f"{demand:g}", lock, name, f"{share_of_ideal(found, demand, 2_000):.1f} %",
             *(f"{x:.3g}" for x in lost), f"{longest:.0f}", f"{idle:.0f} %"]
        )  # fmt: skip
    head = ["vCPUs/CPU", "demand", "lock", "exits", "throughput", "holders preempted in 1,000", "waiters",
            "longest wait, us", "idle"]  # fmt: skip
    table("Sections of 2 us with and without pause-loop exits", head, rows)


def sleep(seeds: int, _: str | None) -> None:
    """What idle states deeper than C1 do to locks whose waiters halt."""
    shapes = [(d, (vcpus, "none"), section) for vcpus in (48, 64) for d in DEMANDS for section in (2_000, 10_000)]
    halting = [lock for lock in LOCKS if lock.startswith("pv-") or lock in ("hybrid", "adaptive")]
    hosts = {"C1": TUNED_2015, "deep": HOST_2015}
    grid = list(itertools.product(shapes, halting, hosts))
    done = run_all({(*at, lock, host): loops(*at, lock, hosts[host]) for at, lock, host in grid}, seeds)
    rows = []
    for demand, shape, section in shapes:
        share = {
            (lock, host): share_of_ideal(done[demand, shape, section, lock, host], demand, section)
            for lock, host in itertools.product(halting, hosts)
        }
        cells = [f"{share[lock, 'C1']:.0f}, {share[lock, 'deep']:.0f}" for lock in halting]
        rows.append([ratio(shape), f"{demand:g}", f"{section / 1000:g}", *cells])
    head = ["vCPUs/CPU", "demand", "section, us", *halting]
    table("Throughput, % of a free hand-over, without and with idle states deeper than C1", head, rows)


def locks(seeds: int, picture: str | None) -> None:
    """Locks over overcommit and critical section."""
    grid = itertools.product(DEMANDS, SHAPES, SECTIONS_NS, LOCKS)
    done = run_all({key: loops(*key, TUNED_2015) for key in grid}, seeds)

    def of_ideal(key: Key) -> float:
        return share_of_ideal(done[key], key[0], key[2])

    def tail(key: Key) -> float:
        return mean(done[key], lambda s: s["metrics"]["latencies_us"]["section"]["p99.9"])

    def bold(texts: list[str], best: int) -> list[str]:
        return [f"**{t}**" if i == best else t for i, t in enumerate(texts)]

    for demand in DEMANDS:
        for title, number, choose in (("throughput, % of a free hand-over", of_ideal, max), ("p99.9, us", tail, min)):
            rows = []
            for shape, section in itertools.product(SHAPES, SECTIONS_NS):
                values = [number((demand, shape, section, lock)) for lock in LOCKS]
                texts = [f"{v:.0f}" for v in values]
                rows.append([ratio(shape), f"{section / 1e3:g}", *bold(texts, values.index(choose(values)))])
            table(f"Demand {demand:g}: {title}", ["vCPUs/CPU", "section, us", *LOCKS], rows)
    worst = max((spread(f, rate("acquisitions")), k) for k, f in done.items())
    middle = statistics.median(spread(f, rate("acquisitions")) for f in done.values())
    print(f"\nSeeds differ from their mean by {middle:.1f} % (median), at most {worst[0]:.0f} % {worst[1]}")
    for demand, section in itertools.product(DEMANDS, (2_000, 10_000)):
        keys = [(demand, (64, "none"), section, lock) for lock in LOCKS]
        waits(done, keys, f"2 vCPUs/CPU, demand {demand:g}, sections of {section // 1000} us")
    rows = []
    for lock, shape in itertools.product(LOCKS, SHAPES):
        found = done[2.0, shape, 2_000, lock]
        cells = []
        taken = mean(found, lambda s: lock_of(s)["acquisitions"] / 1e3)
        for who in ("holder", "waiter"):
            times = mean(found, lambda s, w=who: lock_of(s)["preemption"][w])
            long = mean(found, lambda s, w=who: 1e6 * lock_of(s)["preemption"][f"{w}_s"])
            cells += [f"{times / taken:.3g}", f"{long / times:.0f}" if times else "-"]
        longest = max(lock_of(s)["preemption"]["holder_max_us"] for s in found)
        rows.append([lock, ratio(shape), *cells[:2], f"{longest:.0f}", *cells[2:]])
    head = ["lock", "vCPUs/CPU", "holders preempted in 1,000 acquisitions", "mean, us", "longest, us",
            "waiters preempted in 1,000", "mean, us"]  # fmt: skip
    table("Preemption, demand 2, sections of 2 us", head, rows)
    if picture:
        draw(picture, of_ideal, tail)


def waits(done: dict[Key, list[Summary]], keys: list[Key], title: str) -> None:
    """How long a section takes by lock, and what kicks and halts take."""
    rows = []
    for key in keys:
        found = done[key]
        taken = mean(found, lambda s: lock_of(s)["acquisitions"] / 1e3)
        # Locks' events and programs' counts leave the warm-up out, the rest does not.
        counted = mean(found, lambda s: s["metrics"]["counts"]["acquisitions"]["count"] / 1e3)
        section = [
            mean(found, lambda s, p=p: s["metrics"]["latencies_us"]["section"][p]) for p in ("p50", "p99", "p99.9")
        ]
        longest = max(lock_of(s)["wait_max_us"] for s in found)
        events = [{k: v["count"] for k, v in s["metrics"]["counts"].items()} for s in found]
        total = {n: sum(e.get(n, 0) for e in events) for e in events for n in e}
        kicks = sum(total.get(f"pv_kick_{n}", 0) for n in ("unlock", "lock", "ahead"))
        woken = total.get("pv_kick_wake", 0)
        halts = sum(s["kvm"]["halt_wakeup"] for s in found)
        asleep = sum(s["kvm"]["halt_wait_ns"] for s in found)
        per_k = len(found) * taken
        rows.append(
            [key[-1], *(f"{v:.0f}" for v in section), f"{longest:.0f}", f"{kicks / len(found) / counted:.0f}",
             f"{total.get('pv_latency_kick', 0) / kicks / 1e3:.1f}" if total.get("pv_latency_kick") else "-",
             f"{total.get('pv_latency_wake', 0) / woken / 1e3:.0f}" if total.get("pv_latency_wake") else "-",
             f"{halts / per_k:.0f}", f"{asleep / halts / 1e3:.0f}" if halts / per_k > 1 else "-"]
        )  # fmt: skip
    head = ["lock", "p50, us", "p99, us", "p99.9, us", "longest wait, us", "kicks in 1,000", "kick, us",
            "kick to running, us", "halts in 1,000", "halt, us"]  # fmt: skip
    table(title, head, rows)


def draw(file: str, throughput: Callable[[Key], float], tail: Callable[[Key], float]) -> None:
    """The map: who has the most throughput, and who the shortest tail, in each cell."""
    plt = plot.pyplot(file)
    figure, axes = plt.subplots(2, len(DEMANDS), figsize=(13, 9), layout="constrained", squeeze=False)
    for (line, (what, number, choose)), (column, demand) in itertools.product(
        enumerate((("most throughput", throughput, max), ("shortest p99.9", tail, min))), enumerate(DEMANDS)
    ):
        ax = axes[line][column]
        for (y, shape), (x, section) in itertools.product(enumerate(SHAPES), enumerate(SECTIONS_NS)):
            values = {lock: number((demand, shape, section, lock)) for lock in LOCKS}
            best = choose(values, key=lambda lock: values[lock])
            ax.add_patch(plt.Rectangle((x, y), 1, 1, color=f"C{LOCKS.index(best)}", alpha=0.45))
            unit = "%" if line == 0 else "us"
            text = f"{best}\n{values[best]:.0f} {unit}\npv-ticket {values['pv-ticket']:.0f} {unit}"
            ax.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=7)
        ax.set(xlim=(0, len(SECTIONS_NS)), ylim=(0, len(SHAPES)), xlabel="critical section, us", ylabel="vCPUs per CPU")
        ax.set_xticks([x + 0.5 for x in range(len(SECTIONS_NS))], [f"{s / 1e3:g}" for s in SECTIONS_NS])
        ax.set_yticks([y + 0.5 for y in range(len(SHAPES))], [ratio(s).replace(", ", "\n") for s in SHAPES])
        ax.set_title(f"{what}, demand {demand:g}", fontsize=9)
    plot.save(figure, file)


PARTS = ["topology", "lines", "interrupts", "cpu", "cache", "virt"]


def mixed(folder: Path, parts: Sequence[str]) -> str:
    """A Haswell-EX of which `parts` are the Westmere-EX's, as a machine file."""
    texts = [(MACHINES / f"{n}.toml").read_text() for n in ("haswell-ex-4s-32c", "westmere-ex-8s-32c")]
    cut = [dict(re.findall(r"^\[(\w+)\]\n(.*?)(?=^\[\w+\]|\Z)", t, re.M | re.S)) for t in texts]
    text = texts[0].split("[topology]")[0]
    for part in PARTS:
        body = cut[part in parts][part]
        if part == "lines":
            # Entries for distances between nodes: as many as the topology has. The Westmere-EX's mean is 178.
            near, far = ("150", "200") if "lines" in parts else ("130", "130")
            values = (near, far) if "topology" in parts else ("178" if "lines" in parts else near,)
            entries = ", ".join(f'{{ value = {v}, lo = {v}, hi = {v}, source = "exchanged" }}' for v in values)
            body = re.sub(r"^remote = \[.*?^\]", f"remote = [{entries}]", body, flags=re.M | re.S)
        text += f"[{part}]\n{body}"
    file = folder / f"{'-'.join(parts) or 'haswell'}.toml"
    file.write_text(text)
    return str(file)


def machines(seeds: int, _: str | None) -> None:
    """Why one machine suffers more than another: their parts exchanged, one at a time, and what the host does."""
    fast, slow = 640, 915  # compile_ms of the study pv-qspinlock-2015 for the two machines
    cases: dict[str, tuple[list[str], int]] = {
        "Haswell-EX": ([], fast), "line costs": (["lines"], fast), "exit costs": (["virt"], fast),
        "switch and refill": (["cpu", "cache"], fast), "idle states": (["interrupts"], fast),
        "topology 8 x 4": (["topology"], fast),
        "compile speed": ([], slow), "all but compile speed": (PARTS, fast), "all but topology": (PARTS[1:], slow),
        "Westmere-EX": (PARTS, slow),
    }  # fmt: skip
    whole = ["Haswell-EX", "Westmere-EX"]
    hosts: dict[str, Summary] = {
        "2015's": {}, "no pause-loop exits": {"kvm.directed_yield": "ple-off"},
        "windows do not grow": {"kvm.ple_window_grow": 0}, "today's handler": {"kvm.directed_yield": "today"},
        "halts poll for 200 us": {"kvm.halt_poll_ns": 200_000}, "kicks yield": {"kvm.pv_kick_yield": True},
        "no idle state but C1": SHALLOW,
    }  # fmt: skip
    tested = ["pv-ticket", "pv-queued", "pv-queued-2015", "unfair-byte", "unfair-queued"]
    shapes = [(32, "1:1"), (32, "none"), (48, "none")]
    runs: dict[Key, Summary] = {}
    with tempfile.TemporaryDirectory() as folder:
        for (case, (parts, compile_ms)), lock, host, shape in itertools.product(cases.items(), tested, hosts, shapes):
            # Parts are exchanged for two locks, hosts for one.
            if (case in whole or tested.index(lock) < 2) and (not hosts[host] or (case in whole and lock == tested[0])):
                guest = {"vcpus": shape[0], "pin": shape[1], "set": {**GUEST_2015, "spinlock": lock}}
                build = {"kind": "kernel-build", "jobs": shape[0], "compile_ms": compile_ms, "duration_ms": 5_000}
                machine = mixed(Path(folder), parts)
                runs[case, lock, host, shape] = scenario(machine, {**HOST_2015, **hosts[host]}, guest, build, 1)
        done = run_all(runs, seeds)

    def line(name: str, case: str, lock: str, host: str) -> list[str]:
        pinned, free, over = (done[case, lock, host, shape] for shape in shapes)
        units = rate("unit_millionths")
        slower = mean(free, units) / mean(over, units)
        accounts = ["guest_user", "guest_spin", "ple", "rq_lock_wait", "idle"]
        shares = [mean(over, lambda s, a=a: s["ledger_pct"][a]) for a in accounts]
        each = [f"{mean(f, units) / 1e6:.1f} (+-{spread(f, units):.0f} %)" for f in (pinned, free, over)]
        return [name, *each, f"{slower:.2f}", *(f"{x:.1f} %" for x in shares)]

    tail = ["units/s, 32 pinned", "32", "48", "48 takes longer, x", "guest_user at 48", "guest_spin", "ple",
            "rq_lock_wait", "idle"]  # fmt: skip
    for lock in tested[:2]:
        rows = [line(case, case, lock, "2015's") for case in cases]
        table(f"Kernel build under {lock}: a Haswell-EX with parts of a Westmere-EX", ["machine", *tail], rows)
    for case in whole:
        rows = [line(host, case, tested[0], host) for host in hosts]
        table(f"Kernel build under {tested[0]} on {case}: what the host does", ["host", *tail], rows)
        table(f"Kernel build on {case}", ["lock", *tail], [line(lock, case, lock, "2015's") for lock in tested])


if __name__ == "__main__":
    make: dict[str, Callable[[int, str | None], None]] = {
        "storm": lambda seeds, _: history("storm", seeds), "dbench": lambda seeds, _: history("dbench", seeds),
        "locks": locks, "exits": exits, "sleep": sleep, "machines": machines,
    }  # fmt: skip
    if len(sys.argv) < 2 or sys.argv[1] not in make:
        sys.exit(__doc__)
    make[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 3, sys.argv[3] if len(sys.argv) > 3 else None)
