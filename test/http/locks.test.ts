import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, test } from 'node:test';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { LockBody, LockList, LockRenewal } from '../../wire/lock-api.ts';
import { ask, problemIn } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

const S1 = 's1' as ServerId;
const HELD = {
  owner: 'o',
  kind: 'posix',
  type: 'exclusive',
  start: 0,
  end: Number.MAX_SAFE_INTEGER,
  pid: 1,
} as const;
const BODY: LockBody = { ...HELD, client: 1, stamp: 1, number: 1, pending: [1], waitMs: 0 };

describe('locks over HTTP', () => {
  let cluster: FakeCluster;
  let file: FileId;

  beforeEach(async () => {
    cluster = await FakeCluster.start({ servers: 3 });
    cluster.catalogPrimary = S1;
    const place = { volume: 'main', path: 'file' };
    const command = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true } as const;
    file = (await cluster.server(0).gateway.command(command)).attributes.inode as FileId;
  });
  afterEach(() => cluster.close());

  const post = (index: number, name: string, body: unknown) =>
    ask(cluster.server(index).url, 'POST', `/v1/data/${file}/locks${name}`, {
      body: JSON.stringify(body),
      headers: { 'content-type': 'application/json' },
    });

  test('any server forwards a lock to the primary, and answers which server that is', async () => {
    const answers = await Promise.all(
      [0, 1, 2].map((index) => post(index, '', { ...BODY, owner: `${index}`, start: index, end: index })),
    );
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200, 200],
    );
    assert.equal(new Set(answers.map(({ headers }) => headers['leasehold-primary'])).size, 1);
    const list = JSON.parse(
      (await ask(cluster.server(2).url, 'GET', `/v1/data/${file}/locks`)).text,
    ) as LockList;
    assert.deepEqual(list.locks.map(({ start }) => start).sort(), [0, 1, 2]);
  });

  test('a lock that another client has is a conflict, and a missing one cannot be renewed', async () => {
    await post(0, '', BODY);
    const refused = await post(1, '', { ...BODY, client: 2 });
    assert.deepEqual([refused.status, problemIn(refused).code], [409, 'locked']);
    const renewed = await post(1, '/renew', { client: 2, stamp: 2, pending: [], locks: [HELD] });
    assert.deepEqual((JSON.parse(renewed.text) as LockRenewal).lost, [0]);
  });

  test('an invalid lock is refused before any server is asked', async () => {
    for (const wrong of [
      { kind: 'lease' },
      { start: -1 },
      { start: '12' },
      { start: '99999999999999999999' },
      { end: '9223372036854775808' },
      { end: 1.5 },
      { owner: '' },
      { client: 0 },
      { more: 1 },
    ]) {
      const answer = await post(0, '', { ...BODY, ...wrong });
      assert.deepEqual([answer.status, problemIn(answer).code], [400, 'bad-request'], JSON.stringify(wrong));
    }
    assert.equal((await post(0, '/renew', BODY)).status, 400);
  });
});
