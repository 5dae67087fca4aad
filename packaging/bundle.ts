/** What the builds of the package and of the tests have in common. */
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Plugin } from 'esbuild';

export const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** What `bin/leasehold.js` loads. */
export const PROGRAMS = ['client/main.ts', 'fuse/main.ts', 'server/main.ts', 'server/config-options.ts'];
/** Programs and threads that others start by their place beside a module. */
export const STARTED = ['client/dev/cable.ts', 'client/lease/guard.ts', 'fuse/kernel/reader-thread.ts'];
/** What is not compiled, and is there in the package as it is here. */
const COPIED = ['bin', 'web'];

/**
 * A module finds files by their place beside it. In a bundle, `import.meta.url` becomes the place that the module would have in the
 * built tree. The programs and the shared chunks are one folder below its root.
 *
 * @param url expression for the place of the bundle
 * @param change what else becomes of a source
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

/** Completes a built tree with what is not compiled. */
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
