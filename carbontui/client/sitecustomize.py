# mypy: ignore-errors
"""Put into the training environment by carbontui: waits for torch.optim and for frameworks, silent everywhere else.

As sitecustomize it comes over PYTHONPATH; as the package carbontui_hook, through a .pth file (`carbontui hook`).

Import-free on purpose: it runs at every start of a Python in the job. Also of one that is too old for a training:
that one must be able to read this file, and is left alone.
"""

import sys


class _Loader:
    def __init__(self, inner, name, taker):
        self.inner, self.name, self.taker = inner, name, taker

    def __getattr__(self, attribute):
        return getattr(self.inner, attribute)

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.inner
        self.inner.exec_module(module)
        if self.name == "bdb":
            return _step_over_ours(module)
        try:
            if self.taker.startswith("detection.settings."):  # in any program: without the rest of the client
                from carbontui.client.detection import settings

                getattr(settings, self.taker.rpartition(".")[2])(module)
            else:
                from carbontui.client.hooks import imported

                imported(module, self.name, self.taker)
        except Exception:  # a training without its hook is better than none
            pass


def _step_over_ours(module):
    """A debugger's `step` goes through the user's print(), not through our file beneath it."""
    plain = module.Bdb.stop_here

    def stop_here(self, frame):
        return frame.f_code.co_filename != __file__ and plain(self, frame)

    module.Bdb.stop_here = stop_here


class _Watch:
    """Finds nothing by itself; wraps the loader of the modules it waits for."""

    modules = {
        "bdb": "",
        "torch.optim.optimizer": "hooks.on_optimizer",
        "torch.optim.lr_scheduler": "detection.places.on_schedules",
        "torch._dynamo.trace_rules": "hooks.on_trace_rules",
        "torch.amp.grad_scaler": "hooks.on_grad_scaler",
        "torch.cuda.amp.grad_scaler": "hooks.on_grad_scaler",
        "transformers.trainer": "frameworks.transformers.install",
        "pytorch_lightning.trainer.trainer": "frameworks.lightning.install",
        "lightning.pytorch.trainer.trainer": "frameworks.lightning.install",
        "keras.src.models.model": "frameworks.keras.install",
        "xgboost.training": "frameworks.boosting.on_xgboost",
        "lightgbm.engine": "frameworks.boosting.on_lightgbm",
        "catboost.core": "frameworks.rounds.on_catboost",
        "fastai.learner": "frameworks.rounds.on_fastai",
        "spacy.language": "frameworks.rounds.on_spacy",
        "spacy.training.loop": "frameworks.rounds.on_spacy_loop",
        "ultralytics.engine.trainer": "frameworks.rounds.on_ultralytics",
        "stable_baselines3.common.on_policy_algorithm": "frameworks.rounds.on_sb3",
        "stable_baselines3.common.off_policy_algorithm": "frameworks.rounds.on_sb3",
        "optuna.study.study": "frameworks.sweeps.on_optuna",
        "hydra.core.plugins": "frameworks.sweeps.on_hydra_plugins",
        "hydra.core.utils": "frameworks.sweeps.on_hydra",
        "torch.utils.data.dataloader": "detection.places.on_loaders",
        "rich.progress": "detection.places.on_rich",
        "argparse": "detection.settings.on_argparse",
        "transformers.hf_argparser": "detection.settings.on_hf_parser",
        "tyro._cli": "detection.settings.on_tyro",
        "click.core": "detection.settings.on_click",
        "typer._click.core": "detection.settings.on_click",
        "omegaconf.omegaconf": "detection.settings.on_omegaconf",
        "hydra._internal.config_loader_impl": "detection.settings.on_hydra",
    }
    """The function of the client that takes each, loaded only then."""

    def find_spec(self, name, path=None, target=None):
        taker = self.modules.pop(name, None)
        if taker is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader, name, taker)
                    return spec
        return None


def _output_as_alone():
    """Output that goes to files of ours: dropped while their disk is full or fails, said once in our log, as a print()
    must not end a training; but an error, as alone, once nobody reads it any more (`run | head`)."""
    import errno
    import io
    import os
    import time

    class Unread(io.FileIO):
        """On a pipe without a reader: its error is the one that a script gets alone."""

    class Patient(io.FileIO):
        unread = None
        lost = False

        def write(self, data):
            if self.unread and os.access(self.unread, os.F_OK):  # without a frame that a debugger would show
                read, write = os.pipe()
                os.dup2(write, self.fileno(), inheritable=True)
                os.close(read), os.close(write)
                self.__class__ = Unread
                return memoryview(data).nbytes
            try:
                return super().write(data)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE):
                    raise
                if not self.lost:
                    self.__class__.lost = True
                    what = "training: run.log does not take all output: " + error.strerror
                    try:
                        with open(os.path.dirname(os.environ["CARBONTUI_MARKER"]) + "/carbontui.log", "a") as ours:
                            ours.write(time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) + what + "\n")
                    except Exception:
                        pass
                return memoryview(data).nbytes

    log = os.environ["CARBONTUI_RUN_LOG"]
    err = os.environ.get("CARBONTUI_RUN_ERR", log)
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        if old is None or not os.path.samestat(os.fstat(old.fileno()), os.stat(log if name == "stdout" else err)):
            continue
        raw = Patient(old.fileno(), "wb", closefd=False)
        raw.name = old.name
        if name == "stdout" or err == log:
            raw.unread = os.environ.get("CARBONTUI_MARKER", "") + ".unread"
        bare = isinstance(old.buffer, io.RawIOBase)  # python -u, or PYTHONUNBUFFERED
        new = io.TextIOWrapper(
            raw if bare else io.BufferedWriter(raw),
            old.encoding,
            old.errors,
            newline="\n",
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )
        new.mode = "w"
        setattr(sys, name, new)
        setattr(sys, "__" + name + "__", new)
        if name == "stdout" and os.isatty(0) and "CARBONTUI_NO_INPUT" in os.environ:  # asked of output, as alone
            os.get_terminal_size = lambda fd=1, asked=os.get_terminal_size: asked(fd if os.isatty(fd) else 0)


def _explain_no_input():
    """A script started on a terminal does not get its input: say so below an error that comes of it."""
    import os

    told = sys.excepthook

    def explained(kind, value, trace):
        told(kind, value, trace)
        if kind.__name__ in ("EOFError", "BdbQuit") and os.isatty(0):
            sys.stderr.write(
                "carbontui: input() and breakpoint() get nothing to read here; "
                "carbontui run --stdin hands on the terminal's input\n"
            )

    if "CARBONTUI_NO_INPUT" in os.environ:
        sys.excepthook = sys.__excepthook__ = explained  # a script may ask whether it is another


def _end_quietly():
    """A try that is ended leaves one line, wherever the script is: no traceback of that interrupt."""
    import os

    told = sys.excepthook
    ordered = os.environ.get("CARBONTUI_MARKER", "") + ".end"

    def quiet(kind, value, trace):
        if kind is not KeyboardInterrupt or not os.path.exists(ordered):
            told(kind, value, trace)

    if "1" in (os.environ.get("CARBONTUI_TRY"), os.environ.get("CARBONTUI_ESTIMATE")):
        sys.excepthook = quiet


def _watch():
    if not _OLD and not any(type(finder).__name__ == "_Watch" for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def follow():
    """In a script that runs already: what it has loaded gets its hooks now."""
    from carbontui.client.hooks import imported

    _watch()
    for name, taker in [one for one in _Watch.modules.items() if one[0] in sys.modules]:
        del _Watch.modules[name]
        if taker and not taker.startswith("detection.settings."):  # its arguments have been read
            try:
                imported(sys.modules[name], name, taker)
            except Exception:
                pass


def _install():
    here = __file__.rpartition("/")[0]
    # last on the path: a carbontui that this environment has installed itself comes first, and so does
    # the sitecustomize that ours stands before
    sys.path[:] = [entry for entry in sys.path if entry != here] + [here]
    _watch()
    me = sys.modules.pop(__name__)
    sys.path.remove(here)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
        sys.modules[__name__] = me
    finally:
        sys.path.append(here)


_OLD = sys.version_info < (3, 8)
for _part in () if _OLD else (_output_as_alone, _explain_no_input, _end_quietly):
    try:
        _part()
    except Exception:  # no run.log of ours, or output of another kind: it stays as it was
        pass
if __name__ == "sitecustomize":
    _install()
elif __name__ != "carbontui.client.sitecustomize":
    sys.path.append(__file__.rpartition("/")[0])
    _watch()
