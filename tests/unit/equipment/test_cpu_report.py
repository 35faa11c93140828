"""The report of CPU counts what tests start: while it runs, and once it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.equipment.cpu_report import tree_s

LEAST_S = 0.2
OF_A_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"


def others_s() -> float:
    """What is counted beside this process itself, to within two ticks."""
    return tree_s(os.getpid()) - time.process_time()


def test_a_child_of_a_child_counts_while_it_runs() -> None:
    before = others_s()
    with subprocess.Popen([sys.executable, "-c", OF_A_CHILD], start_new_session=True) as child:
        try:
            while others_s() - before < LEAST_S:  # for ever, if it did not count
                time.sleep(0.02)
        finally:
            os.killpg(child.pid, 9)


def test_what_has_ended_and_was_waited_for_still_counts() -> None:
    before = others_s()
    spin = f"import time\nwhile time.process_time() < {2 * LEAST_S}: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert others_s() - before >= LEAST_S
