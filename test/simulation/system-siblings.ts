/**
 * Other files of the volume of which snapshots are made: many are borne together (decision 0040), get other names and lose them, and nobody
 * writes them. A snapshot shows exactly those that had names at its moment, under these, with what they were borne with, for as long as it is there.
 */
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { majority } from '../../base/quorum.ts';
import { Birth, mayBeBorne } from '../../replica/birth.ts';
import type { Attributes, Command, CommandResults, Query, QueryResults } from '../../wire/catalog-api.ts';
import type { SystemWorld } from './system-world.ts';
import { Violation } from './violation.ts';

/** Of all siblings. */
const OWNER = 2;
const NAMES = [...'abcdefgh'];
const TOGETHER_MAX = 3;
const OBJECT_BYTES = 4096;
const BORNE_VERSION = { epoch: 1, seq: 1 };
/** After so long the system has written by itself what nobody has synced. */
const WRITTEN_BACK_MS = 700;
/** Longer than a command takes to the catalog and back. */
const ANSWER_MS = 1_500;

export interface SiblingCounts {
  siblings: number;
  /** Of these, such whose contents were stored before a snapshot was made, and which were named after it. */
  straddled: number;
  namesMoved: number;
  namesRemoved: number;
  siblingReads: number;
  /** Replicas that were removed, because nothing shows the file any more. */
  siblingsCollected: number;
}

/** What siblings need of the catalog. */
export interface SiblingCatalog {
  ask(server: ServerId, command: Command, done: (answer: unknown) => void): void;
  askQuery(server: ServerId, query: Query, done: (answer: unknown) => void): void;
  /** What it would answer at this moment. @throws ServiceError */
  now<Q extends Query>(query: Q): QueryResults[Q['kind']];
}

type Names = ReadonlyMap<string, number>;

interface Shown {
  readonly serial: number;
  readonly names: Names;
}

/** What is known of a name where nobody is changing it: the file that has it, null where none has. */
interface Known {
  readonly inode: number | null;
  readonly turn: number;
}

export class Siblings {
  readonly counts: SiblingCounts = {
    siblings: 0,
    straddled: 0,
    namesMoved: 0,
    namesRemoved: 0,
    siblingReads: 0,
    siblingsCollected: 0,
  };
  readonly #system: SystemWorld;
  readonly #catalog: SiblingCatalog;
  readonly #volume: string;
  readonly #root: number;
  readonly #dice: Prng;
  /** What each server has of them; true where no loss of power takes it. */
  readonly #stores = new Map<ServerId, Map<number, { isSafe: boolean }>>();
  /** A loss of power may have taken them: nobody is owed their contents. */
  readonly #unowed = new Set<number>();
  readonly #known = new Map<string, Known>();
  /** How many change a name, and how often somebody began to. */
  readonly #pending = new Map<string, number>();
  readonly #turns = new Map<string, number>();
  readonly #shown = new Map<string, Shown>();
  #lastCutMs = -Infinity;

  constructor(system: SystemWorld, catalog: SiblingCatalog, volume: string) {
    this.#system = system;
    this.#catalog = catalog;
    this.#volume = volume;
    this.#root = catalog.now({ kind: 'volume', name: volume }).volume.root;
    this.#dice = new Prng(system.options.seed * 179 + 13);
  }

  // What befalls them -------------------------------------------------------------------------------

  /** Some are borne at a server, under names that others may have. */
  bear(): void {
    const { world } = this.#system;
    const bearer = this.#dice.pick(world.ids);
    const count = this.#dice.integer(1, TOGETHER_MAX);
    const names = [...NAMES].sort(() => this.#dice.next() - 0.5).slice(0, count);
    const members = [[...this.#system.firstView.members]];
    this.#catalog.ask(bearer, { kind: 'reserve-inodes', owner: OWNER, count, members }, (answer) => {
      if (answer instanceof ServiceError) return;
      const { first } = answer as CommandResults['reserve-inodes'];
      this.#storeEverywhere(bearer, first, names);
    });
  }

  #storeEverywhere(bearer: ServerId, first: number, names: readonly string[]): void {
    const { world, firstView: view, options } = this.#system;
    const birth = new Birth(view, names.length);
    const life = world.incarnation(bearer);
    let isAsked = false;
    const holds = (member: ServerId): void => {
      birth.holds(member, names.keys());
      if (!birth.areAllBorne || isAsked) return;
      isAsked = true;
      // Now and then somebody else's contents are waited for.
      const waitMs = this.#dice.chance(0.3) ? this.#dice.next() * 300 : 0;
      const beganMs = world.nowMs;
      world.later(bearer, waitMs, () => this.#name(bearer, first, names, beganMs));
    };
    for (const member of view.members) {
      const travelMs = (): number => (member === bearer ? 0 : 0.5 + this.#dice.next() * 5);
      const diskMs = options.diskMinMs + this.#dice.next() * (options.diskMaxMs - options.diskMinMs);
      world.at(world.nowMs + travelMs(), () => {
        if (member !== bearer && !this.#system.reaches(bearer, member)) return;
        if (!world.isUp(member) || !mayBeBorne(member, view, null, 'intact')) return;
        world.later(member, diskMs, () => {
          for (const place of names.keys()) this.#store(member, first + place);
          world.at(world.nowMs + travelMs(), () => {
            if (member !== bearer && !this.#system.reaches(member, bearer)) return;
            if (world.isUp(bearer) && world.incarnation(bearer) === life) holds(member);
          });
        });
      });
    }
  }

  #store(server: ServerId, inode: number): void {
    const { world } = this.#system;
    const stored = { isSafe: false };
    this.#storeOf(server).set(inode, stored);
    world.at(world.nowMs + WRITTEN_BACK_MS, () => {
      stored.isSafe = true;
    });
  }

  #name(bearer: ServerId, first: number, names: readonly string[], storedMs: number): void {
    const { members } = this.#system.firstView;
    const inodeAt = (place: number): number => first + place;
    const files = names.map((name, place) => ({
      ...{ parent: this.#root, name, inode: inodeAt(place), mode: 0, uid: 0, gid: 0 },
      ...{ sizeBytes: textOf(inodeAt(place)).length, contents: BORNE_VERSION },
    }));
    const how = { owner: OWNER, replicas: [...members], objectBytes: OBJECT_BYTES };
    this.#change(bearer, { kind: 'bear', ...how, files }, names, (answer) => {
      const born = (answer as CommandResults['bear']).files;
      return names.map((_, place) => {
        const outcome = born[inodeAt(place)];
        if (outcome !== null && outcome !== undefined && 'code' in outcome) return undefined;
        this.counts.siblings++;
        if (storedMs < this.#lastCutMs) this.counts.straddled++;
        return inodeAt(place);
      });
    });
  }

  /** One of them loses its name, or gets another one's. */
  moveOrRemove(): void {
    const server = this.#dice.pick(this.#system.world.ids);
    const names = [...this.#names().keys()];
    if (names.length === 0) return;
    const from = this.#dice.pick(names);
    if (this.#dice.chance(0.5)) {
      this.#change(server, { kind: 'unlink', place: this.#place(from) }, [from], () => {
        this.counts.namesRemoved++;
        return [null];
      });
      return;
    }
    const to = this.#dice.pick(NAMES);
    if (to === from) return;
    const moved = { from: this.#place(from), to: this.#place(to), mode: 'replace' } as const;
    // Which file it was the answer does not tell.
    this.#change(server, { kind: 'rename', ...moved }, [from, to], () => {
      this.counts.namesMoved++;
      return [null, undefined];
    });
  }

  #place(name: string) {
    return { volume: this.#volume, path: `/${name}` };
  }

  /**
   * A client changes names by way of a server, and may hear nothing of it.
   *
   * @param outcome what each of them is then, as the answer tells; undefined where it does not
   */
  #change(
    server: ServerId,
    command: Command,
    names: readonly string[],
    outcome: (answer: unknown) => readonly (number | null | undefined)[],
  ): void {
    const { world } = this.#system;
    const turns = names.map((name) => this.#begin(name));
    let isOver = false;
    const end = (told: readonly (number | null | undefined)[]): void => {
      if (isOver) return;
      isOver = true;
      for (const [index, name] of names.entries()) {
        this.#pending.set(name, (this.#pending.get(name) ?? 1) - 1);
        const inode = told[index];
        const turn = turns[index] ?? null;
        if (inode !== undefined && turn !== null && this.#turns.get(name) === turn)
          this.#known.set(name, { inode, turn });
      }
    };
    this.#catalog.ask(server, command, (answer) =>
      end(answer instanceof ServiceError ? [] : outcome(answer)),
    );
    world.at(world.nowMs + ANSWER_MS, () => end([]));
  }

  /** @returns the turn; null where somebody else changes the name, too: nobody knows who comes last */
  #begin(name: string): number | null {
    const turn = (this.#turns.get(name) ?? 0) + 1;
    const before = this.#pending.get(name) ?? 0;
    this.#turns.set(name, turn);
    this.#pending.set(name, before + 1);
    this.#known.delete(name);
    return before === 0 ? turn : null;
  }

  /** The machine is dark: what nobody has written back may be gone. */
  losePower(server: ServerId, everything: boolean): void {
    const { members } = this.#system.firstView;
    const store = this.#storeOf(server);
    for (const [inode, { isSafe }] of store) {
      if (isSafe || (!everything && this.#dice.chance(0.5))) continue;
      store.delete(inode);
      const holders = members.filter((member) => this.#storeOf(member).has(inode));
      if (holders.length < majority(members.length)) this.#unowed.add(inode);
    }
  }

  /** The catalog has lost what it had not synced. */
  catalogLost(): void {
    this.#known.clear();
    for (const name of NAMES) this.#turns.set(name, (this.#turns.get(name) ?? 0) + 1);
  }

  /** A server removes what nothing shows, and nothing will: as the servers' `Garbage` does. */
  collectAt(server: ServerId): void {
    const store = this.#storeOf(server);
    const inodes = [...store.keys()];
    if (inodes.length === 0) return;
    this.#catalog.askQuery(server, { kind: 'placed', inodes }, (answer) => {
      if (answer instanceof ServiceError) return;
      const { files, reserved } = answer as QueryResults['placed'];
      const kept = new Set([...files.map(({ inode }) => inode), ...reserved]);
      for (const inode of inodes)
        if (!kept.has(inode) && store.delete(inode)) this.counts.siblingsCollected++;
    });
  }

  // Snapshots ---------------------------------------------------------------------------------------

  /** To be called when a snapshot is asked for. @returns the names that it has to show as they are, unless somebody begins to change them */
  owed(): ReadonlyMap<string, Known> {
    return new Map([...this.#known].filter(([name]) => (this.#pending.get(name) ?? 0) === 0));
  }

  /** To be called in the turn in which a snapshot was made. */
  cut(serial: number, owed: ReadonlyMap<string, Known>): Shown {
    this.#lastCutMs = this.#system.world.nowMs;
    const names = this.#names(serial);
    assertSame('shows at once', names, this.#names());
    for (const [name, { inode, turn }] of owed) {
      if (this.#turns.get(name) !== turn || (names.get(name) ?? null) === inode) continue;
      throw new Violation(
        `A snapshot shows ${names.get(name)} as "${name}", which was ${inode} before it began`,
      );
    }
    return { serial, names };
  }

  acknowledged(snapshot: string, shown: Shown): void {
    this.#shown.set(snapshot, shown);
  }

  removed(snapshot: string): void {
    this.#shown.delete(snapshot);
  }

  /** Reads one of those that the snapshot shows, at a server. */
  read(snapshot: string, server: ServerId): void {
    const shown = this.#shown.get(snapshot);
    if (shown === undefined) return;
    assertSame(`${snapshot} shows`, this.#names(shown.serial), shown.names);
    if (shown.names.size === 0) return;
    const [, inode] = this.#dice.pick([...shown.names]);
    this.#catalog.askQuery(server, { kind: 'attributes', inode, snapshot: shown.serial }, (answer) => {
      // Else the reader is told that there is no such snapshot any more.
      if (!this.#shown.has(snapshot)) return;
      if (answer instanceof ServiceError) throw new Violation(`${snapshot} shows file ${inode} no more`);
      this.#assertContents(snapshot, server, (answer as { attributes: Attributes }).attributes);
    });
  }

  /** Every one that is left shows all that it has to. */
  assertShown(): void {
    const [server] = this.#system.world.ids;
    assert(server !== undefined, 'There are servers');
    for (const [snapshot, { serial, names }] of this.#shown) {
      assertSame(`${snapshot} shows at last`, this.#names(serial), names);
      for (const inode of names.values()) {
        const { attributes } = this.#catalog.now({ kind: 'attributes', inode, snapshot: serial });
        this.#assertContents(snapshot, server, attributes);
      }
    }
  }

  #assertContents(
    snapshot: string,
    server: ServerId,
    { inode, contents, sizeBytes, source }: Attributes,
  ): void {
    const { world } = this.#system;
    const isBorne = contents.epoch === BORNE_VERSION.epoch && contents.seq === BORNE_VERSION.seq;
    if (!isBorne || source !== undefined || sizeBytes !== textOf(inode).length)
      throw new Violation(`${snapshot} shows file ${inode} otherwise than it was borne`);
    this.counts.siblingReads++;
    const { members } = this.#system.firstView;
    const answering = members.filter(
      (member) => world.isUp(member) && (member === server || this.#system.reaches(server, member)),
    );
    if (answering.length < majority(members.length) || this.#unowed.has(inode)) return;
    if (!answering.some((member) => this.#storeOf(member).has(inode)))
      throw new Violation(
        `${snapshot} shows file ${inode}, and ${answering.join()} have not what it was borne with`,
      );
  }

  #storeOf(server: ServerId): Map<number, { isSafe: boolean }> {
    const store = this.#stores.get(server) ?? new Map<number, { isSafe: boolean }>();
    this.#stores.set(server, store);
    return store;
  }

  /** @param serial of a snapshot; absent: as they are now */
  #names(serial?: number): Names {
    const at = serial === undefined ? {} : { snapshot: serial };
    const { entries } = this.#catalog.now({
      ...{ kind: 'list', inode: this.#root, after: '', countMax: 100 },
      ...at,
    });
    const own = entries.filter(({ name }) => NAMES.includes(name));
    return new Map(own.map(({ name, attributes }) => [name, attributes.inode]));
  }
}

function textOf(inode: number): string {
  return `file ${inode as FileId}`;
}

function assertSame(what: string, found: Names, wanted: Names): void {
  const text = (names: Names) => JSON.stringify([...names]);
  if (text(found) !== text(wanted))
    throw new Violation(`The snapshot ${what} the names ${text(found)} instead of ${text(wanted)}`);
}
