"""How a request to a consumer group ends when it is refused."""

from __future__ import annotations

from coordination.kafka_codes import Code

MESSAGE_MAX = 1_000  # characters; what clients say in it may be as long as Kafka's strings can be


class GroupError(Exception):
    """The request is refused, and nothing of it takes effect. `message` goes to the client."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message if len(message) <= MESSAGE_MAX else f"{message[:MESSAGE_MAX]}…"
