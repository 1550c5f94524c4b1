"""Boxes and whiskers of a matplotlib figure, read back from the lines they were drawn with."""

charts = part("charts")


def of_lines(axes):
    """Whether lines alone are boxes: closed lines of five points with whiskers beside them."""
    closed = [line for line in axes.get_lines() if is_box(line)]
    return bool(closed) and len(axes.get_lines()) >= 5 * len(closed)


def is_box(line):
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 5 and x[0] == x[-1] and y[0] == y[-1]


def boxes(axes, made):
    """Each box with its quartiles, whiskers and outliers."""
    shapes = [patch.get_path().vertices for patch in axes.patches]
    shapes = shapes or [line.get_xydata() for line in axes.get_lines() if is_box(line)]
    found = []
    for shape in shapes:
        xs, ys = [float(x) for x in shape[:, 0]], [float(y) for y in shape[:, 1]]
        found.append({"x": (min(xs), max(xs)), "y": (min(ys), max(ys))})
    upright = stand(found, axes)
    across, along = ("x", "y") if upright else ("y", "x")
    ticks = axes.get_xticks() if upright else axes.get_yticks()
    names = axes.get_xticklabels() if upright else axes.get_yticklabels()
    known = {round(float(t), 6): n.get_text() for t, n in zip(ticks, names)}
    for box in found:
        low, high = box[along]
        box.update(low=low, high=high, median=None, outliers=[])
    for line in axes.get_lines():
        if is_box(line):
            continue
        points = {"x": [float(x) for x in line.get_xdata()], "y": [float(y) for y in line.get_ydata()]}
        box = owner(found, across, points[across])
        if box is not None:
            take(box, points[across], points[along], box[along])
    for box in found:
        made["elements"].append({
            "label": charts.near(known, *box[across]),
            "min": box["low"],
            "first_quartile": box[along][0],
            "median": box["median"],
            "third_quartile": box[along][1],
            "max": box["high"],
            "outliers": box["outliers"],
        })
    if not upright:
        for word in ("label", "unit"):
            x, y = "x_" + word, "y_" + word
            made[x], made[y] = made[y], made[x]


def stand(found, axes):
    """Whether boxes stand: then the whiskers, which leave a box at its middle, are upright."""
    for line in axes.get_lines():
        x, y = line.get_xdata(), line.get_ydata()
        if len(x) != 2:
            continue
        for box in found:
            middle = sum(box["x"]) / 2
            if x[0] == x[1] and abs(float(x[0]) - middle) < 1e-9:
                return True
            middle = sum(box["y"]) / 2
            if y[0] == y[1] and abs(float(y[0]) - middle) < 1e-9 and not inside(x, box["x"]):
                return False
    return True


def inside(values, span):
    return all(span[0] - 1e-9 <= float(value) <= span[1] + 1e-9 for value in values)


def owner(found, across, values):
    """The box that a line belongs to."""
    for box in found:
        if values and inside(values, box[across]):
            return box
    return None


def take(box, across, along, span):
    """Median, whisker or outliers."""
    if len(along) == 2 and along[0] == along[1] and across[0] != across[1]:
        # The median crosses the box; caps are narrower and outside it or at its edge.
        width = abs(across[1] - across[0])
        full = box["x"] if inside(across, box["x"]) and span is box["y"] else box["y"]
        if span[0] <= along[0] <= span[1] and width > 0.7 * (full[1] - full[0]):
            box["median"] = along[0]
    elif len(along) == 2 and across[0] == across[1]:
        box["low"], box["high"] = min(box["low"], *along), max(box["high"], *along)
    elif not (len(along) == 2):
        box["outliers"].extend(value for value in along if value - value == 0.0)
