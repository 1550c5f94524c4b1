"""The forms in which a value can be shown, by the methods that notebooks know."""
from binascii import b2a_base64

METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
)
SIMPLE = part("plain").SIMPLE
# Classes of libraries that are shown in more forms than they offer, by module and name.
KINDS = {
    "pandas.core.frame.DataFrame": ("tables", "forms"),
    "pandas.DataFrame": ("tables", "forms"),
    "matplotlib.figure.Figure": ("figures", "forms"),
    "plotly.basedatatypes.BaseFigure": ("plots", "forms"),
}
SMALL = 100_000


def bundle(value):
    """All forms of a value and their metadata; nothing where it has shown itself."""
    kind = type(value)
    if kind in SIMPLE:
        return {"text/plain": repr(value)}, {}
    own = special(value)
    if own is None and not isinstance(value, type):
        shows = method(value, "_ipython_display_")
        if shows is not None:
            shows()
            return None
    data, metadata = {"text/plain": repr(value)}, {}
    if kind in (dict, list):
        add_json(value, data)
        return data, metadata
    if isinstance(value, type) or not foreign(kind):
        return data, metadata
    for name, form in METHODS:
        made = call(value, name)
        if made is not None:
            if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], dict):
                made, metadata[form] = made
            data[form] = made
    offer(value, data, metadata)
    data.update(own or {})
    return clean(data), metadata


def offer(value, data, metadata):
    """What the value's own bundle adds."""
    made = call(value, "_repr_mimebundle_", include=None, exclude=None)
    if isinstance(made, tuple) and len(made) == 2:
        made, more = made
        metadata.update(more or {})
    if isinstance(made, dict):
        data.update(made)


def foreign(kind):
    """Whether the class could have methods for notebooks."""
    return kind.__module__ != "builtins"


def method(value, name):
    """A method for notebooks, unless the value answers to every name."""
    try:
        if getattr(value, "_soma_answers_to_every_name_", None) is not None:
            return None
        found = getattr(value, name, None)
    except Exception:
        return None
    return found if callable(found) else None


def call(value, name, **arguments):
    """What such a method returns; its failure is told and is nobody's end."""
    found = method(value, name)
    if found is None:
        return None
    try:
        return found(**arguments)
    except NotImplementedError:
        return None
    except Exception as error:
        part("errors").elsewhere(error)
        return None


def special(value):
    """The forms that we make ourselves for classes of some libraries."""
    for kind in type(value).__mro__:
        found = KINDS.get("%s.%s" % (kind.__module__, kind.__name__))
        if found is not None:
            try:
                return getattr(part(found[0]), found[1])(value)
            except Exception as error:
                part("errors").elsewhere(error)
                return None
    return None


def add_json(value, data):
    """A small dictionary or list also as JSON."""
    if len(data["text/plain"]) > SMALL:
        return
    import json

    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return
    data["application/json"] = value


def clean(data):
    """Bytes as base64, where the form is binary, and as text otherwise."""
    made = {}
    for form, value in data.items():
        if value is None:
            continue
        if isinstance(value, (bytes, bytearray, memoryview)):
            if form.startswith("text/") or form.endswith("+xml") or form.endswith("javascript"):
                value = bytes(value).decode("utf-8", "replace")
            else:
                value = b2a_base64(value, newline=False).decode()
        elif isinstance(value, str) and form.split("/")[0] in ("image", "audio", "video"):
            if not form.endswith("+xml"):
                value = value.replace("\n", "")
        made[str(form)] = value
    return made
