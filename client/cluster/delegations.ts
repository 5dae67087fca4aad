import { assert } from '../../base/assert.ts';
import { Counts } from '../../base/counts.ts';
import { Sequencer } from '../../base/sequencer.ts';
import type { CacheOwner, DelegationOfSession, GrantedAnswer, QueryResults } from '../../wire/catalog-api.ts';
import { CacheSession, drawClientNumber, type SessionEvents } from './cache-session.ts';
import { CachingClient } from './caching-client.ts';
import type { CommandOptions } from './catalog-commands.ts';
import type { ClusterClient } from './cluster-client.ts';

/** A delegation under which an operation was acknowledged before the cluster has it. */
export interface Fence extends DelegationOfSession {
  readonly client: number;
  readonly session: number;
}

/** @returns the owner of a command that is executed only while these delegations, of one session, are in force */
export function fencedBy(fences: readonly Fence[]): CacheOwner {
  const [first] = fences;
  assert(first !== undefined, 'There is a delegation');
  const { client, session: under } = first;
  const fence = [...new Map(fences.map(({ inode, generation }) => [inode, { inode, generation }])).values()];
  return { client, under, fence, forgets: fence.map(({ inode }) => inode) };
}

type OwnedCommand = Pick<CommandOptions, 'cache' | 'unknown'>;
export type DelegationEvents = Required<Pick<SessionEvents, 'recalled' | 'ended' | 'flushed'>>;

/** A session whose delegations were unused for this long is ended, so that no change has to recall them. */
const IDLE_MS = 5_000;
const RECALLED_MAX = 10_000;

/**
 * Directories that are delegated to this client: no other client changes their entries before a recall. The catalog's
 * primary delegates each to a session: that of a `CachingClient`; of another client, one of their own, which is ended
 * when the delegations are not used.
 */
export class Delegations {
  readonly #client: ClusterClient;
  readonly #session: CacheSession;
  #events: DelegationEvents = {
    recalled: () => Promise.resolve(),
    ended: () => undefined,
    flushed: () => Promise.resolve(),
  };
  readonly #generations = new Map<number, number>();
  /** Recalls of directories: a delegation that was requested before one is void. */
  readonly #recalls = new Sequencer<number>(undefined, RECALLED_MAX);
  /** Recalled directories whose own changes are still being sent: those commands need no recall from this client. */
  readonly #returning = new Counts<number>();

  constructor(client: ClusterClient, failed: SessionEvents['failed']) {
    this.#client = client;
    const own: SessionEvents = {
      failed,
      flushed: () => this.#events.flushed(),
      recalled: async (inodes) => {
        for (const inode of inodes) {
          this.#generations.delete(inode);
          this.#recalls.changed(inode);
          this.#returning.increment(inode);
        }
        try {
          await this.#events.recalled(inodes);
        } finally {
          for (const inode of inodes) this.#returning.decrement(inode);
        }
      },
      ended: () => {
        this.#recalls.changedAll();
        this.#generations.clear();
        this.#events.ended();
      },
    };
    this.#session =
      client instanceof CachingClient
        ? client.share({ ...own, isDelegated: (directory) => this.isDelegated(directory) })
        : new CacheSession({
            ...own,
            ...{ world: client.world, client: drawClientNumber(client.world), idleMs: IDLE_MS },
            poll: (request, options) => client.renewCache(request, options),
          });
    if (!(client instanceof CachingClient)) client.onMoved(() => this.#session.restart());
  }

  /** @returns the number of a query that is about to be sent, for `learn` */
  request(): number {
    return this.#recalls.request();
  }

  /** Whether no other client changes the directory's entries, now and until a recall. */
  isDelegated(directory: number): boolean {
    return this.delegatedMs(directory) > 0;
  }

  /** For how long the directory stays delegated without a recall, in milliseconds; 0 if it is not. */
  delegatedMs(directory: number): number {
    return this.#generations.has(directory) ? this.#session.remainingMs : 0;
  }

  listen(events: DelegationEvents): void {
    this.#events = events;
    this.#session.start();
  }

  markUsed(): void {
    this.#session.markUsed();
  }

  /** Requests the delegation of a directory, together with its first entries. @returns null if it is not delegated */
  async delegate(directory: number, countMax: number): Promise<QueryResults['list'] | null> {
    this.markUsed();
    const { session } = this.#session;
    if (session === null) return null;
    const requestedAt = this.request();
    const query = { kind: 'list', inode: directory, after: '', countMax } as const;
    const { result, ...granted } = await this.#client.queryForCache(query, session, { delegate: true });
    return this.learn(directory, granted, requestedAt) ? result : null;
  }

  /** Takes over a delegation that an answer may grant. @returns whether the directory is delegated now */
  learn(
    directory: number,
    { delegated, generation }: Pick<GrantedAnswer<unknown>, 'delegated' | 'generation'>,
    requestedAt: number,
  ): boolean {
    if (generation === undefined || delegated !== this.#session.session) return false;
    if (!this.#recalls.isValid(requestedAt, directory)) return false;
    this.#generations.set(directory, generation);
    return true;
  }

  /** @returns options of a command that may change entries of these directories: none is recalled from this client */
  asOwner(directories: readonly number[]): OwnedCommand {
    const { client, session } = this.#session;
    const forgets = [...new Set(directories)].filter(
      (directory) => this.#generations.has(directory) || this.#returning.has(directory),
    );
    if (session === null) return {};
    const cache = { client, forgets, under: session };
    return forgets.length === 0 ? { cache } : { cache, unknown: () => this.#renounce(session) };
  }

  /** As `asOwner`, for a command that creates a directory in the given one; the new one is delegated, too. */
  asDirectoryCreator(directory: number): OwnedCommand {
    const owner = this.asOwner([directory]);
    const { client, session } = this.#session;
    if (session === null) return owner;
    return { ...owner, cache: { client, forgets: [], ...owner.cache, session } };
  }

  /** @returns the fence of an operation that is acknowledged now and sent later; null without a delegation */
  fenceOf(directory: number): Fence | null {
    const { client, session } = this.#session;
    const generation = this.#generations.get(directory);
    if (session === null || generation === undefined) return null;
    return { client, session, inode: directory, generation };
  }

  #renounce(session: number): void {
    if (this.#session.session === session) this.#session.renounce();
  }

  /** Returns all delegations; a shared session is closed by its client. */
  async stop(): Promise<void> {
    if (!(this.#client instanceof CachingClient)) await this.#session.close();
  }
}
