import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, normalize } from 'node:path';
import { createInterface } from 'node:readline';
import { after, type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { freePorts } from '../../client/dev/free-ports.ts';
import { isLong } from '../long.ts';

/**
 * Goal: the package works without a clone, both as `npm pack` makes it and with JavaScript that was built before.
 * Method: the test packs it, npm installs it into an empty folder, and three of its servers store a file and return it.
 */
const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** What npm prints if it needs a network and has none: nothing about the package. */
const NO_NETWORK = /ENOTCACHED|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT/;

// One folder for both, so that their dependencies are installed once.
const folder = await mkdtemp(join(tmpdir(), 'leasehold-package-'));
after(() => rm(folder, { recursive: true, force: true, maxRetries: 3 }));

test('"npm pack" makes a package that installs and runs outside of the repository', (t) =>
  packedAndRun(t, false));
test('a package with JavaScript installs and runs outside of the repository', (t) => packedAndRun(t, true));

async function packedAndRun(t: TestContext, isBuilt: boolean): Promise<void> {
  const packed = join(folder, isBuilt ? 'built' : 'plain');
  await mkdir(packed);
  await rm(join(ROOT, 'dist'), { recursive: true, force: true });
  if (isBuilt) await run(process.execPath, [join(ROOT, 'packaging/build.ts')]);
  await run('npm', ['pack', '--silent', '--pack-destination', packed], { cwd: ROOT });
  const [tarball = ''] = await readdir(packed);
  await writeFile(join(folder, 'package.json'), '{"private":true}\n');
  const installed = join(folder, 'node_modules/leasehold');
  try {
    if (existsSync(installed)) {
      // As npm installs a package of the same name and version beside the first: its dependencies are already there.
      await rm(installed, { recursive: true });
      await mkdir(installed);
      await run('tar', ['-xzf', join(packed, tarball), '--strip-components=1', '-C', installed]);
    } else {
      const flags = ['--prefer-offline', '--ignore-scripts', '--no-audit', '--no-fund'];
      await run('npm', ['install', ...flags, join(packed, tarball)], { cwd: folder, timeout: 600_000 });
    }
  } catch (error) {
    if (!NO_NETWORK.test(String((error as { stderr?: string }).stderr))) throw error;
    t.skip('npm has not all packages in its cache, and no network');
    return;
  }
  const launcher = join(folder, 'node_modules/.bin/leasehold');
  assert.equal(existsSync(join(installed, 'dist')), isBuilt);
  assert.equal(
    existsSync(join(ROOT, 'web')),
    existsSync(join(installed, isBuilt ? 'dist/web' : 'web')),
    'with the files for browsers',
  );

  const leasehold = async (...argv: string[]) => (await run(launcher, argv, { timeout: 60_000 })).stdout;
  const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  assert.equal(await leasehold('--version'), `${version}\n`);
  assert.match(await leasehold('server', '--help'), /--clock-skew/);
  assert.match(await leasehold('completion', 'bash'), /clock-skew/);

  // Its servers are those of the other package; the first command line of the README in .ci/run starts them from
  // sources.
  if (!isBuilt && !isLong) return;
  const [port = 0] = await freePorts(1);
  const dev = spawn(launcher, ['dev', '--port', `${port}`, '--json'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(async () => {
    if (dev.exitCode !== null) return;
    const gone = once(dev, 'exit');
    dev.kill('SIGTERM');
    await gone;
  });
  const [line] = (await once(createInterface(dev.stdout), 'line')) as [string];
  const { servers } = JSON.parse(line) as { servers: { url: string }[] };
  const urls = servers.map(({ url }) => url).join(',');
  await writeFile(join(folder, 'file'), 'from a package');
  await leasehold('put', '--servers', urls, join(folder, 'file'), 'main:/file');
  assert.equal(
    await leasehold('get', '--servers', servers.at(-1)?.url ?? '', 'main:/file', '-'),
    'from a package',
  );
  // A file that is found by its path relative to a module: the supervisor of a command is a separate file.
  assert.equal(
    await leasehold('lease', 'acquire', 'once', '--servers', urls, '--', 'echo', 'held'),
    'held\n',
  );
}

test('the files that its documents link to are in the package, except for tests and the model', () => {
  const packed = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  const listed = JSON.parse(packed) as readonly { readonly files: readonly { readonly path: string }[] }[];
  const files = new Set((listed[0]?.files ?? []).map(({ path }) => path));
  assert.ok(files.has('README.md'));
  const missing: string[] = [];
  for (const path of files) {
    if (!path.endsWith('.md')) continue;
    for (const [, target = ''] of readFileSync(join(ROOT, path), 'utf8').matchAll(/\]\(([^)\s#]+)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      const linked = normalize(join(dirname(path), target)).replace(/\/$/, '');
      const isThere = files.has(linked) || [...files].some((file) => file.startsWith(`${linked}/`));
      if (!isThere && !/^(test|model|bench)\//.test(linked)) missing.push(`${path}: ${linked}`);
    }
  }
  assert.deepEqual(missing, []);
});
