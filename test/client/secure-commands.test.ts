/**
 * Goal: every command that uses a cluster can use one with TLS and tokens, by its options and by its environment.
 * Method: real servers; a table with each command of the program, which this test compares with the program itself.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { Command } from 'commander';
import { emptyTokenFile, issueToken } from '../../client/certificates/token-file.ts';
import type { Finding } from '../../client/doctor/finding.ts';
import { buildProgram, describeExit } from '../../client/main.ts';
import { formatTokenFile } from '../../wire/tokens.ts';
import { SecureCluster } from '../security/secure-cluster.ts';
import { LAUNCHER, runCli } from './run-cli.ts';

const SERVERS = 3;
let cluster: SecureCluster;
let folder: string;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'leasehold-commands-'));
  const { text, known } = issueToken({ name: 'root', role: 'admin', volumes: null }, null);
  writeFileSync(join(folder, 'token'), text);
  writeFileSync(join(folder, 'file'), 'contents');
  const book = join(folder, 'tokens.json');
  writeFileSync(book, formatTokenFile({ ...emptyTokenFile(), tokens: [known] }));
  cluster = await SecureCluster.start({ servers: SERVERS, flags: () => ['--tokens', book] });
});
after(async () => {
  await cluster.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Options for the cluster's address, and for the identity of the user. */
function access(): string[] {
  const token = join(folder, 'token');
  return ['--servers', cluster.urls.join(','), '--ca', cluster.authority.ca, '--token-file', token];
}

/** Each command with its arguments, in an order in which each finds what it needs; `.` is the test's folder. */
const COMMANDS: readonly (readonly [command: string, rest?: string, exit?: number])[] = [
  ['volume create', 'main --replicas 3'],
  ['volume set', 'main --trash 1h'],
  ['volume ls'],
  ['volume own-catalog', 'none', 3],
  ['volume split', 'main:/none none', 3],
  ['volume attach', 'none main:/none', 3],
  ['volume detach', 'main:/none', 3],
  ['put', './file main:/a'],
  ['get', 'main:/a ./copy'],
  ['mkdir', 'main:/d'],
  ['cp', 'main:/a main:/b'],
  ['mv', 'main:/b main:/d/b'],
  ['ls', 'main:/'],
  ['stat', 'main:/a'],
  ['flags', '--clear immutable main:/a'],
  ['retain', 'main:/a'],
  ['info', 'main:/a'],
  ['status'],
  ['events'],
  ['top', '--once'],
  ['check'],
  ['resolve', 'main:/a --keep s9', 4],
  ['snapshot create', 'main@now'],
  ['volume clone', 'main@now copy'],
  ['volume flatten', 'copy'],
  ['snapshot ls', 'main'],
  ['snapshot prune', 'main --keep 1'],
  ['snapshot rm', 'main@now'],
  ['snapshot retain', 'main@none --for 1d', 3],
  ['backup', 'main ./archive'],
  ['restore', '--merge ./archive main:/d'],
  ['mirror', 'main --to https://127.0.0.1:1 --timeout 1s --status', 5],
  ['mirror promote', 'main', 4],
  ['replica ls', 'main:/a'],
  ['placement set', 'main:/ --replicas 3 --recursive'],
  ['placement get', 'main:/'],
  ['placement ls'],
  ['placement clear', 'main:/'],
  ['quota set', 'main:/d --bytes 1GiB'],
  ['quota get', 'main:/d'],
  ['quota ls'],
  ['quota clear', 'main:/d'],
  ['replica rm', 'main:/a s3'],
  ['replica add', 'main:/a s3'],
  ['replica move', 'main:/a s3 s9', 4],
  ['rm', 'main:/a'],
  ['trash ls', 'main'],
  ['trash restore', 'main:/a'],
  ['trash empty', 'main'],
  ['scrub', '--progress'],
  ['lease acquire', 'mine -- true'],
  ['lease show', 'mine'],
  ['lease ls'],
  ['server ls'],
  ['server zone', 's3 rack'],
  ['server label', 's3 ssd'],
  ['server drain', 's3 --no-wait'],
  ['server undrain', 's3'],
  ['server maintenance', 's3 --for 1h'],
  ['server ok-to-stop', 's3 --wait 1m'],
  ['server add', 's3 https://127.0.0.1:1', 4],
  ['server remove', 's9', 3],
  ['cluster set', '--catalog-replicas auto'],
  ['cluster show'],
  ['cert revoked', '--out ./revoked.pem'],
  ['bench', 'main --duration 1s'],
  ['volume rm', 'none', 3],
];
/** Old names of commands and options; CHANGELOG.md lists them. */
const DEPRECATED: typeof COMMANDS = [
  ['scrub', '--look'],
  ['lease look', 'mine'],
];
/** `dev` uses no cluster; `mount` and `csi` have their own tests. */
const ELSEWHERE = ['dev', 'mount', 'csi', 'doctor', 'lease watch'];

test('the table has every command that uses a cluster', () => {
  const found: string[] = [];
  const walk = (command: Command, path: string): void => {
    for (const child of command.commands) {
      const name = `${path} ${child.name()}`.trim();
      if (child.options.some(({ long }) => long === '--servers')) found.push(name);
      walk(child, name);
    }
  };
  walk(buildProgram(), '');
  const known = [...COMMANDS.map(([command]) => command), ...ELSEWHERE];
  assert.deepEqual(found.toSorted(), known.toSorted());
});

for (const [command, rest = '', exit = 0] of [...COMMANDS, ...DEPRECATED]) {
  test(`leasehold ${command} ${rest}`.trim(), { timeout: 60_000 }, async () => {
    const given = rest.split(' ').filter((word) => word !== '');
    const words = given.map((word) => word.replace(/^\.\//, `${folder}/`));
    const argv = [...command.split(' '), ...access(), ...words];
    const ended = await buildProgram()
      .parseAsync(argv, { from: 'user' })
      .then(
        () => ({ exit: Number(process.exitCode ?? 0), lines: [] as readonly string[] }),
        (error: unknown) => describeExit(error),
      );
    process.exitCode = 0;
    assert.equal(ended.exit, exit, ended.lines.join('\n'));
  });
}

test('leasehold doctor', async () => {
  // Other findings on this machine, such as an unrelated mount that hangs, decide its exit code.
  const { stdout, stderr } = await runCli(['doctor', '--json', ...access()]);
  const { findings } = JSON.parse(stdout) as { readonly findings: readonly Finding[] };
  const servers = findings.filter(({ name }) => name.startsWith('server '));
  assert.equal(servers.length, SERVERS, stderr);
  for (const { found } of servers) assert.match(found, /^serving at https:/);
});

test('leasehold lease watch', async (context) => {
  const child = spawn(process.execPath, [LAUNCHER, 'lease', 'watch', 'mine', ...access()]);
  context.after(() => child.kill('SIGKILL'));
  let refusal = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    refusal += text;
  });
  const ended = once(child, 'exit').then(() => assert.fail(refusal));
  await Promise.race([once(child.stdout, 'data'), ended]);
});

test('access is read from the environment, too', async () => {
  const env = {
    LEASEHOLD_SERVERS: cluster.urls.join(','),
    LEASEHOLD_CA: cluster.authority.ca,
    LEASEHOLD_TOKEN_FILE: join(folder, 'token'),
  };
  const shown = await Promise.all(['events', 'top'].map((command) => runCli([command], { env })));
  for (const { code, stdout, stderr } of shown) {
    assert.equal(code, 0, stderr);
    assert.match(stdout, /s1/);
  }
});
