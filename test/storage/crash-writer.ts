import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { CatalogStore } from '../../server/storage/catalog-store.ts';
import { sizeAfter } from '../../server/storage/contents.ts';
import type { DataFolder } from '../../server/storage/data-folder.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern, VIEW } from '../conformance/store.ts';
import { DiskFixture } from './stores.ts';

/**
 * Writes to the stores of a folder until it is killed, and prints which operations were applied: lines of `file seq`,
 * of `file seq synced` after a flush, and of `file epoch promised`. `operationOf` defines each operation; the catalog,
 * under the number 0, makes the directory `d7` with operation 7.
 */
export const OBJECT_BYTES = 512;
export const FILE_IDS = [1, 2, 3];
export const CATALOG = 0;
/** Operations of a file that are submitted to the store at once, between two flushes, and between two promises. */
const DEPTH = 8;
const FLUSH_EVERY = 48;
const PROMISE_EVERY = 112;

export function operationOf(file: number, seq: number) {
  const turn = (seq * 2_654_435_761 + file * 97) >>> 0;
  if (turn % 11 === 0) return { kind: 'truncate' as const, sizeBytes: turn % 5000, modifiedNs: BigInt(seq) };
  if (turn % 11 === 5) {
    const from = turn % 7000;
    const to = from + (turn % 2500);
    return { kind: 'punch' as const, from, to, grows: false, modifiedNs: BigInt(seq) };
  }
  const offset = turn % 3 === 0 ? turn % 9000 : (seq * 100) % 9000;
  return { kind: 'write' as const, offset, bytes: pattern(1 + (turn % 1500), seq), modifiedNs: BigInt(seq) };
}

/** The last requested operation of each file: rounds continue from there, as the writers do. */
const modelled = new Map<number, { readonly seq: number; readonly model: Buffer }>();

/** @returns the contents after the first `seq` operations of the file; not to be changed */
export function modelOf(file: number, seq: number): Buffer {
  const last = modelled.get(file);
  const known = last !== undefined && last.seq <= seq ? last : { seq: 0, model: Buffer.alloc(0) };
  let { model } = known;
  for (let at = known.seq + 1; at <= seq; at++) {
    const operation = operationOf(file, at);
    const next = Buffer.alloc(sizeAfter(model.length, operation));
    model.copy(next);
    if (operation.kind === 'punch') {
      next.fill(0, Math.min(operation.from, next.length), Math.min(operation.to, next.length));
    }
    if (operation.kind === 'write') next.set(operation.bytes, operation.offset);
    model = next;
  }
  modelled.set(file, { seq, model });
  return model;
}

/** What a writer printed before it was killed. */
export interface Said {
  readonly lines: number;
  /** By file, the last operation that was applied, and that was synced. */
  readonly applied: Map<number, number>;
  readonly synced: Map<number, number>;
  /** By file, the counter of the highest epoch promised. */
  readonly promised: Map<number, number>;
}

/**
 * Runs a writer on the folder until `stop` ends it in some way.
 * @param stop is called once, after so many lines
 */
export async function writeUntil(
  folder: string,
  lineCount: number,
  stop: (child: ChildProcess) => void,
): Promise<Said> {
  const child = spawn(process.execPath, [import.meta.filename, folder], {
    // A writer whose disk fails ends by that, and says so.
    stdio: ['ignore', 'pipe', process.env.DEBUG === '1' ? 'inherit' : 'ignore'],
  });
  const applied = new Map<number, number>();
  const synced = new Map<number, number>();
  const promised = new Map<number, number>();
  let rest = '';
  let lines = 0;
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n');
    rest = parts.pop() ?? '';
    for (const line of parts) {
      const [file, seq, word] = line.split(' ');
      const known = word === 'synced' ? synced : word === 'promised' ? promised : applied;
      known.set(Number(file), Math.max(known.get(Number(file)) ?? 0, Number(seq)));
      if (++lines === lineCount) stop(child);
    }
  });
  await once(child, 'close');
  return { lines, applied, synced, promised };
}

/** Runs a writer on the folder and kills it after so many lines. */
export function writeUntilKilled(folder: string, lineCount: number): Promise<Said> {
  return writeUntil(folder, lineCount, (child) => child.kill('SIGKILL'));
}

/** So that the log restarts many times before the power is cut. */
const LOG_FILE_BYTES_MAX = 256 * 1024;

/** Opens the catalog of a folder whose data folder is open. */
export function openCatalog(folder: DataFolder): Promise<CatalogStore> {
  const { path, startCounter, powerLossStart } = folder;
  return CatalogStore.open({
    world: systemWorld,
    folder: path,
    view: VIEW,
    startCounter,
    powerLossStart,
    mark: folder.mark('catalog.db'),
    thorough: folder.readsWhole,
    logFileBytesMax: LOG_FILE_BYTES_MAX,
  });
}

if (import.meta.main) {
  const fixture = await DiskFixture.make({ rowsPerSlice: 2 }, process.argv[2] as string);
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
      if (depth.length >= DEPTH) {
        await Promise.all(depth);
        depth = [];
        if (seq % FLUSH_EVERY === 0) {
          await store.flush(file);
          process.stdout.write(`${id} ${seq} synced\n`);
        }
        if (seq % PROMISE_EVERY === 0) {
          const counter = (store.record(file)?.promised.counter ?? 0) + 1;
          await store.promise(file, epoch(counter));
          process.stdout.write(`${id} ${counter} promised\n`);
        }
      }
    }
  };
  const writeNames = async (): Promise<void> => {
    const catalog = await openCatalog(fixture.folder);
    if (catalog.record().installed.counter === 0) {
      await catalog.promise(epoch(1));
      await catalog.install(epoch(1), 0, null);
    }
    for (let seq = catalog.record().seq + 1; ; seq++) {
      await catalog.ready();
      catalog.begin();
      const command: Command =
        seq === 1
          ? { kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 }
          : {
              kind: 'make-directory',
              place: { volume: 'main', path: `/d${seq}` },
              mode: 0o755,
              uid: 0,
              gid: 0,
            };
      const request = { session: 5, number: seq, since: 0, command };
      catalog.execute([request], { nowNs: BigInt(seq), placement: () => VIEW.members });
      await catalog.finish(epoch(1), seq);
      process.stdout.write(`${CATALOG} ${seq}\n`);
      if (seq % 20 === 0) {
        await catalog.flush();
        process.stdout.write(`${CATALOG} ${seq} synced\n`);
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await Promise.all([...FILE_IDS.map(write), writeNames()]);
}
