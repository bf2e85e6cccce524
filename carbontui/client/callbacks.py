"""Callbacks to pass manually to the Trainer of transformers or Lightning; the hook adds them automatically."""

from __future__ import annotations

from carbontui.client.frameworks.lightning import callback as lightning_callback
from carbontui.client.frameworks.lightning import save_with
from carbontui.client.frameworks.transformers import callback as transformers_callback

__all__ = ["lightning_callback", "save_with", "transformers_callback"]
