"""Draws the plot of starts.csv: the times of a start in each version, and of a bare Spark session in the same runs.

    python bench/start_plot.py          writes docs/internals/starts.svg
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

TOP = Path(__file__).parents[1]
FIGURES, PLOT = TOP / "bench" / "starts.csv", TOP / "docs" / "internals" / "starts.svg"
COLUMNS = ("version", "day", "wall_s", "processor_s", "settled_s", "bare_wall_s", "bare_processor_s")
BARS = (  # column, label, colour
    ("wall_s", "noria serve: wall time to ready", "#2b6cb0"), ("bare_wall_s", "bare Spark: wall time", "#a0aec0"),
    ("processor_s", "noria serve: processor time to ready", "#c05621"),
    ("bare_processor_s", "bare Spark: processor time", "#cbd5e0"),
    ("settled_s", "noria serve: processor time 25 s later", "#f6ad55"))
WIDTH, HEIGHT, LEFT, TOP_PX, BAR, GAP = 900, 220, 50, 110, 26, 40

Row = dict[str, str]


def read(path: Path = FIGURES) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def save(row: Row, path: Path = FIGURES) -> None:
    """Add the row of a version, and remove its earlier one."""
    rows = [r for r in read(path) if r["version"] != row["version"]] + [row]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def plot(rows: Sequence[Row]) -> str:
    high = 1.1 * max(float(row[column]) for row in rows for column, _, _ in BARS)
    group = len(BARS) * BAR + GAP
    width = max(WIDTH, LEFT + len(rows) * group)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP_PX + HEIGHT + 50}" '
             f'font-family="sans-serif" font-size="12"><rect width="{width}" height="{TOP_PX + HEIGHT + 50}" '
             f'fill="white"/>', f'<text x="{LEFT}" y="22" font-size="14">A start, in seconds: medians of three</text>']
    for number, (_, what, colour) in enumerate(BARS):
        x, y = LEFT + (number % 2) * 330, 44 + number // 2 * 18
        parts.append(f'<rect x="{x}" y="{y - 10}" width="10" height="10" fill="{colour}"/>'
                     f'<text x="{x + 16}" y="{y}">{escape(what)}</text>')
    for number, row in enumerate(rows):
        parts += _group(row, LEFT + 10 + number * group, high)
    parts.append(f'<line x1="{LEFT}" x2="{width - 20}" y1="{TOP_PX + HEIGHT}" y2="{TOP_PX + HEIGHT}" '
                 'stroke="#4a5568"/>')
    return "\n".join([*parts, "</svg>", ""])


def _group(row: Row, left: float, high: float) -> Iterator[str]:
    base = TOP_PX + HEIGHT
    for number, (column, _, colour) in enumerate(BARS):
        value = float(row[column])
        tall, x = value / high * HEIGHT, left + number * BAR
        yield (f'<rect x="{x}" y="{base - tall:.1f}" width="{BAR - 4}" height="{tall:.1f}" fill="{colour}"/>'
               f'<text x="{x + BAR / 2 - 2}" y="{base - tall - 4:.1f}" text-anchor="middle">{value:g}</text>')
    yield (f'<text x="{left}" y="{base + 18}">{escape(row["version"])}</text>'
           f'<text x="{left}" y="{base + 34}" fill="#4a5568">{escape(row["day"])}</text>')


if __name__ == "__main__":
    PLOT.write_text(plot(read()))
