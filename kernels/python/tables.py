"""A pandas table as data: columns to lists, for clients that draw it themselves."""

ROWS = 10_000
COLUMNS = 500


def forms(frame):
    """The form beside text and HTML."""
    rows = frame.iloc[:ROWS, :COLUMNS]
    columns = {}
    for at, name in enumerate(rows.columns):
        columns[str(name)] = [cell(value) for value in rows.iloc[:, at].tolist()]
    return {"application/vnd.soma.data+json": columns}


def cell(value):
    """One value: numbers and texts as they are, dates as ISO 8601, what is missing as nothing."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [cell(item) for item in value]
    if isinstance(value, dict):
        return {str(key): cell(item) for key, item in value.items()}
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return cell(value.item())
    return str(value)
