"""`move` has a running job go on on another machine; `receive` is what it and a keeper run there, over ssh."""

from carbontui.hooks import Extension, ExtensionCommand

HERE = "carbontui.extensions.moves.commands"
EXTENSION = Extension(
    "moves",
    commands=(
        ExtensionCommand("move", "Have a running job go on on another machine, over ssh.", f"{HERE}:move"),
        ExtensionCommand("receive", "", f"{HERE}:receive"),
    ),
    elsewhere=f"{HERE}:offered",
)
