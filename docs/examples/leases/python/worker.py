"""What the examples have in common: they act on the resource of fenced_resource.py, and print what happens as JSON lines."""

import argparse
import http.client
import json
import signal
import threading
import time
import urllib.parse

from leases import LeaseClient, LeaseLost, Stopped, now_s

# Between two actions.
PAUSE_S = 0.02
stopping = threading.Event()


def parser_of(description, name):
    """Options of all examples."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--servers", required=True, help="URLs of the servers, separated by commas")
    parser.add_argument("--resource", required=True, help="URL of fenced_resource.py")
    parser.add_argument("--name", default=name, help="name of the lease")
    parser.add_argument("--owner", default="example", help="name of this program for people")
    parser.add_argument("--ttl-ms", type=int, default=5000)
    parser.add_argument("--acts", type=int, default=5, help="actions on the resource with each acquisition")
    parser.add_argument("--rounds", type=int, default=0, help="number of acquisitions (default: until SIGTERM)")
    parser.add_argument("--token-file", help="token for the servers")
    parser.add_argument("--ca", help="authority of the servers")
    parser.add_argument(
        "--careless",
        action="store_true",
        help="do not read the clock before an action, as a program that is stopped between the two",
    )
    return parser


def run(main):
    """SIGTERM ends the work in good order, also while it waits for a lease."""
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    try:
        main()
    except Stopped:
        report("stopped")


def client_of(options):
    token = None
    if options.token_file:
        with open(options.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    return LeaseClient(options.servers.split(","), token=token, ca=options.ca, stopping=stopping)


def wall_ms(at_s):
    """A moment of now_s() on the wall clock, which the reports of all languages share."""
    return (time.time() + at_s - now_s()) * 1000


def report(event, **more):
    print(json.dumps({"event": event, "at": wall_ms(now_s()), **more}), flush=True)


class Refused(Exception):
    """The resource has seen a later holder."""


class Worker:
    """Acts on the resource with the tokens of the leases that it holds."""

    def __init__(self, options, client, leases):
        self._options = options
        self._leases = leases
        self.tokens = {lease.name: lease.token for lease in leases}
        self._url = urllib.parse.urlsplit(options.resource)
        self._connection = http.client.HTTPConnection(self._url.netloc, timeout=60)
        report("acquired", owner=options.owner, tokens=self.tokens, server=client.server)

    def increment(self):
        """Reads the value and writes the next one: only right if no other worker comes between."""
        value = self._act("GET")
        self._act("PUT", str(value + 1))

    def read(self):
        return self._act("GET")

    def use(self):
        self._act("POST")

    def repeat(self, act):
        """Acts several times, then releases the leases; stops at once if they are lost."""
        try:
            for _ in range(self._options.acts):
                act()
                if stopping.wait(PAUSE_S):
                    break
            # Before the release is sent, another holder cannot begin.
            until_s = min(now_s(), *(lease.end_s for lease in self._leases))
            report("released", tokens=self.tokens, until=wall_ms(until_s))
        except (LeaseLost, Refused) as error:
            # What this process relied on: the end by its own clock, not the moment at which it noticed.
            until_s = min(lease.end_s for lease in self._leases)
            kind = "refused" if isinstance(error, Refused) else "lost"
            report(kind, tokens=self.tokens, until=wall_ms(until_s), why=str(error))
        finally:
            self._connection.close()

    def _act(self, method, body=None):
        if not self._options.careless:
            for lease in self._leases:
                lease.check()
        fences = ", ".join(f"{name}={token}" for name, token in self.tokens.items())
        headers = {"Lease-Tokens": fences, "Sender": self._options.owner}
        self._connection.request(method, "/", body=body, headers=headers)
        answer = self._connection.getresponse()
        content = json.loads(answer.read())
        if answer.status == 409:
            raise Refused(content["detail"])
        if answer.status != 200:
            raise RuntimeError(content["detail"])
        return content["value"]


def rounds(options):
    """One round for each acquisition, until SIGTERM."""
    done = 0
    while not stopping.is_set() and (options.rounds == 0 or done < options.rounds):
        yield
        done += 1
        # Longer than those who wait pause, so that they get the lease.
        time.sleep(0.1)
