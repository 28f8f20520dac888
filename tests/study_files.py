"""A study of milliseconds: two tables of ping-pong on eight CPUs, one parameter fitted to two of three rows."""

from __future__ import annotations

from pathlib import Path

HEADER = "study,table,machine,workload,variant,x_name,x,metric,unit,better,value,value_lo,value_hi,stdev_pct,note\n"
MACHINE = "1n1l4c2t"
BEFORE = {1: 70_000, 2: 140_000, 4: 250_000, 6: 260_000}
AFTER = {"quick": {1: 71_000, 2: 150_000, 4: 260_000, 6: 300_000}, "both": {1: 70_000, 2: 130_000, 4: 255_000}}

TOML = f"""\
schema = 1
name = "tiny"
title = "Pairs that play ping-pong"
source = "nobody"
seeds = 2
draws = 2

[before]
policy = "linux-5.2"

[switch.quick]
sis_core = false

[switch.both]
sis_core = false
wake_affine = "off"

[[workload]]
name = "pairs"
machine = "{MACHINE}"
scenario = "scenarios/pairs.toml"
x = "workload.pairs"
metric = {{ rate = "round_trips" }}
warmup_ms = 0.5
slice_ms = 2
quick_slice_ms = 1
fit_x = [1, 2, 4]

[workload.fitted]
"workload.work_ns" = {{ value = 2000, lo = 0, hi = 10_000 }}

[[assumption]]
workload = "pairs"
key = "workload.bytes"
lo = 4
hi = 64
why = "nobody says"

[[beyond]]
name = "machines"
workload = "pairs"
vary = {{ machine = ["4c", "1n1l4c2t"], "workload.pairs" = [2] }}
columns = ["rate.round_trips", "probes_per_search", "engine.ipis / dispatches"]
variants = [{{ name = "old", policy = "linux-5.2" }}, {{ name = "v3", policy = "2019-v3" }}]
"""

SCENARIO = f"""\
machine = "{MACHINE}"

[workload]
kind = "ping-pong"
round_trips = 1_000_000
"""


def row(table: str, variant: str, x: float, value: object) -> str:
    return f"tiny,{table},{MACHINE},pairs,{variant},pairs,{x},throughput,1/s,higher,{value},,,0.5,\n"


def published() -> str:
    lines = [HEADER]
    for switch, after in AFTER.items():
        for x, value in after.items():
            lines += [row(f"pairs/{switch}", "before", x, BEFORE[x]), row(f"pairs/{switch}", "after", x, value)]
    return "".join(lines)


def write(folder: Path, *, toml: str = TOML, rows: str | None = None, scenario: str = SCENARIO) -> Path:
    """Write the study; returns its folder."""
    (folder / "scenarios").mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(toml)
    (folder / "published.csv").write_text(published() if rows is None else rows)
    (folder / "scenarios" / "pairs.toml").write_text(scenario)
    return folder
