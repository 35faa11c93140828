"""Each house rule catches a bad sample and lets a good one pass: a rule that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.tidy import rules
from tests.tidy.files import File, Problem

DOC = '"""Says what it is."""\n'
LONG = DOC + "def work() -> None:\n" + '    """Work."""\n' + "    pass\n" * 40
SHORT = DOC + "def work() -> None:\n" + '    """Work."""\n' + "    pass\n" * 39
READ = '    def read(self):\n        """Reads."""\n        ...\n'
PORT = DOC + f'class Port(Protocol):\n    """A port."""\n{READ}'
ADAPTER = DOC + 'class Adapter:\n    """Reads a port."""\n    def {name}(self) -> int:\n        return 1\n'

Case = tuple[Callable[[Iterable[File]], Iterator[Problem]], str, str]

BAD: list[Case] = [
    (rules.files_are_short, "agent/a.py", "pass\n" * 500),
    (rules.files_are_short, "deploy/a.sh", "true\n" * 500),
    (rules.functions_are_short, "tests/a.py", LONG),
    (rules.functions_are_short, "agent/a.py", LONG.replace("def", "async def")),
    (rules.public_names_are_documented, "agent/a.py", "x = 1\n"),
    (rules.public_names_are_documented, "schema/a.py", DOC + "class A:\n    pass\n"),
    (rules.public_names_are_documented, "schema/a.py", DOC + "async def run() -> None:\n    pass\n"),
    (rules.public_names_are_documented, "schema/a.py", PORT + ADAPTER.format(name="write")),
    (rules.rooms_have_a_readme, "iceberg/a.py", DOC),
    (rules.nothing_is_left_for_later, "docs/a.md", "TO" + "DO: later\n"),
    (rules.nothing_is_left_for_later, "agent/a.py", "x = 1  # FIX" + "ME\n"),
    (rules.named_files_exist, "docs/a.md", "see `b.py`\n"),
    (rules.named_files_exist, "docs/a.md", "see [there](../agent/README.md#one)\n"),
    (rules.named_files_exist, "agent/a.py", "# says NOT" + "HERE.md\n"),
    (rules.cited_rules_exist, "agent/a.py", "# ru" + "le 99\n"),
    (rules.incarnations_are_told_one_way, "agent/a.py", "x = f'run {self._incarnation} ended'\n"),
    (rules.incarnations_are_told_one_way, "agent/a.py", "log.info('incarnation %" + "d', x)\n"),
    (rules.nothing_names_this_machine, "docs/a.md", "see " + "/".join(("", "work", "main", "agent")) + "\n"),
    (rules.nothing_names_this_machine, "deploy/a.sh", "cd /tmp/" + "floe/x\n"),
    (rules.nothing_names_this_machine, "a.lock", "--index https://pypi" + ".org/simple\n"),
    (rules.nothing_names_this_machine, "a.txt", "https:" + "//proxy" + ".golang.org\n"),
    (rules.nothing_names_this_machine, "a.txt", "farm" + "-run x\n"),
    (rules.ignores_have_reasons, "agent/a.py", "x = 1  # no" + "qa: E501\n"),
    (rules.ignores_have_reasons, "agent/a.py", "x = 1  # no" + "qa\n"),
    (rules.ignores_have_reasons, "agent/a.py", "x = 1  # type: " + "ignore[arg-type]\n"),
    (rules.ignores_have_reasons, "agent/a.py", "x = 1  # type: " + "ignore  # because I say so\n"),
    (rules.tests_do_not_evade, "tests/a.py", "@pytest.mark.skip(reason='later')\n"),
    (rules.tests_do_not_evade, "tests/a.py", "from unittest import mock\n"),
    (rules.tasks_have_a_last_resort, "agent/a.py", "asyncio.create_task(work())\n"),
    (rules.tasks_have_a_last_resort, "agent/a.py", "asyncio.ensure_future(work())\n"),
    (rules.tasks_have_a_last_resort, "iceberg/a.py", "self._loop.create_task(work())\n"),
    (rules.nothing_is_raised_in_except_star, "agent/a.py", "try:\n    work()\nexcept* OSError:\n    raise\n"),
    (rules.secrets_are_compared_in_equal_time, "agent/a.py", "fits = given == self._secret\n"),
    (rules.secrets_are_compared_in_equal_time, "agent/a.py", "if user.stored_key != made: raise\n"),
    (rules.secrets_are_compared_in_equal_time, "agent/a.py", "x = proof(a, b) == given\n"),
    (
        rules.secrets_are_compared_in_equal_time,
        "coordination/a.py",
        "ok = password.get_secret_value() == x\n",
    ),
]

GOOD: list[Case] = [
    (rules.files_are_short, "agent/a.py", "pass\n" * 499),
    (rules.files_are_short, "agent/net/wire/generated/a.py", "pass\n" * 5000),
    (rules.functions_are_short, "agent/a.py", SHORT),
    (rules.public_names_are_documented, "agent/a.py", DOC + "def _run() -> None:\n    pass\n"),
    (rules.public_names_are_documented, "tests/a.py", "x = 1\n"),
    (rules.public_names_are_documented, "schema/a.py", PORT + ADAPTER.format(name="read")),
    (rules.rooms_have_a_readme, "deploy/a.py", DOC),
    (rules.nothing_is_left_for_later, "agent/a.py", "to do, or not to do\n"),
    (rules.named_files_exist, "docs/a.md", "[a](a.md), `docs/a.md`, `build/b.md`, <c.md>\n"),
    (rules.cited_rules_exist, "docs/architecture.md", "1. **One.** Rule 1\n"),
    (rules.incarnations_are_told_one_way, "agent/a.py", "x = f'run {self._incarnation:016x} ended'\n"),
    (rules.nothing_names_this_machine, "agent/a.py", "/workshop/ and /tmp/other and framework/main\n"),
    (rules.ignores_have_reasons, "agent/a.py", "x = 1  # no" + "qa: E501  # the URL cannot be folded\n"),
    (rules.ignores_have_reasons, "agent/a.py", "x = 1  # type: " + "ignore[arg-type]  # checked above\n"),
    (rules.tests_do_not_evade, "tests/a.py", "x = 'skip'\n"),
    (rules.tasks_have_a_last_resort, "tests/a.py", "asyncio.create_task(work())\n"),
    (rules.tasks_have_a_last_resort, "agent/a.py", "tasks.start(work(), 'work')\n"),
    (rules.secrets_are_compared_in_equal_time, "agent/a.py", "x = hmac.compare_digest(given, secret)\n"),
    (rules.secrets_are_compared_in_equal_time, "agent/a.py", "given = config.secret == ''\n"),
    (rules.secrets_are_compared_in_equal_time, "agent/a.py", "x = len(secret) != size\n"),
    (rules.secrets_are_compared_in_equal_time, "tests/a.py", "assert secret == 'x'\n"),
    (
        rules.tasks_have_a_last_resort,
        "agent/a.py",
        "async def f():\n    async with asyncio.TaskGroup() as group:\n        group.create_task(work())\n",
    ),
]


def named(case: Case) -> str:
    """A test's id."""
    return f"{case[0].__name__}-{case[1]}"


@pytest.mark.parametrize("case", BAD, ids=named)
def test_a_bad_sample_is_caught_with_its_place(case: Case) -> None:
    rule, path, text = case
    (problem,) = rule([File(path, text)])
    assert problem.path.startswith(path.rpartition("/")[0])
    assert problem.line >= 1


@pytest.mark.parametrize("case", GOOD, ids=named)
def test_a_good_sample_passes(case: Case) -> None:
    rule, path, text = case
    assert list(rule([File(path, text)])) == []


def test_a_room_with_a_readme_passes_and_a_large_room_without_does_not() -> None:
    room = [File(f"agent/room/{name}.py", DOC) for name in "abcd"]
    assert [p.path for p in rules.rooms_have_a_readme(room)] == ["agent/room/README.md"]
    assert list(rules.rooms_have_a_readme([*room, File("agent/room/README.md", "# Room\n")])) == []


def test_an_ignored_lint_rule_without_reason_is_caught() -> None:
    bad = '[tool.ruff.lint]\nignore = [\n    "A1", # says why it is\n    "B2",\n]\n'
    assert [p.line for p in rules.settings_of_lint_have_reasons(bad)] == [4]
    bad = '[tool.ruff.lint.per-file-ignores]\n"x" = ["A1"]\n[tool.mypy]\nstrict = true\n'
    assert [p.line for p in rules.settings_of_lint_have_reasons(bad)] == [2]


def test_a_setting_that_nothing_reads_is_caught() -> None:
    files = [
        File("agent/a.py", "print(config.produce.linger_ms)\n"),
        File("agent/config/b.py", "x.other_ms\n"),
    ]
    found = [p.what for p in rules.settings_are_used(files, ["produce.linger_ms", "produce.other_ms"])]
    assert found == ["nothing reads produce.other_ms"]


def test_a_metric_that_nothing_records_is_caught() -> None:
    files = [File("agent/a.py", "self._metrics.put_seconds.observe(1)\n")]
    found = [p.what for p in rules.metrics_are_recorded(files, ["put_seconds", "get_seconds", "_private"])]
    assert found == ["nothing records get_seconds"]
