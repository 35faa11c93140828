"""What the cluster is made of: built or brought where it is missing, side by side, each with its time.

Go's compiler takes all processors there are, one tool after another; Debian's packages, wheels and
jars come over the network meanwhile, and layers are packed by one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from deploy.images import jobs
from deploy.images.__main__ import cached
from deploy.images.oci import Image, of_programs
from deploy.kubernetes.settings import PAUSE
from deploy.services.build import tool_path
from deploy.setup.debian import unpacked
from deploy.setup.gateway import program
from deploy.setup.jars import ensure
from tests.kubernetes import gateway
from tests.kubernetes.manifests import SERVERS

IMAGES = Path(__file__).resolve().parents[2] / "build" / "images"
TOOLS = ("kubernetes", "pause", "etcd", "minio", "helm")
IMAGES_OF_PROGRAMS = (
    ("pause", PAUSE, ("pause",)),
    ("gateway", gateway.IMAGE, ("traefik",)),
    ("servers", SERVERS, ("etcd", "minio")),
)
PACKAGES = ("containers", "image", "jobs")
Made = TypeVar("Made")


def programs_image(name: str, programs: dict[str, Path], image: str) -> None:
    """The image of these programs, packed anew when one of them was built anew."""
    target, stamp = IMAGES / f"{image}.tar", IMAGES / f"{image}.made-of"
    wanted = "".join(
        f"{name} {path.stat().st_mtime_ns} {path.stat().st_size}\n" for path in programs.values()
    )
    if target.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    stamp.unlink(missing_ok=True)
    of_programs(name, programs, target)
    stamp.write_text(wanted)


class Built:
    """`all()`, then the agent's image and how long each part took, seconds; parts overlap."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def all(self) -> Image:
        """Everything. Raises BuildError, NoGateway, NotToBeHad, ValueError and CalledProcessError."""
        IMAGES.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(3) as beside:
            tools = beside.submit(self._tools)
            jars = [beside.submit(self._took, f"jars: {each}", partial(ensure, each)) for each in jobs.JARS]
            packages = {each: beside.submit(self._packages, each) for each in PACKAGES}
            packages["image"].result()
            agent = self._took("the agent's image", cached)
            brought: list[Future[Any]] = [*jars, *packages.values()]
            for each in brought:
                each.result()
            self._took("the jobs' image", partial(jobs.cached, agent))
            tools.result()
        return agent

    def _tools(self) -> None:
        found = {each: self._took(each, partial(tool_path, each)) for each in TOOLS}
        found["traefik"] = self._took("traefik", program)
        self._took("definitions of the Gateway API", gateway.crds)
        for image, name, programs in IMAGES_OF_PROGRAMS:
            made = partial(programs_image, name, {each: found[each] for each in programs}, image)
            self._took(f"the image {image}", made)

    def _packages(self, name: str) -> Path:
        return self._took(f"Debian's packages: {name}", partial(unpacked, name))

    def _took(self, what: str, make: Callable[[], Made]) -> Made:
        begun = time.monotonic()
        made = make()
        self.seconds[what] = round(time.monotonic() - begun, 1)
        return made
