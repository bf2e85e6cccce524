"""Keras 3 on any backend, without carbontui code. Pausing, the total and unloading work unchanged.

KERAS_BACKEND=jax carbontui run -- python train_keras.py
"""

from __future__ import annotations

import argparse
import hashlib
import os


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--backend", default=os.environ.get("KERAS_BACKEND", "torch"))
    args = parser.parse_args()
    os.environ["KERAS_BACKEND"] = args.backend
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    inputs = np.random.default_rng(1).normal(size=(400, 8)).astype("float32")
    layers = [keras.layers.Dense(16, activation="tanh"), keras.layers.Dropout(0.1), keras.layers.Dense(8)]
    model = keras.Sequential(layers)
    model.compile(optimizer="adam", loss="mse", jit_compile=False)
    slower = keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, min_lr=1e-4)
    told = model.fit(
        inputs, inputs, batch_size=4, epochs=args.epochs, validation_split=0.2, callbacks=[slower], verbose=0
    )
    print("weights", hashlib.sha256(b"".join(np.asarray(w).tobytes() for w in model.get_weights())).hexdigest())
    print("steps", int(model.optimizer.iterations))
    print("losses", [round(loss, 6) for loss in told.history["loss"]])


if __name__ == "__main__":
    main()
