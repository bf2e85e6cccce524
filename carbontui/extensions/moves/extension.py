"""`move` has a running job go on on another machine; `receive` is what it and a keeper run there, over ssh."""

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
)


def offered(job: Any, names: list[str]) -> dict[str, Any]:
    """What the screen of a live job offers of the user's machines; nothing more is imported before it asks."""
    return {
        "elsewhere": lambda: load(f"{HERE}:better_host")(job, names),
        "move": lambda host: load(f"{HERE}:by_verb")(job, host),
    }
