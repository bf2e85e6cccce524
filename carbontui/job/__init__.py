"""The processes of one job: keeper, supervisor, worker; control, overrides, journal, server.

In a script it is called: `with carbontui.job(total=1000):` (carbontui/client/inside.py).
"""

import sys
import types


class _Callable(types.ModuleType):
    def __call__(self, total=None, **options):  # type: ignore[no-untyped-def]
        from carbontui.client.inside import ScriptJob

        return ScriptJob(total, **options)


sys.modules[__name__].__class__ = _Callable
