import { ServiceError } from '../base/errors.ts';
import type { ClusterClient } from '../client/cluster-client.ts';
import { Delegations } from '../client/delegations.ts';
import type {
  BirthBackend,
  BirthOutcome,
  InodeNumbers,
  ListedPage,
  NewFile,
  RemovalOutcome,
  RemovedName,
} from './backend.ts';
import { removerText } from './users.ts';

type Events = Parameters<BirthBackend['listen']>[0];

/** Where removals are refused together, as in a cluster with a server of an earlier release, each goes by itself for so long. */
const SINGLY_MS = 10_000;

/** New files and delegated directories of a real cluster, through the client library. */
export class ClusterBirths implements BirthBackend {
  readonly delegations: Delegations;
  readonly #client: ClusterClient;
  readonly #volume: string;
  #singlyUntilMs = Number.NEGATIVE_INFINITY;
  #events: Events = { recalled: () => Promise.resolve(), ended: () => undefined };

  /** @param failed is told why nothing can be delegated at the moment */
  constructor(client: ClusterClient, volume: string, failed: (error: unknown) => void) {
    this.#client = client;
    this.#volume = volume;
    this.delegations = new Delegations(client, {
      recalled: (directories) => this.#events.recalled(directories),
      ended: () => this.#events.ended(),
      failed,
    });
  }

  listen(events: Events): void {
    this.#events = events;
    this.delegations.start();
  }

  isDelegated(directory: number): boolean {
    return this.delegations.has(directory);
  }

  use(): void {
    this.delegations.use();
  }

  delegate(directory: number, countMax: number): Promise<ListedPage | null> {
    return this.delegations.ask(directory, countMax);
  }

  reserve(count: number): Promise<InodeNumbers> {
    return this.#client.reserveInodes(count, { volume: this.#volume });
  }

  bearer(): string | null {
    return this.#client.catalogPrimary;
  }

  async bear(bearer: string, files: readonly NewFile[]): Promise<readonly BirthOutcome[]> {
    const owner = this.delegations.asOwner(files.map(({ parent }) => parent));
    const outcomes = await this.#client.bear(bearer, files, owner);
    return outcomes.map((outcome): BirthOutcome => {
      if (outcome.kind === 'unborn') return outcome;
      if (outcome.kind === 'born') {
        this.#client.noteMaker(outcome.attributes, bearer);
        return outcome;
      }
      return { kind: 'refused', error: new ServiceError(outcome.code, outcome.message) };
    });
  }

  async make(file: NewFile): ReturnType<BirthBackend['make']> {
    const { parent, name, inode, mode, uid, gid, accessedNs, modifiedNs, changedNs } = file;
    const reserved = { inode, owner: this.#client.inodeOwner };
    const times = { accessedNs, modifiedNs, changedNs };
    const node = { place: { parent, name }, mode, uid, gid, exclusive: true } as const;
    const command = { kind: 'create-file', ...node, reserved, times } as const;
    const made = await this.#client.command(command, this.delegations.asOwner([parent]));
    const { attributes, created, atNs = null } = made;
    return { attributes, created, namedNs: atNs };
  }

  async remove(names: readonly RemovedName[], uid?: number): ReturnType<BirthBackend['remove']> {
    const by = removerText(uid);
    if (performance.now() >= this.#singlyUntilMs) {
      try {
        const owner = this.delegations.asOwner(names.map(({ parent }) => parent));
        const command = { kind: 'unlink-files' as const, files: [...names], by };
        const { files, atNs = null } = await this.#client.command(command, owner);
        const outcomes = files.map((left) => (typeof left === 'number' ? REMOVED : refusedOutcome(left)));
        return { outcomes, atNs };
      } catch (error) {
        if (!isRefused(error)) throw error;
        this.#singlyUntilMs = performance.now() + SINGLY_MS;
      }
    }
    const outcomes = await Promise.all(names.map((name) => this.#removeOne(name, by)));
    return { outcomes, atNs: null };
  }

  async #removeOne({ parent, name, inode }: RemovedName, by: string): Promise<RemovalOutcome> {
    const expect = { kind: 'inode', inode } as const;
    try {
      const command = { kind: 'unlink', place: { parent, name }, expect, by } as const;
      await this.#client.command(command, this.delegations.asOwner([parent]));
      return REMOVED;
    } catch (error) {
      return error instanceof ServiceError ? refusedOutcome(error) : { kind: 'refused', error };
    }
  }

  stop(): Promise<void> {
    return this.delegations.close();
  }
}

const REMOVED: RemovalOutcome = { kind: 'removed' };

/** Who has no such name any more, or gave it to another file, has lost it. */
function refusedOutcome({ code, message }: Pick<ServiceError, 'code' | 'message'>): RemovalOutcome {
  if (code === 'not-found' || code === 'precondition-failed') return { kind: 'gone' };
  return { kind: 'refused', error: new ServiceError(code, message) };
}

/** Nothing of a command has happened, and each removal by itself may be answered otherwise. */
function isRefused(error: unknown): boolean {
  return error instanceof ServiceError && error.remedy === 'give-up';
}
