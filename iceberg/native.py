"""Panics of native code: a BaseException to Python, which nothing that catches errors catches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_PANIC = "PanicException"  # pyo3 makes the class when it first panics, and exports it nowhere


class NativePanic(Exception):
    """Native code gave up in the middle of a call; the reason is what it said."""


@contextmanager
def no_panic() -> Iterator[None]:
    """Turns a panic inside into NativePanic."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise NativePanic(str(error)) from error
