"""A coordinator without processes, for tests."""

from __future__ import annotations

from tritium.kvstore.protocol.coordinator import Coordinator


class Harness:
    """A coordinator whose servers acknowledge at once. sent: the messages to each peer."""

    def __init__(self, workers=2, servers=1, policy="fail"):
        self.c = Coordinator(workers, servers, policy)
        self.sent: dict[str, list] = {}
        for i in range(servers):
            self.say(f"s{i}", "server", op="join", index=i, address=f"tcp://{i}", public=f"key{i}")

    def take(self, sends):
        for peer, m in sends:
            self.sent.setdefault(peer, []).append(m)
            if "epoch" in m:
                self.take(self.c.receive(peer, "server", {"op": "ack", "epoch": m["epoch"]}))

    def say(self, peer, role="worker", **m):
        """Send a message of peer, and return the answer, or None if it has to wait."""
        m.setdefault("id", f"{m['op']}{len(self.sent.get(peer, []))}")
        self.take(self.c.receive(peer, role, m))
        return self.answer(peer, m["id"])

    def answer(self, peer, number):
        return next((m for m in self.sent.get(peer, []) if m.get("id") == number), None)

    def join(self, peer, rank=None, kind="sync"):
        return self.say(peer, op="join", kind=kind, public=f"public of {peer}", rank=rank)


KEYS = {"keys": [["s:w", [2, 3], "float32"]], "big": 10**6}
