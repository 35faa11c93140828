"""The house rules, each a function from files to problems. test_rules.py shows that each can fail."""

from __future__ import annotations

import ast
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.tidy.files import PACKAGES, SOURCES, File, Problem, lines

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 40
ROOM_FILES_MIN = 4
REASON_CHARS_MIN = 6

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Spelt in parts, so that this file does not break its own rules.
UNFINISHED = re.compile(rf"\b({'|'.join(('TO' + 'DO', 'FIX' + 'ME', 'X' + 'XX', 'HA' + 'CK'))})\b")
PLACES = (
    re.compile(r"(?<![\w.])/(work|farm)/" + r"(main|shared|\.|issues)"),
    re.compile(r"/tmp/" + "floe/"),
    re.compile(r"\bfarm" + r"-\w+"),
    re.compile(
        r"\b(pypi|npmjs|rubygems|crates)" + r"\.(org|io|com)\b"
        r"|files\." + r"pythonhosted|registry\." + r"npmjs|proxy\." + r"golang\.org|repo1?\." + r"maven\."
    ),
)
IGNORE = re.compile(r"#\s*(noqa|type:\s*ignore|ruff:\s*noqa|mypy:)(?P<rest>.*)$")
CODES = re.compile(r"^\s*(:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*|\[[a-z, -]+\]|)\s*")
NAMED_FILE = re.compile(
    r"[`(](?!build/|https?:)([a-z_][\w/.-]*\.(?:py|md|proto)|(?:\.\./)[\w/.-]+\.(?:py|md))[`)#]"
)
NAMED_PAGE = re.compile(r"(?<![\w/.-])([\w/.-]*\w\.md)\b")
RULES_PAGE = "docs/architecture.md"
CITED_RULE = re.compile(r"\b[Rr]ule ([0-9]+)\b")
SECRET = re.compile(
    r"(^|_)(password|passwd|secret|get_secret_value|hmac|mac|proof|signature|stored_key|server_key|client_key"
    r"|salted|nonce|bearer)s?$",
    re.IGNORECASE,
)
EVASIONS = re.compile(
    r"pytest\.(skip|xfail|importorskip)|pytest\.mark\.(skip|skipif|xfail)"
    r"|unittest\.mock|from unittest import mock"
)


def files_are_short(files: Iterable[File]) -> Iterator[Problem]:
    """A file has one subject: under FILE_LINES_MAX lines."""
    for file in files:
        count = file.text.count("\n")
        if file.path.endswith(SOURCES) and not file.generated and count >= FILE_LINES_MAX:
            yield Problem(file.path, count, f"{count} lines; split the file below {FILE_LINES_MAX}")


def functions_are_short(files: Iterable[File]) -> Iterator[Problem]:
    """A function's body, without its signature and docstring, has under FUNCTION_LINES_MAX lines."""
    for file in files:
        if not file.python:
            continue
        for node in ast.walk(ast.parse(file.text)):
            if isinstance(node, Function) and (count := _body_lines(node)) >= FUNCTION_LINES_MAX:
                what = f"{node.name} has {count} lines; split it below {FUNCTION_LINES_MAX}"
                yield Problem(file.path, node.lineno, what)


def _body_lines(node: Function) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def public_names_are_documented(files: Iterable[File]) -> Iterator[Problem]:
    """Modules, public classes, functions and methods of the five packages have docstrings.

    A method may leave it to the port that it implements: a Protocol or base class in the packages that
    documents a method of that name.
    """
    product = [(file, ast.parse(file.text)) for file in files if file.product and file.python]
    ported = {name for _, tree in product for name in _port_methods(tree)}
    for file, tree in product:
        if ast.get_docstring(tree) is None and tree.body:
            yield Problem(file.path, 1, "the module has no docstring")
        yield from _undocumented(file.path, tree, ported, "")


def _port_methods(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases):
            yield from (f.name for f in node.body if isinstance(f, Function) and ast.get_docstring(f))


def _undocumented(
    path: str, scope: ast.Module | ast.ClassDef, ported: set[str], prefix: str
) -> Iterator[Problem]:
    for node in scope.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        name = f"{prefix}{node.name}"
        is_port = isinstance(scope, ast.ClassDef) and (
            node.name in ported or _repeats(node) or _is_port(scope)
        )
        if ast.get_docstring(node) is None and not is_port:
            yield Problem(path, node.lineno, f"{name} has no docstring")
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(path, node, ported, f"{name}.")


def _is_port(scope: ast.ClassDef) -> bool:
    """Ports of foreign values list what they read; the class's own docstring says what for."""
    return any("Protocol" in ast.unparse(base) for base in scope.bases)


def _repeats(node: Function | ast.ClassDef) -> bool:
    """An overload, a setter: its first form carries the docstring."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(each == "overload" or each.endswith((".setter", ".overload")) for each in decorators)


def rooms_have_a_readme(files: Iterable[File]) -> Iterator[Problem]:
    """Every package, and every folder of one with several sources, says what it is for."""
    paths = [file.path for file in files if not file.generated]
    rooms = Counter(
        str(PurePosixPath(path).parent)
        for path in paths
        if path.partition("/")[0] in PACKAGES and path.endswith(".py") and not path.endswith("__init__.py")
    )
    for room, count in sorted(rooms.items()):
        if (count >= ROOM_FILES_MIN or room in PACKAGES) and f"{room}/README.md" not in paths:
            yield Problem(f"{room}/README.md", 1, f"missing, though the room has {count} files")


def nothing_is_left_for_later(files: Iterable[File]) -> Iterator[Problem]:
    """No markers of unfinished work."""
    for file in files:
        for number, line in lines(file):
            if found := UNFINISHED.search(line):
                yield Problem(file.path, number, f"{found[0]}: do it or drop it")


def named_files_exist(files: Iterable[File]) -> Iterator[Problem]:
    """A Markdown page names sources and pages that are there: by path, from its own folder, or by name alone.

    What product code says of a page likewise. Paths of another project are not written as paths.
    """
    files = list(files)
    paths = {file.path for file in files}
    ends = {path[at:] for path in paths for at in _starts(path)}
    for file in files:
        page = file.path.endswith(".md")
        if not page and not (file.product and file.python):
            continue
        for number, line in lines(file):
            for name in (NAMED_FILE if page else NAMED_PAGE).findall(line):
                near = posixpath.normpath(f"{PurePosixPath(file.path).parent}/{name}")
                if not {name, near} & paths and name not in ends:
                    yield Problem(file.path, number, f"{name}: there is no such file")


def _starts(path: str) -> Iterator[int]:
    """Where the names of folders and of the file begin in a path."""
    yield 0
    yield from (at + 1 for at, letter in enumerate(path) if letter == "/")


def cited_rules_exist(files: Iterable[File]) -> Iterator[Problem]:
    """Whoever cites a rule by its number finds it in docs/architecture.md."""
    files = list(files)
    page = next((file.text for file in files if file.path == RULES_PAGE), "")
    known = {int(number) for number in re.findall(r"^([0-9]+)\. \*\*", page, re.MULTILINE)}
    for file in files:
        for number, line in lines(file):
            for cited in CITED_RULE.findall(line) if file.path.endswith((".py", ".md")) else ():
                if int(cited) not in known:
                    yield Problem(file.path, number, f"{RULES_PAGE} has no rule {cited}")


def incarnations_are_told_one_way(files: Iterable[File]) -> Iterator[Problem]:
    """Messages and log lines name an incarnation as keys in the bucket do: in 16 hexadecimal digits."""
    for file in files:
        if not (file.product and file.python):
            continue
        for number, line in lines(file):
            if "incarnation %d" in line or "incarnation %s" in line:
                yield Problem(file.path, number, "write %016x")
        for node in ast.walk(ast.parse(file.text)):
            if isinstance(node, ast.FormattedValue) and _name(node.value).endswith("incarnation"):
                spec = node.format_spec
                if spec is None or "016x" not in ast.unparse(spec):
                    yield Problem(file.path, node.lineno, f"{{{ast.unparse(node.value)}}}: write :016x")


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def nothing_names_this_machine(files: Iterable[File]) -> Iterator[Problem]:
    """No paths of the machine it was written on, no hosts of package registries."""
    for file in files:
        for number, line in lines(file):
            for pattern in PLACES:
                if found := pattern.search(line):
                    yield Problem(file.path, number, f"names {found[0]!r}")


def ignores_have_reasons(files: Iterable[File]) -> Iterator[Problem]:
    """Whoever silences a check says which one and why, on the same line."""
    for file in files:
        if not file.python:
            continue
        for number, line in lines(file):
            found = IGNORE.search(line)
            if found is None or line.lstrip().startswith(('"', "'")):
                continue
            rest = CODES.sub("", found["rest"], count=1)
            reason = rest.lstrip(" #-:")
            if not found["rest"].strip(" ").startswith((":", "[")):
                yield Problem(file.path, number, f"{found[1]} names no check: write the code")
            elif len(reason) < REASON_CHARS_MIN:
                yield Problem(file.path, number, f"{found[1]} gives no reason: add '# why'")


def settings_of_lint_have_reasons(text: str) -> Iterator[Problem]:
    """Every rule that pyproject.toml ignores has its reason beside it."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("[") or line.strip() == "]":
            inside = "per-file-ignores" in line
        elif re.match(r"ignore\s*=\s*\[", line):
            inside = True
        elif inside and line.strip() and len(line.partition("#")[2].strip()) < REASON_CHARS_MIN:
            yield Problem("pyproject.toml", number, "an ignored rule without a reason: add '# why'")


def tests_do_not_evade(files: Iterable[File]) -> Iterator[Problem]:
    """No skipped or expected failures, no mocks: the real thing runs."""
    for file in files:
        if file.path.startswith("tests/") and not file.path.startswith("tests/tidy/") and file.python:
            for number, line in lines(file):
                if found := EVASIONS.search(line):
                    yield Problem(file.path, number, f"{found[0]}: let the real thing run")


def tasks_have_a_last_resort(files: Iterable[File]) -> Iterator[Problem]:
    """A task whose exception is nobody's ends in silence: objectstore/tasks.py begins them all, but for those
    of a TaskGroup, which raises for them."""
    for file in files:
        if not (file.product and file.python) or file.path == "objectstore/tasks.py":
            continue
        tree = ast.parse(file.text)
        groups = {
            ast.unparse(item.optional_vars)
            for node in ast.walk(tree)
            if isinstance(node, ast.AsyncWith)
            for item in node.items
            if item.optional_vars is not None and "TaskGroup(" in ast.unparse(item.context_expr)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("create_task", "ensure_future")
                and ast.unparse(node.value) not in groups
            ):
                yield Problem(file.path, node.lineno, f"{node.attr}: take objectstore/tasks.py")


def nothing_is_raised_in_except_star(files: Iterable[File]) -> Iterator[Problem]:
    """What an `except*` raises comes out in a group with 3.11.2, the image's Python, as it is with 3.11.7:
    `except ExceptionGroup` and its `split` say the same in all."""
    for file in files:
        if not file.python:
            continue
        for node in ast.walk(ast.parse(file.text)):
            if isinstance(node, ast.TryStar):
                yield Problem(file.path, node.lineno, "except*: take `except ExceptionGroup` and its split")


def secrets_are_compared_in_equal_time(files: Iterable[File]) -> Iterator[Problem]:
    """How long `==` takes tells where two texts first differ: secrets go through hmac.compare_digest.

    Whether there is one at all (a comparison with a constant) is no secret.
    """
    for file in files:
        if not (file.product and file.python):
            continue
        for node in ast.walk(ast.parse(file.text)):
            if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
                continue
            sides = (node.left, *node.comparators)
            secret = [one for one in sides if SECRET.search(_called(one))]
            if secret and not any(isinstance(one, ast.Constant) for one in sides):
                yield Problem(file.path, node.lineno, f"{ast.unparse(node)}: take hmac.compare_digest")


def _called(node: ast.expr) -> str:
    """The name of what is compared; of a call, that of what is called."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return _name(node.value if isinstance(node, ast.Subscript) else node)


def settings_are_used(files: Iterable[File], names: Iterable[str]) -> Iterator[Problem]:
    """A setting that nothing reads would be a lie to whoever sets it."""
    read = [
        set(re.findall(r"\.([a-z_][a-z0-9_]*)|: ([A-Z][A-Za-z]+Config)\b", file.text))
        for file in files
        if file.path.startswith("agent/") and not file.path.startswith("agent/config/")
    ]
    for name in names:
        section, key = name.partition(".")[0], name.removesuffix(".*").rpartition(".")[2]
        title = section.title()
        sections = {(section, ""), ("", f"{title}Config"), ("", f"{title.removesuffix('s')}Config")}
        if not any((key, "") in words and words & sections for words in read):
            yield Problem("agent/config", 1, f"nothing reads {name}")


def metrics_are_recorded(files: Iterable[File], names: Iterable[str]) -> Iterator[Problem]:
    """A metric that nothing records would show a flat line to whoever looks."""
    product = "\n".join(
        file.text for file in files if file.product and file.path != "agent/telemetry/metrics.py"
    )
    recorded = {*re.findall(r"metrics\.([a-z_]+)", product), "requests", "request_seconds"}  # by request()
    for name in names:
        if not name.startswith("_") and name not in recorded:
            yield Problem("agent/telemetry/metrics.py", 1, f"nothing records {name}")
