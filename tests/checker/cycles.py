"""Cycles between operations (Adya): G0 over write-write edges, G1c with write-read edges.

Edges run from who came first: the author of a version to the author of the next one of that key (ww), and
from the author of a value to whoever read it (wr). Write-write cycles are legal in Kafka's protocol, where
records of open transactions interleave; a cycle of write-read edges alone never is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import pairwise

from tests.checker.findings import Finding, Weight
from tests.checker.operations import History
from tests.checker.versions import Versions

Graph = dict[int, dict[int, str]]
"""Operation → operation → why, in words."""


def cycles(history: History, known: Versions) -> Iterator[Finding]:
    """G0, G1c and G1c by write-read edges alone; one example per strongly connected part."""
    writes, reads = write_write(known), write_read(history, known)
    yield from _found("G0", writes, "reported")
    yield from _found("G1c-wr", reads, "fail")
    both: Graph = {node: dict(edges) for node, edges in writes.items()}
    for node, edges in reads.items():
        both.setdefault(node, {}).update(edges)
    for component in components(both):
        cycle = shortest(both, component)
        whys = [both[a][b] for a, b in pairwise([*cycle, cycle[0]])]
        if any(why.startswith("ww") for why in whys) and any(why.startswith("wr") for why in whys):
            yield Finding("G1c", "", "; ".join(whys), tuple(cycle), "reported")


def write_write(known: Versions) -> Graph:
    """An edge from the author of each version to the author of the next one of the key."""
    graph: Graph = {}
    for name, key in known.keys.items():
        authors = []
        for offset in key.order:
            author = known.writer.get((name, key.values[offset][0]))
            if author is not None and author.index in known.proven:
                authors.append((author.index, offset))
        for (one, at), (other, then) in pairwise(authors):
            if one != other:
                graph.setdefault(one, {})[other] = f"ww {name} {at} before {then}"
    return graph


def write_read(history: History, known: Versions) -> Graph:
    """An edge from the author of a value to every operation that read it, whatever became of that."""
    graph: Graph = {}
    for op in history.operations:
        for poll in op.polls:
            for name, records in poll.records.items():
                for offset, value in records:
                    author = known.writer.get((name, value))
                    if author is not None and author is not op:
                        why = f"wr {name} {offset} read by {op.index}"
                        graph.setdefault(author.index, {})[op.index] = why
    return graph


def _found(anomaly: str, graph: Graph, weight: Weight) -> Iterator[Finding]:
    for component in components(graph):
        cycle = shortest(graph, component)
        whys = [graph[a][b] for a, b in pairwise([*cycle, cycle[0]])]
        yield Finding(anomaly, "", "; ".join(whys), tuple(cycle), weight)


def components(graph: Mapping[int, Mapping[int, str]]) -> list[set[int]]:
    """The strongly connected parts of two or more nodes (Tarjan, without recursion: histories are long)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[set[int]] = []
    for root in graph:
        if root in number:
            continue
        path: list[tuple[int, Iterator[int]]] = []
        _enter(root, graph, number, low, stack, on_stack, path)
        while path:
            node, edges = path[-1]
            following = next(edges, None)
            if following is None:
                path.pop()
                _leave(node, low, number, stack, on_stack, found)
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
            elif following not in number:
                _enter(following, graph, number, low, stack, on_stack, path)
            elif following in on_stack:
                low[node] = min(low[node], number[following])
    return found


def _enter(
    node: int,
    graph: Mapping[int, Mapping[int, str]],
    number: dict[int, int],
    low: dict[int, int],
    stack: list[int],
    on_stack: set[int],
    path: list[tuple[int, Iterator[int]]],
) -> None:
    number[node] = low[node] = len(number)
    stack.append(node)
    on_stack.add(node)
    path.append((node, iter(graph.get(node, {}))))


def _leave(
    node: int,
    low: dict[int, int],
    number: dict[int, int],
    stack: list[int],
    on_stack: set[int],
    found: list[set[int]],
) -> None:
    """When the node is the root of a part, take the part off the stack."""
    if low[node] != number[node]:
        return
    component: set[int] = set()
    while node not in component:
        member = stack.pop()
        on_stack.discard(member)
        component.add(member)
    if len(component) > 1:
        found.append(component)


def shortest(graph: Mapping[int, Mapping[int, str]], component: set[int]) -> list[int]:
    """A shortest cycle through the part's first node; the edge back to its beginning is left out."""
    start = min(component)
    came: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for following in sorted(graph.get(node, {})):  # the same cycle, whatever order the edges came in
            if following == start:
                cycle = [node]
                while cycle[-1] != start:
                    cycle.append(came[cycle[-1]])
                return cycle[::-1]
            if following in component and following not in came:
                came[following] = node
                queue.append(following)
    raise AssertionError(f"{start} is on no cycle of its own component")
