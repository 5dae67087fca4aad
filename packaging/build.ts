/**
 * Makes `dist/`, the part of the package that is code: Node runs TypeScript by itself, but not below node_modules. The tree is as
 * in a clone, with JavaScript in place of TypeScript, so that all that is found by its place beside a module is found there.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const DIST = join(ROOT, 'dist');
/** What is not compiled, and is there in the package as it is here. */
const COPIED = ['bin', 'web'];

rmSync(DIST, { recursive: true, force: true });
const compiler = join(
  dirname(createRequire(import.meta.url).resolve('typescript/package.json')),
  'bin',
  'tsc',
);
execFileSync(process.execPath, [compiler, '-p', join(ROOT, 'tsconfig.build.json')], { stdio: 'inherit' });
mkdirSync(DIST, { recursive: true });
for (const folder of COPIED) {
  if (existsSync(join(ROOT, folder))) cpSync(join(ROOT, folder), join(DIST, folder), { recursive: true });
}
const { name, version, type } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Record<
  string,
  string
>;
writeFileSync(join(DIST, 'package.json'), `${JSON.stringify({ name, version, type })}\n`);
