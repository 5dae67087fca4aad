/**
 * Compiles the code of the package: Node runs TypeScript by itself, but not below node_modules. Each program becomes
 * one module, as does code that only some commands load, since loading hundreds of modules takes most of a start.
 * Dependencies stay outside.
 * node packaging/build.ts [FOLDER]      (default: dist)
 */
import { readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { build } from 'esbuild';
import { copyRest, PROGRAMS, placesOf, ROOT, STARTED } from './bundle.ts';

const TO = resolve(process.argv[2] ?? join(ROOT, 'dist'));

rmSync(TO, { recursive: true, force: true });
await build({
  absWorkingDir: ROOT,
  entryPoints: [...PROGRAMS, ...STARTED],
  outbase: ROOT,
  outdir: TO,
  chunkNames: 'chunks/[name]-[hash]',
  bundle: true,
  splitting: true,
  packages: 'external',
  format: 'esm',
  platform: 'node',
  target: 'node24',
  plugins: [placesOf('import.meta.url')],
});
for (const file of STARTED) {
  const built = readFileSync(join(TO, file.replace(/\.ts$/, '.js')), 'utf8');
  if (built.includes('new URL("../')) throw new Error(`${file} lies deeper than the programs`);
}
copyRest(TO);
