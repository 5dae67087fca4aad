import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Position } from '../../replica/epoch.ts';
import type { CallSource } from '../drivers/subject.ts';
import {
  type Digest,
  digestEqual,
  digestXor,
  FAN_OUT,
  NOTHING,
  nodeRange,
  ObjectDigests,
  type Version,
} from '../storage/object-digests.ts';
import type { ObjectEntry } from '../storage/object-entry.ts';
import type { FileStore } from '../storage/store.ts';
import {
  type Comparison,
  decodeDigests,
  decodePage,
  encodeNodes,
  encodeRanges,
  encodeSince,
  type IndexRange,
  METHODS,
  NODES_MAX,
  RANGES_MAX,
} from './file-transfer.ts';

/** Local entries that are looked up per tick of the event loop: a millisecond or two. */
const ENTRIES_PER_TICK = 512;
const LOOKUPS_PER_TICK = 128;

/**
 * The difference from the local object map to another replica's: entries by index, overlaid on the local ones. It is
 * right once its digest, combined with the local one, equals the other's. Until then it is a guess, so it may be built
 * from answers of several instants, and kept for the next transfer.
 */
export class ObjectMapDifference {
  readonly from: Position;
  /** Objects of the other with a later version than this are asked for by version; earlier ones, found by digests. */
  known: Version;
  readonly #world: World;
  readonly #file: FileId;
  readonly #store: FileStore;
  readonly #damaged: ReadonlySet<number>;
  readonly #changes = new Map<number, ObjectEntry | null>();
  readonly #missing = new Map<number, ObjectEntry>();
  readonly #learnedDigests = new ObjectDigests();

  /** @param damaged local objects whose bytes are lost: they differ, whatever their entries say */
  constructor(world: World, file: FileId, store: FileStore, from: Position, damaged: ReadonlySet<number>) {
    this.#world = world;
    this.from = from;
    this.known = { epoch: from.epoch.counter, seq: from.seq };
    this.#file = file;
    this.#store = store;
    this.#damaged = damaged;
    for (const index of damaged) {
      const own = this.#localEntry(index);
      if (own !== null) this.#setChange(index, own);
    }
  }

  get changes(): ReadonlyMap<number, ObjectEntry | null> {
    return this.#changes;
  }

  get missing(): ReadonlyMap<number, ObjectEntry> {
    return this.#missing;
  }

  async matches(total: Digest): Promise<boolean> {
    return digestEqual(
      digestXor((await this.#store.digests(this.#file)).total, this.#learnedDigests.total),
      total,
    );
  }

  noteStaged(entry: ObjectEntry): void {
    if (objectEqual(this.#missing.get(entry.index) ?? null, entry)) this.#missing.delete(entry.index);
  }

  /**
   * Completes the difference to the other's state, unless that changes meanwhile. Memory is proportional to the result.
   * @param assertLatestFetch throws if a later fetch has replaced this one; called after each wait
   */
  async learn(ask: CallSource, comparison: Comparison, assertLatestFetch: () => void): Promise<void> {
    const { position, changes, total, height } = comparison;
    await this.#learnEntries(changes.entries, assertLatestFetch);
    for (let from = changes.next; from !== null; ) {
      const page = decodePage(await ask(METHODS.changes, encodeSince(this.known, from)));
      assertLatestFetch();
      assertProgress(from, page.next);
      await this.#learnEntries(page.entries, assertLatestFetch);
      from = page.next;
    }
    const matches = await this.matches(total);
    assertLatestFetch();
    if (!matches) {
      const own = await this.#store.digests(this.#file);
      assertLatestFetch();
      await this.#descend(
        ask,
        Math.max(height, own.height, this.#learnedDigests.height),
        [0],
        assertLatestFetch,
      );
    }
    this.known = { epoch: position.epoch.counter, seq: position.seq };
  }

  async #learnEntries(entries: readonly ObjectEntry[], assertLatestFetch: () => void): Promise<void> {
    let lookups = 0;
    for (const entry of entries) {
      if (++lookups % LOOKUPS_PER_TICK === 0) {
        await this.#world.nextTick();
        assertLatestFetch();
      }
      this.#record(entry.index, this.#localEntry(entry.index), entry);
    }
  }

  /** Compares the children of these nodes, depth first: fetches the entries of leaves, and of ranges absent here. */
  async #descend(
    ask: CallSource,
    level: number,
    numbers: readonly number[],
    assertLatestFetch: () => void,
  ): Promise<void> {
    for (let at = 0; at < numbers.length; at += NODES_MAX) {
      const nodes = numbers.slice(at, at + NODES_MAX);
      const theirs = decodeDigests(await ask(METHODS.digests, encodeNodes(level, nodes)), nodes.length);
      const own = await this.#store.digests(this.#file);
      assertLatestFetch();
      const differing: number[] = [];
      const empty: IndexRange[] = [];
      const unknown: IndexRange[] = [];
      for (const [place, digest] of theirs.entries()) {
        const number = (nodes[Math.floor(place / FAN_OUT)] as number) * FAN_OUT + (place % FAN_OUT);
        const mine = digestXor(own.digest(level - 1, number), this.#learnedDigests.digest(level - 1, number));
        if (digestEqual(mine, digest)) continue;
        const range = nodeRange({ level: level - 1, number });
        if (digestEqual(digest, NOTHING)) empty.push(range);
        else if (level === 1 || digestEqual(mine, NOTHING)) pushRange(unknown, range);
        else differing.push(number);
      }
      for (const range of empty) await this.#recordDifferences(range, [], assertLatestFetch);
      await this.#fetchEntries(ask, unknown, assertLatestFetch);
      await this.#descend(ask, level - 1, differing, assertLatestFetch);
    }
  }

  /** Asks for all entries of the other in these ranges, in pages, and records what differs. */
  async #fetchEntries(
    ask: CallSource,
    ranges: readonly IndexRange[],
    assertLatestFetch: () => void,
  ): Promise<void> {
    let left = ranges;
    while (left.length > 0) {
      const asked = left.slice(0, RANGES_MAX);
      const { entries, next } = decodePage(await ask(METHODS.entries, encodeRanges(asked)));
      assertLatestFetch();
      assertProgress((asked[0] as IndexRange).first, next);
      const end = next ?? Infinity;
      let at = 0;
      for (const { first, last } of asked) {
        if (first >= end) break;
        const range = { first, last: Math.min(last, end - 1) };
        const begin = at;
        while (at < entries.length && (entries[at] as ObjectEntry).index <= range.last) at++;
        await this.#recordDifferences(range, entries.slice(begin, at), assertLatestFetch);
      }
      const rest = asked.filter(({ last }) => last >= end);
      left = [
        ...rest.map(({ first, last }) => ({ first: Math.max(first, end), last })),
        ...left.slice(RANGES_MAX),
      ];
    }
  }

  /** Records what differs in a range, in which `theirs` are all entries of the other. */
  async #recordDifferences(
    range: IndexRange,
    theirs: readonly ObjectEntry[],
    assertLatestFetch: () => void,
  ): Promise<void> {
    const left = new Map(theirs.map((entry) => [entry.index, entry]));
    for (let from = range.first; ; ) {
      const own = this.#store.entries(this.#file, from, range.last, ENTRIES_PER_TICK);
      for (const entry of own) {
        this.#record(entry.index, entry, left.get(entry.index) ?? null);
        left.delete(entry.index);
      }
      const end = own.at(-1);
      if (end === undefined || own.length < ENTRIES_PER_TICK) break;
      from = end.index + 1;
      await this.#world.nextTick();
      assertLatestFetch();
    }
    // Entries in the range that neither side has now: an earlier answer of the other listed them.
    const known = new Set(theirs.map((entry) => entry.index));
    for (const index of this.#changesWithin(range)) {
      if (!known.has(index) && this.#changes.get(index) !== null) this.#record(index, null, null);
    }
    for (const entry of left.values()) this.#record(entry.index, null, entry);
  }

  #changesWithin({ first, last }: IndexRange): number[] {
    if (last - first > this.#changes.size) {
      return [...this.#changes.keys()].filter((index) => index >= first && index <= last);
    }
    const within: number[] = [];
    for (let index = first; index <= last; index++) if (this.#changes.has(index)) within.push(index);
    return within;
  }

  #localEntry(index: number): ObjectEntry | null {
    return this.#store.entries(this.#file, index, index, 1)[0] ?? null;
  }

  /** Records that the other replica has `entry` at this index, and the local one `own`; null: none. */
  #record(index: number, own: ObjectEntry | null, entry: ObjectEntry | null): void {
    const change = this.#changes.get(index);
    const before = change === undefined ? own : change;
    if (objectEqual(before, entry)) return;
    this.#learnedDigests.replace(before, entry);
    if (objectEqual(own, entry) && !this.#damaged.has(index)) {
      this.#changes.delete(index);
      this.#missing.delete(index);
    } else {
      this.#setChange(index, entry);
    }
  }

  #setChange(index: number, entry: ObjectEntry | null): void {
    this.#changes.set(index, entry);
    if (entry === null || objectEqual(this.#store.staged(this.#file, index), entry))
      this.#missing.delete(index);
    else this.#missing.set(index, entry);
  }
}

export function objectEqual(a: ObjectEntry | null, b: ObjectEntry | null): boolean {
  if (a === null || b === null) return a === b;
  return (
    a.versionEpoch === b.versionEpoch &&
    a.versionSeq === b.versionSeq &&
    a.length === b.length &&
    a.crc32 === b.crc32
  );
}

function pushRange(ranges: IndexRange[], range: IndexRange): void {
  const before = ranges.at(-1);
  if (before?.last === range.first - 1) ranges[ranges.length - 1] = { first: before.first, last: range.last };
  else ranges.push(range);
}

function assertProgress(from: number, next: number | null): void {
  if (next !== null && next <= from)
    throw new ServiceError('storage', 'A difference description makes no progress');
}
