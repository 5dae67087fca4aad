import type { Counter, MetricsRegistry } from '../telemetry/metrics.ts';

/** What a primary knows of its clients' caches. */
export interface CacheCounts {
  readonly sessions: number;
  readonly grants: number;
  /** Sessions that expired during a recall, since the start of the process. */
  readonly expired: number;
}

/**
 * Metrics of the catalogs on this server, all together: there may be many of them. They are registered once, and each
 * replica adds its own while it is open.
 */
export class CatalogMetrics {
  readonly copiedBytes: Counter;
  readonly comparedPages: Counter;
  readonly commands: Counter;
  readonly memberReads: Counter;
  readonly recalls: Counter;
  /** In seconds. */
  readonly recallWait: Counter;
  readonly #caches = new Set<() => CacheCounts>();
  /** Of replicas that were closed. */
  #expiredBefore = 0;

  constructor(registry: MetricsRegistry) {
    this.copiedBytes = registry.counter(
      'leasehold_catalog_copied_bytes_total',
      "Bytes fetched of other servers' copies of the catalog",
    );
    this.comparedPages = registry.counter(
      'leasehold_catalog_compared_pages_total',
      "Pages of other servers' copies of the catalog that were compared with those here",
    );
    this.commands = registry.counter(
      'leasehold_catalog_commands_total',
      'Catalog commands executed as primary, by kind and outcome',
      ['kind', 'outcome'],
    );
    this.memberReads = registry.counter(
      'leasehold_catalog_member_reads_total',
      'Queries answered by this catalog member as backup',
    );
    this.recalls = registry.counter('leasehold_cache_recalls_total', 'Changes that waited for cache recalls');
    this.recallWait = registry.counter(
      'leasehold_cache_recall_wait_seconds_total',
      'Time that changes waited for cache recalls, in seconds',
    );
    registry.observe('gauge', 'leasehold_cache_sessions', 'Open cache sessions of clients', () =>
      this.#sum(({ sessions }) => sessions),
    );
    registry.observe('gauge', 'leasehold_cache_grants', 'Inodes with cache grants', () =>
      this.#sum(({ grants }) => grants),
    );
    registry.observe(
      'counter',
      'leasehold_cache_silent_clients_total',
      'Cache sessions that expired during a recall and delayed a change',
      () => this.#expiredBefore + this.#sum(({ expired }) => expired),
    );
  }

  /** @returns what to call when the replica is closed */
  addCaches(counts: () => CacheCounts): () => void {
    this.#caches.add(counts);
    return () => {
      if (this.#caches.delete(counts)) this.#expiredBefore += counts().expired;
    };
  }

  #sum(of: (counts: CacheCounts) => number): number {
    return [...this.#caches].reduce((sum, counts) => sum + of(counts()), 0);
  }
}
