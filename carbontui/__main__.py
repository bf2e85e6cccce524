"""Entry point of `carbontui`, and of `python -m carbontui`: answers a status bar (`line`) before the command
line is loaded."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

from carbontui.system import isolation


def main() -> NoReturn:
    """Entry point. `line` alone is answered here where it can be; everything else is the command line's."""
    isolation.forget_pythonpath()
    if sys.argv[1:] == ["line"]:
        from carbontui.line import quickly

        told = quickly(sys.argv[2:])
        if told is not None and sys.stdout is not None:  # None: started with it closed
            try:
                print(told) if told else None
                sys.stdout.flush()
                sys.exit(0)
            except (UnicodeEncodeError, OSError):
                pass  # the command line knows what to do about a terminal like that
    if sys.argv[1:2] in ([], ["attach"]):
        gc.disable()  # there is no garbage while a screen is loaded, and collecting takes a fifth of the start
    from carbontui.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
