"""Entry point of `carbontui`, and of `python -m carbontui`: begins a plain command (`run`) and answers a status bar
(`line`) before the command line is loaded."""

import os
import sys

from carbontui import early


def _isolate(path: "list[str]") -> None:
    from carbontui.system import isolation

    sys.path[:] = path
    isolation.forget_pythonpath()


def _of_keeper(path: "list[str]") -> "tuple[list[str], dict[str, str]]":
    _isolate(path)
    from carbontui import paths
    from carbontui.system import isolation

    return paths.apart(), isolation.environment(os.environ)


def main() -> None:
    """Entry point. `line`, and the start of `run`, come first where they can; everything else is the command line's."""
    path, sys.path[:] = sys.path[:], early.own_path()
    if sys.argv[1:2] == ["run"]:
        early.quickly(sys.argv[2:], lambda: _of_keeper(path))
    import gc

    _isolate(path)
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
