"""Draws the plot of figure10.py: throughput over time, with a panel for each transition, as in Figure 10 of the paper.

Gray lines delimit the transition.  The green area is the share of reads of the new view that needed no upquery.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

BIN_S, LABELS = 0.2, 16
WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 900, 150, 70, 60, 70, 44
COLOURS = ("#718096", "#c05621", "#2b6cb0", "#97266d")


def plot(panels: Sequence[dict[str, Any]], title: str) -> str:
    """Return the plot as SVG.

    A panel has a name; the times from, start, end, to; lines: name -> (times, rows); hits: (time, share).
    """
    height = TOP + len(panels) * (HEIGHT + GAP) + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
             f'font-size="12"><rect width="{WIDTH}" height="{height}" fill="white"/>',
             f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>']
    names = list(panels[0]["lines"]) if panels else []
    at = LEFT
    for name, colour in zip(names, COLOURS, strict=False):
        parts.append(f'<text x="{at}" y="42" fill="{colour}">{escape(name)}/s</text>')
        at += 8 * len(name) + 30
    parts.append(f'<text x="{at}" y="42" fill="#2f855a">new reads without an upquery</text>')
    for number, panel in enumerate(panels):
        parts += _panel(panel, TOP + number * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: dict[str, Any], top: float) -> Iterator[str]:
    begin, end, zero = panel["from"], panel["to"], panel["start"]
    edges = np.arange(begin, end, BIN_S)
    rates = {name: np.histogram(times, edges, weights=rows)[0] / BIN_S
             for name, (times, rows) in panel["lines"].items()}
    high = 1.1 * max(1.0, *(float(r.max(initial=0)) for r in rates.values()))

    def x(t: float) -> float:
        return LEFT + (t - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return top + HEIGHT * (1 - share)

    yield f'<text x="{LEFT}" y="{top - 6}" font-weight="bold">{escape(panel["name"])}</text>'
    if len(panel["hits"]):
        points = " ".join(f"{x(t):.1f},{y(s):.1f}" for t, s in panel["hits"])
        first, last = panel["hits"][0][0], panel["hits"][-1][0]
        yield (f'<polygon fill="#c6f6d5" points="{x(first):.1f},{y(0):.1f} {points} {x(last):.1f},{y(0):.1f}"/>'
               f'<text x="{WIDTH - RIGHT + 4}" y="{y(1) + 4:.0f}" fill="#2f855a">100 %</text>')
    for value in _ticks(high):
        yield (f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value / high):.1f}" y2="{y(value / high):.1f}" '
               f'stroke="#e2e8f0"/><text x="{LEFT - 6}" y="{y(value / high) + 4:.1f}" text-anchor="end">'
               f'{value:,.0f}</text>')
    step = next(s for s in (1, 5, 10, 20, 60, 300, 3600) if (end - begin) / s <= LABELS)
    for second in range(int(np.ceil((begin - zero) / step)) * step, int(end - zero) + 1, step):
        yield f'<text x="{x(zero + second):.1f}" y="{top + HEIGHT + 15}" text-anchor="middle">{second} s</text>'
    for t in (panel["start"], panel["end"]):
        yield f'<line x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{y(1):.1f}" y2="{y(0):.1f}" stroke="#4a5568"/>'
    for colour, rate in zip(COLOURS, rates.values(), strict=False):
        points = " ".join(f"{x(t + BIN_S / 2):.1f},{y(v / high):.1f}" for t, v in zip(edges, rate, strict=False))
        yield f'<polyline fill="none" stroke="{colour}" stroke-width="1.2" points="{points}"/>'


def _ticks(high: float) -> Iterator[float]:
    step = next(s * 10**p for p in range(9) for s in (1, 2, 5) if high / (s * 10**p) <= 4)
    yield from np.arange(0, high, step).tolist()
