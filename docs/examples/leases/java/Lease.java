import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;

/** A lease of this process, renewed by a thread until it is released or lost. */
final class Lease {
  private static final double RENEW_SHARE = 0.5;
  /** A request without an answer after this share of the lease goes to another server. */
  private static final double ATTEMPT_SHARE = 0.125;
  /** The lease counts as lost this share of its length before its end. */
  private static final double MARGIN_SHARE = 0.1;
  private static final long RETRY_MS = 50;
  private static final long STEP_MS_MAX = 1_000;

  /** The lease is over: stop what it protects. */
  static final class Lost extends Exception {
    Lost(String message) {
      super(message);
    }
  }

  final String name;
  /** Fencing token: the resource refuses a smaller one than it has seen. */
  final long token;
  private final LeaseClient client;
  private final long session;
  private final long ttlMs;
  private final Thread renewing = new Thread(this::renew);
  private volatile Moment end;
  private volatile boolean isLost = false;
  private volatile boolean isStopped = false;
  private long changes = 0;

  Lease(LeaseClient client, String name, long session, long ttlMs, LeaseClient.Answer granted) {
    this.client = client;
    this.name = name;
    this.session = session;
    this.ttlMs = ttlMs;
    this.token = granted.number("token");
    this.end = granted.sent().plus(granted.number("remainingMs"));
    renewing.setDaemon(true);
    renewing.start();
  }

  /** When it ends at the latest known renewal. */
  Moment end() {
    return end;
  }

  /** Reads the clock: right even in a process that was stopped for a while. */
  boolean isHeld() {
    return !isLost && leftMs() > 0;
  }

  /** Call it right before each action. */
  void check() throws Lost {
    if (!isHeld()) throw new Lost("Lease \"" + name + "\" (token " + token + ") is over");
  }

  /** Attaches a value, which every client may read. */
  synchronized void setKey(String key, String value)
      throws Lost, LeaseClient.Problem, LeaseClient.Unavailable, InterruptedException {
    String path = LeaseClient.pathOf(name) + "/keys/" + URLEncoder.encode(key, StandardCharsets.UTF_8);
    // Numbered, so that a repetition that arrives late does not undo a later change.
    change("PUT", path, ++changes, "{\"value\":" + Json.quote(value) + "}");
  }

  /** Call it when nothing relies on the lease any more. */
  void release() throws LeaseClient.Problem, LeaseClient.Unavailable, InterruptedException {
    stop();
    try {
      client.change("DELETE", LeaseClient.pathOf(name), session, 0, null, ttlMs, ttlMs);
    } catch (LeaseClient.Problem problem) {
      if (!problem.code.equals("lease-lost")) throw problem;
    }
  }

  /** Ends the renewals: the lease ends by itself. */
  void stop() {
    isStopped = true;
    renewing.interrupt();
  }

  private long leftMs() {
    return end.leftMs() - (long) (MARGIN_SHARE * ttlMs);
  }

  private void renew() {
    try {
      while (!isStopped) {
        // In short steps: the clock may have advanced while the machine slept.
        long untilRenewalMs = end.leftMs() - (long) (RENEW_SHARE * ttlMs);
        if (untilRenewalMs > 0) {
          Thread.sleep(Math.min(STEP_MS_MAX, untilRenewalMs));
          continue;
        }
        if (!isHeld()) {
          isLost = true;
          return;
        }
        try {
          change("PATCH", LeaseClient.pathOf(name), 0, "{\"ttlMs\":" + ttlMs + "}");
        } catch (LeaseClient.Problem | LeaseClient.Unavailable | Lost error) {
          Thread.sleep(RETRY_MS);
        }
      }
    } catch (InterruptedException stopped) {
      // By stop().
    }
  }

  private void change(String method, String path, long number, String body)
      throws Lost, LeaseClient.Problem, LeaseClient.Unavailable, InterruptedException {
    check();
    long attemptMs = Math.max(RETRY_MS, (long) (ATTEMPT_SHARE * ttlMs));
    LeaseClient.Answer granted;
    try {
      granted = client.change(method, path, session, number, body, attemptMs, Math.max(RETRY_MS, leftMs()));
    } catch (LeaseClient.Problem problem) {
      if (problem.code.equals("lease-lost")) isLost = true;
      throw problem;
    }
    if (granted.number("token") != token) {
      isLost = true;
      throw new Lost("Lease \"" + name + "\" was acquired again, with token " + granted.number("token"));
    }
    extend(granted.sent().plus(granted.number("remainingMs")));
  }

  /** An end that was counted from an earlier moment may be later, and is valid. */
  private synchronized void extend(Moment later) {
    if (later.leftMs() > end.leftMs()) end = later;
  }
}
