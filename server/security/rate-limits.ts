import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import { addressKey } from './client-address.ts';
import { type Principal, principalName } from './principal.ts';

const CLIENTS_MAX = 10_000;
/** Requests of one address without valid credentials. */
const UNAUTHENTICATED_REQUESTS_PER_S = 50;
/** An idle client may send the requests of this many seconds at once. */
const BURST_S = 2;

interface Bucket {
  tokens: number;
  filledMs: number;
}

/** Bounds the requests per second of each client, so that a faulty or guessing one leaves capacity for others. */
export class RateLimits {
  readonly #clientPerS: number;
  readonly #nowMs: () => number;
  readonly #clients = new LruMap<string, Bucket>(CLIENTS_MAX);
  readonly #unauthenticated = new LruMap<string, Bucket>(CLIENTS_MAX);

  /** @param clientPerS `Infinity` for no bound; `nowMs` is monotonic */
  constructor(clientPerS: number, nowMs: () => number) {
    this.#clientPerS = clientPerS;
    this.#nowMs = nowMs;
  }

  /** Counts a request. @param principal null without valid credentials @throws ServiceError `busy` above the rate */
  take(principal: Principal | null, address: string): void {
    // The server that forwarded the request has counted its client.
    if (principal?.kind === 'server') return;
    if (principal === null)
      this.#takeFrom(this.#unauthenticated, addressKey(address), UNAUTHENTICATED_REQUESTS_PER_S);
    else if (this.#clientPerS !== Number.POSITIVE_INFINITY) {
      const client = principal.kind === 'anyone' ? addressKey(address) : principalName(principal);
      this.#takeFrom(this.#clients, client, this.#clientPerS);
    }
  }

  #takeFrom(buckets: LruMap<string, Bucket>, client: string, perS: number): void {
    const nowMs = this.#nowMs();
    const capacity = perS * BURST_S;
    let bucket = buckets.get(client);
    if (bucket === undefined) {
      bucket = { tokens: capacity, filledMs: nowMs };
      buckets.set(client, bucket);
    }
    bucket.tokens = Math.min(capacity, bucket.tokens + ((nowMs - bucket.filledMs) / 1_000) * perS);
    bucket.filledMs = nowMs;
    if (bucket.tokens < 1) {
      const retryAfterMs = Math.ceil(((1 - bucket.tokens) / perS) * 1_000);
      throw new ServiceError('busy', `Rate limit of ${perS} requests per second exceeded: slow down`, {
        retryAfterMs,
      });
    }
    bucket.tokens -= 1;
  }
}
