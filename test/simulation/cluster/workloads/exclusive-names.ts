import { constants } from 'node:fs';
import type { Operation } from '../../../history/operation.ts';
import type { Process } from '../../kernel/process.ts';
import { ignoreKernelError, type MountProgram, type Refusals } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';
import { slackNs } from './one-writer-files.ts';

const { O_CREAT, O_EXCL, O_WRONLY, S_IFREG } = constants;
const RENAME_NOREPLACE = 1;
const NAMES = 3;
const OPERATIONS_MAX = 60;
const THINK_MS_MAX = 70;
/** Users of the simulation begin here: a name shows by its owner which operation made it. */
const FIRST_UID = 10_000;
/** Two unlinks and more, in a row, of one directory may be acknowledged ahead of the cluster with `cache=ttl`. */
const AHEAD_CACHE = 'ttl';

/**
 * Names that are made exclusively, in all ways that there are: `O_EXCL`, `mkdir`, `mknod`, `symlink`, `link` and
 * RENAME_NOREPLACE. One of several programs succeeds, until the name is removed: a directory is linearizable.
 */
export const exclusiveNames: Workload = {
  name: 'exclusive-names',
  demands: ['open', 'mknod', 'symlink', 'link', 'rename', 'mkdir'].map((way) => `exclusive ${way}`),
  async mount(program) {
    while (!program.isEnding) {
      const isOfDirectories = program.draw.chance(0.25);
      const folder = Folders.of(program.run).current(program, isOfDirectories);
      const { process } = program;
      await process.mkdir(folder, 0o777).catch(ignoreKernelError);
      await step(program, folder, isOfDirectories);
      await program.think(THINK_MS_MAX);
    }
  },
};

class Folders {
  readonly #current = new Map<string, { readonly path: string; operations: number }>();

  static of(run: Run): Folders {
    return run.state(makeFolders);
  }

  current({ run, volume }: MountProgram, isOfDirectories: boolean): string {
    const key = `${volume} ${isOfDirectories}`;
    const folder = this.#current.get(key);
    if (folder !== undefined && ++folder.operations < OPERATIONS_MAX) return folder.path;
    const path = `/exclusive-${run.fresh()}`;
    this.#current.set(key, { path, operations: 1 });
    return path;
  }
}

const makeFolders = (): Folders => new Folders();

/** How a name comes to be, from another one that its maker alone knows. */
type Way = (maker: Process, path: string, own: string) => Promise<void>;

async function made(maker: Process, path: string): Promise<void> {
  await maker.close(await maker.open(path, O_WRONLY | O_CREAT | O_EXCL));
}

const WAYS: Readonly<Record<string, Way>> = {
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

async function step(program: MountProgram, folder: string, isOfDirectories: boolean): Promise<void> {
  const { draw, process, run, machine } = program;
  const key = `directory/${program.volume}${folder}`;
  const name = `n${draw.integer(1, NAMES)}`;
  const path = `${folder}/${name}`;
  const drawn = draw.integer(0, 9);
  if (drawn < 3) {
    return recorded(
      program,
      'lookup',
      key,
      { name },
      { ENOENT: null },
      async () => `u${(await process.lstat(path)).uid}`,
    );
  }
  if (drawn < 5) {
    const isAhead = machine.cache === AHEAD_CACHE && !isOfDirectories;
    return recorded(
      program,
      'unlink',
      key,
      { name },
      { ENOENT: false },
      async () => {
        await (isOfDirectories ? process.rmdir(path) : process.unlink(path));
        return true;
      },
      isAhead,
    );
  }
  if (drawn < 6) {
    const to = `n${draw.integer(1, NAMES)}`;
    if (to === name) return;
    const noReplace = draw.chance(0.5);
    const input = { from: name, to, noReplace };
    return recorded(program, 'rename', key, input, { ENOENT: false, EEXIST: false }, async () => {
      await process.rename(path, `${folder}/${to}`, noReplace ? RENAME_NOREPLACE : 0);
      return true;
    });
  }
  const uid = FIRST_UID + run.freshNumber();
  const maker = machine.model.process({ uid, gid: uid, groups: [uid] });
  const [way, make] = isOfDirectories
    ? (['mkdir', (who: Process, at: string) => who.mkdir(at)] as const)
    : draw.pick(Object.entries(WAYS));
  const own = `${folder}/own-${uid}`;
  await recorded(program, 'create', key, { name, value: `u${uid}` }, { EEXIST: false }, async () => {
    await make(maker, path, own);
    run.count(`exclusive ${way}`);
    return true;
  });
  await maker.exit();
}

/**
 * As `MountProgram.operation`; with `cache=ttl` an answer about names may be as old as its time.
 *
 * @param isAhead the cluster may do it later than it is answered, or, where the mount is cut off, not at all
 */
async function recorded(
  program: MountProgram,
  op: Operation['op'],
  key: string,
  input: Operation['input'],
  refusals: Refusals,
  ask: () => Promise<Operation['output']>,
  isAhead = false,
): Promise<void> {
  const { history } = program.run;
  const place = history.length;
  await program.operation(op, key, input, refusals, ask);
  const operation = history[place] as { -readonly [Field in keyof Operation]: Operation[Field] };
  if (operation.status !== 'ok') return;
  const isAnswer = op === 'lookup' || operation.output === false;
  if (isAnswer) operation.call -= slackNs(program);
  else if (isAhead) Object.assign(operation, { status: 'unknown', output: null, return: null });
}
