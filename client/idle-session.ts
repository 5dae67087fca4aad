import type { Timer } from '../base/world.ts';
import { CacheSession, drawClientNumber } from './cache-session.ts';
import type { ClusterClient } from './cluster-client.ts';

/** Who has not used what was granted to it for so long gives all of it back, in milliseconds. */
const IDLE_MS = 5_000;

/** A session as somebody sees it to whom something is granted by it. */
export interface GrantedSession {
  /** Of the client, in requests by which it changes what is granted to it. */
  readonly client: number;
  /** To be named with questions; null while there is none. */
  readonly session: number | null;
  /** For how long what was granted is good, in milliseconds; 0 if it is not. */
  readonly leftMs: number;
  /** Begins it, so that there is one when something is asked for. */
  start(): void;
  /** What is granted, or soon to be, is in use. */
  use(): void;
  /** Ends it at once and begins another. @see CacheSession.renounce */
  renounce(): void;
  /** Gives everything back. */
  close(): Promise<void>;
}

export interface SessionEvents {
  /** Resolves when nothing of these inodes is believed any more. */
  recalled(inodes: readonly number[]): Promise<void>;
  /** Nothing is granted any more. */
  ended(): void;
  /** @see CacheSessionParts.flushed */
  flushed?(): Promise<void>;
  failed(error: unknown): void;
}

/** A session that is left, for another, when nobody has used it for a while: nobody has to wait for what is not used. */
export class IdleSession implements GrantedSession {
  readonly client: number;
  readonly #cluster: ClusterClient;
  readonly #events: SessionEvents;
  #session: CacheSession | null = null;
  #idle: Timer | undefined;
  #leaving: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(cluster: ClusterClient, events: SessionEvents) {
    this.client = drawClientNumber(cluster.world);
    this.#cluster = cluster;
    this.#events = events;
  }

  get session(): number | null {
    return this.#session?.session ?? null;
  }

  get leftMs(): number {
    return this.#session?.leftMs ?? 0;
  }

  start(): void {
    if (!this.#closed) this.#session ??= this.#begin();
  }

  use(): void {
    if (this.#closed) return;
    this.start();
    this.#idle?.cancel();
    this.#idle = this.#cluster.world.after(IDLE_MS, () => this.#giveBack());
  }

  renounce(): void {
    this.#session?.renounce();
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#leave();
  }

  #begin(): CacheSession {
    const session = new CacheSession({
      client: this.client,
      poll: (request, options) => this.#cluster.renewCache(request, options),
      ...{ world: this.#cluster.world, recalled: (inodes) => this.#events.recalled(inodes) },
      ...{ ended: () => this.#events.ended(), failed: (error) => this.#events.failed(error) },
      flushed: () => this.#events.flushed?.() ?? Promise.resolve(),
    });
    // A session that is being left has the same client's number.
    void this.#leaving.then(() => {
      if (this.#session === session) session.start();
    });
    return session;
  }

  #giveBack(): void {
    void this.#leave();
    this.start();
  }

  #leave(): Promise<void> {
    this.#idle?.cancel();
    this.#idle = undefined;
    const session = this.#session;
    this.#session = null;
    if (session !== null) this.#leaving = this.#leaving.then(() => session.leave());
    return this.#leaving;
  }
}
