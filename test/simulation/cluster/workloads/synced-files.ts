import { ServiceError } from '../../../../base/errors.ts';
import type { FileHandle } from '../../../../client/cluster/file-handle.ts';
import { type ClientProgram, READ_TIMEOUT_MS } from '../program.ts';
import type { Workload } from '../workload.ts';
import { type OwnFile, oneWriterFilesOf } from './one-writer-files.ts';
import { createFile, perRun, textOf } from './parts.ts';

const SIZE_MAX = 9_000;
const PIECE_MAX = 5_000;
const STEPS_MAX = 12;
const THINK_MS_MAX = 90;

const ownFilesOf = perRun((): OwnFile[] => []);

/** A client of the library changes a file of its own, and flushes it sometimes; all programs read it. */
export const syncedFiles: Workload = {
  name: 'synced-files',
  demands: ['file flushed by a client'],
  toleratesPowerOfAll: true,
  async client(program) {
    const files = oneWriterFilesOf(program.run);
    while (!program.isEnding) {
      const volume = program.draw.pick(program.run.cluster.volumes);
      const path = `/synced-${program.run.fresh()}`;
      const own = files.add({ run: program.run, volume }, path);
      ownFilesOf(program.run).push(own);
      const change = own.judge.begin('', { isAtomic: true });
      const created = await program.attempt('create', () =>
        createFile(program.client, { volume, path }, true, program.patience()),
      );
      if (created === null) {
        change.failed();
        continue;
      }
      change.done();
      await changed(program, own, program.client.openFile(created.inode, created));
    }
  },
  async settle(run, client) {
    for (const { volume, path, judge } of ownFilesOf(run)) {
      const calledNs = run.nowNs();
      const found = await orMissing(() => client.resolve(volume, path));
      if (found !== undefined) judge.presence('a client, at the end,', calledNs, found !== null);
    }
  },
};

async function changed(program: ClientProgram, { judge }: OwnFile, handle: FileHandle): Promise<void> {
  const { draw, run } = program;
  const { lossesNs } = run.cluster;
  const lossCount = lossesNs.length;
  let bytes = Buffer.alloc(0);
  for (let steps = draw.integer(1, STEPS_MAX); steps > 0 && !program.isEnding; steps--) {
    const step = draw.integer(0, 9);
    if (step < 3) {
      if ((await program.attempt('flush', () => handle.flush(program.patience()))) === null) {
        // It may have reported lost changes: the contents are not known any more.
        if (lossesNs.length > lossCount) return;
        continue;
      }
      judge.synced('contents');
      run.count('file flushed by a client');
    } else if (step < 5) {
      const calledNs = run.nowNs();
      const contents = await read(handle);
      if (contents !== undefined) judge.read(program.name, calledNs, contents);
    } else {
      const { next, ask } = drawnChange(program, handle, bytes);
      // Linux queries size and bytes one after the other: a mount may read the new size and the old bytes.
      const kind = { isAtomic: run.cluster.shape.mounts === 0, isPart: true };
      const change = judge.begin(next.toString('latin1'), kind);
      if ((await program.attempt('write', ask)) === null) return change.failed();
      change.done();
      bytes = next;
      run.completed++;
    }
    await program.think(THINK_MS_MAX);
  }
}

/** @returns the bytes after the change, and the call */
function drawnChange(
  program: ClientProgram,
  handle: FileHandle,
  bytes: Buffer<ArrayBuffer>,
): { readonly next: Buffer<ArrayBuffer>; readonly ask: () => Promise<unknown> } {
  const { draw, run } = program;
  if (draw.chance(0.2)) {
    const sizeBytes = draw.integer(0, SIZE_MAX);
    const next = Buffer.alloc(sizeBytes);
    bytes.copy(next);
    return { next, ask: () => handle.truncate(sizeBytes, program.patience()) };
  }
  const length = draw.integer(1, draw.chance(0.8) ? 100 : PIECE_MAX);
  const data = Buffer.from(`${run.fresh()}.`.repeat(Math.ceil(length / 5)).slice(0, length), 'latin1');
  const at = draw.integer(0, Math.min(bytes.length, SIZE_MAX));
  const next = Buffer.alloc(Math.max(bytes.length, at + length));
  bytes.copy(next);
  data.copy(next, at);
  return { next, ask: () => handle.write(at, data, program.patience()) };
}

function read(handle: FileHandle): Promise<string | null | undefined> {
  return orMissing(() => textOf(handle, 0, 4 * SIZE_MAX, { timeoutMs: READ_TIMEOUT_MS }));
}

/** @returns null if the file does not exist, undefined if that is not known */
async function orMissing<Contents>(ask: () => Promise<Contents>): Promise<Contents | null | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    return error.code === 'not-found' ? null : undefined;
  }
}
