"""JAX loops (flax, optax, plain): the script calls carbontui.step() itself; a pause waits for the device.

saved = Checkpoint("run.npz", lambda: {"params": params, "opt": opt_state, "key": key})
step, state = saved.resume()      # (0, None), or what was saved

The previous one is kept as run.npz.before, in case the newest cannot be resumed from (client/checkpoint).
"""

import io
import os
from typing import Any, Callable, Tuple, Union

from carbontui.client import api, marker
from carbontui.client.checkpoint import Kept


class Checkpoint:
    """Saves the pytree that `state()` returns, as arrays in the order of its leaves, atomically."""

    def __init__(self, path: Union[str, "os.PathLike[str]"], state: Callable[[], Any]) -> None:
        self.path, self.state = os.fspath(path), state
        self.kept = Kept(self.path)
        api.on_checkpoint(self.save)

    def resume(self, like: Any = None) -> Tuple[int, Any]:
        """The steps done and the saved pytree, in the structure of `like` (None: of the present `state()`).

        Raises ValueError if the file has another number of leaves.
        """
        import jax  # type: ignore[import-not-found,unused-ignore]
        import numpy

        tree = None

        def read(path: str) -> int:
            nonlocal tree
            leaves, shape = jax.tree_util.tree_flatten(self.state() if like is None else like)
            with numpy.load(path) as file:
                step, kept = int(file["step"]), [file[f"leaf{i}"] for i in range(len(file.files) - 1)]
            if len(kept) != len(leaves):
                raise ValueError(f"{path} holds {len(kept)} arrays, not {len(leaves)}")
            tree = jax.tree_util.tree_unflatten(shape, [jax.numpy.asarray(leaf) for leaf in kept])
            return step

        step = self.kept.load(read) or 0
        api.gate.starts_at(step)
        return step, tree

    def save(self) -> None:
        """Write the checkpoint. Raises OSError."""
        import jax
        import numpy

        leaves = jax.tree_util.tree_leaves(self.state())
        buffer = io.BytesIO()
        arrays = {f"leaf{i}": numpy.asarray(leaf) for i, leaf in enumerate(leaves)}
        step = api.gate.step_total()
        arrays["step"] = numpy.asarray(step)
        numpy.savez(buffer, **arrays)  # type: ignore[arg-type,unused-ignore]
        self.kept.place(lambda: marker.write_atomic(self.kept.path, buffer.getvalue()))
        self.kept.saved(step)
