"""A partial_fit loop of scikit-learn: the script marks where a step ends and what to resume from.

carbontui run -- python train_sklearn.py
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
from pathlib import Path

import numpy as np
from sklearn.linear_model import SGDClassifier

import carbontui
from carbontui.client import marker


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--checkpoint", default="model.pickle")
    args = parser.parse_args()

    model, done = SGDClassifier(random_state=1), 0
    if Path(args.checkpoint).exists():
        model, done = pickle.loads(Path(args.checkpoint).read_bytes())

    @carbontui.on_checkpoint
    def save() -> None:
        marker.write_atomic(args.checkpoint, pickle.dumps((model, done)))

    carbontui.report(total=args.steps)
    while done < args.steps:
        inputs = np.random.default_rng(done).normal(size=(32, 8))
        model.partial_fit(inputs, inputs[:, 0] > 0, classes=[False, True])
        done += 1
        carbontui.step()
    print("weights", hashlib.sha256(model.coef_.tobytes()).hexdigest())
    print("steps", done)


if __name__ == "__main__":
    main()
