"""Whether real trainings take as long as was estimated: ours from the running job, and green-love's.

    pip install --target DIR --no-deps green-love==0.2.2 requests urllib3 idna charset-normalizer certifi
    python tests/bench/bench_beside.py DIR [--repeats 3] [--models mlp gru] >> rows.jsonl
    python tests/bench/bench_beside.py --sum rows.jsonl > results/beside.json

Four kinds of network on one thread of the CPU, each a real job of one to three minutes under a real supervisor. For
each repeat, one after the other:

- green-love estimates the training before it starts (its own 90 s of trials, all its defaults)
- `carbontui.train.estimate` does the same in 20 s, for information
- the job runs. The last estimate of its status before a quarter of the steps is ours; every later one must hold too

"covered": the seconds that the loop really took lie in the 95 % interval. Wall time on a shared machine: what the
neighbours do meanwhile is in all three alike, and the load is told.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BATCH, CLASSES = 64, 10
MODELS = ("mlp", "cnn", "gru", "transformer")
SAMPLES = {"mlp": 20000, "cnn": 3000, "gru": 3000, "transformer": 2000}
EPOCHS = {"mlp": 100, "cnn": 50, "gru": 70, "transformer": 60}
"""One to two minutes on a quiet core, three where the neighbours are busy."""
QUARTER = 0.25


def build(name):
    """(model, optimizer, criterion, dataset): the same for every way of estimating it."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(1)
    count = SAMPLES[name]

    class Last(nn.Module):
        """The last state of a recurrent layer, classified."""

        def __init__(self):
            super().__init__()
            self.inner, self.out = nn.GRU(28, 64, batch_first=True), nn.Linear(64, CLASSES)

        def forward(self, x):
            return self.out(self.inner(x)[0][:, -1])

    class Mean(nn.Module):
        """The mean of two attention layers, classified."""

        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
            self.inner, self.out = nn.TransformerEncoder(layer, 2), nn.Linear(64, CLASSES)

        def forward(self, x):
            return self.out(self.inner(x).mean(1))

    if name == "mlp":
        model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, CLASSES))
        shape = (784,)
    elif name == "cnn":
        first = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        model = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(16 * 49, CLASSES))
        shape = (1, 28, 28)
    elif name == "gru":
        model, shape = Last(), (28, 28)
    else:
        model, shape = Mean(), (32, 64)
    data = torch.utils.data.TensorDataset(torch.randn(count, *shape), torch.randint(0, CLASSES, (count,)))
    return model, torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss(), data


def train(name, epochs, told):
    """The training as a user writes it; the seconds of its loop go to the file `told`."""
    import torch

    import carbontui

    model, optimizer, criterion, data = build(name)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
    carbontui.report(total=epochs * len(loader))
    began = time.perf_counter()
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
    Path(told).write_text(json.dumps(time.perf_counter() - began))


def green_love(name, epochs, told):
    from green_love import GreenLoveEstimator

    model, optimizer, criterion, data = build(name)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = GreenLoveEstimator(
            model, optimizer, criterion, data, epochs, batch_size=BATCH, device="cpu", country_code="DE",
            carbon_intensity=300.0, electricity_price=0.3, manual_tdp_watts=100.0, report_dir=folder,
            auto_open_report=False,
        ).estimate()  # fmt: skip
    row = (found.est_total_time_s, found.est_total_time_lower_s, found.est_total_time_upper_s)
    Path(told).write_text(json.dumps([*row, time.perf_counter() - began]))


ROLES = {"train": train, "green-love": green_love}


def asked(role, name, epochs, more_path=""):
    """What a role told, in a process of its own."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        environment = os.environ | ({"PYTHONPATH": more_path} if more_path else {})
        words = [sys.executable, __file__, "--role", role, name, str(epochs), file.name]
        subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        return json.loads(Path(file.name).read_text())


def job(name, epochs):
    """(seconds the loop took, [(share of the steps, Estimate)]) of a real job under a real supervisor."""
    from carbontui.commands.support import talk
    from carbontui.job.files import store

    # the job's processes may still be writing when the figures are there
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        told = Path(folder) / "told.json"
        os.environ["CARBONTUI_HOME"], os.environ["CARBONTUI_OFFLINE"] = folder, "1"
        words = [Path(sys.executable).with_name("carbontui"), "run", "--detach", "--no-spool", "--name", name, "--"]
        script = [sys.executable, __file__, "--role", "train", name, str(epochs), str(told)]
        subprocess.run([*words, *script], check=True, stdout=subprocess.DEVNULL)
        found = []
        while not told.exists():
            time.sleep(0.5)
            status = talk.live_status(store.find(name))
            if status.estimate is not None and status.steps_total:
                found.append((status.step / status.steps_total, status.estimate))
        return json.loads(told.read_text()), found


def judged(value, lo, hi, true, **more):
    error = round(value / true - 1, 4)
    row = {
        "s": round(value, 2),
        "lo_s": round(lo, 2),
        "hi_s": round(hi, 2),
        "error": error,
        "covered": lo <= true <= hi,
    }
    return row | more


def case(name, folder):
    epochs = EPOCHS[name]
    loads = [os.getloadavg()[0]]
    theirs = None
    if folder:
        theirs = asked("green-love", name, epochs, folder)
        loads.append(os.getloadavg()[0])
    true, told = job(name, epochs)
    loads.append(os.getloadavg()[0])
    early = [(share, found) for share, found in told if share <= QUARTER]
    row = {"model": name, "epochs": epochs, "true_s": round(true, 2), "load": [round(load, 1) for load in loads]}
    if theirs:
        row["green_love"] = judged(*theirs[:3], true, trial_s=round(theirs[3], 1))
    if early:
        share, found = early[-1]
        row["running"] = judged(
            found.work_s, found.work_lo_s, found.work_hi_s, true, from_share=round(share, 3), drifting=found.drifting,
            core_wait=round(found.core_wait, 3),
        )  # fmt: skip
        later = [found.work_lo_s <= true <= found.work_hi_s for share, found in told if share > QUARTER]
        row["running"]["later_covered"] = round(statistics.fmean(later), 3) if later else None
    return row


def summed(rows):
    found = {}
    for kind in ("running", "green_love"):
        judged_rows = [row[kind] for row in rows if kind in row]
        errors = [abs(row["error"]) for row in judged_rows]
        if not errors:
            continue
        widths = [(row["hi_s"] - row["lo_s"]) / 2 / row["s"] for row in judged_rows]
        found[kind] = {
            "covered": f"{sum(row['covered'] for row in judged_rows)} of {len(judged_rows)}",
            "median_error": round(statistics.median(errors), 4),
            "worst_error": round(max(errors), 4),
            "median_half_width": round(statistics.median(widths), 4),
        }
    found["drifting_said"] = sum(row["running"]["drifting"] for row in rows if "running" in row)
    return found


def results(rows):
    return {
        "bar": "running job, from at most the first quarter: covered >= 11 of 12, median error below green-love's",
        "summary": summed(rows),
        "rows": rows,
        "machine": f"{os.cpu_count()} shared vCPU, {platform.system()}; one thread; see load and core_wait",
        "green_love": "0.2.2",
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("green_love", nargs="?", help="the folder that holds green_love; without it ours alone")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--sum", nargs="+", default=(), help="files of rows, summed up")
    args = parser.parse_args()
    if args.sum:
        lines = [line for file in args.sum for line in Path(file).read_text().splitlines()]
        print(json.dumps(results([json.loads(line) for line in lines]), indent=2))
        return
    for _ in range(args.repeats):
        for name in args.models:
            print(json.dumps(case(name, args.green_love)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--role"]:
        ROLES[sys.argv[2]](sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        main()
