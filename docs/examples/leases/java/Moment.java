/**
 * A moment on both clocks of this machine: the monotonic one stops while the machine sleeps, the wall clock may be set. A
 * lease is over as soon as one of them says so.
 */
record Moment(long monotonicNs, long wallMs) {
  static Moment now() {
    return new Moment(System.nanoTime(), System.currentTimeMillis());
  }

  Moment plus(long spanMs) {
    return new Moment(monotonicNs + spanMs * 1_000_000, wallMs + spanMs);
  }

  long leftMs() {
    Moment now = now();
    return Math.min(Math.floorDiv(monotonicNs - now.monotonicNs, 1_000_000), wallMs - now.wallMs);
  }
}
