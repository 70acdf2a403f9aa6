# SPDX-License-Identifier: Apache-2.0
"""A picture of bench/peers' table: for each row a bar a side, in units of the bound, so that rows can
be compared."""

from xml.sax.saxutils import escape

COLOURS = ("#9aa5b1", "#d9480f", "#4263eb", "#5f3dc4", "#2b8a3e", "#c2255c", "#0b7285", "#e67700")
LEFT, WIDTH, BAR, GAP, TOP, BOTTOM = 210, 640, 11, 16, 64, 40


def text(x, y, words, size=11, anchor="start", fill="#212529"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escape(words)}</text>'
    )


def rectangle(x, y, width, height, fill):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height}" fill="{fill}"/>'


def vertical(x, top, bottom, colour, dash=""):
    return f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"{dash}/>'


def unit_of(row):
    """What bars are measured in: the bound, or where it is not known the fastest side."""
    return row.bound() or min(spread["median"] for spread in row.times.values())


def legend(sides):
    parts, x = [], float(LEFT)
    for side, colour in sides:
        parts += [rectangle(x, 34, BAR, BAR, colour), text(x + BAR + 5, 43.5, side)]
        x += 30 + 7 * len(side)
    return parts


def axis(most, bottom):
    parts, value = [], 0.0
    step = next(step for step in (0.25, 0.5, 1, 2, 5, 10, 100, 1000, most) if most / step <= 16)
    while value <= most:
        x = LEFT + WIDTH * value / most
        strong = abs(value - 1) < 1e-9
        parts.append(
            vertical(
                x, TOP - 6, bottom, "#212529" if strong else "#dee2e6", "" if strong else ' stroke-dasharray="2 3"'
            )
        )
        parts.append(text(x, bottom + 14, f"{value:g}", 10, "middle"))
        value += step
    return parts


def bars(row, sides, y, scale):
    parts = [text(LEFT - 8, y + BAR * len(row.times) / 2 + 4, row.title(), 11, "end")]
    for side, colour in sides:
        if side not in row.times:
            continue
        ms = row.times[side]["median"]
        width = ms / unit_of(row) * scale
        parts += [rectangle(LEFT, y, width, BAR - 1, colour), text(LEFT + width + 4, y + BAR - 2, f"{ms:.4g} ms", 9)]
        y += BAR
    return parts


def svg(report):
    rows = report.rows
    sides = [(side, COLOURS[place % len(COLOURS)]) for place, side in enumerate(report.sides)]
    most = 1.05 * max((spread["median"] / unit_of(row) for row in rows for spread in row.times.values()), default=1)
    bottom = TOP + sum(BAR * len(row.times) + GAP for row in rows)
    height, width = bottom + BOTTOM, LEFT + WIDTH + 80
    facts = dict(report.facts)
    title = "All-gather and GEMM" + (f", {facts['device']}" if "device" in facts else "")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        rectangle(0, 0, width, height, "#ffffff"),
        text(LEFT, 20, title, 14),
    ]
    parts += legend(sides) + axis(most, bottom)
    y = float(TOP)
    for row in rows:
        parts += bars(row, sides, y, WIDTH / most)
        y += BAR * len(row.times) + GAP
    parts.append(text(LEFT, bottom + 30, "time of an iteration / max(GEMM alone, best gather alone)", 10))
    return "\n".join(parts + ["</svg>"]) + "\n"
