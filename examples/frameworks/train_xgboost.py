"""XGBoost without carbontui code. A step is a boosting round; pausing, the total and unloading work unchanged.

carbontui run -- python train_xgboost.py
"""

from __future__ import annotations

import argparse
import hashlib

import numpy as np
import xgboost


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--rows", type=int, default=2000)
    args = parser.parse_args()
    draw = np.random.default_rng(1)
    inputs = draw.normal(size=(args.rows, 10))
    data = xgboost.DMatrix(inputs, inputs[:, 0] * inputs[:, 1] > 0)
    model = xgboost.train(
        {"objective": "binary:logistic", "max_depth": 4, "nthread": 1, "seed": 1}, data, num_boost_round=args.rounds
    )
    print("weights", hashlib.sha256(model.predict(data, output_margin=True).tobytes()).hexdigest())
    print("steps", model.num_boosted_rounds())


if __name__ == "__main__":
    main()
