/**
 * Goal: programs that stress file systems find no fault on a mount.
 * Method: stress-ng's stressors for files, each for a few seconds and with its own checks; fs_mark; bonnie++.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { run, runOk } from '../cluster/cluster-mount.ts';
import { isLong } from '../long.ts';
import { isMissing, type OnMount, onMounts, PROGRAM_MS_MAX, skip } from './on-mount.ts';

/** With sizes that a small machine can process in the time. */
const STRESSORS: readonly (readonly [name: string, ...options: string[]])[] = [
  ['access'],
  ['aio'],
  ['chmod'],
  ['chown'],
  ['dentry', '--dentries', '64'],
  ['dir', '--dir-dirs', '64'],
  ['fallocate', '--fallocate-bytes', '4M'],
  ['fcntl'],
  ['filename', '--filename-opts', 'posix'],
  ['flock'],
  ['fpunch'],
  ['fstat'],
  ['hdd', '--hdd-bytes', '8M', '--hdd-write-size', '64K'],
  ['iomix', '--iomix-bytes', '4M'],
  ['locka'],
  ['lockf'],
  ['lockofd'],
  ['mmap', '--mmap-file', '--mmap-bytes', '4M'],
  ['msync', '--msync-bytes', '1M'],
  ['open'],
  ['readahead', '--readahead-bytes', '4M'],
  ['rename'],
  ['revio', '--revio-bytes', '4M'],
  ['seek', '--seek-size', '4M'],
  ['sendfile'],
  ['splice'],
  ['sync-file', '--sync-file-bytes', '4M'],
  ['touch'],
  ['utime'],
  ['xattr'],
];
/** stress-ng's exit codes if the machine lacks what a stressor needs. */
const NOT_SUPPORTED = [3, 4];

if (!isLong) test('stress on a mount', { skip: 'They take minutes: npm run programs' }, () => undefined);
else if (skip === false) await define();
else test('stress on a mount of a real cluster', { skip }, () => undefined);

async function define(): Promise<void> {
  const mounts = await onMounts();
  const [noStress = false, noFsMark = false, noBonnie = false] = await Promise.all(
    ['stress-ng', 'fs_mark', 'bonnie++'].map(isMissing),
  );
  for (const on of mounts) {
    for (const [name, ...options] of STRESSORS) {
      test(`${on.transport}: stress-ng --${name}`, { skip: noStress }, () => stress(on, name, options));
    }
    test(`${on.transport}: fs_mark: files of two threads, synced and read`, { skip: noFsMark }, () =>
      mark(on),
    );
    test(`${on.transport}: bonnie++`, { skip: noBonnie }, () => bonnie(on));
  }
}

async function stress({ mount, env }: OnMount, name: string, options: readonly string[]): Promise<void> {
  const folder = mount.path(`stress-${name}`);
  mkdirSync(folder);
  const words = ['--temp-path', folder, `--${name}`, '2', '--verify', '--timeout', '4', ...options];
  const { code, text } = await run('stress-ng', words, { env, timeoutMs: PROGRAM_MS_MAX });
  assert.ok(code === 0 || NOT_SUPPORTED.includes(code ?? -1), `exit code ${code}\n${text}`);
  assert.doesNotMatch(text, /\bfail(?:ed|ure)?:/);
  assert.deepEqual(readdirSync(folder), []);
}

async function mark({ mount, local, env }: OnMount): Promise<void> {
  const folder = mount.path('fs-mark');
  mkdirSync(folder);
  const words = ['-d', folder, '-s', '10240', '-n', '100', '-t', '2', '-D', '4', '-L', '2', '-S', '1'];
  await runOk('fs_mark', words, { env, cwd: local, timeoutMs: PROGRAM_MS_MAX });
}

async function bonnie({ mount, env }: OnMount): Promise<void> {
  const folder = mount.path('bonnie');
  mkdirSync(folder);
  // As root, bonnie++ demands a user; small files are left to fs_mark.
  const words = ['-d', folder, '-s', '32', '-r', '16', '-n', '0', '-f', '-u', '0:0', '-m', 'mount', '-q'];
  const { text } = await runOk('bonnie++', words, { env, timeoutMs: PROGRAM_MS_MAX });
  assert.doesNotMatch(text, /Expected|Can't|error/i);
  assert.deepEqual(readdirSync(folder), []);
}
