"""From a decoded header to a handler and back to bytes: one request at a time, errors told apart.

A request that cannot be decoded, an API or version without a handler, and a handler's own failure end the
connection (agent/net/server.py): there is no answer that every client would understand; Kafka does the same.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, NamedTuple

from agent.kafka.context import Client, Context, Services
from agent.kafka.fetch.redirect import BINDING, LIBRDKAFKA
from agent.kafka.guards import guarded
from agent.kafka.handlers import HANDLERS, Handler
from agent.kafka.order import DROPPED, FETCH, KINDS, LARGE, UNHEARD, Kind, Unheard
from agent.kafka.produce.firsts import Firsts
from agent.kafka.quotas.metering import Metering
from agent.kafka.repeats import Repeats
from agent.net.listening import ConnectionInfo, RequestContext
from agent.net.wire.api import API_VERSIONS, APIS, PRODUCE, Codec, Encoded
from agent.net.wire.errors import WireError
from agent.net.wire.frame import BadVersion, RequestHeader, UnknownApi
from agent.net.wire.primitives import Buffer

DECODED_HERE_BYTES_MAX = 128 * 1024
"""Larger bodies are decoded in a thread: 50,000 partitions of a ListOffsets (850 kB) take 11 to 18 ms. A
Produce is decoded at once, whatever its size: nearly all of it are records, which nobody looks at there."""


class _Served(NamedTuple):
    """What answering one API takes, looked up once."""

    handler: Handler
    codec: Codec
    first: int
    last: int


class Paused(WireError):
    """The request was sent before this process was paused: whoever sent it has given up."""


class Dispatcher:
    """Answers requests with the handlers of `agent.kafka.handlers`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._served = {
            key: _Served(handler, APIS[key].codec(), *handler.VERSIONS) for key, handler in HANDLERS.items()
        }
        self._pauses = 0
        self.repeats = Repeats(services, self._awake)
        services.replica.on_wake.append(self._woke)

    async def __call__(
        self, context: RequestContext, header: RequestHeader, body: memoryview
    ) -> list[Buffer] | None:
        """The server's Dispatch: knows the connection by the session it keeps there, and keeps its order."""
        connection = context.connection
        awake = self._services.replica.check_awake()
        if connection.session is None:
            firsts = Firsts(self._services.config.produce)
            connection.session = Client(
                connection.id,
                connection.listener,
                firsts,
                self._pauses,
                connection.peer_host,
                login=self._services.logins.of(connection.listener),
                principal=connection.principal,
                welcome=connection.welcome,
                mute=connection.mute,
            )
            connection.on_lost = connection.session.turns.close
            connection.again = partial(self.repeats.again, connection, connection.session)
        client: Client = connection.session
        connection.metered = bool(self._services.replica.state.quotas.entities)
        self._check_awake(client, awake)
        kind = KINDS.get(header.api_key, Kind.READ)
        if kind is Kind.COMMIT and len(body) > DECODED_HERE_BYTES_MAX:
            kind = Kind.WRITE  # decoded in a thread: a smaller one behind it must not pass it there
        waited = not (context.has_turn or client.turns.at_once(kind))
        if waited:
            await client.turns.wait(kind)
        try:
            waited |= header.api_key in LARGE and await self._has_room(connection, client, kind)
            if waited:
                self._check_awake(client, self._services.replica.check_awake())
            return await self._in_turn(context, client, header, body)
        except BaseException as error:
            answered = header.api_key == API_VERSIONS and isinstance(error, BadVersion)
            if not answered and not _nobody_listens(client, kind, error):
                client.turns.fail()
            raise
        finally:
            client.turns.end()

    async def _has_room(self, connection: ConnectionInfo, client: Client, kind: Kind) -> bool:
        """Wait until the client has taken enough of its answers; whether it had to be waited for."""
        waited = False
        while (room := connection.room()) is not None:
            await room
            waited = True
        if waited and client.turns.closed and kind in DROPPED:
            raise Unheard(UNHEARD)
        return waited

    def _check_awake(self, client: Client, awake: bool) -> None:
        """Raise Paused for what was sent before a pause that is over; so was what is behind it."""
        if not awake or client.pauses != self._pauses:
            client.turns.fail()
            raise Paused("sent before this process was paused")

    async def _in_turn(
        self, context: RequestContext, client: Client, header: RequestHeader, body: memoryview
    ) -> list[Buffer] | None:
        """Answer, once everything that came before on the connection has its effects."""
        connection = context.connection
        if client.login is not None and (refusal := client.login.refusal(header.api_key)):
            raise WireError(refusal)
        client.software = connection.software_name
        if BINDING in connection.software_version:  # librdkafka's bindings put their own name first
            client.software = LIBRDKAFKA
        before = client.stamp
        if header.api_key == API_VERSIONS and connection.only_api_versions:
            client.stamp = self._services.replica.state.revision
        answer = await self.answer(client, header, body, context)
        if client.stamp != before:  # what has been read by now was not sent after this answer
            client.stamped = connection.requests
        return answer

    async def answer(
        self, client: Client, header: RequestHeader, body: memoryview, asked: RequestContext | None = None
    ) -> list[Buffer] | None:
        """The response's body; None when the client expects no answer. `asked`: where it came over a socket.

        Raises WireError when the connection must be closed. Admission of Produce happens before the first
        await that lets another request of the same connection run.
        """
        served = self._served.get(header.api_key)
        if served is None:
            raise UnknownApi(f"API key {header.api_key} (version {header.api_version}) is not served")
        version = header.api_version
        if not served.first <= version <= served.last:
            raise BadVersion(APIS[header.api_key], version, header.correlation_id)
        if header.api_key == PRODUCE or len(body) <= DECODED_HERE_BYTES_MAX:
            request = served.codec.decode_request(body, version)
        else:
            request = await asyncio.to_thread(served.codec.decode_request, body, version)
            self._check_awake(client, self._services.replica.check_awake())
        context = Context(self._services, client, header.client_id)
        if asked is not None:
            context.waited_s = asked.waited_s
        if asked is None or asked.number > client.stamped:
            context.stamp = client.stamp
        if self._services.replica.state.quotas.entities:
            return await self._metered(context, served, header, request, len(body))
        response = await guarded(context, header.api_key, served.handler, request, version)
        if isinstance(response, Encoded):
            return response.buffers
        answer = None if response is None else served.codec.encode_response(response, version)
        if header.api_key == FETCH and asked is not None and answer is not None:
            self.repeats.remember(context, header, asked.frame, answer)
        return answer

    async def _metered(
        self, context: Context, served: _Served, header: RequestHeader, request: Any, size: int
    ) -> list[Buffer] | None:
        """Answer while there are quotas (agent/kafka/quotas)."""
        quotas, client, version = self._services.quotas, context.client, header.api_version
        context.charge = charge = quotas.charge(client.principal, header.client_id)
        now = quotas.clock.monotonic
        metering = Metering(charge, header.api_key, version, served.codec, now, client.mute)
        metering.begin(request, size)
        unanswered = header.api_key == PRODUCE and request.acks == 0
        handled = guarded(context, header.api_key, served.handler, request, version)
        return await metering.handle(handled, unanswered)

    def _awake(self, client: Client) -> bool:
        """Whether this process has not paused since the client's connection was first seen."""
        return self._services.replica.check_awake() and client.pauses == self._pauses

    def _woke(self) -> None:
        self._pauses += 1


def _nobody_listens(client: Client, kind: Kind, error: BaseException) -> bool:
    """Whether a request ended for its connection's end alone: writes that came whole behind it go on."""
    ended = isinstance(error, asyncio.CancelledError | Unheard)
    return ended and client.turns.closed and kind in DROPPED
