"""What may be asked of a person, and what answers it (S-40, S-41)."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from turnhold.session import limits
from turnhold.session.errors import Refused
from turnhold.session.values import Compact, Record

_QUOTED = 100  # characters of a wrong answer that are worth repeating


class Option(Compact):
    """One choice of an Ask."""

    id: str
    label: str
    value: JsonValue = None
    description: str | None = None


class TextControl(Record):
    type: Literal["text"] = "text"


class ChoiceControl(Record):
    type: Literal["choice"] = "choice"
    options: tuple[Option, ...]
    multiple: bool = False
    allow_text: bool = False


Control = Annotated[TextControl | ChoiceControl, Field(discriminator="type")]


class Answer(Compact):
    """What a person answered: text, or selected option IDs (with a custom text where allowed)."""

    text: str | None = None
    selected: tuple[str, ...] | None = None


def checked(control: Control, answer: Answer) -> Answer:
    """The answer as it is recorded, if the control allows it (S-41).

    Raises:
        Refused: `invalid_answer`.
    """
    if isinstance(control, ChoiceControl):
        return _checked_choice(control, answer)
    if answer.selected is not None:
        raise Refused("invalid_answer", "This Ask takes a text, no selection.")
    if not answer.text:
        raise Refused("invalid_answer", "This Ask takes a text that is not empty.")
    return Answer(text=_within(answer.text, limits.ASK_ANSWER_BYTES))


def _within(text: str, most: int) -> str:
    if len(text.encode("utf-8", "surrogatepass")) > most:
        raise Refused("invalid_answer", f"The text has more than {most} bytes.")
    return text


def _checked_choice(control: ChoiceControl, answer: Answer) -> Answer:
    declared = [option.id for option in control.options]
    selected = list(answer.selected or ())
    if answer.text is not None and not control.allow_text:
        raise Refused("invalid_answer", "This Ask takes no text.")
    unknown = [option for option in selected if option not in declared]
    if unknown:
        raise Refused("invalid_answer", f"This Ask has no option {unknown[0][:_QUOTED]!r}.")
    if len(set(selected)) != len(selected):
        raise Refused("invalid_answer", "An option is selected twice.")
    if selected != [option for option in declared if option in selected]:
        raise Refused("invalid_answer", "Selected options stand in the order in which they are declared.")
    if len(selected) > 1 and not control.multiple:
        raise Refused("invalid_answer", "This Ask takes one option.")
    text = _within(answer.text or "", limits.ASK_CUSTOM_TEXT_BYTES)
    if not selected and not text:
        raise Refused(
            "invalid_answer", "Select an option" + (", or say something." if control.allow_text else ".")
        )
    return Answer(text=text or None, selected=tuple(selected))
