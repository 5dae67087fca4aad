import { ServiceError } from '../base/errors.ts';
import type { ClusterClient } from '../client/cluster-client.ts';
import { Delegations } from '../client/delegations.ts';
import type { BirthBackend, BirthOutcome, InodeNumbers, ListedPage, NewFile } from './backend.ts';

type Events = Parameters<BirthBackend['listen']>[0];

/** New files and delegated directories of a real cluster, through the client library. */
export class ClusterBirths implements BirthBackend {
  readonly delegations: Delegations;
  readonly #client: ClusterClient;
  #events: Events = { recalled: () => Promise.resolve(), ended: () => undefined };

  /** @param failed is told why nothing can be delegated at the moment */
  constructor(client: ClusterClient, failed: (error: unknown) => void) {
    this.#client = client;
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
    return this.#client.reserveInodes(count);
  }

  bearer(): string | null {
    return this.#client.catalogPrimary;
  }

  async bear(bearer: string, files: readonly NewFile[]): Promise<readonly BirthOutcome[]> {
    const owner = this.delegations.asOwner(files.map(({ parent }) => parent));
    const outcomes = await this.#client.bear(bearer, files, owner);
    return outcomes.map((outcome): BirthOutcome => {
      if (outcome.kind !== 'refused') return outcome;
      return { kind: 'refused', error: new ServiceError(outcome.code, outcome.message) };
    });
  }

  async make(file: NewFile): ReturnType<BirthBackend['make']> {
    const { parent, name, inode, mode, uid, gid, accessedNs, modifiedNs, changedNs } = file;
    const reserved = { inode, owner: this.#client.inodeOwner };
    const times = { accessedNs, modifiedNs, changedNs };
    const node = { place: { parent, name }, mode, uid, gid, exclusive: true } as const;
    const command = { kind: 'create-file', ...node, reserved, times } as const;
    const { attributes, atNs = null } = await this.#client.command(
      command,
      this.delegations.asOwner([parent]),
    );
    return { attributes, namedNs: atNs };
  }

  stop(): Promise<void> {
    return this.delegations.close();
  }
}
