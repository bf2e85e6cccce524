"""Keras on torch: compile() and fit(), the epochs are an argument of fit()."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras
import numpy as np

keras.utils.set_random_seed(1)
num_classes = 4
dice = np.random.default_rng(0)
x_train, y_train = dice.normal(size=(800, 12)).astype("float32"), dice.integers(0, num_classes, 800)
x_test, y_test = dice.normal(size=(160, 12)).astype("float32"), dice.integers(0, num_classes, 160)

model = keras.Sequential(
    [
        keras.Input(shape=(12,)),
        keras.layers.Dense(24, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(num_classes, activation="softmax"),
    ]
)
model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])

batch_size = 32
epochs = 6
model.fit(x_train, y_train, batch_size=batch_size, epochs=epochs, validation_split=0.1, verbose=2)
print(model.evaluate(x_test, y_test, verbose=0))
