"""A model's wording: what leaves the machine, and which answers are shown. The endpoint is a local server."""

import contextlib
import gzip
import itertools
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[2] / "report"))
import runs

from carbontui import cli
from carbontui.extensions.llm import llm
from carbontui.reports import story


@pytest.fixture
def job(tmp_path):
    return runs.make(tmp_path, name="secret-project.py")


@pytest.fixture
def endpoint():
    """(base URL, what was asked, what to answer)."""
    asked, answers = [], {"status": 200, "text": "It waited.", "headers": {}}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, dict(self.headers), body.decode()))
            self.send_response(answers["status"])
            for name, value in answers["headers"].items():
                self.send_header(name, value)
            self.end_headers()
            if "raw" in answers:
                with contextlib.suppress(OSError):
                    for piece in answers["raw"]:
                        self.wfile.write(piece)
                return
            self.wfile.write(json.dumps({"choices": [{"message": {"content": answers["text"]}}]}).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", asked, answers
    server.shutdown()


def explain(tmp_path, job, *words, base="", key="sk-secret"):
    env = {"CARBONTUI_HOME": str(tmp_path), "OPENAI_BASE_URL": base, "OPENAI_API_KEY": key}
    return CliRunner().invoke(cli.cli, ["explain", job.id, *words], env=env)


def test_codes_times_zone_and_numbers_leave_the_machine_and_nothing_else(tmp_path, job, endpoint):
    base, asked, answers = endpoint
    made = story.build(job)
    answers["text"] = f"It drew {llm.facts(made)['energy_kwh']} kWh."
    done = explain(tmp_path, job, "--llm", base=base)
    assert done.exit_code == 0, done.output
    ((path, headers, body),) = asked
    assert path == "/v1/chat/completions" and headers["Authorization"] == "Bearer sk-secret"
    for hidden in ("secret", "s3cret", str(tmp_path), "train.py", "token", "box", "by the plan", job.id):
        assert hidden not in body
    own, _, theirs = done.output.partition("[model's wording]")
    assert "began" in own and "kWh" in theirs, "ours stands first"


def test_a_dry_run_shows_it_and_sends_nothing(tmp_path, job, endpoint):
    base, asked, _ = endpoint
    done = explain(tmp_path, job, "--llm", "--dry-run", base=base)
    assert done.exit_code == 0 and '"messages"' in done.output and asked == [] and "sk-secret" not in done.output
    assert explain(tmp_path, job, "--dry-run").exit_code != 0


def test_without_being_asked_nothing_is_sent(tmp_path, job, endpoint):
    base, asked, _ = endpoint
    assert explain(tmp_path, job, base=base).exit_code == 0 and asked == []


@pytest.mark.parametrize(
    ("text", "why"), [("It saved 77777 g.", "number that was not sent (77777)"), ("", "empty"), ("x" * 4000, "longer")]
)
def test_an_answer_that_makes_things_up_is_not_shown(tmp_path, job, endpoint, text, why):
    base, _, answers = endpoint
    answers["text"] = text
    done = explain(tmp_path, job, "--llm", base=base)
    assert done.exit_code == 1 and "began" in done.output and "[model's wording]" not in done.output
    assert "77777 g" not in done.output and why in done.output


def test_no_redirect_is_followed_and_no_key_is_printed(tmp_path, job, endpoint):
    base, asked, answers = endpoint
    answers |= {"status": 302, "headers": {"Location": f"{base}/elsewhere"}}
    done = explain(tmp_path, job, "--llm", base=base)
    assert len(asked) == 1 and done.exit_code == 1 and "302" in done.output
    assert "sk-secret" not in done.output


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("raw", "headers", "why"),
    [
        (lambda: itertools.repeat(b"a" * 65536), {}, "the answer did not end"),
        (lambda: [b"[" * 100_000 + b"]" * 100_000], {}, "RecursionError"),
        (lambda: [b"\xff\xfe"], {}, "DecodeError"),
        (lambda: [gzip.compress(b"0" * 10**7)], {"Content-Encoding": "gzip"}, "DecodeError"),
        (list, {}, "JSONDecodeError"),
    ],
)
def test_an_answer_that_nobody_can_read_is_one_line(tmp_path, job, endpoint, raw, headers, why):
    base, _, answers = endpoint
    answers |= {"raw": raw(), "headers": headers}
    done = explain(tmp_path, job, "--llm", base=base)
    assert isinstance(done.exception, SystemExit) and done.exit_code == 1 and why in done.output


@pytest.mark.parametrize(
    "base",
    [
        *("http://example.org/v1", "ftp://localhost", "https://me:pw@host/v1", "host/v1"),
        *("https://[x/v1", "https://host:port/v1", "https://host:99999/v1"),
    ],
)
def test_only_https_or_this_machine_is_asked(tmp_path, job, base):
    done = explain(tmp_path, job, "--llm", base=base)
    assert done.exit_code != 0
    assert "nothing was sent" in done.output


def test_numbers_are_the_same_however_they_are_written():
    told = {"energy_kwh": 1250.0, "at": "2026-06-21 04:30"}
    reply = lambda text: {"choices": [{"message": {"content": text}}]}  # noqa: E731
    assert llm.checked(reply("1,250 kWh at 4:30 on 21 June 2026."), told)
    for wrong in (reply("1,251 kWh."), {"choices": []}):
        with pytest.raises(ValueError, match="the answer"):
            llm.checked(wrong, told)
    assert "\u202e" not in llm.checked(reply("safe \u202e\x1b[Jtext"), told)
