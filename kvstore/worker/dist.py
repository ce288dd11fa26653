"""DistKVStore: a store shared by several processes. Arrays are summed in this process first; the servers then apply the rounds.

Each key's value has a copy in this process, `_values[key]`, whose engine variable orders everything about the key. A push is two
engine functions. The first adds the devices' arrays up into memory of its own. The second passes the sum to the client, and
completes when the servers have applied the round and the new value is in the copy. No engine thread waits for the network. A pull
reads the copy. It is refreshed when it may be stale: before the first push, and always with dist_async.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import environment
from ...atomic_file import write_atomic
from ...context import cpu
from ...engine import current
from ...errors import KVStoreError, ParameterError
from ...ndarray import NDArray, RowSparseNDArray, empty
from ..array_ops import add_up, copy, queue_async
from ..base import Key, first_values, pairs
from ..job.local_job import LocalJob
from ..local import LocalKVStore, read_states
from ..protocol.key_table import tag
from ..protocol.row_sparse import add_up_rows, row_indices, slice_shape, splits_between_rows
from ..server import optimizer_codec
from ..wire.compression import TwoBit, read_parameters
from ..wire.frame import CHUNK, CODES, FrameType, Record
from .client import Client, common_round
from .key_state import KeyState, SendBuffer
from .requests import Question

_log = logging.getLogger(__name__)
_SMALL = 256 << 10  # bytes: smaller contributions are sent together


class DistKVStore(LocalKVStore):
    """The store of dist_sync, dist_async and dist_device_sync.

    job:   path of the job file; None starts a job of one worker and one server, which ends with this store.
    rank:  the number of this worker; None: the next free one; "new": one more than the job has, from its next barrier on.
    """

    def __init__(self, kind: str = "dist_sync", job: str | os.PathLike | None = None, *, rank: int | str | None = None,
                 timeout: float | None = None):
        super().__init__(kind)
        self._on_device = "device" in kind
        self._sync = "async" not in kind
        self._own_job = None
        if job is None:
            self._own_job = LocalJob()
            job = self._own_job.file
        try:
            self._client = Client(Path(job), "sync" if self._sync else "async", rank=rank, timeout=timeout)
        except BaseException:
            if self._own_job is not None:
                self._own_job.close()
            raise
        self._keys: dict[Key, KeyState] = {}
        self._compression: TwoBit | None = None
        self._resumed: int | None = None  # the step from which it continues
        self._split_size = environment.KVSTORE_BIGARRAY_BOUND.get()  # elements
        self._optimizers = self._barriers = 0  # calls of set_optimizer, and barriers reached
        _open_stores.add(self)

    # ---- members --------------------------------------------------------------------------------------------------------
    @property
    def rank(self) -> int:
        """The position of this worker among the members, from 0. Messages name workers by the number they joined with."""
        ranks = self._client.coordinator.ranks
        return ranks.index(self._client.rank) if self._client.rank in ranks else self._client.rank

    @property
    def num_workers(self) -> int:
        """The number of members, as of the last barrier."""
        return len(self._client.coordinator.ranks)

    def get_num_dead_node(self, node_id: int = 4, timeout: int = 60) -> int:
        """Return the number of dead processes. node_id is a sum of groups: 1 the coordinator, 2 servers, 4 workers.

        timeout:  ignored; for MXNet's signature.
        """
        coordinator, dead = self._client.coordinator, 0
        if node_id & 1:
            dead += coordinator.lost_since is not None
        if node_id & 2:
            dead += sum(server.away for server in self._client.servers)
        if node_id & 4:
            dead += sum(why != "left" for why in coordinator.gone.values())
        return dead

    num_dead_node = property(lambda self: self.get_num_dead_node(7))

    def close(self) -> None:
        """Complete all pushes, up to the deadline, then leave the job. Workers that still need this one get an error.

        During the handling of an exception, the work does not count as complete: with policy "wait" the others wait for a
        replacement.
        """
        self._close(sys.exc_info()[1] is None)

    def _close(self, well: bool) -> None:
        _open_stores.discard(self)
        if self._client.loop.alive and self._values:
            complete = threading.Event()
            copies = {v.chunk.var for v in self._values.values()} | {k.pushed for k in self._keys.values()}
            # with no variables to read, it runs after failed functions, too
            current().push_sync(lambda _: complete.set(), cpu(), (), tuple(copies), name="kvstore.close")
            if not complete.wait(self._client.timeout):
                _log.warning("kvstore: worker %d leaves before its pushes are complete.", self._client.rank)
        self._client.close(well)
        if self._own_job is not None:
            self._own_job.close()

    # ---- keys -----------------------------------------------------------------------------------------------------------
    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        """Create keys. Returns when every worker has called it. The values of rank 0 are used."""
        todo = first_values(key, value)
        for k, arrays in todo:
            self._check_new(k, arrays)
            if np.dtype(arrays[0].dtype) not in CODES:
                raise ParameterError(f"KVStore.init: key {k!r}: values of dtype {np.dtype(arrays[0].dtype)} cannot be sent.")
        large = [[t] for t in todo if t[1][0].nbytes >= _SMALL]
        for group in filter(None, [[t for t in todo if t[1][0].nbytes < _SMALL], *large]):
            buffer = SendBuffer(self._client, [a[0] for _, a in group], separate=True)
            for (k, arrays), stored, place in zip(group, buffer.arrays, buffer.places):
                copy(arrays[0], stored)
                self._values[k], self._keys[k] = stored, KeyState(stored, place)
        for k, _ in todo:
            self._values[k].wait_to_read()
        try:
            m = self._client.request("init", keys=[[tag(k), list(a[0].shape), np.dtype(a[0].dtype).name] for k, a in todo],
                                     big=self._split_size)
            for (k, _), e in zip(todo, m["keys"]):
                self._keys[k].id, self._keys[k].slices = e["id"], [tuple(s) for s in e["slices"]]
                self._client.key_names[e["id"]] = repr(k)
            fill = {e["key"] for e in m["fill"]}
            self._client.perform([p for k, _ in todo if tag(k) in fill for p in self._keys[k].initial_values()])
            if m.get("first"):
                self._client.request("filled", keys=[e["key"] for e in m["keys"]])
            self._join_rounds([k for k, _ in todo])
        except BaseException:
            for k, _ in todo:
                del self._values[k], self._keys[k]
            raise

    def _join_rounds(self, keys: Sequence[Key]) -> None:
        """Set the round of each key: 0, or more if this worker replaces one that died."""
        rounds = self._client.rounds(sorted({s[0] for k in keys for s in self._keys[k].slices}))
        for k in keys:
            state = self._keys[k]
            state.round = common_round(rounds, state.id, len(state.slices))
            if self._resumed is not None and state.round == self._resumed + 1:
                state.round = self._resumed

    def resume(self) -> int:
        """Return the steps that the job has made: 0 in a new job. For scripts that push every key once a step, and have the
        values of a step before they push in the next.

        A worker that replaces a dead one continues with the next step. If the dead worker has pushed some keys of that step,
        these pushes count, and what the replacement pushes for the same keys in this step has no effect; the gradients of the
        other keys are then computed with weights of which some are a step newer. Keys that are pushed less often are ignored.
        """
        versions: dict[int, int] = {}
        for (key, _), n in self._client.rounds(range(len(self._client.servers))).items():
            versions[key] = min(n, versions.get(key, n))
        most = max(versions.values(), default=0)
        self._resumed = min((n for n in versions.values() if n >= most - 1), default=0)
        self._join_rounds(list(self._keys))
        return self._resumed

    # ---- values ---------------------------------------------------------------------------------------------------------
    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        todo = self._pairs("KVStore.push", key, value)
        if self._updater is not None and not self._optimizers:
            raise KVStoreError("KVStore.push: an updater function cannot be sent to the servers. Use set_optimizer, or pull and "
                               "update in this process.")
        todo = self._push_sparse(todo, priority)
        group: list[tuple[Key, Sequence[NDArray]]] = []
        nbytes = round = 0
        for k, arrays in todo:
            size, n = self._values[k].nbytes, self._keys[k].next_round()
            if size >= _SMALL:
                self._push_group([(k, arrays)], priority)
                continue
            if group and (nbytes + size > CHUNK or n != round):
                self._push_group(group, priority)
                group, nbytes = [], 0
            group.append((k, arrays))
            nbytes, round = nbytes + size, n
        if group:
            self._push_group(group, priority)

    def _push_group(self, group: Sequence[tuple[Key, Sequence[NDArray]]], priority: int) -> None:
        """Add up each key's arrays into memory of its own, then send the sums together.

        The group ends when all of its keys have, so they contribute to rounds of one number: otherwise two workers could wait for
        each other's groups.
        """
        buffer, states = SendBuffer(self._client, [a[0] for _, a in group]), [self._keys[k] for k, _ in group]
        sums, two_bit = buffer.arrays, self._compression
        add_up([(self._on_one_device(arrays, priority), total) for (_, arrays), total in zip(group, sums)], priority)
        compressed = [state.compress(s, two_bit, priority) if two_bit is not None and np.dtype(s.dtype) == np.float32 else None
                      for state, s in zip(states, sums)]
        for state in states:
            state.fresh = self._sync

        def send(_: Any, on_complete: Any) -> None:
            if self._sync and len({state.round for state in states}) > 1:
                keys = ", ".join(repr(k) for k, _ in group)
                on_complete(KVStoreError(f"KVStore.push: keys {keys}: an earlier push of some of them has failed, so nothing was "
                                         f"sent. Push each of them again."))
                return
            pushes = [p for state, total, codes, place in zip(states, sums, compressed, buffer.places)
                      for p in state.pushes(total, codes, place, two_bit)]
            self._client.submit(pushes, on_complete, priority)

        reads = [c if c is not None else s for c, s in zip(compressed, sums)]
        self._queue("kvstore.push", send, states, reads, priority, pushes=True)

    def _push_rows(self, key: Key, arrays: Sequence[RowSparseNDArray], priority: int) -> None:
        """Add up each device's rows, then send each server the rows of its slice."""
        state = self._keys[key]
        state.next_round()
        total = add_up_rows(arrays, cpu(), priority)
        if not splits_between_rows(state.slices, state.value.shape):
            self._push_group([(key, [total.tostype("default")])], priority)
            return
        state.fresh = False

        def send(_: Any, on_complete: Any) -> None:
            self._client.submit(state.pushes_of_rows(total), on_complete, priority)

        self._queue("kvstore.push", send, [state], [total.data], priority, pushes=True)

    def _queue(self, name: str, start: Any, states: Sequence[KeyState], reads: Sequence[NDArray], priority: int, *,
               pushes: bool = False) -> None:
        """Push an engine function that starts requests about keys, and completes with the new values in the copies."""
        pushed = [] if self._sync else [state.pushed for state in states]
        queue_async(name, start, reads, [state.value for state in states], priority, const=[] if pushes else pushed,
                    mutable=pushed if pushes else [])

    def _on_one_device(self, arrays: Sequence[NDArray], priority: int) -> Sequence[NDArray]:
        if not self._on_device or len(arrays) == 1 or not arrays[0].context.is_gpu:
            return arrays
        total = empty(arrays[0].shape, ctx=arrays[0].context, dtype=arrays[0].dtype)
        add_up([(arrays, total)], priority)
        return [total]

    def pull(self, key: Key | Sequence[Key], out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        if out is not None:
            self._refresh([k for k, _ in pairs("KVStore.pull", key, out)], priority)
        super().pull(key, out, priority, ignore_sparse)

    def _pull_rows(self, key: Key, out: Any, ids: NDArray, priority: int) -> None:
        """Ask the servers for these rows only, unless the copy is up to date."""
        state, stored = self._keys[key], self._values[key]
        if state.fresh or not splits_between_rows(state.slices, stored.shape):
            self._refresh([key], priority)
            super()._pull_rows(key, out, ids, priority)
            return
        indices = row_indices(ids, stored.shape)
        some = empty((len(indices), *stored.shape[1:]), ctx=cpu(), dtype=stored.dtype)

        def fetch(_: Any, on_complete: Any) -> None:
            self._client.submit(state.pulls_of_rows(some, indices), on_complete, priority)

        queue_async("kvstore.row_sparse_pull", fetch, [stored], [some], priority,
                    const=[] if self._sync else [state.pushed])
        rows = RowSparseNDArray(indices, some.as_in_context(out.context), tuple(stored.shape))
        if isinstance(out, RowSparseNDArray):
            out.rows, out.data = rows.rows, rows.data
        else:
            copy(rows.tostype("default"), out, priority)

    def _refresh(self, keys: Sequence[Key], priority: int) -> None:
        states = [self._keys[k] for k in keys if k in self._keys and not self._keys[k].fresh]
        if not states:
            return

        def fetch(_: Any, on_complete: Any) -> None:
            self._client.submit([p for state in states for p in state.pulls()], on_complete, priority)

        self._queue("kvstore.pull", fetch, states, [], priority)
        for state in states:
            state.fresh = self._sync

    def barrier(self) -> None:
        """Wait until this store's own operations are complete, then for all workers."""
        self._barrier_all()

    def leave(self) -> None:
        """Wait at a barrier, then leave the job: the others continue without this worker. Closes the store."""
        self._barrier_all(leave=True)
        self.close()

    def _barrier_all(self, **fields: Any) -> None:
        super().barrier()
        self._barriers += 1
        self._client.request("barrier", n=self._barriers, **fields)

    # ---- updating -------------------------------------------------------------------------------------------------------
    def set_optimizer(self, optimizer: Any) -> None:
        """Have the servers update by rank 0's optimizer. It is sent as its registered name and its parameters."""
        self._optimizers += 1
        self._client.request("optimizer", spec=optimizer_codec.hook("to_spec")(optimizer), n=self._optimizers)

    def set_gradient_compression(self, compression_params: Any) -> None:
        """Send float32 gradients in 2 bits each: {"type": "2bit", "threshold": 0.5}. The quantization error is sent later."""
        self._compression = read_parameters(compression_params)

    def save_optimizer_states(self, fname: str | os.PathLike, dump_optimizer: bool = False) -> None:
        """Write the states of all servers to one file, in the format of a local store."""
        self._require_optimizer("save_optimizer_states")
        self._wait_for_rounds()
        servers = range(len(self._client.servers))
        answers = self._client.ask([Question(i, FrameType.STATES) for i in servers])
        blobs = {r.name: bytes(payload) for frames in answers for frame, payload in frames for r in frame.records}
        states = [(k, tuple(self._values[k].shape), [(s[1], s[2], blobs[state.id, i]) for i, s in enumerate(state.slices)])
                  for k, state in self._keys.items() if (state.id, 0) in blobs]
        write_atomic(fname, optimizer_codec.hook("join_states")(states))

    def load_optimizer_states(self, fname: str | os.PathLike) -> None:
        """Send the states in fname to the servers. The number of servers may differ from that at saving."""
        self._require_optimizer("load_optimizer_states")
        parts = optimizer_codec.hook("split_states")(read_states(fname), os.fspath(fname), [
            (k, shape, [(*s[1:], slice_shape(shape, state.slices, i)) for i, s in enumerate(state.slices)])
            for k, state in self._keys.items() for shape in [tuple(self._values[k].shape)]])
        self._wait_for_rounds()
        self._client.ask([Question(server, FrameType.STATES, [Record(state.id, i, 0, 0, 0)], parts[k, start])
                          for k, state in self._keys.items() for i, (server, start, _) in enumerate(state.slices)
                          if (k, start) in parts])

    def _wait_for_rounds(self) -> None:
        """Wait until the servers have this worker's rounds: a restarted server may have to apply its last rounds again."""
        super().barrier()
        self._client.perform([p for key in self._keys.values() for p in key.pulls(wanted=False)])

    def _require_optimizer(self, caller: str) -> None:
        if not self._optimizers:
            raise KVStoreError(f"KVStore.{caller}: the store has no optimizer, so no states. Call set_optimizer first.")


_open_stores: weakref.WeakSet[DistKVStore] = weakref.WeakSet()


def _close_all() -> None:
    """Close all stores when the process exits. Under `tritium launch`, the launcher reports whether it exited with success."""
    well = not environment.KV_LAUNCHED.get() and getattr(sys, "last_value", None) is None
    for store in list(_open_stores):
        store._close(well)


atexit.register(_close_all)
