import assert from 'node:assert/strict';
import { type ChildProcess, execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { freePorts } from '../../client/dev/free-ports.ts';
import { until } from '../cluster/real-cluster.ts';
import { isLong } from '../long.ts';
import { OverlayRoot, overlayObstacle } from './overlay-root.ts';

/**
 * Goal: a machine with Debian gets a working cluster from the package alone; an upgrade keeps data and configuration;
 * no data is deleted.
 * Method: the package is built, inspected, and installed by dpkg, in a root folder whose changes are discarded.
 */
const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BUILD = join(ROOT, 'packaging/deb/build.ts');
const HOME = '/usr/lib/leasehold';
/** What npm prints if it needs a network and has none: nothing about the package. */
const NO_NETWORK = /ENOTCACHED|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT/;
/** `e_machine` of ELF. */
const MACHINES = { amd64: 0x3e, arm64: 0xb7 } as const;
type Architecture = keyof typeof MACHINES;
const OWN: Architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';

const folder = await mkdtemp(join(tmpdir(), 'leasehold-deb-test-'));
after(() => rm(folder, { recursive: true, force: true, maxRetries: 3 }));

const missing = await run('dpkg-deb', ['--version']).then(
  () => false as const,
  () => 'dpkg-deb is not installed',
);
const built = missing === false ? await build(OWN) : { skip: missing, path: '' };
const skip = built.skip;

interface Built {
  readonly skip: string | false;
  readonly path: string;
}

async function build(architecture: Architecture): Promise<Built> {
  // Compression takes most of the time, and is no part of what is tested.
  const flags = ['--arch', architecture, '--out', folder, '--compression', 'none'];
  try {
    const { stdout } = await run(process.execPath, [BUILD, ...flags], { timeout: 600_000 });
    return { skip: false, path: stdout.trim() };
  } catch (error) {
    if (!NO_NETWORK.test(String((error as { stderr?: string }).stderr))) throw error;
    return { skip: 'npm has not all packages in its cache, and no network', path: '' };
  }
}

/** @returns the paths of the regular files that `file` would call ELF, with their machine */
async function machinesOf(tree: string): Promise<Map<string, number>> {
  const machines = new Map<string, number>();
  for (const path of await readdir(tree, { recursive: true })) {
    if (!path.endsWith('.node') && !path.endsWith('bin/node')) continue;
    const bytes = await readFile(join(tree, path));
    assert.equal(bytes.toString('latin1', 0, 4), '\u007fELF', path);
    machines.set(path, bytes.readUInt16LE(18));
  }
  return machines;
}

async function assertMachines(path: string, architecture: Architecture): Promise<void> {
  const tree = join(folder, `tree-${architecture}`);
  await run('dpkg-deb', ['--extract', path, tree]);
  const machines = await machinesOf(tree);
  // Node, SQLite, checksums, and two versions of FUSE.
  assert.ok(machines.size >= 5, [...machines.keys()].join(', '));
  for (const [file, machine] of machines) assert.equal(machine, MACHINES[architecture], file);
  await rm(tree, { recursive: true });
}

test('the package has its files, owned by root, and nothing that only developers need', {
  skip,
}, async () => {
  const { stdout: fields } = await run('dpkg-deb', ['--field', built.path]);
  assert.match(fields, new RegExp(`^Architecture: ${OWN}$`, 'm'));
  assert.match(fields, /^Depends: libc6 .*systemd-sysusers/m);
  const { stdout } = await run('dpkg-deb', ['--contents', built.path], { maxBuffer: 1 << 26 });
  const entries = new Map<string, string>();
  for (const line of stdout.trimEnd().split('\n')) {
    const [mode = '', owner = '', , , , path = ''] = line.split(/\s+/);
    assert.equal(owner, 'root/root', line);
    entries.set(path.replace(/^\./, ''), mode);
  }
  const wanted = {
    '/usr/bin/leasehold': '-rwxr-xr-x',
    '/usr/sbin/mount.leasehold': '-rwxr-xr-x',
    '/usr/sbin/mount.fuse.leasehold': 'lrwxrwxrwx',
    [`${HOME}/bin/node`]: '-rwxr-xr-x',
    [`${HOME}/server/main.js`]: '-rw-r--r--',
    [`${HOME}/fuse/main.js`]: '-rw-r--r--',
    '/lib/systemd/system/leasehold-server@.service': '-rw-r--r--',
    '/lib/systemd/system/leasehold-mount@.service': '-rw-r--r--',
    '/usr/lib/sysusers.d/leasehold.conf': '-rw-r--r--',
    '/usr/lib/tmpfiles.d/leasehold.conf': '-rw-r--r--',
    '/etc/leasehold/server.toml': '-rw-r--r--',
    '/usr/share/man/man1/leasehold.1.gz': '-rw-r--r--',
    '/usr/share/bash-completion/completions/leasehold': '-rw-r--r--',
    '/usr/share/doc/leasehold/copyright': '-rw-r--r--',
    '/usr/share/doc/leasehold/NODE-LICENSE.gz': '-rw-r--r--',
  };
  for (const [path, mode] of Object.entries(wanted)) assert.equal(entries.get(path), mode, path);
  const { packages } = JSON.parse(await readFile(join(ROOT, 'package-lock.json'), 'utf8')) as {
    readonly packages: Readonly<Record<string, { readonly dev?: boolean }>>;
  };
  const ofDevelopers = Object.keys(packages).filter((path) => packages[path]?.dev === true);
  assert.ok(ofDevelopers.includes('node_modules/typescript'));
  for (const path of ofDevelopers) assert.ok(!entries.has(`${HOME}/${path}/`), `${path} is for developers`);
  for (const path of entries.keys())
    assert.doesNotMatch(path, /\.(?:ts|map)$|musl[^/]*\.node$|(?:darwin|win32)[^/]*\/?[^/]*\.node$/);
  await assertMachines(built.path, OWN);
});

test('dpkg installs it, three servers run from it, an upgrade and a purge lose nothing', {
  skip: skip || overlayObstacle() || false,
}, async (t) => {
  const root = await OverlayRoot.create();
  t.after(() => root.remove());
  const manifest = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  // The folder of the package is on this machine's disk, which the root folder shows as it is.
  await root.run('dpkg', '--install', built.path);
  assert.equal(await root.run('leasehold', '--version'), `${manifest.version}\n`);
  assert.match(await root.run('getent', 'passwd', 'leasehold'), /:\/var\/lib\/leasehold:/);
  assert.match(await root.run('stat', '--format=%a %U', '/run/leasehold'), /^700 root$/m);
  assert.equal((await root.try('pgrep', '-f', HOME)).code, 1, 'Nothing is started');
  const helper = await root.try('mount.leasehold', 'main:/', '/mnt', '-o', 'nonsense=1');
  assert.equal(helper.code, 1, 'The exit code of mount(8) for a wrong option');
  assert.match(helper.stderr, /nonsense/);
  const verified = await root.try(
    'systemd-analyze',
    ...['verify', '--man=no', 'leasehold-server@server.service', 'leasehold-mount@main.service'],
  );
  const said = `${verified.stdout}${verified.stderr}`
    .split('\n')
    .filter((line) => line.includes('leasehold'));
  assert.deepEqual(said, [], 'systemd finds no fault in the installed units');

  const ports = await freePorts(3);
  const names = ['server', 'second', 'third'];
  const peers = ports.map((port, place) => `s${place + 1} = "127.0.0.1:${port}"\n`).join('');
  const urls = ports.map((port) => `http://127.0.0.1:${port}`).join(',');
  const shipped = await root.run('cat', '/etc/leasehold/server.toml');
  for (const [place, name] of names.entries()) {
    const text = shipped
      .replace(
        'id = "s1"',
        `id = "s${place + 1}"\nlease = "2s"\nclock-skew = "100ms"\nnamed-lease-max = "5s"`,
      )
      .replace('s1 = "127.0.0.1:7401"\n', peers);
    await root.run('sh', '-c', 'printf %s "$1" > "$2"', 'sh', text, `/etc/leasehold/${name}.toml`);
  }
  const edited = await root.run('cat', '/etc/leasehold/server.toml');
  let servers = await startServers(root, names);
  await root.run('leasehold', 'volume', 'create', 'main', '--servers', urls, '--timeout', '2m');
  await root.run('sh', '-c', `echo kept | leasehold put - main:/file --servers ${urls}`);
  const lease = ['lease', 'acquire', 'once', '--ttl', '5s', '--servers', urls];
  const held = await root.run('leasehold', ...lease, '--', 'echo', 'held');
  assert.equal(held, 'held\n');

  const owners = await root.run(
    'stat',
    '--format=%a %U %n',
    '/var/lib/leasehold/server',
    '/var/cache/leasehold/root',
  );
  assert.match(owners, /^700 leasehold \/var\/lib/m, 'Only servers read their data');
  assert.match(owners, /^\d+ root \/var\/cache/m);
  const writable = await root.run(
    'find',
    '/var/cache/leasehold/root',
    '-perm',
    '/022',
    '-o',
    '!',
    '-user',
    'root',
  );
  assert.equal(writable, '', 'Only root places compiled code that root runs');

  await root.run('dpkg', '--force-confdef', '--force-confold', '--install', await laterPackage());
  assert.match(await root.run('dpkg-query', '--show', 'leasehold'), /\t999-1$/m);
  assert.equal(await root.run('cat', '/etc/leasehold/server.toml'), edited, 'An edited file stays');
  assert.match(await root.run('cat', '/etc/leasehold/server.toml.dpkg-dist'), /A later release/);
  assert.equal(await root.run('leasehold', 'get', 'main:/file', '-', '--servers', urls), 'kept\n');
  for (const server of servers) assert.equal(server.exitCode, null, 'An upgrade stops no server');
  await stopServers(root, servers);
  servers = await startServers(root, names);
  assert.equal(
    await root.run('leasehold', 'get', 'main:/file', '-', '--servers', urls, '--timeout', '2m'),
    'kept\n',
  );
  await stopServers(root, servers);

  const purged = await root.run('dpkg', '--purge', 'leasehold');
  assert.match(purged, /data of servers stays in \/var\/lib\/leasehold/);
  assert.match(purged, /your own files .* stay in \/etc\/leasehold/);
  const left = await root.run('sh', '-c', 'ls -A /etc/leasehold /var/lib/leasehold');
  assert.deepEqual(left.split('\n').filter(Boolean), [
    ...['/etc/leasehold:', 'second.toml', 'third.toml'],
    ...['/var/lib/leasehold:', 'second', 'server', 'third'],
  ]);
  assert.ok((await root.run('ls', '/var/lib/leasehold/server')).includes('catalog.db'), 'The data is whole');
  for (const path of [HOME, '/usr/bin/leasehold', '/var/cache/leasehold', '/usr/sbin/mount.leasehold'])
    assert.notEqual((await root.try('test', '-e', path)).code, 0, `${path} is gone`);

  if (!isLong) return;
  await root.run('rm', '-r', '/etc/leasehold', '/var/lib/leasehold');
  await root.run('dpkg', '--install', built.path);
  assert.equal(await root.run('dpkg', '--purge', 'leasehold').then((text) => /stays?\b/.test(text)), false);
  assert.notEqual((await root.try('test', '-e', '/etc/leasehold')).code, 0, 'No file, no folder');
});

/** Starts servers as the installed unit does, without systemd. */
async function startServers(root: OverlayRoot, names: readonly string[]): Promise<ChildProcess[]> {
  const unit = await root.run('cat', '/lib/systemd/system/leasehold-server@.service');
  const value = (key: string): string[] =>
    [...unit.matchAll(new RegExp(`^${key}=(.+)$`, 'gm'))].map(([, text = '']) => text);
  const [user = ''] = value('User');
  const servers: ChildProcess[] = [];
  for (const name of names) {
    const filled = (text: string): string =>
      text.replaceAll('%i', name).replaceAll('%S', '/var/lib').replaceAll('%C', '/var/cache');
    for (const path of [
      ...value('StateDirectory').map((path) => `/var/lib/${filled(path)}`),
      ...value('CacheDirectory').map((path) => `/var/cache/${filled(path)}`),
    ])
      await root.run('install', '-d', '-o', user, '-g', user, '-m', '0700', path);
    const environment = value('Environment').flatMap((line) => filled(line).split(' '));
    const command = filled(value('ExecStart')[0] ?? '').split(' ');
    const as = ['--reuid', user, '--regid', user, '--init-groups', 'env', ...environment];
    servers.push(root.start('setpriv', ...as, ...command));
  }
  const errors = servers.map((server) => {
    let text = '';
    server.stderr?.setEncoding('utf8').on('data', (more: string) => {
      text += more;
    });
    return () => text;
  });
  for (const [place, name] of names.entries()) {
    await until(`the server ${name} listens`, async () => {
      const text = errors[place]?.() ?? '';
      assert.equal(servers[place]?.exitCode, null, text);
      return text.includes('server listens');
    });
  }
  return servers;
}

async function stopServers(root: OverlayRoot, servers: readonly ChildProcess[]): Promise<void> {
  const gone = servers.map((server) => once(server, 'exit'));
  await root.run('pkill', '-TERM', '-u', 'leasehold');
  await Promise.all(gone);
}

/** The same files with a larger version and another configuration. */
async function laterPackage(): Promise<string> {
  const tree = join(folder, 'later');
  await run('dpkg-deb', ['--raw-extract', built.path, tree]);
  const control = join(tree, 'DEBIAN/control');
  await writeFile(control, (await readFile(control, 'utf8')).replace(/^Version: .+$/m, 'Version: 999-1'));
  const shipped = join(tree, 'etc/leasehold/server.toml');
  await writeFile(shipped, `# A later release\n${await readFile(shipped, 'utf8')}`);
  const path = join(folder, 'later.deb');
  await run('dpkg-deb', ['--root-owner-group', '-Znone', '--build', tree, path]);
  await rm(tree, { recursive: true });
  return path;
}

const lintian = await run('lintian', ['--version']).then(
  () => false as const,
  () => 'lintian is not installed',
);

// It takes longer than all other tests of the package together.
const longOnly = isLong ? false : 'npm run test:long plays it';

test('lintian finds neither an error nor a warning', { skip: skip || lintian || longOnly }, async () => {
  const compression = 'uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball';
  const flags = ['--allow-root', '--fail-on', 'error,warning', '--suppress-tags', compression];
  await run('lintian', [...flags, built.path], { timeout: 600_000 }).catch((error: { stdout: string }) => {
    assert.fail(error.stdout);
  });
});

test('the package for the other architecture has its binaries', {
  skip: skip || (isLong ? false : 'npm run test:long plays it: it needs packages of the other architecture'),
}, async (t) => {
  const other: Architecture = OWN === 'amd64' ? 'arm64' : 'amd64';
  const foreign = await build(other);
  if (foreign.skip !== false) {
    t.skip(foreign.skip);
    return;
  }
  const { stdout } = await run('dpkg-deb', ['--field', foreign.path, 'Architecture']);
  assert.equal(stdout.trim(), other);
  await assertMachines(foreign.path, other);
});
