import fs from 'node:fs';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { DiskFixture } from './stores.ts';

/**
 * Writes to a store until it is killed, and says on standard output which operations were applied:
 * lines of `file seq`. What operation `seq` of a file is, `operationOf` knows.
 */
export const OBJECT_BYTES = 512;
export const FILE_IDS = [1, 2, 3];

export function operationOf(file: number, seq: number) {
  const turn = (seq * 2_654_435_761 + file * 97) >>> 0;
  if (turn % 11 === 0) return { kind: 'truncate' as const, sizeBytes: turn % 5000, modifiedNs: BigInt(seq) };
  const offset = turn % 3 === 0 ? turn % 9000 : (seq * 100) % 9000;
  return { kind: 'write' as const, offset, bytes: pattern(1 + (turn % 1500), seq), modifiedNs: BigInt(seq) };
}

if (import.meta.main) {
  const fixture = await DiskFixture.make({}, process.argv[2] as string);
  const { store } = fixture;
  const write = async (id: number): Promise<void> => {
    const file = fileId(id);
    if (store.record(file) === null) await begin(store, file, OBJECT_BYTES);
    let seq = store.record(file)?.seq ?? 0;
    const one = async (next: number): Promise<void> => {
      await store.apply(file, epoch(1), next, operationOf(id, next), NO_SESSIONS);
      fs.writeSync(1, `${id} ${next}\n`);
    };
    let depth: Promise<void>[] = [];
    for (;;) {
      depth.push(one(++seq));
      if (depth.length >= 8) {
        await Promise.all(depth);
        depth = [];
        if (seq % 96 === 0) await store.flush(file);
      }
    }
  };
  await Promise.all(FILE_IDS.map(write));
}
