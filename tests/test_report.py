"""Reports: structure, refusals, and what they do in a browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contend as package
import polars as pl
import pytest
import study_files
from conftest import Contend
from contend.report import report
from contend.sweeping.effects import levels

CHROMIUM = shutil.which("chromium")

HACKBENCH = {"machine": "2n4c2t", "seed": 7, "workload": {"kind": "hackbench", "groups": 1, "fds": 4, "loops": 20}}
GUESTS = {
    "machine": "4c",
    "horizon_s": 0.05,
    "guest": [{"name": f"vm{i}", "vcpus": 4, "workload": {"kind": "dbench", "clients": 4}} for i in range(2)],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each kind, stored."""
    root = tmp_path_factory.mktemp("results")
    package.run(HACKBENCH, out=root / "new")
    package.run(HACKBENCH, policy="linux-2.6.37", out=root / "old")
    package.run(GUESTS, out=root / "guests")
    package.sweep(
        {
            "scenario": {"machine": "4c", "workload": {"kind": "ping-pong", "round_trips": 200}},
            "metrics": ["virtual_s", "tasks.switches"],
            "grid": {"policy": ["linux-5.2", "linux-6.18"], "workload.pairs": pl.Series([1, 2, 4])},
            "random": {"samples": 2, "machine.cpu.context_switch": {"integers": [400, 1500]}},
        },
        out=root / "sweep",
    )
    study = study_files.write(root / "study")
    (root / "study.json").write_text(json.dumps(package.reproduce(study, quick=True).to_dict()))
    return {
        "new": root / "new",
        "old": root / "old",
        "guests": root / "guests",
        "sweep": root / "sweep",
        "study": root / "study.json",
    }


def sections(html: str) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', html)


def figures(html: str) -> list[dict[str, Any]]:
    found = re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    return [json.loads(text.replace("<\\/", "</")) for text in found]


def own(html: str) -> str:
    """The page without the plotting library."""
    head, _, rest = html.partition("<script>")
    return head + rest.rpartition("<script>")[2]


def test_timeline_adds_up_to_the_ledger(results: dict[str, Path]) -> None:
    for name in ("new", "old", "guests"):
        r = package.load(results[name])
        accounts = [f"{a}_ns" for a in r.ledger()]
        timeline = r["timeline"]
        length = timeline["to_ns"] - timeline["from_ns"]
        assert timeline.select(pl.sum_horizontal(accounts)).to_series().to_list() == length.to_list()
        by_cpu = timeline.group_by("cpu").agg(pl.col(accounts).sum()).sort("cpu")
        assert by_cpu.select(accounts).equals(r["cpus"].select(accounts))
        assert timeline["to_ns"].max() == r.summary["virtual_ns"]


def test_a_run_has_its_sections_and_figures_of_its_numbers(results: dict[str, Path]) -> None:
    r = package.load(results["new"])
    html = report(results["new"])
    assert sections(html) == ["ran", "time", "cpus", "latency", "locks", "placement", "waits"]
    assert f"<title>hackbench on {r.summary['machine']} under linux-6.18 · contend</title>" in html
    assert r.summary["trace_hash"] in html
    over_time = figures(html)[0]
    idle = next(t for t in over_time["data"] if t["name"] == "idle")
    shares = [sum(t["y"][i] for t in over_time["data"]) for i in range(len(idle["y"]))]
    assert all(abs(s - 100) < 0.1 for s in shares), "the bars are stacked to the top"
    mean = sum(y * w for y, w in zip(idle["y"], idle["width"], strict=True)) / sum(idle["width"])
    assert mean == pytest.approx(r.summary["ledger_pct"]["idle"], abs=0.05)
    heat = next(f for f in figures(html) if f["data"][0]["type"] == "heatmap")
    assert len(heat["data"][0]["z"]) == r.summary["cpus"]
    assert len(heat["data"][0]["x"]) == len(heat["data"][0]["z"][0]) + 1


def test_the_same_inputs_give_the_same_bytes(results: dict[str, Path]) -> None:
    assert report(results["new"], results["old"]) == report(results["new"], results["old"])


def test_a_run_with_guests_says_what_happened_to_lock_holders(results: dict[str, Path]) -> None:
    html = report(results["guests"])
    assert {"guests", "preemption"} <= set(sections(html))
    assert "Where the time of vCPUs went" in html


def test_results_side_by_side(results: dict[str, Path]) -> None:
    html = report(results["old"], results["new"])
    assert sections(html) == ["ran", "time", "differences", "latency", "placement", "locks"]
    latencies = next(f for f in figures(html) if f["layout"].get("yaxis", {}).get("type") == "log")
    assert [t["name"] for t in latencies["data"]] == ["linux-2.6.37", "linux-6.18"]
    assert "instead of" in html


def test_other_work_is_told_from_the_same_side_by_side(results: dict[str, Path]) -> None:
    html = report(package.load(results["new"]), package.run(HACKBENCH, set={"workload.loops": 40}))
    assert "workload.loops" in html
    assert "CPU-seconds a virtual second" in html
    assert "the work took" not in html


def test_a_study_has_its_scatter_with_the_identity_line(results: dict[str, Path]) -> None:
    found = json.loads(results["study"].read_text())
    html = report(results["study"])
    assert sections(html) == ["tiny-what", "tiny-effects", "tiny-values", "tiny-score"]
    effects, values = figures(html)
    assert sum(len(t["x"]) for t in effects["data"]) == len(found["effects"])
    line = values["layout"]["shapes"][0]
    assert (line["x0"], line["x1"]) == (line["y0"], line["y1"])
    assert [t["name"] for t in values["data"]] == ["fitted", "predicted"]
    assert report(results["study"].parent / "study") == html, "its folder is simulated first"


def test_a_sweep_has_maps_lines_and_samples(results: dict[str, Path]) -> None:
    html = report(results["sweep"])
    assert sections(html) == ["ran", "effects", "maps", "lines", "samples", "points"]
    table = pl.read_parquet(results["sweep"] / "sweep.parquet")
    heat = next(f for f in figures(html) if f["data"][0]["type"] == "heatmap")["data"][0]
    shown = sorted(v for row in heat["z"] for v in row)
    means = table.group_by("policy", "workload.pairs").agg(pl.col("virtual_s").mean())["virtual_s"].sort().to_list()
    assert shown == pytest.approx(means)
    scatter = figures(html)[-1]
    shown_points = sum(len(t["x"]) for t in scatter["data"] if t["visible"])
    assert shown_points == len(table)


def test_levels_of_a_sweep_are_named_by_what_is_in_them() -> None:
    assert levels([1485, 878, 1342], most=2, bins=2) == ["1342 to 1485", "878", "1342 to 1485"]
    named = levels([i / 7 for i in range(100)])
    assert list(dict.fromkeys(named))[:2] == ["0 to 2.71429", "2.85714 to 5.57143"]


def test_no_page_names_another_place(results: dict[str, Path]) -> None:
    pages = [report(results[k]) for k in ("new", "guests", "study", "sweep")]
    pages.append(report(results["old"], results["new"]))
    for html in pages:
        assert not re.search(r'(src|href)="(?!#|data:)', own(html))
        assert "default-src 'none'" in html
        assert html.count("<h1>") == 1
        assert len(html.encode()) < 10_000_000


def test_words_from_outside_are_escaped() -> None:
    hostile = "</script><script>alert(1)</script>"
    r = package.run(HACKBENCH)
    r.summary["machine"] = hostile
    html = report(r)
    assert hostile not in html
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in html


def test_the_command(contend: Contend, results: dict[str, Path], tmp_path: Path) -> None:
    ran = contend("report", results["new"], "--out", "r.html", "--json")
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["kind"] == "report of a run"
    assert said["bytes"] == (tmp_path / "r.html").stat().st_size
    # A report may be replaced.
    assert contend("report", results["new"], "--out", "r.html").returncode == 0
    assert sorted(f.name for f in tmp_path.iterdir()) == ["r.html"]


@pytest.mark.slow
def test_wrong_inputs_are_told_and_nothing_is_written(
    contend: Contend, results: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "other.html").write_text("mine")
    (tmp_path / "text.json").write_text("{}")
    old = tmp_path / "before"
    shutil.copytree(results["new"], old)
    (old / "timeline.arrow").unlink()
    cases: list[tuple[list[str | Path], str]] = [
        (["nowhere"], "nowhere: no such file or directory; should be"),
        ([results["new"], "--out", "r.txt"], "--out: found 'r.txt'; should be a file that ends in .html"),
        ([results["new"], "--out", "missing/r.html"], "no such directory"),
        ([results["new"], "--out", "other.html"], "is no report of contend"),
        (["text.json"], "text.json: found other JSON"),
        (["other.html"], "other.html: found no JSON"),
        ([results["new"], results["sweep"]], "a sweep is reported alone"),
        ([results["new"], results["study"]], "should be a result's directory"),
        ([old], "has no table timeline"),
        ([], "is missing"),
    ]
    before = sorted(f.name for f in tmp_path.iterdir())
    for args, says in cases:
        ran = contend("report", *args)
        assert (ran.returncode, ran.stdout) == (2, ""), args
        assert says in ran.stderr, ran.stderr
        assert ran.stderr.count("\n") == 1, ran.stderr
    assert sorted(f.name for f in tmp_path.iterdir()) == before
    assert (tmp_path / "other.html").read_text() == "mine"


# ---- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Opened:
    """A report in a page of the browser, with all that it said and asked for."""

    def __init__(self, browser: Any, file: Path, *, theme: str = "light", width: int = 1200) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.said.append(m.text))
        self.page.on("pageerror", lambda e: self.said.append(str(e)))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-drawn=yes]", timeout=60_000)

    def quiet(self, file: Path) -> None:
        """Nothing was said, and nothing asked for but the file."""
        assert self.said == []
        assert [url for url in self.asked if not url.startswith(("data:", "blob:"))] == [file.as_uri()]


@pytest.fixture
def shown(results: dict[str, Path], tmp_path: Path) -> Any:
    def make(*names: str) -> Path:
        file = tmp_path / "r.html"
        file.write_text(report(*(results[n] for n in names)))
        return file

    return make


@pytest.mark.parametrize("names", [("new",), ("guests",), ("old", "new"), ("study",), ("sweep",)])
def test_pages_load_without_an_error_or_a_request(browser: Any, shown: Any, names: tuple[str, ...]) -> None:
    file = shown(*names)
    opened = Opened(browser, file, width=420)
    drawn = opened.page.eval_on_selector_all(".plot", "all => all.map(d => !!d.querySelector('.main-svg'))")
    assert drawn and all(drawn)
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than a narrow window"
    opened.quiet(file)
    opened.context.close()


def test_a_page_is_used_with_keys(browser: Any, shown: Any) -> None:
    file = shown("new")
    opened = Opened(browser, file, theme="dark")
    page = opened.page
    assert page.evaluate("document.documentElement.dataset.theme") == "dark", "follows the system"

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.evaluate(background) != dark

    waited = "[...document.querySelectorAll('#locks tbody tr')].map(r => Number(r.cells[2].dataset.v))"
    head = page.locator("#locks th button", has_text="max wait")
    head.focus()
    page.keyboard.press("Enter")
    down = page.evaluate(waited)
    assert down == sorted(down, reverse=True)
    assert page.locator("#locks th[aria-sort=descending]").count() == 1
    page.keyboard.press("Enter")
    assert page.evaluate(waited) == down[::-1] or page.evaluate(waited) == sorted(down)

    reach = "document.querySelector('#figure-1 .plot')._fullLayout.xaxis.range.map(Number)"
    lo, hi = page.evaluate(reach)
    page.locator("#figure-1 [data-zoom='0.5']").focus()
    page.keyboard.press("Enter")
    a, b = page.evaluate(reach)
    assert b - a == pytest.approx((hi - lo) / 2)
    page.locator("#figure-1 [data-zoom=reset]").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(reach) == pytest.approx([lo, hi])

    page.locator("#cpus select").focus()
    page.keyboard.press("ArrowDown")
    seen = "document.querySelector('#cpus .plot').data.map(t => t.visible)"
    page.wait_for_function(f"({seen})[1] === true")
    assert page.evaluate(seen)[0] is False

    page.locator("#figure-1 summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#figure-1 table").is_visible()
    opened.quiet(file)
    opened.context.close()


def test_figures_answer_to_the_mouse(browser: Any, shown: Any) -> None:
    opened = Opened(browser, shown("new"))
    page = opened.page
    plot = page.locator("#figure-1 .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    x, y = box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.5
    page.mouse.move(x, y)
    page.wait_for_selector("#figure-1 .hoverlayer .hovertext", timeout=5_000)
    reach = "document.querySelector('#figure-1 .plot')._fullLayout.xaxis.range.map(Number)"
    lo, hi = page.evaluate(reach)
    page.mouse.down()
    page.mouse.move(x + box["width"] * 0.3, y, steps=5)
    page.mouse.up()
    a, b = page.evaluate(reach)
    assert b - a < (hi - lo) * 0.5
    opened.context.close()
