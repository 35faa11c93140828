"""`floe schema …`: schemas and subjects of the registry, Floe's or any other with Confluent's API."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from agent.cli import buf, impact, registry_copy, schema_files
from agent.cli.failures import EPILOG, Failure, Status, refused, usage
from agent.cli.options import HTTP_DEFAULT, Form, Http, Output
from agent.cli.output import print_json, print_table, progress, remarks, results
from agent.cli.registry import LATEST, NOT_FOUND, Registry, Told, Version, deleted_too, named

app = typer.Typer(help="Schemas: register, check, compare, take over from another registry.", epilog=EPILOG)

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Name of the subject, as orders-value.")]
Source = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The schema: .proto, .avsc, .json or .jsonschema."),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="IMPORT=SUBJECT[@VERSION]",
        help="What an import is registered as; repeat for more. Without a version: the latest.",
    ),
]
Type = Annotated[
    str | None,
    typer.Option("--type", help="PROTOBUF, JSON or AVRO, where the file's name does not say which."),
]
Deleted = Annotated[bool, typer.Option("--deleted", help="Deleted ones, too.")]
VersionOption = Annotated[str, typer.Option("--version", help="Number of the version; latest is the newest.")]
_PROBLEM = re.compile(r'\{errorType:"(?P<kind>[A-Z_]+)", description:"(?P<words>.*?)"[},]')


@app.command("list")
def list_subjects(
    prefix: Annotated[str, typer.Option(help="Only subjects whose name begins so.")] = "",
    deleted: Deleted = False,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """List the subjects with their newest version, its id and what was set for them."""
    registry = Registry(http)
    rows: list[dict[str, Any]] = []
    for name in registry.subjects(prefix, deleted=deleted):
        newest = registry.version(name, LATEST, deleted=deleted)
        if newest is None:  # it went meanwhile
            continue
        versions = len(registry.numbers(name, deleted=deleted))
        shown = {"subject": name, "version": newest.version, "id": newest.schema_id, "type": newest.kind}
        rows.append({**shown, "versions": versions, "compatibility": registry.compatibility(name)})
    if output is Form.JSON:
        print_json(rows)
        return
    columns = ("subject", "version", "id", "type", "versions", "compatibility")
    print_table(columns, [["" if row[name] is None else row[name] for name in columns] for row in rows])


@app.command("show")
def show(
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="Name of the subject; or give --id.")
    ] = None,
    version: VersionOption = LATEST,
    schema_id: Annotated[int | None, typer.Option("--id", min=1, help="Any schema by its id.")] = None,
    deleted: Deleted = False,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Show a schema: its text, and with --output json all that is known of it."""
    registry = Registry(http)
    if (subject is None) == (schema_id is None):
        raise usage("give a subject or --id, one of them")
    if subject is None:
        found = registry.ask("GET", f"/schemas/ids/{schema_id}")
        users = registry.ask("GET", f"/schemas/ids/{schema_id}/versions")
        shown = {"id": schema_id, **found, "versions": users}
    else:
        shown = registry.ask("GET", f"/subjects/{named(subject)}/versions/{version}", **deleted_too(deleted))
    if output is Form.JSON:
        print_json(shown)
        return
    results().print(shown["schema"].rstrip("\n"))
    for one in shown.get("references") or ():
        remarks().print(f"{one['name']} is version {one['version']} of {one['subject']}", style="dim")


@app.command("register")
def register(
    subject: Annotated[
        str, typer.Argument(metavar="[SUBJECT]", help="Name of the subject, as orders-value.")
    ] = "",
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The schema: .proto, .avsc, .json or .jsonschema."),
    ] = None,
    reference: References = None,
    proto_path: Annotated[
        list[Path] | None,
        typer.Option(
            "--proto-path",
            help="Folder in which imports are looked for, which are registered under their import paths. "
            "Repeat for more; the file's own is always one.",
        ),
    ] = None,
    buf_folder: Annotated[
        Path | None,
        typer.Option(
            "--buf",
            help="A buf workspace or module: imports are looked for in its roots, too. Without SUBJECT and "
            "FILE all of its files are registered, each under its import path.",
        ),
    ] = None,
    normalize: Annotated[bool, typer.Option(help="Keep the canonical text.")] = False,
    kind: Type = None,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Register a schema under a subject, what it imports before it; or find it there.

    Status 5 and the reason when it does not go with the versions that the subject has.
    """
    roots = buf.roots(buf_folder) if buf_folder is not None else []
    folders = [*(proto_path or ()), *(root.folder for root in roots)]
    given = schema_files.given_references(reference or ())
    found: list[dict[str, Any]] = []
    writing = _Writing(Registry(http), given, found, normalize)
    try:
        if subject and file is not None:
            _register_one(writing, subject, schema_files.found_in(file, folders), folders, kind)
        elif roots and not subject:
            _register_all(writing, buf.files(roots), folders, buf_folder)
        else:
            raise usage("give SUBJECT and FILE, or --buf and neither of them")
    except Failure:
        if found:  # what it imports is there, whatever becomes of it
            _show_registered(found, output)
        raise
    _show_registered(found, output)


def _show_registered(found: Sequence[Mapping[str, Any]], output: Form) -> None:
    if output is Form.JSON:
        print_json(found)
        return
    for row in found:
        results().print(f"{row['subject']}: version {row['version']}, id {row['id']}")


class _Writing(NamedTuple):
    """What is being registered: where, as what imports are, and what was so far."""

    registry: Registry
    given: dict[str, tuple[str, int]]
    found: list[dict[str, Any]]
    normalize: bool

    def add(self, subject: str, kind: str, text: str) -> int:
        """Register one more; its version. Raises Failure."""
        said = _said(kind, text, self.given)
        self.found.append(_registered(self.registry, subject, said, normalize=self.normalize))
        version: int = self.found[-1]["version"]
        return version

    def add_imports(self, text: str, folders: Sequence[Path]) -> None:
        """Register what a .proto text imports, over all levels. Raises Failure."""
        for name, imported in schema_files.behind_what_they_import(text, self.given, folders):
            self.given[name] = (name, self.add(name, "PROTOBUF", imported))


def _register_one(
    writing: _Writing, subject: str, file: Path, folders: Sequence[Path], kind: str | None
) -> None:
    text, kind = schema_files.text_of(file), schema_files.kind_of(file, kind)
    if kind == "PROTOBUF":
        writing.add_imports(text, [*folders, file.parent])
    writing.add(subject, kind, text)


def _register_all(
    writing: _Writing, files: Mapping[str, Path], folders: Sequence[Path], folder: Path | None
) -> None:
    """All files of a workspace, each under its import path, behind those that it imports."""
    every = "".join(f'import "{name}";\n' for name in files)
    try:
        writing.add_imports(every, folders)
    except Failure as failure:
        if failure.status is not Status.USAGE:
            raise
        hint = f"what a module depends on at buf's registry is not fetched: buf export {folder} -o FOLDER"
        raise Failure(failure.status, f"{failure}; {hint}, then --proto-path FOLDER") from None


def _said(kind: str, text: str, given: dict[str, tuple[str, int]]) -> dict[str, Any]:
    """A schema as requests say it; of protobuf, with those of the references that it needs."""
    needed = schema_files.imports_of(text) if kind == "PROTOBUF" else list(given)
    references = [
        {"name": name, "subject": given[name][0], "version": given[name][1]}
        for name in needed
        if name in given
    ]
    return {"schemaType": kind, "schema": text, "references": references}


def _registered(registry: Registry, subject: str, said: object, *, normalize: bool) -> dict[str, Any]:
    """Subject, version and id. Raises Failure."""
    query = {"normalize": "true"} if normalize else {}
    answer = registry.ask("POST", f"/subjects/{named(subject)}/versions", said, **query)
    if "version" not in answer:  # registries before Confluent's 7.5
        answer |= registry.ask("POST", f"/subjects/{named(subject)}", said, **query)
    return {"subject": subject, "version": answer["version"], "id": answer["id"]}


@app.command("check")
def check(
    subject: Subject,
    file: Source,
    reference: References = None,
    version: Annotated[
        str | None,
        typer.Option("--version", help="Check against this version only; else all that the level looks at."),
    ] = None,
    kind: Type = None,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Tell whether a schema would go with the subject's versions, and what breaks whom; status 1 if not.

    Also which rules of protovalidate that it has cannot be used, where the registry is Floe's.
    """
    registry, text = Registry(http), schema_files.text_of(file)
    said = _said(schema_files.kind_of(file, kind), text, schema_files.given_references(reference or ()))
    problems = _against(registry, subject, said, version)
    rules = _unusable_rules(registry, subject, said)
    if output is Form.JSON:
        print_json({"compatible": not problems, "problems": problems, "unusable_rules": rules})
    else:
        for line in [*problems, *(f"rule that cannot be used: {each}" for each in rules)]:
            results().print(line)
        if not problems:
            results().print(f"it goes with {subject}")
    if problems:
        raise Failure(Status.FAILED, f"{file} does not go with {subject}: {len(problems)} reasons")
    if rules:
        raise Failure(Status.FAILED, f"{file}: {len(rules)} rules cannot be used")


def _unusable_rules(registry: Registry, subject: str, said: object) -> list[str]:
    """Rules of protovalidate that cannot be used; none of a registry that does not look at them."""
    try:
        answer = registry.ask("POST", f"/admin/subjects/{named(subject)}/rules", said)
        return [str(each) for each in answer["problems"]]
    except Told as told:
        if told.code in (404, 405):
            return []
        raise


def _against(registry: Registry, subject: str, said: object, version: str | None) -> list[str]:
    """Why a schema would not go with the versions, in words; empty: it would. Raises Failure."""
    path = f"/compatibility/subjects/{named(subject)}/versions"
    path += "" if version is None else f"/{version}"
    answer = registry.ask("POST", path, said, verbose="true")
    return [] if answer["is_compatible"] else _in_words(answer.get("messages") or ())


def _in_words(messages: Sequence[object]) -> list[str]:
    """What a registry says of a schema that does not go, without its shape; one line at least."""
    told = [str(each) for each in messages]
    found = [match for each in told for match in _PROBLEM.finditer(each)]
    words = [f"{match['words']} [{match['kind']}]" for match in found]
    return words or told or ["the registry does not say why"]


@app.command("impact")
def show_impact(
    subject: Subject,
    file: Source,
    reference: References = None,
    kind: Type = None,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Tell what a schema would touch as the subject's next version: topics, columns of tables, groups.

    Nothing is written. Status 1 where it would be refused, or a column gets another one beside it.
    """
    registry, text = Registry(http), schema_files.text_of(file)
    said = _said(schema_files.kind_of(file, kind), text, schema_files.given_references(reference or ()))
    try:
        found = registry.ask("POST", f"/admin/subjects/{named(subject)}/impact", said)
    except Told as told:
        if told.code == NOT_FOUND:
            raise refused(f"{registry} does not tell impacts: ask an agent of Floe (--http)") from None
        raise
    problems = [] if found["compatible"] else _in_words(found["problems"])
    if output is Form.JSON:
        print_json(found)
    else:
        for line in impact.lines(found, problems):
            results().print(line)
    if count := impact.breaks(found):
        raise Failure(Status.FAILED, f"{file} as {subject} breaks {count} thing{'s' if count > 1 else ''}")


@app.command("diff")
def diff(
    subject: Subject,
    before: Annotated[str, typer.Argument(metavar="[FROM]", help="A version.")] = "",
    after: Annotated[str, typer.Argument(metavar="[TO]", help="Another one.")] = LATEST,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Show what changed from one version of a subject to another: the text, and whom it would break.

    Without FROM: from the last but one.
    """
    registry = Registry(http)
    new = _known(registry, subject, after)
    old = _known(registry, subject, before or _before(registry, subject, new.version))
    lines = [*_difference(old, new)]
    problems = _against(registry, subject, new.body(), str(old.version))
    if output is Form.JSON:
        print_json({"from": old.version, "to": new.version, "diff": lines, "problems": problems})
        return
    for line in lines or ["the texts are the same"]:
        results().print(line)
    for line in problems:
        results().print(f"breaks: {line}")


def _known(registry: Registry, subject: str, number: str) -> Version:
    found = registry.version(subject, number, deleted=True)
    if found is None:
        raise refused(f"{subject} has no version {number}; see: floe schema show {subject}")
    return found


def _before(registry: Registry, subject: str, number: int) -> str:
    earlier = [each for each in registry.numbers(subject) if each < number]
    if not earlier:
        raise usage(f"{subject} has no version before {number}: there is nothing to compare")
    return str(earlier[-1])


def _difference(old: Version, new: Version) -> list[str]:
    told = unified_diff(
        old.text.splitlines(),
        new.text.splitlines(),
        f"{old.subject} version {old.version}",
        f"{new.subject} version {new.version}",
        lineterm="",
    )
    return list(told)


@app.command("delete")
def delete(
    subject: Subject,
    version: Annotated[str | None, typer.Option("--version", help="One version only.")] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="For good what was deleted before; its id goes, too.")
    ] = False,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Delete a subject or a version of it: hidden at first, and with --permanent for good."""
    path = f"/subjects/{named(subject)}" + (f"/versions/{version}" if version is not None else "")
    query = {"permanent": "true"} if permanent else {}
    gone = Registry(http).ask("DELETE", path, **query)
    gone = gone if isinstance(gone, list) else [gone]
    if output is Form.JSON:
        print_json({"subject": subject, "versions": gone, "permanent": permanent})
        return
    numbers = ", ".join(map(str, gone))
    how = "deleted for good" if permanent else "deleted; --permanent as well forgets it"
    results().print(f"{subject}: version {numbers} {how}")


@app.command("level")
def level(
    subject: Annotated[str, typer.Argument(metavar="[SUBJECT]", help="None: what is in force for all.")] = "",
    to: Annotated[
        str | None,
        typer.Option("--set", help="NONE, BACKWARD, FORWARD, FULL, or one of these with _TRANSITIVE."),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Back to what is in force for all.")] = False,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Show or set which compatibility new versions must have."""
    registry, path = Registry(http), f"/config/{named(subject)}" if subject else "/config"
    if to is not None and unset:
        raise usage("give --set or --unset, not both")
    if to is not None:
        registry.ask("PUT", path, {"compatibility": to})
    elif unset:
        registry.ask("DELETE", path)
    own = registry.compatibility(subject)
    shown = {"subject": subject or None, "set": own, "in_force": own or registry.compatibility()}
    if output is Form.JSON:
        print_json(shown)
        return
    results().print(shown["in_force"] if own else f"{shown['in_force']} (as for all)")


@app.command("import")
def import_from(
    source: Annotated[
        str, typer.Argument(metavar="URL", help="The other registry, http://[user:password@]host:port.")
    ],
    prefix: Annotated[str, typer.Option(help="Only subjects whose name begins so.")] = "",
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Take subjects over from another registry, with their ids and versions: records need no change.

    Run it again to go on after an interruption, or to take over what came since.
    """
    _copied(Registry(source, own=False), Registry(http), prefix, output)


@app.command("export")
def export_to(
    target: Annotated[
        str, typer.Argument(metavar="URL", help="The other registry, http://[user:password@]host:port.")
    ],
    prefix: Annotated[str, typer.Option(help="Only subjects whose name begins so.")] = "",
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Give subjects to another registry, with their ids and versions; the reverse of import."""
    _copied(Registry(http), Registry(target, own=False), prefix, output)


def _copied(source: Registry, target: Registry, prefix: str, output: Form) -> None:
    with progress() as bar:
        task = bar.add_task("", total=None)

        def tell(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        outcome = registry_copy.copy(source, target, prefix, tell)
    if output is Form.JSON:
        shown = {name: getattr(outcome, name) for name in ("subjects", "versions", "there", "refused")}
        print_json(shown)
    else:
        results().print(
            f"{outcome.subjects} subjects: {outcome.versions} versions written to {target}, "
            f"{outcome.there} were there"
        )
        for line in outcome.refused:
            results().print(f"not copied: {line}")
    if outcome.kept_level:
        remarks().print(f"compatibility of all stays {outcome.kept_level} (floe schema level --set)")
    if outcome.refused:
        raise Failure(Status.FAILED, f"{len(outcome.refused)} subjects were not copied")
