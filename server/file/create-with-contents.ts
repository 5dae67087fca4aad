import { assert } from '../../base/assert.ts';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import {
  type CatalogNumber,
  catalogOfInode,
  type FileId,
  ROOT_CATALOG,
  type ServerId,
} from '../../base/ids.ts';
import type { NumberPlacement } from '../../replica/create-with-contents.ts';
import type {
  Command,
  CommandResults,
  CreateWithContentsCommand,
  CreateWithContentsResult,
  FileSettings,
  Query,
  QueryResults,
  ServerInfo,
} from '../../wire/catalog-api.ts';
import type { FileWithContents as NewFile, NewFileOutcome, NewFilesRequest } from '../../wire/new-files.ts';
import type { PlacementClass } from '../../wire/placement-class.ts';
import type { NumbersRequest, ReservedNumbers } from '../../wire/reserved-numbers.ts';
import type { Clock } from '../process/clock.ts';
import type { NumberedRequest } from '../requests/numbered-requests.ts';
import { assertCatalogNamed, movedRefusal } from '../routing/named-catalog.ts';
import type { CallOptions } from '../routing/router.ts';
import type { NewReplica } from '../storage/store.ts';
import type { Counter } from '../telemetry/metrics.ts';
import type { Traffic } from '../telemetry/traffic.ts';
import { creationOperations } from './creation-operations.ts';
import { CREATED_WITH_CONTENTS, outcomeOf, outcomeWithEntry, refused } from './creation-outcome.ts';
import { type FileNumbers, isRefusedByCatalog } from './file-numbers.ts';
import type { FirstContents, Refusal } from './first-contents.ts';
import type { ReplicaHost } from './replica-host.ts';
import type { FileClass, StorageSettings, VolumeStorage } from './storage-settings.ts';

/** Contents of all files that are being created; more are refused with `busy`. */
const IN_PROGRESS_BYTES_MAX = 64 * 1024 * 1024;
const BUSY_RETRY_MS = 100;
/** Refusals after which no client creates the file by its number. */
const FINAL: ReadonlySet<ErrorCode> = new Set(['exists', 'not-found', 'not-directory']);

export interface CreateWithContentsParts {
  readonly clock: Clock;
  readonly contents: Pick<FirstContents, 'epoch' | 'store'>;
  readonly numbers: Pick<FileNumbers, 'reserve' | 'take'>;
  readonly settings: StorageSettings;
  readonly host: Pick<ReplicaHost, 'has' | 'directoryEntryCreated'>;
  readonly traffic: Traffic;
  readonly outcomes: Counter;
  catalogOf(inode: number): CatalogNumber;
  /** Fetches the newest list of catalogs, by which `catalogOf` then answers. */
  refreshCatalogs(): Promise<void>;
  /** Whether new numbers would have better members than these: allowed, reachable, and with free space. */
  isOutdated(members: readonly ServerId[], servers: readonly ServerInfo[], required: PlacementClass): boolean;
  /** Voids numbers after the answer, durably: contents stored under them may then be removed. */
  voidNumbers(owner: number, inodes: readonly number[]): void;
  query<Q extends Query>(query: Q, options?: CallOptions): Promise<QueryResults[Q['kind']]>;
  command<C extends Command>(
    command: C,
    name?: NumberedRequest,
    options?: CallOptions,
  ): Promise<CommandResults[C['kind']]>;
}

interface PlacedGroup {
  readonly members: readonly ServerId[];
  /** The class of the files now. */
  readonly class: FileClass;
  readonly places: number[];
}

/**
 * Creates files with contents: a majority stores them while no client knows the files, in the first epoch and without a
 * lease; then one command of the catalog creates all directory entries. docs/design/mount.md, "Create with contents".
 */
export class CreateWithContents {
  readonly #parts: CreateWithContentsParts;
  /** By session and number: a retry waits for the same result. */
  readonly #inProgress = new Map<string, Promise<NewFileOutcome[]>>();
  #bytesInProgress = 0;

  constructor(parts: CreateWithContentsParts) {
    this.#parts = parts;
  }

  /** @see FileNumbers.reserve */
  reserve(
    request: NumbersRequest,
    assertAllowed?: (catalog: CatalogNumber) => void,
  ): Promise<ReservedNumbers> {
    return this.#parts.numbers.reserve(request, assertAllowed);
  }

  /**
   * Creates files, exactly once for a session and number.
   * @returns the outcome of each, in their order
   * @throws ServiceError if the outcome is unknown; a retry returns it
   */
  create(request: NewFilesRequest, options: CallOptions): Promise<NewFileOutcome[]> {
    const name = `${request.session}.${request.number}`;
    const known = this.#inProgress.get(name);
    if (known !== undefined) return known;
    const bytes = request.newFiles.reduce((sum, { contents }) => sum + contents.length, 0);
    if (this.#bytesInProgress > 0 && this.#bytesInProgress + bytes > IN_PROGRESS_BYTES_MAX) {
      const busy = new ServiceError('busy', 'Too many files are being created: retry later', {
        retryAfterMs: BUSY_RETRY_MS,
      });
      return Promise.reject(busy);
    }
    this.#bytesInProgress += bytes;
    const creation = this.#createInCatalog(request, options).finally(() => {
      this.#bytesInProgress -= bytes;
      this.#inProgress.delete(name);
    });
    this.#inProgress.set(name, creation);
    return creation;
  }

  /** Creates the files in their catalog, which the client names: its position is one of that catalog. */
  async #createInCatalog(request: NewFilesRequest, options: CallOptions): Promise<NewFileOutcome[]> {
    const { catalogOf, refreshCatalogs } = this.#parts;
    const inodes = request.newFiles.flatMap(({ parent, inode }) => [parent, inode]);
    const [first] = request.newFiles;
    const catalogHere = () => (first === undefined ? ROOT_CATALOG : catalogOf(first.parent));
    // A client that has learned of a move earlier names the volume's new catalog.
    const { catalog: named = ROOT_CATALOG } = options;
    if (named !== ROOT_CATALOG && catalogHere() !== named) await refreshCatalogs();
    const catalog = catalogHere();
    // Perhaps only some of the directories: the client then learns of each file where it is to be created.
    const moved = inodes.map(catalogOf).find((number) => number !== ROOT_CATALOG);
    const areOfRoot = inodes.every((inode) => catalogOfInode(inode) === ROOT_CATALOG);
    if (moved !== undefined && areOfRoot && named === ROOT_CATALOG)
      return this.#createdBeforeMove(request, options, moved);
    if (inodes.some((inode) => catalogOf(inode) !== catalog))
      throw new ServiceError('bad-request', 'The new files, or their numbers, are of several volumes');
    assertCatalogNamed(catalog, options.catalog);
    return this.#createAll(request, { ...options, onlyThere: true });
  }

  /**
   * The root catalog alone knows whether an attempt has created the files before their volume moved.
   * @throws ServiceError if none has, and none will
   */
  async #createdBeforeMove(
    request: NewFilesRequest,
    options: CallOptions,
    movedTo: CatalogNumber,
  ): Promise<NewFileOutcome[]> {
    const outcomes = await this.#closeRequest(request, options);
    if (outcomes.some(({ kind }) => kind !== 'not-created')) return outcomes;
    if (options.catalog === undefined) assertCatalogNamed(movedTo);
    throw movedRefusal(movedTo);
  }

  /** Stores the contents at the members; creates the entries of files that have none, and settles the others. */
  async #createAll(request: NewFilesRequest, options: CallOptions): Promise<NewFileOutcome[]> {
    const { newFiles, owner } = request;
    // Each number is used up, even if another one is not available.
    const places = newFiles.map(({ inode }) => this.#parts.numbers.take(owner, inode));
    const storage = places.every((place) => place !== null)
      ? await this.#parts.settings.ofDirectory(newFiles[0]?.parent)
      : null;
    const groups = storage === null ? null : await this.#groupsOf(places, storage);
    if (storage === null || groups === null) return this.#closeRequest(request, options);
    const refusals: Refusal[] = newFiles.map(() => 'no-majority');
    const hasEntry = (place: number): boolean => newFiles[place]?.hasEntry === true;
    const settings = await this.#parts.settings.ofFiles(
      newFiles.flatMap(({ inode, hasEntry }) => (hasEntry === true ? [inode] : [])),
      options,
    );
    const isLeft = newFiles.map(
      (birth) => birth.hasEntry === true && this.#isLeftToPrimary(birth, storage, settings.get(birth.inode)),
    );
    const wanted = groups.map(({ members, places }) => ({
      members,
      places: places.filter((place) => isLeft[place] === false),
    }));
    await Promise.all(wanted.map((group) => this.#storeGroup(group, storage, newFiles, refusals)));
    const isStored = (place: number): boolean => refusals[place] === null;
    const settled = this.#settleWithEntry(newFiles.filter((_, place) => hasEntry(place) && isStored(place)));
    const stored = groups.flatMap(({ members, places }) => {
      const named = places.filter((place) => isStored(place) && !hasEntry(place));
      const files = named.flatMap((place) => newFiles[place] ?? []);
      return files.length === 0 ? [] : [{ members, files }];
    });
    const naming = stored.length === 0 ? null : this.#createEntries(request, stored, storage, options);
    const [result] = await Promise.all([naming, settled]);
    const outcomes = newFiles.map((birth, place): NewFileOutcome => {
      const refusal = refusals[place] ?? null;
      if (refusal === 'no-space')
        return refused(
          refusal,
          `Cannot create "${birth.name}": no space on the servers' disks; delete files or add space`,
        );
      if (refusal !== null) return { kind: 'not-created' };
      if (birth.hasEntry === true)
        return outcomeWithEntry(birth, storage.volume, places[place]?.members ?? []);
      if (result === null) return { kind: 'not-created' };
      return outcomeOf(birth, result, storage.volume, places[place]?.members ?? []);
    });
    this.#requestNewNumbers(outcomes, groups, storage);
    for (const [place, { inode }] of newFiles.entries())
      if (outcomes[place]?.kind === 'created') this.#parts.host.directoryEntryCreated(inode as FileId);
    const inodes = newFiles.flatMap(({ inode }, place) => (isFinal(outcomes[place]) ? [inode] : []));
    if (inodes.length > 0) this.#parts.voidNumbers(request.owner, inodes);
    this.#count(outcomes);
    return outcomes;
  }

  /**
   * Whether the contents are left to the primary of a file that has a directory entry: it needs the catalog's
   * permission to grow, a majority is not enough, its settings differ from the request's, or another client has opened
   * it.
   * @param settings undefined if the file is gone, or the catalog's primary runs an earlier release
   */
  #isLeftToPrimary(
    { inode }: NewFile,
    { volume }: VolumeStorage,
    settings: FileSettings | undefined,
  ): boolean {
    if (settings === undefined || settings.limited || settings.policy !== 'quorum') return true;
    if (settings.volume !== volume.name || settings.objectBytes !== volume.objectBytes) return true;
    return this.#parts.host.has(inode as FileId);
  }

  /**
   * Reports size and time of files that had directory entries before: that ends their live marks, but no later ones.
   */
  async #settleWithEntry(newFiles: readonly NewFile[]): Promise<void> {
    if (newFiles.length === 0) return;
    const { command, clock } = this.#parts;
    const mark = { epoch: this.#parts.contents.epoch.counter, turn: 0 };
    const files = newFiles.map(({ inode, contents, modifiedNs }) => ({
      ...{ inode, sizeBytes: contents.length, modifiedNs: modifiedNs ?? clock.wallNs().toString() },
      ...{ contents: CREATED_WITH_CONTENTS, mark },
    }));
    await command({ kind: 'settle', files });
  }

  #count(outcomes: readonly NewFileOutcome[]): void {
    const { traffic } = this.#parts;
    for (const kind of ['created', 'refused', 'not-created'] as const) {
      const count = outcomes.filter((outcome) => outcome.kind === kind).length;
      if (count > 0) this.#parts.outcomes.add(count, { outcome: kind });
    }
    for (const { kind } of outcomes) if (kind === 'created') traffic.countWrite();
  }

  /**
   * This server cannot create these files; another server or an earlier attempt may have. The catalog returns that
   * result, or closes the request, so that no attempt has an effect any more.
   */
  async #closeRequest(request: NewFilesRequest, options: CallOptions): Promise<NewFileOutcome[]> {
    const { newFiles } = request;
    const answer: CommandResults['forgo' | 'bear'] = await this.#parts.command(
      { kind: 'forgo' },
      numberedRequestOf(request),
      options,
    );
    const before = isCreateResult(answer) ? answer : null;
    const storage = before === null ? null : await this.#parts.settings.ofDirectory(newFiles[0]?.parent);
    const outcomes = await Promise.all(
      newFiles.map(async (birth): Promise<NewFileOutcome> => {
        if (before === null || storage === null) return { kind: 'not-created' };
        const { files } = await this.#parts.query({ kind: 'placed', inodes: [birth.inode] }, options);
        const members = (files[0]?.members ?? []) as readonly ServerId[];
        return outcomeOf(birth, before, storage.volume, members);
      }),
    );
    this.#count(outcomes);
    return outcomes;
  }

  /** Files with the same servers and class; null if a class has another number of replicas by now. */
  async #groupsOf(
    places: readonly (NumberPlacement | null)[],
    { volume }: VolumeStorage,
  ): Promise<PlacedGroup[] | null> {
    const groups = new Map<string, PlacedGroup>();
    for (const [index, place] of places.entries()) {
      if (place === null) return null;
      const key = [place.placement, ...place.members].join();
      const files = groups.get(key)?.class ?? (await this.#parts.settings.ofClass(volume, place.placement));
      if (place.replicas !== files.replicas) return null;
      const group = groups.get(key) ?? { members: place.members, class: files, places: [] };
      group.places.push(index);
      groups.set(key, group);
    }
    return [...groups.values()];
  }

  /** Stores the contents of one group at its members; sets in `refusals`, for each file, why not, or null. */
  async #storeGroup(
    { members, places }: Pick<PlacedGroup, 'members' | 'places'>,
    { volume }: VolumeStorage,
    newFiles: readonly NewFile[],
    refusals: Refusal[],
  ): Promise<void> {
    const { contents: firstContents, clock } = this.#parts;
    const nowNs = clock.wallNs();
    const replicas = places
      .flatMap((place) => newFiles[place] ?? [])
      .map(({ inode, contents, hasEntry, modifiedNs: wantedNs }): NewReplica => {
        const modifiedNs = hasEntry === true && wantedNs !== null ? BigInt(wantedNs) : nowNs;
        return { file: inode as FileId, operations: creationOperations(contents, modifiedNs) };
      });
    const { objectBytes } = volume;
    const stored = await firstContents.store({ members, objectBytes, replicas, synced: false });
    for (const [index, refusal] of stored.entries()) {
      const place = places[index];
      if (place !== undefined) refusals[place] = refusal;
    }
  }

  /** Marks outcomes with `renew` if other members would be better: else clients use such numbers for ten minutes. */
  #requestNewNumbers(
    outcomes: NewFileOutcome[],
    groups: readonly PlacedGroup[],
    { servers }: VolumeStorage,
  ): void {
    for (const { members, places, class: files } of groups) {
      if (!this.#parts.isOutdated(members, servers, files)) continue;
      for (const place of places) {
        const outcome = outcomes[place];
        if (outcome?.kind === 'created') outcomes[place] = { ...outcome, renew: true };
      }
    }
  }

  /** Creates the entries of stored files by one command. @returns null if it is closed or refused: no file exists */
  async #createEntries(
    request: NewFilesRequest,
    stored: readonly { readonly members: readonly ServerId[]; readonly files: readonly NewFile[] }[],
    { volume: { objectBytes } }: VolumeStorage,
    options: CallOptions,
  ): Promise<CreateWithContentsResult | null> {
    const { owner, cache } = request;
    const [first, ...others] = stored;
    assert(first !== undefined, 'What is named is stored');
    const elsewhere = others.map(({ members, files }) => ({
      replicas: [...members],
      inodes: files.map(({ inode }) => inode),
    }));
    const newFiles = stored.flatMap(({ files }) => files);
    const files = newFiles.map(({ contents, accessedNs, modifiedNs, changedNs, ...birth }) => ({
      ...birth,
      sizeBytes: contents.length,
      ...(accessedNs === null ? {} : { accessedNs }),
      ...(modifiedNs === null ? {} : { modifiedNs }),
      ...(changedNs === null ? {} : { changedNs }),
      contents: CREATED_WITH_CONTENTS,
    }));
    const command: CreateWithContentsCommand = {
      kind: 'bear',
      ...{ owner, replicas: [...first.members], objectBytes, files },
      ...(elsewhere.length === 0 ? {} : { elsewhere }),
    };
    const owned = cache === undefined ? options : { ...options, cacheOwner: cache };
    let result: CommandResults['forgo' | 'bear'];
    try {
      result = await this.#parts.command(command, numberedRequestOf(request), owned);
    } catch (error) {
      // A member of the files was removed: no attempt has created entries. The client creates the files in two steps.
      if (isRefusedByCatalog(error)) return null;
      throw error;
    }
    return isCreateResult(result) ? result : null;
  }
}

function isFinal(outcome: NewFileOutcome | undefined): boolean {
  return outcome?.kind === 'refused' && FINAL.has(outcome.code);
}

function numberedRequestOf({ session, number, since }: NewFilesRequest): NumberedRequest {
  return { session, number, since };
}

function isCreateResult(result: CommandResults['forgo' | 'bear']): result is CreateWithContentsResult {
  return 'files' in result;
}
