/** Schedules in which acknowledged changes were once lost, or a file got two histories. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Caller, Result } from './names-caller.ts';
import type { ScheduleWorld } from './schedule-world.ts';

export const SCHEDULES = {
  'member-sets': memberSets,
  'lost-answer': lostAnswer,
  'late-unlink': lateUnlink,
  exclusive,
  'late-command': lateCommand,
} as const;
export type ScheduleName = keyof typeof SCHEDULES;

const CREATES = 'wronly|creat';
const CREATES_EXCLUSIVELY = 'wronly|creat|excl';
const WRITERS = 6;
const FILE_BYTES = 30_000;
/** Longer than a server waits for a majority of a new file. */
const CREATION_MS = 4_000;
const UNLINKED_FILES = 300;
/** With `ttl` the answers of a mount may be this much outdated, on a busy machine. */
const SETTLE_MS = 3_000;

/** The creating server has a fault while files are created: closed files exist, and each has one member set. */
async function memberSets(world: ScheduleWorld): Promise<void> {
  const closed = new Map<string, string>();
  let isOver = false;
  await world.caller().call(null, 'mkdir', world.one('files'));
  const writers = Array.from({ length: WRITERS }, async (_, writer) => {
    const caller = world.caller();
    for (let number = 0; !isOver; number++) {
      const name = `files/w${writer}-${number}`;
      const text = name.padEnd(FILE_BYTES, `${name} `);
      const flags = number % 2 === 0 ? CREATES : CREATES_EXCLUSIVELY;
      if (await written(caller, world.one(name), flags, text, false)) closed.set(name, text);
      else world.count('creates that failed');
      await delay(20);
    }
  });
  for (let round = 0; round < 3; round++) {
    await delay(500);
    await world.serverInTrouble(await world.catalogPrimary(), async () => undefined, CREATION_MS);
    const before = closed.size;
    for (let waits = 0; closed.size < before + WRITERS && waits < 300; waits++) await delay(100);
    if (closed.size < before + WRITERS) world.wrong.push('No files are made after the trouble');
  }
  isOver = true;
  await Promise.all(writers);
  for (const _ of closed) world.count('files');
  await world.expectContents(closed);
}

/** The answer to a creation is lost; another mount then writes the file and syncs it. */
async function lostAnswer(world: ScheduleWorld): Promise<void> {
  const expected = new Map<string, string>();
  const other = world.caller();
  await world.caller().call(null, 'mkdir', world.one('answers'));
  for (let round = 0; round < world.variant.rounds; round++) {
    const name = `answers/x${round}`;
    const caller = world.caller();
    // Earlier files have the directory delegated to the mount.
    for (let count = 0; count < 4; count++)
      await written(caller, world.one(`answers/warm${round}-${count}`), CREATES, 'warm', false);
    const flags = round % 2 === 0 ? CREATES : CREATES_EXCLUSIVELY;
    const opened = await caller.call(null, 'open', 'file', world.one(name), flags);
    await caller.call(null, 'pwrite', 'file', `${name} by its creator `.repeat(400), '0');
    const primary = await world.catalogPrimary();
    const closing = caller.call(null, 'close', 'file');
    await delay(world.prng.integer(0, 25));
    const work = async (): Promise<void> => {
      const isClosed = opened.kind === 'ok' && (await closing).kind === 'ok';
      world.count(isClosed ? 'closed' : 'close failed');
      const text = `${name} by another mount`;
      for (let attempt = 0; attempt < 10; attempt++) {
        if (await written(other, world.other(name), 'wronly|trunc', text, true)) {
          world.count(isClosed ? 'closed, then written' : 'close failed, then written');
          expected.set(name, text);
          return;
        }
        await delay(500);
      }
    };
    // A killed mount knows nothing of its request; a killed or paused server may have executed it.
    if (world.variant.trouble === 'cut') await world.mountInTrouble(work, 1_000);
    else await world.serverInTrouble(primary, work, 1_000);
    await synced(caller, world.one('answers'));
  }
  await delay(SETTLE_MS);
  await world.expectContents(expected);
}

/**
 * A mount has a fault during its asynchronous unlinks; another one writes the files that it still finds, and syncs
 * them.
 */
async function lateUnlink(world: ScheduleWorld): Promise<void> {
  const caller = world.caller();
  const other = world.caller();
  await caller.call(null, 'mkdir', world.one('unlinked'));
  const names = Array.from({ length: UNLINKED_FILES }, (_, number) => `unlinked/f${number}`);
  for (const name of names) await caller.call(null, 'put', world.one(name), `old ${name}`);
  await synced(caller, world.one('unlinked'));
  const answered: string[] = [];
  const removing = (async () => {
    for (const name of names) {
      if ((await caller.call(null, 'unlink', world.one(name))).kind !== 'ok') return;
      answered.push(name);
    }
  })();
  while (answered.length < UNLINKED_FILES / 4) await delay(1);
  const expected = new Map<string, string>();
  await world.mountInTrouble(async () => {
    const known = [...answered];
    await delay(6_000);
    for (const name of known) {
      const text = `new ${name}`;
      if (await written(other, world.other(name), 'wronly|trunc', text, true)) expected.set(name, text);
    }
    await synced(other, world.other('unlinked'));
  });
  await removing;
  world.count(
    (await synced(caller, world.one('unlinked'))) ? 'fsync of the directory' : 'fsync that reports',
  );
  for (const _ of answered) world.count('unlinks acknowledged');
  for (const _ of expected) world.count('written by the other');
  await delay(SETTLE_MS);
  await world.expectContents(expected);
}

/** Two mounts create one name exclusively by each call that may serve as a lock; the first has a fault meanwhile. */
async function exclusive(world: ScheduleWorld): Promise<void> {
  const calls = ['open', 'mkdir', 'symlink', 'link', 'rename'] as const;
  const [our, their] = [calls.map(() => world.caller()), calls.map(() => world.caller())];
  const taking = (
    callers: readonly Caller[],
    folder: string,
    by: string,
    path: (...names: string[]) => string,
  ) => {
    const steps: Readonly<Record<(typeof calls)[number], readonly string[]>> = {
      open: ['open', 'file', path(folder, 'open'), CREATES_EXCLUSIVELY],
      mkdir: ['mkdir', path(folder, 'mkdir')],
      symlink: ['symlink', by, path(folder, 'symlink')],
      link: ['link', path(folder, `${by}-linked`), path(folder, 'link')],
      rename: ['rename-with', path(folder, `${by}-moved`), path(folder, 'rename'), '1'],
    };
    return calls.map((call, place): Promise<Result> => {
      const [name = '', ...values] = steps[call];
      return (callers[place] as Caller).call('EEXIST', name, ...values);
    });
  };
  const { trouble, rounds } = world.variant;
  for (let round = 0; round < (trouble === 'kill' ? 1 : rounds); round++) {
    const folder = `locks${round}`;
    const setter = world.caller();
    await setter.call(null, 'mkdir', world.one(folder));
    for (const name of ['one-linked', 'one-moved', 'other-linked', 'other-moved', 'w1', 'w2', 'w3'])
      await setter.call(null, 'put', world.one(folder, name), name);
    await synced(setter, world.one(folder));
    // The start of a program would take too long, so the programs start before.
    await Promise.all([...our, ...their].map((caller) => caller.call(null, 'umask', '0')));
    const ours = taking(our, folder, 'one', (...names) => world.one(...names));
    await delay(world.prng.integer(0, 20));
    let theirs: readonly Result[] = [];
    await world.mountInTrouble(async () => {
      theirs = await Promise.all(taking(their, folder, 'other', (...names) => world.other(...names)));
    });
    const mine = await Promise.all(ours);
    for (const [place, call] of calls.entries()) {
      const kinds = [mine[place]?.kind, theirs[place]?.kind];
      world.count(`${kinds[0]}/${kinds[1]}`);
      if (kinds[0] === 'ok' && kinds[1] === 'ok')
        world.wrong.push(`${call} succeeded on both mounts in ${folder}`);
      if (kinds[0] === 'no' && kinds[1] === 'no')
        world.wrong.push(`${call} succeeded on no mount in ${folder}`);
    }
  }
}

/** A command is executed after its mount has stopped waiting for it: both mounts show its effect. */
async function lateCommand(world: ScheduleWorld): Promise<void> {
  const caller = world.caller();
  const other = world.caller();
  await caller.call(null, 'mkdir', world.one('late'));
  await caller.call(null, 'put', world.one('late/warm'), 'warm');
  await delay(SETTLE_MS);
  for (let round = 0; round < world.variant.rounds; round++) {
    const name = `late/x${round}`;
    const seen = (by: Caller, path: string) => by.call('ENOENT', 'stat', path, 'type');
    await seen(caller, world.one(name));
    let made = { kind: 'unknown' } as Result;
    await world.serverInTrouble(await world.catalogPrimary(), async () => {
      made = await caller.call('EEXIST', 'mkdir', world.one(name));
      // It queries until the cluster has another primary, and then caches the answer.
      for (let count = 0; count < 20; count++) {
        if ((await seen(caller, world.one(name))).kind !== 'unknown') break;
        await delay(200);
      }
    });
    await delay(SETTLE_MS);
    const [mine, theirs] = [await seen(caller, world.one(name)), await seen(other, world.other(name))];
    world.count(`mkdir ${made.kind}, then ${theirs.kind === 'ok' ? 'there' : 'absent'}`);
    if (mine.kind !== theirs.kind)
      world.wrong.push(`${name}: ${mine.kind} on one mount, ${theirs.kind} on the other`);
    if (made.kind === 'ok' && theirs.kind !== 'ok') world.wrong.push(`${name} was made, and is not there`);
  }
}

/** @returns whether all calls succeeded */
async function written(
  caller: Caller,
  path: string,
  flags: string,
  text: string,
  isSynced: boolean,
): Promise<boolean> {
  const opened = await caller.call(null, 'open', 'file', path, flags);
  if (opened.kind !== 'ok') return false;
  const wrote = await caller.call(null, 'pwrite', 'file', text, '0');
  const stored = isSynced && wrote.kind === 'ok' ? await caller.call(null, 'fsync', 'file') : wrote;
  const closed = await caller.call(null, 'close', 'file');
  return stored.kind === 'ok' && closed.kind === 'ok';
}

async function synced(caller: Caller, directory: string): Promise<boolean> {
  const opened = await caller.call(null, 'open', 'directory', directory, 'rdonly');
  if (opened.kind !== 'ok') return false;
  const done = await caller.call(null, 'fsync', 'directory');
  await caller.call(null, 'close', 'directory');
  return done.kind === 'ok';
}
