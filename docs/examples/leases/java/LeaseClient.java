import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Named leases of Leasehold over HTTP. Java 17 or later; standard library only. */
final class LeaseClient {
  private static final long RETRY_MS = 50;
  private static final long AFTER_END_MS = 20;
  /** How long a request is repeated at the servers. */
  private static final long PATIENCE_MS = 30_000;
  private static final int UNAVAILABLE = 503;

  /** A refusal. Its code is one of docs/errors.md. */
  static final class Problem extends Exception {
    final int status;
    final String code;
    /** Of the present holder; negative if there is none. */
    final long remainingMs;

    Problem(int status, String content) {
      this(status, parsed(content));
    }

    private Problem(int status, Map<String, Object> document) {
      super(String.valueOf(document.get("detail")));
      this.status = status;
      this.code = String.valueOf(document.get("code"));
      boolean isHeld = document.get("holder") instanceof Map<?, ?> holder && holder.get("remainingMs") instanceof Double;
      this.remainingMs = isHeld ? ((Double) ((Map<?, ?>) document.get("holder")).get("remainingMs")).longValue() : -1;
    }

    /** What is no problem document is the answer of a proxy. */
    private static Map<String, Object> parsed(String content) {
      try {
        return Json.parseObject(content);
      } catch (IllegalArgumentException | StringIndexOutOfBoundsException error) {
        return Map.of("code", "internal", "detail", content);
      }
    }
  }

  /** No server answered in time. A change may have been executed. */
  static final class Unavailable extends Exception {
    Unavailable(String what, Exception cause) {
      super(what + ": " + cause, cause);
    }
  }

  /** An answer, and the moment before its request was sent. */
  record Answer(Map<String, Object> body, Moment sent) {
    long number(String name) {
      return ((Double) body.get(name)).longValue();
    }
  }

  private final List<String> servers;
  private final String token;
  private final HttpClient http;
  private volatile int preferred = 0;

  LeaseClient(List<String> servers, String token, HttpClient http) {
    this.servers = servers;
    this.token = token;
    this.http = http;
  }

  /** The server that gets the next request. */
  String server() {
    return servers.get(preferred % servers.size());
  }

  /** Waits until the lease is free. An interrupt ends the wait. */
  Lease acquire(String name, String owner, long ttlMs) throws Problem, Unavailable, InterruptedException {
    long session = 1 + (new SecureRandom().nextLong() >>> 11) % ((1L << 53) - 1);
    String body = "{\"owner\":" + Json.quote(owner) + ",\"ttlMs\":" + ttlMs + "}";
    try {
      for (;;) {
        try {
          Answer answer = change("POST", pathOf(name), session, 0, body, ttlMs, PATIENCE_MS);
          Lease lease = new Lease(this, name, session, ttlMs, answer);
          if (lease.isHeld()) return lease;
          // The answer took longer than the lease. The same session is granted a lease again.
          lease.stop();
        } catch (Problem problem) {
          if (!problem.code.equals("lease-taken") || problem.remainingMs < 0) throw problem;
          waitUntilFree(name, problem.remainingMs + AFTER_END_MS);
        }
      }
    } catch (Problem | Unavailable | InterruptedException error) {
      // An attempt without an answer may have been granted.
      boolean wasInterrupted = Thread.interrupted() || error instanceof InterruptedException;
      try {
        change("DELETE", pathOf(name), session, 0, null, 1_000, 1_000);
      } catch (Problem | Unavailable unreleased) {
        // It was not granted, or no server answers: then it ends by itself.
      }
      if (wasInterrupted) Thread.currentThread().interrupt();
      throw error;
    }
  }

  /** Returns when the lease may be free: reported as such, or after the limit. */
  private void waitUntilFree(String name, long limitMs) throws InterruptedException {
    Moment end = Moment.now().plus(limitMs);
    HttpRequest request = request("GET", pathOf(name) + "/watch", limitMs).build();
    try {
      HttpResponse<Stream<String>> answer = http.send(request, HttpResponse.BodyHandlers.ofLines());
      if (answer.statusCode() != 200) {
        answer.body().close();
        throw new IOException("No watch: " + answer.statusCode());
      }
      // Another thread reads the lines: the streams of Java before 20 may lose an interrupt.
      BlockingQueue<Boolean> isReported = new ArrayBlockingQueue<>(1);
      try (Stream<String> lines = answer.body()) {
        Thread reader = new Thread(() -> isReported.offer(isReportedFree(lines)));
        reader.setDaemon(true);
        reader.start();
        if (isReported.poll(end.leftMs(), TimeUnit.MILLISECONDS) == Boolean.FALSE) useNext();
      }
    } catch (IOException error) {
      useNext();
      Thread.sleep(Math.max(0, Math.min(RETRY_MS, end.leftMs())));
    }
    // Clients that wait for one lease do not all ask in the same moment.
    Thread.sleep(ThreadLocalRandom.current().nextLong(RETRY_MS));
  }

  /** Reads until the lease is free, or the stream ends. */
  private static boolean isReportedFree(Stream<String> lines) {
    try {
      // Other lines are the kind of an event, or a heartbeat.
      return lines.anyMatch(
          line -> line.startsWith("data: ") && Json.parseObject(line.substring(6)).get("held") == Boolean.FALSE);
    } catch (RuntimeException ended) {
      return false;
    }
  }

  /** Repeats a request until there is an answer. */
  Answer change(
      String method, String path, long session, long number, String body, long attemptMs, long limitMs)
      throws Problem, Unavailable, InterruptedException {
    Moment end = Moment.now().plus(limitMs);
    Exception last = null;
    do {
      long leftMs = Math.max(1, Math.min(attemptMs, end.leftMs()));
      HttpRequest.Builder request = request(method, path, leftMs, body);
      if (session > 0) request.header("Leasehold-Session", Long.toString(session));
      if (number > 0) request.header("Leasehold-Change", Long.toString(number));
      Moment sent = Moment.now();
      try {
        HttpResponse<String> answer = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
        int status = answer.statusCode();
        if (status < 300) {
          return new Answer(answer.body().isEmpty() ? Map.of() : Json.parseObject(answer.body()), sent);
        }
        Problem problem = new Problem(status, answer.body());
        if (status != UNAVAILABLE) throw problem;
        last = problem;
      } catch (IOException error) {
        last = error;
      }
      useNext();
      Thread.sleep(Math.max(0, Math.min(RETRY_MS, end.leftMs())));
    } while (end.leftMs() > 0);
    throw new Unavailable(method + " " + path, last);
  }

  private HttpRequest.Builder request(String method, String path, long limitMs, String body) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(server() + path));
    if (token != null) request.header("Authorization", "Bearer " + token);
    if (body != null) request.header("Content-Type", "application/json");
    return request
        .timeout(Duration.ofMillis(Math.max(1, limitMs)))
        .method(
            method,
            body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body));
  }

  private HttpRequest.Builder request(String method, String path, long limitMs) {
    return request(method, path, limitMs, null);
  }

  private void useNext() {
    preferred = (preferred + 1) % servers.size();
  }

  /** A name is one segment of the path. */
  static String pathOf(String name) {
    return "/v1/leases/" + URLEncoder.encode(name, StandardCharsets.UTF_8);
  }
}
