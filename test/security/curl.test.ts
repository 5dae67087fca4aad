/**
 * Goal: the recipe for curl in docs/operations.md works, and shows the token in no list of processes.
 * Method: a shell runs its lines, with the address of a real server and files that are made as the document says.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { emptyTokenFile, issueToken } from '../../client/certificates/token-file.ts';
import { formatTokenFile } from '../../wire/tokens.ts';
import { SecureCluster } from './secure-cluster.ts';
import { ask, close } from './wire-client.ts';

const run = promisify(execFile);
const OPERATIONS = new URL('../../docs/operations.md', import.meta.url);
const skip = await run('curl', ['--version']).then(
  () => false,
  () => 'curl is not installed',
);

test('the recipe for curl stores and reads over TLS', { skip }, async (context) => {
  const [, described = ''] = readFileSync(OPERATIONS, 'utf8').split('\nWith curl,');
  const [, recipe = ''] = /```sh\n([\s\S]+?)```/.exec(described) ?? [];
  const lines = recipe.trim().split('\n');
  assert.ok(lines.length >= 4, recipe);
  const { text: token, known } = issueToken({ name: 'me', role: 'admin', volumes: null }, null);
  const cluster = await SecureCluster.start({
    servers: 1,
    flags: ({ folder }) => {
      const book = join(folder, 'tokens.json');
      writeFileSync(book, formatTokenFile({ ...emptyTokenFile(), tokens: [known] }));
      return ['--tokens', book];
    },
  });
  context.after(async () => {
    await close();
    await cluster.stop();
  });
  const { folder } = cluster.authority;
  await cluster.authority.client('ci', 'read');
  writeFileSync(join(folder, 'me.token'), `${token}\n`, { mode: 0o600 });
  writeFileSync(join(folder, 'letter.txt'), 'dear all');
  const command = { kind: 'volume-create', name: 'main', replicas: 1, objectBytes: 131072 };
  const headers = { authorization: `Bearer ${token}` };
  await ask(cluster, 'POST', '/v1/catalog/commands', { json: { session: 1, number: 1, command }, headers });
  const outputs: string[] = [];
  for (const line of lines) {
    assert.doesNotMatch(line, /^curl .*\$\(/, 'A list of processes shows what a shell expands');
    const here = line.replaceAll('certs/', '').replaceAll('https://10.0.0.1:7401', cluster.url('s1'));
    const { stdout } = await run('sh', ['-c', here.replace(/^curl /, 'curl --silent --show-error --fail ')], {
      cwd: folder,
    });
    outputs.push(stdout);
  }
  assert.equal(statSync(join(folder, 'me.header')).mode & 0o777, 0o600);
  assert.match(outputs[1] ?? '', /"servers"/);
  assert.equal(outputs.at(-1), 'dear all', 'stored with a token, and read with a certificate');
});
