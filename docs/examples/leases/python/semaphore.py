"""Semaphore: at most a fixed number of programs use a resource at a time.

    python3 semaphore.py --permits 2 --servers http://127.0.0.1:7401 --resource http://127.0.0.1:7500

Each permit is a lease of its own, NAME/0, NAME/1 … The resource stores the largest token of each permit.
"""

import random

from leases import AFTER_END_S, LeaseError
from worker import Worker, client_of, parser_of, rounds, run

# A permit that is released while no worker waits for just that one is noticed after this time.
LOOK_AGAIN_S = 0.5


class Semaphore:
    """All programs must agree on the number of permits."""

    def __init__(self, client, name, permits):
        self._client = client
        self.names = [f"{name}/{number}" for number in range(permits)]

    def acquire(self, owner, ttl_s):
        """Returns the lease of any permit; waits until one is free."""
        while True:
            left_s = LOOK_AGAIN_S
            # In random order, so that few programs ask for the same permit.
            for name in random.sample(self.names, len(self.names)):
                try:
                    return self._client.acquire(name, owner, ttl_s, wait_s=0)
                except LeaseError as error:
                    if error.code != "lease-taken" or error.holder is None:
                        raise
                    left_s = min(left_s, error.holder["remainingMs"] / 1000 + AFTER_END_S)
            self._client.wait_until_free(random.choice(self.names), left_s)


def main():
    parser = parser_of(__doc__.splitlines()[0], "examples/semaphore")
    parser.add_argument("--permits", type=int, default=2)
    options = parser.parse_args()
    client = client_of(options)
    semaphore = Semaphore(client, options.name, options.permits)
    for _ in rounds(options):
        with semaphore.acquire(options.owner, options.ttl_ms / 1000) as lease:
            worker = Worker(options, client, [lease])
            worker.repeat(worker.use)


if __name__ == "__main__":
    run(main)
