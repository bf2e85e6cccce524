"""A JAX loop: the script marks where a step ends and what a checkpoint contains.

carbontui run -- python train_jax.py
"""

from __future__ import annotations

import argparse
import hashlib

import jax
import jax.numpy as jnp
import numpy as np

import carbontui
from carbontui.client.frameworks.jax import Checkpoint


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--checkpoint", default="run.npz")
    args = parser.parse_args()

    inputs = jnp.asarray(np.random.default_rng(1).normal(size=(64, 8)), jnp.float32)
    params = {"w": jnp.eye(8) * 0.1, "b": jnp.zeros(8)}
    key = jax.random.key_data(jax.random.key(1))

    @jax.jit
    def update(params, key):
        key, draw = jax.random.split(jax.random.wrap_key_data(key))
        noisy = inputs + 0.1 * jax.random.normal(draw, inputs.shape)
        slope = jax.grad(lambda p: jnp.mean((noisy @ p["w"] + p["b"] - inputs) ** 2))(params)
        return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, slope), jax.random.key_data(key)

    saved = Checkpoint(args.checkpoint, lambda: (params, key))
    done, state = saved.resume()
    params, key = state or (params, key)
    carbontui.report(total=args.steps)
    while done < args.steps:
        params, key = update(params, key)
        done += 1
        carbontui.step()
    print("weights", hashlib.sha256(np.asarray(params["w"]).tobytes()).hexdigest())
    print("steps", done)


if __name__ == "__main__":
    main()
