import { randomInt } from 'node:crypto';
import type { CacheOwner, QueryResults } from '../wire/catalog-api.ts';
import { CacheSession } from './cache-session.ts';
import type { ClusterClient } from './cluster-client.ts';
import { Delegated } from './delegated.ts';

const CLIENT_NUMBER_MAX = 2 ** 47;
/** Who has not used what is delegated to it for so long gives all of it back, in milliseconds. */
const IDLE_MS = 5_000;

export interface DelegationEvents {
  /** Others are about to change these directories, or to look at them: resolves when nothing of them is known here alone any more. */
  recalled(directories: readonly number[]): Promise<void>;
  /** Nothing is delegated any more. */
  ended(): void;
  failed(error: unknown): void;
}

/**
 * Directories whose names nobody else changes before this client has agreed: each is delegated by the catalog's primary, to a session
 * that is left, for another, when nobody has used it for a while: nobody has to wait for what is not used.
 */
export class Delegations {
  readonly #client: ClusterClient;
  readonly #events: DelegationEvents;
  readonly #number = 1 + randomInt(CLIENT_NUMBER_MAX);
  readonly #delegated = new Delegated();
  #session: CacheSession | null = null;
  #idle: NodeJS.Timeout | undefined;
  #leaving: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(client: ClusterClient, events: DelegationEvents) {
    this.#client = client;
    this.#events = events;
  }

  /** To be compared with what is answered later. @see Delegated */
  get mark(): number {
    return this.#delegated.mark;
  }

  /** Whether nobody else changes the directory's names, at this moment and until it is called back. */
  has(directory: number): boolean {
    return this.#delegated.has(directory) && (this.#session?.leftMs ?? 0) > 0;
  }

  /** Begins a session, so that there is one when directories are asked for. */
  start(): void {
    if (!this.#closed) this.#session ??= this.#begin();
  }

  /** What is delegated, or soon to be, is in use. */
  use(): void {
    if (this.#closed) return;
    this.start();
    if (this.#idle === undefined) this.#idle = setTimeout(() => this.#giveBack(), IDLE_MS);
    else this.#idle.refresh();
  }

  /**
   * Asks for a directory, together with its first names.
   *
   * @returns null where it is not delegated, for one because there is no session yet
   */
  async ask(directory: number, countMax: number): Promise<QueryResults['list'] | null> {
    this.use();
    const session = this.#session?.session ?? null;
    if (session === null) return null;
    const { mark } = this;
    const query = { kind: 'list', inode: directory, after: '', countMax } as const;
    const { result, delegated } = await this.#client.queryRemembered(query, session, { delegate: true });
    return this.learn(directory, delegated, mark) ? result : null;
  }

  /**
   * @param delegated the session that an answer names
   * @param mark as it was when that was asked for
   * @returns whether the directory is delegated to this client now
   */
  learn(directory: number, delegated: number | undefined, mark: number): boolean {
    if (delegated === undefined || delegated !== this.#session?.session) return false;
    return this.#delegated.learn(directory, mark);
  }

  /** What a command of this client says of itself, which changes names in these directories: it is not to call them back from here. */
  asOwner(directories: readonly number[]): { readonly cache?: CacheOwner } {
    const forgets = [...new Set(directories)].filter((directory) => this.#delegated.has(directory));
    return forgets.length === 0 ? {} : { cache: { client: this.#number, forgets } };
  }

  /** As `asOwner`, of a command that makes a directory in the one given, which is to be delegated as well. */
  asMaker(directory: number): { readonly cache?: CacheOwner } {
    const owner = this.asOwner([directory]);
    const session = this.#session?.session ?? null;
    if (session === null) return owner;
    return { cache: { client: this.#number, forgets: owner.cache?.forgets ?? [], session } };
  }

  /** Gives everything back. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#leave();
  }

  #begin(): CacheSession {
    const session = new CacheSession({
      client: this.#number,
      poll: (request, options) => this.#client.renewCache(request, options),
      recalled: async (directories) => {
        for (const directory of directories) this.#delegated.recalled(directory);
        await this.#events.recalled(directories);
      },
      ended: () => {
        this.#delegated.endAll();
        this.#events.ended();
      },
      nowMs: () => performance.now(),
      failed: (error) => this.#events.failed(error),
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
    clearTimeout(this.#idle);
    this.#idle = undefined;
    const session = this.#session;
    this.#session = null;
    if (session !== null) this.#leaving = this.#leaving.then(() => session.leave());
    return this.#leaving;
  }
}
