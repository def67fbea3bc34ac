"""The one plugin that the API, workers, the replayer and tests share, so that they cannot drift."""

from typing import Any

from pydantic_core import to_json
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
)
from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner


class CompactJSON(PydanticJSONPlainPayloadConverter):
    """Pydantic's JSON without the fields that are `None`.

    A third of a history would be nulls otherwise. Only fields of models drop, and read back as
    their defaults; an entry of a plain mapping that is `None` is data, and stays.
    """

    def to_payload(self, value: Any) -> Payload:
        return Payload(metadata={"encoding": self.encoding.encode()}, data=to_json(value, exclude_none=True))


_CONVERTERS = tuple(
    CompactJSON() if isinstance(converter, JSONPlainPayloadConverter) else converter
    for converter in DefaultPayloadConverter.default_encoding_payload_converters
)


class PayloadConverter(CompositePayloadConverter):
    """Temporal's own converters, with `CompactJSON` in the place of plain JSON.

    The SDK makes one of these for every workflow task and query; what is in it is made once.
    """

    def __init__(self) -> None:
        super().__init__(*_CONVERTERS)


DATA_CONVERTER = DataConverter(payload_converter_class=PayloadConverter)

PLUGIN = SimplePlugin(
    "turnhold",
    data_converter=DATA_CONVERTER,
    workflow_runner=UnsandboxedWorkflowRunner(),  # decision 15
)
