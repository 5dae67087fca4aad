"""Read-write lock: several readers, or one writer.

    python3 read_write_lock.py --mode read --servers http://127.0.0.1:7401 --resource http://127.0.0.1:7500

The lock has a fixed number of slots, each a lease NAME/0, NAME/1 … A reader holds one slot, a writer all of them, so
that a writer excludes all others. A reader sends the token of its slot, a writer the tokens of all: the resource
refuses a reader once a later writer was there, and a writer once a later reader was there.

The lease NAME/gate is for fairness only: a writer keeps it while it collects slots, so that no new reader overtakes it.
Exclusion rests on the slots alone.
"""

from contextlib import ExitStack

from semaphore import Semaphore
from worker import Worker, client_of, parser_of, rounds, run


class ReadWriteLock:
    """All programs must agree on the number of slots: at most so many readers at a time."""

    def __init__(self, client, name, slots):
        self._client = client
        self._gate = f"{name}/gate"
        self._slots = Semaphore(client, name, slots)

    def read(self, stack, owner, ttl_s):
        """Returns the leases of a reader; the stack releases them."""
        with self._client.acquire(self._gate, owner, ttl_s):
            return [stack.enter_context(self._slots.acquire(owner, ttl_s))]

    def write(self, stack, owner, ttl_s):
        """Returns the leases of a writer; the stack releases them."""
        leases = []
        with self._client.acquire(self._gate, owner, ttl_s):
            # In one order for all writers: two that both collect slots (the gate of one was lost) do not deadlock.
            for name in self._slots.names:
                leases.append(stack.enter_context(self._client.acquire(name, owner, ttl_s)))
        return leases


def main():
    parser = parser_of(__doc__.splitlines()[0], "examples/read-write")
    parser.add_argument("--mode", choices=["read", "write"], required=True)
    parser.add_argument("--slots", type=int, default=3)
    options = parser.parse_args()
    client = client_of(options)
    lock = ReadWriteLock(client, options.name, options.slots)
    for _ in rounds(options):
        with ExitStack() as stack:
            if options.mode == "write":
                worker = Worker(options, client, lock.write(stack, options.owner, options.ttl_ms / 1000))
                worker.repeat(worker.increment)
            else:
                worker = Worker(options, client, lock.read(stack, options.owner, options.ttl_ms / 1000))
                worker.repeat(worker.read)


if __name__ == "__main__":
    run(main)
