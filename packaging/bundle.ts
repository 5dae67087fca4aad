/** Shared by the builds of the package and of the tests. */
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Plugin } from 'esbuild';

export const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Loaded by `bin/leasehold.js`. */
export const PROGRAMS = [
  'client/main.ts',
  'fuse/main.ts',
  'server/main.ts',
  'server/config/config-options.ts',
];
/** Programs and threads that are started by their path relative to a module. */
export const STARTED = [
  'client/dev/cable.ts',
  'client/lease/supervisor.ts',
  'fuse/kernel/reader-thread.ts',
  'server/storage/database-check-thread.ts',
];
/** Copied into the package without compilation. */
const COPIED = ['bin', 'client/csi/csi.proto', 'web'];

/**
 * Modules locate files relative to themselves. In a bundle, `import.meta.url` becomes the place that the module would
 * have in the built tree; programs and shared chunks are one folder below its root.
 * @param url expression for the place of the bundle
 * @param change further change of a source
 */
export function placesOf(url: string, change = (source: string): string => source): Plugin {
  return {
    name: 'places',
    setup({ onLoad }) {
      onLoad({ filter: /\.ts$/ }, ({ path }) => {
        if (path.includes('node_modules')) return undefined;
        const file = relative(ROOT, path);
        const place = `new URL(${JSON.stringify(`../${file.replace(/\.ts$/, '.js')}`)}, ${url}).href`;
        const source = readFileSync(path, 'utf8').replaceAll('import.meta.url', `(${place})`);
        return { contents: change(source), loader: 'ts' };
      });
    },
  };
}

/** Adds to a built tree what is not compiled. */
export function copyRest(to: string): void {
  for (const folder of COPIED) {
    if (existsSync(join(ROOT, folder))) cpSync(join(ROOT, folder), join(to, folder), { recursive: true });
  }
  const { name, version, type } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Record<
    string,
    string
  >;
  writeFileSync(join(to, 'package.json'), `${JSON.stringify({ name, version, type })}\n`);
}
