"""What workers count of Sessions, for all of them together: no Session has a series of its own.

How much of its walls each run had used when it ended shows that one comes near before a Session
meets it (S-95). Nothing is counted in a replay.
"""

from collections.abc import Sequence

from temporalio import workflow

from turnhold.session import headroom, limits, sealing
from turnhold.session.model import SessionState

REFUSED = "turnhold_commands_refused"
EVENTS = "turnhold_run_history_events"
BYTES = "turnhold_run_history_bytes"
SIGNALS = "turnhold_run_signals"
STATE_BYTES = "turnhold_session_state_bytes"

BUCKETS: dict[str, Sequence[float]] = {
    EVENTS: [100, 500, 1_000, 2_000, limits.BUSY_EVENTS, 6_000, 16_000, 32_000, limits.RUN_EVENTS],
    BYTES: [size * limits.MIB for size in (0.125, 0.5, 1, 2, 4, 8, 16, 32)] + [limits.RUN_BYTES],
    SIGNALS: [10, 100, 500, 1_000, 2_000, 4_000, 6_000, 8_000, limits.RUN_SIGNALS],
    STATE_BYTES: [size * limits.KIB for size in (16, 64, 128, 256, 512, 768, 896)] + [limits.CARRIED_BYTES],
}
"""Of each histogram; the last bound is the wall."""


def run_ended(state: SessionState, used: headroom.Used) -> None:
    """A run of a Session ends: what it has used up, and what the next one is handed."""
    meter = workflow.metric_meter().with_additional_attributes({"agent": state.agent})
    measured = {
        EVENTS: (used.events, "History events of a run of a Session when it ended."),
        BYTES: (used.bytes, "Bytes of that run's history."),
        SIGNALS: (used.signals, "Signals which that run had taken."),
        STATE_BYTES: (sealing.carried_bytes(state), "Bytes of the Session's state at the end of a run."),
    }
    for name, (value, description) in measured.items():
        meter.create_histogram(name, description).record(value)


def judged(state: SessionState, request_id: str) -> None:
    """A command has been judged; those that were refused are counted by their code."""
    outcome = state.outcomes.get(request_id)
    if outcome is not None and outcome.rejection is not None:
        meter = workflow.metric_meter().with_additional_attributes({"code": outcome.rejection.code})
        meter.create_counter(REFUSED, "Commands that Sessions refused.").add(1)
