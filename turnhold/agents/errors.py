"""What an Agent's author may meet or raise.

::

    AgentLoadError     the Agents cannot be loaded: one line that says why
    MessageRejected    raised by a message handler to reject its message
    AskCancelled       raised by `turn.ask`: nobody will answer any more
    Refused            raised by `ctx.sessions`: the call was judged and refused; has a `.code`
"""

from turnhold.session.errors import Refused

__all__ = ["AgentLoadError", "AskCancelled", "MessageRejected", "Refused"]


class AgentLoadError(Exception):
    """An Agent module cannot be imported, defines nothing, or defines it wrongly. One line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class MessageRejected(Exception):
    """Raise it in a message handler: the message ends rejected for `reason` (S-32)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AskCancelled(Exception):
    """The Ask was cancelled for `reason`: `timeout`, or `close` of the Session (S-42)."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the question was cancelled: {reason}")
        self.reason = reason
