"""The report: a page for people that asks no other host, and the same for machines."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from tests.proof.catalogue import EXPERIMENTS, Experiment
from tests.proof.plots import plots
from tests.proof.ran import Ran

TEMPLATE = Path(__file__).with_name("page.html")
FINDINGS_SHOWN = 20
COUNTS = ["acks", "sent", "acknowledged", "read", "acknowledged and lost"]
COUNTS += ["told as sent and not there (acks=0)", "doubled"]


@dataclass(frozen=True)
class Proof:
    """All runs, and how they came about."""

    runs: Mapping[str, Ran]
    how: Mapping[str, Any]
    """Version, commit, command, seed, machine and its load."""
    experiments: Sequence[Experiment] = EXPERIMENTS

    @property
    def failed(self) -> list[str]:
        """ "experiment: run: what", for all that is wrong."""
        return [
            f"{each.group}, {each.name}: {run}: {', '.join(f'{a} {n}' for a, n in wrong.items())}"
            for each in self.experiments
            for run, wrong in each.wrong(self.runs).items()
        ] + [
            f"{name}: {', '.join(f'{a} {n}' for a, n in ran.wrong.items())}"
            for name, ran in self.runs.items()
            if ran.wrong and not any(name in each.wrong(self.runs) for each in self.experiments)
        ]

    def machines(self) -> dict[str, Any]:
        """For machines."""
        return {
            "how": dict(self.how),
            "failed": self.failed,
            "experiments": [
                {
                    "group": each.group, "name": each.name, "source": each.source, "does": each.does,
                    "runs": list(each.runs), "judged": sorted(each.judged) or "all",
                    "verdict": _verdict(each, self.runs), "wrong": each.wrong(self.runs),
                }
                for each in self.experiments
            ],
            "runs": {name: _facts(ran) for name, ran in self.runs.items()},
        }  # fmt: skip

    def people(self) -> str:
        """For people."""
        ran = [each for each in self.experiments if each.ran(self.runs)]
        part = sum(_verdict(each, self.runs) == "held in part" for each in ran)
        line = f"{len(ran)} of {len(self.experiments)} experiments ({part} of them in part), "
        line += f"{len(self.runs)} runs: "
        line += f"{len(self.failed)} findings" if self.failed else "nothing acknowledged was lost, no anomaly"
        return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
            title=html.escape(f"Floe {self.how.get('version', '')}: the proof"),
            state="bad" if self.failed else "good",
            line=html.escape(line),
            how=html.escape("\n".join([*(f"{k}: {v}" for k, v in self.how.items()), *self.failed])),
            experiments="".join(_row(each, self.runs) for each in self.experiments),
            counts="".join(_counts(each) for each in self.runs.values() if "acks" in each.figures),
            runs="".join(_section(each) for each in self.runs.values()),
        )


def _verdict(each: Experiment, runs: Mapping[str, Ran]) -> str:
    if not each.ran(runs):
        return "not run"
    if each.wrong(runs):
        return "failed"
    return "held" if all(name in runs for name in each.runs) else "held in part"


def _facts(ran: Ran) -> dict[str, Any]:
    return {
        "seconds": round(ran.seconds, 1),
        "operations": outcomes(ran),
        "faults": dict(sorted(Counter(what.split(" (")[0] for what, _, _ in ran.happened).items())),
        "pure": dict(sorted(ran.pure.items())),
        "spark": dict(sorted(ran.spark.items())),
        "not linearizable": ran.porcupine,
        "own findings": ran.findings[:FINDINGS_SHOWN],
        "allowed": sorted(ran.allowed),
        "control": sorted(ran.control),
        "judges disagree": {a: list(n) for a, n in ran.disagree.items()},
        "wrong": ran.wrong,
        "figures": ran.figures,
    }


def outcomes(ran: Ran) -> dict[str, dict[str, int]]:
    """Operations by meaning, by outcome."""
    told: dict[str, Counter[str]] = {}
    for op in ran.history.operations:
        told.setdefault(op.f, Counter())[op.outcome] += 1
    return {f: dict(sorted(counts.items())) for f, counts in sorted(told.items())}


def _row(each: Experiment, runs: Mapping[str, Ran]) -> str:
    verdict = _verdict(each, runs)
    wrong = "; ".join(
        f"{run}: {', '.join(f'{a} {n}' for a, n in found.items())}" for run, found in each.wrong(runs).items()
    )
    state = {"held": "good", "failed": "bad"}.get(verdict, "none")
    what = f"{each.does}. {each.others}" if each.others else each.does
    links = ", ".join(
        f'<a href="#{html.escape(n)}">{html.escape(n)}</a>' if n in runs else n for n in each.runs
    )
    return (
        f"<tr><td>{html.escape(each.group)}: {html.escape(each.name)}<td>{html.escape(what)}<td>{links}"
        f'<td class="{state}">{verdict} {html.escape(wrong)}'
    )


def _counts(ran: Ran) -> str:
    return f"<tr><td>{html.escape(ran.name)}" + "".join(
        f'<td class="n">{ran.figures[name]}' for name in COUNTS
    )


def _section(ran: Ran) -> str:
    told = _facts(ran)
    state = "bad" if ran.wrong else "good"
    words = ", ".join(f"{a} {n}" for a, n in ran.wrong.items()) or (
        "shown" if ran.control else "nothing found"
    )
    rows = [("operations by outcome", _words(told["operations"])), ("faults", _words(told["faults"]))]
    rows += [(judge, _words(told[judge]) or "nothing") for judge in ("pure", "spark", "not linearizable")]
    rows += [("figures", _words(ran.figures)), ("allowed by its settings", ", ".join(sorted(ran.allowed)))]
    table = "".join(f"<tr><th>{html.escape(k)}<td>{html.escape(v)}" for k, v in rows if v)
    findings = "".join(f"<li>{html.escape(each)}" for each in ran.findings[:FINDINGS_SHOWN])
    head = f"{html.escape(ran.name)} <small>{ran.seconds:.0f} s</small>"
    told_all = f"{plots(ran)}<table>{table}</table><ul>{findings}</ul>"
    verdict = f'<p class="{state}">{html.escape(words)}</p>'
    return f'<section id="{html.escape(ran.name)}"><h3>{head}</h3>{verdict}{told_all}</section>'


def _words(told: Mapping[str, Any] | Iterable[str]) -> str:
    if not isinstance(told, Mapping):
        return ", ".join(told)
    return "; ".join(
        f"{name}: {_words(each)}" if isinstance(each, Mapping) else f"{name} {each}"
        for name, each in told.items()
    )
