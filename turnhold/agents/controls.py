"""Questions to people: what may be asked, and what comes back (S-40, S-41)."""

from dataclasses import dataclass, field

from pydantic import JsonValue

from turnhold.agents.content import clean_json, encodable
from turnhold.session import limits, questions
from turnhold.session.values import Origin


@dataclass(frozen=True)
class Option:
    """One choice. `label` and `value` are the `id` where they are not given."""

    id: str
    label: str | None = None
    value: JsonValue = None
    description: str | None = None

    def declared(self) -> questions.Option:
        """The option as it is recorded. Raises ValueError past a limit."""
        label = self.id if self.label is None else self.label
        for what, text, most in (
            ("id", self.id, limits.ASK_OPTION_ID_BYTES),
            ("label", label, limits.ASK_OPTION_LABEL_BYTES),
            ("description", self.description or "", limits.ASK_OPTION_DESCRIPTION_BYTES),
        ):
            if len(encodable(text).encode()) > most:
                raise ValueError(f"an option's {what} has at most {most} bytes")
        if not self.id:
            raise ValueError("an option needs an id")
        value = self.id if self.value is None else clean_json(self.value)[0]
        return questions.Option(id=self.id, label=label, value=value, description=self.description)


def choice(
    *options: str | Option, multiple: bool = False, allow_text: bool = False
) -> questions.ChoiceControl:
    """Ask for one of `options` (several with `multiple`), or with `allow_text` for a text instead.

    Raises ValueError for no options, too many, or two with one id.
    """
    declared = tuple((Option(o) if isinstance(o, str) else o).declared() for o in options)
    if not 1 <= len(declared) <= limits.ASK_OPTIONS:
        raise ValueError(f"a choice has 1 to {limits.ASK_OPTIONS} options")
    if len({option.id for option in declared}) < len(declared):
        raise ValueError("two options have the same id")
    return questions.ChoiceControl(options=declared, multiple=multiple, allow_text=allow_text)


def text() -> questions.TextControl:
    """Ask for text."""
    return questions.TextControl()


@dataclass(frozen=True)
class Reply:
    """What a person answered: `text`, or the `selected` option ids with their declared `values`."""

    text: str | None = None
    selected: list[str] = field(default_factory=list[str])
    values: list[JsonValue] = field(default_factory=list[JsonValue])
    answered_by: Origin | None = None

    @staticmethod
    def of(control: questions.Control, answer: questions.Answer, answered_by: Origin | None) -> "Reply":
        options = control.options if isinstance(control, questions.ChoiceControl) else ()
        declared = {option.id: option.value for option in options}
        selected = list(answer.selected or ())
        return Reply(answer.text, selected, [declared.get(id) for id in selected], answered_by)
