"""What pages and figures show: an outline of HTML, the texts of a figure, and rows of sweeps to draw."""

import re
from html.parser import HTMLParser

from dmq_fast.experiments.sweeps.spec import seeds_of

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Outline(HTMLParser):
    """Checks that elements are closed in order; collects ids, references, addresses, texts and tags."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.references, self.addresses, self.texts, self.tags = [], [], [], [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.look(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.look(tag, attributes)

    def look(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            elif name in ("href", "xlink:href", "src"):
                (self.references if value.startswith("#") else self.addresses).append(value.removeprefix("#"))
            else:
                self.references += re.findall(r"url\(#([^)]*)\)", value or "")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def row(
    seed=0, *, environment="lock", algorithm="dmq", value=0.7, spent=100, status="finished", of=None, by=None, **more
):
    """A row as a sweep stores it; `of` and `by` are the parameters of the environment and of the algorithm."""
    of, by = of or {}, by or {}
    return {
        "cell": f"{environment}{of}{algorithm}{by}",
        "seed": seed,
        "environment": environment,
        "environment_parameters": of,
        "environment_seed": seeds_of(seed)[0],
        "algorithm": algorithm,
        "algorithm_parameters": by,
        "status": status,
        "value": value,
        "optimal_value": 0.7,
        "n_trajectories": spent,
        "counts": {},
        "seconds": 0.5,
        "details": {},
        **more,
    }  # fmt: skip


def texts(figure):
    """All texts of a figure, but for the labels of ticks beyond the ends of their axis."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    beyond = [
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
        if not min(axis.get_view_interval()) <= place <= max(axis.get_view_interval())
    ]
    found = figure.findobj(Text)
    return [text for text in found if text.get_visible() and text.get_text() and text not in beyond]
