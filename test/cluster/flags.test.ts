import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { printedBy } from '../client/run-cli.ts';
import { type Answer, ask, problemIn } from '../http/ask.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: what is immutable or append-only stays so for every route of HTTP and every command, whichever server is its
 * primary.
 * Method: a real cluster whose primary is killed after the flags were set.
 */
const cluster = await RealCluster.start({ flags: ['--gc-grace', '1s'] });
after(() => cluster.stop());
await cluster.createVolume('main');

const FILES = '/v1/files/main';
let asked = cluster.ids[0] ?? '';

/** Repeats a request as often as an election demands. */
async function at(method: string, path: string, options: Parameters<typeof ask>[3] = {}): Promise<Answer> {
  let answer: Answer | null = null;
  await until(`${asked} answers ${method} ${path}`, async () => {
    answer = await ask(cluster.url(asked), method, path, options);
    return answer.status !== 503;
  });
  assert.ok(answer !== null);
  return answer;
}

async function done(method: string, path: string, body?: string): Promise<Answer> {
  const answer = await at(method, path, body === undefined ? {} : { body });
  assert.ok(answer.status < 300, answer.text);
  return answer;
}

async function refused(method: string, path: string, body?: string): Promise<void> {
  const answer = await at(method, path, body === undefined ? {} : { body });
  assert.equal(answer.status, 409, `${method} ${path}: ${answer.text}`);
  assert.equal(problemIn(answer).code, 'protected');
}

function leasehold(...argv: string[]): Promise<string> {
  return printedBy(argv, { env: { LEASEHOLD_SERVERS: cluster.urls.join(',') } });
}

async function assertImmutable(): Promise<void> {
  await refused('PUT', `${FILES}/d/f`, 'other');
  await refused('PUT', `${FILES}/d/f`, 'x'.repeat(1_000_000));
  await refused('PATCH', `${FILES}/d/f?offset=0`, 'other');
  await refused('PATCH', `${FILES}/d/f?append`, 'other');
  await refused('DELETE', `${FILES}/d/f`);
  await refused('DELETE', `${FILES}/d/?recursive=true`);
  await refused('POST', `${FILES}/d/f?move-to=/g`);
  await refused('POST', `${FILES}/other?copy-to=/d/f`);
  assert.equal((await done('GET', `${FILES}/d/f`)).text, 'contents');
}

test('an immutable file does not change, and is removed once the flag is cleared', async () => {
  await done('PUT', `${FILES}/d/f?parents=true`, 'first');
  await done('PUT', `${FILES}/other`, 'other');
  await done('PATCH', `${FILES}/d/f?offset=0`, 'cont');
  await done('PATCH', `${FILES}/d/f?offset=4`, 'ents');
  assert.equal(await leasehold('flags', 'main:/d/f'), 'none\n');
  assert.equal(await leasehold('flags', '--set', 'immutable', 'main:/d/f'), 'immutable\n');
  assert.match(await leasehold('stat', 'main:/d/f'), /flags +immutable/);
  assert.match((await done('GET', `${FILES}/d/`)).text, /"flags":\["immutable"\]/);
  await assertImmutable();
  await assert.rejects(leasehold('rm', '-r', 'main:/d'), { code: 4 });
  // Directories above it may be renamed, and a copy of it is another file.
  await done('POST', `${FILES}/d/?move-to=/e`);
  await done('POST', `${FILES}/e/?move-to=/d`);
  await done('POST', `${FILES}/d/f?copy-to=/copy`);
  await done('DELETE', `${FILES}/copy`);

  const { headers } = await done('GET', `${FILES}/d/f`);
  const victim = String(headers['leasehold-primary'] ?? cluster.ids[0]);
  asked = cluster.ids.find((id) => id !== victim) ?? '';
  await cluster.kill(victim);
  await assertImmutable();
  await cluster.spawn(victim);
  await assertImmutable();
  const { text } = await done('POST', `${FILES}/d/f?clear-flags=immutable`);
  assert.deepEqual((JSON.parse(text) as { flags: unknown }).flags, []);
  await done('PATCH', `${FILES}/d/f?append`, '!');
  await done('DELETE', `${FILES}/d/f`);
});

test('append-only files and directories accept additions, and no other change', async () => {
  await done('PUT', `${FILES}/log/a?parents=true`, 'one');
  await done('POST', `${FILES}/log/a?set-flags=append-only`);
  await done('POST', `${FILES}/log?set-flags=append-only`);
  await done('PATCH', `${FILES}/log/a?append`, ',two');
  await refused('PATCH', `${FILES}/log/a?offset=0`, 'x');
  await refused('PUT', `${FILES}/log/a`, 'x');
  await done('PUT', `${FILES}/log/b`, 'x');
  await refused('PUT', `${FILES}/log/b`, 'y');
  await refused('DELETE', `${FILES}/log/b`);
  await refused('DELETE', `${FILES}/log/?recursive=true`);
  assert.equal((await done('GET', `${FILES}/log/a`)).text, 'one,two');
  assert.equal((await at('POST', `${FILES}/log?set-flags=other`)).status, 400);
  await done('POST', `${FILES}/log?clear-flags=append-only`);
  await done('POST', `${FILES}/log/a?set-flags=immutable&clear-flags=append-only`);
  await refused('PATCH', `${FILES}/log/a?append`, 'x');
  await leasehold('flags', '--clear', 'immutable,append-only', 'main:/log/a');
  await done('DELETE', `${FILES}/log/?recursive=true`);
});
