import { constants } from 'node:fs';
import { ServiceError } from '../../../../base/errors.ts';
import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import type { Operation } from '../../../history/operation.ts';
import { ignoreKernelError } from '../../kernel/kernel-error.ts';
import type { Process } from '../../kernel/process.ts';
import { type ClientProgram, type MountProgram, READ_TIMEOUT_MS } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';
import { createFile, perRun, ROOT_OWNS, Rotation, turns } from './parts.ts';

const { O_CREAT, O_EXCL, O_WRONLY, S_IFREG } = constants;
const OPERATIONS_MAX = 80;
const NAMES = 4;
const THINK_MS_MAX = 80;
const RENAME_NOREPLACE = 1;
/** The first user id: the owner of a name identifies the operation that created it. */
const FIRST_UID = 10_000;
/** The share of directories that have directories in them. */
const OF_DIRECTORIES = 0.2;
/** Each entry has the same probability. */
const USES = [...['lookup', 'lookup', 'lookup', 'unlink', 'unlink', 'rename', 'rename', 'create']] as const;

/** A directory in which all kinds of programs create and remove names. */
interface Folder {
  readonly volume: string;
  readonly path: string;
  readonly key: string;
  /** Whether its entries are directories; otherwise all other kinds. */
  readonly isOfDirectories: boolean;
}

class Folders {
  readonly #current = new Rotation<Folder>();
  readonly all: Folder[] = [];

  pick({ draw, run }: ClientProgram | MountProgram, volume: string): Folder {
    const isOfDirectories = draw.chance(OF_DIRECTORIES);
    return this.#current.current(`${volume} ${isOfDirectories}`, OPERATIONS_MAX, () => {
      const path = `/d-${run.fresh()}`;
      const folder = { volume, path, key: `directory/${volume}${path}`, isOfDirectories };
      this.all.push(folder);
      return folder;
    });
  }
}

const foldersOf = perRun(() => new Folders());

/** The calls of one kind of program on paths of a volume. */
interface User {
  /** The error codes for absent and for existing names. */
  readonly missing: string;
  readonly exists: string;
  lookup(path: string): Promise<string>;
  /** @param isAhead the cluster may execute it after its answer or, if the mount is disconnected, not at all */
  readonly isAhead: boolean;
  remove(path: string): Promise<unknown>;
  rename(from: string, to: string, noReplace: boolean): Promise<unknown>;
  /** Ways to create a name exclusively, as a user; `own` is another name that only its creator knows. */
  readonly ways: Readonly<Record<string, (path: string, own: string, uid: number) => Promise<unknown>>>;
}

async function turn(
  program: ClientProgram | MountProgram,
  { key, path: folder }: Folder,
  user: User,
): Promise<void> {
  const { draw, run } = program;
  const { missing, exists } = user;
  const name = `n${draw.integer(1, NAMES)}`;
  const path = `${folder}/${name}`;
  switch (draw.pick(USES)) {
    case 'lookup':
      return program.operation('lookup', key, { name }, { [missing]: null }, () => user.lookup(path));
    case 'unlink': {
      const place = run.history.length;
      await program.operation('unlink', key, { name }, { [missing]: false }, async () => {
        await user.remove(path);
        return true;
      });
      const operation = run.history[place] as { -readonly [Field in keyof Operation]: Operation[Field] };
      if (user.isAhead && operation.output === true)
        Object.assign(operation, { status: 'unknown', output: null, return: null });
      return;
    }
    case 'rename': {
      const to = `n${draw.integer(1, NAMES)}`;
      if (to === name) return;
      // A rename between two links of one file does nothing on Linux, and with `ttl` an outdated name may be such a
      // link.
      const noReplace = run.cluster.shape.cache === 'ttl' || draw.chance(0.5);
      const refusals = { [missing]: false, [exists]: false };
      return program.operation('rename', key, { from: name, to, noReplace }, refusals, async () => {
        await user.rename(path, `${folder}/${to}`, noReplace);
        return true;
      });
    }
    case 'create': {
      const uid = FIRST_UID + run.freshNumber();
      const [way, make] = draw.pick(Object.entries(user.ways));
      return program.operation('create', key, { name, value: `u${uid}` }, { [exists]: false }, async () => {
        await make(path, `${folder}/own-${uid}`, uid);
        run.count(`exclusive ${way}`);
        return true;
      });
    }
  }
}

async function clientTurn(program: ClientProgram, made: Set<Folder>): Promise<void> {
  const { client, draw, run } = program;
  const folder = foldersOf(run).pick(program, draw.pick(run.cluster.volumes));
  const { isOfDirectories, volume } = folder;
  const at = (path: string) => ({ place: { volume, path } });
  const command = (what: Parameters<ClusterClient['command']>[0]) => client.command(what, program.patience());
  const directory = (path: string, uid: number) =>
    command({ kind: 'make-directory', ...at(path), mode: 0o777, uid, gid: uid });
  if (!made.has(folder)) {
    if ((await program.outcome('mkdir', ['exists'], () => directory(folder.path, 0))) === null) return;
    made.add(folder);
  }
  const own = (path: string, uid: number) =>
    createFile(client, at(path).place, false, program.patience(), uid);
  const rename = (from: string, to: string, noReplace: boolean) =>
    command({
      kind: 'rename',
      from: at(from).place,
      to: at(to).place,
      mode: noReplace ? 'no-replace' : 'replace',
    });
  await turn(program, folder, {
    ...{ missing: 'not-found', exists: 'exists', isAhead: false, rename },
    lookup: async (path) =>
      `u${(await client.resolve(volume, path, { follow: false, timeoutMs: READ_TIMEOUT_MS })).uid}`,
    remove: (path) => command({ kind: isOfDirectories ? 'remove-directory' : 'unlink', ...at(path) }),
    ways: isOfDirectories
      ? { 'make-directory': (path, _own, uid) => directory(path, uid) }
      : {
          'create-file': (path, _own, uid) =>
            createFile(client, at(path).place, true, program.patience(), uid),
          symlink: (path, _own, uid) =>
            command({ kind: 'symlink', ...at(path), target: 'target', uid, gid: uid }),
          link: async (path, other, uid) =>
            command({ kind: 'link', inode: (await own(other, uid)).inode, ...at(path) }),
          rename: async (path, other, uid) => {
            await own(other, uid);
            await rename(other, path, true);
          },
        },
  });
}

const made = async (maker: Process, path: string): Promise<void> =>
  maker.close(await maker.open(path, O_WRONLY | O_CREAT | O_EXCL));

type Way = (maker: Process, path: string, own: string) => Promise<void>;

const MOUNT_WAYS: Readonly<Record<string, Way>> = {
  open: made,
  mknod: (maker, path) => maker.mknod(path, S_IFREG | 0o644),
  symlink: (maker, path) => maker.symlink('target', path),
  link: async (maker, path, own) => {
    await made(maker, own);
    await maker.link(own, path);
  },
  rename: async (maker, path, own) => {
    await made(maker, own);
    await maker.rename(own, path, RENAME_NOREPLACE);
  },
};
const DIRECTORY_WAYS: Readonly<Record<string, Way>> = { mkdir: (maker, path) => maker.mkdir(path) };

async function mountTurn(program: MountProgram): Promise<void> {
  const { run, volume, process, machine } = program;
  const folder = foldersOf(run).pick(program, volume);
  const { isOfDirectories } = folder;
  await process.mkdir(folder.path, 0o777).catch(ignoreKernelError);
  const ways = Object.entries(isOfDirectories ? DIRECTORY_WAYS : MOUNT_WAYS).map(
    ([name, make]) =>
      [
        name,
        async (path: string, own: string, uid: number) => {
          const maker = machine.model.process({ uid, gid: uid, groups: [uid] });
          await make(maker, path, own).finally(() => maker.exit());
        },
      ] as const,
  );
  await turn(program, folder, {
    ...{ missing: 'ENOENT', exists: 'EEXIST', ways: Object.fromEntries(ways) },
    // From the third unlink of files in one directory on, a mount may return before the cluster has it, except with
    // `cache=strict`.
    isAhead: machine.cache !== 'strict' && !isOfDirectories,
    lookup: async (path) => `u${(await process.lstat(path)).uid}`,
    remove: (path) => (isOfDirectories ? process.rmdir(path) : process.unlink(path)),
    rename: (from, to, noReplace) => process.rename(from, to, noReplace ? RENAME_NOREPLACE : 0),
  });
}

/** Looks all names up once more, so that the last state of each directory is part of the history. */
async function lookupAll(run: Run, client: ClusterClient): Promise<void> {
  for (const { volume, path, key } of foldersOf(run).all) {
    for (let number = 1; number <= NAMES; number++) {
      const name = `n${number}`;
      const call = run.nowNs();
      const found = await client
        .resolve(volume, `${path}/${name}`, { follow: false })
        .catch((error: unknown) => {
          if (error instanceof ServiceError && error.code === 'not-found') return null;
          throw error;
        });
      run.history.push({
        ...{ client: 'reader', key, call, return: run.nowNs(), status: 'ok' },
        ...{ op: 'lookup', input: { name }, output: found === null ? null : `u${found.uid}` },
      });
    }
  }
}

/** Asserts that a flushed name survives a loss of power of all servers. */
async function flushName(run: Run, client: ClusterClient): Promise<(client: ClusterClient) => Promise<void>> {
  const path = `/kept-${run.fresh()}`;
  const [volume] = run.cluster.volumes as [string];
  await client.command({ kind: 'symlink', place: { volume, path }, target: 'kept', ...ROOT_OWNS });
  await client.flushCatalog();
  return async (after) => {
    const { target } = await after.resolve(volume, path, { follow: false });
    if (target !== 'kept') run.violation('a name that was flushed is another one after a loss of power');
  };
}

/**
 * Clients and mounts create names exclusively in all ways, look them up, rename and remove them: linearizable per
 * directory. So a name is a lock for the program that has created it, until it removes the name.
 */
export const names: Workload = {
  name: 'names',
  demands: ['open', 'mknod', 'symlink', 'link', 'rename', 'mkdir', 'create-file', 'make-directory'].map(
    (way) => `exclusive ${way}`,
  ),
  client: turns(THINK_MS_MAX, clientTurn, () => new Set()),
  mount: turns(THINK_MS_MAX, mountTurn),
  settle: lookupAll,
  flush: flushName,
};
