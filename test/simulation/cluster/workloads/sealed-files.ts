import type { ClusterClient } from '../../../../client/cluster-client.ts';
import type { FileHandle } from '../../../../client/file-handle.ts';
import { type ClientProgram, READ_TIMEOUT_MS } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';

const VOLUME = 'sealed';
const REPLICAS_MAX = 3;
const OBJECT_BYTES = 4_096;
const THINK_MS_MAX = 150;
const READ_BYTES_MAX = 100_000;
const PREPARE_TIMEOUT_MS = 60_000;
const SETTLE_TIMEOUT_MS = 120_000;
/** A row is as likely as it stands here. */
const USES = [...['append', 'append', 'append', 'append', 'read', 'read', 'seal']] as const;
/** A program that has met the seal of a file uses it again so often. */
const REPEATED = 0.5;

/** A file of policy `read-only`, to which all programs append records until one of them seals it. */
interface SealedFile {
  readonly path: string;
  inode: number | null;
  replicas: readonly string[];
  readonly appended: string[];
  /** Records of appends that failed because of the seal. */
  readonly refused: string[];
  /** What reads have returned. */
  readonly reads: Set<string>;
  /** The same of reads that began after a seal was acknowledged. */
  readonly finalReads: Set<string>;
  isSealed: boolean;
}

class SealedFiles {
  readonly all: SealedFile[] = [];

  /** @returns the file that programs use now; `isNew`: another one from now on */
  current(run: Run, isNew: boolean): SealedFile {
    const last = this.all.at(-1);
    if (last !== undefined && !isNew) return last;
    const lists = { appended: [], refused: [], reads: new Set<string>(), finalReads: new Set<string>() };
    const file = { path: `/f-${run.fresh()}`, inode: null, replicas: [], isSealed: false, ...lists };
    this.all.push(file);
    return file;
  }
}

const make = (): SealedFiles => new SealedFiles();

async function create(program: ClientProgram, file: SealedFile): Promise<void> {
  const place = { volume: VOLUME, path: file.path };
  const command = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: false } as const;
  const created = await program.attempt('create', () => program.client.command(command, program.patience()));
  if (created === null) return;
  file.inode = created.attributes.inode;
  file.replicas = created.attributes.replicas;
}

function opened(client: ClusterClient, { inode, replicas }: SealedFile): FileHandle {
  return client.openFile(inode as number, { replicas });
}

async function contentsOf(handle: FileHandle, timeoutMs: number): Promise<string> {
  const { bytes } = await handle.read(0, READ_BYTES_MAX, { timeoutMs });
  return Buffer.from(bytes).toString('latin1');
}

async function use(program: ClientProgram, file: SealedFile, handle: FileHandle): Promise<void> {
  const { run, draw } = program;
  switch (draw.pick(USES)) {
    case 'append': {
      const record = run.fresh();
      const wasSealed = file.isSealed;
      const bytes = Buffer.from(record, 'latin1');
      const isDone = await program.outcome('append', ['sealed'], () =>
        handle.write('append', bytes, program.patience()),
      );
      if (isDone === true) file.appended.push(record);
      if (isDone === true && wasSealed) run.violation(`${file.path} was sealed, and takes ${record}`);
      if (isDone === false) file.refused.push(record);
      return;
    }
    case 'read': {
      const wasSealed = file.isSealed;
      const contents = await program.attempt('read', () => contentsOf(handle, READ_TIMEOUT_MS));
      if (contents === null) return;
      file.reads.add(contents);
      if (wasSealed) file.finalReads.add(contents);
      run.completed++;
      return;
    }
    case 'seal': {
      const state = await program.attempt('seal', () => handle.seal(program.patience()));
      if (state === null) return;
      if (!file.isSealed) run.count('seal');
      file.isSealed = true;
      run.completed++;
    }
  }
}

/** Seals each file, and compares what it has with the answers to programs. */
async function settle(run: Run, client: ClusterClient): Promise<void> {
  for (const file of run.state(make).all) {
    if (file.inode === null) continue;
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
    run.kept.push({ inode: file.inode, replicas: file.replicas });
    file.finalReads.add(contents);
  }
}

/** Seals survive a loss of power of all servers, with the contents. */
async function flush(run: Run): Promise<(client: ClusterClient) => Promise<void>> {
  const files = run.state(make).all.filter(({ inode }) => inode !== null);
  return async (client) => {
    for (const file of files) {
      const contents = await contentsOf(opened(client, file), SETTLE_TIMEOUT_MS);
      if (!file.finalReads.has(contents))
        run.violation(`${VOLUME}:${file.path} was sealed, and has ${contents} after a loss of power`);
    }
  };
}

/** Files that are sealed while programs append to them: each append is in the file for ever, or was refused. */
export const sealedFiles: Workload = {
  name: 'sealed-files',
  demands: ['seal', 'refused sealed'],
  async prepare(run, client) {
    const replicas = Math.min(REPLICAS_MAX, run.cluster.servers.length);
    const command = { kind: 'volume-create', name: VOLUME, replicas, objectBytes: OBJECT_BYTES } as const;
    await client.command({ ...command, policy: 'read-only' }, { timeoutMs: PREPARE_TIMEOUT_MS });
  },
  async client(program) {
    const { run, draw, client } = program;
    const files = run.state(make);
    while (!program.isEnding) {
      const last = files.all.at(-1);
      const file = files.current(
        run,
        last !== undefined && last.refused.length > 0 && !draw.chance(REPEATED),
      );
      if (file.inode === null) await create(program, file);
      if (file.inode !== null) await use(program, file, opened(client, file));
      await program.think(THINK_MS_MAX);
    }
  },
  settle,
  flush,
};
