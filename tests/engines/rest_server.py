"""Another catalog: Iceberg's own REST server over its JDBC catalog (SQLite); and a gate before it.

The server asks nobody for credentials and takes no `overwrite`; the gate does both, as servers in use do.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pyspark
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deploy.setup import jars
from deploy.setup.java import java_home
from tests.engines.kit import FROM_SPARK
from tests.equipment.listening import listening

MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
CATALOG = "there"
"""The catalog's name in its database."""
METHODS = ["GET", "HEAD", "POST", "DELETE"]


@asynccontextmanager
async def other_catalog(folder: Path) -> AsyncIterator[str]:
    """The server with its database in `folder`; gives its URL."""
    found = await asyncio.to_thread(jars.ensure, "rest")
    spark = Path(pyspark.__file__).parent / "jars"
    hadoop = [each for name in FROM_SPARK for each in spark.glob(f"{name}-*.jar")]
    port = free_port()
    given = {
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_WAREHOUSE": f"file://{folder}/others",
        "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_CATALOG_NAME": CATALOG,
        "CATALOG_REST_PORT": str(port),
    }
    process = await asyncio.create_subprocess_exec(
        str(java_home() / "bin" / "java"),
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"),
        *("-cp", os.pathsep.join(str(each) for each in [*found, *hadoop]), MAIN),
        env={**os.environ, **given},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await _up(url, process)
        yield url
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _up(url: str, process: asyncio.subprocess.Process) -> None:
    async with httpx.AsyncClient() as client:
        while process.returncode is None:
            with suppress(httpx.TransportError):
                if (await client.get(f"{url}/v1/config")).is_success:
                    return
            await asyncio.sleep(0.1)
    raise AssertionError(f"{MAIN} ended with {process.returncode}")


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@dataclass
class Gate:
    """What stands before a server. `secret`: of the only client; `tokens`: that it has given and takes.

    `overwrites`: a register of a name that is there is done, as one step for those who come by the gate.
    `status`: what every request is answered, where it is not 0. `seen`: requests as `METHOD path`.
    """

    behind: str
    secret: str = ""
    overwrites: bool = False
    status: int = 0
    tokens: set[str] = field(default_factory=set)
    seen: list[str] = field(default_factory=list)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, request: Request) -> Response:
        """One request."""
        path = request.url.path
        self.seen.append(f"{request.method} {path}")
        if self.status:
            return _error(self.status, "the gate is closed")
        if self.secret and path == "/v1/oauth/tokens":
            return await self._token(request)
        if self.secret and request.headers.get("authorization", "")[len("Bearer ") :] not in self.tokens:
            return _error(401, "no such token", "NotAuthorizedException")
        async with self._one, httpx.AsyncClient() as client:
            return await self._passed_on(client, request)

    async def _token(self, request: Request) -> Response:
        form = dict(each.split("=", 1) for each in (await request.body()).decode().split("&"))
        if (form.get("client_id"), form.get("client_secret")) != ("floe", self.secret):
            return JSONResponse({"error": "invalid_client", "error_description": "unknown client"}, 401)
        token = f"token-{len(self.seen)}"
        self.tokens.add(token)
        return JSONResponse({"access_token": token, "token_type": "bearer", "expires_in": 3600})

    async def _passed_on(self, client: httpx.AsyncClient, request: Request) -> Response:
        content = await request.body()
        url = f"{self.behind}{request.url.path}"
        headers = {"content-type": "application/json"}
        if self.overwrites and url.endswith("/register") and b'"overwrite": true' in content:
            content = content.replace(b'"overwrite": true', b'"overwrite": false')
            name = content.split(b'"name": "')[1].split(b'"')[0].decode()
            await client.delete(f"{url.removesuffix('register')}tables/{name}?purgeRequested=false")
        found = await client.request(
            request.method, url, params=dict(request.query_params), content=content, headers=headers
        )
        return Response(found.content, found.status_code, media_type="application/json")


def _error(status: int, message: str, kind: str = "ServiceFailureException") -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status)


@asynccontextmanager
async def gated(gate: Gate, port: int = 0) -> AsyncIterator[str]:
    """Serve the gate on a port (0: a free one); gives its URL."""
    async with listening([Route("/{path:path}", gate.answer, methods=METHODS)], port) as url:
        yield url
