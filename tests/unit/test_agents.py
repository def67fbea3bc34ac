"""The author's API: definitions, discovery, content, controls."""

import functools
import sys
from pathlib import Path

import pytest

from turnhold import AgentLoadError, Option, agent, choice, text
from turnhold.agents.content import clean_json, output_of
from turnhold.agents.controls import Reply
from turnhold.agents.definition import load_agents
from turnhold.session.creation import Config
from turnhold.session.questions import Answer
from turnhold.session.values import JsonPart, TextPart


async def handler(turn, ctx):
    """Answers.

    At length.
    """


def test_a_definition_keeps_only_the_settings_it_makes():
    definition = agent("reviewer", close_after_idle="P30D", hibernate_after_idle=None)(handler)
    assert definition.settings == {"close_after_idle": 2_592_000, "hibernate_after_idle": None}
    assert definition.description == "Answers.\n\nAt length."
    assert Config(**(definition.settings | {"stop_deadline": 1})).hibernate_after_idle is None


@pytest.mark.parametrize("name", ["", "Upper", "-x", "a b", "a" * 65, "ü"])
def test_a_bad_name_is_refused(name: str):
    with pytest.raises(AgentLoadError, match="bad Agent name"):
        agent(name)(handler)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"colour": 1}, "no setting 'colour'"),
        ({"stop_deadline": 0.01}, "setting 'stop_deadline'"),
        ({"queue_limit": 5_000}, "setting 'queue_limit'"),
        ({"init_timeout": "soon"}, "setting 'init_timeout'"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings: dict, said: str):
    with pytest.raises(AgentLoadError, match=said) as caught:
        agent("a", **settings)(handler)
    assert "\n" not in str(caught.value)


def test_a_second_init_hook_is_refused():
    definition = agent("a")(handler)
    definition.init(lambda ctx: None)
    with pytest.raises(AgentLoadError, match="two init hooks"):
        definition.init(lambda ctx: None)


async def yields_async(turn, ctx):
    yield "a"


def yields(turn, ctx):
    yield "a"


async def no_context(turn): ...


async def wants_more(turn, ctx, more): ...


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (no_context, r"a handler takes \(turn, ctx\), not \(turn\)"),
        (wants_more, r"a handler takes \(turn, ctx\), not \(turn, ctx, more\)"),
        (yields, "a handler returns, it does not yield; use turn.output.pipe"),
        (yields_async, "a handler returns, it does not yield; use turn.output.pipe"),
        ("text", "a handler is a function"),
    ],
)
def test_a_handler_that_no_turn_could_call_is_refused(wrong, said: str):
    with pytest.raises(AgentLoadError, match=f"Agent 'a': {said}"):
        agent("a")(wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(handler, r"takes \(ctx\), not \(turn, ctx\)"), (lambda: None, r"takes \(ctx\), not \(\)")],
)
def test_an_init_hook_that_no_process_could_call_is_refused(wrong, said: str):
    with pytest.raises(AgentLoadError, match=f"Agent 'a': an init hook {said}"):
        agent("a")(handler).init(wrong)


def test_whatever_takes_the_arguments_is_a_handler():
    for right in (lambda *_: None, lambda turn, ctx, more=1: None, functools.partial(wants_more, more=1)):
        definition = agent("a")(right)
        definition.init(lambda *_, **__: None)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def write(name: str, source: str) -> str:
        (tmp_path / f"{name}.py").write_text("from turnhold import agent\n" + source)
        return name

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


AGENT = "@agent({!r})\nasync def f{}(turn, ctx): ...\n"


def test_agents_are_found_in_the_working_directory(modules):
    name = modules("mine_one", AGENT.format("one", 1) + AGENT.format("two", 2))
    again = modules("mine_two", "from mine_one import f1\n" + AGENT.format("three", 3))
    assert list(load_agents([name, again])) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", r"faulty_\d+' \(/.*faulty_\d+\.py\) defines no Agent"),
        ("@agent\nasync def bare(turn, ctx): ...", "an Agent needs a name"),
        ("@agent('x')\nasync def x(turn): ...", r"module 'faulty_\d+': Agent 'x': a handler takes"),
        (AGENT.format("x", 1) + AGENT.format("x", 2), "two Agents are named 'x'"),
        (AGENT.format("Bad", 1), "bad Agent name"),
        ("import not_there", "cannot import .*not_there"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_what_cannot_be_loaded_says_so_in_one_line(modules, source: str, said: str):
    name = modules(f"faulty_{abs(hash(source))}", source)
    with pytest.raises(AgentLoadError, match=said) as caught:
        load_agents([name])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", ["my_agents.py", "./my_agents.py", "my_agents:reviewer", "/a/my_agents"])
def test_what_is_no_module_name_says_so(given: str):
    with pytest.raises(AgentLoadError, match=f"{given!r} is not a module name, such as my_agents"):
        load_agents([given])


def test_no_agents_at_all_is_one_warning(caplog: pytest.LogCaptureFixture):
    assert load_agents([]) == {}
    [line] = caplog.messages
    assert "TURNHOLD_AGENTS" in line


def test_two_modules_with_one_name_are_refused(modules):
    both = [modules("first_a", AGENT.format("x", 1)), modules("second_a", AGENT.format("x", 1))]
    with pytest.raises(AgentLoadError, match="in 'first_a' and 'second_a'"):
        load_agents(both)


def test_the_scripted_agent_loads():
    assert list(load_agents(["turnhold.scripted"])) == ["script"]


def test_s15_content_is_normalised_and_never_empty():
    assert output_of("") == ()
    assert output_of([TextPart(text="a"), {"type": "text", "text": "b"}, {"type": "text", "text": ""}]) == (
        TextPart(text="ab"),
    )
    assert output_of(["a", JsonPart(value=1)]) == (TextPart(text="a"), JsonPart(value=1))
    assert output_of({"type": "json", "value": {"a": (1, 2)}}) == (JsonPart(value={"a": [1, 2]}),)


@pytest.mark.parametrize(
    "content", ["\ud800", {"type": "json", "value": float("nan")}, {"type": "image"}, {"a": 1}, 7 * [3]]
)
def test_s15_what_is_not_content_raises(content):
    with pytest.raises(ValueError, match=r"."):
        output_of(content)


@pytest.mark.parametrize("content", [12, None, [3], {"a": 1}, {"type": "image"}, {"a", "b"}, b"x"])
def test_s15_what_is_not_content_is_told_what_is(content):
    with pytest.raises(ValueError, match=r"^content is text, a JsonPart, or a list of both"):
        output_of(content)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        object(),
        {1, 2},
        "\udfff",
        {"a": b"x"},
        pytest.param(10**5000, id="a number too long"),
    ],
)
def test_s14_what_is_not_json_raises(value):
    with pytest.raises(ValueError, match=r"."):
        clean_json(value)


def test_s14_json_nested_too_deeply_or_in_a_circle_raises():
    deep: list = []
    for _ in range(160):
        deep = [deep]
    circle: list = []
    circle.append(circle)
    bottomless: list = []
    for _ in range(100_000):
        bottomless = [bottomless]
    for value in (deep, circle, bottomless):
        with pytest.raises(ValueError, match=r"."):
            clean_json(value)


def test_s40_controls_are_checked():
    control = choice("yes", Option("no", "Never", {"n": 0}), multiple=True)
    assert [(o.id, o.label, o.value) for o in control.options] == [
        ("yes", "yes", "yes"),
        ("no", "Never", {"n": 0}),
    ]
    for wrong in ([], ["a", "a"], [""], ["x" * 129], [str(n) for n in range(101)]):
        with pytest.raises(ValueError, match=r"."):
            choice(*wrong)


def test_s41_a_reply_has_the_declared_values():
    control = choice("yes", Option("no", "Never", {"n": 0}))
    reply = Reply.of(control, Answer(selected=("no",)), None)
    assert (reply.selected, reply.values, reply.text) == (["no"], [{"n": 0}], None)
    assert Reply.of(text(), Answer(text="hm"), None).text == "hm"
