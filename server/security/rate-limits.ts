import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import { addressKey } from './address.ts';
import { type Principal, principalName } from './principal.ts';

/** Clients of which it is remembered how much they have asked lately. */
const CLIENTS_MAX = 10_000;
/** Requests of one address that do not say, or say wrongly, who asks. */
const STRANGER_REQUESTS_PER_S = 50;
/** Whoever was quiet may ask for so long at once. */
const BURST_S = 2;

interface Bucket {
  left: number;
  filledMs: number;
}

/** How much one client may ask in a second: so that one that runs wild, or guesses, leaves room for the others. */
export class RateLimits {
  readonly #clientPerS: number;
  readonly #nowMs: () => number;
  readonly #clients = new LruMap<string, Bucket>(CLIENTS_MAX);
  readonly #strangers = new LruMap<string, Bucket>(CLIENTS_MAX);

  /**
   * @param clientPerS `Infinity` for no bound
   * @param nowMs monotonic, in milliseconds
   */
  constructor(clientPerS: number, nowMs: () => number) {
    this.#clientPerS = clientPerS;
    this.#nowMs = nowMs;
  }

  /**
   * Counts a request.
   *
   * @param principal null for one who has not said who he is
   * @throws ServiceError `busy` where there were too many
   */
  take(principal: Principal | null, address: string): void {
    // Servers ask for clients that were counted where they asked.
    if (principal?.kind === 'server') return;
    if (principal === null) this.#takeFrom(this.#strangers, addressKey(address), STRANGER_REQUESTS_PER_S);
    else if (this.#clientPerS !== Number.POSITIVE_INFINITY) {
      const client = principal.kind === 'anyone' ? addressKey(address) : principalName(principal);
      this.#takeFrom(this.#clients, client, this.#clientPerS);
    }
  }

  #takeFrom(buckets: LruMap<string, Bucket>, client: string, perS: number): void {
    const nowMs = this.#nowMs();
    const most = perS * BURST_S;
    let bucket = buckets.get(client);
    if (bucket === undefined) {
      bucket = { left: most, filledMs: nowMs };
      buckets.set(client, bucket);
    }
    bucket.left = Math.min(most, bucket.left + ((nowMs - bucket.filledMs) / 1_000) * perS);
    bucket.filledMs = nowMs;
    if (bucket.left < 1) {
      const retryAfterMs = Math.ceil(((1 - bucket.left) / perS) * 1_000);
      throw new ServiceError('busy', `More than ${perS} requests in a second are too many`, { retryAfterMs });
    }
    bucket.left -= 1;
  }
}
