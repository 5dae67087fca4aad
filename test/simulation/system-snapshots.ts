/**
 * Snapshots of the file in a system simulation: the catalog's real tables behind the real barrier, as one process that everybody reaches late,
 * and that forgets what was not synced when all machines lose power; and what has to hold of every snapshot.
 */
import Database from 'better-sqlite3';
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { majority } from '../../base/quorum.ts';
import { executeRequests, inodesBegin } from '../../catalog/batch.ts';
import { runQuery } from '../../catalog/queries.ts';
import { type CatalogDatabase, ensureSchema } from '../../catalog/schema.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import type { Operation } from '../../replica/operation.ts';
import { SnapshotCut, StillLive } from '../../server/catalog/snapshot-cut.ts';
import type { Command, CommandResults, ContentVersion, Query } from '../../wire/catalog-api.ts';
import { decodeFileOperation } from '../../wire/file-operation.ts';
import { systemWorld } from '../../world/system-world.ts';
import { type Preserved, WHOLE_FILE } from './system-file.ts';
import { FILE } from './system-messages.ts';
import { Siblings } from './system-siblings.ts';
import { textApply } from './system-subject.ts';
import type { SystemWorld } from './system-world.ts';
import { Violation } from './violation.ts';

const VOLUME = 'v';
const FILE_NAME = 'file';
const FILE_PATH = `/${FILE_NAME}`;
/** By which numbers are reserved. */
const OWNER = 1;
const OBJECT_BYTES = 4096;
/** Of what is borne: the first operation of the first epoch. */
const BORNE_VERSION = { epoch: 1, seq: 1 };
const CUT_MS = 2_000;
/** A server that was asked to settle, and says nothing for so long, is asked again. */
const SETTLE_ANSWER_MS = 200;
const CALL_ANSWER_MS = 100;

/** How often something happened that runs with snapshots are for. */
export interface SnapshotCounts {
  snapshots: number;
  /** Not made: the file could not be settled in time, or the catalog's primary ended. */
  snapshotsFailed: number;
  snapshotsRemoved: number;
  preserved: number;
  /** The contents were others by then, or did not come to be at a majority. */
  notPreserved: number;
  snapshotReads: number;
  /** Of these, from what is preserved, and from there at a server that had to fetch it. */
  preservedReads: number;
  preservedFetches: number;
  /** The file had moved on while somebody read. */
  movedOn: number;
  /** Nobody has the contents any more, and that is allowed. */
  snapshotsLost: number;
  /** Times that all machines lost power when there were snapshots. */
  snapshotPowerLosses: number;
  /** Snapshots without the file, which was borne after them, and such that show it as it was borne. */
  snapshotsBefore: number;
  snapshotsOfBorne: number;
}

/** What a snapshot has to show. */
export interface Shown {
  readonly name: string;
  readonly serial: number;
  /** Of the last change that it has; 0 where it has none. */
  readonly seq: number;
  /** The file had no name. */
  readonly isAbsent: boolean;
  /** Null where it is absent, or what the catalog knew of it had been taken back already. */
  readonly text: string | null;
  /** Part of the history that it was made in. */
  readonly segment: number;
  ackedMs: number;
  /** Whoever reads it is owed what it shows: a loss of power may have taken what was never flushed. */
  isOwed: boolean;
}

type Place = {
  readonly source: FileId;
  readonly asOf: ContentVersion;
  readonly members: readonly ServerId[];
};

interface Done {
  readonly command: Command | 'begin';
  readonly atNs: bigint;
}

export class SnapshotCatalog {
  readonly counts: SnapshotCounts = {
    snapshots: 0,
    snapshotsFailed: 0,
    snapshotsRemoved: 0,
    preserved: 0,
    notPreserved: 0,
    snapshotReads: 0,
    preservedReads: 0,
    preservedFetches: 0,
    movedOn: 0,
    snapshotsLost: 0,
    snapshotPowerLosses: 0,
    snapshotsBefore: 0,
    snapshotsOfBorne: 0,
  };
  /** Those that somebody was told of, and did not remove. */
  readonly shown = new Map<string, Shown>();
  readonly siblings: Siblings;
  readonly #system: SystemWorld;
  readonly #dice: Prng;
  /** Directed runs: how long anything takes from or to the catalog. Absent: chance. */
  delayMs: (() => number) | null = null;
  #db: CatalogDatabase;
  #cut: SnapshotCut;
  #done: Done[] = [];
  #syncedCount = 0;
  #epoch = 0;
  #held: (() => void)[] = [];
  /** Changes that were acknowledged since everything that was not synced was lost. */
  #ackedSeq = 0;
  /** Clients were told that all up to here survives. */
  #flushedSeq = 0;
  /** Since when somebody wants the file to have its name. */
  #wantedMs = 0;
  /** A client was told that it has. */
  #isNamed = false;
  #names = 0;
  /** What replicas have preserved, by its number: the same everywhere. */
  readonly #texts = new Map<FileId, string>();

  constructor(system: SystemWorld) {
    this.#system = system;
    this.#dice = new Prng(system.options.seed * 173 + 11);
    this.#db = emptyCatalog();
    this.#cut = this.#newCut();
    this.#begin();
    this.#run({ kind: 'volume-create', name: VOLUME, replicas: 1, objectBytes: OBJECT_BYTES });
    // The number is the simulation's; those that come before it are others'.
    if (system.options.isBorne) {
      let first = 0;
      const members = [[...system.firstView.members]];
      const reserve = { kind: 'reserve-inodes', owner: OWNER, count: 1, members } as const;
      while (first !== FILE) first = this.#run(reserve).first;
      this.#wantedMs = Infinity;
    } else {
      for (let inode = 0, number = 0; inode !== FILE; number++) {
        const path = number === 0 ? FILE_PATH : `/${number}`;
        inode = this.#made(path);
        if (inode !== FILE) this.#run({ kind: 'unlink', place: { volume: VOLUME, path } });
      }
      const [name] = this.#query({ kind: 'paths', inodes: [FILE] }).paths;
      assert(name !== undefined, 'The file has a name');
      this.#isNamed = true;
    }
    this.#syncedCount = this.#done.length;
    this.siblings = new Siblings(
      system,
      {
        ask: (server, command, done) => this.ask(server, command, done),
        askQuery: (server, query, done) => this.askQuery(server, query, done),
        now: (query) => this.#query(query),
      },
      VOLUME,
    );
  }

  #made(path: string): number {
    const place = { volume: VOLUME, path };
    const made = this.#run({ kind: 'create-file', place, mode: 0, uid: 0, gid: 0, exclusive: true });
    return made.attributes.inode;
  }

  #newCut(): SnapshotCut {
    return new SnapshotCut({
      world: systemWorld,
      operationTimeoutMs: CUT_MS,
      nowMs: () => this.#system.world.nowMs,
      query: (query) => this.#query(query as never),
      settle: () => Promise.reject(new Error('The simulation settles by itself')),
      released: () => {
        for (const go of this.#held.splice(0)) go();
      },
    });
  }

  // The process --------------------------------------------------------------------------------------

  #begin(): void {
    this.#epoch++;
    this.#do({ command: 'begin', atNs: 0n });
  }

  #run<C extends Command>(command: C): CommandResults[C['kind']] {
    return this.#do({ command, atNs: this.#nowNs }) as never;
  }

  get #nowNs(): bigint {
    return BigInt(Math.round(this.#system.world.elapsedMs * 1e6)) + 1n;
  }

  #do(done: Done): unknown {
    const result = execute(this.#db, done, this.#done.length + 1, this.#epoch);
    this.#done.push(done);
    return result instanceof ServiceError ? thrown(result) : result;
  }

  #query<Q extends Query>(query: Q): ReturnType<typeof runQuery<Q['kind']>> {
    return runQuery<Q['kind']>(this.#db, query as never);
  }

  get #delay(): number {
    if (this.delayMs !== null) return this.delayMs();
    return this.#dice.chance(0.03) ? this.#dice.next() * 400 : 0.5 + this.#dice.next() * 4;
  }

  /** A server asks; where its process ends before, nobody hears the answer. @param done given the result, or a ServiceError */
  ask(server: ServerId, command: Command, done: (answer: unknown) => void): void {
    const { world, options } = this.#system;
    const told = (answer: unknown): void => {
      if (options.verbose) world.note(server, `was told by the catalog: ${describe(command, answer)}`);
      done(answer);
    };
    this.#call(server, (reply) => this.#execute(command, reply), told);
  }

  askQuery(server: ServerId, query: Query, done: (answer: unknown) => void): void {
    this.#call(server, (reply) => reply(attempted(() => this.#query(query))), done);
  }

  flush(server: ServerId, done: () => void): void {
    this.#call(
      server,
      (reply) => {
        this.#sync();
        reply(null);
      },
      () => done(),
    );
  }

  #call(
    server: ServerId,
    work: (reply: (answer: unknown) => void) => void,
    done: (answer: unknown) => void,
  ): void {
    const { world } = this.#system;
    const life = world.incarnation(server);
    const reply = (answer: unknown): void => {
      world.at(world.nowMs + this.#delay, () => {
        if (world.isUp(server) && world.incarnation(server) === life) world.call(server, () => done(answer));
      });
    };
    world.at(world.nowMs + this.#delay, () => work(reply));
  }

  #execute(command: Command, reply: (answer: unknown) => void): void {
    if (this.#cut.holds(command)) {
      this.#held.push(() => this.#execute(command, reply));
      return;
    }
    this.#assertKept(command);
    reply(attempted(() => this.#run(command)));
  }

  #sync(): void {
    this.#syncedCount = this.#done.length;
  }

  /** Another server is the catalog's primary: what was only remembered is forgotten. */
  failOver(): void {
    const held = this.#held.splice(0);
    this.#cut = this.#newCut();
    this.#begin();
    for (const go of held) go();
  }

  /** All machines have lost power. @param everything nothing that was not synced is left */
  losePower(everything: boolean): void {
    if (this.shown.size > 0) this.counts.snapshotPowerLosses++;
    const kept = everything ? this.#syncedCount : this.#dice.integer(this.#syncedCount, this.#done.length);
    const left = this.#done.slice(0, kept);
    this.#db = emptyCatalog();
    this.#done = [];
    let epoch = 0;
    for (const done of left) {
      if (done.command === 'begin') epoch++;
      execute(this.#db, done, this.#done.length + 1, epoch);
      this.#done.push(done);
    }
    this.#ackedSeq = 0;
    this.#isNamed &&= !this.#isMissing;
    this.siblings.catalogLost();
    this.failOver();
    this.#sync();
    this.noteLoss();
  }

  /** More than a minority has lost power: what was not flushed by then is not owed any more, unless it was preserved. */
  noteLoss(): void {
    const { observers } = this.#system;
    for (const shown of this.shown.values()) {
      const place = this.#place(shown.serial);
      if (place !== null && place.source !== FILE) continue;
      if (shown.segment !== observers.segment || shown.seq > observers.flushedSeq) shown.isOwed = false;
    }
  }

  // The name of what is borne ------------------------------------------------------------------------

  /** A majority has what a server bears, which asks for the name. @param named the client is told so */
  name(server: ServerId, sizeBytes: number, members: readonly ServerId[], named: () => void): void {
    const [root] = this.#query({ kind: 'volumes' }).volumes;
    assert(root !== undefined, 'There is the volume');
    const file = { parent: root.root, name: FILE_NAME, inode: FILE, mode: 0, uid: 0, gid: 0, sizeBytes };
    const born = { ...file, contents: BORNE_VERSION };
    const command: Command = {
      ...{ kind: 'bear', owner: OWNER, replicas: [...members], objectBytes: OBJECT_BYTES, files: [born] },
    };
    this.#wantedMs = Math.min(this.#wantedMs, this.#system.world.nowMs);
    this.ask(server, command, (answer) => {
      if (answer instanceof ServiceError) return;
      const refusal = (answer as CommandResults['bear']).files[FILE];
      if (refusal !== null && refusal !== undefined && 'code' in refusal) return;
      this.#told();
      named();
    });
  }

  /** Somebody makes the file in the ordinary way, by the number that was reserved for it, if it is not there. */
  make(): void {
    if (!this.#isMissing) return;
    const { world } = this.#system;
    const place = { volume: VOLUME, path: FILE_PATH };
    const reserved = { inode: FILE, owner: OWNER };
    const file = { mode: 0, uid: 0, gid: 0, exclusive: true, reserved };
    this.#wantedMs = Math.min(this.#wantedMs, world.nowMs);
    this.#execute({ kind: 'create-file', place, ...file }, (answer) => {
      if (!(answer instanceof ServiceError)) world.at(world.nowMs + this.#delay, () => this.#told());
    });
  }

  get #isMissing(): boolean {
    return attempted(() => this.#query({ kind: 'attributes', inode: FILE })) instanceof ServiceError;
  }

  /** A client was told that the file is there. */
  #told(): void {
    if (this.#isMissing) return;
    this.#isNamed = true;
    for (const { name, ackedMs, isAbsent } of this.shown.values())
      if (ackedMs < this.#wantedMs && !isAbsent)
        throw new Violation(`Snapshot ${name} shows a file that was made after it was acknowledged`);
  }

  // Snapshots ----------------------------------------------------------------------------------------

  /** @param done told its name when it is there for good; null where it is not, or nobody knows */
  create(done: (name: string | null) => void): void {
    const { world, observers } = this.#system;
    const name = `s${++this.#names}`;
    const command = { kind: 'snapshot-create', volume: VOLUME, name } as const;
    const owedSeq = Math.max(this.#ackedSeq, this.#flushedSeq);
    const { segment } = observers;
    const cut = this.#cut;
    const owesFile = this.#isNamed;
    const owed = this.siblings.owed();
    const untilMs = world.nowMs + CUT_MS;
    cut.raise(VOLUME);
    const end = (answer: string | null): void => {
      if (answer === null) this.counts.snapshotsFailed++;
      done(answer);
    };
    const round = (): void => {
      if (cut !== this.#cut) {
        end(null);
        return;
      }
      try {
        cut.assertStill(command);
      } catch (error) {
        if (!(error instanceof StillLive)) throw error;
        if (world.nowMs < untilMs) {
          this.#settle(round);
          return;
        }
        cut.lower(VOLUME);
        end(null);
        return;
      }
      const { snapshot } = this.#run(command);
      const shown = this.#expect(name, snapshot.serial, segment === observers.segment ? owedSeq : 0);
      if (shown.isAbsent && owesFile && this.#isNamed)
        throw new Violation(`Snapshot ${name} has not the file, which was there before it began`);
      const siblings = this.siblings.cut(snapshot.serial, owed);
      const [first] = world.ids;
      if (first !== undefined) world.note(first, `sees snapshot ${name} made, of ${shown.seq}`);
      cut.lower(VOLUME);
      world.at(world.nowMs + this.#delay, () => {
        if (cut !== this.#cut) {
          end(null);
          return;
        }
        this.#sync();
        shown.ackedMs = world.nowMs;
        this.counts.snapshots++;
        if (shown.isAbsent && this.#system.options.isBorne) this.counts.snapshotsBefore++;
        if (shown.seq === BORNE_VERSION.seq && this.#system.options.isBorne) this.counts.snapshotsOfBorne++;
        this.shown.set(name, shown);
        this.siblings.acknowledged(name, siblings);
        end(name);
      });
    };
    round();
  }

  #settle(then: () => void): void {
    const { world, observers } = this.#system;
    let isOver = false;
    const over = (): void => {
      if (isOver) return;
      isOver = true;
      world.at(world.nowMs + this.#delay, then);
    };
    const server = this.#system.primary() ?? this.#dice.pick(observers.view.members);
    world.at(world.nowMs + this.#delay, () => {
      if (world.isUp(server)) world.call(server, () => this.#system.process(server).settle(over));
    });
    world.at(world.nowMs + SETTLE_ANSWER_MS, over);
  }

  /** What the snapshot has to show from now on, by the order of the file's own sequence. */
  #expect(name: string, serial: number, owedSeq: number): Shown {
    const { observers } = this.#system;
    const { segment } = observers;
    const shown = { name, serial, segment, ackedMs: Infinity };
    const place = this.#place(serial);
    if (place === null) return { ...shown, seq: Infinity, isAbsent: true, text: null, isOwed: false };
    const { epoch, seq } = place.asOf;
    const last = observers.sequence[seq - 1];
    const isThere = seq === 0 || last?.epoch.counter === epoch;
    if (isThere) {
      const missing = observers.sequence
        .slice(seq, owedSeq)
        .find(({ operation }) => operation.request !== null);
      if (missing !== undefined)
        throw new Violation(
          `Snapshot ${name} ends at ${seq}, before ${missing.request}, which was owed to it`,
        );
    } else if (observers.neverForgot) throw new Violation(`Snapshot ${name} is of a version that nobody has`);
    const text = isThere ? textOf(observers.sequence.slice(0, seq)) : null;
    // While nobody knows what a loss of power has left, the catalog may name what is gone.
    const isOwed = isThere && (!observers.mayForget || seq <= observers.flushedSeq);
    return { ...shown, seq, isAbsent: false, text, isOwed };
  }

  remove(name: string): void {
    this.shown.delete(name);
    this.siblings.removed(name);
    this.counts.snapshotsRemoved++;
    this.#execute({ kind: 'snapshot-remove', volume: VOLUME, name }, () => undefined);
  }

  /** As the catalog's primary does it now and then. */
  sweep(): void {
    this.#execute({ kind: 'sweep', countMax: 2 }, () => undefined);
    // The file itself is written on where it has lost its name.
    const beforeNs = this.#isNamed ? this.#nowNs : 1n;
    this.#execute({ kind: 'collect', beforeNs: String(beforeNs), countMax: 10 }, () => undefined);
  }

  unlink(): void {
    const [named] = this.#query({ kind: 'paths', inodes: [FILE] }).paths;
    if (named === undefined) return;
    this.#isNamed = false;
    this.#execute({ kind: 'unlink', place: { volume: VOLUME, path: named.path } }, () => undefined);
  }

  /** Removes what the catalog does not know any more of what the server has preserved. */
  collectAt(server: ServerId): void {
    const inodes = [...this.#system.preservedAt(server).keys()];
    if (inodes.length === 0) return;
    this.askQuery(server, { kind: 'placed', inodes }, (answer) => {
      if (answer instanceof ServiceError) return;
      const { files } = answer as { files: readonly { inode: number }[] };
      const placed = new Set(files.map(({ inode }) => inode));
      for (const inode of inodes) if (!placed.has(inode)) this.#system.preservedAt(server).delete(inode);
    });
  }

  /** Where the catalog says that the contents are which the snapshot shows of the file; null where it shows none. */
  #place(serial: number): Place | null {
    const answer = attempted(() => this.#query({ kind: 'attributes', inode: FILE, snapshot: serial }));
    if (answer instanceof ServiceError) return null;
    const { attributes } = answer as { attributes: import('../../wire/catalog-api.ts').Attributes };
    const source = (attributes.source ?? FILE) as FileId;
    const placed = source === FILE ? [] : this.#query({ kind: 'placed', inodes: [source] }).files;
    return { source, asOf: attributes.contents, members: (placed[0]?.members ?? []) as ServerId[] };
  }

  // What has to hold -----------------------------------------------------------------------------------

  /** Who tells the catalog that contents are preserved has them at a majority, come what may. */
  #assertKept(command: Command): void {
    if (command.kind !== 'open-for-write' || command.preserved === undefined) return;
    const { preserved } = command;
    if (preserved === 'lost' || preserved === 'again') {
      this.counts.notPreserved++;
      return;
    }
    this.counts.preserved++;
    const as = preserved.inode as FileId;
    const { members } = preserved.view;
    const holders = (members as ServerId[]).filter((server) => this.#system.preservesForGood(server, as));
    if (holders.length < majority(members.length))
      throw new Violation(
        `What file ${as} preserves is told to be kept, and is only at ${holders.join() || 'nobody'}`,
      );
  }

  /** A client was told that all changes up to `seq` survive a loss of power. */
  flushed(seq: number): void {
    this.#flushedSeq = Math.max(this.#flushedSeq, seq);
  }

  /** A replica has preserved something. */
  stored(server: ServerId, as: FileId, text: string): void {
    const before = this.#texts.get(as);
    this.#texts.set(as, text);
    if (before !== undefined && before !== text)
      throw new Violation(`${server} preserves as file ${as} something else than another replica`);
  }

  /** A client was told that its change is done. */
  acknowledged(seq: number, callMs: number, segment: number): void {
    if (segment === this.#system.observers.segment) this.#ackedSeq = Math.max(this.#ackedSeq, seq);
    for (const shown of this.shown.values()) {
      if (shown.segment !== segment || shown.ackedMs > callMs || shown.seq < seq || shown.text === null)
        continue;
      throw new Violation(`Snapshot ${shown.name} has a change that began after it was acknowledged`);
    }
  }

  // Reading ------------------------------------------------------------------------------------------

  /** Reads it at a server, as `ShownFiles` does. @param done told whether there was an answer */
  read(name: string, server: ServerId, known: Map<string, Place>, done: (answered: boolean) => void): void {
    const shown = this.shown.get(name);
    const { world } = this.#system;
    if (shown === undefined) {
      done(true);
      return;
    }
    const life = world.isUp(server) ? world.incarnation(server) : null;
    let isOver = false;
    const over = (answered: boolean): void => {
      if (isOver) return;
      isOver = true;
      done(answered);
    };
    world.at(world.nowMs + 1_500, () => over(false));
    if (life === null) return;
    const attempt = (number: number): void => {
      if (isOver) return;
      if (number > 3) {
        this.#looked(name, null);
        over(true);
        return;
      }
      const use = (place: Place): void => {
        known.set(name, place);
        this.#readPlace(server, place, (answer) => {
          if (isOver) return;
          if (answer === 'moved-on' || answer === 'not-found') {
            this.counts.movedOn++;
            known.delete(name);
            attempt(number + 1);
          } else if (answer === null) over(false);
          else {
            this.#looked(name, answer);
            over(true);
          }
        });
      };
      const place = known.get(name);
      if (place !== undefined) {
        use(place);
        return;
      }
      this.#call(
        server,
        (reply) => reply(this.#place(shown.serial)),
        (answer) => {
          if (answer !== null && shown.isAbsent)
            throw new Violation(`${name} shows the file, which was not there`);
          if (answer !== null) use(answer as Place);
          else {
            if (shown.text !== null && this.shown.has(name))
              throw new Violation(`${name} does not show the file`);
            over(true);
          }
        },
      );
    };
    attempt(1);
  }

  /** @param done given the text; null where the server cannot answer now */
  #readPlace(
    server: ServerId,
    { source, asOf, members }: Place,
    done: (answer: string | 'moved-on' | 'not-found' | null) => void,
  ): void {
    const { world } = this.#system;
    if (!world.isUp(server)) {
      done(null);
      return;
    }
    if (source === FILE) {
      const { members } = this.#system.observers.view;
      const at = members.includes(server) ? server : this.#dice.pick(members);
      if (world.isUp(at)) world.call(at, () => this.#system.process(at).reads.asOf(asOf, done));
      else done(null);
      return;
    }
    this.counts.preservedReads++;
    const here = this.#system.preservedAt(server).get(source);
    if (here !== undefined) {
      const { versionEpoch, versionSeq } = here.state.attributes;
      done(versionEpoch === asOf.epoch && versionSeq === asOf.seq ? this.#shownBy(server, here) : 'moved-on');
      return;
    }
    // As a replica that begins empty: it finds the contents at any majority.
    const answering = members.filter(
      (member) =>
        member === server || (world.isUp(member) && !world.isPaused(member) && this.#hears(server, member)),
    );
    if (members.length === 0 || answering.length < majority(members.length)) {
      done(members.length === 0 ? 'not-found' : null);
      return;
    }
    const from = answering.find((member) => this.#system.preservedAt(member).has(source));
    if (from === undefined) {
      // The catalog may have collected it since it was asked.
      const isKnown = this.#query({ kind: 'placed', inodes: [source] }).files.length > 0;
      if (isKnown)
        throw new Violation(`A majority has not what file ${source} preserves: ${answering.join()}`);
      done('not-found');
      return;
    }
    this.counts.preservedFetches++;
    const there = this.#system.preservedAt(from).get(source);
    done(there === undefined ? null : this.#shownBy(from, there));
  }

  /**
   * As the servers' stores do it: bytes that do not match their checksum are shown to nobody; others in reach are asked for them.
   *
   * @returns null where one of them is whole nowhere in reach
   */
  #shownBy(server: ServerId, { as, contents }: Preserved): string | null {
    const { world, troubles } = this.#system;
    for (const index of contents.indices) {
      const entry = contents.entry(index);
      if (entry === null || !contents.isDamaged(index)) continue;
      const bytes = world.ids
        .filter((other) => other !== server && world.isUp(other) && this.#hears(server, other))
        .map((other) => this.#system.preservedAt(other).get(as)?.contents.soundBytes(entry) ?? null)
        .find((found) => found !== null);
      if (bytes === undefined) return null;
      contents.repair(entry, bytes);
      troubles.rot.mendedPreserved++;
    }
    return contents.look(WHOLE_FILE);
  }

  #hears(a: ServerId, b: ServerId): boolean {
    const { world } = this.#system;
    return !world.isCut(a, b) && !world.isCut(b, a);
  }

  /** Whether another server has what is preserved; asked over the network. */
  holds(server: ServerId, member: ServerId, as: FileId, done: (isSo: boolean) => void): void {
    const { world } = this.#system;
    const life = world.incarnation(server);
    const reply = (isSo: boolean): void => {
      if (world.isUp(server) && world.incarnation(server) === life) world.call(server, () => done(isSo));
    };
    if (!this.#system.reaches(server, member)) world.at(world.nowMs + CALL_ANSWER_MS, () => reply(false));
    else
      world.at(world.nowMs + 1, () => {
        const isSo = world.isUp(member) && this.#system.preservedAt(member).has(as);
        world.at(world.nowMs + 1, () => reply(isSo));
      });
  }

  /** @param text null where the reader was told that the contents are gone */
  #looked(name: string, text: string | null): void {
    const shown = this.shown.get(name);
    if (shown === undefined) return;
    this.counts.snapshotReads++;
    if (text === null) {
      this.counts.snapshotsLost++;
      if (shown.isOwed) throw new Violation(`Snapshot ${name} has lost what it shows`);
      return;
    }
    if (shown.text !== null && text !== shown.text)
      throw new Violation(
        `Snapshot ${name} shows ${JSON.stringify(text)} instead of ${JSON.stringify(shown.text)}`,
      );
  }
}

function emptyCatalog(): CatalogDatabase {
  const db = new Database(':memory:');
  ensureSchema(db);
  return db;
}

function execute(db: CatalogDatabase, { command, atNs }: Done, number: number, epoch: number): unknown {
  db.exec('BEGIN');
  try {
    if (command === 'begin') {
      inodesBegin(db, epoch);
      return null;
    }
    const { outcomes } = executeRequests(db, number, [{ session: 1, number, command }], {
      nowNs: atNs,
      placement: () => ['a' as ServerId],
    });
    const [outcome] = outcomes;
    assert(outcome !== undefined, 'A command has an outcome');
    return attempted(() => outcomeResult(outcome));
  } finally {
    db.exec('COMMIT');
  }
}

function attempted(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    if (error instanceof ServiceError) return error;
    throw error;
  }
}

/** What was asked and answered, for those who read what happened. */
function describe(command: Command, answer: unknown): string {
  const { preserve } = (answer ?? {}) as { readonly preserve?: unknown };
  const text =
    answer instanceof ServiceError
      ? answer.message
      : preserve === undefined
        ? 'done'
        : JSON.stringify(preserve);
  return `${JSON.stringify(command)}: ${text}`;
}

function thrown(error: ServiceError): never {
  throw error;
}

function textOf(sequence: readonly { readonly operation: Operation }[]): string {
  let text = '';
  for (const { operation } of sequence)
    if (operation.view === undefined) text = textApply(text, decodeFileOperation(operation.body));
  return text;
}
