"""Ctrl-C while the command is still being imported: there is nobody yet to catch it.

Imports nothing that takes time, so that there is as little time before as can be.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import sys

EXIT_INTERRUPTED = 130


def _interrupted(*_: object) -> None:
    # Nothing has begun, and an exception in the middle of an import would be a traceback.
    os.write(2, b"interrupted: nothing was written\n")
    os._exit(EXIT_INTERRUPTED)


def watch() -> None:
    """Until the command handles signals itself; does nothing in other programs that import the package."""
    # `python -m contend` imports the package before it knows the module's file.
    command = bool(sys.argv) and (sys.argv[0] == "-m" or sys.argv[0].rpartition("/")[2] == "contend")
    if command and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _interrupted)


def release() -> None:
    """The command handles signals from here on."""
    if _signal.getsignal(_signal.SIGINT) is _interrupted:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
