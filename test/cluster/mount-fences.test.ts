/**
 * Goal: an asynchronous unlink that a mount has acknowledged removes nothing that another mount has written and synced,
 * however late it is sent, and `fsync` of the directory reports what was dropped.
 * Method: real servers and mounts. A mount's process is stopped in the middle of an unlink streak, for longer or
 * shorter than its session; another mount overwrites the files that it still finds; then the first one resumes.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdir, open, readdir, readFile, writeFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { MountStatus } from '../../client/mounts/mount-status.ts';
import { isLong, SERVERS_OF_FORM } from '../long.ts';
import { noMounts, transportsOfForm } from '../posix/mounts.ts';
import { ClusterMount, commandOk } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const VOLUME = 'fences';
const FILES = 150;
/** Number of unlinks before the mount is stopped. */
const UNLINKED = 100;
/** Longer than a session, and shorter. */
const PAUSES_MS = [9_000, 2_000];
/**
 * Each prints the names of files whose unlink, or close, was answered, stops the mount after so many, and continues
 * with the next file.
 */
const program = (call: string): string => `
const { unlinkSync, writeFileSync, writeSync } = require('node:fs');
const [mount, count, ...names] = process.argv.slice(1);
for (const [place, name] of names.entries()) {
  ${call};
  writeSync(1, name.split('/').at(-1) + ' ');
  if (place + 1 === Number(count)) process.kill(Number(mount), 'SIGSTOP');
}`;
const UNLINKS = program('unlinkSync(name)');
const CREATES = program("writeFileSync(name, 'mine')");

const obstacle = await noMounts();

let cluster: RealCluster;

before(async () => {
  cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
  await cluster.createVolume(VOLUME);
});

after(() => cluster.stop());

/**
 * Removes or creates files one after the other until the mount is stopped after `count` of them; the program, whose
 * last call waits for the mount, is killed.
 *
 * @returns the names whose call was answered
 */
async function answeredTo(
  source: string,
  mount: ClusterMount,
  paths: readonly string[],
  count: number,
): Promise<string[]> {
  const program = spawn(process.execPath, ['-e', source, String(mount.pid), String(count), ...paths], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  const names = (): string[] => text.split(' ').slice(0, -1);
  for await (const chunk of program.stdout) {
    text += chunk;
    if (names().length >= count) break;
  }
  program.kill('SIGKILL');
  return names();
}

/** @returns false if the file no longer exists: its unlink was executed after the directory was listed */
async function written(path: string, text: string): Promise<boolean> {
  const file = await open(path, 'r+').catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
    return null;
  });
  if (file === null) return false;
  await file.truncate(0);
  await file.write(text, 0);
  await file.sync();
  await file.close();
  return true;
}

/** @returns the error of an fsync of the directory, if it fails */
async function syncError(path: string): Promise<string | undefined> {
  const directory = await open(path);
  try {
    return await directory.sync().then(
      () => undefined,
      (error: NodeJS.ErrnoException) => error.code,
    );
  } finally {
    await directory.close();
  }
}

/** Checks that the mount's status lists each dropped operation with its path, and that servers count them. */
async function reported(
  mount: ClusterMount,
  operation: 'unlink' | 'create',
  paths: readonly string[],
): Promise<void> {
  const status = async (): Promise<MountStatus | undefined> => {
    const { text } = await commandOk(['mount', 'status', '--json']);
    return (JSON.parse(text) as MountStatus[]).find(({ directory }) => directory === mount.directory);
  };
  await until('the status has all of them', async () => {
    const lateErrors = (await status())?.lateErrors.filter((late) => late.operation === operation);
    const listed = new Set(lateErrors?.map(({ path }) => path));
    return paths.every((path) => listed.has(path));
  });
  await until('servers count them', async () => {
    const pages = cluster.urls.map(async (url) => (await fetch(`${url}/metrics`)).text());
    const counts = (await Promise.all(pages)).flatMap((page) =>
      [...page.matchAll(/^leasehold_late_errors_total\{operation="([a-z]+)"\} (\d+)/gm)].map(
        ([, of, count]) => (of === operation ? Number(count) : 0),
      ),
    );
    return counts.reduce((sum, count) => sum + count, 0) >= paths.length;
  });
}

describe('unlinks of a mount that is paused', { skip: obstacle, concurrency: true }, async () => {
  for (const transport of await transportsOfForm())
    for (const pauseMs of isLong ? PAUSES_MS : PAUSES_MS.slice(-1))
      test(`remove nothing that another mount has written (${transport}, ${pauseMs} ms)`, async (t) => {
        const mount = () => ClusterMount.start(cluster, VOLUME, '--transport', transport);
        const [one, other] = [await mount(), await mount()];
        t.after(() => one.stop());
        t.after(() => other.stop());
        const folder = `${transport}-${pauseMs}`;
        await mkdir(one.path(folder));
        const names = Array.from({ length: FILES }, (_, number) => `f${number}`);
        for (const name of names) await writeFile(one.path(folder, name), `old ${name}`);
        assert.equal(await syncError(one.path(folder)), undefined);
        const paths = names.map((name) => one.path(folder, name));
        const answered = await answeredTo(UNLINKS, one, paths, UNLINKED);
        await delay(pauseMs);
        const found = new Set(await readdir(other.path(folder)));
        const rewritten: string[] = [];
        for (const name of answered.filter((name) => found.has(name)))
          if (await written(other.path(folder, name), `new ${name}`)) rewritten.push(name);
        assert.equal(await syncError(other.path(folder)), undefined);
        process.kill(one.pid, 'SIGCONT');
        // Each acknowledged operation is at the cluster afterwards, or reported as dropped.
        const error = await syncError(one.path(folder));
        t.diagnostic(
          `${answered.length} answered, ${rewritten.length} found and written by the other mount: ${error}`,
        );
        const left = new Set(await readdir(other.path(folder)));
        for (const name of rewritten) {
          assert.ok(left.has(name), `${name} was written and synced, and is missing`);
          assert.equal(await readFile(other.path(folder, name), 'utf8'), `new ${name}`);
        }
        assert.equal(error, rewritten.length === 0 ? undefined : 'EIO');
        if (error !== undefined)
          await reported(
            one,
            'unlink',
            rewritten.map((name) => `${VOLUME}:/${folder}/${name}`),
          );
        assert.equal(await syncError(one.path(folder)), undefined, 'It is reported once');
        for (const name of answered)
          assert.ok(rewritten.includes(name) || !left.has(name), `${name} was removed, and exists`);
      });
});

test('a file that was closed asynchronously and whose name was taken meanwhile is reported, and the other file is kept', {
  skip: obstacle,
}, async (t) => {
  const mount = () => ClusterMount.start(cluster, VOLUME, '-o', 'flush_behind');
  const [one, other] = [await mount(), await mount()];
  t.after(() => one.stop());
  t.after(() => other.stop());
  await mkdir(one.path('behind'));
  const paths = Array.from({ length: FILES }, (_, number) => one.path('behind', `f${number}`));
  const closed = await answeredTo(CREATES, one, paths, 50);
  await delay(9_000);
  const there = new Set(await readdir(other.path('behind')));
  const taken = closed.filter((name) => !there.has(name));
  for (const name of taken)
    await writeFile(other.path('behind', name), 'theirs', { flag: 'wx', flush: true });
  process.kill(one.pid, 'SIGCONT');
  const error = await syncError(one.path('behind'));
  t.diagnostic(`${closed.length} closed, ${taken.length} taken by the other mount: ${error}`);
  assert.equal(error, taken.length === 0 ? undefined : 'EIO');
  for (const name of taken) assert.equal(await readFile(other.path('behind', name), 'utf8'), 'theirs');
  await reported(
    one,
    'create',
    taken.map((name) => `${VOLUME}:/behind/${name}`),
  );
  assert.equal(await syncError(one.path('behind')), undefined, 'It is reported once');
});
