import { ServiceError } from '../../../../base/errors.ts';
import type { ClusterClient } from '../../../../client/cluster-client.ts';
import { type ClientProgram, ignoreKernelError, type MountProgram, READ_TIMEOUT_MS } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';

/** The search for an order grows with the operations on one key: after so many another directory is used. */
const OPERATIONS_MAX = 90;
/** Of each volume, at the same time. */
const DIRECTORIES = 2;
const NAMES = 5;
const THINK_MS_MAX = 100;
const MOUNT_THINK_MS_MAX = 80;
const RENAME_NOREPLACE = 1;
const OWNER = { uid: 0, gid: 0 } as const;

interface SharedDirectory {
  readonly volume: string;
  readonly path: string;
  readonly key: string;
  /** Clients of the library alone use it: it has files, too. */
  readonly isFree: boolean;
  operations: number;
  /** Once a client of the library knows it. */
  inode: number | null;
}

class SharedDirectories {
  readonly current: SharedDirectory[] = [];
  readonly all: SharedDirectory[] = [];

  add(run: Run, volume: string, isFree: boolean): SharedDirectory {
    const path = `/d-${run.fresh()}`;
    const directory = {
      ...{ volume, path, key: `directory/${volume}${path}`, isFree, operations: 0, inode: null },
    };
    this.current.push(directory);
    this.all.push(directory);
    return directory;
  }

  used(directory: SharedDirectory): void {
    directory.operations++;
    if (directory.operations > OPERATIONS_MAX && this.current.includes(directory))
      this.current.splice(this.current.indexOf(directory), 1);
  }
}

const make = (): SharedDirectories => new SharedDirectories();

function pickDirectory(program: ClientProgram): SharedDirectory {
  const { run, draw } = program;
  const directories = run.state(make);
  const volume = draw.pick(run.cluster.volumes);
  const own = directories.current.filter((directory) => directory.volume === volume);
  const isFree = run.cluster.shape.mounts === 0 || draw.chance(0.5);
  return own.length < DIRECTORIES ? directories.add(run, volume, isFree) : draw.pick(own);
}

/** @returns the inode of the directory, which is made where it does not exist yet, or null where that failed */
async function inodeOf(program: ClientProgram, directory: SharedDirectory): Promise<number | null> {
  if (directory.inode !== null) return directory.inode;
  const { volume, path } = directory;
  const attributes = await program.attempt('mkdir', async () => {
    const command = { kind: 'make-directory', place: { volume, path }, mode: 0o755, ...OWNER } as const;
    try {
      return (await program.client.command(command, program.patience())).attributes;
    } catch (error) {
      if (!(error instanceof ServiceError && error.code === 'exists')) throw error;
      return await program.client.resolve(volume, path, { timeoutMs: READ_TIMEOUT_MS });
    }
  });
  if (attributes === null) return null;
  if (directory.inode !== null && directory.inode !== attributes.inode)
    program.run.violation(`${directory.key} has two inodes: ${directory.inode} and ${attributes.inode}`);
  directory.inode = attributes.inode;
  return attributes.inode;
}

/** @returns what stands behind a name, as histories have it */
async function lookup(client: ClusterClient, parent: number, name: string): Promise<string | null> {
  try {
    const { attributes } = await client.query(
      { kind: 'lookup', parent, name },
      { timeoutMs: READ_TIMEOUT_MS },
    );
    return attributes.kind === 'symlink' ? attributes.target : `u${attributes.uid}`;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'not-found') return null;
    throw error;
  }
}

/** A row happens as often as it stands here. */
const CLIENT_USES = [...['lookup', 'lookup', 'symlink', 'file', 'unlink', 'rename', 'rename']] as const;

async function clientTurn(program: ClientProgram): Promise<void> {
  const { run, draw, client } = program;
  const directory = pickDirectory(program);
  const { key, isFree } = directory;
  const parent = await inodeOf(program, directory);
  if (parent === null) return;
  run.state(make).used(directory);
  const name = `n${draw.integer(1, NAMES)}`;
  const place = { parent, name };
  const drawn = draw.pick(CLIENT_USES);
  switch (drawn === 'file' && !isFree ? 'symlink' : drawn) {
    case 'lookup':
      return program.operation('lookup', key, { name }, {}, () => lookup(client, parent, name));
    case 'symlink': {
      const value = run.fresh();
      const command = { kind: 'symlink', place, target: value, ...OWNER } as const;
      return program.operation('create', key, { name, value }, { exists: false }, async () => {
        await client.command(command, program.patience());
        return true;
      });
    }
    case 'file': {
      const uid = run.freshNumber();
      const command = { kind: 'create-file', place, mode: 0o644, uid, gid: 0, exclusive: true } as const;
      return program.operation('create', key, { name, value: `u${uid}` }, { exists: false }, async () => {
        await client.command(command, program.patience());
        return true;
      });
    }
    case 'unlink':
      return program.operation('unlink', key, { name }, { 'not-found': false }, async () => {
        await client.command({ kind: 'unlink', place }, program.patience());
        return true;
      });
    case 'rename': {
      const to = `n${draw.integer(1, NAMES)}`;
      if (to === name) return;
      const noReplace = draw.chance(0.5);
      const mode = noReplace ? 'no-replace' : 'replace';
      const refusals = { 'not-found': false, exists: false };
      return program.operation('rename', key, { from: name, to, noReplace }, refusals, async () => {
        const command = { kind: 'rename', from: place, to: { parent, name: to }, mode } as const;
        await client.command(command, program.patience());
        return true;
      });
    }
  }
}

const MOUNT_USES = [...['lookup', 'lookup', 'symlink', 'unlink', 'rename', 'rename']] as const;

async function mountTurn(program: MountProgram): Promise<void> {
  const { run, draw, volume, process } = program;
  const directories = run.state(make);
  const own = directories.current.filter((one) => one.volume === volume && !one.isFree);
  const directory = own.length < DIRECTORIES ? directories.add(run, volume, false) : draw.pick(own);
  directories.used(directory);
  const { key, path: folder } = directory;
  await process.mkdir(folder).catch(ignoreKernelError);
  const name = `n${draw.integer(1, NAMES)}`;
  const path = `${folder}/${name}`;
  switch (draw.pick(MOUNT_USES)) {
    case 'lookup':
      return program.operation('lookup', key, { name }, { ENOENT: null }, () => process.readlink(path));
    case 'symlink': {
      const value = run.fresh();
      return program.operation('create', key, { name, value }, { EEXIST: false }, async () => {
        await process.symlink(value, path);
        return true;
      });
    }
    case 'unlink':
      return program.operation('unlink', key, { name }, { ENOENT: false }, async () => {
        await process.unlink(path);
        return true;
      });
    case 'rename': {
      const to = `n${draw.integer(1, NAMES)}`;
      if (to === name) return;
      // Linux renames one name of a file to another of it by doing nothing, and with `ttl` an outdated name may be one of it.
      const noReplace = run.cluster.shape.cache === 'ttl' || draw.chance(0.5);
      const refusals = { ENOENT: false, EEXIST: false };
      return program.operation('rename', key, { from: name, to, noReplace }, refusals, async () => {
        await process.rename(path, `${folder}/${to}`, noReplace ? RENAME_NOREPLACE : 0);
        return true;
      });
    }
  }
}

/** Looks all names up once more, so that the last state of each directory is part of the history. */
async function lookupAll(run: Run, client: ClusterClient): Promise<void> {
  for (const { volume, path, key } of run.state(make).all) {
    const attributes = await client.resolve(volume, path).catch((error: unknown) => {
      if (error instanceof ServiceError && error.code === 'not-found') return null;
      throw error;
    });
    for (let number = 1; number <= NAMES; number++) {
      const name = `n${number}`;
      const call = run.nowNs();
      const output = attributes === null ? null : await lookup(client, attributes.inode, name);
      run.history.push({
        ...{ client: 'reader', key, call, return: run.nowNs(), status: 'ok' },
        ...{ op: 'lookup', input: { name }, output },
      });
    }
  }
}

/** A name that is flushed survives a loss of power of all servers. */
async function flushName(run: Run, client: ClusterClient): Promise<(client: ClusterClient) => Promise<void>> {
  const path = `/kept-${run.fresh()}`;
  const [volume] = run.cluster.volumes as [string];
  await client.command({ kind: 'symlink', place: { volume, path }, target: 'kept', ...OWNER });
  await client.flushCatalog();
  return async (after) => {
    const { target } = await after.resolve(volume, path, { follow: false });
    if (target !== 'kept') run.violation('a name that was flushed is another one after a loss of power');
  };
}

/** Create, rename, unlink, lookup by clients and mounts: linearizable per directory. */
export const names: Workload = {
  name: 'names',
  demands: [],
  async client(program) {
    while (!program.isEnding) {
      await clientTurn(program);
      await program.think(THINK_MS_MAX);
    }
  },
  async mount(program) {
    while (!program.isEnding) {
      await mountTurn(program);
      await program.think(MOUNT_THINK_MS_MAX);
    }
  },
  settle: lookupAll,
  flush: flushName,
};
