"""Records `carbontui demo` as a text cast (asciicast v2), the whole of it, on a terminal of its own.

    python screenshots/cast.py [screenshots/demo.cast]

About a minute; play it with `asciinema play`. Nothing is edited: what the terminal was
sent, and when. The format: https://docs.asciinema.org/manual/asciicast/v2/
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import select
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

COLUMNS, ROWS = 120, 40
OVER, READ_S = "the job is over", 6.0
"""What stands on the screen at the end, and how long it is left there before `q`."""
LONGEST_S = 300.0


def record(target: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        home = tempfile.mkdtemp()
        os.environ |= {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "CARBONTUI_HOME": home,
            "COLUMNS": str(COLUMNS),
        }
        os.chdir(home)
        os.execv(sys.executable, [sys.executable, "-m", "carbontui.cli", "demo"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
    begun = changed = time.monotonic()
    over = False
    text = codecs.getincrementaldecoder("utf-8")("replace")
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "carbontui demo", "idle_time_limit": 2.0}
    with target.open("w") as cast:
        print(json.dumps(header | {"env": {"TERM": "xterm-256color"}}), file=cast)
        while time.monotonic() - begun < LONGEST_S:
            readable, _, _ = select.select([terminal], [], [], 0.2)
            if readable:
                changed = time.monotonic()
                try:
                    sent = os.read(terminal, 65536)
                except OSError:
                    break
                shown = text.decode(sent)
                over |= OVER in shown
                print(json.dumps([round(changed - begun, 3), "o", shown], ensure_ascii=False), file=cast)
            elif over and time.monotonic() - changed > READ_S:
                changed = time.monotonic()
                os.write(terminal, b"q")
    os.close(terminal)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    record(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("demo.cast"))
