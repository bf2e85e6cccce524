"""`move` has a running job go on on another machine, `run --at` starts one there; `receive` is what they and a keeper
run there, over ssh."""

from typing import Any

from carbontui.hooks import Extension, ExtensionCommand, load

HERE = "carbontui.extensions.moves.commands"
EXTENSION = Extension(
    "moves",
    commands=(
        ExtensionCommand("move", "Have a running job go on on another machine, over ssh.", f"{HERE}:move"),
        ExtensionCommand("receive", "", f"{HERE}:receive"),
    ),
    elsewhere=f"{__name__}:offered",
    start=f"{__name__}:started",
    start_options=f"{__name__}:options",
)


def offered(job: Any, names: list[str]) -> dict[str, Any]:
    """What the screen of a live job offers of the user's machines; nothing more is imported before it asks."""
    return {
        "elsewhere": lambda: load(f"{HERE}:better_host")(job, names),
        "move": lambda host: load(f"{HERE}:by_verb")(job, host),
    }


def options(command: Any) -> Any:
    """Those of `run`. What they need is imported for it alone: every supervisor reads this file."""
    import click

    from carbontui.commands.support.command import there_option

    at = click.option("--at", help="Start on the machine of a,b,here whose grid emits least for --work.")
    return at(there_option(command))


def started(command: tuple[str, ...], name: str, given: dict[str, Any], chosen: dict[str, Any]) -> str:
    """Where `run --at` has started the command, as HOST:ID; '' for here."""
    return load("carbontui.extensions.moves.starting:at")(command, name, given, chosen) if given.get("at") else ""
