"""carbontui inside a training script: tell it where a step ends; everything else is done from outside.

    import carbontui

    for batch in loader:
        train(batch)
        carbontui.step()

Every function here is a no-op without a supervisor. Importing this module starts nothing and loads
nothing but the standard library; the connection is made at the first step.
"""

__all__ = ["__version__", "level", "on_checkpoint", "paused", "report", "step", "train"]

import sys

if sys.version_info >= (3, 8):
    from carbontui.client.api import level, on_checkpoint, paused, report, step
    from carbontui.client.version import __version__

    def __getattr__(name):  # type: ignore[no-untyped-def]  # the training kit loads torch: for who asks for it
        if name == "train":
            import importlib

            return importlib.import_module("carbontui.client.train")
        raise AttributeError("module 'carbontui' has no attribute " + repr(name))

else:  # a helper of the job on an old Python, 2.7 even: it runs as if nothing of ours were there
    __version__ = "0"

    def level():
        return None

    def on_checkpoint(fn):
        return fn

    def paused():
        return False

    def report(**told):
        pass

    def step(n=1):
        pass
