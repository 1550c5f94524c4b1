"""Plotly's figures and PIL's images: shown here, not in a browser or a viewer."""


def forms(figure):
    """A page that needs nothing from elsewhere, and the figure as data."""
    page = figure.to_html(include_plotlyjs=True, full_html=True)
    data = figure.to_plotly_json()
    made = part("wire").plain(data)
    return {"text/html": page, "application/vnd.plotly.v1+json": made}


def patch(module):
    """`show()` of a Plotly figure."""

    def show(self, *_arguments, **_options):
        part("figures").publish(dict(forms(self), **text(self)))

    module.BaseFigure.show = show
    module.BaseFigure._ipython_display_ = show


def patch_image(module):
    """`show()` of a PIL image."""

    def show(self, *_arguments, **_options):
        part("figures").publish({"text/plain": repr(self), "image/png": png(self)})

    module.Image.show = show


def png(image):
    """The image as PNG, in a mode that PNG knows."""
    import io

    data = io.BytesIO()
    try:
        image.save(data, "PNG")
    except (OSError, KeyError):
        data = io.BytesIO()
        image.convert("RGBA").save(data, "PNG")
    return data.getvalue()


def text(figure):
    """A short text for clients that show nothing else."""
    return {"text/plain": "Figure(%d traces)" % len(figure.data)}
