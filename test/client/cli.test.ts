import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { buildProgram, describeExit } from '../../client/main.ts';
import { FakeCluster } from './fake-cluster.ts';
import { LAUNCHER, runCli, runProcess } from './run-cli.ts';

describe('the command line', () => {
  let cluster: FakeCluster;
  let folder: string;
  const run = (...argv: string[]) => runCli(argv, { env: { LEASEHOLD_SERVERS: cluster.urls.join(',') } });

  before(async () => {
    cluster = await FakeCluster.start();
    folder = await mkdtemp(join(tmpdir(), 'leasehold-cli-'));
    const made = await run('volume', 'create', 'main', '--object-size', '64KiB', '--json');
    assert.equal(made.code, 0, made.stderr);
    assert.equal(JSON.parse(made.stdout).objectBytes, 65_536);
  });

  after(async () => {
    await cluster.stop();
    await rm(folder, { recursive: true });
  });

  test('a file is put and got, byte for byte', async () => {
    const local = join(folder, 'a file #1 %ü');
    const contents = Buffer.alloc(300_000, 'x\0y');
    await writeFile(local, contents, { mode: 0o600 });
    const stored = await run('put', local, 'main:/', '--json');
    assert.equal(stored.code, 0, stored.stderr);
    assert.equal(JSON.parse(stored.stdout).size, 300_000);
    const copy = join(folder, 'copy');
    const fetched = await run('get', 'main:/a file #1 %ü', copy, '--json');
    assert.equal(fetched.code, 0, fetched.stderr);
    assert.equal(JSON.parse(fetched.stdout).etag, JSON.parse(stored.stdout).etag);
    assert.ok((await readFile(copy)).equals(contents));
    assert.equal((await stat(copy)).mode & 0o777, 0o600);
    const clash = await run('put', local, 'main:/a file #1 %ü', '--no-replace');
    assert.equal(clash.code, 4, clash.stderr);
  });

  test('standard input and standard output', async () => {
    const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
    const stored = await runProcess(['put', '-', 'main:/stream'], { env, input: 'hello\n' });
    assert.equal(stored.code, 0, stored.stderr);
    assert.equal(stored.stdout, '');
    assert.equal((await run('get', 'main:/stream', '-')).stdout, 'hello\n');
    const empty = await runCli(['put', '-', 'main:/empty'], { env });
    assert.equal(empty.code, 0, empty.stderr);
    assert.equal((await run('get', 'main:/empty', '-')).stdout, '');
    assert.equal((await runCli(['put', '-', 'main:/'], { env })).code, 2);
  });

  test('directories: mkdir, ls, stat, mv, rm', async () => {
    assert.equal((await run('mkdir', 'main:/d/e')).code, 3, 'The parent is missing');
    assert.equal((await run('mkdir', '--parents', 'main:/d/e')).code, 0);
    assert.equal((await run('mkdir', '--parents', 'main:/d/e')).code, 0);
    assert.equal((await run('mkdir', 'main:/d/e')).code, 4, 'It exists');
    const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
    assert.equal((await runCli(['put', '-', 'main:/d/f'], { env, input: '123' })).code, 0);
    assert.equal((await run('ls', 'main:/d')).stdout, 'e/\nf\n');
    assert.match(
      (await run('ls', '-l', 'main:/d')).stdout,
      /^-rw-r--r-- +1 +0 +0 +3 +2023-11-14 22:13:20 +f$/m,
    );
    const listed = JSON.parse((await run('ls', '--json', 'main:/d')).stdout);
    assert.deepEqual(
      listed.entries.map(({ name, kind }: { name: string; kind: string }) => [name, kind]),
      [
        ['e', 'directory'],
        ['f', 'file'],
      ],
    );
    assert.equal((await run('mv', 'main:/d/f', 'main:/d/e')).code, 0);
    const shown = JSON.parse((await run('stat', 'main:/d/e/f', '--json')).stdout);
    assert.equal(shown.sizeBytes, 3);
    assert.match(shown.etag, /^"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"$/);
    const refused = await run('rm', 'main:/d');
    assert.equal(refused.code, 4);
    assert.match(refused.stderr, /it is a directory\n {2}use --recursive/);
    assert.equal((await run('rm', '--recursive', 'main:/d')).code, 0);
    assert.equal((await run('ls', 'main:/d')).code, 3);
    assert.equal((await run('rm', 'main:/d')).code, 3);
    assert.equal((await run('rm', '--force', 'main:/d')).code, 0);
    assert.equal((await run('rm', '-r', 'main:/')).code, 2);
  });

  test('a refused put or get names the reason and a remedy', async () => {
    const directory = await run('put', folder, 'main:/x');
    assert.equal(directory.code, 2);
    assert.match(directory.stderr, /^leasehold: Cannot put ".*": it is a directory.*\n {2}use --recursive/);
    const copied = await run('cp', '-r', folder, 'main:/x');
    assert.equal(copied.code, 2);
    assert.match(copied.stderr, /use "leasehold put", with --recursive/);
    assert.equal((await run('put', join(folder, 'missing'), 'main:/x')).code, 3);
    const swapped = await run('put', 'main:/x', join(folder, 'y'));
    assert.equal(swapped.code, 2);
    assert.match(swapped.stderr, /usage: leasehold put LOCAL VOLUME:\/path/);
    const before = (await readdir(folder)).length;
    assert.equal((await run('get', 'main:/missing', join(folder, 'y'))).code, 3);
    assert.equal((await readdir(folder)).length, before, 'A failed get leaves no file');
    assert.equal((await run('get', 'main:/', join(folder, 'y'))).code, 4);
    assert.equal((await run('ls', 'nowhere:/')).code, 3);
    const parent = await runCli(['put', '-', 'main:/no/where'], {
      env: { LEASEHOLD_SERVERS: cluster.urls.join(',') },
    });
    assert.equal(parent.code, 3);
    assert.match(parent.stderr, /leasehold mkdir --parents main:\/no/);
  });

  test('an error on the way names the path', async () => {
    const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
    assert.equal((await runCli(['put', '-', 'main:/whole'], { env, input: 'x' })).code, 0);
    const fail = (code: 'no-space' | 'integrity' | null): void => {
      for (const server of cluster.servers)
        server.intercept = ({ path }) =>
          code !== null && path.startsWith('/v1/data/') ? { kind: 'problem', code } : null;
    };
    try {
      fail('no-space');
      const put = await runCli(['put', '-', 'main:/large'], { env, input: 'x' });
      assert.match(put.stderr, /^leasehold: Cannot write main:\/large: /);
      fail('integrity');
      const got = await run('get', 'main:/whole', '-');
      assert.equal(got.code, 8);
      assert.match(got.stderr, /^leasehold: Cannot (open|read) main:\/whole: /);
    } finally {
      fail(null);
    }
  });

  test('info and status, and their exit codes', async () => {
    const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
    const put = await runCli(['put', '-', 'main:/known'], { env, input: 'x' });
    assert.equal(put.code, 0, put.stderr);
    const known = await run('info', 'main:/known', '--json');
    assert.equal(known.code, 0, known.stderr);
    const info = JSON.parse(known.stdout);
    assert.equal(info.primary, 's1');
    const shown = (await run('info', 'main:/known')).stdout;
    assert.match(shown, /lease +s1, 1\.5 s left/);
    assert.match(shown, /locks +0 of 0 clients, 2 waiting/);
    assert.equal((await run('status')).code, 0);
    cluster.verdict = 'degraded';
    const degraded = await run('status', '--json');
    assert.equal(degraded.code, 7);
    assert.equal(JSON.parse(degraded.stdout).verdict, 'degraded');
    cluster.verdict = 'down';
    assert.equal((await run('status')).code, 5);
    cluster.verdict = 'healthy';
    const unreachable = await runCli(['status', '--json', '--servers', 'http://127.0.0.1:1']);
    assert.equal(unreachable.code, 5);
    assert.equal(JSON.parse(unreachable.stdout).verdict, 'down');
    const temporary = await runCli(['ls', 'main:/', '--servers', '127.0.0.1:1', '--timeout', '300ms']);
    assert.equal(temporary.code, 5);
    assert.match(temporary.stderr, /no server answers at http:\/\/127\.0\.0\.1:1\n {2}"leasehold status"/);
  });

  test('--servers works before and after the command, and skips unreachable servers', async () => {
    const servers = ['http://127.0.0.1:1', ...cluster.urls].join(',');
    assert.equal((await runCli(['volume', 'ls', '--servers', servers])).code, 0);
    assert.match((await runCli(['--servers', servers, 'volume', 'ls'])).stdout, /main +3 +64\.0 KiB/);
  });

  test('volumes', async () => {
    assert.equal((await run('volume', 'create', 'main')).code, 4);
    assert.equal((await run('volume', 'rm', 'other')).code, 3);
    assert.equal((await run('volume', 'create', 'other', '--replicas', '1')).code, 0);
    assert.equal((await run('volume', 'rm', 'other')).code, 0);
    const { volumes } = JSON.parse((await run('volume', 'ls', '--json')).stdout);
    assert.equal(volumes.length, 1);
  });

  test('volumes with a catalog of their own', async () => {
    const created = await run('volume', 'create', 'own', '--own-catalog', '--trash', '1h');
    assert.deepEqual([created.code, created.stderr], [0, '']);
    assert.match(created.stdout, /^Created the volume own/);
    assert.equal((await run('volume', 'create', 'own', '--own-catalog')).code, 4);
    const again = await run('volume', 'create', 'own', '--own-catalog', '--if-not-exists');
    assert.match(again.stdout, /There is a volume own already/);
    const listed = await run('volume', 'ls');
    assert.match(listed.stdout, /^main .* root$/m);
    assert.match(listed.stdout, /^own .* s1, s2, s3; primary s2$/m);
    assert.equal(listed.code, 0);

    cluster.unavailable = ['own'];
    const { code, stdout } = await run('volume', 'ls');
    assert.equal(code, 7);
    assert.match(stdout, /^The volume own is unavailable: .* \(s1, s2, s3; primary s2\)$/m);
    const json = await run('volume', 'ls', '--json');
    const { unavailable, catalogs, volumes } = JSON.parse(json.stdout);
    assert.deepEqual([json.code, unavailable, volumes.length, catalogs[0].name], [7, ['own'], 1, 'own']);
    const servers = await run('server', 'ls');
    assert.equal(servers.code, 7);
    assert.match(servers.stdout, /^Files of volume own are not counted/m);
    cluster.unavailable = [];
    assert.equal((await run('volume', 'rm', 'own')).code, 0);
  });

  test('a drained server is not empty while a catalog does not say so, or is there', async () => {
    const url = 'http://127.0.0.1:1';
    const known = { zone: '', labels: [], freeBytes: 1, totalBytes: 2, storageId: 'disk', bornAt: 1 };
    cluster.listed = [{ id: 's4', url, state: 'draining', registeredNs: '1', ...known }];
    const row = { number: 9, name: 'late', state: 'ready', primary: 's4' } as const;
    // A round queries the servers, and then the status; either may be sent again.
    let [rounds, hasEnded] = [0, true];
    for (const server of cluster.servers)
      server.intercept = ({ path, body }) => {
        if (path === '/v1/status') hasEnded = true;
        if (!hasEnded || !body.includes('"counts":true')) return null;
        [rounds, hasEnded] = [rounds + 1, false];
        cluster.unavailable = rounds === 1 ? ['own'] : [];
        cluster.catalogs.splice(0);
        if (rounds === 2) cluster.catalogs.push({ ...row, members: ['s4'] });
        return null;
      };
    const { code, stderr } = await run('server', 'drain', 's4');
    assert.equal(code, 0, stderr);
    assert.equal(rounds, 3);
    for (const server of cluster.servers) server.intercept = () => null;
    cluster.listed = [];
  });

  test('mount and umount refuse what is impossible', { skip: process.platform !== 'linux' }, async () => {
    assert.equal((await run('mount', 'nowhere', folder)).code, 3);
    const nothing = await run('umount', folder);
    assert.equal(nothing.code, 4);
    assert.match(nothing.stderr, /nothing is mounted there/);
    const missing = await run('umount', join(folder, 'typo'));
    assert.equal(missing.code, 3);
    assert.match(missing.stderr, /there is no such directory/);
    const unread = await run('ls', 'main:/', '--token-file', join(folder, 'typo'));
    assert.equal(unread.code, 2);
    assert.match(unread.stderr, /Cannot read the token in ".*typo": no such file or directory/);
  });
});

const USAGE_ERRORS: readonly (readonly [argv: readonly string[], said: RegExp])[] = [
  [[], /Usage: leasehold/],
  [['lss'], /unknown command 'lss'\n\(Did you mean ls\?\)\n {2}"leasehold --help"/],
  [
    ['ls', '--jsno', 'main:/'],
    /unknown option '--jsno'\n\(Did you mean --json\?\)\n {2}"leasehold ls --help"/,
  ],
  [['volume', 'create'], /missing required argument 'name'/],
  [['volume', 'create', 'Main'], /Cannot use "Main" as name: A volume has 1 to 63 of a-z/],
  [['volume', 'create', 'a', '--replicas', '0'], /whole number from 1 to 15/],
  [['volume', 'create', 'a', '--object-size', '1'], /from 4KiB to 4MiB/],
  [['ls', 'main'], /such as main:\/notes\.txt/],
  [['ls', 'main:/../x'], /lead out of the volume/],
  [['ls', 'main:/', 'more'], /too many arguments/],
  [['ls', 'main:/', '--servers', ','], /--servers names no server/],
  [['ls', 'main:/', '--servers', 'ftp://x'], /must be a URL/],
  [
    ['ls', 'main:/', '--timeout', 'soon'],
    /Cannot use "soon" in --timeout <duration>: A duration is written like 5s or 250ms/,
  ],
  [['dev', '--port', '65535'], /65535 is the last one/],
  [['demo', '--kills', '-1'], /whole number/],
];

/** Runs a command in this process, as far as its usage errors. */
async function runHere(argv: readonly string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  let stdout = '';
  let stderr = '';
  const program = buildProgram({
    writeOut: (text) => {
      stdout += text;
    },
    writeErr: (text) => {
      stderr += text;
    },
  });
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return { code: 0, stdout, stderr };
  } catch (error) {
    const { exit, lines } = describeExit(error);
    return { code: exit, stdout, stderr: stderr + lines.map((line) => `${line}\n`).join('') };
  }
}

describe('wrong usage ends with exit code 2 and a message', () => {
  for (const [argv, said] of USAGE_ERRORS) {
    test(`leasehold ${argv.join(' ')}`, async () => {
      const { code, stdout, stderr } = await runHere(argv);
      assert.equal(code, 2);
      assert.match(stderr, said);
      assert.equal(stdout, '');
    });
  }

  test('as a separate program, too', async () => {
    const { code, stdout, stderr } = await runProcess(['status', '--jsno']);
    assert.equal(code, 2);
    assert.match(stderr, /^leasehold: unknown option '--jsno'\n\(Did you mean --json\?\)/);
    assert.equal(stdout, '');
  });
});

describe('every command has a help text', () => {
  const words = 'dev volume put get ls stat mkdir mv rm info status mount umount demo'.split(' ');
  const commands = [
    [],
    ...words.map((word) => [word]),
    ['volume', 'create'],
    ['volume', 'ls'],
    ['volume', 'rm'],
  ];
  for (const argv of commands) {
    test(`leasehold ${[...argv, '--help'].join(' ')}`, async () => {
      const { code, stdout } = await runHere([...argv, '--help']);
      assert.equal(code, 0);
      assert.match(stdout, new RegExp(`^Usage: leasehold ${argv.join(' ')}`));
    });
  }

  test('as a separate program, too', async () => {
    const { code, stdout } = await runProcess(['--help']);
    assert.equal(code, 0);
    assert.match(stdout, /Exit codes: 0 ok/);
  });
});

test('dev names the port that is in use', async () => {
  const blocker = createServer();
  await new Promise<void>((resolve) => blocker.listen(0, '127.0.0.1', resolve));
  const address = blocker.address();
  assert.ok(typeof address === 'object' && address !== null);
  try {
    const { code, stderr } = await runCli(['dev', '--port', `${address.port}`, '--servers', '1']);
    assert.equal(code, 2);
    assert.match(stderr, new RegExp(`Cannot use port ${address.port}: another program uses it`));
  } finally {
    blocker.close();
  }
});

test('called by the helper of fuse, which mount(8) uses if ours is missing, it names the remedy', async () => {
  const remount = await runCli(['leasehold:main', '/mnt', '-o', 'rw,user_id=0,remount,dev,suid']);
  assert.equal(remount.code, 2);
  assert.match(remount.stderr, /"remount": mount\(8\) cannot change this mount\n.*unmount/);
  const mount = await runCli(['main:/', '/mnt', '-o', 'servers=a,dev,suid']);
  assert.equal(mount.code, 2);
  assert.match(mount.stderr, /by the type "fuse.leasehold"\n.*--install-helper/);
});

test('the helper of mount(8) is installed into an existing folder, and uses its own name', async () => {
  const missing = await runCli(['mount', '--install-helper', '/nowhere/at all']);
  assert.equal(missing.code, 3);
  assert.match(
    missing.stderr,
    /"\/nowhere\/at all\/mount.leasehold": there is no folder "\/nowhere\/at all"\n.*mkdir -p/,
  );
  const file = await runCli(['mount', '--install-helper', process.execPath]);
  assert.equal(file.code, 1);
  assert.match(file.stderr, /mount.leasehold": it is not a directory/);
});

test('the helper of mount(8) ends with 1 after wrong usage, as mount(8) expects', async () => {
  const helped = await runCli(['mount-helper', '--help']);
  assert.equal(helped.code, 0);
  assert.match(helped.stdout, /^Usage: mount.leasehold \[options\] <source>/);
  for (const words of [[], ['main'], ['main', '/mnt', '--nonsense'], ['main', '/mnt', '-o', 'nonsense=1']]) {
    const { code, stderr } = await runCli(['mount-helper', ...words]);
    assert.equal(code, 1, `${words.join(' ')}: ${stderr}`);
  }
  assert.match((await runCli(['mount-helper'])).stderr, /"mount.leasehold --help" shows the usage/);
  assert.equal((await runCli(['mount'])).code, 2, 'Other commands keep their exit code');
});

test('each program refuses an argument that is not UTF-8, with its own name and exit code', async () => {
  // Only a shell passes such bytes on.
  const programs = [
    ['leasehold.js', 'leasehold', 2],
    ['mount.leasehold.js', 'mount.leasehold', 1],
  ] as const;
  for (const [file, name, code] of programs) {
    const script = `"${process.execPath}" "${join(dirname(LAUNCHER), file)}" "$(printf 'main:/a\\377')" /nowhere`;
    const { status, stderr } = spawnSync('sh', ['-c', script], { encoding: 'utf8' });
    assert.equal(status, code, stderr);
    assert.match(stderr, new RegExp(`^${name}: Cannot use an argument that is not UTF-8`));
  }
});

test('a get that is interrupted leaves no file and ends by the signal', async () => {
  await using cluster = await FakeCluster.start();
  const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-cli-'));
  try {
    assert.equal((await runCli(['volume', 'create', 'main'], { env })).code, 0);
    assert.equal((await runCli(['put', '-', 'main:/f'], { env, input: 'x'.repeat(100) })).code, 0);
    let hanging = () => {};
    const hangs = new Promise<void>((resolve) => {
      hanging = resolve;
    });
    for (const server of cluster.servers) {
      server.intercept = ({ method, path }) => {
        if (method !== 'GET' || !/^\/v1\/data\/\d+$/.test(path)) return null;
        hanging();
        return { kind: 'hang' };
      };
    }
    const launcher = new URL('../../bin/leasehold.js', import.meta.url).pathname;
    const child = spawn(process.execPath, [launcher, 'get', 'main:/f', join(folder, 'f')], {
      env: { ...process.env, ...env },
    });
    const ended = new Promise((resolve) => child.on('exit', (_code, signal) => resolve(signal)));
    await hangs;
    assert.equal((await readdir(folder)).length, 1, 'The file exists under another name');
    child.kill('SIGTERM');
    assert.equal(await ended, 'SIGTERM');
    assert.deepEqual(await readdir(folder), []);
  } finally {
    await rm(folder, { recursive: true });
  }
});
