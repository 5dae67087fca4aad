/**
 * Goal: the installed packages are those that were reviewed: each has a checksum, none has another source, none runs
 * scripts at the installation.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const ROOT = new URL('../../', import.meta.url);
const read = (name: string): string => readFileSync(new URL(name, ROOT), 'utf8');

interface Locked {
  readonly version?: string;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly hasInstallScript?: boolean;
}

const { packages } = JSON.parse(read('package-lock.json')) as { packages: Record<string, Locked> };
const manifest = JSON.parse(read('package.json')) as Record<
  'dependencies' | 'devDependencies' | 'optionalDependencies',
  Record<string, string>
> & { readonly allowScripts: Record<string, boolean> };

test('every package has a version and a SHA-512, and is from the registry', () => {
  const installed = Object.entries(packages).filter(([path]) => path !== '');
  assert.ok(installed.length > 50);
  for (const [path, { version, integrity = '', resolved = '' }] of installed) {
    assert.match(version ?? '', /^\d+\.\d+\.\d+/, path);
    assert.match(integrity, /^sha512-[A-Za-z0-9+/]{86}==$/, path);
    assert.match(resolved, /^$|^https:\/\/registry\.npmjs\.org\//, path);
  }
});

test("the project's own dependencies are versions, not ranges", () => {
  for (const kind of ['dependencies', 'devDependencies', 'optionalDependencies'] as const) {
    for (const [name, version] of Object.entries(manifest[kind]))
      assert.match(version, /^(?:npm:[a-z0-9@/-]+@)?\d+\.\d+\.\d+$/, name);
  }
});

test('no package runs a script when it is installed', () => {
  assert.match(read('.npmrc'), /^ignore-scripts=true$/m);
  const wanting = Object.entries(packages).filter(([, { hasInstallScript }]) => hasInstallScript === true);
  // A new one among them is reviewed first.
  assert.deepEqual(
    wanting.map(([path]) => path),
    ['node_modules/esbuild', 'node_modules/fuse-native', 'node_modules/protobufjs'],
  );
  assert.ok(Object.values(manifest.allowScripts).every((isAllowed) => !isAllowed));
});
