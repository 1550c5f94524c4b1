"""Matplotlib's figures: shown at `show()` or at the end of the cell, then closed."""
import io
import os
import sys

# Figures that the cell has shown as values: they are not shown again at its end.
shown = []


def forms(figure):
    """A figure as pictures and as data."""
    made = {}
    for kind in wanted():
        form = {"png": "image/png", "svg": "image/svg+xml", "jpeg": "image/jpeg"}.get(kind)
        if form == "image/png" or kind in ("svg", "jpeg", "pdf"):
            made[form or "application/pdf"] = picture(figure, kind)
    try:
        chart = part("charts").describe(figure)
    except Exception:
        chart = None
    if chart is not None:
        made["application/vnd.soma.chart+json"] = part("wire").plain(chart)
    if not any(figure is other for other in shown):
        shown.append(figure)
    return made


def wanted():
    """The kinds of pictures: PNG, and what the environment or IPython's settings ask for."""
    kinds = os.environ.get("SOMA_FIGURE_FORMATS", "png").lower().split(",")
    kinds = [kind.strip() for kind in kinds if kind.strip()]
    inline = sys.modules.get("matplotlib_inline.config")
    if inline is not None and inline.InlineBackend.initialized():
        for kind in inline.InlineBackend.instance().figure_formats:
            kind = {"retina": "png", "png2x": "png", "jpg": "jpeg"}.get(kind, kind)
            if kind not in kinds:
                kinds.append(kind)
    return kinds or ["png"]


def picture(figure, kind):
    """The figure drawn, without empty borders."""
    data = io.BytesIO()
    figure.savefig(data, format=kind, bbox_inches="tight", facecolor=figure.get_facecolor())
    return data.getvalue()


def patch(pyplot):
    """`show()` shows here and at once."""

    def show(*_arguments, **_options):
        flush()

    pyplot.show = show


def flush(skip=()):
    """Shows every open figure in order, and closes it."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if not hasattr(pyplot, "get_fignums"):
        return
    try:
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            if not any(figure is other for other in skip):
                data, metadata = part("kernel").flavour.bundle(figure)
                publish(data, metadata)
    finally:
        pyplot.close("all")


def finish(status):
    """The end of a cell: what is still open is shown; a failure is the cell's."""
    skip, shown[:] = list(shown), []
    try:
        flush(skip)
    except BaseException as error:
        if status == "ok":
            return part("kernel").report(error)
        part("errors").elsewhere(error)
    finally:
        shown[:] = []
    return status


def publish(data, metadata=None):
    """Sends something that is shown."""
    part("kernel").flavour.publish(data, metadata)
