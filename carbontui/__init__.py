"""carbontui inside a training script: tell it where a step ends; everything else is done from outside.

    import carbontui

    for batch in loader:
        train(batch)
        carbontui.step()

Every function here is a no-op without a supervisor. Importing this module starts nothing and loads
nothing but the standard library; the connection is made at the first step.
"""

__all__ = ["Checkpoint", "__version__", "callbacks", "job", "level", "metrics", "on_checkpoint", "paused", "report"]

import sys

__all__ += ["step", "train"]

if sys.version_info >= (3, 8):
    from carbontui.client.version import __version__

    TYPE_CHECKING = False
    if TYPE_CHECKING:
        from carbontui.client.api import level, metrics, on_checkpoint, paused, report, step
        from carbontui.client.checkpoint import Checkpoint
        from carbontui.client.inside import ScriptJob as job

    def __getattr__(name):  # type: ignore[no-untyped-def]
        """What a script calls is loaded when it is first named, and a plain function of this module from then on; the
        training kit loads torch. Our own programs are started often, and call none of it."""
        import importlib

        if name == "Checkpoint":
            return importlib.import_module("carbontui.client.checkpoint").Checkpoint
        if name in ("callbacks", "job", "train"):
            return importlib.import_module("carbontui." + name)
        if name == "load_ipython_extension":
            for _, load in importlib.import_module("carbontui.hooks").offered("notebook", own_only=True):
                return load
        if name in __all__:
            api = importlib.import_module("carbontui.client.api")
            globals().update({one: getattr(api, one) for one in __all__ if hasattr(api, one)})
            return globals()[name]
        raise AttributeError("module 'carbontui' has no attribute " + repr(name))

    def __dir__():  # type: ignore[no-untyped-def]
        return sorted(set(globals()) | set(__all__))

else:  # a helper of the job on an old Python, 2.7 even: it runs as if nothing of ours were there
    __version__ = "0"

    def level():
        return None

    def metrics():
        return {}

    def on_checkpoint(fn):
        return fn

    def paused():
        return False

    def report(**values):
        pass

    def step(n=1):
        pass
