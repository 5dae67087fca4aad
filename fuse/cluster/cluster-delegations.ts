import { ServiceError } from '../../base/errors.ts';
import type { ClusterClient } from '../../client/cluster-client.ts';
import { Delegations, type Fence, fencedBy } from '../../client/delegations.ts';
import type {
  CreateOutcome,
  DelegationBackend,
  FencedName,
  InodeNumbers,
  ListedPage,
  NewFile,
  UnlinkOutcome,
} from '../backend.ts';
import { NAMELESS_USERS, type Users } from './users.ts';

type Events = Parameters<DelegationBackend['listen']>[0];

/** A removal is sent again after so long, in milliseconds, however long the cluster has been silent. */
const ATTEMPT_MS_MAX = 10_000;

/** New files and delegated directories of a real cluster, through the client library. */
export class ClusterDelegations implements DelegationBackend {
  readonly delegations: Delegations;
  readonly #client: ClusterClient;
  readonly #volume: string;
  readonly #users: Users;
  #events: Events = {
    recalled: () => Promise.resolve(),
    ended: () => undefined,
    flushed: () => Promise.resolve(),
  };

  /** @param failed is told why nothing can be delegated at the moment */
  constructor(
    client: ClusterClient,
    volume: string,
    failed: (error: unknown) => void,
    users: Users = NAMELESS_USERS,
  ) {
    this.#client = client;
    this.#volume = volume;
    this.#users = users;
    this.delegations = new Delegations(client, {
      recalled: (directories) => this.#events.recalled(directories),
      ended: () => this.#events.ended(),
      flushed: () => this.#events.flushed(),
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

  delegatedMs(directory: number): number {
    return this.delegations.leftMs(directory);
  }

  use(): void {
    this.delegations.use();
  }

  delegate(directory: number, countMax: number): Promise<ListedPage | null> {
    return this.delegations.ask(directory, countMax);
  }

  async reserve(count: number): Promise<InodeNumbers> {
    const { bearer, ...numbers } = await this.#client.reserveInodes(count, { volume: this.#volume });
    return { ...numbers, server: bearer };
  }

  creatingServer(): string | null {
    return this.#client.catalogPrimary;
  }

  async createWithContents(server: string, files: readonly NewFile[]): Promise<readonly CreateOutcome[]> {
    const owner = this.delegations.asOwner(files.map(({ parent }) => parent));
    const outcomes = await this.#client.bear(server, files, owner);
    return outcomes.map((outcome): CreateOutcome => {
      if (outcome.kind === 'unborn') return { kind: 'not-created' };
      if (outcome.kind === 'born') {
        this.#client.noteMaker(outcome.attributes, server);
        return { ...outcome, kind: 'created' };
      }
      return { kind: 'refused', error: new ServiceError(outcome.code, outcome.message) };
    });
  }

  async create(file: NewFile, whose: 'own' | 'catalog' = 'own'): ReturnType<DelegationBackend['create']> {
    const { parent, name, inode, mode, uid, gid, accessedNs, modifiedNs, changedNs } = file;
    const reserved = { inode, owner: this.#client.inodeOwner };
    const times = whose === 'own' ? { times: { accessedNs, modifiedNs, changedNs } } : {};
    const node = { place: { parent, name }, mode, uid, gid, exclusive: true } as const;
    const command = { kind: 'create-file', ...node, reserved, ...times } as const;
    const made = await this.#client.command(command, this.delegations.asOwner([parent]));
    const { attributes, created, atNs = null } = made;
    return { attributes, created, namedNs: atNs };
  }

  fenceOf(directory: number): Fence | null {
    return this.delegations.fenceOf(directory);
  }

  async unlink(
    names: readonly FencedName[],
    { uid, signal }: Parameters<DelegationBackend['unlink']>[1],
  ): ReturnType<DelegationBackend['unlink']> {
    const command = {
      kind: 'unlink-fenced' as const,
      files: names.map(({ parent, name, inode }) => ({ parent, name, inode })),
      contents: names.map(({ contents }) => contents),
      by: this.#users.removerText(uid),
    };
    // One request until it is answered: a second one would be another operation, which may be executed after the first.
    const limits = { signal, timeoutMs: Number.POSITIVE_INFINITY, attemptMsMax: ATTEMPT_MS_MAX };
    const cache = fencedBy(names.map(({ fence }) => fence));
    const { files, atNs = null } = await this.#client.command(command, { cache, ...limits });
    const outcomes = files.map((left) => (typeof left === 'number' ? REMOVED : refusedOutcome(left)));
    return { outcomes, atNs };
  }

  stop(): Promise<void> {
    return this.delegations.close();
  }
}

const REMOVED: UnlinkOutcome = { kind: 'removed' };

/** Who has no such name any more, or gave it to another file, has lost it. */
function refusedOutcome({ code, message }: Pick<ServiceError, 'code' | 'message'>): UnlinkOutcome {
  if (code === 'not-found' || code === 'precondition-failed') return { kind: 'gone' };
  return { kind: 'refused', error: new ServiceError(code, message) };
}
