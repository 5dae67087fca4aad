import { createHash } from 'node:crypto';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { viewVoters } from '../../replica/view.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { jsonOf } from '../../wire/json.ts';

export const DIGESTS_CALL = 'digests';

/** Numbers of files in a range: one tick of the event loop reads their records. The same on all servers. */
const RANGE = 256;
/** Ranges of one call. */
export const RANGES_MAX = 128;
/** 96 bits of SHA-256: ranges that differ do not have equal digests by chance. */
const DIGEST_BYTES = 12;

const NO_DIGESTS: ReadonlyMap<ServerId, string> = new Map();

/** Number of a range, and the digest of what the sender has in it. */
export type RangeDigest = readonly [range: number, digest: string];

interface RangeDigestsParts {
  readonly self: ServerId;
  readonly world: Pick<World, 'nextTick'>;
  list(after: FileId, countMax: number): readonly FileId[];
  record(file: FileId): ReplicaRecord | null;
}

/**
 * Digests of this server's replicas by ranges of file numbers: for each other server, of those files whose views have
 * both servers. Two servers whose digests of a range are equal have the same positions and views there. A digest is
 * kept until a record in its range changes, so a comparison reads only records of ranges that changed since the last.
 */
export class RangeDigests {
  readonly #parts: RangeDigestsParts;
  /** Of each range with files, its digests by server; null if a record has changed since. */
  readonly #ranges = new Map<number, ReadonlyMap<ServerId, string> | null>();
  #areAllKnown = false;

  constructor(parts: RangeDigestsParts) {
    this.#parts = parts;
  }

  /** The file's record changed, or it was created or removed. */
  changed(file: FileId): void {
    this.#ranges.set(rangeOf(file), null);
  }

  /** Digests of all ranges with files that this server shares with `peer`, in parts of at most `RANGES_MAX`. */
  async *all(peer: ServerId): AsyncGenerator<readonly RangeDigest[]> {
    await this.#findRanges();
    let part: RangeDigest[] = [];
    for (const range of [...this.#ranges.keys()]) {
      const digest = (await this.#digestsOf(range)).get(peer);
      if (digest === undefined) continue;
      part.push([range, digest]);
      if (part.length < RANGES_MAX) continue;
      yield part;
      part = [];
    }
    if (part.length > 0) yield part;
  }

  /** Files of a range that are here. */
  filesIn(range: number): readonly FileId[] {
    const { list } = this.#parts;
    return list((range * RANGE - 1) as FileId, RANGE).filter((file) => rangeOf(file) === range);
  }

  /** Answers a peer: in which of its ranges it has other positions or views than this server. */
  async serve(from: ServerId, payload: Uint8Array): Promise<Uint8Array> {
    const different: number[] = [];
    for (const [range, digest] of decodeDigests(payload))
      if ((await this.#digestsOf(range)).get(from) !== digest) different.push(range);
    return Buffer.from(JSON.stringify(different));
  }

  /** Finds ranges that have had no change in this process. */
  async #findRanges(): Promise<void> {
    if (this.#areAllKnown) return;
    for (let after = 0 as FileId; ; ) {
      const [next] = this.#parts.list(after, 1);
      if (next === undefined) break;
      const range = rangeOf(next);
      if (!this.#ranges.has(range)) this.#ranges.set(range, null);
      after = ((range + 1) * RANGE - 1) as FileId;
      await this.#parts.world.nextTick();
    }
    this.#areAllKnown = true;
  }

  async #digestsOf(range: number): Promise<ReadonlyMap<ServerId, string>> {
    const known = this.#ranges.get(range);
    if (known !== undefined && known !== null) return known;
    const files = this.filesIn(range);
    const digests = this.#digest(files);
    // A peer may ask about numbers of which there are no files here.
    if (files.length > 0) this.#ranges.set(range, digests);
    else this.#ranges.delete(range);
    await this.#parts.world.nextTick();
    return digests;
  }

  #digest(files: readonly FileId[]): ReadonlyMap<ServerId, string> {
    const { self, record } = this.#parts;
    const rows = new Map<ServerId, string[]>();
    for (const file of files) {
      const own = record(file);
      // A file that was never written does not lag.
      if (own === null || own.installed.counter === 0) continue;
      const voters = viewVoters(own.view);
      if (!voters.includes(self)) continue;
      const row = rowOf(file, own);
      for (const peer of voters) {
        if (peer === self) continue;
        const those = rows.get(peer);
        if (those === undefined) rows.set(peer, [row]);
        else those.push(row);
      }
    }
    if (rows.size === 0) return NO_DIGESTS;
    return new Map([...rows].map(([peer, those]) => [peer, digestOf(those.join('\n'))]));
  }
}

export function encodeDigests(digests: readonly RangeDigest[]): Uint8Array {
  return Buffer.from(JSON.stringify(digests));
}

/** @returns the ranges of `asked` that differ @throws MalformedError */
export function decodeDifferent(payload: Uint8Array, asked: readonly RangeDigest[]): readonly number[] {
  const different = parsedList(payload);
  const ranges = new Set<unknown>(asked.map(([range]) => range));
  if (!different.every((range) => ranges.has(range)))
    throw new MalformedError('A range that differs was not asked for');
  return different as number[];
}

function decodeDigests(payload: Uint8Array): readonly RangeDigest[] {
  return parsedList(payload).map((row) => {
    const [range, digest] = Array.isArray(row) ? (row as unknown[]) : [];
    if (!Number.isSafeInteger(range) || (range as number) < 0 || typeof digest !== 'string')
      throw new MalformedError('A digest of a range has not its two fields');
    return [range as number, digest];
  });
}

function parsedList(payload: Uint8Array): unknown[] {
  const list = jsonOf(payload, 'Digests of ranges are');
  if (!Array.isArray(list) || list.length > RANGES_MAX)
    throw new MalformedError('Digests of ranges are no list');
  return list;
}

function rangeOf(file: FileId): number {
  return Math.floor(file / RANGE);
}

/** What both servers must have alike; servers may name the members of a view in any order. */
function rowOf(file: FileId, { installed, seq, view }: ReplicaRecord): string {
  const members = [...view.members].sort().join();
  const joint = view.joint === undefined ? '' : [...view.joint].sort().join();
  const { counter, server, incarnation } = installed;
  return [file, counter, server, incarnation, seq, view.number, members, joint].join(' ');
}

function digestOf(text: string): string {
  // A slice of the whole digest's text would keep all of it in memory.
  return createHash('sha256').update(text).digest().toString('base64', 0, DIGEST_BYTES);
}
