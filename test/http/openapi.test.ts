import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { type Document, OpenAPIClientAxios } from 'openapi-client-axios';
import { ask, askJson } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

describe('the description of HTTP', () => {
  let cluster: FakeCluster;
  let base: string;
  let document: Document;

  before(async () => {
    cluster = await FakeCluster.start();
    base = cluster.server(0).url;
    document = await askJson<Document>(base, '/openapi.json');
  });
  after(() => cluster.close());

  test('is valid', async () => {
    const validator = new Validator();
    const result = await validator.validate({ ...document });
    assert.deepEqual(result, { valid: true });
    assert.equal(validator.version, '3.1');
  });

  test('a client generated from it uploads and downloads', async () => {
    const api = new OpenAPIClientAxios({ definition: document, axiosConfigDefaults: { baseURL: base } });
    const client = await api.getClient();
    const place = { volume: 'main', path: 'made by a client.bin' };
    const bytes = Buffer.from([0, 1, 2, 253, 254, 255]);
    const headers = { 'content-type': 'application/octet-stream' };
    const stored = await client.storeFile?.({ ...place, 'If-None-Match': '*' }, bytes, { headers });
    assert.equal(stored?.status, 201);
    const fetched = await client.fetchFile?.(place, null, { responseType: 'arraybuffer' });
    assert.ok(Buffer.from(fetched?.data as ArrayBuffer).equals(bytes));
    assert.equal(fetched?.headers.etag, stored?.headers.etag);
    await assert.rejects(
      async () => client.storeFile?.({ ...place, 'If-None-Match': '*' }, bytes, { headers }),
      {
        status: 412,
      },
    );
    const moved = await client.changeFile?.({ ...place, 'move-to': '/moved.bin' });
    assert.equal(moved?.status, 204);
    assert.equal((await client.removeFile?.({ volume: 'main', path: 'moved.bin' }))?.status, 204);
  });

  test('people read it without scripts', async () => {
    const page = await ask(base, 'GET', '/docs');
    assert.equal(page.status, 200);
    assert.match(
      page.headers['content-security-policy'] as string,
      /^default-src 'none'; style-src 'sha256-/,
    );
    assert.match(page.text, /PATCH \/v1\/files\/\{volume\}\/\{path\}/);
    assert.doesNotMatch(page.text, /<script|src=|https?:\/\//);
  });
});
