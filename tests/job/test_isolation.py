"""What a user sets for the training reaches the training, and none of our own processes."""

import json
import os
import resource
import subprocess
import sys
import time
import venv
from pathlib import Path

import msgspec
import pytest
from house import House, until

import carbontui
from carbontui.system import isolation

NO_THREAD = 'RuntimeError("can\'t start new thread")'
BROKEN = "raise RuntimeError('a package for the training, and broken')\n"
TELL = """\
import json, os, resource, sys
import numpy  # the training's own
facts = {
    "umask": os.umask(0),
    "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE),
    "oom": int(open("/proc/self/oom_score_adj").read()),
    "path": os.environ["PYTHONPATH"].split(":")[1:],
    "warnings": os.environ.get("PYTHONWARNINGS"),
    "keys": [name for name in os.environ if name.endswith("_TOKEN")],
    "numpy": numpy.OWN,
}
json.dump(facts, open("told.json.part", "w"))
os.replace("told.json.part", "told.json")
import time
while True:
    time.sleep(0.05)
"""


def grid(root):
    begin = time.time() // 900 * 900 - 86400
    clock = lambda at: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))  # noqa: E731
    rows = [f"{clock(begin + 900 * k)},{90 if k // 16 % 2 else 500}\n" for k in range(384)]
    (root / "grid.csv").write_text("time_utc,carbon_g_per_kwh\n" + "".join(rows))
    return root / "grid.csv"


def environ(pid):
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)


def oom(pid):
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_the_users_python_settings_and_limits_are_the_trainings_alone(house):
    theirs = house.root / "modules"
    theirs.mkdir()
    for name in ("click", "httpx", "msgspec", "platformdirs", "rich"):
        (theirs / f"{name}.py").write_text(BROKEN)
    (theirs / "numpy.py").write_text("OWN = True\n")
    house.env |= {"PYTHONPATH": str(theirs), "PYTHONWARNINGS": "error", "ENTSOE_TOKEN": "secret"}
    script = house.root / "tell.py"
    script.write_text(TELL)

    def strict():
        os.umask(0o027)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    options = ("--budget", "20h", "--work", "10h", "--zone", "DE", "--grid", grid(house.root))
    started = house.cli("run", "--detach", *options, "--", sys.executable, script, check=True, preexec_fn=strict)
    job = house.home / "jobs" / started.stdout.strip()
    pids = lambda: json.loads((job / "job.json").read_text())["pids"]  # noqa: E731
    until(lambda: house.cli("plan", started.stdout.strip()).returncode == 0, what="a plan", every=0.3)
    house.cli("boost", started.stdout.strip(), check=True)
    until((house.root / "told.json").exists, what="the training's word")
    told = json.loads((house.root / "told.json").read_text())
    assert told["numpy"] is True and told["path"] == [str(theirs)] and told["warnings"] == "error"
    assert told["umask"] == 0o027 and told["descriptors"][0] == 200
    assert told["oom"] == oom(os.getpid())
    assert told["keys"] == [], "a key for the grid is no business of the training"
    keeper, supervisor = pids()["keeper"][0], pids()["supervisor"][0]
    assert b"PYTHONPATH" not in environ(supervisor) and b"PYTHONWARNINGS" not in environ(supervisor)
    assert environ(supervisor)[b"ENTSOE_TOKEN"] == b"secret"
    assert oom(keeper) == oom(os.getpid()) and oom(supervisor) == 1000, "it dies before a training of any size"
    limits = Path(f"/proc/{supervisor}/limits").read_text()
    assert int(next(line for line in limits.splitlines() if line.startswith("Max open files")).split()[3]) > 200


@pytest.mark.parametrize(("error", "line"), [("MemoryError()", "out of memory"), (NO_THREAD, isolation.TOO_FEW)])
def test_a_process_of_ours_that_lacks_memory_or_threads_says_so_in_one_line(error, line):
    code = f"from carbontui.system import isolation; isolation.tell_what_lacks('agent'); raise {error}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, f"agent: {line}\n")


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_folders_and_arguments_that_are_no_text_are_as_good_as_others(tmp_path, locale):
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    odd.mkdir()
    house = House(odd, None)
    house.env |= {"LC_ALL": locale}
    try:
        script = odd / "say.py"
        script.write_text(
            "import os, sys\nos.write(1, os.fsencode(sys.argv[1]) + b' in ' + os.fsencode(os.getcwd()))\n"
        )
        argument = os.fsdecode(b"na\xefve")
        done = house.cli("run", "--", sys.executable, script, argument, errors="surrogateescape")
        assert done.returncode == 0, done.stderr
        assert os.fsencode(done.stdout) == b"na\xefve in " + os.fsencode(odd)
        listed = json.loads(house.cli("ls", "--json", check=True).stdout)
        assert [job["state"] for job in listed] == ["done"]
        assert "na" in house.cli("log", listed[0]["job"], check=True, errors="surrogateescape").stdout
    finally:
        house.end()


@pytest.mark.parametrize("folders", [("code", "code"), ("code", "packages"), ("packages", "code")])
def test_an_installation_by_target_folders_runs_whatever_their_order(house, folders):
    bare = house.root / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    for name in folders:
        (house.root / name).mkdir(exist_ok=True)
    code, packages = house.root / "code", house.root / ("packages" if "packages" in folders else "code")
    (code / "carbontui").symlink_to(Path(carbontui.__file__).parent)
    for entry in Path(msgspec.__file__).parent.parent.iterdir():
        if "carbontui" not in entry.name and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    house.env["PYTHONPATH"] = os.pathsep.join(str(house.root / name) for name in dict.fromkeys(folders))
    told = [bare / "bin" / "python", "-m", "carbontui", "run", "--", bare / "bin" / "python", "-c", "print('trained')"]
    done = subprocess.run(told, env=house.env, cwd=house.root, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    (log,) = house.home.glob("jobs/*/carbontui.log")
    assert "Error" not in log.read_text()
