"""DistKVStore: a store shared by several processes. Arrays are summed here first; then rounds are made on the servers.

Each key's value has a copy in this process, `_values[key]`, whose engine variable orders everything about the key. push is two
engine functions: one adds the devices' arrays up into memory of its own; the other hands that to the client and ends when the
servers have made the round, having written the new value into the copy. No engine thread waits for the network. pull copies from
the copy, which is asked for anew where it may be out of date: before the first push, and always with dist_async.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zmq.utils.garbage  # noqa: F401  its end at exit is registered now, before ours, so that it comes after ours

from ...atomic_file import read_file, write_atomic
from ...context import cpu
from ...engine import Var, current
from ...errors import FileError, KVStoreError, ParameterError, RoundMadeError
from ...ndarray import NDArray, RowSparseNDArray, empty, zeros
from ..array_ops import add_up, add_up_each, copy, queue, queue_async
from ..base import Key, Updater, first_values, pairs
from ..job.local_job import Job
from ..local import LocalKVStore, fits
from ..protocol.placement import tag
from ..protocol.row_sparse import add_up_rows, aligned, part_shape, row_numbers, row_size
from ..server import optimizer_codec
from ..wire.compression import TwoBit, packed_bytes, read_parameters
from ..wire.frame import CHUNK, CODES, TWO_BITS, Op, Record
from .client import Client, round_of
from .requests import Fetch, FetchRows, Send, SendRows, Work
from .send_buffer import Piece, Place

_log = logging.getLogger(__name__)
_SMALL = 256 << 10  # bytes: contributions below it travel together


class _Key:
    """What this worker knows of a key: its number, where its parts are, and its last round.

    place:   of the copy in shared memory.
    fresh:   the copy is what the servers have, or will be once what is queued is done.
    pushed:  async: variable of the pushes: where one failed, what asks for the value is skipped, and carries the error on.
    """

    __slots__ = ("fresh", "id", "parts", "place", "pushed", "residual", "round")

    def __init__(self, place: Place | None):
        self.place, self.pushed = place, Var()
        self.id, self.parts, self.round = -1, [], 0
        self.fresh = False
        self.residual: NDArray | None = None


class _Countdown:
    """Calls done when all of several parts have ended, with the first error."""

    def __init__(self, count: int, done: Any):
        self.count, self.done, self.error = count, done, None

    def __call__(self, error: BaseException | None = None) -> None:
        self.count -= 1
        self.error = self.error or error
        if not self.count:
            self.done(self.error) if self.error is not None else self.done()


class DistKVStore(LocalKVStore):
    """dist_sync, dist_async, dist_device_sync.

    job:   the path of the job's key file; None starts a job of one worker and one server, which ends with this store.
    rank:  which worker this is; None: the next that is not here yet; "new": one more than the job has, from its next barrier on.
    """

    def __init__(self, kind: str = "dist_sync", job: str | os.PathLike | None = None, *, rank: int | str | None = None,
                 timeout: float | None = None):
        super().__init__(kind)
        self._on_device = "device" in kind
        self._sync = "async" not in kind
        self._own_job = Job() if job is None else None
        file = self._own_job.file if self._own_job is not None else Path(os.fspath(job))  # type: ignore[arg-type]
        try:
            self._client = Client(file, "sync" if self._sync else "async", rank=rank, timeout=timeout)
        except BaseException:
            if self._own_job is not None:
                self._own_job.close()
            raise
        self._keys: dict[Key, _Key] = {}
        self._compression: TwoBit | None = None
        self._resumed: int | None = None  # the step it goes on from
        self._big = int(os.environ.get("MXNET_KVSTORE_BIGARRAY_BOUND", "1000000"))
        self._optimizers = self._barriers = 0  # how often set, and how many reached
        _open_stores.add(self)

    # ---- who is here ----------------------------------------------------------------------------------------------------
    @property
    def rank(self) -> int:
        """This worker's place among those that take part, from 0. Messages name workers by the number they joined with."""
        ranks = self._client.control.ranks
        return ranks.index(self._client.rank) if self._client.rank in ranks else self._client.rank

    @property
    def num_workers(self) -> int:
        """How many take part, since the last barrier."""
        return len(self._client.control.ranks)

    def get_num_dead_node(self, node_id: int = 4, timeout: int = 60) -> int:
        """How many processes are dead. node_id adds up groups: 1 the coordinator, 2 servers, 4 workers.

        timeout:  as in MXNet; whatever it is, a process's death shows here at once, that of a machine or a network after
                  TRITIUM_KV_LOST_AFTER seconds (10).
        """
        dead = 0
        if node_id & 1:
            dead += self._client.control.lost is not None
        if node_id & 4:
            dead += sum(why != "left" for why in self._client.control.gone.values())
        if node_id & 2:
            dead += sum(link.away for link in self._client.links)
        return dead

    num_dead_node = property(lambda self: self.get_num_dead_node(7))

    def close(self) -> None:
        """End what was pushed, then leave the job. A worker that still needs this one is told that it has left.

        Rounds that this worker has contributed to are waited for, until the deadline; those of the dead end at once. Called while
        an exception is on its way, this is no good end: with policy "wait" the others wait for a replacement.
        """
        self._close(sys.exc_info()[1] is None)

    def _close(self, well: bool) -> None:
        _open_stores.discard(self)
        if self._client.alive and self._values:
            ended = threading.Event()
            copies = {v.chunk.var for v in self._values.values()} | {k.pushed for k in self._keys.values()}
            current().push_sync(lambda _: ended.set(), cpu(), (), tuple(copies), name="kvstore.close")  # runs after failures too
            if not ended.wait(self._client.timeout):
                _log.warning("kvstore: worker %d leaves before what it pushed has ended.", self._client.rank)
        self._client.close(well)
        if self._own_job is not None:
            self._own_job.close()

    # ---- keys -----------------------------------------------------------------------------------------------------------
    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        """Make keys; returns when every worker has called it. Rank 0's values win."""
        what = "KVStore.init"
        todo = first_values(key, value)
        for k, arrays in todo:
            self._same_type(what, k)
            if k in self._values or len(arrays) > 1:
                raise ParameterError(f"{what}: key {k!r} exists already. Make a key once; push changes it.")
            if np.dtype(arrays[0].dtype) not in CODES:
                raise ParameterError(f"{what}: key {k!r}: {np.dtype(arrays[0].dtype)} does not travel between processes.")
        large = [[t] for t in todo if t[1][0].nbytes >= _SMALL]
        for group in filter(None, [[t for t in todo if t[1][0].nbytes < _SMALL], *large]):
            piece = Piece(self._client, [a[0] for _, a in group], apart=True)
            for (k, arrays), stored, place in zip(group, piece.arrays, piece.places):
                copy(arrays[0], stored)
                self._values[k], self._keys[k] = stored, _Key(place)
        for k, _ in todo:
            self._values[k].wait_to_read()
        try:
            m = self._client.request("init", keys=[[tag(k), list(a[0].shape), np.dtype(a[0].dtype).name] for k, a in todo],
                                     big=self._big)
            self._learn(todo, m["keys"])
            if m["fill"]:
                self._fill([e["key"] for e in m["fill"]])
            if m.get("first"):
                self._client.request("filled", keys=[e["key"] for e in m["keys"]])
            self._join_rounds([k for k, _ in todo])
        except BaseException:
            for k, _ in todo:
                del self._values[k], self._keys[k]
            raise

    def _learn(self, todo: Sequence[tuple[Key, Any]], entries: Sequence[Mapping[str, Any]]) -> None:
        for (k, _), e in zip(todo, entries):
            key = self._keys[k]
            key.id, key.parts = e["id"], [tuple(p) for p in e["parts"]]
            self._client.key_names[key.id] = repr(k)

    def _fill(self, tagged: Sequence[str]) -> None:
        """Give keys their first values on the servers."""
        names = {tag(k): k for k in self._keys}
        todo = [names[t] for t in tagged]
        self._values_through(todo, lambda k, part, data, place, done: Send(
            self._keys[k].parts[part][0], self._keys[k].id, part, data, 0, None, done, place=place, fill=True))

    def _join_rounds(self, keys: Sequence[Key]) -> None:
        """The round that each key is at: 0, or more where this worker replaces one that died."""
        shards = sorted({p[0] for k in keys for p in self._keys[k].parts})
        rounds = self._client.rounds(shards)
        for k in keys:
            key = self._keys[k]
            key.round = round_of(rounds, key.id, len(key.parts))
            if self._resumed is not None and key.round == self._resumed + 1:
                key.round = self._resumed

    def resume(self) -> int:
        """How many steps the job has made, for a script that pushes every key once a step: 0 in a new job.

        A worker that replaces one that died goes on with the next step. Some keys may have been in that step already when the
        worker before it died: that counted, and what is pushed for them in this step is answered and changes nothing. Gradients
        of the remaining keys are then computed with weights of which some are a step newer. Keys that are pushed less often than
        others, or never, are left out of account.
        """
        versions: dict[int, int] = {}
        for (key, _), n in self._client.rounds(range(len(self._client.links))).items():
            versions[key] = min(n, versions.get(key, n))
        most = max(versions.values(), default=0)
        self._resumed = min((n for n in versions.values() if n >= most - 1), default=0)
        if self._keys:
            self._join_rounds(list(self._keys))
        return self._resumed

    def _values_through(self, keys: Sequence[Key], make: Any) -> None:
        """Submit make(key, part, its memory, its place, done) for every part of keys, and wait."""
        from concurrent.futures import Future

        ended: Future[None] = Future()

        def done(error: BaseException | None = None) -> None:
            ended.set_exception(error) if error is not None else ended.set_result(None)

        work: list[Work] = []
        countdown = _Countdown(sum(len(self._keys[k].parts) for k in keys), done)
        for k in keys:
            for i in range(len(self._keys[k].parts)):
                work.append(make(k, i, *self._out(k, i), countdown))
        if work:
            self._client.submit(work)
            self._client.wait_all([ended], "the servers' answer")

    def _out(self, key: Key, part: int) -> tuple[np.ndarray, tuple[int, int] | None]:
        """The memory of one part of the copy of a key, and its place in shared memory, if it is there."""
        known = self._keys[key]
        _, start, stop = known.parts[part]
        flat = self._values[key].device_array().reshape(-1)
        return flat[start:stop], _further(known.place, start, flat)

    # ---- values ---------------------------------------------------------------------------------------------------------
    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        what = "KVStore.push"
        todo = pairs(what, key, value)
        for k, arrays in todo:
            for a in arrays:
                fits(what, k, self._stored(what, k), a)
        if self._updater is not None and not self._optimizers:
            raise KVStoreError(f"{what}: an updater function cannot travel to the servers. Use set_optimizer, or pull and update "
                               f"here.")
        todo = self._push_sparse(todo, priority)
        group: list[tuple[Key, Sequence[NDArray]]] = []
        nbytes = 0
        for k, arrays in todo:
            size = self._values[k].nbytes
            if size >= _SMALL:
                self._push_group([(k, arrays)], priority)
                continue
            if nbytes + size > CHUNK:
                self._push_group(group, priority)
                group, nbytes = [], 0
            group.append((k, arrays))
            nbytes += size
        if group:
            self._push_group(group, priority)

    def _push_group(self, group: Sequence[tuple[Key, Sequence[NDArray]]], priority: int) -> None:
        """Add up each key's arrays into memory of its own, then send them together."""
        piece = Piece(self._client, [a[0] for _, a in group])
        sums = piece.arrays
        jobs = [(self._on_one_device(arrays, priority), total) for (_, arrays), total in zip(group, sums)]
        if len(jobs) == 1:
            add_up(*jobs[0], priority)
        else:
            add_up_each(jobs, priority)
        packed = [self._compress(k, s, priority) for (k, _), s in zip(group, sums)]
        for k, _ in group:
            self._keys[k].fresh = self._sync

        def send(_: Any, on_complete: Any) -> None:
            work = [w for (k, _), total, pack, place in zip(group, sums, packed, piece.places)
                    for w in self._sends(k, total, pack, place, piece.release)]
            piece.lend(len(work))
            countdown = _Countdown(len(work), on_complete)
            for w in work:
                w.done.then = countdown
            self._client.submit(work, priority)

        reads = [p if p is not None else s for p, s in zip(packed, sums)]
        queue_async("kvstore.push", send, reads, [self._values[k] for k, _ in group], priority,
                    mutable=[] if self._sync else [self._keys[k].pushed for k, _ in group])

    def _push_rows(self, key: Key, arrays: Sequence[RowSparseNDArray], priority: int) -> None:
        """Add up each device's rows, then send each server those that are its own."""
        known, shape = self._keys[key], self._values[key].shape
        total = add_up_rows(arrays, cpu(), priority)
        if not aligned(known.parts, shape):
            self._push_group([(key, [total.tostype("default")])], priority)
            return
        known.fresh = False
        width = row_size(shape)

        def send(_: Any, on_complete: Any) -> None:
            known.round += 1
            flat, n = total.data.device_array().reshape(-1), known.round
            work: list[Work] = []
            countdown = _Countdown(len(known.parts), on_complete)
            for i, (shard, start, stop) in enumerate(known.parts):
                a, b = np.searchsorted(total.rows, (start // width, stop // width))
                work.append(SendRows(shard, known.id, i, total.rows[a:b] - start // width, flat[a * width:b * width], width, n,
                                     _Ended(known, n, countdown)))
            self._client.submit(work, priority)

        queue_async("kvstore.push", send, [total.data], [self._values[key]], priority,
                    mutable=[] if self._sync else [known.pushed])

    def _on_one_device(self, arrays: Sequence[NDArray], priority: int) -> Sequence[NDArray]:
        if not self._on_device or len(arrays) == 1 or not arrays[0].context.is_gpu:
            return arrays
        total = empty(arrays[0].shape, ctx=arrays[0].context, dtype=arrays[0].dtype)
        add_up(arrays, total, priority)
        return [total]

    def _sends(self, k: Key, total: NDArray, packed: NDArray | None, place: Place | None, release: Any) -> list[Send]:
        """The contributions of a key's parts to its next round."""
        key = self._keys[k]
        key.round += 1
        n, made = key.round, []
        at = 0
        for i, (shard, start, stop) in enumerate(key.parts):
            out, out_place = self._out(k, i)
            if packed is not None:
                assert self._compression is not None
                codes = packed.device_array()[at:at + packed_bytes(stop - start)]
                at += len(codes)
                made.append(Send(shard, key.id, i, codes, n, out, _Ended(key, n), out_place=out_place, release=release,
                                 code=TWO_BITS, n=stop - start, threshold=self._compression.threshold))
                continue
            flat = total.device_array().reshape(-1)
            made.append(Send(shard, key.id, i, flat[start:stop], n, out, _Ended(key, n), place=_further(place, start, flat),
                             out_place=out_place, release=release))
        return made

    def _compress(self, k: Key, total: NDArray, priority: int) -> NDArray | None:
        """The 2-bit form of a sum, part by part; None if there is no compression."""
        two_bit, key = self._compression, self._keys[k]
        if two_bit is None or np.dtype(total.dtype) != np.float32:
            return None
        residual = key.residual
        if residual is None:
            residual = key.residual = zeros(total.shape, ctx=cpu())
        ranges = [(start, stop) for _, start, stop in key.parts]
        packed = empty((sum(packed_bytes(b - a) for a, b in ranges),), ctx=cpu(), dtype="uint8")

        def run(_: Any) -> None:
            grad, kept, out, at = total.device_array().reshape(-1), residual.device_array().reshape(-1), packed.device_array(), 0
            for a, b in ranges:
                size = packed_bytes(b - a)
                two_bit.compress(grad[a:b], kept[a:b], out[at:at + size])
                at += size

        queue("kvstore.compress", run, [total], [packed, residual], priority)
        return packed

    def pull(self, key: Key | Sequence[Key], out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        if out is not None:
            self._refresh([k for k, _ in pairs("KVStore.pull", key, out)], priority)
        super().pull(key, out, priority, ignore_sparse)

    def _pull_rows(self, key: Key, out: Any, ids: NDArray, priority: int) -> None:
        """Ask the servers for these rows alone, unless the copy here is up to date."""
        known, stored = self._keys[key], self._values[key]
        if known.fresh or not aligned(known.parts, stored.shape):
            self._refresh([key], priority)
            super()._pull_rows(key, out, ids, priority)
            return
        numbers, width = row_numbers(ids, stored.shape), row_size(stored.shape)
        some = empty((len(numbers), *stored.shape[1:]), ctx=cpu(), dtype=stored.dtype)

        def fetch(_: Any, on_complete: Any) -> None:
            flat = some.device_array().reshape(-1)
            work: list[Work] = []
            countdown = _Countdown(0, on_complete)
            for i, (shard, start, stop) in enumerate(known.parts):
                a, b = np.searchsorted(numbers, (start // width, stop // width))
                for at in range(a, b, CHUNK // 8):
                    end = min(at + CHUNK // 8, b)
                    work.append(FetchRows(shard, known.id, i, numbers[at:end] - start // width, flat[at * width:end * width],
                                          countdown, known.round))
            countdown.count = len(work)
            self._client.submit(work, priority) if work else on_complete()

        queue_async("kvstore.row_sparse_pull", fetch, [stored], [some], priority,
                    const=[] if self._sync else [known.pushed])
        rows = RowSparseNDArray(numbers, some.as_in_context(out.context), tuple(stored.shape))
        if isinstance(out, RowSparseNDArray):
            out.rows, out.data = rows.rows, rows.data
        else:
            copy(rows.tostype("default"), out, priority)

    def _refresh(self, keys: Sequence[Key], priority: int) -> None:
        """Ask the servers for the values whose copies may be out of date."""
        stale = [k for k in keys if k in self._keys and not self._keys[k].fresh]
        if not stale:
            return

        def fetch(_: Any, on_complete: Any) -> None:
            countdown = _Countdown(sum(len(self._keys[k].parts) for k in stale), on_complete)
            work: list[Work] = []
            for k in stale:
                for i, (shard, _, _) in enumerate(self._keys[k].parts):
                    work.append(Fetch(shard, self._keys[k].id, i, *self._out(k, i), countdown, self._keys[k].round))
            self._client.submit(work, priority)

        queue_async("kvstore.pull", fetch, [], [self._values[k] for k in stale], priority,
                    const=[] if self._sync else [self._keys[k].pushed for k in stale])
        for k in stale:
            self._keys[k].fresh = self._sync

    def barrier(self) -> None:
        """Wait until this store's own operations are done, then for all workers."""
        self._barrier_all()

    def leave(self) -> None:
        """A barrier with which this worker leaves: the others go on without it. The store is closed then."""
        self._barrier_all(leave=True)
        self.close()

    def _barrier_all(self, **fields: Any) -> None:
        super().barrier()
        self._barriers += 1
        self._client.request("barrier", n=self._barriers, **fields)

    # ---- updating -------------------------------------------------------------------------------------------------------
    def set_updater(self, updater: Updater | None) -> None:
        """As MXNet has it: the function stays in this process, and cannot update what is on the servers."""
        super().set_updater(updater)

    _set_updater = set_updater

    def set_optimizer(self, optimizer: Any) -> None:
        """Have the servers update by rank 0's optimizer. It travels as its registered name and its numbers."""
        self._optimizers += 1
        self._client.request("optimizer", spec=optimizer_codec.hook("to_spec")(optimizer), n=self._optimizers)

    def set_gradient_compression(self, compression_params: Any) -> None:
        """Send float32 gradients in 2 bits each: {"type": "2bit", "threshold": 0.5}. What they leave out is sent later."""
        self._compression = read_parameters(compression_params)

    def save_optimizer_states(self, fname: str | os.PathLike, dump_optimizer: bool = False) -> None:
        """Gather the states of all servers into one file, of the same form as a local store's."""
        self._need_optimizer("save_optimizer_states")
        super().barrier()
        blobs: dict[tuple[int, int], bytes] = {}
        self._wait_for_rounds()
        links = range(len(self._client.links))
        for frames in self._client.wait_all([self._client.ask(i, Op.STATES) for i in links], "the servers' states"):
            for frame, payload in frames:
                for r in frame.records:
                    blobs[r.key, r.part] = blobs.get((r.key, r.part), b"") + payload
        whole = [(k, tuple(self._values[k].shape), [(p[1], p[2], blobs[key.id, i]) for i, p in enumerate(key.parts)])
                 for k, key in self._keys.items() if (key.id, 0) in blobs]
        write_atomic(fname, optimizer_codec.hook("join_states")(whole))

    def load_optimizer_states(self, fname: str | os.PathLike) -> None:
        """Give the servers the states in fname, however many servers they were saved from."""
        self._need_optimizer("load_optimizer_states")
        try:
            data = read_file(fname)
        except OSError as e:
            raise FileError(f"{fname}: cannot be read: {e.strerror}.") from e
        cut = optimizer_codec.hook("split_states")(data, os.fspath(fname), [
            (k, shape, [(*p[1:], part_shape(shape, key.parts, i)) for i, p in enumerate(key.parts)])
            for k, key in self._keys.items() for shape in [tuple(self._values[k].shape)]])
        self._wait_for_rounds()
        futures = []
        for k, key in self._keys.items():
            for i, (shard, start, _) in enumerate(key.parts):
                if (k, start) in cut:
                    futures.append(self._client.ask(shard, Op.STATES, cut[k, start], [Record(key.id, i, 0, 0, 0)]))
        self._client.wait_all(futures, "the servers' answer")

    def _wait_for_rounds(self) -> None:
        """Until the servers are where this worker is: one that died and is back may have to make its last rounds anew."""
        self._values_through(list(self._keys), lambda k, part, _data, _place, done: Fetch(
            self._keys[k].parts[part][0], self._keys[k].id, part, None, None, done, self._keys[k].round))

    def _need_optimizer(self, what: str) -> None:
        if not self._optimizers:
            raise KVStoreError(f"KVStore.{what}: the store has no optimizer, so no states. Call set_optimizer first.")


def _further(place: Place | None, start: int, flat: np.ndarray) -> Place | None:
    """The place of the elements from start on."""
    return None if place is None else (place[0], place[1] + start * flat.itemsize)


class _Ended:
    """Notes that a contribution to round n of a key has ended, then tells `then`."""

    __slots__ = ("key", "n", "then")

    def __init__(self, key: _Key, n: int, then: Any = None):
        self.key, self.n, self.then = key, n, then

    def __call__(self, error: BaseException | None = None) -> None:
        if getattr(error, "made", False):
            self.key.fresh = self.key.fresh and isinstance(error, RoundMadeError)  # else it counts, and has not brought the value
        elif error is not None and self.key.round == self.n:
            self.key.round = self.n - 1  # it was not applied: the next push is this round
        self.then(error)  # type: ignore[misc]


_open_stores: weakref.WeakSet[DistKVStore] = weakref.WeakSet()


def _close_all() -> None:
    """At the end of the process. How it ends, only whoever started it can know for sure, and `tritium launch` says it."""
    well = "TRITIUM_KV_LAUNCHED" not in os.environ and getattr(sys, "last_value", None) is None
    for store in list(_open_stores):
        store._close(well)


atexit.register(_close_all)
