import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { jsonOf, parseJsonObject } from '../../wire/json.ts';
import { WokenWork } from '../process/woken-work.ts';
import { isCatalogList, type KnownCatalogs, type KnownList } from './known-catalogs.ts';

/** Brings a list that the root catalog has flushed. */
export const CATALOGS_CALL = 'catalogs';
/** Asks the root catalog's primary for its list; empty if the caller has the newest. */
const NEWEST_CATALOGS_CALL = 'newest-catalogs';
const CALL_MS = 10_000;
const RETRY_MS = 1_000;

export interface CatalogListExchangeParts {
  readonly self: ServerId;
  readonly world: World;
  readonly log: Logger;
  readonly known: KnownCatalogs;
  peers(): readonly ServerId[];
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
  /** Whether the server knows lists of catalogs; false while it is not connected. */
  hasLists(server: ServerId): boolean;
  /** Whether the server is connected, and runs a release without such lists: then no catalog has been listed yet. */
  isEarlier(server: ServerId): boolean;
  readonly root: RootList;
}

/** The root catalog, as far as its list is concerned. */
export interface RootList {
  isPrimary(): boolean;
  /** Servers that may be the primary, the likeliest one first. */
  candidates(): readonly ServerId[];
  /**
   * The list as of a committed state of this primary; null if its version is `known`.
   * @throws ServiceError `not-primary`
   */
  list(known: number): Promise<KnownList | null>;
  /** Resolves when all that this primary has committed is durable. @throws ServiceError if it is primary no more */
  flush(): Promise<void>;
}

/**
 * Exchanges the list of volumes' catalogs with the other servers: the root catalog's primary announces each version
 * once it is flushed (rule `lists-flushed` of model/volumes), and others ask it for the newest one. Neither the disk of
 * the primary nor a peer that does not answer delays the list for the others.
 */
export class CatalogListExchange {
  readonly #parts: CatalogListExchangeParts;
  readonly #readingRoot: WokenWork;
  readonly #adopting: WokenWork;
  readonly #registering: WokenWork;
  readonly #sending = new Map<ServerId, WokenWork>();
  /** Version that each peer has confirmed since it last connected. */
  readonly #confirmed = new Map<ServerId, number>();
  /** The newest list that this server flushed as primary; it may be newer than what its disk has recorded. */
  #flushed: KnownList | null = null;
  /** Version of the list when the root catalog registered this disk, in this process. */
  #registeredAt: number | null = null;
  #asking: Promise<KnownList> | null = null;

  constructor(parts: CatalogListExchangeParts) {
    this.#parts = parts;
    const { known, root } = parts;
    this.#readingRoot = this.#workOf("cannot read the list of volumes' catalogs yet", async () => {
      if (!root.isPrimary()) return;
      await this.#flushedList();
      for (const peer of parts.peers()) this.#sendTo(peer);
    });
    this.#adopting = this.#workOf("cannot record the list of volumes' catalogs yet", async () =>
      known.adopt(this.#newestFlushed),
    );
    this.#registering = this.#workOf("the list of volumes' catalogs is not known yet", () =>
      this.#adoptRegistered(),
    );
  }

  close(): void {
    for (const work of [this.#readingRoot, this.#adopting, this.#registering, ...this.#sending.values()])
      work.close();
  }

  /** The root catalog's list may have changed, or this server became its primary. */
  rootChanged(): void {
    this.#readingRoot.wake();
  }

  /** The root catalog has registered this server's disk. @param version of the list at that command */
  registered(version: number): void {
    if (this.#parts.known.bornVersion !== null) return;
    this.#registeredAt = version;
    this.#registering.wake();
  }

  connected(peer: ServerId): void {
    this.#confirmed.delete(peer);
    this.#sendTo(peer);
  }

  /** Fetches the newest list, for a name or number that is unknown here. Concurrent calls share one request. */
  async refresh(): Promise<void> {
    const { known, root, isEarlier } = this.#parts;
    if (root.candidates().some(isEarlier)) return;
    known.adopt(await this.#newest());
  }

  /** Answers a call of another server; null: the call is of another subsystem. */
  serve(method: string, payload: Uint8Array): Promise<Uint8Array> | null {
    switch (method) {
      case CATALOGS_CALL:
        return this.#take(payload);
      case NEWEST_CATALOGS_CALL:
        return this.#serveNewest(payload);
      default:
        return null;
    }
  }

  async #take(payload: Uint8Array): Promise<Uint8Array> {
    this.#parts.known.adopt(decodeList(payload));
    return new Uint8Array(0);
  }

  async #serveNewest(payload: Uint8Array): Promise<Uint8Array> {
    const known = parseJsonObject(Buffer.from(payload).toString('utf8'));
    if (known === null) throw new MalformedError('A request for the list of catalogs lacks fields');
    const list = await this.#flushedList();
    return known.version === list.version ? new Uint8Array(0) : encodeList(list);
  }

  #workOf(text: string, work: () => Promise<void>): WokenWork {
    const { world, log } = this.#parts;
    const failed = (error: unknown) => log.debug({ err: error }, text);
    return new WokenWork({ world, retryMs: RETRY_MS, work, failed });
  }

  #sendTo(peer: ServerId): void {
    const sending = this.#sending.get(peer) ?? this.#workOf('cannot send a list yet', () => this.#send(peer));
    this.#sending.set(peer, sending);
    sending.wake();
  }

  /** The primary sends each version to all peers; other servers send what they know to peers that have connected. */
  async #send(peer: ServerId): Promise<void> {
    const { call, hasLists, root } = this.#parts;
    const list = this.#newestFlushed;
    const confirmed = this.#confirmed.get(peer) ?? 0;
    const isWanted = confirmed === 0 || root.isPrimary();
    if (!isWanted || confirmed >= list.version || !hasLists(peer)) return;
    await call(peer, CATALOGS_CALL, encodeList(list), CALL_MS);
    this.#confirmed.set(peer, list.version);
  }

  get #newestFlushed(): KnownList {
    const { list } = this.#parts.known;
    return this.#flushed !== null && this.#flushed.version > list.version ? this.#flushed : list;
  }

  /**
   * The root catalog's list, read by this primary and then flushed: a later loss of power does not undo it.
   * @throws ServiceError `not-primary`
   */
  async #flushedList(): Promise<KnownList> {
    const { root } = this.#parts;
    if (!root.isPrimary())
      throw new ServiceError('not-primary', "Another server has the root catalog's list");
    const known = this.#newestFlushed;
    const list = (await root.list(known.version)) ?? known;
    // A known list was flushed before. The flush fails if the epoch ends; in a later one of this server, which has not
    // lost power, everything that it had committed is still there.
    if (list.version > this.#newestFlushed.version) {
      await root.flush();
      // A later list may have been flushed meanwhile.
      if (list.version > this.#newestFlushed.version) this.#flushed = list;
      this.#adopting.wake();
    }
    return list;
  }

  async #adoptRegistered(): Promise<void> {
    const { known } = this.#parts;
    if (known.bornVersion !== null || this.#registeredAt === null) return;
    const list = await this.#newest();
    // The request may have been under way before the registration.
    if (list.version < this.#registeredAt)
      throw new ServiceError('busy', 'The list is from before the registration');
    known.adoptAfterRegistration(list, this.#registeredAt);
  }

  #newest(): Promise<KnownList> {
    this.#asking ??= this.#readNewest().finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  async #readNewest(): Promise<KnownList> {
    const { self, root, known, call, hasLists } = this.#parts;
    if (root.isPrimary()) return this.#flushedList();
    const request = Buffer.from(JSON.stringify({ version: known.version }));
    const { list } = known;
    let why = 'no member of the root catalog can be asked';
    for (const server of new Set(root.candidates())) {
      if (server === self || !hasLists(server)) continue;
      try {
        const answer = await call(server, NEWEST_CATALOGS_CALL, request, CALL_MS);
        return answer.length === 0 ? list : decodeList(answer);
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        why = error.message;
      }
    }
    const message = `The list of volumes' catalogs cannot be fetched: ${why}`;
    throw new ServiceError('no-majority', message, { retryAfterMs: RETRY_MS });
  }
}

const encoded = new WeakMap<KnownList, Uint8Array>();

/** Encodes a list once for all peers. */
function encodeList(list: KnownList): Uint8Array {
  const payload = encoded.get(list) ?? Buffer.from(JSON.stringify(list));
  encoded.set(list, payload);
  return payload;
}

function decodeList(payload: Uint8Array): KnownList {
  const list = jsonOf(payload, 'A list of catalogs is');
  if (!isCatalogList(list)) throw new MalformedError('A list of catalogs lacks fields');
  return list;
}
