# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A notebook: a first look from Python
#
# This page is a notebook that runs when the site is built: `docs/notebooks/first-look.py`, a script with cells. Open it
# with Jupyter and jupytext, or run it with Python.

# %% [markdown]
# ## A run
#
# A scenario is a path or a mapping. `run` returns a `Result`.

# %%
from concurrent.futures import ThreadPoolExecutor

import contend
import matplotlib.pyplot as plt
import polars as pl

base = {"machine": "intel-2s-44c-88t", "seed": 1, "workload": {"kind": "hackbench", "groups": 4, "loops": 50}}
result = contend.run(base, policy="linux-6.18")
result

# %% [markdown]
# Its summary is the object of `contend run --json`, `result.explain()` that of `contend explain --json`; its tables are
# polars frames.

# %%
print(result.outcome, f"{result.summary['virtual_s'] * 1e3:.2f} ms")
result["ledger"].sort("ns", descending=True).head(6)

# %% [markdown]
# The tasks that waited longest, by the role that hackbench gave them:

# %%
tasks = result["tasks"].with_columns(role=pl.col("name").str.extract(r"^([a-z]+)"))
tasks.group_by("role").agg(
    pl.len().alias("tasks"),
    (pl.col("runtime_ns").sum() / 1e6).round(2).alias("runtime_ms"),
    (pl.col("delay_ns").sum() / 1e6).round(2).alias("delay_ms"),
    pl.col("nr_migrations").sum().alias("migrations"),
).sort("delay_ms", descending=True)

# %% [markdown]
# ## Two policies over seeds
#
# The GIL is released while a simulation runs, so threads run them side by side.

# %%
policies = ["linux-2.6.37", "linux-6.18"]
runs = [(policy, seed) for policy in policies for seed in range(1, 6)]
with ThreadPoolExecutor() as pool:
    results = list(pool.map(lambda of: contend.run(base, policy=of[0], seed=of[1]), runs))
table = pl.DataFrame(
    {
        "policy": [policy for policy, _ in runs],
        "seed": [seed for _, seed in runs],
        "ms": [r.summary["virtual_s"] * 1e3 for r in results],
        "p99_us": [r.summary["wakeup_latency_us"]["p99"] for r in results],
        "migrations": [r.summary["tasks"]["migrations"] for r in results],
    }
)
table.group_by("policy").agg(pl.col("ms", "p99_us", "migrations").mean().round(2)).sort("policy")

# %% [markdown]
# `contend.compare` does that, and says how sure each difference is: an interval that holds 0 is no difference.

# %%
compared = contend.compare(
    {**base, "policy": policies[0]},
    {**base, "policy": policies[1]},
    metrics=["virtual_s", "wakeup_latency_us.p99", "tasks.migrations", "lock_kinds.rq.wait_s"],
)
compared.frame().select("name", "baseline_mean", "result_mean", "difference_pct", "low_pct", "high_pct", "verdict")

# %% [markdown]
# ## A plot
#
# Wake-up latencies of all seeds together, as the share of wake-ups that took longer.

# %%
figure, axes = plt.subplots(figsize=(7, 4))
for policy in policies:
    frames = [r["latency"] for r, (p, _) in zip(results, runs, strict=True) if p == policy]
    wakeups = pl.concat(frames).filter(pl.col("name") == "wakeup").group_by("to_ns").agg(pl.col("count").sum())
    wakeups = wakeups.sort("to_ns").with_columns(longer=1 - pl.col("count").cum_sum() / pl.col("count").sum())
    axes.step(wakeups["to_ns"] / 1e3, wakeups["longer"], where="post", label=policy)
axes.set(xscale="log", yscale="log", xlabel="wake-up latency, us", ylabel="share of wake-ups that took longer")
axes.set_ylim(1e-4, 1)
axes.legend()
figure.tight_layout()
plt.show()
