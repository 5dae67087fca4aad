import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const UNITS = fileURLToPath(new URL('../../packaging/systemd/', import.meta.url));
const LAUNCHER = fileURLToPath(new URL('../../bin/leasehold.js', import.meta.url));

const skip = await run('systemd-analyze', ['--version']).then(
  () => false,
  () => 'systemd-analyze is not installed',
);

test('systemd finds no fault in the units', { skip }, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-units-'));
  t.after(() => rm(folder, { recursive: true }));
  const units = (await readdir(UNITS)).filter((name) => name.endsWith('.service'));
  assert.ok(units.length >= 2);
  for (const unit of units) {
    const text = await readFile(join(UNITS, unit), 'utf8');
    // By its name alone: npm and packages of distributions install it into different folders.
    assert.match(text, /^ExecStart=leasehold /m);
    // systemd-analyze checks that the program exists.
    await writeFile(join(folder, unit), text.replace('ExecStart=leasehold ', `ExecStart=${LAUNCHER} `));
    const instance = unit.replace('@.', '@one.');
    const { stdout, stderr } = await run('systemd-analyze', ['verify', '--man=no', join(folder, instance)], {
      env: { ...process.env, SYSTEMD_UNIT_PATH: `${folder}:` },
    });
    // It reads units of the machine itself on the way, which are not the subject.
    const said = `${stdout}${stderr}`.split('\n').filter((line) => line.includes('leasehold'));
    assert.deepEqual(said, [], unit);
  }
});

test('systemd finds no fault in the settings of the gateways', { skip }, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-gateways-'));
  t.after(() => rm(folder, { recursive: true }));
  const mount = await readFile(join(UNITS, 'leasehold-mount@.service'), 'utf8');
  const here = mount.replace('ExecStart=leasehold ', `ExecStart=${LAUNCHER} `);
  await writeFile(join(folder, 'leasehold-mount@.service'), here);
  for (const [gateway, unit] of [
    ['nfs-ganesha', 'nfs-ganesha.service'],
    ['samba', 'smbd.service'],
  ] as const) {
    await writeFile(join(folder, unit), `[Service]\nExecStart=/bin/true\n`);
    await cp(join(UNITS, '..', gateway, `${unit}.d`), join(folder, `${unit}.d`), { recursive: true });
    const { stdout, stderr } = await run('systemd-analyze', ['verify', '--man=no', join(folder, unit)], {
      env: { ...process.env, SYSTEMD_UNIT_PATH: `${folder}:` },
    });
    const said = `${stdout}${stderr}`.split('\n').filter((line) => /leasehold|ganesha|smbd/.test(line));
    assert.deepEqual(said, [], unit);
    const settings = await readFile(join(folder, `${unit}.d`, 'leasehold.conf'), 'utf8');
    assert.match(settings, /^After=leasehold-mount@main\.service$/m);
  }
});

test('servers do not run as root, and each unit stops with one signal', async () => {
  const server = await readFile(join(UNITS, 'leasehold-server@.service'), 'utf8');
  assert.match(server, /^User=leasehold$/m);
  assert.match(server, /^KillMode=mixed$/m);
  const users = await readFile(join(UNITS, 'leasehold.sysusers.conf'), 'utf8');
  assert.match(users, /^u leasehold /m);
  assert.match(await readFile(join(UNITS, 'leasehold-mount@.service'), 'utf8'), /^KillMode=mixed$/m);
});
