import { assert } from '../../base/assert.ts';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { NumberPlacement } from '../../replica/create-with-contents.ts';
import type {
  Command,
  CommandResults,
  CreateWithContentsResult,
  FileSettings,
  Query,
  QueryResults,
  ServerInfo,
} from '../../wire/catalog-api.ts';
import type { FileWithContents as NewFile, NewFileOutcome, NewFilesRequest } from '../../wire/new-files.ts';
import type { NumbersRequest, ReservedNumbers } from '../../wire/reserved-numbers.ts';
import type { Clock } from '../process/clock.ts';
import type { NumberedRequest } from '../requests/numbered-requests.ts';
import type { CallOptions } from '../routing/router.ts';
import type { NewReplica } from '../storage/store.ts';
import type { Counter } from '../telemetry/metrics.ts';
import type { Traffic } from '../telemetry/traffic.ts';
import { CREATED_WITH_CONTENTS, filledOutcome, outcomeOf, refused } from './creation-outcome.ts';
import { type FileNumbers, isRefused } from './file-numbers.ts';
import { creationOperations } from './file-with-contents.ts';
import type { FirstContents, Refusal } from './first-contents.ts';
import type { ReplicaHost } from './replica-host.ts';
import type { StorageSettings, VolumeStorage } from './storage-settings.ts';

/** Contents of all files that are being created; more are refused with `busy`. */
const UNDER_WAY_BYTES_MAX = 64 * 1024 * 1024;
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
  /** Whether new numbers would have better members than these, all reachable and with free space. */
  isOutdated(members: readonly ServerId[], servers: readonly ServerInfo[]): boolean;
  /** Voids numbers after the answer, durably: contents stored under them may then be removed. */
  voidNumbers(owner: number, inodes: readonly number[]): void;
  query<Q extends Query>(query: Q, options?: CallOptions): Promise<QueryResults[Q['kind']]>;
  command<C extends Command>(
    command: C,
    name?: NumberedRequest,
    options?: CallOptions,
  ): Promise<CommandResults[C['kind']]>;
}

interface Group {
  readonly members: readonly ServerId[];
  readonly places: number[];
}

/**
 * Creates files with contents: a majority stores them while no client knows the files, in the first epoch and without a
 * lease; then one command of the catalog creates all directory entries. docs/design/mount.md, "Create with contents".
 */
export class CreateWithContents {
  readonly #parts: CreateWithContentsParts;
  /** By session and number: a retry waits for the same result. */
  readonly #underWay = new Map<string, Promise<NewFileOutcome[]>>();
  #bytesUnderWay = 0;

  constructor(parts: CreateWithContentsParts) {
    this.#parts = parts;
  }

  reserve(request: NumbersRequest): Promise<ReservedNumbers> {
    return this.#parts.numbers.reserve(request);
  }

  /**
   * Creates files, exactly once for a session and number.
   * @returns the outcome of each, in their order
   * @throws ServiceError if the outcome is unknown; a retry returns it
   */
  create(request: NewFilesRequest, options: CallOptions): Promise<NewFileOutcome[]> {
    const name = `${request.session}.${request.number}`;
    const known = this.#underWay.get(name);
    if (known !== undefined) return known;
    const bytes = request.births.reduce((sum, { contents }) => sum + contents.length, 0);
    if (this.#bytesUnderWay > 0 && this.#bytesUnderWay + bytes > UNDER_WAY_BYTES_MAX) {
      const busy = new ServiceError('busy', 'Too many files are being created: retry later', {
        retryAfterMs: BUSY_RETRY_MS,
      });
      return Promise.reject(busy);
    }
    this.#bytesUnderWay += bytes;
    const bearing = this.#createAll(request, options).finally(() => {
      this.#bytesUnderWay -= bytes;
      this.#underWay.delete(name);
    });
    this.#underWay.set(name, bearing);
    return bearing;
  }

  /** Stores the contents at the members; creates the entries of files that have none, and settles the others. */
  async #createAll(request: NewFilesRequest, options: CallOptions): Promise<NewFileOutcome[]> {
    const { births, owner } = request;
    // Each number is used up, even if another one is not available.
    const places = births.map(({ inode }) => this.#parts.numbers.take(owner, inode));
    const storage = places.every((place) => place !== null)
      ? await this.#parts.settings.ofDirectory(births[0]?.parent)
      : null;
    const groups = storage === null ? null : groupsOf(places, storage);
    if (storage === null || groups === null) return this.#closeRequest(request, options);
    const refusals: Refusal[] = births.map(() => 'no-majority');
    const isNamed = (place: number): boolean => births[place]?.isNamed === true;
    const settings = await this.#parts.settings.ofFiles(
      births.flatMap(({ inode, isNamed }) => (isNamed === true ? [inode] : [])),
      options,
    );
    const isLeft = births.map(
      (birth) => birth.isNamed === true && this.#isLeftAlone(birth, storage, settings.get(birth.inode)),
    );
    const wanted = groups.map(({ members, places }) => ({
      members,
      places: places.filter((place) => isLeft[place] === false),
    }));
    await Promise.all(wanted.map((group) => this.#storeGroup(group, storage, births, refusals)));
    const isStored = (place: number): boolean => refusals[place] === null;
    const settled = this.#settle(births.filter((_, place) => isNamed(place) && isStored(place)));
    const stored = groups.flatMap(({ members, places }) => {
      const named = places.filter((place) => isStored(place) && !isNamed(place));
      const files = named.flatMap((place) => births[place] ?? []);
      return files.length === 0 ? [] : [{ members, files }];
    });
    const naming = stored.length === 0 ? null : this.#name(request, stored, storage, options);
    const [result] = await Promise.all([naming, settled]);
    const outcomes = births.map((birth, place): NewFileOutcome => {
      const refusal = refusals[place] ?? null;
      if (refusal === 'no-space')
        return refused(
          refusal,
          `Cannot create "${birth.name}": no space on the servers' disks; delete files or add space`,
        );
      if (refusal !== null) return { kind: 'not-created' };
      if (birth.isNamed === true) return filledOutcome(birth, storage.volume, places[place]?.members ?? []);
      if (result === null) return { kind: 'not-created' };
      return outcomeOf(birth, result, storage.volume, places[place]?.members ?? []);
    });
    this.#markOutdated(outcomes, groups, storage);
    for (const [place, { inode }] of births.entries())
      if (outcomes[place]?.kind === 'created') this.#parts.host.directoryEntryCreated(inode as FileId);
    const inodes = births.flatMap(({ inode }, place) => (isFinal(outcomes[place]) ? [inode] : []));
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
  #isLeftAlone({ inode }: NewFile, { volume }: VolumeStorage, settings: FileSettings | undefined): boolean {
    if (settings === undefined || settings.limited || settings.policy !== 'quorum') return true;
    if (settings.volume !== volume.name || settings.objectBytes !== volume.objectBytes) return true;
    return this.#parts.host.has(inode as FileId);
  }

  /**
   * Reports size and time of files that had directory entries before: that ends their live marks, but no later ones.
   */
  async #settle(births: readonly NewFile[]): Promise<void> {
    if (births.length === 0) return;
    const { command, clock } = this.#parts;
    const mark = { epoch: this.#parts.contents.epoch.counter, turn: 0 };
    const files = births.map(({ inode, contents, modifiedNs }) => ({
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
    const { births } = request;
    const answer: CommandResults['forgo' | 'bear'] = await this.#parts.command(
      { kind: 'forgo' },
      nameOf(request),
      options,
    );
    const before = isBearResult(answer) ? answer : null;
    const storage = before === null ? null : await this.#parts.settings.ofDirectory(births[0]?.parent);
    const outcomes = await Promise.all(
      births.map(async (birth): Promise<NewFileOutcome> => {
        if (before === null || storage === null) return { kind: 'not-created' };
        const { files } = await this.#parts.query({ kind: 'placed', inodes: [birth.inode] }, options);
        const members = (files[0]?.members ?? []) as readonly ServerId[];
        return outcomeOf(birth, before, storage.volume, members);
      }),
    );
    this.#count(outcomes);
    return outcomes;
  }

  async #storeGroup(
    { members, places }: Group,
    { volume }: VolumeStorage,
    births: readonly NewFile[],
    refusals: Refusal[],
  ): Promise<void> {
    const { contents: firstContents, clock } = this.#parts;
    const nowNs = clock.wallNs();
    const replicas = places
      .flatMap((place) => births[place] ?? [])
      .map(({ inode, contents, isNamed, modifiedNs: wantedNs }): NewReplica => {
        const modifiedNs = isNamed === true && wantedNs !== null ? BigInt(wantedNs) : nowNs;
        return { file: inode as FileId, operations: creationOperations(contents, modifiedNs) };
      });
    const { objectBytes } = volume;
    const stored = await firstContents.store({ members, objectBytes, replicas, synced: false });
    for (const [index, refusal] of stored.entries()) {
      const place = places[index];
      if (place !== undefined) refusals[place] = refusal;
    }
  }

  /** Asks the client for new numbers if those used have bad members: else it would use such numbers for ten minutes. */
  #markOutdated(outcomes: NewFileOutcome[], groups: readonly Group[], { servers }: VolumeStorage): void {
    for (const { members, places } of groups) {
      if (!this.#parts.isOutdated(members, servers)) continue;
      for (const place of places) {
        const outcome = outcomes[place];
        if (outcome?.kind === 'created') outcomes[place] = { ...outcome, renew: true };
      }
    }
  }

  /** Creates the entries of stored files by one command. @returns null if it is closed or refused: no file exists */
  async #name(
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
    const births = stored.flatMap(({ files }) => files);
    const files = births.map(({ contents, accessedNs, modifiedNs, changedNs, ...birth }) => ({
      ...birth,
      sizeBytes: contents.length,
      ...(accessedNs === null ? {} : { accessedNs }),
      ...(modifiedNs === null ? {} : { modifiedNs }),
      ...(changedNs === null ? {} : { changedNs }),
      contents: CREATED_WITH_CONTENTS,
    }));
    const command: Extract<Command, { kind: 'bear' }> = {
      kind: 'bear',
      ...{ owner, replicas: [...first.members], objectBytes, files },
      ...(elsewhere.length === 0 ? {} : { elsewhere }),
    };
    const owned = cache === undefined ? options : { ...options, cacheOwner: cache };
    let result: CommandResults['forgo' | 'bear'];
    try {
      result = await this.#parts.command(command, nameOf(request), owned);
    } catch (error) {
      // A server that holds the files was removed: no attempt has created directory entries, and the client creates the
      // files in two steps.
      if (isRefused(error)) return null;
      throw error;
    }
    return isBearResult(result) ? result : null;
  }
}

function isFinal(outcome: NewFileOutcome | undefined): boolean {
  return outcome?.kind === 'refused' && FINAL.has(outcome.code);
}

function nameOf({ session, number, since }: NewFilesRequest): NumberedRequest {
  return { session, number, since };
}

function isBearResult(result: CommandResults['forgo' | 'bear']): result is CreateWithContentsResult {
  return 'files' in result;
}

function groupsOf(places: readonly (NumberPlacement | null)[], { volume }: VolumeStorage): Group[] | null {
  const groups = new Map<string, Group>();
  for (const [index, place] of places.entries()) {
    if (place === null || place.replicas !== volume.replicas) return null;
    const key = place.members.join();
    const group = groups.get(key) ?? { members: place.members, places: [] };
    group.places.push(index);
    groups.set(key, group);
  }
  return [...groups.values()];
}
