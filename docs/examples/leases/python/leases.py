"""Named leases of Leasehold over HTTP. Python 3.9 or later; standard library only.

    client = LeaseClient(["http://127.0.0.1:7401", "http://127.0.0.1:7402"])
    with client.acquire("jobs/nightly", owner="me", ttl_s=10) as lease:
        lease.check()                       # right before each action: reads the clock
        write(data, fencing=lease.token)    # the resource refuses a smaller token
"""

import http.client
import json
import random
import secrets
import ssl
import threading
import time
import urllib.parse

RENEW_SHARE = 0.5
# A request without an answer after this share of the lease goes to another server.
ATTEMPT_SHARE = 0.125
# The lease counts as lost this share of its length before its end.
MARGIN_SHARE = 0.1
RETRY_S = 0.05
AFTER_END_S = 0.02
# Servers send a line of a watch every two seconds.
SILENCE_S = 6


def now_s():
    """A clock that also advances while the machine sleeps, where the system has one."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class LeaseError(Exception):
    """A refusal. Its code is one of docs/errors.md."""

    def __init__(self, status, problem):
        super().__init__(problem.get("detail", "no detail"))
        self.status = status
        self.code = problem.get("code", "internal")
        self.holder = problem.get("holder")


class LeaseLost(Exception):
    """The lease is over: stop what it protects."""


class Unavailable(Exception):
    """No server answered in time. A change may have been executed."""


class Stopped(Exception):
    """The program stops while it waits for a lease."""


class LeaseClient:
    """Any server takes any request, so the next one is asked if one fails.

    Where it waits for a lease, it raises Stopped within SILENCE_S of stopping.set().
    """

    def __init__(self, servers, token=None, ca=None, patience_s=30, stopping=None):
        self._servers = [urllib.parse.urlsplit(server) for server in servers]
        self._token = token
        self._tls = ssl.create_default_context(cafile=ca) if ca else None
        self._patience_s = patience_s
        self._preferred = 0
        self._stopping = stopping or threading.Event()

    @property
    def server(self):
        """The server that gets the next request."""
        return self._servers[self._preferred].geturl()

    def acquire(self, name, owner, ttl_s, keys=None, wait_s=None):
        """Returns a Lease; waits until it is free, for at most wait_s (None: without a limit).

        Raises LeaseError with the code lease-taken if another holder still has it.
        """
        session = secrets.randbelow(2**53 - 1) + 1
        body = {"owner": owner, "ttlMs": ttl_s * 1000, "keys": keys or {}}
        until_s = None if wait_s is None else now_s() + wait_s
        try:
            while True:
                if self._stopping.is_set():
                    raise Stopped(f'Waiting for lease "{name}"')
                try:
                    grant, sent_s = self.change("POST", lease_path(name), session, body, attempt_s=ttl_s)
                except LeaseError as error:
                    if error.code != "lease-taken" or error.holder is None:
                        raise
                    limit_s = error.holder["remainingMs"] / 1000 + AFTER_END_S
                    if until_s is not None:
                        left_s = until_s - now_s()
                        if left_s <= 0:
                            raise
                        limit_s = min(limit_s, left_s)
                    self.wait_until_free(name, limit_s)
                    continue
                lease = Lease(self, grant, session, ttl_s, sent_s)
                if lease.is_held:
                    return lease
                # The answer took longer than the lease. The same session is granted a lease again.
                lease.stop()
        except BaseException:
            # An attempt without an answer may have been granted.
            self._release_quietly(name, session)
            raise

    def show(self, name):
        """The state of a lease, from a majority of its voters: owner, token, keys …"""
        return self._exchange("GET", lease_path(name), {}, None, self._patience_s, SILENCE_S)[0]

    def watch(self, name, silence_s=SILENCE_S):
        """Yields (kind, state) for ever: first "state", then each change. Raises OSError if the stream breaks."""
        connection = self._connect(self._servers[self._preferred], silence_s)
        try:
            connection.request("GET", lease_path(name) + "/watch", headers=self._headers())
            answer = connection.getresponse()
            if answer.status != 200:
                raise LeaseError(answer.status, problem_of(answer.read()))
            kind = None
            while True:
                line = answer.readline()
                if line == b"":
                    raise ConnectionError("The stream ended")
                field, _, value = line.decode().rstrip("\r\n").partition(": ")
                if field == "event":
                    kind = value
                elif field == "data":
                    yield kind, json.loads(value)
                else:
                    yield None, None  # a heartbeat, or the end of an event
        finally:
            connection.close()

    def wait_until_free(self, name, limit_s):
        """Returns when the lease may be free: reported as such, or after limit_s."""
        until_s = now_s() + limit_s
        try:
            for kind, state in self.watch(name, silence_s=max(AFTER_END_S, min(limit_s, SILENCE_S))):
                if kind is not None and not state["held"]:
                    break
                if now_s() >= until_s or self._stopping.is_set():
                    break
        except (OSError, LeaseError, http.client.HTTPException):
            self._use_next()
            time.sleep(max(0.0, min(until_s - now_s(), RETRY_S)))
        # Clients that wait for one lease do not all ask in the same moment.
        time.sleep(random.uniform(0, RETRY_S))

    def change(self, method, path, session, body=None, number=None, attempt_s=5.0, limit_s=None):
        """Returns the answer, and the moment before the request was sent. Repeated until there is an answer."""
        headers = {"Leasehold-Session": str(session)}
        if number is not None:
            headers["Leasehold-Change"] = str(number)
        return self._exchange(method, path, headers, body, limit_s or self._patience_s, attempt_s)

    def _exchange(self, method, path, headers, body, limit_s, attempt_s):
        until_s = now_s() + limit_s
        why = "no time was left"
        while now_s() < until_s:
            sent_s = now_s()
            pause_s = RETRY_S
            try:
                connection = self._connect(self._servers[self._preferred], min(attempt_s, until_s - sent_s))
                try:
                    sent = self._headers(headers)
                    text = None
                    if body is not None:
                        sent["Content-Type"] = "application/json"
                        text = json.dumps(body)
                    connection.request(method, path, body=text, headers=sent)
                    answer = connection.getresponse()
                    content = answer.read()
                finally:
                    connection.close()
                if answer.status < 300:
                    return (json.loads(content) if content else None), sent_s
                error = LeaseError(answer.status, problem_of(content))
                if answer.status != 503:
                    raise error
                why = str(error)
                # One server that recovers says nothing about the others: they are asked soon.
                pause_s = min(RETRY_S * 4, float(answer.getheader("Retry-After", "1")))
            except (OSError, http.client.HTTPException) as error:
                why = str(error)
            self._use_next()
            time.sleep(max(0.0, min(pause_s, until_s - now_s())))
        raise Unavailable(f"{method} {path}: {why}")

    def _connect(self, server, timeout_s):
        timeout_s = max(timeout_s, 0.001)
        if server.scheme == "https":
            return http.client.HTTPSConnection(server.netloc, timeout=timeout_s, context=self._tls)
        return http.client.HTTPConnection(server.netloc, timeout=timeout_s)

    def _headers(self, more=None):
        own = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        return {**own, **(more or {})}

    def _use_next(self):
        self._preferred = (self._preferred + 1) % len(self._servers)

    def _release_quietly(self, name, session):
        try:
            self.change("DELETE", lease_path(name), session, attempt_s=1.0, limit_s=1.0)
        except (LeaseError, Unavailable):
            pass  # It was not granted, or no server answers: then it ends by itself.


class Lease:
    """A lease of this process, renewed by a thread until it is released or lost."""

    def __init__(self, client, grant, session, ttl_s, sent_s):
        self.name = grant["name"]
        self.token = grant["token"]
        self.lost = threading.Event()
        self._client = client
        self._session = session
        self._ttl_s = ttl_s
        self._end_s = sent_s + grant["remainingMs"] / 1000
        self._changes = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    @property
    def end_s(self):
        """When it ends at the latest known renewal, by now_s()."""
        return self._end_s

    @property
    def is_held(self):
        """Reads the clock: right even in a process that was stopped for a while."""
        return not self.lost.is_set() and self._left_s() > 0

    def check(self):
        """Call it right before each action. Raises LeaseLost."""
        if not self.is_held:
            raise LeaseLost(f'Lease "{self.name}" (token {self.token}) is over')

    def set_key(self, key, value):
        """Attaches a value, which every client may read."""
        with self._lock:
            # Numbered, so that a repetition that arrives late does not undo a later change.
            self._changes += 1
            path = f"{lease_path(self.name)}/keys/{urllib.parse.quote(key, safe='')}"
            self._change("PUT", path, {"value": value}, self._changes)

    def release(self):
        """Call it when nothing relies on the lease any more."""
        self.stop()
        try:
            self._client.change("DELETE", lease_path(self.name), self._session, attempt_s=self._ttl_s)
        except LeaseError as error:
            if error.code != "lease-lost":
                raise

    def stop(self):
        """Ends the renewals: the lease ends by itself."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def _left_s(self):
        return self._end_s - MARGIN_SHARE * self._ttl_s - now_s()

    def _renew(self):
        # Waits in short steps: the clock may have advanced while the machine slept.
        while not self._stopped.wait(min(1.0, max(0.0, self._end_s - RENEW_SHARE * self._ttl_s - now_s()))):
            if not self.is_held:
                self.lost.set()
                return
            if self._end_s - now_s() > RENEW_SHARE * self._ttl_s:
                continue
            try:
                with self._lock:
                    self._change("PATCH", lease_path(self.name), {"ttlMs": self._ttl_s * 1000}, None)
            except (LeaseError, LeaseLost, Unavailable) as error:
                if isinstance(error, LeaseError) and error.code == "lease-lost":
                    self.lost.set()
                self._stopped.wait(RETRY_S)

    def _change(self, method, path, body, number):
        self.check()
        attempt_s = max(RETRY_S, ATTEMPT_SHARE * self._ttl_s)
        grant, sent_s = self._client.change(
            method, path, self._session, body, number, attempt_s, limit_s=max(RETRY_S, self._left_s())
        )
        if grant["token"] != self.token:
            self.lost.set()
            raise LeaseLost(f'Lease "{self.name}" was acquired again, with token {grant["token"]}')
        # An end that was counted from an earlier moment may be later, and is valid.
        self._end_s = max(self._end_s, sent_s + grant["remainingMs"] / 1000)


def lease_path(name):
    """A name is one segment of the path."""
    return "/v1/leases/" + urllib.parse.quote(name, safe="")


def problem_of(content):
    """An error is a problem document, unless a proxy answered."""
    try:
        return json.loads(content)
    except ValueError:
        return {"detail": content.decode(errors="replace")}
