"""The version, stored with the client: a training environment has nothing else of the package that could state it."""

__version__ = "0.1.0"


def full() -> str:
    """The version with the commit of a build from git, or of the checkout that this is: '0.1.0+gabcdef0'. It asks git:
    only for who prints it, and for the build."""
    import os

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if os.path.exists(root + "/.git"):
        import subprocess

        tag = "v" + __version__
        words = ["git", "-C", root, "describe", "--always", "--tags", "--abbrev=7", "--match=" + tag]
        try:
            found = subprocess.check_output(words, stderr=subprocess.DEVNULL, timeout=5).decode().strip()
        except (OSError, subprocess.SubprocessError):
            return __version__
        return __version__ if found == tag else __version__ + "+g" + found.split("-g")[-1]
    try:
        with open(root + "/PKG-INFO") as file:  # a source distribution
            return file.read().partition("\nVersion: ")[2].split("\n")[0] or __version__
    except OSError:
        from importlib.metadata import distributions

        return next((one.version for one in distributions(name="carbontui", path=[root])), __version__)
