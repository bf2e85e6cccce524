"""Mixed precision where the device benefits from it, full precision elsewhere; one interface for both."""

from __future__ import annotations

import contextlib
from typing import Any


class Precision:
    """`with precision.autocast()` around forward and loss, then `backward(loss)` and `step(optimizer)`.

    On CUDA bfloat16 if the board supports it, else float16 with a scaled loss; elsewhere nothing changes, since a CPU
    without native support is slower in 16 bit than in 32. `name` says which is used; `state_dict` belongs into a
    checkpoint.
    """

    def __init__(self, device: Any, enabled: bool = True) -> None:
        self._torch: Any = None
        self._scaler: Any = None
        self.name = "float32"
        if not enabled or not str(device).startswith("cuda"):
            return
        import torch

        self._torch = torch
        half = torch.cuda.is_bf16_supported()
        self._dtype = torch.bfloat16 if half else torch.float16
        self.name = "bfloat16" if half else "float16"
        self._scaler = None if half else torch.amp.GradScaler("cuda")

    def autocast(self) -> Any:
        """The context in which forward and loss are computed."""
        if self._torch is None:
            return contextlib.nullcontext()
        return self._torch.autocast("cuda", dtype=self._dtype)

    def backward(self, loss: Any) -> None:
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()

    def step(self, optimizer: Any) -> None:
        """optimizer.step(); with a scaled loss a step whose gradients overflowed is skipped."""
        if self._scaler is None:
            optimizer.step()
            return
        self._scaler.step(optimizer)
        self._scaler.update()

    def state_dict(self) -> Any:
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, state: Any) -> None:
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)
