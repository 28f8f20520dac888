"""make bench: dispatches, messages and virtual seconds a CPU-second, as measured here.

Each scenario runs three times; the median by CPU time is shown. CPU time is that of the simulating thread, building the
workload included.
"""

from __future__ import annotations

import sys
from pathlib import Path

import contend

SCENARIOS = ["periodic-64", "periodic-1024", "hackbench-88-32", "recorded-hackbench-88", "schbench-88"]
RUNS = 3


def main() -> None:
    """Print one line a scenario."""
    here = Path(__file__).parent
    print(
        f"{'scenario':24} {'CPUs':>5} {'tasks':>6} {'CPU-s':>7} {'M dispatches/CPU-s':>19} "
        f"{'virtual s/CPU-s':>16}  counts"
    )
    costs = {}
    for name in sys.argv[1:] or SCENARIOS:
        runs = sorted((contend.run(here / f"{name}.toml") for _ in range(RUNS)), key=lambda r: r.cpu_s or 0.0)
        result = runs[RUNS // 2]
        s, cpu_s = result.summary, result.cpu_s or 1e-9
        costs[name] = cpu_s / (s["dispatches"] or 1)
        counts = "  ".join(
            f"{n}: {c['count'] / cpu_s / 1e6:.3f} M/CPU-s" for n, c in s["metrics"]["counts"].items() if n == "messages"
        )
        print(
            f"{name:24} {s['cpus']:5} {s['tasks']['count']:6} {cpu_s:7.2f} {s['dispatches'] / cpu_s / 1e6:19.3f} "
            f"{s['virtual_s'] / cpu_s:16.2f}  {counts}"
        )
    if {"periodic-64", "periodic-1024"} <= set(costs):
        growth = costs["periodic-1024"] / costs["periodic-64"]
        print(f"cost of a dispatch from 64 to 1,024 CPUs: x{growth:.2f}")


if __name__ == "__main__":
    main()
