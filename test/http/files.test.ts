import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { after, before, describe, test } from 'node:test';
import type { FileId } from '../../base/ids.ts';
import { ask, askJson, problemIn, sendRaw } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

const MIB = 1024 * 1024;

interface Listing {
  readonly entries: readonly { readonly name: string; readonly kind: string; readonly size: number }[];
  readonly more: boolean;
}

describe('files over HTTP', () => {
  let cluster: FakeCluster;
  let base: string;

  before(async () => {
    cluster = await FakeCluster.start();
    base = cluster.server(0).url;
  });
  after(async () => {
    await cluster.close();
    assert.deepEqual(cluster.logged, [], 'No unexpected error was logged');
  });

  const put = (path: string, body: string | Uint8Array, headers: Record<string, string> = {}) =>
    ask(base, 'PUT', `/v1/files/main/${path}`, { body, headers });
  const get = (path: string, headers: Record<string, string> = {}) =>
    ask(base, 'GET', `/v1/files/main/${path}`, { headers });

  test('each server returns what was put to one, with the same tag', async () => {
    const body = randomBytes(5 * MIB + 12_345);
    const stored = await put('big', body);
    assert.equal(stored.status, 201, stored.text);
    const etag = stored.headers.etag ?? '';
    assert.match(etag, /^"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"$/);
    for (const { url, id } of cluster.servers) {
      const answer = await ask(url, 'GET', '/v1/files/main/big');
      assert.equal(answer.status, 200);
      assert.ok(answer.bytes.equals(body));
      assert.equal(answer.headers.etag, etag);
      assert.equal(answer.headers['content-length'], String(body.length));
      assert.equal(answer.headers['accept-ranges'], 'bytes');
      assert.equal(answer.headers['leasehold-primary'], 's1');
      assert.equal(answer.headers['leasehold-epoch'], '1');
      assert.equal(answer.headers['leasehold-role'], id === 's1' ? 'primary' : 'backup');
      const head = await ask(url, 'HEAD', '/v1/files/main/big');
      assert.equal(head.status, 200);
      assert.equal(head.headers['content-length'], String(body.length));
      assert.equal(head.headers.etag, etag);
      assert.equal(head.headers['leasehold-primary'], 's1');
      assert.equal(head.bytes.length, 0);
    }
    const again = await put('big', 'short');
    assert.equal(again.status, 204);
    assert.notEqual(again.headers.etag, etag);
    assert.equal((await get('big')).text, 'short');
  });

  const labels = [
    ['application/json', '{ "a": [1,  2], "a": 3 }\n'],
    ['application/json', '{ not json'],
    ['text/plain; charset=latin1', 'Grüße'],
    ['application/x-www-form-urlencoded', 'a=%20&b'],
    ['multipart/form-data', '--x'],
    ['nonsense', 'whatever'],
    ['', 'no label'],
  ] as const;
  for (const [type, body] of labels) {
    test(`contents labelled ${JSON.stringify(type)} are returned byte for byte`, async () => {
      const stored = await put('labelled', body, type === '' ? {} : { 'content-type': type });
      assert.ok(stored.status === 201 || stored.status === 204, stored.text);
      const answer = await get('labelled');
      assert.equal(answer.text, body);
      assert.equal(answer.headers['content-type'], 'application/octet-stream');
    });
  }

  test('an empty file, with a length and without', async () => {
    for (const headers of [{ 'content-length': '0' }, { 'transfer-encoding': 'chunked' }]) {
      const stored = await put('empty', '', headers);
      assert.ok(stored.status === 201 || stored.status === 204, stored.text);
      const answer = await get('empty');
      assert.equal(answer.status, 200);
      assert.equal(answer.headers['content-length'], '0');
      assert.equal(answer.headers.etag, stored.headers.etag);
      assert.equal(answer.headers['leasehold-primary'] !== undefined, true);
      assert.equal((await get('empty', { range: 'bytes=0-' })).status, 416);
    }
  });

  const names = [
    'a b',
    'a#b',
    '100%',
    '%2E',
    'naïve ☕ 名',
    'semi;colon',
    'q?mark',
    "it's",
    'a+b&c=d',
    '...',
  ];
  for (const name of names) {
    test(`a file named ${JSON.stringify(name)}`, async () => {
      const path = `names-${encodeURIComponent(name)}`;
      const stored = await put(path, name);
      assert.equal(stored.status, 201, stored.text);
      assert.equal((await get(path)).text, name);
      const { entries } = await askJson<Listing>(base, '/v1/files/main/');
      assert.ok(entries.some((entry) => entry.name === `names-${name}`));
      const info = await askJson<{ readonly path: string }>(base, `/v1/info/main/${path}`);
      assert.equal(info.path, `/names-${name}`);
    });
  }

  const refused = [
    ['..', 400, 'bad-request'],
    ['a/../../b', 400, 'bad-request'],
    ['%2e%2e/b', 400, 'bad-request'],
    ['a%2Fb', 400, 'bad-request'],
    ['a//b', 400, 'bad-request'],
    ['bad%', 400, 'bad-request'],
    ['bad%zz', 400, 'bad-request'],
    ['bad%ff', 400, 'bad-request'],
    ['zero%00', 400, 'bad-request'],
    ['x'.repeat(300), 400, 'name-too-long'],
    [encodeURIComponent('é'.repeat(150)), 400, 'name-too-long'],
    ['missing', 404, 'not-found'],
    ['missing/', 404, 'not-found'],
  ] as const;
  for (const [path, status, code] of refused) {
    test(`GET ${path.slice(0, 30)} is refused with ${code}`, async () => {
      const answer = await get(path);
      assert.equal(answer.status, status, answer.text);
      assert.equal(answer.headers['content-type'], 'application/problem+json');
      const problem = problemIn(answer);
      assert.equal(problem.code, code);
      assert.equal(problem.type, `urn:leasehold:problem:${code}`);
      assert.equal(problem.status, status);
      assert.ok(!answer.text.includes('.ts:'), 'No stack trace leaves the server');
    });
  }

  test('a missing or invalid volume', async () => {
    for (const volume of ['other', 'NO', 'a%20b', '']) {
      const answer = await ask(base, 'GET', `/v1/files/${volume}/x`);
      assert.equal(answer.status, 404, volume);
      assert.equal(problemIn(answer).code, 'not-found');
    }
    const stored = await ask(base, 'PUT', '/v1/files/other/x', { body: 'x' });
    assert.equal(stored.status, 404);
    assert.match(problemIn(stored).detail, /no volume "other"/);
  });

  describe('ranges', () => {
    const body = Buffer.from(Array.from({ length: 3 * MIB }, (_, index) => (index * 7 + (index >> 8)) & 255));
    let etag = '';
    before(async () => {
      etag = (await put('ranged', body)).headers.etag ?? '';
    });
    const size = body.length;
    const ranges: readonly (readonly [string, number, number, number])[] = [
      ['bytes=0-0', 206, 0, 1],
      ['bytes=0-', 206, 0, size],
      ['bytes=100-199', 206, 100, 200],
      ['bytes=1048570-2097160', 206, 1_048_570, 2_097_161],
      ['bytes=-5', 206, size - 5, size],
      [`bytes=-${size * 2}`, 206, 0, size],
      [`bytes=${size - 1}-`, 206, size - 1, size],
      [`bytes=5-${size * 9}`, 206, 5, size],
      ['bytes=0-1,5-6', 200, 0, size],
      ['bytes=9-5', 200, 0, size],
      ['lines=0-1', 200, 0, size],
      ['bytes=x', 200, 0, size],
    ];
    for (const [range, status, start, end] of ranges) {
      test(range, async () => {
        const answer = await get('ranged', { range });
        assert.equal(answer.status, status);
        assert.ok(answer.bytes.equals(body.subarray(start, end)));
        const expected = status === 206 ? `bytes ${start}-${end - 1}/${size}` : undefined;
        assert.equal(answer.headers['content-range'], expected);
      });
    }

    for (const range of [`bytes=${size}-`, 'bytes=-0', 'bytes=99999999-99999999999']) {
      test(`${range} is unsatisfiable`, async () => {
        const answer = await get('ranged', { range });
        assert.equal(answer.status, 416);
        assert.equal(answer.headers['content-range'], `bytes */${size}`);
        assert.equal(problemIn(answer).code, 'range-unsatisfiable');
      });
    }

    test('If-Range: the range of the same contents, else the whole', async () => {
      assert.equal((await get('ranged', { range: 'bytes=0-0', 'if-range': etag })).status, 206);
      assert.equal((await get('ranged', { range: 'bytes=0-0', 'if-range': '"other"' })).status, 200);
      assert.equal((await get('ranged', { range: 'bytes=0-0', 'if-range': `W/${etag}` })).status, 200);
    });

    test('HEAD ignores ranges', async () => {
      const answer = await ask(base, 'HEAD', '/v1/files/main/ranged', { headers: { range: 'bytes=0-0' } });
      assert.equal(answer.status, 200);
      assert.equal(answer.headers['content-length'], String(size));
    });
  });

  describe('conditions', () => {
    test('on GET', async () => {
      const etag = (await put('conditional', 'one')).headers.etag ?? '';
      const cases = [
        [{ 'if-none-match': etag }, 304],
        [{ 'if-none-match': `"x", W/${etag}` }, 304],
        [{ 'if-none-match': '*' }, 304],
        [{ 'if-none-match': '"x"' }, 200],
        [{ 'if-match': etag }, 200],
        [{ 'if-match': '*' }, 200],
        [{ 'if-match': `W/${etag}` }, 412],
        [{ 'if-match': '"x"' }, 412],
      ] as const;
      for (const [headers, status] of cases) {
        const answer = await get('conditional', headers);
        assert.equal(answer.status, status, JSON.stringify(headers));
        if (status === 304) assert.equal(answer.headers.etag, etag);
        if (status !== 200)
          assert.equal(
            status === 304 ? answer.text : problemIn(answer).code,
            status === 304 ? '' : 'precondition-failed',
          );
      }
    });

    test('on PUT and DELETE', async () => {
      assert.equal((await put('guarded', '1', { 'if-match': '*' })).status, 412);
      const first = await put('guarded', '1', { 'if-none-match': '*' });
      assert.equal(first.status, 201);
      assert.equal((await put('guarded', '2', { 'if-none-match': '*' })).status, 412);
      assert.equal((await put('guarded', '2', { 'if-match': '"1-1-1"' })).status, 412);
      const second = await put('guarded', '2', { 'if-match': first.headers.etag ?? '' });
      assert.equal(second.status, 204);
      assert.equal((await put('guarded', '3', { 'if-match': first.headers.etag ?? '' })).status, 412);
      assert.equal((await get('guarded')).text, '2');
      const etag = second.headers.etag ?? '';
      const remove = (headers: Record<string, string>) =>
        ask(base, 'DELETE', '/v1/files/main/guarded', { headers });
      assert.equal((await remove({ 'if-match': '"x"' })).status, 412);
      assert.equal((await remove({ 'if-match': etag })).status, 204);
      assert.equal((await remove({})).status, 404);
      assert.equal((await remove({ 'if-match': '*' })).status, 412);
    });

    test('of two concurrent creations, one succeeds', async () => {
      const answers = await Promise.all(
        ['a', 'b', 'c'].map((body) => put('contested', body, { 'if-none-match': '*' })),
      );
      assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 412, 412]);
    });

    test('the tag of a file that is written in place is that of its primary', async () => {
      const stored = await put('in-place', 'old');
      const { attributes } = await cluster.server(0).gateway.query({
        kind: 'resolve',
        volume: 'main',
        path: 'in-place',
        follow: false,
      });
      const file = attributes.inode as FileId;
      await cluster.server(0).gateway.command({ kind: 'open-for-write', inode: file });
      cluster.overwrite(file, 'rewritten');
      for (const { url } of cluster.servers) {
        const answer = await ask(url, 'GET', '/v1/files/main/in-place');
        assert.equal(answer.text, 'rewritten');
        assert.notEqual(answer.headers.etag, stored.headers.etag);
      }
      assert.equal((await put('in-place', 'x', { 'if-match': stored.headers.etag ?? '' })).status, 412);
      const { entries } = await askJson<Listing>(cluster.server(1).url, '/v1/files/main/');
      assert.equal(entries.find(({ name }) => name === 'in-place')?.size, 9);
    });
  });

  describe('directories', () => {
    test('are created, listed page by page, and removed', async () => {
      assert.equal((await put('dir/', '')).status, 201);
      assert.equal((await put('dir/', '')).status, 204);
      const wanted = Array.from({ length: 25 }, (_, index) => `f${String(index).padStart(2, '0')}`);
      for (const name of wanted) assert.equal((await put(`dir/${name}`, name)).status, 201);
      const whole = await askJson<Listing>(base, '/v1/files/main/dir/');
      assert.deepEqual(
        whole.entries.map(({ name }) => name),
        wanted,
      );
      assert.equal(whole.more, false);
      assert.deepEqual(Object.keys(whole.entries[0] ?? {}), [
        'name',
        'kind',
        'size',
        'mode',
        'modified',
        'etag',
      ]);
      let after = '';
      const paged: string[] = [];
      for (;;) {
        const page = await askJson<Listing>(base, `/v1/files/main/dir/?limit=10&after=${after}`);
        paged.push(...page.entries.map(({ name }) => name));
        after = paged.at(-1) ?? '';
        if (!page.more) break;
        assert.equal(page.entries.length, 10);
      }
      assert.deepEqual(paged, wanted);
      assert.equal((await get('dir/?limit=0')).status, 400);
      const full = await ask(base, 'DELETE', '/v1/files/main/dir/');
      assert.equal(problemIn(full).code, 'not-empty');
      for (const name of wanted) await ask(base, 'DELETE', `/v1/files/main/dir/${name}`);
      assert.deepEqual((await askJson<Listing>(base, '/v1/files/main/dir/')).entries, []);
      assert.equal((await ask(base, 'DELETE', '/v1/files/main/dir/')).status, 204);
      assert.equal((await get('dir/')).status, 404);
    });

    test('and files do not answer for each other', async () => {
      await put('d/', '');
      await put('f', 'x');
      const redirect = await get('d?limit=5');
      assert.equal(redirect.status, 308);
      assert.equal(redirect.headers.location, '/v1/files/main/d/?limit=5');
      assert.equal((await ask(base, 'GET', '/v1/files/main')).headers.location, '/v1/files/main/');
      const cases = [
        ['PUT', 'd', 'is-directory'],
        ['DELETE', 'd', 'is-directory'],
        ['GET', 'f/', 'not-directory'],
        ['PUT', 'f/', 'exists'],
        ['DELETE', 'f/', 'not-directory'],
        ['PUT', 'f/below', 'not-directory'],
      ] as const;
      for (const [method, path, code] of cases) {
        const answer = await ask(
          base,
          method,
          `/v1/files/main/${path}`,
          method === 'PUT' ? { body: 'x' } : {},
        );
        assert.equal(answer.status, 409, `${method} ${path}: ${answer.text}`);
        assert.equal(problemIn(answer).code, code, `${method} ${path}`);
      }
    });

    test('accept no contents, and drop none silently', async () => {
      const refused = await put('with-contents/', 'x');
      assert.equal(refused.status, 400);
      assert.match(problemIn(refused).detail, /ends in "\/" is a directory/);
      assert.equal((await get('with-contents/')).status, 404);
    });

    test('are created only explicitly, unless the request says otherwise', async () => {
      const refusedPut = await put('p/q/r', 'x');
      assert.equal(refusedPut.status, 404);
      assert.match(problemIn(refusedPut).detail, /"main:\/p\/q" does not exist.*parents=true/);
      assert.equal((await put('p/q/r?parents=true', 'x')).status, 201);
      assert.equal((await get('p/q/r')).text, 'x');
      assert.equal((await put('s/t/?parents=true', '')).status, 201);
    });
  });

  test('symbolic links are followed by GET and PUT, and removed by DELETE', async () => {
    await put('target', 'pointed at');
    await cluster.server(0).gateway.command({
      kind: 'symlink',
      place: { volume: 'main', path: 'link' },
      target: 'target',
      uid: 0,
      gid: 0,
    });
    assert.equal((await get('link')).text, 'pointed at');
    const { etag = '' } = (await get('link')).headers;
    assert.equal((await put('link', 'written through', { 'if-match': etag })).status, 204);
    assert.equal((await get('target')).text, 'written through');
    assert.equal((await ask(base, 'DELETE', '/v1/files/main/link')).status, 204);
    assert.equal((await get('link')).status, 404);
    assert.equal((await get('target')).text, 'written through');
  });

  describe('uploads that fail', () => {
    test('a body that breaks off stores nothing', async () => {
      for (const head of ['content-length: 3000000', 'transfer-encoding: chunked']) {
        const start = head.startsWith('content') ? '' : '10\r\n';
        await sendRaw(
          base,
          `PUT /v1/files/main/broken HTTP/1.1\r\nhost: x\r\n${head}\r\n\r\n${start}${'x'.repeat(16)}`,
        );
        assert.equal((await get('broken')).status, 404);
      }
    });

    test('a write that fails half-way is reported, and the connection stays open', async () => {
      cluster.intercept = ({ method, request }) => {
        if (method === 'write' && request !== undefined && request.number === 3) {
          throw new (class extends Error {})('planted');
        }
      };
      const answer = await put('half', randomBytes(20 * MIB));
      cluster.intercept = () => {};
      assert.equal(answer.status, 500);
      assert.equal(problemIn(answer).code, 'internal');
      assert.ok(!answer.text.includes('planted'), 'The message of an internal error is not sent');
      assert.deepEqual(cluster.logged.splice(0), ['request failed unexpectedly']);
      assert.equal((await get('half')).status, 404);
    });

    test('a write of a range of a missing file is refused', async () => {
      assert.equal((await put('part', 'x', { 'content-range': 'bytes 0-0/5' })).status, 404);
    });

    test('writes are whole objects, at most four at a time, in numbers that begin at 1', async () => {
      let running = 0;
      let most = 0;
      const numbers: number[] = [];
      const four = Promise.withResolvers<void>();
      cluster.intercept = async ({ method, request }) => {
        if (method !== 'write' || request === undefined) return;
        numbers.push(request.number);
        most = Math.max(most, ++running);
        // None ends before four are there, and a fifth would have had enough time.
        if (running === 4) setTimeout(four.resolve, 20);
        await four.promise;
        running--;
      };
      const body = randomBytes(12 * MIB + 1);
      assert.equal((await put('paced', body)).status, 201);
      cluster.intercept = () => {};
      assert.equal(most, 4);
      assert.deepEqual(
        numbers.sort((a, b) => a - b),
        Array.from({ length: 13 }, (_, index) => index + 1),
      );
      assert.ok((await get('paced')).bytes.equals(body));
    });
  });

  test('contents that change while they are sent break the answer off', async () => {
    const stored = await put('restless', randomBytes(8 * MIB));
    const file = Number.parseInt((stored.headers.etag ?? '').slice(1), 16) as FileId;
    cluster.intercept = ({ method }) => {
      if (method === 'read' && reads++ === 2) cluster.overwrite(file, 'x'.repeat(8 * MIB));
    };
    let reads = 0;
    await assert.rejects(get('restless'), { code: 'ECONNRESET' });
    cluster.intercept = () => {};
    assert.ok(reads >= 3);
    cluster.logged.splice(0);
  });

  test('a client that disconnects in the middle ends the reads', async () => {
    await put('abandoned', randomBytes(32 * MIB));
    let reads = 0;
    cluster.intercept = ({ method }) => {
      if (method === 'read') reads++;
    };
    await new Promise<void>((resolve, reject) => {
      const request = httpRequest(`${base}/v1/files/main/abandoned`, (response) => {
        response.once('data', () => {
          response.destroy();
          resolve();
        });
        response.on('error', () => {});
      });
      request.on('error', reject);
      request.end();
    });
    // Another request on the same server: by then the first one's stream is closed.
    for (let tries = 0; tries < 100; tries++) {
      const metrics = (await ask(base, 'GET', '/metrics')).text;
      if (metrics.includes('\nleasehold_downloads 0\n')) break;
    }
    cluster.intercept = () => {};
    assert.match((await ask(base, 'GET', '/metrics')).text, /\nleasehold_downloads 0\n/);
    assert.ok(reads < 32, `${reads} reads were executed without a client`);
  });

  test('a missing route or method is also answered with a problem', async () => {
    const nothing = await ask(base, 'GET', '/v2/x');
    assert.equal(nothing.status, 404);
    assert.equal(problemIn(nothing).code, 'not-found');
    const post = await ask(base, 'TRACE', '/v1/files/main/x');
    assert.equal(post.status, 405);
    assert.equal(post.headers.allow, 'DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT');
    assert.equal(problemIn(post).code, 'bad-request');
    const bad = await ask(base, 'GET', '/%zz');
    assert.equal(bad.status, 400);
    assert.equal(problemIn(bad).code, 'bad-request');
    assert.match(await sendRaw(base, '\x16\x03\x01garbage\r\n\r\n'), /^HTTP\/1\.1 400 .*problem\+json/s);
    assert.equal((await ask(base, 'GET', '/livez')).status, 200);
  });
});
