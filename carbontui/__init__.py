"""carbontui inside a training script: tell it where a step ends; everything else is done from outside.

    import carbontui

    for batch in loader:
        train(batch)
        carbontui.step()

Every function here is a no-op without a supervisor. Importing this module starts nothing and loads
nothing but the standard library; the connection is made at the first step.
"""

__all__ = ["__version__", "level", "on_checkpoint", "paused", "report", "step"]

from carbontui.client.api import level, on_checkpoint, paused, report, step
from carbontui.client.version import __version__
