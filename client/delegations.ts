import { Counts } from '../base/counts.ts';
import type { CacheOwner, QueryResults } from '../wire/catalog-api.ts';
import type { ClusterClient } from './cluster-client.ts';
import { Delegated } from './delegated.ts';
import { type GrantedSession, IdleSession } from './idle-session.ts';
import { RememberingClient } from './remembering-client.ts';

export interface DelegationEvents {
  /** Others are about to change these directories, or to look at them: resolves when nothing of them is known here alone any more. */
  recalled(directories: readonly number[]): Promise<void>;
  /** Nothing is delegated any more. */
  ended(): void;
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

  constructor(client: ClusterClient, { recalled, ended, failed }: DelegationEvents) {
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
    };
    this.#session =
      client instanceof RememberingClient ? client.share(events) : new IdleSession(client, events);
  }

  /** To be compared with what is answered later. @see Delegated */
  get mark(): number {
    return this.#delegated.mark;
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
    if (delegated === undefined || delegated !== this.#session.session) return false;
    return this.#delegated.learn(directory, mark);
  }

  /** What a command of this client says of itself, which changes names in these directories: it is not to call them back from here. */
  asOwner(directories: readonly number[]): { readonly cache?: CacheOwner } {
    const forgets = [...new Set(directories)].filter(
      (directory) => this.#delegated.has(directory) || this.#returning.has(directory),
    );
    return forgets.length === 0 ? {} : { cache: { client: this.#session.client, forgets } };
  }

  /** As `asOwner`, of a command that makes a directory in the one given, which is to be delegated as well. */
  asMaker(directory: number): { readonly cache?: CacheOwner } {
    const owner = this.asOwner([directory]);
    const { client, session } = this.#session;
    if (session === null) return owner;
    return { cache: { client, forgets: owner.cache?.forgets ?? [], session } };
  }

  /** Gives everything back. */
  async close(): Promise<void> {
    await this.#session.close();
  }
}
