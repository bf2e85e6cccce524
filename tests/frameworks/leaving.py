"""Runs a script that is to be unloaded after so many steps of this process: python leaving.py STEPS SCRIPT [ARGS...]
With EPOCH_END, at the end of the epoch that this step is in.

What a supervisor's `unload` does at a step that chance decides, at a step that the test decides.
"""

from __future__ import annotations

import os
import runpy
import sys

from carbontui.client.api import gate
from carbontui.client.pausing.lease import Lease
from carbontui.client.pausing.wire import DesiredLine

STEPS = int(sys.argv[1])


class Leaving(Lease):
    """The authority of a process that is told to leave once it has done STEPS."""

    told = False

    def __init__(self, lease):
        vars(self).update(vars(lease))

    def act(self, now, done, can_save):
        if done >= STEPS and not self.told:
            self.told = True
            self.accept(DesiredLine("unload", 1, 600.0, epoch_end="EPOCH_END" in os.environ), now)
        return super().act(now, done, can_save)

    def limit(self, now, can_save):
        return super().limit(now, can_save) if self.told else STEPS


if STEPS:
    gate.authority = Leaving(gate.authority)
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))  # as if the script had been started itself
runpy.run_path(sys.argv[0], run_name="__main__")
