import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  createMountLog,
  OWN_LOG_VARIABLE,
  ownFolder,
  renameMountLog,
} from '../../client/mounts/mount-log.ts';

const folder = mkdtempSync(join(tmpdir(), 'leasehold-mount-log-'));
after(() => rmSync(folder, { recursive: true }));

test('a folder that another user could change or has created is not used', async () => {
  const elsewhere = join(folder, 'elsewhere');
  mkdirSync(elsewhere);
  const link = join(folder, 'link');
  symlinkSync(elsewhere, link);
  writeFileSync(join(folder, 'file'), '');
  const missing = join(folder, 'none', 'below');
  const good = join(folder, 'good');
  assert.equal(await ownFolder([link, join(folder, 'file'), missing, good]), good);
  assert.equal(statSync(good).mode & 0o777, 0o700);
  chmodSync(good, 0o777);
  assert.equal(await ownFolder([good]), good);
  assert.equal(statSync(good).mode & 0o777, 0o700);
  const fresh = await ownFolder([link]);
  assert.notEqual(fresh, elsewhere);
  assert.equal(statSync(fresh).mode & 0o777, 0o700);
  rmSync(fresh, { recursive: true });
  // Only root can give a folder away.
  if (process.getuid?.() !== 0) return;
  const given = join(folder, 'given');
  mkdirSync(given);
  spawnSync('chown', ['65534', given]);
  assert.equal(await ownFolder([given, good]), good);
});

test('a log is readable by its user alone, is named by its process, and few logs of ended mounts stay', async () => {
  const made = await createMountLog('/mnt/there', { XDG_RUNTIME_DIR: folder });
  await made.file.close();
  assert.equal(statSync(made.path).mode & 0o777, 0o600);
  const own = join(made.path, '..');
  const named = await renameMountLog(made.path, '/mnt/there', process.pid);
  assert.equal(named, join(own, `mount-there-${process.pid}.log`));
  // No process has such a number.
  for (let pid = 9_000_000; pid < 9_000_014; pid++) writeFileSync(join(own, `mount-dead-${pid}.log`), '');
  const next = await createMountLog('/mnt/next', { XDG_RUNTIME_DIR: folder });
  await next.file.close();
  const left = readdirSync(own).filter((name) => name.startsWith('mount-dead-'));
  assert.equal(left.length, 10);
  assert.ok(existsSync(named), 'its process runs');
  for (const path of [named, next.path, ...left.map((name) => join(own, name))]) rmSync(path);
});

test('what belongs to a mount of another container stays while its socket answers', async (t) => {
  const made = await createMountLog('/mnt/there', { XDG_RUNTIME_DIR: folder });
  await made.file.close();
  const own = join(made.path, '..');
  // No process here has such a number: there, one has.
  const [socket, log] = ['control', 'log'].map((kind) => join(own, `mount-else-9000020.${kind}`)) as [
    string,
    string,
  ];
  const left = join(own, 'mount-dead-9000021.control');
  writeFileSync(left, '');
  writeFileSync(log, '');
  utimesSync(log, 0, 0);
  const dead = Array.from({ length: 12 }, (_, place) => join(own, `mount-dead-${9_000_030 + place}.log`));
  for (const path of dead) writeFileSync(path, '');
  const server = createServer().listen(socket);
  await once(server, 'listening');
  t.after(() => {
    server.close();
    for (const path of [made.path, log, ...dead]) rmSync(path, { force: true });
  });
  const next = await createMountLog('/mnt/next', { XDG_RUNTIME_DIR: folder });
  await next.file.close();
  rmSync(next.path);
  assert.ok(existsSync(socket) && existsSync(log), 'It runs');
  assert.ok(!existsSync(left), 'It has ended');
  assert.equal(dead.filter((path) => existsSync(path)).length, 10);
});

test('a long log is rotated, and removed at the end', () => {
  const path = join(folder, 'rotated.log');
  const module = fileURLToPath(new URL('../../fuse/own-log.ts', import.meta.url));
  const world = fileURLToPath(new URL('../../world/system-world.ts', import.meta.url));
  const script = (end: string): string =>
    `import { OwnLog } from ${JSON.stringify(module)};
     import { systemWorld } from ${JSON.stringify(world)};
     const log = new OwnLog(systemWorld, process.env, 1000, 10);
     process.stderr.write('x'.repeat(1500) + '\\n');
     setTimeout(() => { process.stderr.write('after\\n'); ${end} }, 300);`;
  const runs = (end: string, env: NodeJS.ProcessEnv): void => {
    const log = openSync(path, 'a', 0o600);
    const argv = ['--input-type=module', '--eval', script(end)];
    const { status } = spawnSync(process.execPath, argv, { stdio: ['ignore', 'ignore', log], env });
    assert.equal(status, 0, existsSync(path) ? readFileSync(path, 'utf8') : '');
  };
  runs('', { ...process.env, [OWN_LOG_VARIABLE]: '1' });
  assert.equal(readFileSync(path, 'utf8'), 'after\n');
  assert.match(readFileSync(`${path}.1`, 'utf8'), /^x{1500}\n$/);
  runs('log.remove();', { ...process.env, [OWN_LOG_VARIABLE]: '1' });
  assert.deepEqual([existsSync(path), existsSync(`${path}.1`)], [false, false]);
  runs('log.remove();', process.env);
  assert.match(readFileSync(path, 'utf8'), /^x{1500}\nafter\n$/, "Another mount's log stays");
});
