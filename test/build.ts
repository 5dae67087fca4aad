/**
 * Builds the programs that tests start hundreds of times: `node test/build.ts FOLDER`. Each program is one script that
 * contains its packages, and a module that loads it with V8's code cache (test/compiled-script.ts). Native modules stay
 * where npm installed them.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { build } from 'esbuild';
import { copyRest, PROGRAMS, placesOf, ROOT, STARTED } from '../packaging/bundle.ts';

/** What `bin/leasehold.js` and tests import from each program. */
const EXPORTS: Readonly<Record<string, readonly string[]>> = {
  'client/main.ts': ['runCli', 'buildProgram', 'endOf'],
  'fuse/main.ts': ['runMountDaemon'],
  'server/main.ts': ['runServer'],
  'server/config/config-options.ts': ['OPTIONS'],
};
/** Packages with native modules find them by paths relative to their own. */
const NATIVE = ['better-sqlite3', 'fuse-native', '@node-rs/crc32'];
/** A script has no `import.meta`. */
const OF_SCRIPT = `const __url = require('node:url').pathToFileURL(__filename).href;
const __resolve = (name) => require('node:url').pathToFileURL(require.resolve(name)).href;`;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are of ASCII, too
const NOT_ASCII = /[^\u0000-\u007f]/g;

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error('Where to?');
const to = resolve(folder);

rmSync(to, { recursive: true, force: true });
await build({
  absWorkingDir: ROOT,
  entryPoints: PROGRAMS,
  outbase: ROOT,
  outdir: to,
  outExtension: { '.js': '.cjs' },
  bundle: true,
  external: NATIVE,
  legalComments: 'none',
  format: 'cjs',
  platform: 'node',
  target: 'node24',
  define: { 'import.meta.main': 'false', 'import.meta.resolve': '__resolve' },
  banner: { js: OF_SCRIPT },
  // Parts of undici that are imported by their file names are part of the script, too.
  plugins: [placesOf('__url', (source) => source.replaceAll("part('undici/", "require('undici/"))],
});
await build({
  absWorkingDir: ROOT,
  entryPoints: [...STARTED, 'test/compiled-script.ts'],
  outbase: ROOT,
  outdir: to,
  bundle: true,
  packages: 'external',
  format: 'esm',
  platform: 'node',
  target: 'node24',
});
for (const program of PROGRAMS) {
  const names = EXPORTS[program]?.join(', ');
  const place = join(to, dirname(program), basename(program, '.ts'));
  // With other characters V8 uses two bytes for each character of the script; only comments have such characters.
  const code = readFileSync(`${place}.cjs`, 'utf8').replaceAll(/^\s*(?:\/\/|\/?\*).*$/gm, (comment) =>
    comment.replaceAll(NOT_ASCII, '?'),
  );
  if (code.search(NOT_ASCII) >= 0)
    throw new Error(`${program}: a character that is not of ASCII is left in its script`);
  writeFileSync(`${place}.cjs`, code);
  const script = `new URL('./${basename(program, '.ts')}.cjs', import.meta.url)`;
  const compiled = relative(dirname(program), 'test/compiled-script.js');
  writeFileSync(
    `${place}.js`,
    `import { run } from '${compiled}';\nexport const { ${names} } = run(${script});\n`,
  );
}
copyRest(to);
