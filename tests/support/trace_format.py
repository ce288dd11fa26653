"""A checker of Chrome's trace-event JSON, written from the format's description and not from our writer."""

import json
import numbers

REQUIRED = {"X": ("ts", "dur", "pid", "tid", "name"), "i": ("ts", "pid", "tid", "s", "name"), "C": ("ts", "pid", "args", "name"),
            "b": ("ts", "pid", "tid", "id", "cat", "name"), "e": ("ts", "pid", "tid", "id", "cat", "name"),
            "s": ("ts", "pid", "tid", "id", "cat", "name"), "f": ("ts", "pid", "tid", "id", "cat", "name"),
            "M": ("pid", "name", "args")}


def check(text):
    """The events of a trace file; AssertionError names the first that breaks the format."""
    document = json.loads(text, parse_constant=lambda c: (_ for _ in ()).throw(AssertionError(f"{c} is not JSON")))
    events = document["traceEvents"]
    spans, slices, arrows = {}, {}, {}
    for e in events:
        assert e["ph"] in REQUIRED, e
        for key in REQUIRED[e["ph"]]:
            assert key in e, (key, e)
        for key in ("ts", "dur"):
            assert key not in e or (isinstance(e[key], numbers.Real) and e[key] >= 0), e
        if e["ph"] == "X":
            slices.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
        elif e["ph"] == "i":
            assert e["s"] in "gpt", e
        elif e["ph"] == "C":
            assert all(isinstance(v, numbers.Real) for v in e["args"].values()), e
        elif e["ph"] in "be":
            key = (e["cat"], e["id"], e["name"])
            spans[key] = spans.get(key, 0) + (1 if e["ph"] == "b" else -1)
            assert spans[key] in (0, 1), e
        elif e["ph"] in "sf":
            arrows.setdefault((e["cat"], e["id"]), {})[e["ph"]] = e
        elif e["ph"] == "M":
            assert e["name"] in ("process_name", "thread_name"), e
            assert isinstance(e["args"]["name"], str)
    for pair in arrows.values():  # an arrow goes from inside a slice to inside a slice, forward in time
        assert set(pair) == {"s", "f"} and pair["s"]["ts"] <= pair["f"]["ts"], pair
        assert pair["f"]["bp"] == "e"
        for e in pair.values():
            assert any(a <= e["ts"] <= b for a, b in slices[e["pid"], e["tid"]]), e
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert set(slices) <= named
    for lane in slices.values():  # slices of a thread nest
        open_ = []
        for start, end in sorted(lane, key=lambda s: (s[0], -s[1])):
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1] + 0.002, (start, end, open_)  # rounding: nanoseconds in microseconds
            open_.append(end)
    return events
