"""The same screen in a browser, at an address that only its reader has."""

from carbontui.hooks import Extension, ExtensionCommand

HERE = "carbontui.extensions.web"
EXTENSION = Extension(
    "web",
    commands=(ExtensionCommand("web", "Show the same screen in a browser of this machine.", f"{HERE}.commands:web"),),
)
