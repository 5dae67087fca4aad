import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import type { FileHandle } from '../../../../client/cluster/file-handle.ts';
import { type ClientProgram, READ_TIMEOUT_MS } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';
import { createFile, perRun, textOf, turns } from './parts.ts';

const VOLUME = 'sealed';
const REPLICAS_MAX = 3;
const OBJECT_BYTES = 4_096;
const THINK_MS_MAX = 150;
const READ_BYTES_MAX = 100_000;
const PREPARE_TIMEOUT_MS = 60_000;
const SETTLE_TIMEOUT_MS = 120_000;
/** The number of appends around one seal, each within so long of it. */
const APPENDS = 6;
const MOMENT_MS_MAX = 6;
/** The probability that a program that has met the seal of a file uses it again. */
const REPEATED = 0.5;

/** A file of policy `read-only`, to which all programs append records until one of them seals it. */
interface SealedFile {
  readonly path: string;
  inode: number | null;
  replicas: readonly string[];
  readonly appended: string[];
  /** Records of appends that failed because of the seal. */
  readonly refused: string[];
  /** The results of reads. */
  readonly reads: Set<string>;
  /** The results of reads that began after a seal was acknowledged. */
  readonly finalReads: Set<string>;
  isSealed: boolean;
  /** The number of losses of power of all servers at its creation: an unsealed file may vanish by a later one. */
  readonly losses: number;
}

const lossesOf = ({ cluster }: Run): number => cluster.lossesNs.length;

/** @returns whether the file, or its contents, may be lost */
function mayBeLost(run: Run, { isSealed, losses }: SealedFile): boolean {
  return !isSealed && losses < lossesOf(run);
}

class SealedFiles {
  readonly all: SealedFile[] = [];

  /** @returns the file that programs use now; `isNew`: replaces it by another one */
  current(run: Run, isNew: boolean): SealedFile {
    const last = this.all.at(-1);
    if (last !== undefined && !isNew && !mayBeLost(run, last)) return last;
    const lists = { appended: [], refused: [], reads: new Set<string>(), finalReads: new Set<string>() };
    const made = { path: `/f-${run.fresh()}`, inode: null, replicas: [], isSealed: false, ...lists };
    const file = { ...made, losses: lossesOf(run) };
    this.all.push(file);
    return file;
  }
}

const sealedFilesOf = perRun(() => new SealedFiles());

async function create(program: ClientProgram, file: SealedFile): Promise<void> {
  const place = { volume: VOLUME, path: file.path };
  const ask = () => createFile(program.client, place, false, program.patience());
  const created = await program.attempt('create', ask);
  if (created === null || mayBeLost(program.run, file)) return;
  file.inode = created.inode;
  file.replicas = created.replicas;
}

function opened(client: ClusterClient, { inode, replicas }: SealedFile): FileHandle {
  return client.openFile(inode as number, { replicas });
}

function contentsOf(handle: FileHandle, timeoutMs: number): Promise<string> {
  return textOf(handle, 0, READ_BYTES_MAX, { timeoutMs });
}

type Use = (program: ClientProgram, file: SealedFile, handle: FileHandle) => Promise<void>;

const append: Use = async (program, file, handle) => {
  const { run } = program;
  const record = run.fresh();
  const wasSealed = file.isSealed;
  const bytes = Buffer.from(record, 'latin1');
  const isDone = await program.outcome('append', ['sealed'], () =>
    handle.write('append', bytes, program.patience()),
  );
  if (isDone === true && !mayBeLost(run, file)) file.appended.push(record);
  if (isDone === true && wasSealed) run.violation(`${file.path} was sealed, and takes ${record}`);
  if (isDone === false) file.refused.push(record);
};

const read: Use = async (program, file, handle) => {
  const wasSealed = file.isSealed;
  const contents = await program.attempt('read', () => contentsOf(handle, READ_TIMEOUT_MS));
  if (contents === null || mayBeLost(program.run, file)) return;
  file.reads.add(contents);
  if (wasSealed) file.finalReads.add(contents);
  program.run.completed++;
};

const seal: Use = async (program, file, handle) => {
  const { run } = program;
  const state = await program.attempt('seal', () => handle.seal(program.patience()));
  if (state === null || mayBeLost(run, file)) return;
  if (!file.isSealed) run.count('seal');
  file.isSealed = true;
  run.completed++;
  run.cluster.synced();
};

/** Appends are pending when the file is sealed, and begin during the seal. */
const sealAmidAppends: Use = async (program, file, handle) => {
  const { client } = program;
  // Then the next append waits for the catalog.
  if (program.draw.chance(0.5)) await program.attempt('settle', () => handle.settle(program.patience()));
  const late = async (use: Use): Promise<void> => {
    await program.think(MOMENT_MS_MAX);
    await use(program, file, opened(client, file));
  };
  await Promise.all([late(seal), late(read), ...Array.from({ length: APPENDS }, () => late(append))]);
  await read(program, file, handle);
};

/** Each entry has the same probability. */
const USES = [append, append, append, append, read, read, seal, sealAmidAppends] as const;

/** Seals each file, and compares its contents with the answers to programs. */
async function settle(run: Run, client: ClusterClient): Promise<void> {
  for (const file of sealedFilesOf(run).all) {
    if (file.inode === null || mayBeLost(run, file)) continue;
    const handle = opened(client, file);
    const timeoutMs = SETTLE_TIMEOUT_MS;
    await handle.seal({ timeoutMs });
    const contents = await contentsOf(handle, timeoutMs);
    const records: readonly string[] = contents.match(/.{4}/g) ?? [];
    const has = new Set(records);
    const wrong = [
      ...(has.size < records.length ? ['it has a record twice'] : []),
      ...file.appended.filter((record) => !has.has(record)).map((one) => `it lacks ${one}, which it took`),
      ...file.refused.filter((record) => has.has(record)).map((one) => `it has ${one}, which it refused`),
      ...[...file.reads].filter((read) => !contents.startsWith(read)).map((one) => `a read returned ${one}`),
      ...[...file.finalReads]
        .filter((read) => read !== contents)
        .map((one) => `sealed, it was read as ${one}`),
    ];
    for (const what of wrong) run.violation(`${VOLUME}:${file.path} has ${contents}: ${what}`);
    file.finalReads.add(contents);
  }
}

/** Asserts that seals survive a loss of power of all servers, with the contents. */
async function flush(run: Run): Promise<(client: ClusterClient) => Promise<void>> {
  const files = sealedFilesOf(run).all.filter((file) => file.inode !== null && !mayBeLost(run, file));
  return async (client) => {
    for (const file of files) {
      const contents = await contentsOf(opened(client, file), SETTLE_TIMEOUT_MS);
      if (!file.finalReads.has(contents))
        run.violation(`${VOLUME}:${file.path} was sealed, and has ${contents} after a loss of power`);
    }
  };
}

/** Files that are sealed while programs append to them: each append stays in the file, or was refused. */
export const sealedFiles: Workload = {
  name: 'sealed-files',
  demands: ['seal', 'refused sealed'],
  toleratesPowerOfAll: true,
  async prepare(run, client) {
    const replicas = Math.min(REPLICAS_MAX, run.cluster.servers.length);
    const command = {
      kind: run.cluster.volumeCreate,
      name: VOLUME,
      replicas,
      objectBytes: OBJECT_BYTES,
    } as const;
    await client.command({ ...command, policy: 'read-only' }, { timeoutMs: PREPARE_TIMEOUT_MS });
  },
  client: turns(THINK_MS_MAX, async (program) => {
    const { run, draw, client } = program;
    const files = sealedFilesOf(run);
    const last = files.all.at(-1);
    const isNew = last !== undefined && last.refused.length > 0 && !draw.chance(REPEATED);
    const file = files.current(run, isNew);
    if (file.inode === null) await create(program, file);
    if (file.inode !== null) await draw.pick(USES)(program, file, opened(client, file));
  }),
  settle,
  flush,
};
