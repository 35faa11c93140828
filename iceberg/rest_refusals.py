"""Errors of pyiceberg that are refusals of what a client sent."""

from __future__ import annotations

from pyiceberg.exceptions import ValidationError

REFUSALS = (
    *(ValueError, ValidationError, TypeError, AttributeError, LookupError, ArithmeticError),
    *(NotImplementedError, RecursionError, StopIteration),
)
"""What pyiceberg raises for content that cannot be (pydantic's errors are ValueErrors, its own is none), and
what its code raises that does not expect such content.

None may get out: a 500 is read as a commit that may have happened, and a StopIteration that a thread raises
has its request wait for ever.
"""
