"""TransformersCallback and LightningCallback, for a Trainer whose script is not started with `carbontui run`: each of
its trainings is a job of its own then, as with `carbontui.job(**options)`.

    Trainer(..., callbacks=[carbontui.callbacks.TransformersCallback(zone="DE")])
    Trainer(..., callbacks=[carbontui.callbacks.LightningCallback()])

Under `carbontui run` they add nothing: there every Trainer has such a callback.
"""

import importlib
import sys

__all__ = ["LightningCallback", "TransformersCallback"]  # noqa: F822


def __getattr__(name):  # type: ignore[no-untyped-def]
    if name not in __all__:
        raise AttributeError(f"module 'carbontui.callbacks' has no attribute {name!r}")
    from carbontui.client.frameworks import lightning, transformers
    from carbontui.client.inside import ScriptJob

    if name == "TransformersCallback":
        made = transformers.callback()
    else:
        package = "pytorch_lightning" if "pytorch_lightning" in sys.modules else "lightning.pytorch"
        made = lightning.callback(importlib.import_module(package).Callback)

    class JobCallback(type(made)):  # type: ignore[misc]
        """`options` are those of `carbontui run`, by their names."""

        def __init__(self, **options):  # type: ignore[no-untyped-def]
            super().__init__()
            self.job = ScriptJob(**options)

        def on_train_begin(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            self.job.begin()
            super().on_train_begin(*args, **kwargs)

        def on_train_start(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            self.job.begin()
            super().on_train_start(*args, **kwargs)

        def on_train_end(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            super().on_train_end(*args, **kwargs)
            self.job.end()

    JobCallback.__name__ = JobCallback.__qualname__ = name
    return globals().setdefault(name, JobCallback)
