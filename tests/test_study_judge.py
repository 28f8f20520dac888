"""Judgement on rows made by hand: docs/studies.md as arithmetic."""

from __future__ import annotations

import io
from typing import Any

import pytest
from contend import text
from contend.study import judge, show, values


def effect(published: float | None, noise: float, simulated: float | None, **more: Any) -> dict[str, Any]:
    base = {
        "study": "s", "table": "t", "machine": "m", "workload": "w", "x": 1, "metric": "time", "kind": "predicted",
        "published_pct": published, "noise_pct": noise, "simulated_pct": simulated, "undetermined": False,
    }  # fmt: skip
    return {**base, **judge.judgement(published, noise, simulated), **more}


def test_effects_are_positive_where_the_patched_system_is_better() -> None:
    assert judge.effect_pct(2.0, 1.0, higher_is_better=False) == 50
    assert judge.effect_pct(2.0, 1.0, higher_is_better=True) == -50
    assert judge.effect_pct(1.0, 3.0, higher_is_better=True) == 200
    assert judge.effect_pct(1.0, 3.0, higher_is_better=False) == -200
    assert judge.effect_pct(None, 3.0, higher_is_better=False) is None
    assert judge.effect_pct(0.0, 3.0, higher_is_better=False) is None


def test_published_percentages_of_the_post_come_out() -> None:
    # "2 0.6428 10.64 0.5843 (9.1%) 4.93" and "64 190.42 0.35 226.74 (19.07%) 1.79"
    assert judge.effect_pct(0.6428, 0.5843, higher_is_better=False) == pytest.approx(9.1, abs=0.01)
    assert judge.effect_pct(190.42, 226.74, higher_is_better=True) == pytest.approx(19.07, abs=0.01)
    assert judge.noise_pct(10.64, 4.93) == pytest.approx(11.73, abs=0.01)


def test_noise_that_is_missing_counts_as_two_per_cent() -> None:
    assert judge.noise_pct(3.0, 4.0) == 5.0
    assert judge.noise_pct(None, None) == 2.0
    assert judge.noise_pct(1.5, None) == judge.noise_pct(None, 1.5) == 2.5
    assert judge.bound_pct(0.1) == 2.0
    assert judge.bound_pct(2.0) == 4.0


@pytest.mark.parametrize(
    ("published", "noise", "judged"),
    [(2.0, 0.1, False), (2.01, 0.1, True), (-2.01, 0.1, True), (4.0, 2.0, False), (-4.01, 2.0, True)],
)
def test_rows_are_judged_above_the_bound(published: float, noise: float, judged: bool) -> None:
    assert judge.judgement(published, noise, 1.0)["judged"] is judged


@pytest.mark.parametrize(
    ("published", "simulated", "sign", "size"),
    [
        (10.0, 10.0, True, True),
        (10.0, 5.0, True, True),
        (10.0, 20.0, True, True),
        (10.0, 4.99, True, False),
        (10.0, 20.01, True, False),
        (-10.0, -5.0, True, True),
        (-10.0, 10.0, False, False),
        (10.0, 0.0, False, False),
    ],
)
def test_sign_and_size(published: float, simulated: float, sign: bool, size: bool) -> None:
    found = judge.judgement(published, 0.5, simulated)
    assert (found["sign_ok"], found["size_ok"], found["judged"], found["quiet_ok"]) == (sign, size, True, None)


def test_quiet_rows_must_stay_within_their_own_bound() -> None:
    assert judge.judgement(1.0, 0.5, 2.0)["quiet_ok"] is True
    assert judge.judgement(1.0, 0.5, -2.01)["quiet_ok"] is False
    assert judge.judgement(1.0, 3.0, -5.9)["quiet_ok"] is True


def test_what_is_not_published_or_not_simulated_is_not_judged() -> None:
    assert set(judge.judgement(None, 1.0, 5.0).values()) == {None}
    found = judge.judgement(10.0, 1.0, None)
    assert (found["judged"], found["sign_ok"], found["size_ok"], found["quiet_ok"]) == (True, None, None, None)


def test_what_is_read_off_a_run() -> None:
    summary = {
        "virtual_s": 2.0,
        "ledger_ns": {"user": 30, "idle": 10},
        "lock_kinds": [{"kind": "rq", "contended": 5, "acquisitions": 50, "wait_s": 0.25}],
        "locks": [{"name": "rq/3", "wait_max_us": 1.5}],
        "wakeup_latency_us": {"count": 40, "p99.5": 7.0},
        "wakeups": {"idle_searches": 0, "probes": 0, "from_previous": {"cpu": 3, "core": 0, "llc": 0, "node": 1}},
        "engine": {"ipis": 20},
        "metrics": {
            "counts": {"ops": {"count": 8, "per_s": 4.0}},
            "latencies_us": {"op": {"count": 3, "p99.5": 9.0, "mean": 1.0}, "none": {"count": 0, "p50": 0.0}},
        },
    }
    expected = {
        "rate.ops": 4.0, "rate.other": None, "latency.op.p99.5": 9.0, "latency.op.mean": 1.0, "latency.none.p50": None,
        "latency.other.p50": None, "ledger_pct.user": 75.0, "ledger_pct.other": None, "lock_kinds.rq.contended": 5.0,
        "locks.rq/3.wait_max_us": 1.5, "wakeup_latency_us.p99.5": 7.0, "probes_per_search": None,
        "wakeups.far_pct": 25.0, "engine.ipis / virtual_s": 10.0, "engine.ipis / wakeups.probes": None, "nothing": None,
        "engine": None,
    }  # fmt: skip
    assert {e: values.read(summary, e) for e in expected} == expected


def test_bands_and_spreads() -> None:
    assert judge.band_pct([3.0, -1.0, None]) == (-1.0, 3.0)
    assert judge.band_pct([]) == (None, None)
    assert judge.undetermined(-1.0, 3.0)
    assert not judge.undetermined(0.0, 3.0)
    assert judge.undetermined(None, None) is None
    assert judge.spread_pct([1.0]) is None
    assert judge.spread_pct([1.0, 3.0]) == pytest.approx(2**0.5)


def test_summary_counts_judged_and_quiet_rows_apart() -> None:
    s = judge.summary(
        [
            effect(10.0, 0.5, 8.0),  # right
            effect(10.0, 0.5, 2.0),  # sign only
            effect(-10.0, 0.5, 20.0),  # wrong by 30 points
            effect(1.0, 0.5, 1.5),  # quiet, within
            effect(1.0, 0.5, 3.0, x=2),  # quiet, not within
            effect(10.0, 0.5, None),  # nobody simulated it
            effect(50.0, 0.5, 50.0, kind="fit"),  # fitted: does not count
        ]
    )
    assert (s["rows_judged"], s["quiet_rows"], s["rows_all"], s["rows_not_simulated"]) == (3, 2, 5, 1)
    assert s["right_sign_share"] == pytest.approx(2 / 3)
    assert s["right_size_share"] == pytest.approx(1 / 3)
    assert (s["median_error_pp"], s["worst_error_pp"]) == (8.0, 30.0)
    assert s["worst"]["simulated_pct"] == 20.0
    assert s["quiet_within_share"] == 0.5
    assert (s["median_error_all_pp"], s["worst_error_all_pp"]) == (2.0, 30.0)


def test_the_baselines_are_judged_like_the_model() -> None:
    s = judge.summary([effect(10.0, 0.5, 8.0), effect(4.0, 0.5, 4.0), effect(-3.0, 0.5, -3.0), effect(1.0, 0.5, 1.0)])
    zero, one = s["baselines"]["zero"], s["baselines"]["plus_one"]
    assert (zero["right_sign_share"], zero["right_size_share"], zero["median_error_pp"]) == (0, 0, 4)
    assert one["right_sign_share"] == pytest.approx(2 / 3)
    assert (one["right_size_share"], one["median_error_pp"], one["worst_error_pp"]) == (0, 4, 9)
    assert zero["quiet_within_share"] == one["quiet_within_share"] == 1
    assert s["beats_baselines"] is True


def test_a_model_that_says_one_per_cent_everywhere_beats_nothing() -> None:
    s = judge.summary([effect(10.0, 0.5, 1.0), effect(4.0, 0.5, 1.0)])
    assert s["beats_baselines"] is False
    assert {k: v for k, v in s.items() if k in s["baselines"]["plus_one"]} == s["baselines"]["plus_one"]


def test_where_every_effect_is_positive_a_right_sign_everywhere_is_enough() -> None:
    rows = [effect(95.0, 2.0, 90.0), effect(26.0, 2.0, 37.0)]
    assert judge.summary(rows)["baselines"]["plus_one"]["right_sign_share"] == 1
    assert judge.summary(rows)["beats_baselines"] is True
    assert judge.summary([*rows, effect(10.0, 2.0, -1.0)])["beats_baselines"] is False


def test_the_words_tell_a_tie_from_a_win() -> None:
    def words(*effects: dict[str, Any]) -> str:
        out = io.StringIO()
        show.summary("Summary", {**judge.summary(effects), "slices": "all of it"}, text.console(out))
        return " ".join(out.getvalue().split())

    tied = words(effect(95.0, 2.0, 90.0))
    assert "1 judged row, 0 quiet rows" in tied
    assert "beats both baselines on size and median error over the judged rows; on sign all are right" in tied
    assert "beats both baselines on sign, size and" in words(effect(10.0, 0.5, 8.0), effect(-9.0, 0.5, -9.0))
    assert "DOES NOT BEAT both baselines on sign, size and" in words(effect(10.0, 0.5, -8.0))


def test_a_table_that_is_too_wide_is_several_and_nothing_is_cut() -> None:
    columns = [f"ledger_pct.account_{i}" for i in range(9)]
    at = {"machine": "2n1l22c2t", "workload.parts.0.threads": 33}
    variant = "v3, no SIS_CORE, no SIS_PROP"
    row = {"study": "s", "name": "n", "title": "t", "at": at, "variant": variant}
    out = io.StringIO()
    show.beyond([{**row, "values": {c: 12345.6 + i for i, c in enumerate(columns)}}], text.console(out))
    lines = [line for line in out.getvalue().splitlines() if "v3" in line]
    assert len(lines) > 1
    assert all(line.split()[:2] == ["2n1l22c2t", "33"] and variant in line for line in lines)
    values = [word for line in lines for word in line.split(variant)[1].split()]
    assert values == [*(f"{12346 + i:,}" for i in range(9)), "+0.0"]
    # The first column is named again for its change.
    assert out.getvalue().count("account_") == 10 and out.getvalue().count("s: n: t") == 1


def test_a_summary_of_nothing() -> None:
    s = judge.summary([])
    assert (s["rows_judged"], s["right_sign_share"], s["median_error_pp"], s["beats_baselines"]) == (
        0,
        None,
        None,
        None,
    )


def test_short_expressions() -> None:
    summary = {
        "virtual_s": 2.0,
        "engine": {"ipis": 30},
        "wakeups": {
            "from_waker": {"cpu": 10, "llc": 50},
            "from_previous": {"cpu": 60},
            "probes": 12,
            "idle_searches": 6,
        },
        "lock_kinds": [{"kind": "rq", "acquisitions": 400, "contended": 20, "wait_s": 0.5}],
    }
    found = {e: values.read(summary, e) for e in values.SHORT}
    assert found == {
        "probes_per_search": 2,
        "searches_per_wakeup": 0.1,
        "ipis_per_wakeup": 0.5,
        "wakeups_per_s": 30,
        "rq.contended": 20,
        "rq.contended_pct": 5,
        "rq.wait_ms": 500,
    }
