import { constants } from 'node:fs';
import { ServiceError } from '../../../../base/errors.ts';
import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import type { FileHandle } from '../../../../client/cluster/file-handle.ts';
import { type ClientProgram, type MountProgram, READ_TIMEOUT_MS } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';
import { createFile, perRun, textOf, turns } from './parts.ts';

const { O_APPEND, O_CREAT, O_RDONLY, O_WRONLY } = constants;
const OBJECT_BYTES = 4_096;
/** The search for an order grows with the operations on one key: after so many another file is used. */
const OPERATIONS_MAX = 70;
/** The number of files in use in each volume. */
const FILES = 4;
/**
 * Linux queries size and bytes of a file one after the other, above any file system. So a file that mounts use has
 * slots: each write is of one slot, and each read, which finds its old or new value, or none.
 */
const SLOT_BYTES = 4;
const SLOTS = 5;
const FREE_BYTES = 20;
const THINK_MS_MAX = 100;
const MOUNT_THINK_MS_MAX = 80;
const READING = { timeoutMs: READ_TIMEOUT_MS } as const;
const SETTLING = { timeoutMs: 120_000 } as const;
/** The number of files that are flushed before all servers lose their power. */
const FLUSHED_FILES = 3;

export interface SharedFile {
  readonly volume: string;
  readonly path: string;
  readonly key: string;
  /** Only clients of the library use it: they write and read any range. */
  readonly isFree: boolean;
  /** The offset of its bytes: in one object, or across the end of one. */
  readonly low: number;
  operations: number;
  /** Null until a client of the library knows it. */
  inode: number | null;
  replicas: readonly string[];
}

/** The files that all programs of a run use. */
class SharedFiles {
  /** Those in use, of all volumes. */
  readonly current: SharedFile[] = [];
  /** All that were ever in use. */
  readonly all: SharedFile[] = [];

  /** @returns a new file that programs may use from now on; the first use creates it */
  add(run: Run, volume: string, isFree: boolean, isLow: boolean): SharedFile {
    const path = `/f-${run.fresh()}`;
    const low = isFree && !isLow ? OBJECT_BYTES - 12 : 0;
    const file: SharedFile = {
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
}

export const sharedFilesOf = perRun(() => new SharedFiles());

/** Files are never unlinked: the inode of a path stays the same. */
function learn(
  run: Run,
  file: SharedFile,
  { inode, replicas }: Pick<SharedFile, 'inode' | 'replicas'>,
): void {
  if (file.inode !== null && file.inode !== inode)
    run.violation(`${file.key} was inode ${file.inode}, and is inode ${inode}`);
  file.inode = inode;
  file.replicas = replicas;
}

function opened(client: ClusterClient, { inode, replicas }: SharedFile): FileHandle {
  return client.openFile(inode as number, { replicas });
}

/** The calls of one use of a file, by a handle of the library or on a mount; outputs are as in histories. */
interface Use {
  readonly program: ClientProgram | MountProgram;
  readonly file: SharedFile;
  readonly offset: number;
  /** Draws the range of a read. */
  range(): readonly [off: number, len: number];
  read(off: number, len: number): Promise<string>;
  size(): Promise<number>;
  write(off: number, data: Buffer): Promise<number | null>;
  append(data: Buffer): Promise<number | null>;
  truncate(size: number): Promise<number | null>;
  /** Null for mounts. */
  readonly handle: FileHandle | null;
}

const USES = {
  read: ({ program, file, ...use }: Use) => {
    const [off, len] = use.range();
    return program.operation('pread', file.key, { off, len }, {}, () => use.read(off, len));
  },
  size: ({ program, file, size }: Use) => program.operation('size', file.key, null, {}, size),
  write: ({ program, file, offset: off, write }: Use) => {
    const data = program.run.fresh();
    return program.operation('pwrite', file.key, { off, data }, {}, () => write(off, Buffer.from(data)));
  },
  append: ({ program, file, append }: Use) => {
    const data = program.run.fresh();
    return program.operation('fappend', file.key, { data }, {}, () => append(Buffer.from(data)));
  },
  truncate: ({ program, file, offset, truncate }: Use) => {
    const size = program.draw.chance(0.3) ? 0 : offset;
    return program.operation('truncate', file.key, { size }, {}, () => truncate(size));
  },
  punch: ({ program, file, offset: from, handle }: Use) => {
    const { draw, run } = program;
    const to = from + (file.isFree ? draw.integer(1, 30) : SLOT_BYTES);
    const grows = draw.chance(0.5);
    run.count('punch');
    return program.operation('punch', file.key, { from, to, grows }, {}, async () => {
      const state = await handle?.punch(from, to, grows, (program as ClientProgram).patience());
      return state?.sizeBytes ?? null;
    });
  },
  flush: async ({ program, handle }: Use) => {
    await program.attempt('flush', async () => handle?.flush((program as ClientProgram).patience()));
    program.run.count('flush');
  },
} as const;
type UseName = keyof typeof USES;

/** Each entry has the same probability. */
const CLIENT_USES: readonly UseName[] = [
  ...([
    'read',
    'read',
    'read',
    'read',
    'size',
    'write',
    'write',
    'append',
    'truncate',
    'punch',
    'flush',
  ] as const),
];
const MOUNT_USES: readonly UseName[] = [
  ...(['read', 'read', 'read', 'write', 'append', 'size', 'size', 'truncate'] as const),
];

function pickFile({ run, draw }: ClientProgram): SharedFile {
  const files = sharedFilesOf(run);
  const volume = draw.pick(run.cluster.volumes);
  const own = files.current.filter((file) => file.volume === volume);
  const isFree = run.cluster.shape.mounts === 0 || draw.chance(0.5);
  return own.length < FILES ? files.add(run, volume, isFree, draw.chance(0.5)) : draw.pick(own);
}

async function clientTurn(program: ClientProgram, handles: Map<SharedFile, FileHandle>): Promise<void> {
  const { run, draw, client } = program;
  const file = pickFile(program);
  if (file.inode === null) {
    const created = await program.attempt('create', () =>
      createFile(client, file, false, program.patience()),
    );
    if (created === null) return;
    learn(run, file, created);
  }
  sharedFilesOf(run).used(file);
  const { isFree, low } = file;
  const known = handles.get(file);
  const handle = known === undefined || draw.chance(0.02) ? opened(client, file) : known;
  handles.set(file, handle);
  const offset = low + (isFree ? draw.integer(0, FREE_BYTES) : SLOT_BYTES * draw.integer(0, SLOTS));
  await USES[draw.pick(CLIENT_USES)]({
    ...{ program, file, offset, handle },
    range: () => (draw.chance(0.5) ? [low, 200] : [offset, isFree ? draw.integer(1, 30) : SLOT_BYTES]),
    read: (off, len) => textOf(handle, off, len, READING),
    size: async () => (await handle.state(READING)).sizeBytes,
    write: async (off, data) => (await handle.write(off, data, program.patience())).sizeBytes,
    append: async (data) => (await handle.write('append', data, program.patience())).offset,
    truncate: async (size) => (await handle.truncate(size, program.patience())).sizeBytes,
  });
}

/**
 * Each use is an open, one call, and a close: programs may rely on close-to-open only in each mode. Programs of one
 * mount use a file one after the other: while a size changes (FUSE_I_SIZE_UNSTABLE), Linux ignores sizes in the
 * mount's answers, so that a reader on that mount may see zeros to the old end, or miss what another mount has
 * appended.
 */
async function mountTurn(program: MountProgram, kept: Map<SharedFile, number>): Promise<void> {
  const { run, draw, volume, process } = program;
  const files = sharedFilesOf(run);
  const own = files.current.filter((file) => file.volume === volume && !file.isFree);
  const file = own.length < FILES / 2 ? files.add(run, volume, false, true) : draw.pick(own);
  files.used(file);
  const { path } = file;
  const changed = async (flags: number, change: (fd: number) => Promise<unknown>): Promise<null> => {
    await program.opened(path, O_WRONLY | O_CREAT | flags, change);
    return null;
  };
  await program.inTurn(path, async () => {
    const offset = SLOT_BYTES * draw.integer(0, SLOTS);
    await USES[draw.pick(MOUNT_USES)]({
      ...{ program, file, offset, handle: null },
      range: () => [offset, SLOT_BYTES],
      read: (off, len) =>
        program.opened(path, O_RDONLY | O_CREAT, async (fd) =>
          (await process.pread(fd, len, off)).toString('latin1'),
        ),
      // Linux caches the attributes of a file that stays open for as long as the mount has allowed.
      size: async () => {
        const fd = kept.get(file) ?? (await process.open(path, O_RDONLY | O_CREAT));
        kept.set(file, fd);
        return program.sizeOf(path, fd);
      },
      write: (off, data) => changed(0, (fd) => process.pwrite(fd, data, off)),
      append: (data) => changed(O_APPEND, (fd) => process.write(fd, data)),
      truncate: (size) => changed(0, (fd) => process.ftruncate(fd, size)),
    });
  });
}

/** Reads each file once more, so that its last state is part of the history. */
async function readAll(run: Run, client: ClusterClient): Promise<void> {
  await Promise.all(sharedFilesOf(run).all.map((file) => readLast(run, client, file)));
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
    learn(run, file, await client.resolve(file.volume, file.path, { follow: false }));
    record(await textOf(opened(client, file), file.low, 4_000, SETTLING));
  } catch (error) {
    // No program has created it, or the history lacks its bytes.
    if (file.inode === null && error instanceof ServiceError && error.code === 'not-found') record('');
    else run.violation(`${file.key} cannot be read after all was healed: ${String(error)}`);
  }
}

/** Asserts that flushed files survive a loss of power of all servers. */
async function flushFiles(
  run: Run,
  client: ClusterClient,
): Promise<(client: ClusterClient) => Promise<void>> {
  const known = sharedFilesOf(run).all.filter(({ inode }) => inode !== null);
  const contents = new Map<SharedFile, string>();
  for (const file of known.slice(-FLUSHED_FILES)) {
    const handle = opened(client, file);
    await handle.write(file.low, Buffer.from(run.fresh(), 'latin1'));
    await handle.flush();
    contents.set(file, await textOf(opened(client, file), 0, 2 * OBJECT_BYTES));
  }
  return async (after) => {
    for (const [file, flushed] of contents) {
      const read = await textOf(opened(after, file), 0, 2 * OBJECT_BYTES);
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
  client: turns(THINK_MS_MAX, clientTurn, () => new Map()),
  mount: turns(MOUNT_THINK_MS_MAX, mountTurn, () => new Map()),
  settle: readAll,
  flush: flushFiles,
};
