import { constants } from 'node:fs';
import type { Run } from '../run.ts';
import type { SimulatedProcess } from '../simulated-process.ts';
import type { Workload } from '../workload.ts';

const { O_CREAT, O_EXCL, O_WRONLY } = constants;
const HELD_MS_MAX = 30;
const THINK_MS_MAX = 150;
/** Attempts after which another name is used: what was created without an answer is locked for ever. */
const ATTEMPTS_MAX = 40;
const KINDS = ['created', 'linked'] as const;
type Kind = (typeof KINDS)[number];

/** A program that has called unlink: until it has returned, the unlink may happen. */
interface Unlink {
  readonly world: SimulatedProcess;
  isUnknown: boolean;
}

/** A name that is a lock for the one program that has created or linked it. */
class NameLock {
  readonly path: string;
  readonly kind: Kind;
  attempts = 0;
  holder: Way | null = null;
  readonly unlinks = new Set<Unlink>();

  constructor(path: string, kind: Kind) {
    this.path = path;
    this.kind = kind;
  }

  /** An unlink that was abandoned may happen at any time: the name excludes no longer. */
  get isSpoiled(): boolean {
    return [...this.unlinks].some(({ world, isUnknown }) => isUnknown || world.hasEnded);
  }
}

class NameLocks {
  readonly #locks = new Map<string, NameLock>();

  /** @returns the lock of this kind and volume that is in use */
  current(run: Run, volume: string, kind: Kind): NameLock {
    const key = `${volume} ${kind}`;
    let lock = this.#locks.get(key);
    if (lock === undefined || lock.isSpoiled || lock.attempts > ATTEMPTS_MAX) {
      lock = new NameLock(`/${kind}-${run.fresh()}`, kind);
      this.#locks.set(key, lock);
    }
    lock.attempts++;
    return lock;
  }
}

const make = (): NameLocks => new NameLocks();

/** How one program uses such a lock: each resolves to whether it succeeded, null where that is not known. */
interface Way {
  readonly name: string;
  readonly world: SimulatedProcess;
  take(lock: NameLock): Promise<boolean | null>;
  unlink(path: string): Promise<boolean | null>;
}

async function useLock(run: Run, volume: string, kind: Kind, way: Way, heldMs: number): Promise<void> {
  const lock = run.state(make).current(run, volume, kind);
  if ((await way.take(lock)) !== true) return;
  // A program that was killed does not act any more.
  if (lock.holder !== null && !lock.holder.world.hasEnded && !lock.isSpoiled)
    run.violation(`${volume}${lock.path}: ${way.name} has it, and so has ${lock.holder.name}`);
  lock.holder = way;
  lock.attempts = 0;
  run.count(`locked ${kind}`);
  await way.world.sleep(heldMs);
  if (lock.holder === way) lock.holder = null;
  const unlink: Unlink = { world: way.world, isUnknown: false };
  lock.unlinks.add(unlink);
  if ((await way.unlink(lock.path)) === null) unlink.isUnknown = true;
  else lock.unlinks.delete(unlink);
}

/** A file that is created exclusively, or a name that is linked, is a lock until its holder unlinks it. */
export const mutexes: Workload = {
  name: 'mutexes',
  demands: ['locked created', 'locked linked'],
  async client(program) {
    const { client, draw, run, name, world } = program;
    const owner = { uid: 0, gid: 0 } as const;
    while (!program.isEnding) {
      const volume = draw.pick(run.cluster.volumes);
      const make = (path: string, exclusive: boolean) =>
        client.command(
          { kind: 'create-file', place: { volume, path }, mode: 0o644, ...owner, exclusive },
          program.patience(),
        );
      await useLock(
        run,
        volume,
        draw.pick(KINDS),
        {
          ...{ name, world },
          take: (lock) =>
            program.outcome('lock', ['exists'], async () => {
              if (lock.kind === 'created') return await make(lock.path, true);
              const { inode } = (await make(`/own-${name.replace('/', '-')}`, false)).attributes;
              const command = { kind: 'link', inode, place: { volume, path: lock.path } } as const;
              return await client.command(command, program.patience());
            }),
          unlink: (path) =>
            program.outcome('unlock', ['not-found'], () =>
              client.command({ kind: 'unlink', place: { volume, path } }, program.patience()),
            ),
        },
        draw.next() * HELD_MS_MAX,
      );
      await program.think(THINK_MS_MAX);
    }
  },
  async mount(program) {
    const { process, draw, run, name, world, volume } = program;
    while (!program.isEnding) {
      await useLock(
        run,
        volume,
        draw.pick(KINDS),
        {
          ...{ name, world },
          take: (lock) =>
            program.outcome('lock', ['EEXIST'], async () => {
              if (lock.kind === 'created')
                return await process.close(await process.open(lock.path, O_WRONLY | O_CREAT | O_EXCL));
              const own = `/own-${name.replace('/', '-')}`;
              await program.opened(own, O_WRONLY | O_CREAT, async () => undefined);
              return await process.link(own, lock.path);
            }),
          unlink: (path) => program.outcome('unlock', ['ENOENT'], () => process.unlink(path)),
        },
        draw.next() * HELD_MS_MAX,
      );
      await program.think(THINK_MS_MAX);
    }
  },
};
