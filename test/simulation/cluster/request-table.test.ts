/** Goal: a report of requests says which machine makes which, how often and when. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RequestTable } from './judges/request-table.ts';

const query = { from: 's2', origin: '', method: 'POST', path: '/v1/catalog/queries' };
const standing = { from: 's1', origin: '', method: 'GET', body: '' };

test('requests are counted by sender, server and route, without the numbers of files', () => {
  const table = new RequestTable(1_000);
  table.add({ ...query, body: '{"query":{"kind":"placed","inodes":[7]}}' }, 's2', 1_500);
  for (const file of [12, 13])
    table.add({ ...standing, path: `/v1/data/${file}/standing?x=1` }, 's3', 2_000 + 250 * file);
  assert.equal(table.count, 3);
  assert.deepEqual(table.text.split('\n'), [
    '  2 s1 to s3 GET /v1/data/:file/standing, from 4.0 to 4.3 s',
    '  1 s2 to s2 POST /v1/catalog/queries placed, from 0.5 to 0.5 s',
  ]);
});

test('of many routes those with the most requests are listed', () => {
  const table = new RequestTable(0);
  for (let server = 1; server <= 20; server++)
    for (let count = 0; count < server; count++) table.add({ ...standing, path: '/livez' }, `s${server}`, 0);
  const lines = table.text.split('\n');
  assert.match(lines[0] as string, /20 s1 to s20 GET/);
  assert.equal(lines.at(-1), '  and 8 other routes');
});
