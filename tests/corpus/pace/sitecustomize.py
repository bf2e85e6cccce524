"""First on the path of a measured loop: each step of an optimizer takes PACE_S longer, so that it can be watched."""

import importlib.util
import os
import sys
import time

PACE_S = float(os.environ.get("PACE_S", "0"))


def _pace(*_):
    time.sleep(PACE_S)


def _torch(module):
    module.register_optimizer_step_post_hook(_pace)


def _keras(module):
    inner = module.BaseOptimizer.apply

    def apply(self, *args, **kwargs):
        inner(self, *args, **kwargs)
        _pace()

    module.BaseOptimizer.apply = apply


class _Pacer:
    """Waits for the modules that define a step; finds nothing by itself."""

    wanted = {"torch.optim.optimizer": _torch, "keras.src.optimizers.base_optimizer": _keras}

    def find_spec(self, name, path=None, target=None):
        then = self.wanted.pop(name, None)
        if then is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None:
            inner = spec.loader.exec_module

            def exec_module(module):
                inner(module)
                then(module)

            spec.loader.exec_module = exec_module
        return spec


if PACE_S:
    sys.meta_path.insert(0, _Pacer())
