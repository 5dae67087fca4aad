/**
 * Makes the part of the package that is code: Node runs TypeScript by itself, but not below node_modules. Each program becomes one
 * module, and so does what only some commands load, because loading hundreds of modules is most of a start. Packages stay
 * outside of them, unless they are asked for: tests start hundreds of servers.
 *
 *     node packaging/build.ts [FOLDER] [--packages]      (default: dist)
 */
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { build, type Plugin } from 'esbuild';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const { values: options, positionals } = parseArgs({
  options: { packages: { type: 'boolean', default: false } },
  allowPositionals: true,
});
const TO = resolve(positionals[0] ?? join(ROOT, 'dist'));
/** What is not compiled, and is there in the package as it is here. */
const COPIED = ['bin', 'web'];
/** What `bin/leasehold.js` loads. */
const PROGRAMS = ['client/main.ts', 'fuse/main.ts', 'server/main.ts', 'server/config-options.ts'];
/** Programs and threads that others start by their place beside a module. */
const STARTED = ['client/dev/cable.ts', 'client/lease/guard.ts', 'fuse/kernel/reader-thread.ts'];

/** Packages with machine code find it by its place beside them. */
const NATIVE = ['better-sqlite3', 'fuse-native', '@node-rs/crc32'];
/** Packages of CommonJS call it. */
const REQUIRE = `import { createRequire as requireOf } from 'node:module';\nconst require = requireOf(import.meta.url);`;

/**
 * A module finds files by their place beside it. In a bundle, `import.meta.url` becomes the place that the module would have in the
 * built tree. The programs and the shared chunks are one folder below its root.
 */
const places: Plugin = {
  name: 'places',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, ({ path }) => {
      if (path.includes('node_modules')) return undefined;
      const source = readFileSync(path, 'utf8');
      const file = relative(ROOT, path);
      const place = `new URL(${JSON.stringify(`../${file.replace(/\.ts$/, '.js')}`)}, import.meta.url).href`;
      return { contents: source.replaceAll('import.meta.url', `(${place})`), loader: 'ts' };
    });
  },
};

rmSync(TO, { recursive: true, force: true });
await build({
  absWorkingDir: ROOT,
  entryPoints: [...PROGRAMS, ...STARTED],
  outbase: ROOT,
  outdir: TO,
  chunkNames: 'chunks/[name]-[hash]',
  bundle: true,
  splitting: true,
  ...(options.packages ? { external: NATIVE, banner: { js: REQUIRE } } : { packages: 'external' }),
  format: 'esm',
  platform: 'node',
  target: 'node24',
  plugins: [places],
});
for (const file of STARTED) {
  const built = readFileSync(join(TO, file.replace(/\.ts$/, '.js')), 'utf8');
  if (built.includes('new URL("../')) throw new Error(`${file} lies deeper than the programs`);
}
for (const folder of COPIED) {
  if (existsSync(join(ROOT, folder))) cpSync(join(ROOT, folder), join(TO, folder), { recursive: true });
}
const { name, version, type } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Record<
  string,
  string
>;
writeFileSync(join(TO, 'package.json'), `${JSON.stringify({ name, version, type })}\n`);
