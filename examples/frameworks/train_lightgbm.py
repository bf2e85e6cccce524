"""LightGBM without carbontui code. A step is a boosting round; pausing, the total and unloading work unchanged.

carbontui run -- python train_lightgbm.py
"""

from __future__ import annotations

import argparse
import hashlib

import lightgbm
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--rows", type=int, default=2000)
    args = parser.parse_args()
    draw = np.random.default_rng(1)
    inputs = draw.normal(size=(args.rows, 10))
    data = lightgbm.Dataset(inputs, inputs[:, 0] * inputs[:, 1] > 0)
    told = {"objective": "binary", "num_threads": 1, "seed": 1, "deterministic": True, "verbose": -1}
    model = lightgbm.train(told, data, num_boost_round=args.rounds)
    print("weights", hashlib.sha256(model.predict(inputs, raw_score=True).tobytes()).hexdigest())
    print("steps", model.current_iteration())


if __name__ == "__main__":
    main()
