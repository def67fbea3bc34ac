"""Whether a Session's run can take more: Temporal is asked as rarely as that can be told."""

import asyncio

from turnhold.session import limits
from turnhold.temporal.calls import Mark
from turnhold.temporal.failures import Failure
from turnhold.temporal.room import Rooms

SESSION = "ses_room00000000"


class Temporal:
    """Answers with this length of the history, after a moment; None: it is away."""

    def __init__(self, length: int | None) -> None:
        self.length = length
        self.asked = 0

    async def mark(self, session_id: str) -> Mark:
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.length is None:
            raise Failure("temporal_unavailable", "Temporal is away.")
        return Mark("run", self.length)


async def test_s95_many_at_once_share_one_question() -> None:
    temporal = Temporal(10)
    rooms = Rooms(temporal.mark)
    await asyncio.gather(*(rooms.check(SESSION) for _ in range(20)))
    await rooms.check(SESSION)
    assert temporal.asked == 1


async def test_s95_a_long_run_is_busy_until_a_worker_answers() -> None:
    temporal = Temporal(limits.BUSY_EVENTS + 1)
    rooms = Rooms(temporal.mark)
    refused = await asyncio.gather(*(rooms.check(SESSION) for _ in range(3)), return_exceptions=True)
    assert [failure.code for failure in refused if isinstance(failure, Failure)] == ["session_busy"] * 3
    rooms.answered(SESSION)
    await rooms.check(SESSION)
    assert temporal.asked == 1


async def test_who_goes_away_does_not_take_the_question_along() -> None:
    temporal = Temporal(10)
    rooms = Rooms(temporal.mark)
    first = asyncio.create_task(rooms.check(SESSION))
    second = asyncio.create_task(rooms.check(SESSION))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert temporal.asked == 1


async def test_a_failure_reaches_all_who_ask_and_is_not_kept() -> None:
    temporal = Temporal(None)
    rooms = Rooms(temporal.mark)
    failed = await asyncio.gather(*(rooms.check(SESSION) for _ in range(2)), return_exceptions=True)
    assert [type(failure) for failure in failed] == [Failure, Failure]
    temporal.length = 10
    await rooms.check(SESSION)
    assert temporal.asked == 2
