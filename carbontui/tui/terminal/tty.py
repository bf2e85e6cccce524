"""What this terminal supports, and leaving when it is gone."""

import contextlib
import gc
import os
import select
import sys
import termios
from collections.abc import Mapping

GUARD_EVERY_S = 2.0
START_S = 1.0
DEAD_EXIT = 129
"""128 + SIGHUP, as if the hang-up had been delivered."""


def in_browser(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a browser shows the screen: textual-serve talks to it over pipes, and names this driver."""
    return environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")


def why_plain(environ: Mapping[str, str] = os.environ) -> str:
    """Why the full screen cannot be used here; '' when it can."""
    if in_browser(environ):
        return ""
    if not (sys.stdin is not None and sys.stdin.isatty()):
        return "standard input is not a terminal"
    if not (sys.__stdout__ is not None and sys.__stdout__.isatty()):
        return "standard output is not a terminal"
    if not (sys.__stderr__ is not None and sys.__stderr__.isatty()):
        return "standard error, on which the screen is drawn, is not a terminal"
    if environ.get("TERM", "") in ("dumb", ""):
        return "the terminal is dumb (TERM)"
    return ""


def ascii_alone(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to draw in ASCII: the terminal's encoding is not Unicode, the locale is C (in which
    Python writes UTF-8 all the same, and sets LC_CTYPE), or it is the console, whose font has 256 characters."""
    encoding, ctype = getattr(sys.__stderr__, "encoding", None) or "ascii", environ.get("LC_CTYPE", "")
    ours = ctype in ("C.UTF-8", "C.utf8", "UTF-8") and not environ.get("LC_ALL")
    named = environ.get("LC_ALL") or ("" if ours else ctype) or environ.get("LANG", "")
    if in_browser(environ):  # it draws what its fonts have, whatever this machine's locale is
        return False
    return "utf" not in encoding.lower() or named in ("C", "POSIX") or environ.get("TERM") == "linux"


def prefer_still(environ: dict[str, str] | os._Environ[str] = os.environ) -> None:
    """Turn off animations and smooth scrolling, unless the user set them: they cost repaints over SSH."""
    environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")


def leave_if_dead(descriptor: int = 0) -> None:
    """End this process when its terminal is gone.

    With SIGHUP ignored (nohup, setsid) Textual would spin on the dead descriptor, and App.exit() would hang writing
    to it; nothing of the job lives here, so nothing is lost. In a browser the server holds the other end.
    """
    if in_browser():
        ends = select.poll()
        ends.register(descriptor, 0)  # a hang-up is reported unasked
        if ends.poll(0):
            os._exit(DEAD_EXIT)
        return
    try:
        termios.tcgetattr(descriptor)
    except (termios.error, OSError):
        os._exit(DEAD_EXIT)


def load_first() -> None:
    """Disable garbage collection while loading: there is no garbage, and collecting takes a fifth of the start."""
    gc.disable()


def loaded() -> None:
    """Enable it again; what was loaded is frozen, so it is not scanned repeatedly."""
    gc.freeze()
    gc.enable()


def erases() -> bool:
    """Whether what the terminal erases takes the background in force (terminfo's `bce`): not all do."""
    with contextlib.suppress(Exception):  # no curses, no terminal, no description
        import curses

        curses.setupterm(fd=sys.__stdout__.fileno() if sys.__stdout__ else -1)
        return curses.tigetflag("bce") == 1
    return False
