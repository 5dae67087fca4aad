import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { pino } from 'pino';
import type { FileId } from '../../base/ids.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { Scrubber } from '../../server/repair/scrubber.ts';
import type { ObjectEntry } from '../../server/storage/object-entry.ts';
import { systemWorld } from '../../world/system-world.ts';
import { until } from '../cluster/real-cluster.ts';

const FILE = 1 as FileId;
const BYTES = new Uint8Array([1]);

/** A disk with damaged objects of one file; its scrubber asks the other servers when the test lets it. */
class DamagedDisk {
  /** Requests that wait for their answer, by object. */
  readonly asked: { readonly index: number; answer(bytes: Uint8Array | null): void }[] = [];
  readonly scrubber: Scrubber;
  readonly #damaged: Set<number>;

  constructor(folder: string, damaged: readonly number[]) {
    this.#damaged = new Set(damaged);
    const entries = damaged.map((index): ObjectEntry => {
      return { index, versionEpoch: 1, versionSeq: 1, length: BYTES.length, crc32: 0 };
    });
    this.scrubber = new Scrubber({
      world: systemWorld,
      clock: { nowMs: () => performance.now(), wallNs: () => BigInt(Date.now()) * 1_000_000n },
      log: pino({ level: 'silent' }),
      store: {
        list: (after) => (after < FILE ? [FILE] : []),
        record: () => ({}) as ReplicaRecord,
        entries: (_file, from, to) => entries.filter(({ index }) => index >= from && index <= to),
        inspect: (_file, { index }) => Promise.resolve(this.#damaged.has(index) ? 'damaged' : BYTES),
        repair: (_file, { entry }) => {
          this.#damaged.delete(entry.index);
          return Promise.resolve();
        },
      },
      repairer: {
        fetch: (_file, { index }) => {
          const { promise, resolve } = Promise.withResolvers<Uint8Array | null>();
          this.asked.push({ index, answer: resolve });
          return promise;
        },
      },
      recordFile: join(folder, 'scrub.json'),
      bytesPerS: 1e9,
      everyMs: 1e9,
      paths: () => Promise.resolve(new Map()),
    });
  }

  /** Answers the request for an object, as soon as it is there. */
  async answer(index: number, bytes: Uint8Array | null): Promise<void> {
    await until(`object ${index} is asked for`, () =>
      Promise.resolve(this.asked.some((one) => one.index === index)),
    );
    const place = this.asked.findIndex((one) => one.index === index);
    this.asked.splice(place, 1)[0]?.answer(bytes);
  }

  async left(): Promise<readonly number[]> {
    return (await this.scrubber.status()).unrepairable.map(({ object }) => object);
  }

  /** Waits until the pass is over. */
  async passed(): Promise<void> {
    await until('the pass is over', async () => (await this.scrubber.status()).state === 'waiting');
  }
}

describe('a scrubber and servers that reconnect while others are asked', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'leasehold-scrubber-'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  test('a server that reconnects just when an object is left unrepaired is asked, too', async () => {
    const disk = new DamagedDisk(folder, [3]);
    disk.scrubber.start();
    await until('it is asked for', () => Promise.resolve(disk.asked.length === 1));
    disk.scrubber.retry();
    await disk.answer(3, null);
    await disk.answer(3, BYTES);
    await until('nothing is left', async () => (await disk.left()).length === 0);
    const { damaged, repaired } = await disk.scrubber.status();
    assert.deepEqual([damaged, repaired], [1, 1]);
    disk.scrubber.close();
  });

  test('a server that reconnects while unrepaired objects are checked again is asked, too', async () => {
    const disk = new DamagedDisk(folder, [3]);
    disk.scrubber.start();
    await disk.answer(3, null);
    await disk.passed();
    assert.deepEqual(await disk.left(), [3]);
    disk.scrubber.retry();
    await until('it is asked for again', () => Promise.resolve(disk.asked.length === 1));
    disk.scrubber.retry();
    await disk.answer(3, null);
    await disk.answer(3, BYTES);
    await until('nothing is left', async () => (await disk.left()).length === 0);
    disk.scrubber.close();
  });

  test('an object that is repaired while the pass waits for another one is not reported as left', async () => {
    const disk = new DamagedDisk(folder, [3, 4]);
    disk.scrubber.start();
    await disk.answer(3, null);
    await until('object 4 is asked for', () => Promise.resolve(disk.asked.some(({ index }) => index === 4)));
    assert.deepEqual(await disk.left(), [3]);
    disk.scrubber.retry();
    await disk.answer(3, BYTES);
    await until('object 3 is whole', async () => (await disk.left()).length === 0);
    await disk.answer(4, null);
    await disk.passed();
    assert.deepEqual(await disk.left(), [4]);
    const { damaged, repaired } = await disk.scrubber.status();
    assert.deepEqual([damaged, repaired], [2, 1]);
    disk.scrubber.close();
  });

  test('a pass that begins during the repair of earlier objects does not count it as its own', async () => {
    const disk = new DamagedDisk(folder, [3]);
    disk.scrubber.start();
    await disk.answer(3, null);
    await disk.passed();
    disk.scrubber.retry();
    await until('it is asked for again', () => Promise.resolve(disk.asked.length === 1));
    const [again] = disk.asked.splice(0);
    disk.scrubber.start();
    await until('the pass asks for it', () => Promise.resolve(disk.asked.length === 1));
    again?.answer(BYTES);
    await disk.answer(3, null);
    await disk.passed();
    const { damaged, repaired } = await disk.scrubber.status();
    assert.deepEqual([damaged, repaired], [1, 1]);
    assert.deepEqual(await disk.left(), []);
    disk.scrubber.close();
  });
});
