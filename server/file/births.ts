import type { Logger } from 'pino';
import { assert } from '../../base/assert.ts';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { World } from '../../base/world.ts';
import { Birth, BirthNumbers, firstEpoch, type NumberPlace } from '../../replica/birth.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { viewHasMajority } from '../../replica/view.ts';
import {
  NUMBERS_PER_SET,
  type NumbersRequest,
  numberRuns,
  type ReservedNumbers,
} from '../../wire/birth-numbers.ts';
import type { BirthOutcome, BirthRequest, Birth as NewFile } from '../../wire/births.ts';
import { MalformedError } from '../../wire/bytes.ts';
import type {
  BearResult,
  Command,
  CommandResults,
  FileSettings,
  Query,
  QueryResults,
  ServerInfo,
} from '../../wire/catalog-api.ts';
import { bounded } from '../bounded.ts';
import type { Clock } from '../clock.ts';
import type { RequestName } from '../http/request-names.ts';
import type { Traffic } from '../live/traffic.ts';
import type { Counter } from '../metrics.ts';
import type { ReplicaHost } from '../replica-host.ts';
import type { CallOptions } from '../router.ts';
import type { NewReplica } from '../storage/store.ts';
import type { Transport } from '../transport/transport.ts';
import {
  BIRTH_CALL,
  type BirthCall,
  decodeBirthAnswer,
  decodeBirthCall,
  encodeBirthAnswer,
  encodeBirthCall,
  SPARE_CALL,
} from './birth-call.ts';
import { CREATED_WITH_CONTENTS, filledOutcome, outcomeOf, refused } from './birth-outcome.ts';
import { birthOperations } from './borne-file.ts';
import { StorageSettings, type VolumeStorage } from './storage-settings.ts';

/** Numbers are good for births for so long, in milliseconds; the catalog keeps them for longer. */
const NUMBERS_MS = 10 * 60_000;
/** A majority is waited for so long; whoever wants the files then makes them as others are made. */
const BEAR_MS_MAX = 3_000;
/** Where those who are needed do not answer for so long, all are asked to promise. */
const SPARED_MS = 200;
/** Contents of files that are being borne, all together; more are refused with `busy`. */
const UNDER_WAY_BYTES_MAX = 64 * 1024 * 1024;
const BUSY_RETRY_MS = 100;
/** Replicas of files whose volume is not named with the reservation, as by clients of earlier releases. */
const REPLICAS_UNNAMED = 3;
/** How often servers are chosen before it is given up that this one is among them. */
const CHOICES_MAX = 8;

const NOTHING = new Uint8Array(0);

export interface BirthsParts extends Pick<Transport, 'call' | 'isConnected'> {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  readonly world: World;
  readonly clock: Clock;
  readonly log: Logger;
  readonly host: ReplicaHost;
  readonly traffic: Traffic;
  /** By what became of them: `born`, `refused`, `unborn`. */
  readonly outcomes: Counter;
  /** Which servers hold new files of a volume with so many replicas. */
  choose(replicas: number, servers: readonly ServerInfo[]): readonly ServerId[];
  /** Whether new files would go to better servers: in reach, and with free space. */
  isOutdated(members: readonly ServerId[], servers: readonly ServerInfo[]): boolean;
  query<Q extends Query>(query: Q, options?: CallOptions): Promise<QueryResults[Q['kind']]>;
  command<C extends Command>(
    command: C,
    name?: RequestName,
    options?: CallOptions,
  ): Promise<CommandResults[C['kind']]>;
}

/** Files of one request that go to the same servers, and their places in it. */
interface Group {
  readonly members: readonly ServerId[];
  readonly places: number[];
}

/** Why contents are not where they should be; null where a majority has them. */
type Refusal = ErrorCode | null;

/**
 * Bears files: their contents go to a majority of their replicas before anybody can know of them, in the first epoch and without a
 * lease, and one command of the catalog names all of them. docs/design/mount.md, "Create with contents".
 */
export class Births {
  readonly #parts: BirthsParts;
  readonly #epoch: Epoch;
  readonly #numbers = new BirthNumbers();
  /** Requests under way, by their names: a retry waits for the same. */
  readonly #underWay = new Map<string, Promise<BirthOutcome[]>>();
  #bytesUnderWay = 0;
  readonly #settings: StorageSettings;

  constructor(parts: BirthsParts) {
    this.#parts = parts;
    this.#settings = new StorageSettings(parts);
    this.#epoch = firstEpoch(parts.self, parts.incarnation);
  }

  /**
   * Reserves numbers for the client that has `owner`, by which this process creates files. Their members are fixed here: however a
   * file with such a number is made, and by whichever server, for its first view there is one member set.
   */
  async reserve({ owner, count, volume: name }: NumbersRequest): Promise<ReservedNumbers> {
    const { self, clock, command, query } = this.#parts;
    const untilMs = clock.nowMs() + NUMBERS_MS;
    const { replicas, servers } =
      name === undefined
        ? { replicas: REPLICAS_UNNAMED, ...(await query({ kind: 'servers', counts: false })) }
        : await this.#settings
            .ofVolume(name)
            .then(({ volume, servers }) => ({ servers, replicas: volume.replicas }));
    const sets = Array.from({ length: Math.ceil(count / NUMBERS_PER_SET) }, () =>
      this.#choose(replicas, servers),
    );
    if (sets.some(({ length }) => length === 0))
      throw new ServiceError('no-majority', 'There is no server that could hold new files');
    const members = sets.map((set) => [...set]);
    const { first } = await command({ kind: 'reserve-inodes', owner, count, members });
    for (const run of numberRuns(first, count, sets))
      this.#numbers.reserved({
        ...run,
        owner,
        untilMs,
        replicas,
        members: run.members as readonly ServerId[],
      });
    return { first, count, sets: members, bearer: self, named: true, validMs: NUMBERS_MS };
  }

  /**
   * Bears files, exactly once for a session and number.
   *
   * @returns what became of each, in their order
   * @throws ServiceError where that is not known; a retry tells
   */
  bear(request: BirthRequest, options: CallOptions): Promise<BirthOutcome[]> {
    const name = `${request.session}.${request.number}`;
    const known = this.#underWay.get(name);
    if (known !== undefined) return known;
    const bytes = request.births.reduce((sum, { contents }) => sum + contents.length, 0);
    if (this.#bytesUnderWay > 0 && this.#bytesUnderWay + bytes > UNDER_WAY_BYTES_MAX) {
      const busy = new ServiceError('busy', 'Too many files are being borne', {
        retryAfterMs: BUSY_RETRY_MS,
      });
      return Promise.reject(busy);
    }
    this.#bytesUnderWay += bytes;
    const bearing = this.#bear(request, options).finally(() => {
      this.#bytesUnderWay -= bytes;
      this.#underWay.delete(name);
    });
    this.#underWay.set(name, bearing);
    return bearing;
  }

  /** Stores replicas of files that another server bears. */
  async serve(from: ServerId, payload: Uint8Array): Promise<Uint8Array> {
    const { births, ...where } = decodeBirthCall(payload);
    if (where.epoch.server !== from)
      throw new MalformedError(`${from} bears files for ${where.epoch.server}`);
    const outcomes = await this.#parts.host.bear(births, where);
    return encodeBirthAnswer(outcomes.map(codeOf));
  }

  async #bear(request: BirthRequest, options: CallOptions): Promise<BirthOutcome[]> {
    const { births, owner } = request;
    const nowMs = this.#parts.clock.nowMs();
    // All of them are used up, also where one is not to be had.
    const places = births.map(({ inode }) => this.#numbers.take(owner, inode, nowMs));
    const storage = places.every((place) => place !== null)
      ? await this.#settings.ofDirectory(births[0]?.parent)
      : null;
    const groups = storage === null ? null : groupsOf(places, storage);
    if (storage === null || groups === null) return this.#forgo(request, options);
    const refusals: Refusal[] = births.map(() => 'no-majority');
    const isNamed = (place: number): boolean => births[place]?.isNamed === true;
    const settings = await this.#settings.ofFiles(
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
    const outcomes = births.map((birth, place): BirthOutcome => {
      const refusal = refusals[place] ?? null;
      if (refusal === 'no-space') return refused(refusal, `There is no room for "${birth.name}"`);
      if (refusal !== null) return { kind: 'unborn' };
      if (birth.isNamed === true) return filledOutcome(birth, storage.volume, places[place]?.members ?? []);
      if (result === null) return { kind: 'unborn' };
      return outcomeOf(birth, result, storage.volume, places[place]?.members ?? []);
    });
    this.#markOutdated(outcomes, groups, storage);
    for (const [place, { inode }] of births.entries())
      if (outcomes[place]?.kind === 'born') this.#parts.host.named(inode as FileId);
    this.#count(outcomes);
    return outcomes;
  }

  /**
   * Whether the contents of a file that has its name are left to its primary: where the catalog has to be asked before the file grows,
   * where a majority does not suffice, where the file is not stored as this request stores its files, and where another client has
   * opened it, as far as this server knows.
   *
   * @param settings undefined where the file is gone, and where the catalog's primary is of an earlier release
   */
  #isLeftAlone({ inode }: NewFile, { volume }: VolumeStorage, settings: FileSettings | undefined): boolean {
    if (settings === undefined || settings.limited || settings.policy !== 'quorum') return true;
    if (settings.volume !== volume.name || settings.objectBytes !== volume.objectBytes) return true;
    return this.#parts.host.has(inode as FileId);
  }

  /** The catalog knows size and time of files that had their names before: nothing of them is live any more, unless it was marked since. */
  async #settle(births: readonly NewFile[]): Promise<void> {
    if (births.length === 0) return;
    const { command, clock } = this.#parts;
    const mark = { epoch: this.#epoch.counter, turn: 0 };
    const files = births.map(({ inode, contents, modifiedNs }) => ({
      ...{ inode, sizeBytes: contents.length, modifiedNs: modifiedNs ?? clock.wallNs().toString() },
      ...{ contents: CREATED_WITH_CONTENTS, mark },
    }));
    await command({ kind: 'settle', files });
  }

  #count(outcomes: readonly BirthOutcome[]): void {
    const { traffic } = this.#parts;
    for (const kind of ['born', 'refused', 'unborn'] as const) {
      const count = outcomes.filter((outcome) => outcome.kind === kind).length;
      if (count > 0) this.#parts.outcomes.add(count, { outcome: kind });
    }
    for (const { kind } of outcomes) if (kind === 'born') traffic.wrote();
  }

  /**
   * What was to be borne by this request will not be, or was before: by another server, or by an attempt of which nobody heard the end.
   * From here on no attempt has an effect.
   */
  async #forgo(request: BirthRequest, options: CallOptions): Promise<BirthOutcome[]> {
    const { births } = request;
    const answer: CommandResults['forgo' | 'bear'] = await this.#parts.command(
      { kind: 'forgo' },
      nameOf(request),
      options,
    );
    const before = isBearResult(answer) ? answer : null;
    const storage = before === null ? null : await this.#settings.ofDirectory(births[0]?.parent);
    const outcomes = await Promise.all(
      births.map(async (birth): Promise<BirthOutcome> => {
        if (before === null || storage === null) return { kind: 'unborn' };
        const { files } = await this.#parts.query({ kind: 'placed', inodes: [birth.inode] }, options);
        const members = (files[0]?.members ?? []) as readonly ServerId[];
        return outcomeOf(birth, before, storage.volume, members);
      }),
    );
    this.#count(outcomes);
    return outcomes;
  }

  /** Servers for new files, this one among them if that can be. */
  #choose(replicas: number, servers: readonly ServerInfo[]): readonly ServerId[] {
    const { self, choose } = this.#parts;
    let members = choose(replicas, servers);
    for (let choices = 1; choices < CHOICES_MAX && !members.includes(self); choices++)
      members = choose(replicas, servers);
    return members;
  }

  /** Stores the files of one member set, and notes why some are not; nothing where too few of the members are in reach. */
  async #storeGroup(
    { members, places }: Group,
    { volume }: VolumeStorage,
    births: readonly NewFile[],
    refusals: Refusal[],
  ): Promise<void> {
    const { isConnected, clock } = this.#parts;
    const view = { number: 1, members };
    if (places.length === 0 || !viewHasMajority(view, isConnected)) return;
    const nowNs = clock.wallNs();
    const replicas = places
      .flatMap((place) => births[place] ?? [])
      .map(({ inode, contents, isNamed, modifiedNs: wantedNs }): NewReplica => {
        // The catalog takes this time as that of the contents.
        const modifiedNs = isNamed === true && wantedNs !== null ? BigInt(wantedNs) : nowNs;
        return { file: inode as FileId, operations: birthOperations(contents, modifiedNs) };
      });
    const call = { epoch: this.#epoch, view, objectBytes: volume.objectBytes, births: replicas };
    for (const [index, refusal] of (await this.#store(call)).entries()) {
      const place = places[index];
      if (place !== undefined) refusals[place] = refusal;
    }
  }

  /** The client then reserves other numbers: a server that is away would be a member of all its files for ten minutes. */
  #markOutdated(outcomes: BirthOutcome[], groups: readonly Group[], { servers }: VolumeStorage): void {
    for (const { members, places } of groups) {
      if (!this.#parts.isOutdated(members, servers)) continue;
      for (const place of places) {
        const outcome = outcomes[place];
        if (outcome?.kind === 'born') outcomes[place] = { ...outcome, renew: true };
      }
    }
  }

  /** @returns for each birth, null as soon as a majority of its replicas has it, or why it has not */
  async #store(call: BirthCall): Promise<Refusal[]> {
    const { self, host } = this.#parts;
    const { epoch, view, births, objectBytes } = call;
    const birth = new Birth(view, births.length);
    const refusals: Refusal[] = births.map(() => 'no-majority');
    const { promise: borne, resolve: allBorne } = Promise.withResolvers<void>();
    const heard = (server: ServerId, answers: readonly Refusal[]): void => {
      birth.holds(
        server,
        answers.flatMap((refusal, place) => (refusal === null ? [place] : [])),
      );
      for (const [place, refusal] of answers.entries()) if (refusal !== null) refusals[place] = refusal;
      if (birth.areAllBorne) allBorne();
    };
    const others = view.members.filter((member) => member !== self);
    const spare = this.#spare(view, others);
    const payload = others.length === 0 ? NOTHING : encodeBirthCall(call);
    const ask = async (server: ServerId): Promise<void> => {
      const answer = await this.#parts.call(server, BIRTH_CALL, payload, BEAR_MS_MAX, false);
      heard(server, decodeBirthAnswer(answer, births.length));
    };
    for (const server of spare)
      void this.#noted(this.#parts.call(server, SPARE_CALL, payload, BEAR_MS_MAX, true));
    const asked = others.filter((server) => !spare.has(server)).map((server) => this.#noted(ask(server)));
    if (view.members.includes(self)) {
      const store = async (): Promise<void> => {
        // In the next turn: what others wait for leaves at the end of this one.
        await this.#parts.world.nextTurn();
        const outcomes = await host.bear(births, { epoch, view, objectBytes });
        heard(self, outcomes.map(codeOf));
      };
      asked.push(this.#noted(store()));
    }
    await firstOf(this.#parts.world, borne, asked, spare.size > 0 ? SPARED_MS : BEAR_MS_MAX);
    if (!birth.areAllBorne && spare.size > 0) {
      asked.push(...[...spare].map((server) => this.#noted(ask(server))));
      await firstOf(this.#parts.world, borne, asked, BEAR_MS_MAX);
    }
    return refusals.map((refusal, place) => (birth.isBorne(place) ? null : refusal));
  }

  /** A server that does not take files is none of those who have them. */
  #noted(work: Promise<unknown>): Promise<unknown> {
    return work.catch((error: unknown) => {
      if (!(error instanceof ServiceError || error instanceof MalformedError)) throw error;
      this.#parts.log.debug({ err: error }, 'a server did not take files that are borne');
    });
  }

  /**
   * As of other operations: those who are not needed for a majority hear of it a moment later, as long as all are in reach.
   */
  #spare(view: View, others: readonly ServerId[]): ReadonlySet<ServerId> {
    const { self, isConnected } = this.#parts;
    if (!view.members.includes(self) || !others.every(isConnected)) return new Set();
    const inTurn = view.members.toSorted();
    const from = inTurn.indexOf(self);
    return new Set([...inTurn.slice(from + 1), ...inTurn.slice(0, from)].slice(majority(inTurn.length) - 1));
  }

  /** @returns null where the request was closed elsewhere meanwhile: nothing of it will be */
  async #name(
    request: BirthRequest,
    stored: readonly { readonly members: readonly ServerId[]; readonly files: readonly NewFile[] }[],
    { volume: { objectBytes } }: VolumeStorage,
    options: CallOptions,
  ): Promise<BearResult | null> {
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
    const result: CommandResults['forgo' | 'bear'] = await this.#parts.command(
      command,
      nameOf(request),
      owned,
    );
    return isBearResult(result) ? result : null;
  }
}

function nameOf({ session, number, since }: BirthRequest): RequestName {
  return { session, number, since };
}

function isBearResult(result: CommandResults['forgo' | 'bear']): result is BearResult {
  return 'files' in result;
}

/** Resolves with `enough`, when all have ended, or after a while. @throws the error of a work that fails, where that is ours */
async function firstOf(
  world: World,
  enough: Promise<void>,
  works: readonly Promise<unknown>[],
  limitMs: number,
): Promise<void> {
  const tooLate = new Error('too late');
  await bounded(world, Promise.race([enough, Promise.all(works)]), limitMs, () => tooLate).catch(
    (error: unknown) => {
      if (error !== tooLate) throw error;
    },
  );
}

function codeOf(error: Error | null): Refusal {
  if (error === null) return null;
  return error instanceof ServiceError ? error.code : 'storage';
}

/** @returns the files by their members; null where a number was reserved for another number of replicas than the volume has */
function groupsOf(places: readonly (NumberPlace | null)[], { volume }: VolumeStorage): Group[] | null {
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
