import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Leader election: one of several programs leads, and increments the value of the resource, which refuses old tokens.
 *
 *     javac -d classes *.java
 *     java -cp classes Leader --servers http://127.0.0.1:7401,http://127.0.0.1:7402 --resource http://127.0.0.1:7500
 */
final class Leader {
  private static final int CONFLICT = 409;

  /** The resource has seen a later holder. */
  private static final class Refused extends Exception {}

  private final Map<String, String> options;
  private final HttpClient http;
  private final String owner;

  private Leader(Map<String, String> options) throws IOException, GeneralSecurityException {
    this.options = options;
    this.owner = options.getOrDefault("owner", "java");
    HttpClient.Builder builder = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1);
    if (options.containsKey("ca")) builder.sslContext(trusting(Path.of(options.get("ca"))));
    this.http = builder.build();
  }

  public static void main(String[] words) throws Exception {
    Map<String, String> options = new HashMap<>();
    for (int at = 0; at + 1 < words.length; at += 2) options.put(words[at].replaceFirst("^--", ""), words[at + 1]);
    Leader leader = new Leader(options);
    Thread working = Thread.currentThread();
    CountDownLatch ended = new CountDownLatch(1);
    // SIGTERM ends the work in good order, also while it waits for the lease.
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  working.interrupt();
                  try {
                    ended.await();
                  } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                  }
                }));
    try {
      leader.run();
    } catch (InterruptedException stopped) {
      // By SIGTERM.
    } finally {
      ended.countDown();
    }
  }

  private void run() throws Exception {
    String token = options.containsKey("token-file") ? Files.readString(Path.of(options.get("token-file"))).strip() : null;
    List<String> servers = List.of(options.get("servers").split(","));
    LeaseClient client = new LeaseClient(servers, token, http);
    long ttlMs = Long.parseLong(options.getOrDefault("ttl-ms", "5000"));
    for (;;) {
      Lease lease = client.acquire(options.getOrDefault("name", "examples/leader"), owner, ttlMs);
      report("acquired", lease, ",\"owner\":" + Json.quote(owner) + ",\"server\":" + Json.quote(client.server()));
      boolean isStopped = false;
      try {
        lead(lease);
      } catch (InterruptedException stopped) {
        isStopped = true;
      }
      // Before the release is sent, another holder cannot begin.
      reportEnd(lease.isHeld() ? "released" : "lost", lease);
      lease.release();
      if (isStopped) throw new InterruptedException();
      // Longer than those who wait pause, so that they get the lease.
      Thread.sleep(100);
    }
  }

  /** Acts several times, and stops at once when the lease is lost. */
  private void lead(Lease lease) throws IOException, InterruptedException {
    int acts = Integer.parseInt(options.getOrDefault("acts", "5"));
    try {
      for (int act = 0; act < acts; act++) {
        // Only right if no other program comes between.
        long value = act(lease, "GET", "");
        act(lease, "PUT", Long.toString(value + 1));
        Thread.sleep(5);
      }
    } catch (Lease.Lost | Refused over) {
      lease.stop();
    }
  }

  private long act(Lease lease, String method, String body)
      throws IOException, InterruptedException, Lease.Lost, Refused {
    lease.check();
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(options.get("resource") + "/"))
            .header("Lease-Tokens", lease.name + "=" + lease.token)
            .header("Sender", owner)
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .build();
    HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
    if (answer.statusCode() == CONFLICT) throw new Refused();
    if (answer.statusCode() != 200) throw new IOException(answer.statusCode() + " " + answer.body());
    return ((Double) Json.parseObject(answer.body()).get("value")).longValue();
  }

  private static void reportEnd(String event, Lease lease) {
    long untilMs = Math.min(System.currentTimeMillis(), lease.end().wallMs());
    report(event, lease, ",\"until\":" + untilMs);
  }

  private static void report(String event, Lease lease, String more) {
    String tokens = "{" + Json.quote(lease.name) + ":" + lease.token + "}";
    System.out.println(
        "{\"event\":\"" + event + "\",\"at\":" + System.currentTimeMillis() + ",\"tokens\":" + tokens + more + "}");
    System.out.flush();
  }

  private static SSLContext trusting(Path authority) throws IOException, GeneralSecurityException {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (InputStream file = Files.newInputStream(authority)) {
      int count = 0;
      for (Certificate one : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
        store.setCertificateEntry("authority-" + count++, one);
      }
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return context;
  }
}
