import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { ERRORS, type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { type Answer, ask, problemIn } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

const FILES = '/v1/files/main';
const JSON_LABEL = { 'content-type': 'application/json' };
const LOCK = {
  client: 1,
  stamp: 1,
  number: 1,
  pending: [1],
  owner: 'o',
  kind: 'posix',
  type: 'exclusive',
  start: 0,
  end: 9,
  pid: 1,
  waitMs: 0,
};

/**
 * How a client meets codes that need no failing machine; all of them, at real servers:
 * test/cluster/every-problem.test.ts.
 */
describe('problems of the catalogue', () => {
  let cluster: FakeCluster;
  let base: string;
  let file: FileId;

  before(async () => {
    cluster = await FakeCluster.start({ operationTimeoutMs: 1_500 });
    base = cluster.server(0).url;
    await ask(base, 'PUT', `${FILES}/f`, { body: 'contents' });
    await ask(base, 'PUT', `${FILES}/d/full/?parents=true`);
    const { attributes } = await cluster
      .server(0)
      .gateway.query({ kind: 'resolve', volume: 'main', path: '/f', follow: false });
    file = attributes.inode as FileId;
    await command({
      kind: 'symlink',
      place: { volume: 'main', path: '/loop' },
      target: 'loop',
      uid: 0,
      gid: 0,
    });
    await command({ kind: 'volume-create', name: 'second', replicas: 1, objectBytes: 4096 });
  });
  after(() => cluster.close());
  beforeEach(() => {
    cluster.intercept = () => {};
  });

  let number = 0;
  const command = (body: object): Promise<Answer> =>
    ask(base, 'POST', '/v1/catalog/commands', {
      headers: JSON_LABEL,
      body: JSON.stringify({ session: 77, number: ++number, command: body }),
    });
  const query = (body: object): Promise<Answer> =>
    ask(base, 'POST', '/v1/catalog/queries', { headers: JSON_LABEL, body: JSON.stringify({ query: body }) });
  const put = (name: string, headers: Record<string, string> = {}): Promise<Answer> =>
    ask(base, 'PUT', `${FILES}/${name}`, { body: 'x', headers });
  const get = (name: string, headers: Record<string, string> = {}): Promise<Answer> =>
    ask(base, 'GET', `${FILES}/${name}`, { headers });
  const lock = (client: number): Promise<Answer> =>
    ask(base, 'POST', `/v1/data/${file}/locks`, {
      headers: JSON_LABEL,
      body: JSON.stringify({ ...LOCK, client }),
    });
  /** An unforeseen error. */
  const failing = async (): Promise<Answer> => {
    cluster.intercept = ({ method }) => {
      if (method === 'read') throw new Error('The service fails for this test');
    };
    return get('f');
  };

  const CASES: Readonly<Partial<Record<ErrorCode, () => Promise<Answer>>>> = {
    'bad-request': () => get('../x'),
    'not-found': () => get('none'),
    exists: () => ask(base, 'POST', `${FILES}/f?move-to=/d&overwrite=false`),
    'not-directory': () => get('f/'),
    'is-directory': () => put('d'),
    'not-empty': () => ask(base, 'DELETE', `${FILES}/d/`),
    'precondition-failed': () => put('f', { 'if-none-match': '*' }),
    'range-unsatisfiable': () => get('f', { range: 'bytes=99-' }),
    'digest-mismatch': () => put('f', { 'content-md5': 'AAAAAAAAAAAAAAAAAAAAAA==' }),
    'name-too-long': () => get('n'.repeat(256)),
    'symlink-loop': () => get('loop'),
    'cross-volume': () => ask(base, 'POST', `${FILES}/f?move-to=second:/f`),
    'no-attribute': () => query({ kind: 'xattr', inode: file, name: 'user.none' }),
    'too-large': () => ask(base, 'PATCH', `${FILES}/f?append`, { body: Buffer.alloc(4 * 1024 * 1024 + 1) }),
    'read-only': () => ask(base, 'PUT', `${FILES}@monday/f`),
    'session-expired': async () => {
      number = 200;
      await command({ kind: 'keep-orphan', inode: file });
      number = 0;
      return command({ kind: 'keep-orphan', inode: file });
    },
    locked: async () => {
      assert.equal((await lock(1)).status, 200);
      return lock(2);
    },
    'not-primary': () =>
      ask(cluster.server(1).url, 'POST', `/v1/data/${file}/flush`, {
        headers: { 'leasehold-forwarded': '1' },
      }),
    // The server that is asked next does not remember the outcome of the first attempt.
    unknown: async () => {
      const codes: ErrorCode[] = ['unknown', 'session-expired'];
      cluster.intercept = ({ method }) => {
        const next = method === 'execute' ? codes.shift() : undefined;
        if (next !== undefined) throw new ServiceError(next, 'The service fails for this test');
      };
      return command({ kind: 'keep-orphan', inode: file });
    },
    'quota-exceeded': async () => {
      const { gateway } = cluster.server(0);
      await gateway.command({ kind: 'volume-set', name: 'main', quotaInodes: 1 });
      const answer = await put('one-more');
      await gateway.command({ kind: 'volume-set', name: 'main', quotaInodes: 0 });
      return answer;
    },
    internal: failing,
  };

  for (const [name, produce] of Object.entries(CASES)) {
    const code = name as ErrorCode;
    test(code, async () => {
      const answer = await produce();
      assert.equal(answer.status, ERRORS[code].status, answer.text);
      assert.equal(answer.headers['content-type'], 'application/problem+json');
      const { title, status, type, detail, ...rest } = problemIn(answer);
      assert.equal(rest.code, code);
      assert.deepEqual([title, status], [ERRORS[code].title, ERRORS[code].status]);
      assert.equal(type, `urn:leasehold:problem:${code}`);
      assert.ok(detail.length > 10);
      assert.equal(answer.headers['retry-after'] !== undefined, ERRORS[code].status === 503);
    });
  }
});
