import { isRefusal, ServiceError } from '../../base/errors.ts';
import type { CatalogNumber } from '../../base/ids.ts';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { Delegations, fencedBy } from '../../client/cluster/delegations.ts';
import type { CommandOf, CommandResults, UnlinkedFile } from '../../wire/catalog-api.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type {
  AttributeChanges,
  Attributes,
  CreatedFile,
  CreateOutcome,
  DelegationBackend,
  FencedName,
  InodeNumbers,
  NewFile,
  UnlinkOutcome,
} from '../backend.ts';
import { NAMELESS_USERS, type Users } from './users.ts';

/** An unlink is sent again after this time without an answer, in milliseconds. */
const ATTEMPT_MS_MAX = 10_000;
/** How often an unlink is sent of a file that is marked as live each time without having been written. */
const UNLINK_PASSES_MAX = 8;

export class ClusterDelegations extends Delegations implements DelegationBackend {
  readonly #client: ClusterClient;
  readonly #volume: string;
  readonly #users: Users;

  constructor(
    client: ClusterClient,
    volume: string,
    failed: (error: unknown) => void,
    users: Users = NAMELESS_USERS,
  ) {
    super(client, failed);
    this.#client = client;
    this.#volume = volume;
    this.#users = users;
  }

  async reserve(count: number, placement?: number): Promise<InodeNumbers> {
    const { creatingServer: server, ...numbers } = await this.#client.reserveInodes(count, {
      volume: this.#volume,
      ...(placement === undefined ? {} : { placement }),
    });
    return { ...numbers, server };
  }

  reserving(): ReturnType<DelegationBackend['reserving']> {
    const { catalogPrimary: server, catalog } = this.#client;
    return { server, catalog };
  }

  async createWithContents(server: string, files: readonly NewFile[]): Promise<readonly CreateOutcome[]> {
    const owner = this.asOwner(files.map(({ parent }) => parent));
    const outcomes = await this.#client.createWithContents(server, files, owner);
    return outcomes.map((outcome): CreateOutcome => {
      if (outcome.kind === 'not-created') return outcome;
      if (outcome.kind === 'created') {
        this.#client.noteCreator(outcome.attributes, server);
        return outcome;
      }
      return { kind: 'refused', error: new ServiceError(outcome.code, outcome.message) };
    });
  }

  async create(file: NewFile, whose: 'own' | 'catalog' = 'own'): ReturnType<DelegationBackend['create']> {
    const { parent } = file;
    const command = this.#creationOf(file, whose);
    const owner = this.asOwner([parent]);
    const cache =
      whose === 'catalog' && owner.cache !== undefined
        ? { ...owner.cache, keeps: true as const }
        : owner.cache;
    const result = await this.#client.command(command, {
      ...owner,
      ...(cache === undefined ? {} : { cache }),
    });
    return createdFileOf(result);
  }

  async createAt(catalog: CatalogNumber, file: NewFile): ReturnType<DelegationBackend['createAt']> {
    return createdFileOf(await this.#client.commandAt(catalog, this.#creationOf(file, 'own')));
  }

  reserveAt(catalog: CatalogNumber, directory: number): Promise<number> {
    return this.#client.reserveInodeAt(catalog, directory);
  }

  #creationOf(file: NewFile, whose: 'own' | 'catalog'): CommandOf<'create-file'> {
    const { parent, name, inode, mode, uid, gid, accessedNs, modifiedNs, changedNs } = file;
    const reserved = { inode, owner: this.#client.inodeOwner };
    const times = whose === 'own' ? { times: { accessedNs, modifiedNs, changedNs } } : {};
    return {
      kind: 'create-file',
      place: { parent, name },
      mode,
      uid,
      gid,
      exclusive: true,
      reserved,
      ...times,
    };
  }

  async changeAttributes(inode: number, changes: AttributeChanges): Promise<Attributes> {
    const command = { kind: 'set-attributes', inode, ...changes } as const;
    return (await this.#client.commandWhereMoved(command, this.asOwner([inode]))).attributes;
  }

  /** Removes names. If a file's live mark is why one was refused (`#hasContents`), it is sent again. */
  async unlink(
    names: readonly FencedName[],
    how: Parameters<DelegationBackend['unlink']>[1],
  ): ReturnType<DelegationBackend['unlink']> {
    const outcomes: UnlinkOutcome[] = [];
    let newestNs: string | null = null;
    let remaining = names.map((name, at) => ({ name, at }));
    for (let pass = 1; remaining.length > 0; pass++) {
      const sent = remaining.map(({ name }) => name);
      const { files, atNs } = await this.#unlinkFenced(sent, how);
      newestNs = atNs ?? newestNs;
      for (const [index, { at }] of remaining.entries()) {
        const file = files[index];
        if (file !== undefined) outcomes[at] = outcomeOf(file);
      }
      if (pass === UNLINK_PASSES_MAX) break;
      const refused = remaining.filter((_, index) => isWritten(files[index]));
      const areSame = await Promise.all(refused.map(({ name }) => this.#hasContents(name)));
      remaining = refused.filter((_, index) => areSame[index]);
    }
    return { outcomes, atNs: newestNs };
  }

  /**
   * Whether a file whose unlink was refused still has the acknowledged contents. The catalog counts a live file as
   * written, and a primary marks it live even before a change that it refuses. Settling returns the real version and
   * ends the mark.
   * @throws ServiceError if the primary is not reached: the unlink is sent again
   */
  async #hasContents({ inode, contents }: FencedName): Promise<boolean> {
    try {
      const state = await this.#client.openFile(inode).settle();
      return contentVersionCompare(state.contents, contents) === 0;
    } catch (error) {
      if (isRefusal(error)) return false;
      throw error;
    }
  }

  async #unlinkFenced(
    names: readonly FencedName[],
    { uid, signal }: Parameters<DelegationBackend['unlink']>[1],
  ): Promise<{ readonly files: readonly UnlinkedFile[]; readonly atNs: string | null }> {
    const command = {
      kind: 'unlink-fenced' as const,
      files: names.map(({ parent, name, inode }) => ({ parent, name, inode })),
      contents: names.map(({ contents }) => contents),
      by: this.#users.removerText(uid),
    };
    // A second request would be another operation, which could be executed after the first.
    const limits = { signal, timeoutMs: Number.POSITIVE_INFINITY, attemptMsMax: ATTEMPT_MS_MAX };
    const cache = fencedBy(names.map(({ fence }) => fence));
    const { files, atNs = null } = await this.#client.command(command, { cache, ...limits });
    return { files, atNs };
  }
}

function createdFileOf(result: CommandResults['create-file']): CreatedFile {
  const { attributes, created, atNs = null, conditional = false, generation = null } = result;
  return { attributes, created, namedNs: atNs, isConditional: conditional, generation };
}

function isWritten(outcome: UnlinkedFile | undefined): boolean {
  return typeof outcome === 'object' && outcome.code === 'fence-lost';
}

/** For this file, a name that does not exist or belongs to another one is `absent`. */
function outcomeOf(outcome: UnlinkedFile): UnlinkOutcome {
  if (typeof outcome === 'number') return { kind: 'removed' };
  const { code, message } = outcome;
  if (code === 'not-found' || code === 'precondition-failed') return { kind: 'absent' };
  return { kind: 'refused', error: new ServiceError(code, message) };
}
