"""One JVM with Kafka's jars, driven from Python: Java's clients object by object, and Kafka's tools.

A JVM takes longer to start than most tools to run, so all of them share one: `tool` calls a tool's main
with standard input, output and exit turned into values.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyspark
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

from deploy.services import guardian
from deploy.services.kafka import TOOLS, classpath
from deploy.setup.java import java_home

HEAP = "512m"
OPTIONS = [f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# It logs every exit of a tool, which is an exception of ours.
logging.getLogger("py4j").setLevel(logging.CRITICAL)
UNWOUND = "An exception was raised by the Python Proxy"


class _Exit(Exception):
    """Raised through Java's frames where a tool would end the JVM."""


class _ExitProcedure:
    """org.apache.kafka.common.utils.Exit.Procedure: remembers the status and unwinds the tool."""

    def __init__(self) -> None:
        self.status: int | None = None

    def execute(self, status: int, message: str | None) -> None:
        """What Exit.exit calls."""
        if self.status is None:
            self.status = status
        raise _Exit(status, message)

    class Java:
        implements = ("org.apache.kafka.common.utils.Exit$Procedure",)


@dataclass(frozen=True)
class Said:
    """A tool that ended: its exit status and what it printed."""

    status: int
    out: str
    err: str


class Jvm:
    """`with Jvm() as jvm: jvm.kafka.clients.producer.KafkaProducer(…)`; `tool` may be called from one thread
    at a time."""

    def __init__(self, extra_classpath: str = "") -> None:
        self._extra = extra_classpath
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
        port, process = launch_gateway(
            classpath=os.pathsep.join(filter(None, (classpath(), self._extra))),
            jarpath=str(jar),
            java_path=str(java_home() / "bin" / "java"),
            javaopts=OPTIONS,
            die_on_exit=True,
            return_proc=True,
        )
        guardian.guard(process.pid)
        self._process = process
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auto_convert=True),
            callback_server_parameters=CallbackServerParameters(port=0, daemonize=True),
        )
        server = self.gateway.java_gateway_server
        callback = self.gateway.get_callback_server().get_listening_port()
        server.resetCallbackClient(server.getCallbackClient().getAddress(), callback)
        self.java = self.gateway.jvm.java
        self.kafka = self.gateway.jvm.org.apache.kafka
        self._redirect()
        return self

    def __exit__(self, *_: object) -> None:
        self.gateway.shutdown()
        self._process.stdin.close()
        self._process.wait(10)
        guardian.release(self._process.pid)

    def _redirect(self) -> None:
        """Scala's console keeps the stream it finds first, so the streams are set once."""
        streams, system = self.java.io, self.java.lang.System
        self._out, self._err = streams.ByteArrayOutputStream(), streams.ByteArrayOutputStream()
        system.setOut(streams.PrintStream(self._out, True, "UTF-8"))
        system.setErr(streams.PrintStream(self._err, True, "UTF-8"))

    def tool(self, name: str, *arguments: str, stdin: str = "") -> Said:
        """Run one of Kafka's tools to its end."""
        with self._lock:
            exits, exit_class = _ExitProcedure(), self.kafka.common.utils.Exit
            exit_class.setExitProcedure(exits)
            exit_class.setHaltProcedure(exits)
            self._out.reset()
            self._err.reset()
            self.java.lang.System.setIn(self.java.io.ByteArrayInputStream(stdin.encode()))
            main = self.gateway.jvm
            for part in TOOLS[name].split("."):
                main = getattr(main, part)
            failure = ""
            try:
                main.main(self.array("java.lang.String", arguments))
            except Py4JError as error:
                failure = "" if exits.status is not None else str(error)
            status = exits.status if exits.status is not None else int(bool(failure))
            # Some tools print what they caught on the way out, our own exception among it.
            err = self._err.toString("UTF-8").partition(UNWOUND)[0]
            return Said(status, self._out.toString("UTF-8"), err + failure)

    def array(self, of: str, values: Any) -> Any:
        """A Java array."""
        found: Any = self.gateway.jvm
        for part in of.split("."):
            found = getattr(found, part)
        values = list(values)
        made = self.gateway.new_array(found, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def properties(self, values: Mapping[str, object]) -> Any:
        """java.util.Properties, all of it text."""
        made = self.java.util.Properties()
        for key, value in values.items():
            made.setProperty(key, str(value))
        return made
