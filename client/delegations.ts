import { assert } from '../base/assert.ts';
import { Counts } from '../base/counts.ts';
import type { CacheOwner, HeldDelegation, QueryResults, RememberedAnswer } from '../wire/catalog-api.ts';
import type { CommandOptions } from './catalog-commands.ts';
import type { ClusterClient } from './cluster-client.ts';
import { Delegated } from './delegated.ts';
import { type GrantedSession, IdleSession } from './idle-session.ts';
import { RememberingClient } from './remembering-client.ts';

/** A delegation by which an operation was acknowledged before the cluster has it. */
export interface Fence extends HeldDelegation {
  readonly client: number;
  readonly session: number;
}

/** @returns what a command says of itself that is to be executed only while these delegations, all of one session, are held */
export function fencedBy(fences: readonly Fence[]): CacheOwner {
  const [first] = fences;
  assert(first !== undefined, 'There is a delegation');
  const { client, session: under } = first;
  const fence = [...new Map(fences.map(({ inode, generation }) => [inode, { inode, generation }])).values()];
  return { client, under, fence, forgets: fence.map(({ inode }) => inode) };
}

type OwnedCommand = Pick<CommandOptions, 'cache' | 'unknown'>;

export interface DelegationEvents {
  /** Others are about to change these directories, or to look at them: resolves when nothing of them is known here alone any more. */
  recalled(directories: readonly number[]): Promise<void>;
  /** Nothing is delegated any more. */
  ended(): void;
  /** Resolves when no operation is under way that a delegation fences. */
  flushed?(): Promise<void>;
  failed(error: unknown): void;
}

/**
 * Directories whose names nobody else changes before this client has agreed: each is delegated by the catalog's primary, to the session
 * under which the client remembers, if it does; else to one of their own, which is left when they are not used.
 */
export class Delegations {
  readonly #client: ClusterClient;
  readonly #delegated = new Delegated();
  readonly #session: GrantedSession;
  /** Called back, and not given back yet: what is changed of them until then is brought to the cluster first, and calls nobody back. */
  readonly #returning = new Counts<number>();

  constructor(client: ClusterClient, { recalled, ended, failed, flushed }: DelegationEvents) {
    this.#client = client;
    const events = {
      recalled: async (inodes: readonly number[]) => {
        for (const inode of inodes) {
          this.#delegated.recalled(inode);
          this.#returning.more(inode);
        }
        try {
          await recalled(inodes);
        } finally {
          for (const inode of inodes) this.#returning.fewer(inode);
        }
      },
      ended: () => {
        this.#delegated.endAll();
        ended();
      },
      failed,
      flushed: () => flushed?.() ?? Promise.resolve(),
      isDelegated: (directory: number) => this.has(directory),
    };
    this.#session =
      client instanceof RememberingClient ? client.share(events) : new IdleSession(client, events);
  }

  /** @see Sequencer.request */
  request(): number {
    return this.#delegated.request();
  }

  /** Whether nobody else changes the directory's names, at this moment and until it is called back. */
  has(directory: number): boolean {
    return this.#delegated.has(directory) && this.#session.leftMs > 0;
  }

  /** Begins a session, so that there is one when directories are asked for. */
  start(): void {
    this.#session.start();
  }

  /** What is delegated, or soon to be, is in use. */
  use(): void {
    this.#session.use();
  }

  /**
   * Asks for a directory, together with its first names.
   *
   * @returns null where it is not delegated, for one because there is no session yet
   */
  async ask(directory: number, countMax: number): Promise<QueryResults['list'] | null> {
    this.use();
    const { session } = this.#session;
    if (session === null) return null;
    const requestedAt = this.request();
    const query = { kind: 'list', inode: directory, after: '', countMax } as const;
    const { result, ...granted } = await this.#client.queryRemembered(query, session, { delegate: true });
    return this.learn(directory, granted, requestedAt) ? result : null;
  }

  /**
   * @param granted as an answer tells
   * @param requestedAt sequence number of the request
   * @returns whether the directory is delegated to this client now
   */
  learn(
    directory: number,
    { delegated, generation }: Pick<RememberedAnswer<unknown>, 'delegated' | 'generation'>,
    requestedAt: number,
  ): boolean {
    if (generation === undefined || delegated !== this.#session.session) return false;
    return this.#delegated.learn(directory, generation, requestedAt);
  }

  /** What a command of this client says of itself, which changes names in these directories: it is not to call them back from here. */
  asOwner(directories: readonly number[]): OwnedCommand {
    const { client, session } = this.#session;
    const forgets = [...new Set(directories)].filter(
      (directory) => this.#delegated.has(directory) || this.#returning.has(directory),
    );
    if (forgets.length === 0 || session === null) return {};
    return { cache: { client, forgets, under: session }, unknown: () => this.#renounce(session) };
  }

  /** As `asOwner`, of a command that makes a directory in the one given, which is to be delegated as well. */
  asMaker(directory: number): OwnedCommand {
    const owner = this.asOwner([directory]);
    const { client, session } = this.#session;
    if (session === null) return owner;
    return { ...owner, cache: { client, forgets: [], ...owner.cache, session } };
  }

  /**
   * The fence of an operation that is acknowledged now and sent later.
   *
   * @returns null where the directory is not delegated at this moment
   */
  fenceOf(directory: number): Fence | null {
    const { client, session } = this.#session;
    const generation = this.#delegated.generationOf(directory);
    if (session === null || generation === undefined) return null;
    return { client, session, inode: directory, generation };
  }

  #renounce(session: number): void {
    if (this.#session.session === session) this.#session.renounce();
  }

  /** Gives everything back. */
  async close(): Promise<void> {
    await this.#session.close();
  }
}
