"""The cases of the table: what is run, what should hold, and why not where it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "frameworks"
COLUMNS = ("steps", "total", "pause", "identical", "unload", "resume", "exit")
"""Steps counted exactly; the total known by itself; a pause held at one step on all ranks; weights bit for bit those of
the undisturbed run; left when asked; steps and weights after coming back; exit codes."""


@dataclass(frozen=True)
class Case:
    name: str
    script: Path
    args: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("torch",)
    steps: int = 120
    ranks: int = 1
    torchrun: bool = True
    """Several ranks come from torchrun; else the script starts them itself."""
    leave_at: tuple[int, ...] = ()
    unload: str = ""
    """Why it cannot be unloaded; empty where it can."""
    unload_args: tuple[str, ...] = ()
    total: str = ""
    """Why nothing is said of the total; empty where it is known."""


LOOPS = HERE / "loops.py"
GUESSED = "guessed, with its source, and planned with once a person agrees"
NOTEBOOK = "the framework cannot: a kernel that its notebook holds does not leave, nor run the cells again"
ORDER = "the framework cannot: tensorflow draws the order of the data from states that cannot be set"
ELSEWHERE = "nothing is said: what ends the loop is counted in another method, and a setting's name alone is no total"
TRIALS = "nothing is said: its code does not tell how often Optuna runs the loop"
TRIAL = "the framework cannot: Optuna starts a trial that was interrupted over"


def loop(name: str, kind: str, **more) -> Case:
    more = {"total": ELSEWHERE, "leave_at": (30,), "unload_args": ("--checkpoint", "run.pt"), **more}
    return Case(name, LOOPS, (kind,), **more)


def several(name: str, kind: str, **more) -> Case:
    return loop(name, kind, ranks=2, leave_at=(20,), **more)


def example(name: str, script: str, *args: str, **more) -> Case:
    return Case(name, EXAMPLES / script, args, **more)


HF, PL, AC = ("torch", "transformers", "accelerate"), ("torch", "lightning"), ("torch", "accelerate")
CASES = (
    loop("plain loop", "plain", leave_at=(30, 50)),
    loop("accumulation and GradScaler", "accumulation"),
    loop("LBFGS", "lbfgs"),
    loop("GAN", "gan"),
    loop("compiled step", "compiled"),
    loop("in the manner of nanoGPT", "nanogpt"),
    example("transformers Trainer", "train_transformers.py", needs=HF, leave_at=(25,)),
    example(
        "transformers, accumulation", "train_transformers.py", "--accumulate=2", needs=HF, steps=60, leave_at=(25,)
    ),
    example("transformers, evaluation", "train_transformers.py", "--evaluate=epoch", needs=HF, leave_at=(40,)),
    example("transformers, 2 ranks", "train_transformers.py", "--samples=320", needs=HF, ranks=2, leave_at=(20,)),
    example("Lightning", "train_lightning.py", needs=PL, steps=192, leave_at=(78,)),
    example("Lightning by hand, 2 optimizers", "train_lightning.py", "--manual", needs=PL, steps=192, leave_at=(50,)),
    example(
        "Lightning ddp",
        "train_lightning.py",
        "--devices=2",
        "--strategy=ddp",
        needs=PL,
        steps=192,
        ranks=2,
        torchrun=False,
        leave_at=(40,),
    ),
    example(
        "Lightning CLI",
        "train_lightning_cli.py",
        "fit",
        "--trainer.max_epochs=3",
        needs=(*PL, "jsonargparse"),
        steps=192,
        leave_at=(78,),
    ),
    example("accelerate", "train_accelerate.py", needs=AC, steps=256, leave_at=(78,)),
    example("accelerate, 2 ranks", "train_accelerate.py", "--epochs=20", needs=AC, steps=640, ranks=2, leave_at=(20,)),
    several("DDP by torchrun", "torchrun"),
    several("DDP by spawn, env", "spawn-env", torchrun=False),
    several("DDP by spawn, file", "spawn-file", torchrun=False),
    several("DDP by spawn, tcp", "spawn-tcp", torchrun=False),
    Case(
        "FSDP2",
        EXAMPLES.parent / "train_fsdp.py",
        ranks=2,
        leave_at=(20,),
        unload_args=("--checkpoint", "saved"),
    ),
    Case("notebook", HERE / "notebook.py", needs=("torch", "nbclient", "ipykernel"), unload=NOTEBOOK),
    loop("Optuna study", "study", needs=("torch", "optuna"), leave_at=(), unload=TRIAL, total=TRIALS),
    loop("k-fold", "folds"),
    loop("ensemble", "ensemble", leave_at=(30,)),
    example(
        "Keras on torch",
        "train_keras.py",
        "--backend=torch",
        needs=("keras", "torch"),
        steps=240,
        leave_at=(80, 100),
    ),
    example("Keras on jax", "train_keras.py", "--backend=jax", needs=("keras", "jax"), steps=240, leave_at=(80, 100)),
    example(
        "Keras on tensorflow",
        "train_keras.py",
        "--backend=tensorflow",
        needs=("keras", "tensorflow"),
        steps=240,
        unload=ORDER,
    ),
    example("JAX loop", "train_jax.py", needs=("jax",), steps=400, leave_at=(100,)),
    example("XGBoost", "train_xgboost.py", needs=("xgboost",), steps=400, leave_at=(100, 150)),
    example("LightGBM", "train_lightgbm.py", needs=("lightgbm",), steps=400, leave_at=(100, 150)),
    example("scikit-learn partial_fit", "train_sklearn.py", needs=("sklearn",), steps=400, leave_at=(100,)),
)
