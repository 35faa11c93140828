"""A helper that answers as it is asked to: at once, in pieces, much, never, or dies."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from coordination import helper


def answer(request: tuple[str, int], content: memoryview) -> tuple[object, Sequence[memoryview]]:
    """The request, and its content so many times."""
    how, times = request
    if how == "in pieces":
        whole = helper._front(request, [content]) + content
        for start in range(0, len(whole), 7):
            os.write(replies, whole[start : start + 7])
            time.sleep(0.002)
        return answer(("echo", 1), content)
    if how == "half":
        os.write(replies, helper._front(request, [content])[:times])
        os._exit(1)
    if how == "never":
        time.sleep(60)
    return request, [content] * times


if __name__ == "__main__":
    replies = os.dup(1)
    helper.serve(answer)
