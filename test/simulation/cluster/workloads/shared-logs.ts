import { constants } from 'node:fs';
import { KernelError } from '../../kernel/kernel-error.ts';
import type { ClientProgram, MountProgram } from '../program.ts';
import type { Workload } from '../workload.ts';
import { createFile, perRun, Rotation, textOf, turns } from './parts.ts';

const { O_APPEND, O_CREAT, O_EXCL, O_WRONLY } = constants;
const USES_MAX = 12;
const STEPS_MAX = 8;
const THINK_MS_MAX = 150;
const LOG_BYTES_MAX = 1 << 20;
/** A log that was not synced may be lost with its name. */
const GONE = ['ENOENT', 'ESTALE', 'not-found'];

interface SharedLog {
  readonly volume: string;
  readonly path: string;
  /** Lines that a sync has covered, each with the name of the program that synced it. */
  readonly synced: Map<string, string>;
}

/** A log as one program has it open. */
interface OpenLog {
  append(line: string): Promise<unknown>;
  sync(): Promise<unknown>;
  close(): Promise<unknown>;
}

const stateOf = perRun(() => ({ current: new Rotation<SharedLog>(), all: [] as SharedLog[] }));

function logOf({ run, draw }: ClientProgram | MountProgram, volumes: readonly string[]): SharedLog {
  const { current, all } = stateOf(run);
  const volume = draw.pick(volumes);
  return current.current(volume, USES_MAX, () => {
    const log = { volume, path: `/shared-${run.fresh()}`, synced: new Map<string, string>() };
    all.push(log);
    return log;
  });
}

/** Appends, and syncs sometimes; a call that fails may have taken effect, or may report a loss. */
async function use(
  program: ClientProgram | MountProgram,
  log: SharedLog,
  open: () => Promise<OpenLog>,
): Promise<void> {
  const { draw, name, run } = program;
  const opened: OpenLog[] = [];
  await program.outcome('open', GONE, async () => opened.push(await open()));
  const [file] = opened;
  if (file === undefined) return;
  let appended: string[] = [];
  for (let steps = draw.integer(1, STEPS_MAX); steps > 0 && !program.isEnding; steps--) {
    const line = run.fresh();
    const isSync = draw.chance(0.3);
    const isDone = await program.outcome(isSync ? 'sync' : 'append', GONE, () =>
      isSync ? file.sync() : file.append(`${line}\n`),
    );
    run.note(`${name}: ${isSync ? 'sync' : `append ${line}`} of ${log.path}: ${isDone}`);
    if (isDone !== true) appended = [];
    else if (!isSync) appended.push(line);
    else {
      for (const each of appended) log.synced.set(each, name);
      appended = [];
      run.count('shared log synced');
    }
    await program.think(THINK_MS_MAX);
  }
  if (!(program as { isEnding: boolean }).isEnding) await program.outcome('close', GONE, () => file.close());
}

async function openByClient(program: ClientProgram, { volume, path }: SharedLog): Promise<OpenLog> {
  const { client } = program;
  const attributes = await createFile(client, { volume, path }, false, program.patience());
  const handle = client.openFile(attributes.inode, attributes);
  return {
    append: (line) => handle.write('append', Buffer.from(line, 'latin1'), program.patience()),
    sync: () => handle.flush(program.patience()),
    close: () => Promise.resolve(),
  };
}

async function openByMount({ process }: MountProgram, { path }: SharedLog): Promise<OpenLog> {
  const how = O_WRONLY | O_APPEND;
  const file = await process.open(path, how | O_CREAT | O_EXCL).catch((error: unknown) => {
    if (!(error instanceof KernelError) || error.errno !== 'EEXIST') throw error;
    return process.open(path, how);
  });
  return {
    append: (line) => process.write(file, Buffer.from(line, 'latin1')),
    sync: () => process.fsync(file),
    close: () => process.close(file),
  };
}

/**
 * Logs to which programs of all clients and mounts append, each through descriptors that it keeps open. A line that a
 * sync has covered must be there at the end, whatever other programs have written to the log and however often all
 * servers have lost their power.
 */
export const sharedLogs: Workload = {
  name: 'shared-logs',
  demands: ['shared log synced'],
  toleratesPowerOfAll: true,
  client: turns(THINK_MS_MAX, (program) => {
    const log = logOf(program, program.run.cluster.volumes);
    return use(program, log, () => openByClient(program, log));
  }),
  mount: turns(THINK_MS_MAX, (program) => {
    const log = logOf(program, [program.volume]);
    return use(program, log, () => openByMount(program, log));
  }),
  async settle(run, client) {
    for (const { volume, path, synced } of stateOf(run).all) {
      if (synced.size === 0) continue;
      const found = await client.resolve(volume, path);
      const text = await textOf(client.openFile(found.inode, found), 0, LOG_BYTES_MAX);
      const lines = new Set(text.split('\n'));
      for (const [line, who] of synced)
        if (!lines.has(line)) run.violation(`${path}: ${who} has synced ${line}, and it is gone`);
    }
  },
};
