import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { test } from 'node:test';
import { readSource } from './source.ts';

/** Folders of `fuse/`, from the kernel down to the cluster. */
const WINGS = [
  'kernel',
  'native',
  'nested',
  'calls',
  'transport',
  'contents',
  'pending',
  'metadata',
  'kernel-view',
  'cluster',
] as const;
type Wing = (typeof WINGS)[number];

/** What each folder may import of others, besides the interfaces. */
const BELOW: Readonly<Record<Wing, readonly Wing[]>> = {
  kernel: ['transport', 'kernel-view'],
  native: ['transport', 'kernel-view'],
  transport: [],
  nested: [],
  calls: ['transport', 'contents', 'pending', 'metadata', 'kernel-view'],
  contents: ['pending', 'metadata', 'kernel-view'],
  pending: ['metadata', 'kernel-view'],
  metadata: ['kernel-view'],
  'kernel-view': [],
  cluster: [],
};

/** Interfaces between the folders, and types that all of them use. */
const SHARED = [
  'all-done',
  'answered',
  'attachments',
  'backend',
  'deadline',
  'errno',
  'handle-numbers',
  'log',
  'place',
  'transport',
  'volume',
  'xattr-names',
];

const ROOT = resolve(import.meta.dirname, '../../fuse');

test('a folder of the mount imports only the folders below it', () => {
  const faults = WINGS.flatMap((wing) =>
    globSync(`${wing}/*.ts`, { cwd: ROOT }).flatMap((path) =>
      readSource(readFileSync(join(ROOT, path), 'utf8'))
        .imports.map(({ specifier }) => specifier)
        .filter((specifier) => specifier.startsWith('.'))
        .map((specifier) => relative(ROOT, resolve(ROOT, dirname(path), specifier)))
        .filter((target) => !target.startsWith('..'))
        .filter((target) => {
          const [folder = '', file] = target.split('/');
          if (file === undefined) return !SHARED.includes(folder.replace(/\.ts$/, ''));
          return folder !== wing && !BELOW[wing].some((below) => below === folder);
        })
        .map((target) => `${path} → ${target}`),
    ),
  );
  assert.deepEqual(faults.sort(), []);
});
