"""The scripted Agent does what its steps say."""

import pytest

from tests.unit.hosting import Link, make_host, start_call, turn_call, written
from turnhold.scripted import script
from turnhold.session.hosting import TurnOutcome
from turnhold.session.values import Origin, TextPart
from turnhold.session.views import TurnView


async def run(steps: str, *, link: Link | None = None, number: int = 1, host=None, **changes) -> TurnOutcome:
    host = host or make_host(script, link=link)
    assert (await host.start_process(start_call("script"))).status == "started"
    return await host.run_turn(turn_call(steps, number, **changes))


@pytest.mark.parametrize(
    ("steps", "output"),
    [
        ("say hello  world", "hello  world\n"),
        ("emit 3 4", "1 xx2 xx3 xx"),
        ("emit 1 1", "1"),
        ("set a 1 2\nget a\nget b", "a: 1 2\nb: none\n"),
        ("epoch", "epoch: 1\nturns: 1\n"),
        ("history", "history: 0\n"),
        ("\n  say x\n\n", "x\n"),
    ],
)
async def test_steps_that_write(steps: str, output: str):
    outcome = await run(steps)
    assert (outcome.how, written(outcome.facts)) == ("completed", output)


async def test_results_responses_and_state():
    outcome = await run('respond all good\nreturn {"a": [1]}\nset k v')
    assert (outcome.result, outcome.state) == ({"a": [1]}, {"k": "v"})
    assert outcome.response[0].text == "all good"


@pytest.mark.parametrize(
    ("steps", "message"),
    [("fail oh no", "oh no"), ("dance", "unknown step"), ("append f x", "TURNHOLD_SCRATCH")],
)
async def test_steps_that_fail(steps: str, message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TURNHOLD_SCRATCH", raising=False)
    outcome = await run(steps)
    assert outcome.how == "failed"
    assert message in outcome.error.message


async def test_append_writes_into_the_scratch_directory_only(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNHOLD_SCRATCH", str(tmp_path))
    assert (await run("append notes one\nappend notes two words")).how == "completed"
    assert (tmp_path / "notes").read_text() == "one\ntwo words\n"
    assert (await run("append ../notes x")).how == "failed"


async def test_history_counts_earlier_turns():
    link = Link()
    origin, at = Origin(), turn_call().created_at
    link.past = [
        TurnView(
            id="trn_0",
            session_id="s",
            sequence=n,
            status="completed",
            origin=origin,
            input=(TextPart(text=f"say {n}"),),
            created_at=at,
        )
        for n in (1, 2)
    ]
    assert written((await run("history", link=link)).facts) == "history: 2\nsay 2\n"


async def test_fail_init_fails_the_first_epochs():
    host = make_host(script)
    metadata = {"fail_init": "1"}
    assert (await host.start_process(start_call("script", metadata=metadata))).status == "init_failed"
    assert (await host.start_process(start_call("script", 2, metadata=metadata))).status == "started"
