"""The documents say what the code does, where a machine can tell."""

import re
from pathlib import Path

import pytest

from turnhold.agents.definition import load_agents
from turnhold.scripted import STEPS
from turnhold.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_readme_lists_every_setting_with_its_meaning() -> None:
    rows = dict(re.findall(r"^\| `TURNHOLD_(\w+)` \| [^|]* \| (.+) \|$", README, re.MULTILINE))
    assert rows == {name.upper(): field.description for name, field in Settings.model_fields.items()}


@pytest.mark.parametrize(
    ("name", "shown"),
    re.findall(r"^\| `TURNHOLD_(\w+)` \| `([^`]*)` \|", README, re.MULTILINE),
)
def test_the_readme_shows_the_defaults(name: str, shown: str) -> None:
    default = Settings.model_fields[name.lower()].default
    told = ",".join(default) if isinstance(default, tuple) else str(default)
    assert told.lower() == shown


def test_every_link_in_the_documents_leads_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_every_step_of_the_scripted_agent_is_described() -> None:
    described = (ROOT / "docs/scripted-agent.md").read_text()
    assert [step for step in STEPS if f"`{step}" not in described] == []


def test_the_examples_load() -> None:
    loaded = load_agents(("examples.notebook", "examples.research_team"))
    assert set(loaded) == {"notebook", "lead", "researcher"}


def test_no_nullable_field_of_a_record_defaults_to_something_else() -> None:
    """What is null does not travel, so it must read back as null (`Record`)."""
    import turnhold.session.carried
    import turnhold.session.events
    import turnhold.session.views  # noqa: F401
    from turnhold.session.values import Record

    def every(kind: type[Record]) -> list[type[Record]]:
        return [kind, *(below for child in kind.__subclasses__() for below in every(child))]

    wrong = [
        f"{kind.__name__}.{name}"
        for kind in every(Record)
        for name, field in kind.model_fields.items()
        if type(None) in getattr(field.annotation, "__args__", ())
        and field.default is not None
        and not field.is_required()
    ]
    assert wrong == []
