"""Effects and their judgement: pure functions; no run is started here.

An effect is in per cent, positive where the patched system is better. The rules are those of docs/studies.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

NOISE_PCT = 2.0
"""Noise of an effect where the post gives none, and the least effect in points that is judged."""
SIZE_FACTOR = 2.0
BASELINES: dict[str, float] = {"zero": 0.0, "plus_one": 1.0}
"""What the two baselines predict everywhere, in per cent."""

Effect = Mapping[str, Any]


def effect_pct(before: float | None, after: float | None, *, higher_is_better: bool) -> float | None:
    """By how many per cent of `before` is `after` better?"""
    if before is None or after is None or not before:
        return None
    change = 100 * (after - before) / abs(before)
    return change if higher_is_better else -change


def noise_pct(before: float | None, after: float | None) -> float:
    """Noise of an effect from the two standard deviations, in per cent. Where one is missing it counts as 2 %."""
    if before is None and after is None:
        return NOISE_PCT
    return math.hypot(*(NOISE_PCT if v is None else v for v in (before, after)))


def bound_pct(noise: float) -> float:
    """Up to here an effect is not told from none: max(2 x noise, 2 points)."""
    return max(2 * noise, NOISE_PCT)


def spread_pct(effects: Sequence[float | None]) -> float | None:
    """Standard deviation over the seeds; None for fewer than two."""
    known = [e for e in effects if e is not None]
    return statistics.stdev(known) if len(known) > 1 else None


def band_pct(effects: Sequence[float | None]) -> tuple[float | None, float | None]:
    """The lowest and the highest effect."""
    known = [e for e in effects if e is not None]
    return (min(known), max(known)) if known else (None, None)


def undetermined(lo: float | None, hi: float | None) -> bool | None:
    """Does the band hold both signs? None where there is no band."""
    return None if lo is None or hi is None else lo < 0 < hi


def sign_ok(published: float, simulated: float) -> bool:
    """The same sign."""
    return published * simulated > 0 or published == simulated == 0


def size_ok(published: float, simulated: float) -> bool:
    """The same sign, and within a factor of two."""
    if not sign_ok(published, simulated):
        return False
    return abs(published) / SIZE_FACTOR <= abs(simulated) <= abs(published) * SIZE_FACTOR


def judgement(published: float | None, noise: float | None, simulated: float | None) -> dict[str, bool | None]:
    """`judged`: the published effect exceeds its bound; then sign and size count, else `quiet_ok`.

    sign_ok and size_ok are given for quiet rows too, but only judged rows count in the summary. Where nothing is
    published or simulated, all are None.
    """
    if published is None or noise is None or simulated is None:
        judged = None if published is None or noise is None else abs(published) > bound_pct(noise)
        return {"sign_ok": None, "size_ok": None, "judged": judged, "quiet_ok": None}
    judged = abs(published) > bound_pct(noise)
    return {
        "sign_ok": sign_ok(published, simulated),
        "size_ok": size_ok(published, simulated),
        "judged": judged,
        "quiet_ok": None if judged else abs(simulated) <= bound_pct(noise),
    }


def _share(flags: Iterable[bool]) -> float | None:
    flags = list(flags)
    return sum(flags) / len(flags) if flags else None


def _scores(effects: Sequence[Effect], predict: Callable[[Effect], float]) -> dict[str, Any]:
    """How a prediction does; the effects have all been published and simulated."""
    judged = [e for e in effects if e["judged"]]
    quiet = [e for e in effects if not e["judged"]]

    def error(e: Effect) -> float:
        return abs(predict(e) - float(e["published_pct"]))

    errors, errors_all = [error(e) for e in judged], [error(e) for e in effects]
    return {
        "right_sign_share": _share(sign_ok(e["published_pct"], predict(e)) for e in judged),
        "right_size_share": _share(size_ok(e["published_pct"], predict(e)) for e in judged),
        "median_error_pp": statistics.median(errors) if errors else None,
        "worst_error_pp": max(errors, default=None),
        "rows_judged": len(judged),
        "quiet_rows": len(quiet),
        "quiet_within_share": _share(abs(predict(e)) <= bound_pct(e["noise_pct"]) for e in quiet),
        "median_error_all_pp": statistics.median(errors_all) if errors_all else None,
        "worst_error_all_pp": max(errors_all, default=None),
        "rows_all": len(effects),
    }


WORST_KEYS = ("study", "table", "machine", "workload", "x", "metric", "published_pct", "simulated_pct")


def summary(effects: Sequence[Effect]) -> dict[str, Any]:
    """The summary over all predicted effects, with the two baselines beside it."""
    predicted = [e for e in effects if e["kind"] == "predicted"]
    known = [e for e in predicted if e["published_pct"] is not None and e["simulated_pct"] is not None]
    model = _scores(known, lambda e: float(e["simulated_pct"]))
    baselines = {name: _scores(known, lambda _e, v=value: v) for name, value in BASELINES.items()}  # type: ignore[misc]
    judged = [e for e in known if e["judged"]]
    worst = max(judged, key=lambda e: abs(e["simulated_pct"] - e["published_pct"]), default=None)
    return {
        **model,
        "worst": {k: worst[k] for k in WORST_KEYS} if worst else None,
        "rows_undetermined": sum(bool(e["undetermined"]) for e in known),
        "rows_not_simulated": len(predicted) - len(known),
        "baselines": baselines,
        "beats_baselines": _beats(model, list(baselines.values())),
    }


def _beats(model: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> bool | None:
    """Better than every baseline in sign, size and median error? None where no row is judged.

    Where a baseline is right on all rows (every published effect is positive, say), being right on all is enough.
    """
    if not model["rows_judged"]:
        return None

    def better(share: str, other: Mapping[str, Any]) -> bool:
        return bool(model[share] > other[share] or model[share] == 1)

    return all(
        better("right_sign_share", o)
        and better("right_size_share", o)
        and model["median_error_pp"] < o["median_error_pp"]
        for o in others
    )
