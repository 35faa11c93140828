"""Requests to the schema registry in one line each, for its tests."""

from __future__ import annotations

import json
from typing import Any

import httpx

from agent.http.registry.errors import CONTENT_TYPE

A = 'syntax = "proto3"; message A { int32 a = 1; }'
A2 = 'syntax = "proto3"; message A { int32 a = 1; string b = 2; }'
A3 = 'syntax = "proto3"; message A { int32 a = 1; string b = 2; string c = 3; }'
BROKEN = 'syntax = "proto3"; message A { string a = 1; }'
USES = 'syntax = "proto3"; import "a.proto"; message B { A a = 1; }'


class Registry:
    """Requests in one line; each says which status it expects, by default 200."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def ask(self, method: str, path: str, body: object = None, code: int = 200) -> Any:
        """The JSON of an answer; of an error it must be Confluent's shape and code."""
        answer = await self.client.request(method, path, content=None if body is None else json.dumps(body))
        assert answer.headers["content-type"].startswith(CONTENT_TYPE), answer.text
        assert answer.status_code == int(str(code)[:3]), answer.text
        if code != 200:
            assert answer.json().keys() == {"error_code", "message"}
            assert answer.json()["error_code"] == code, answer.text
        return answer.json()

    async def get(self, path: str, code: int = 200) -> Any:
        return await self.ask("GET", path, None, code)

    async def register(self, subject: str, text: str, code: int = 200, query: str = "", **more: Any) -> Any:
        body = {"schema": text, "schemaType": "PROTOBUF", **more}
        return await self.ask("POST", f"/subjects/{subject}/versions{query}", body, code)

    async def look_up(self, subject: str, text: str, code: int = 200, query: str = "", **more: Any) -> Any:
        body = {"schema": text, "schemaType": "PROTOBUF", **more}
        return await self.ask("POST", f"/subjects/{subject}{query}", body, code)

    async def delete(self, path: str, code: int = 200) -> Any:
        return await self.ask("DELETE", path, None, code)

    async def put(self, path: str, code: int = 200, **body: Any) -> Any:
        return await self.ask("PUT", path, body, code)


def reference(subject: str, version: int, name: str = "a.proto") -> dict[str, object]:
    return {"name": name, "subject": subject, "version": version}
