"""A process that speaks to etcd can start others by fork and exec, as Spark's launcher does."""

from __future__ import annotations

import os
import subprocess
import sys

FORKS = 200  # without the setting 2 to 3 of 100 children die
SCRIPT = f"""
import asyncio, subprocess, threading
import coordination.etcd
import grpc

async def call():
    async with grpc.aio.insecure_channel("127.0.0.1:9") as channel:
        try:
            await channel.unary_unary("/x/y")(b"", timeout=0.05)
        except grpc.aio.AioRpcError:
            pass

def churn():
    while not over.is_set():
        asyncio.run(call())

over = threading.Event()
asyncio.run(call())
thread = threading.Thread(target=churn)
thread.start()
for _ in range({FORKS}):
    child = subprocess.Popen(["/bin/sh", "-c", "exit 7"], preexec_fn=lambda: None)
    print(child.wait(20))
over.set()
thread.join()
"""


def test_children_of_a_process_with_grpc_live() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["7"] * FORKS, done.stderr[-2000:]
