import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { DiskFixture } from './stores.ts';

/**
 * Writes to a store until it is killed, and says on standard output which operations were applied:
 * lines of `file seq`, and of `file seq synced` after a flush. What an operation is, `operationOf` knows.
 */
export const OBJECT_BYTES = 512;
export const FILE_IDS = [1, 2, 3];

export function operationOf(file: number, seq: number) {
  const turn = (seq * 2_654_435_761 + file * 97) >>> 0;
  if (turn % 11 === 0) return { kind: 'truncate' as const, sizeBytes: turn % 5000, modifiedNs: BigInt(seq) };
  const offset = turn % 3 === 0 ? turn % 9000 : (seq * 100) % 9000;
  return { kind: 'write' as const, offset, bytes: pattern(1 + (turn % 1500), seq), modifiedNs: BigInt(seq) };
}

/** @returns the contents after the first `seq` operations of the file */
export function modelOf(file: number, seq: number): Buffer {
  let model = Buffer.alloc(0);
  for (let at = 1; at <= seq; at++) {
    const operation = operationOf(file, at);
    const size =
      operation.kind === 'truncate'
        ? operation.sizeBytes
        : Math.max(model.length, operation.offset + operation.bytes.length);
    const next = Buffer.alloc(size);
    model.copy(next);
    if (operation.kind === 'write') next.set(operation.bytes, operation.offset);
    model = next;
  }
  return model;
}

/** What a writer said before it was killed. */
export interface Said {
  readonly lines: number;
  /** By file, the last operation that was applied, and that was synced. */
  readonly applied: Map<number, number>;
  readonly synced: Map<number, number>;
}

/** Runs a writer on the folder and kills it after so many lines. */
export async function writeUntilKilled(folder: string, lineCount: number): Promise<Said> {
  const child = spawn(process.execPath, [import.meta.filename, folder], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const applied = new Map<number, number>();
  const synced = new Map<number, number>();
  let rest = '';
  let lines = 0;
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n');
    rest = parts.pop() ?? '';
    for (const line of parts) {
      const [file, seq, word] = line.split(' ');
      const known = word === 'synced' ? synced : applied;
      known.set(Number(file), Math.max(known.get(Number(file)) ?? 0, Number(seq)));
      if (++lines === lineCount) child.kill('SIGKILL');
    }
  });
  await once(child, 'close');
  return { lines, applied, synced };
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
      process.stdout.write(`${id} ${next}\n`);
    };
    let depth: Promise<void>[] = [];
    for (;;) {
      depth.push(one(++seq));
      if (depth.length >= 8) {
        await Promise.all(depth);
        depth = [];
        if (seq % 96 === 0) {
          await store.flush(file);
          process.stdout.write(`${id} ${seq} synced\n`);
        }
      }
    }
  };
  await Promise.all(FILE_IDS.map(write));
}
