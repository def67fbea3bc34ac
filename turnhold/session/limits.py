"""Every limit of a Session, its reason, and the wall it sits under.

Temporal's own walls: 51,200 events or 50 MiB a run, 10,000 signals a run, 2 MiB a payload
(what continue-as-new carries is one payload), 4 MiB a gRPC message.
"""

KIB = 1024
MIB = 1024 * KIB

# --- what a caller may send -------------------------------------------------------------------
CONTENT_BYTES = 256 * KIB  # one input, message or response, encoded; far under the 2 MiB payload
CONTENT_PARTS = 64
SESSION_KEY_CHARS = 200  # a Keyword search attribute holds 255
METADATA_PAIRS = 16
METADATA_KEY_CHARS = 64
METADATA_VALUE_CHARS = 512
IDEMPOTENCY_KEY_CHARS = 255
REQUEST_BODY_BYTES = 1 * MIB  # an input of 256 KiB, every character escaped, and its envelope

# --- queue, holds, people ------------------------------------------------------------------------
QUEUE_LIMIT = 1_000  # default and ceiling of `queue_limit`
HOLDS = 100
OPEN_MESSAGES = 100  # a Turn
PENDING_ASKS = 10  # a Turn
PENDING_ASKS_BYTES = 512 * KIB  # of one Turn, encoded: a run hands them on whole, in one payload
ASK_PROMPT_BYTES = 256 * KIB
ASK_ANSWER_BYTES = 64 * KIB  # a text
LATE_ANSWER_SECONDS = 1.0  # an answer that no worker took for so long: its Turn's host may be gone
ASK_OPTIONS = 100
ASK_OPTION_ID_BYTES = 128
ASK_OPTION_LABEL_BYTES = 256
ASK_OPTION_DESCRIPTION_BYTES = 2 * KIB
ASK_CUSTOM_TEXT_BYTES = 8 * KIB  # beside a choice, or in its place

# --- what a handler may produce ------------------------------------------------------------------
RESULT_BYTES = 256 * KIB
STATE_BYTES = 256 * KIB  # the conversation's committed state
TURN_OUTPUT_BYTES = 8 * MIB  # cumulative output and asks of one Turn, S-15
OUTPUT_FRAGMENT_BYTES = 1 * MIB  # one fragment, encoded: it travels in one signal and is never split
REPORT_BYTES = 256 * KIB  # what a host gathers before it sends a report early
ERROR_MESSAGE_CHARS = 2_000

# --- processes -------------------------------------------------------------------------------------
FAILURES_BEFORE_HOLD = 3
BACKOFF_SECONDS = (1.0, 2.0)  # after the first and the second counted failure in a row
DISPATCH_SECONDS = 4.0  # schedule-to-start of a Turn's first dispatch: a live host polls within it
ATTACH_SECONDS = 8.0  # the second try: pollers need this long to come back after an outage or a pause
HEARTBEAT_TIMEOUT_SECONDS = 5.0  # with the attach after it, a killed host is given up within 15 s (S-24)
HEARTBEAT_SECONDS = 2.0
RUN_TURN_SECONDS = 30 * 86_400.0
STOP_DEADLINE_RANGE = (0.1, 300.0)

# --- ownership -------------------------------------------------------------------------------------
MAX_DEPTH = 8
OPEN_OWNED = 100
SPAWNS = 4_000  # in a Session's life, since no spawn key is forgotten: 140 KiB of what a run carries
STARTING_BYTES = 256 * KIB  # inputs of Sessions that are being started; past it `session_busy`
LOOK_FOR_OWNED_SECONDS = 90.0  # one that was terminated is noticed within two minutes (S-75)
LOOK_FOR_OWNER_SECONDS = (60.0, 900.0)  # while it holds this Session: a quarter of the hold's age

# --- receipts ----------------------------------------------------------------------------------------
RECEIPT_SECONDS = 24 * 3600  # an accepted command is remembered at least this long …
RECEIPTS_KEPT = 2_000  # … and at least the last so many
OUTCOME_SECONDS = 15 * 60  # every outcome can be read by its request ID at least this long
RECEIPTS_MAX = 2_500  # accepted commands that may not be forgotten yet: past it, `session_busy`
OUTCOMES_MAX = 1_000  # rejections and replays that a run hands on; the newest

# --- a run, and where it is full -----------------------------------------------------------------------
RUN_EVENTS = 51_200  # Temporal ends a workflow there
RUN_BYTES = 50 * MIB  # likewise
RUN_SIGNALS = 10_000  # past it Temporal refuses every signal, a cancel too
ROLL_OVER_EVENTS = 1_000  # then the next run begins: a worker that meets a run anew replays it all
BUSY_EVENTS = 3_000  # without a worker; it then has to take them all in one task of five seconds

# --- the state: what a run carries into the next, one payload of at most 2 MiB -----------------------
CARRIED_BYTES = 1 * MIB  # all of it; a run is not left while there is more (the store is behind)
RECEIPTS_BYTES = 320 * KIB  # 2,500 receipts
QUEUED_SHARE_BYTES = 256 * KIB  # Turns that wait or run, and open messages: always theirs …
QUEUED_BYTES = 704 * KIB  # … and as much while the rest of the state is small; past it `session_busy`
SPARE_BYTES = 128 * KIB  # … small enough to leave this for holds, questions, and what a Turn writes
TURN_BYTES = 256  # what a queued Turn, or a message, takes beside its content
ASIDE_AT_BYTES = 128 * KIB  # inputs behind the next one: past this they are written to the store …
ASIDE_KEPT_BYTES = 64 * KIB  # … without those that run soonest …
ASIDE_LEAST_BYTES = 16 * KIB  # … and past this where one more of the largest size would not fit
ASIDE_SMALLEST_BYTES = 256  # a smaller input stays: as much is left of its Turn
TAIL_BYTES = 256 * KIB  # events that are not in the store; past it no further Turn begins
TAIL_SEALED_AT_BYTES = 128 * KIB  # … past this they are written to the store, without the newest
TAIL_KEPT_BYTES = 32 * KIB  # … which are read most
SETTLED_BYTES = 192 * KIB  # the same of settled Turns
SETTLED_SEALED_AT_BYTES = 64 * KIB
SETTLED_KEPT_BYTES = 16 * KIB
SEAL_BYTES = 1 * MIB  # events and Turns that are sealed at once; they travel in one payload
RECORD_BESIDE_BYTES = 512 * KIB  # … so many beside the last record, which is a state
SEGMENTS_MARKED = 200  # where retention may cut; past it every second one is forgotten
ENTRY_BYTES = 8  # what JSON needs around an entry

# --- pages -------------------------------------------------------------------------------------------
PAGE_RECORDS = 1_000
PAGE_BYTES = 1 * MIB
TURN_PAGE = 100
MAX_CURSOR = 2**53 - 1
