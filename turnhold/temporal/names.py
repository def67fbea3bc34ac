"""The names under which Sessions appear in Temporal: they are contracts, and never change."""

WORKFLOW = "Session"
QUERY_READ = "read"

SIGNAL_REPORT = "report"
SIGNAL_SPAWN = "spawn"
SIGNAL_OWNER_STATE = "owner_state"
SIGNAL_OWNED = "owned"

START_PROCESS = "start_process"
RUN_TURN = "run_turn"
STOP_TURN = "stop_turn"
STOP_PROCESS = "stop_process"
DELIVER_MESSAGE = "deliver_message"
ANSWER_ASK = "answer_ask"
FIND_TURN = "find_turn"
SEAL = "seal"
SET_ASIDE = "set_aside"
FETCH = "fetch"

STORE_FAILED = "store_failed"
"""`ApplicationError` type: the store does not answer, or refuses."""

START_SESSION = "start_session"
MADE_BY = "made_by"
ENDED_SESSIONS = "ended_sessions"

MEMO_SESSION = "turnhold"
"""Memo key: what creation decided (`creation.Creation`), so that a retry needs no worker."""

MEMO_LATEST = "turnhold_latest"
"""Memo key: what the workflow adds for lists (`creation.Latest`)."""


def host_queue(task_queue: str, host_id: str) -> str:
    """The task queue that one host alone polls."""
    return f"{task_queue}-host-{host_id}"


def unversioned_queue(task_queue: str) -> str:
    """The task queue of what any worker of Sessions does, of whatever version: the store, other Sessions."""
    return f"{task_queue}-unversioned"


def folder_of(session_id: str, first_run_id: str) -> str:
    """The Session's folder in the store: an ID that is used anew, long after, gets another one."""
    return f"{session_id}/{first_run_id}"


ATTRIBUTE_AGENT = "TurnholdAgent"
ATTRIBUTE_STATUS = "TurnholdStatus"
ATTRIBUTE_KEY = "TurnholdKey"
ATTRIBUTE_PARENT = "TurnholdParent"
ATTRIBUTE_ROOT = "TurnholdRoot"
ATTRIBUTE_ENVIRONMENT = "TurnholdEnvironment"
ATTRIBUTE_HELD = "TurnholdHeld"
ATTRIBUTE_ASKING = "TurnholdAsking"
ATTRIBUTE_LAST_ACTIVITY = "TurnholdLastActivity"

SEARCH_ATTRIBUTES = {
    ATTRIBUTE_AGENT: "Keyword",
    ATTRIBUTE_STATUS: "Keyword",
    ATTRIBUTE_KEY: "Keyword",
    ATTRIBUTE_PARENT: "Keyword",
    ATTRIBUTE_ROOT: "Keyword",
    ATTRIBUTE_ENVIRONMENT: "Keyword",
    ATTRIBUTE_HELD: "Bool",
    ATTRIBUTE_ASKING: "Bool",
    ATTRIBUTE_LAST_ACTIVITY: "Datetime",
}
"""Name to Temporal type; `turnhold setup` registers them in the namespace."""
