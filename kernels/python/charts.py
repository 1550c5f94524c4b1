"""The data behind a matplotlib figure, in the shape that E2B's clients read."""
import re

UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")
MOST = 100_000


def describe(figure):
    """The chart of a figure: of its one pair of axes, or of all; nothing where it is empty."""
    axes = figure.get_axes()
    if not axes or not any(one.has_data() for one in axes):
        return None
    if len(axes) == 1:
        return chart(axes[0])
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else None
    charts = [chart(one) for one in axes if one.has_data()]
    return {"type": "superchart", "title": title or None, "elements": charts}


def chart(axes):
    """The chart of one pair of axes."""
    kind = kind_of(axes)
    made = {"type": kind, "title": axes.get_title() or None, "elements": []}
    if kind in ("line", "scatter", "bar", "box_and_whisker"):
        for letter in "xy":
            label = getattr(axes, "get_%slabel" % letter)() or None
            unit = UNIT.search(label) if label else None
            made[letter + "_label"] = label
            made[letter + "_unit"] = (unit.group(1) or unit.group(2)) if unit else None
    {
        "line": lines,
        "scatter": dots,
        "bar": bars,
        "pie": wedges,
        "box_and_whisker": part("boxes").boxes,
    }.get(kind, lambda *_: None)(axes, made)
    return made


def kind_of(axes):
    """What the things that were drawn are."""
    from matplotlib.collections import PathCollection
    from matplotlib.container import BarContainer
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch, Rectangle, Wedge
    from matplotlib.text import Text

    things = [child for child in axes.get_children() if not isinstance(child, Text)]
    frame = [axes.patch, axes.xaxis, axes.yaxis, axes.get_legend()] + list(axes.spines.values())
    things = [thing for thing in things if not any(thing is one for one in frame)]
    drawn = [one for one in things if not (isinstance(one, Line2D) and is_grid(one))]

    def all_are(kinds, ones):
        return bool(ones) and all(isinstance(one, kinds) for one in ones)

    if all_are(Line2D, things):
        return "box_and_whisker" if part("boxes").of_lines(axes) else "line"
    if all_are((PathPatch, Line2D), things):
        return "box_and_whisker"
    if all_are(PathCollection, drawn):
        return "scatter"
    if all_are(Wedge, drawn):
        return "pie"
    bar = any(isinstance(one, BarContainer) for one in axes.containers)
    if bar and all_are(Rectangle, [one for one in drawn if not is_error_bar(one, axes)]):
        return "bar"
    return "unknown"


def is_grid(line):
    """Whether a line of two points is level or upright, as helping lines are."""
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and len(y) == 2 and bool(x[0] == x[1] or y[0] == y[1])


def is_error_bar(thing, axes):
    """Whether it belongs to the error bars of bars."""
    for bars_ in axes.containers:
        error = getattr(bars_, "errorbar", None)
        if error is not None and any(thing is one for one in error.get_children()):
            return True
    return False


def lines(axes, made):
    """Lines as their points."""
    scales(axes, made)
    for line in axes.get_lines():
        if is_grid(line) and len(axes.get_lines()) > 1:
            continue
        label = str(line.get_label())
        if re.match(r"_(child|line)\d+$", label):
            label = "Line " + re.sub(r"\D", "", label)
        points = list(zip(line.get_xdata(), line.get_ydata()))[:MOST]
        made["elements"].append({"label": label, "points": [pair(*point) for point in points]})


def dots(axes, made):
    """Scattered points."""
    scales(axes, made)
    for collection in axes.collections:
        points = [pair(x, y, axes) for x, y in list(collection.get_offsets())[:MOST]]
        made["elements"].append({"label": str(collection.get_label()), "points": points})


def bars(axes, made):
    """Bars with the labels they stand at."""
    upright = True
    for container in axes.containers:
        rectangles = list(getattr(container, "patches", ()))
        if not rectangles:
            continue
        group = str(container.get_label())
        if group.startswith("_container"):
            group = "Group " + group[len("_container") :]
        upright = getattr(container, "orientation", None) != "horizontal"
        ticks = axes.get_xticks() if upright else axes.get_yticks()
        names = axes.get_xticklabels() if upright else axes.get_yticklabels()
        known = {round(float(t), 6): n.get_text() for t, n in zip(ticks, names)}
        for bar in rectangles[:MOST]:
            start, width = (bar.get_x(), bar.get_width()) if upright else (bar.get_y(), bar.get_height())
            label = near(known, float(start), float(start + width))
            value = bar.get_height() if upright else bar.get_width()
            made["elements"].append({"label": label, "group": group, "value": number(value)})
    if not upright:
        for word in ("label", "unit"):
            x, y = "x_" + word, "y_" + word
            made[x], made[y] = made[y], made[x]


def near(known, start, end):
    """The label of the tick that a bar stands at, or where it stands."""
    low, high = min(start, end), max(start, end)
    middle = (low + high) / 2
    inside = [tick for tick in known if low - 1e-9 <= tick <= high + 1e-9 and known[tick]]
    if not inside:
        inside = [tick for tick in known if known[tick] and abs(tick - middle) <= 0.5]
    if inside:
        return known[min(inside, key=lambda tick: abs(tick - middle))]
    return "%g" % middle


def wedges(axes, made):
    """The slices of a pie."""
    for wedge in axes.patches:
        angle = abs(round(float(wedge.theta2) - float(wedge.theta1), 6))
        element = {"label": str(wedge.get_label()), "angle": angle, "radius": float(wedge.r)}
        made["elements"].append(element)


def scales(axes, made):
    """Ticks and scale of both directions."""
    from matplotlib import dates

    for letter in "xy":
        axis = getattr(axes, letter + "axis")
        ticks = [float(tick) for tick in axis.get_majorticklocs()]
        labels = [label.get_text() for label in axis.get_majorticklabels()]
        scale = axis.get_scale()
        if is_date(axis):
            scale = "datetime"
            ticks = [dates.num2date(tick).isoformat() for tick in ticks]
        elif scale == "linear" and labels and all(
            tick == at and label != str(at) for at, (tick, label) in enumerate(zip(ticks, labels))
        ):
            scale = "categorical"
        made[letter + "_ticks"], made[letter + "_tick_labels"] = ticks, labels
        made[letter + "_scale"] = scale


def is_date(axis):
    """Whether an axis shows dates."""
    get = getattr(axis, "get_converter", None)
    converter = get() if get else getattr(axis, "converter", None)
    return "Date" in type(converter).__name__ or "Datetime" in type(converter).__name__


def pair(x, y, axes=None):
    """A point; dates of an axis of dates as ISO 8601."""
    if axes is not None:
        from matplotlib import dates

        if is_date(axes.xaxis):
            x = dates.num2date(x)
        if is_date(axes.yaxis):
            y = dates.num2date(y)
    return [number(x), number(y)]


def number(value):
    """A value of any library as JSON knows it."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__name__ == "datetime64":
        return str(value.astype("datetime64[s]"))
    if isinstance(value, str):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
