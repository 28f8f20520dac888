"""Ctrl-C while the command is still being imported: there is nobody yet to catch it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

EXIT_INTERRUPTED = 130


def _interrupted(*_: object) -> NoReturn:
    # Nothing has begun, and an exception in the middle of an import would be a traceback.
    os.write(2, b"interrupted: nothing was written\n")
    os._exit(EXIT_INTERRUPTED)


def watch() -> None:
    """Until the command handles signals itself; does nothing in other programs that import the package."""
    # `python -m contend` imports the package before it knows the module's file.
    command = bool(sys.argv) and (sys.argv[0] == "-m" or Path(sys.argv[0]).name == "contend")
    if command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def release() -> None:
    """The command handles signals from here on."""
    if signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)
