import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { UnfilledDirectory } from '../../catalog/clone-tables.ts';
import type { CommandRequest, CommandResults } from '../../wire/catalog-api.ts';
import { drawIncarnation } from '../process/incarnation.ts';

/** Entries that one command copies: about ten milliseconds of each member. */
const ENTRIES_PER_COMMAND = 200;

export interface DirectoryFillsParts {
  readonly world: World;
  /** The number of the catalog's last operation here. */
  seq(): number;
  execute(request: CommandRequest): Promise<CommandResults['clone-fill']>;
}

/**
 * At the catalog's primary, has directories of clones filled whose entries a command or query needs. The position is in
 * the catalog: it does not matter which primary began to fill a directory.
 */
export class DirectoryFills {
  readonly #parts: DirectoryFillsParts;
  readonly #inProgress = new Map<number, Promise<void>>();
  /** One for all directories: each session takes the place of a client's. */
  #session: { readonly session: number; readonly since: number } | null = null;
  #number = 0;

  constructor(parts: DirectoryFillsParts) {
    this.#parts = parts;
  }

  /** Resolves when the directory has all its entries. */
  fill(directory: number): Promise<void> {
    const known = this.#inProgress.get(directory);
    if (known !== undefined) return known;
    const work = this.#fill(directory).finally(() => this.#inProgress.delete(directory));
    this.#inProgress.set(directory, work);
    return work;
  }

  /** Calls `work`, and again each time that it has thrown `UnfilledDirectory`, once that directory is filled. */
  async whenFilled<Result>(work: () => Promise<Result>): Promise<Result> {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof UnfilledDirectory)) throw error;
        await this.fill(error.inode);
      }
    }
  }

  async #fill(inode: number): Promise<void> {
    const command = { kind: 'clone-fill', inode, countMax: ENTRIES_PER_COMMAND } as const;
    for (;;) {
      const { world, seq, execute } = this.#parts;
      this.#session ??= { session: drawIncarnation(world), since: seq() };
      const session = this.#session;
      try {
        const { done } = await execute({ ...session, number: ++this.#number, command });
        if (done) return;
      } catch (error) {
        if (!(error instanceof ServiceError) || error.code !== 'session-expired') throw error;
        // The command continues at the position that it finds, so it may be executed twice.
        if (this.#session === session) this.#newSession();
      }
    }
  }

  #newSession(): void {
    this.#session = null;
    this.#number = 0;
  }
}
