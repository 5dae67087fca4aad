/** Makes copies of the code in which a known bug is planted. */
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Planted } from './planted.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const COPIED = [
  'base',
  'wire',
  'lease',
  'catalog',
  'replica',
  'test/data-driven.ts',
  'test/replica',
  'test/simulation',
  'test/testdata/replica',
  'test/testdata/simulation',
];

/** Where a test of the servers' code is to notice it, also these. */
const COPIED_SERVERS = ['server', 'test/storage', 'test/conformance', 'test/server', 'test/http'];

/**
 * @param folder for all copies, empty at first
 * @returns the root of a copy of the code in which the bug is planted
 */
export function plant(folder: string, bug: Planted): string {
  const root = join(folder, `${bug.layer}-${bug.row}`);
  const folders = bug.caughtBy.test === undefined ? COPIED : [...COPIED, ...COPIED_SERVERS];
  for (const copied of folders) cpSync(join(ROOT, copied), join(root, copied), { recursive: true });
  writeFileSync(join(root, 'package.json'), '{ "type": "module" }');
  symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'));
  for (const { file, find, replace } of [bug, ...(bug.also ?? [])]) {
    const path = join(root, file);
    const parts = readFileSync(path, 'utf8').split(find);
    if (parts.length !== 2)
      throw new Error(`"${find}" occurs ${parts.length - 1} times in ${file}, not once`);
    writeFileSync(path, parts.join(replace));
  }
  return root;
}
