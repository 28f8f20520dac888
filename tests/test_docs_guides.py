"""What guides show is what comes out: their scenarios are written down, their commands run, each line of it is found.

A line `...` stands for any lines; how long a run took differs. If the simulation has changed on purpose,
run the commands and copy what they print.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.slow
GUIDES = ["first-run", "own-workload", "choose-a-lock", "choose-a-xen-scheduler", "calibrate-a-machine"]
BLOCK = re.compile(r"^```(?P<kind>toml|console)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`([\w-]+\.toml)`")


def run(line: str, cwd: Path) -> str:
    """What a command of the tool prints, as on a terminal of 120 columns."""
    program, *args = shlex.split(line, comments=True)
    assert program == "contend", line
    done = subprocess.run(
        [sys.executable, "-m", "contend", *args],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    return done.stdout


def missing(shown: str, printed: str) -> str | None:
    """The first part of what is shown, between `...`, that was not printed then. Where lines break is no matter."""
    rest = " ".join(printed.split())
    for part in re.split(r"^\.\.\.$|\S+ CPU-s .* of wall time;", shown, flags=re.MULTILINE):
        wanted = " ".join(part.split())
        if wanted not in rest:
            return wanted
        rest = rest[rest.index(wanted) + len(wanted) :]
    return None


@pytest.mark.long(30)
@pytest.mark.parametrize("guide", GUIDES)
def test_guides_show_what_comes_out(guide: str, tmp_path: Path) -> None:
    for folder in ("scenarios", "recordings", "machines"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    text = (ROOT / "docs" / "guides" / f"{guide}.md").read_text(encoding="utf-8")
    tried = 0
    for block in BLOCK.finditer(text):
        if block["kind"] == "toml":
            named = NAME.findall(text[: block.start()])
            if named and not (tmp_path / named[-1]).exists():
                (tmp_path / named[-1]).write_text(block["text"])
            continue
        for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            printed = run(line, tmp_path)
            assert (wrong := missing(shown, printed)) is None, f"{line}: not printed: {wrong}\n{printed}"
            tried += 1
    assert tried
