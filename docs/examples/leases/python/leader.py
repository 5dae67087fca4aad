"""Leader election: one of several programs leads, the others wait and know its address.

    python3 leader.py --servers http://127.0.0.1:7401,http://127.0.0.1:7402 --resource http://127.0.0.1:7500

The holder of the lease leads. Its token is the number of its term: each later leader has a larger one.
"""

from worker import Worker, client_of, parser_of, rounds, run


def leader_of(client, name):
    """Returns (address, term) of the leader; (None, last term) if there is none."""
    state = client.show(name)
    return state["keys"].get("address"), state["token"]


def main():
    parser = parser_of(__doc__.splitlines()[0], "examples/leader")
    parser.add_argument("--address", default="127.0.0.1:0", help="where other programs reach this one if it leads")
    options = parser.parse_args()
    client = client_of(options)
    for _ in rounds(options):
        keys = {"address": options.address}
        with client.acquire(options.name, options.owner, options.ttl_ms / 1000, keys) as lease:
            worker = Worker(options, client, [lease])
            worker.repeat(worker.increment)


if __name__ == "__main__":
    run(main)
