import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { startS3 } from './s3-server.ts';

/** Goal: what pages, clients and users of mounts send ends neither a server nor what others rely on. */
const { port, url, server } = await startS3();
await fetch(`${url}/bucket`, { method: 'PUT' });

function codeOf(text: string): string | undefined {
  return /<Code>(\w+)<\/Code>/.exec(text)?.[1];
}

test('a page of another origin stores nothing by a form, which browsers send without asking', async () => {
  const form = new FormData();
  form.set('key', 'from-a-page');
  form.set('file', new Blob(['contents']), 'name');
  const origin = 'https://elsewhere.example';
  const answer = await fetch(`${url}/bucket`, { method: 'POST', body: form, headers: { origin } });
  assert.deepEqual([answer.status, codeOf(await answer.text())], [403, 'AccessDenied']);
  assert.equal((await fetch(`${url}/bucket/from-a-page`)).status, 404);
  const own = await fetch(`${url}/bucket`, { method: 'POST', body: form });
  assert.equal(own.status, 204, 'Other programs may send forms');
});

test('a document without an announced length is bounded', async () => {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  socket.write('POST /bucket?delete HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n');
  const chunk = `10000\r\n${'x'.repeat(65_536)}\r\n`;
  let sent = 0;
  const answered = new Promise<string>((resolve) => {
    socket.once('data', (bytes) => resolve(bytes.toString()));
    socket.once('close', () => resolve(''));
  });
  let isAnswered = false;
  void answered.then(() => {
    isAnswered = true;
  });
  while (!isAnswered && sent < 64 * 1024 * 1024) {
    sent += chunk.length;
    if (!socket.write(chunk)) await Promise.race([answered, new Promise((go) => socket.once('drain', go))]);
  }
  const text = await answered;
  socket.destroy();
  assert.match(text, /EntityTooLarge/);
});

test('an attribute that others have written sets no header but those of contents, and no number of parts', async () => {
  await fetch(`${url}/bucket/own`, { method: 'PUT', body: 'own' });
  const { attributes } = await server.query({
    kind: 'resolve',
    volume: 'bucket',
    path: '/own',
    follow: true,
  });
  const { inode, contents } = attributes;
  const record = {
    headers: { 'set-cookie': 'a=b', 'content-type': 'text/plain' },
    of: [inode, contents.epoch, contents.seq],
    computed: { etag: '0'.repeat(32), parts: [[1, 4_000_000_000]] },
  };
  const value = Buffer.from(JSON.stringify(record)).toString('base64');
  await server.execute({ kind: 'set-xattr', inode, name: 'user.s3', value, mode: 'set' });
  const answer = await fetch(`${url}/bucket/own`);
  assert.deepEqual([answer.status, answer.headers.get('set-cookie')], [200, null]);
  const listed = await fetch(`${url}/bucket/own?attributes`, {
    headers: { 'x-amz-object-attributes': 'ObjectParts,ETag' },
  });
  assert.deepEqual([listed.status, /PartsCount/.test(await listed.text())], [200, false]);
  const checksum = { algorithm: 'CRC32', value: 'AAAAAA==-1', type: 'COMPOSITE' };
  const other = {
    ...record,
    computed: { ...record.computed, parts: [[3, 1]], checksum, partChecksums: 'AAAA' },
  };
  const text = Buffer.from(JSON.stringify(other)).toString('base64');
  await server.execute({ kind: 'set-xattr', inode, name: 'user.s3', value: text, mode: 'set' });
  const parts = await fetch(`${url}/bucket/own?attributes`, {
    headers: { 'x-amz-object-attributes': 'ObjectParts' },
  });
  assert.match(await parts.text(), /<Part><PartNumber>1<\/PartNumber><Size>3<\/Size><\/Part>/);
});
