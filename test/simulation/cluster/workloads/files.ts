import { constants } from 'node:fs';
import { ServiceError } from '../../../../base/errors.ts';
import type { ClusterClient } from '../../../../client/cluster-client.ts';
import type { FileHandle } from '../../../../client/file-handle.ts';
import { type ClientProgram, type MountProgram, READ_TIMEOUT_MS } from '../program.ts';
import type { KeptFile, Run } from '../run.ts';
import type { Workload } from '../workload.ts';

const { O_APPEND, O_CREAT, O_RDONLY, O_WRONLY } = constants;
const OBJECT_BYTES = 4_096;
/** The search for an order grows with the operations on one key: after so many another file is used. */
const OPERATIONS_MAX = 70;
/** Of each volume, at the same time. */
const FILES = 4;
/**
 * Linux asks for size and bytes of a file one after the other, above any file system. So a file that mounts use has slots: each
 * write is of one slot, and each read, which finds it as it was, as it is, or not there.
 */
const SLOT_BYTES = 4;
const SLOTS = 5;
const FREE_BYTES = 20;
const THINK_MS_MAX = 100;
const MOUNT_THINK_MS_MAX = 80;
const SETTLE_TIMEOUT_MS = 120_000;
/** Files that are flushed before all servers lose their power. */
const FLUSHED_FILES = 3;

export interface SharedFile {
  readonly volume: string;
  readonly path: string;
  readonly key: string;
  /** Clients of the library alone use it: they write and read any range. */
  readonly isFree: boolean;
  /** Where its bytes are: in one object, or across the end of one. */
  readonly low: number;
  operations: number;
  /** Once a client of the library knows it. */
  inode: number | null;
  replicas: readonly string[];
}

/** The files that all programs of a run use. */
export class SharedFiles {
  /** In use, of all volumes. */
  readonly current: SharedFile[] = [];
  /** All there ever were. */
  readonly all: SharedFile[] = [];

  /** @returns a new file that programs may use from now on; the first use creates it */
  add(run: Run, volume: string, isFree: boolean, isLow: boolean): SharedFile {
    const path = `/f-${run.fresh()}`;
    const low = isFree && !isLow ? OBJECT_BYTES - 12 : 0;
    const file = {
      ...{ volume, path, key: `file/${volume}${path}`, isFree, low, operations: 0 },
      ...{ inode: null, replicas: [] },
    };
    this.current.push(file);
    this.all.push(file);
    return file;
  }

  used(file: SharedFile): void {
    file.operations++;
    if (file.operations > OPERATIONS_MAX && this.current.includes(file))
      this.current.splice(this.current.indexOf(file), 1);
  }

  static of(run: Run): SharedFiles {
    return run.state(make);
  }
}

const make = (): SharedFiles => new SharedFiles();

/** @returns the file, which is created where it does not exist yet, or null where that failed */
async function known(program: ClientProgram, file: SharedFile): Promise<SharedFile | null> {
  if (file.inode !== null) return file;
  const { volume, path } = file;
  const created = await program.attempt('create', async () => {
    const options = program.patience();
    const command = { kind: 'create-file', place: { volume, path }, mode: 0o644, uid: 0, gid: 0 } as const;
    return await program.client.command({ ...command, exclusive: false }, options);
  });
  if (created === null) return null;
  learn(program.run, file, created.attributes);
  return file;
}

/** Files are never unlinked: the inode behind a path stays the same. */
function learn(run: Run, file: SharedFile, { inode, replicas }: KeptFile): void {
  if (file.inode !== null && file.inode !== inode)
    run.violation(`${file.key} was inode ${file.inode}, and is inode ${inode}`);
  file.inode = inode;
  file.replicas = replicas;
}

function pickFile(program: ClientProgram): SharedFile {
  const { run, draw } = program;
  const files = SharedFiles.of(run);
  const volume = draw.pick(run.cluster.volumes);
  const own = files.current.filter((file) => file.volume === volume);
  const isFree = run.cluster.shape.mounts === 0 || draw.chance(0.5);
  if (own.length < FILES) return files.add(run, volume, isFree, draw.chance(0.5));
  return draw.pick(own);
}

async function clientTurn(program: ClientProgram, handles: Map<SharedFile, FileHandle>): Promise<void> {
  const { run, draw, client } = program;
  const file = await known(program, pickFile(program));
  if (file === null || file.inode === null) return;
  SharedFiles.of(run).used(file);
  let handle = handles.get(file);
  if (handle === undefined || draw.chance(0.02)) {
    handle = client.openFile(file.inode, { replicas: file.replicas });
    handles.set(file, handle);
  }
  const offset = file.low + (file.isFree ? draw.integer(0, FREE_BYTES) : SLOT_BYTES * draw.integer(0, SLOTS));
  await clientUse(program, file, handle, offset);
}

/** A row happens as often as it stands here. */
const CLIENT_USES = [
  ...['read', 'read', 'read', 'read', 'size', 'write', 'write', 'append', 'truncate', 'punch', 'flush'],
] as const;

async function clientUse(
  program: ClientProgram,
  { key, low, isFree }: SharedFile,
  handle: FileHandle,
  offset: number,
): Promise<void> {
  const { run, draw } = program;
  const reading = { timeoutMs: READ_TIMEOUT_MS };
  switch (draw.pick(CLIENT_USES)) {
    case 'read': {
      const [off, len] = draw.chance(0.5) ? [low, 200] : [offset, isFree ? draw.integer(1, 30) : SLOT_BYTES];
      return program.operation('pread', key, { off, len }, {}, async () => {
        const { bytes } = await handle.read(off, len, reading);
        return Buffer.from(bytes).toString('latin1');
      });
    }
    case 'size':
      return program.operation('size', key, null, {}, async () => (await handle.state(reading)).sizeBytes);
    case 'write': {
      const data = run.fresh();
      return program.operation('pwrite', key, { off: offset, data }, {}, async () => {
        return (await handle.write(offset, Buffer.from(data, 'latin1'), program.patience())).sizeBytes;
      });
    }
    case 'append': {
      const data = run.fresh();
      return program.operation('fappend', key, { data }, {}, async () => {
        return (await handle.write('append', Buffer.from(data, 'latin1'), program.patience())).offset;
      });
    }
    case 'truncate': {
      const size = draw.chance(0.3) ? 0 : offset;
      return program.operation('truncate', key, { size }, {}, async () => {
        return (await handle.truncate(size, program.patience())).sizeBytes;
      });
    }
    case 'punch': {
      const to = offset + (isFree ? draw.integer(1, 30) : SLOT_BYTES);
      const grows = draw.chance(0.5);
      run.count('punch');
      return program.operation('punch', key, { from: offset, to, grows }, {}, async () => {
        return (await handle.punch(offset, to, grows, program.patience())).sizeBytes;
      });
    }
    case 'flush':
      await program.attempt('flush', () => handle.flush(program.patience()));
      run.count('flush');
  }
}

/**
 * Each use is an open, one call, and a close: close-to-open is all that programs may count on in each mode. Programs of one mount
 * use a file one after the other: while a size changes (FUSE_I_SIZE_UNSTABLE), Linux passes over sizes that the mount answers, so
 * that a reader on that mount may see zeros to the old end, or miss what another mount has appended.
 */
async function mountTurn(program: MountProgram, kept: Map<SharedFile, number>): Promise<void> {
  const { run, draw, volume } = program;
  const files = SharedFiles.of(run);
  const own = files.current.filter((file) => file.volume === volume && !file.isFree);
  const file = own.length < FILES / 2 ? files.add(run, volume, false, true) : draw.pick(own);
  files.used(file);
  await program.inTurn(file.path, () => mountUse(program, file, kept));
}

const MOUNT_USES = [...['read', 'read', 'read', 'write', 'append', 'size', 'size', 'truncate']] as const;

async function mountUse(
  program: MountProgram,
  file: SharedFile,
  kept: Map<SharedFile, number>,
): Promise<void> {
  const { run, draw, process } = program;
  const { key, path } = file;
  const off = SLOT_BYTES * draw.integer(0, SLOTS);
  switch (draw.pick(MOUNT_USES)) {
    case 'read':
      return program.operation('pread', key, { off, len: SLOT_BYTES }, {}, () =>
        program.opened(path, O_RDONLY | O_CREAT, async (opened) =>
          (await process.pread(opened, SLOT_BYTES, off)).toString('latin1'),
        ),
      );
    case 'write': {
      const data = run.fresh();
      return program.operation('pwrite', key, { off, data }, {}, () =>
        program.opened(path, O_WRONLY | O_CREAT, async (opened) => {
          await process.pwrite(opened, Buffer.from(data), off);
          return null;
        }),
      );
    }
    case 'append': {
      const data = run.fresh();
      return program.operation('fappend', key, { data }, {}, () =>
        program.opened(path, O_WRONLY | O_APPEND | O_CREAT, async (opened) => {
          await process.write(opened, Buffer.from(data));
          return null;
        }),
      );
    }
    case 'size':
      // Of a file that stays open, Linux keeps the attributes for as long as the mount has said.
      return program.operation('size', key, null, {}, async () => {
        const opened = kept.get(file) ?? (await process.open(path, O_RDONLY | O_CREAT));
        kept.set(file, opened);
        return (await process.fstat(opened)).sizeBytes;
      });
    case 'truncate': {
      const size = draw.chance(0.3) ? 0 : off;
      return program.operation('truncate', key, { size }, {}, () =>
        program.opened(path, O_WRONLY | O_CREAT, async (opened) => {
          await process.ftruncate(opened, size);
          return null;
        }),
      );
    }
  }
}

/** Reads each file once more, so that its last state is part of the history. */
async function readAll(run: Run, client: ClusterClient): Promise<void> {
  await Promise.all(SharedFiles.of(run).all.map((file) => readLast(run, client, file)));
}

async function readLast(run: Run, client: ClusterClient, file: SharedFile): Promise<void> {
  const call = run.nowNs();
  const record = (output: string): void => {
    run.history.push({
      ...{ client: 'reader', key: file.key, call, return: run.nowNs(), status: 'ok' },
      ...{ op: 'pread', input: { off: file.low, len: 4_000 }, output },
    });
  };
  try {
    const { inode, replicas } = await client.resolve(file.volume, file.path, { follow: false });
    learn(run, file, { inode, replicas });
    run.kept.push({ inode, replicas });
    const handle = client.openFile(inode, { replicas });
    const { bytes } = await handle.read(file.low, 4_000, { timeoutMs: SETTLE_TIMEOUT_MS });
    record(Buffer.from(bytes).toString('latin1'));
  } catch (error) {
    // No program has created it, or its bytes are missed by the history.
    if (file.inode === null && error instanceof ServiceError && error.code === 'not-found') record('');
    else run.violation(`${file.key} cannot be read after all was healed: ${String(error)}`);
  }
}

/** What is flushed survives a loss of power of all servers. */
async function flushFiles(
  run: Run,
  client: ClusterClient,
): Promise<(client: ClusterClient) => Promise<void>> {
  const files = SharedFiles.of(run)
    .all.filter(({ inode }) => inode !== null)
    .slice(-FLUSHED_FILES);
  const contents = new Map<SharedFile, string>();
  const readWhole = async (reader: ClusterClient, { inode, replicas }: SharedFile): Promise<string> => {
    const { bytes } = await reader.openFile(inode as number, { replicas }).read(0, 2 * OBJECT_BYTES);
    return Buffer.from(bytes).toString('latin1');
  };
  for (const file of files) {
    const handle = client.openFile(file.inode as number, { replicas: file.replicas });
    await handle.write(file.low, Buffer.from(run.fresh(), 'latin1'));
    await handle.flush();
    contents.set(file, await readWhole(client, file));
  }
  return async (after) => {
    for (const [file, flushed] of contents) {
      const read = await readWhole(after, file);
      if (read === flushed) continue;
      const [was, is] = [JSON.stringify(flushed), JSON.stringify(read)];
      run.violation(`${file.key} was flushed with ${was} and has ${is} after a loss of power`);
    }
  };
}

/** Reads, writes, appends, truncates of files by clients and mounts: linearizable per file. */
export const files: Workload = {
  name: 'files',
  demands: ['flush', 'punch'],
  async client(program) {
    const handles = new Map<SharedFile, FileHandle>();
    while (!program.isEnding) {
      await clientTurn(program, handles);
      await program.think(THINK_MS_MAX);
    }
  },
  async mount(program) {
    const kept = new Map<SharedFile, number>();
    while (!program.isEnding) {
      await mountTurn(program, kept);
      await program.think(MOUNT_THINK_MS_MAX);
    }
  },
  settle: readAll,
  flush: flushFiles,
};
