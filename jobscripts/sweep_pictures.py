"""Small pictures as SVG: tables of coloured cells, points and curves on axes. Serves sweep_report.py."""
import math
from html import escape

INKS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"]
LOW, HIGH = (237, 248, 251), (0, 109, 44)


def colour(share):
    """Of a value between 0 and 1."""
    return "#%02x%02x%02x" % tuple(round(low + (high - low) * share) for low, high in zip(LOW, HIGH))


def number(value):
    """At most three digits, and k, M, G behind large ones."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= factor:
            return f"{value / (1e3 if letter == 'k' else factor):.3g}{letter}"
    return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3g}"


class Picture:
    def __init__(self, width, height, title):
        self.width, self.height, self.parts = width, height, []
        self.text(20, 20, title, weight="bold")

    def text(self, x, y, text, size=12, anchor="start", fill="#222", weight="normal", turn=0):
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}"{turned}>'
                          f"{escape(text)}</text>")

    def rectangle(self, x, y, width, height, fill, tip):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="#fff">'
                          f"<title>{escape(tip)}</title></rect>")

    def line(self, points, stroke, width=1.5, dashes=""):
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="{width}"{dashed}/>')

    def point(self, x, y, fill, tip=""):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" fill-opacity="0.8"><title>{escape(tip)}</title></circle>')

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:.0f}" height="{self.height:.0f}" '
                f'viewBox="0 0 {self.width:.0f} {self.height:.0f}" font-family="sans-serif">\n'
                f'<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def heat_map(title, rows, columns, cells, corner):
    """cells[(row, column)]: (value from 0 to 1 or None, lines of text, a tip)."""
    left, top, width, height = 170, 70, 200, 92
    picture = Picture(max(620, left + width * len(columns) + 20), top + height * len(rows) + 20, title)
    picture.text(left - 10, top - 12, corner, anchor="end", fill="#666")
    for c, column in enumerate(columns):
        picture.text(left + width * (c + 0.5), top - 12, str(column), anchor="middle")
    for r, row in enumerate(rows):
        picture.text(left - 10, top + height * (r + 0.5) + 4, row, anchor="end")
        for c, column in enumerate(columns):
            share, lines, tip = cells.get((row, column), (None, [], ""))
            picture.rectangle(left + width * c, top + height * r, width, height, "#eee" if share is None else colour(share), tip)
            for i, line in enumerate(lines):
                picture.text(left + width * (c + 0.5), top + height * r + 22 + 18 * i, line, size=12 if i == 0 else 10, anchor="middle",
                             fill="#fff" if share is not None and share > 0.6 else "#222")
    return picture.svg()


class Axes:
    """A plane with ticks in a picture, at marks where they are given; logarithmic where asked."""

    def __init__(self, title, across, up, xs, ys, logarithmic=(False, False), marks=None):
        self.picture, self.logarithmic = Picture(720, 460, title), logarithmic
        self.box = (80, 40, 480, 360)  # left, top, width, height
        self.ranges = [self.range_of(values, log) for values, log in zip((xs, ys), logarithmic)]
        self.picture.text(self.box[0] + self.box[2] / 2, 445, across, anchor="middle")
        self.picture.text(18, self.box[1] + self.box[3] / 2, up, anchor="middle", turn=-90)
        left, top, width, height = self.box
        self.picture.line([(left, top), (left, top + height), (left + width, top + height)], "#222", 1)
        for value in marks or self.ticks(0):
            x = self.at(value, None)[0]
            self.picture.line([(x, top), (x, top + height)], "#e5e5e5", 1)
            self.picture.text(x, top + height + 18, number(value), size=10, anchor="middle")
        for value in self.ticks(1):
            y = self.at(None, value)[1]
            self.picture.line([(left, y), (left + width, y)], "#e5e5e5", 1)
            self.picture.text(left - 6, y + 4, number(value), size=10, anchor="end")
        self.named = 0

    @staticmethod
    def range_of(values, log):
        scaled = [math.log10(value) if log else value for value in values]
        low, high = min(scaled), max(scaled)
        margin = 0.06 * (high - low) or (0.1 if log else abs(high) * 0.1 or 1)
        return low - margin, high + margin

    def ticks(self, axis):
        low, high = self.ranges[axis]
        if self.logarithmic[axis]:
            found = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5) if low <= math.log10(m * 10.0**e) <= high]
            return found if len(found) <= 12 else [value for value in found if math.isclose(math.log10(value), round(math.log10(value)))]
        step = 10.0 ** math.floor(math.log10((high - low) / 4))
        step *= next((m for m in (1, 2, 5) if (high - low) / (step * m) <= 7), 10)
        return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]

    def at(self, x, y):
        place = []
        for value, (low, high), log, begin, length in zip((x, y), self.ranges, self.logarithmic, self.box[:2], self.box[2:]):
            share = 0 if value is None else ((math.log10(value) if log else value) - low) / (high - low)
            place.append(begin + length * share)
        return place[0], 2 * self.box[1] + self.box[3] - place[1]

    def curve(self, points, ink, name="", dashes=""):
        """Points (x, y, tip)."""
        self.picture.line([self.at(x, y) for x, y, _ in points], ink, 2, dashes)
        if not dashes:
            self.points(points, ink)
        if name:
            y = self.box[1] + 10 + 18 * self.named
            self.picture.line([(570, y), (592, y)], ink, 2, dashes)
            self.picture.text(597, y + 4, name if len(name) < 22 else name[:6] + "…" + name[-14:], size=10)
            self.named += 1

    def points(self, points, ink):
        for x, y, tip in points:
            self.picture.point(*self.at(x, y), ink, tip)

    def svg(self):
        return self.picture.svg()
