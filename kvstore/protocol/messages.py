"""The form of messages to the coordinator."""

from __future__ import annotations

from typing import Any

#: The fields of each message that it must have, with their types; [form]: a list of any length; [form, form, ...]: of so many.
_FORMS: dict[str, dict[str, Any]] = {
    "server_join": {"index": int, "public": str, "address": str},
    "server_back": {"index": int, "public": str, "incarnation": int},
    "server_ack": {"epoch": int},
    "worker_join": {"kind": str, "public": str, "rank": (int, str, type(None))},
    "worker_back": {"id": int, "rank": int, "incarnation": int, "public": str},
    "worker_leave": {},
    "worker_ended": {"rank": int},
    "worker_info": {},
    "worker_init": {"keys": [[str, [int], str]], "big": int},
    "worker_filled": {"keys": [str]},
    "worker_optimizer": {"spec": dict},
    "worker_barrier": {},
    "worker_forget": {"of": (int, str)},
    "worker_missing": {"of": str},
}
_OPTIONAL = {"id": (int, str), "n": int, "optimizers": int}


def wrong_in(role: str, m: dict[str, Any]) -> str:
    """Return what is wrong with the form of a message from a worker or a server, or ""."""
    form = _FORMS.get(f"{role}_{m.get('op')}")
    if form is None:
        return f"unknown request {m.get('op')!r} of a {role}"
    form = {**{name: _OPTIONAL[name] for name in _OPTIONAL.keys() & m.keys()}, **form}
    wrong = [f"{name}={m.get(name)!r:.100}" for name in form if not _fits(m.get(name), form[name])]
    return f"{m['op']}: invalid fields: {', '.join(wrong)}" if wrong else ""


def _fits(value: Any, form: Any) -> bool:
    if not isinstance(form, list):
        return isinstance(value, form)
    return isinstance(value, list) and (all(_fits(v, form[0]) for v in value) if len(form) == 1 else
                                        len(value) == len(form) and all(map(_fits, value, form)))
