"""The demo: the product's first impression, as a newcomer runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path


def test_the_demo_shows_the_main_job_and_leaves_nothing_behind(tmp_path: Path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TURNHOLD_URL": "http://127.0.0.1:9"}
    turnhold = Path(sys.executable).with_name("turnhold")
    demo = subprocess.run([turnhold, "demo"], env=environment, capture_output=True, text=True, timeout=90)
    assert (demo.returncode, demo.stderr) == (0, "")
    events = re.findall(r"^ +(\d+)  (?:Turn (\d+))? +([a-z_]+\.[a-z_]+)", demo.stdout, re.MULTILINE)
    assert [int(sequence) for sequence, _, _ in events] == list(range(1, len(events) + 1))
    shown = [(kind, turn) for _, turn, kind in events]
    assert ("turn.failed", "3") in shown
    assert shown.index(("turn.failed", "3")) < shown.index(("turn.completed", "4"))
    steered = [kind for kind, turn in shown if turn == "5" and kind.startswith("message.")]
    assert [kind.removeprefix("message.") for kind in steered if kind != "message.admitted"] == [
        *("started", "delivered", "started", "rejected", "started", "delivered")
    ]
    assert demo.stdout.count("heard: ") == 2
    assert shown.index(("ask.created", "6")) < shown.index(("ask.answered", "6"))
    assert demo.stdout.count("chose: publish") == 1
    assert shown.index(("turn.interrupted", "7")) < shown.index(("turn.running", "8"))
    assert re.search(r"^held, for .*\n  An interrupt holds this Session", demo.stdout, re.MULTILINE)
    kinds = [kind for kind, _ in shown]
    assert kinds.count("session.process_failed") == 3
    assert kinds.count("session.resume") == 2
    assert shown.index(("session.resume", "")) < shown.index(("turn.running", "8"))
    assert kinds.index("session.resume", kinds.index("session.process_failed")) < shown.index(
        ("turn.running", "12")
    )
    assert kinds[-1] == "session.closed"
    assert demo.stdout.count("city: Lisbon") == 3
    assert f"{len(events)} events, numbered 1 to {len(events)} without a gap" in demo.stdout
    assert list(tmp_path.iterdir()) == []
    assert "\x1b" not in demo.stdout
