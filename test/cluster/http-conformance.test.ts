import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { UNDESCRIBED } from '../../server/http/openapi/document.ts';
import { askJson } from '../http/ask.ts';
import { type Group, type Kept, play, titleOf } from '../http/conformance/case.ts';
import { CONDITIONS, DIGESTS, PARTS, RANGES, WHOLE } from '../http/conformance/contents.ts';
import { curlMissing, curlWorks } from '../http/conformance/curl.ts';
import { keysOutliveServers } from '../http/conformance/keys.ts';
import { largeFile } from '../http/conformance/large-file.ts';
import { NAMES } from '../http/conformance/names.ts';
import { DIRECTORIES, FORMS } from '../http/conformance/pages.ts';
import {
  appendsAdd,
  counterCounts,
  oneChanges,
  oneCreates,
  readersSeeWholeVersions,
} from '../http/conformance/races.ts';
import { TUS } from '../http/conformance/tus.ts';
import { uploadOutlivesServers } from '../http/conformance/tus-survival.ts';
import { watchersAreTold, watchOutlivesPrimary } from '../http/conformance/watching.ts';
import { isLong } from '../long.ts';
import { RealCluster } from './real-cluster.ts';

interface Described {
  readonly paths: Readonly<
    Record<string, Record<string, { operationId: string; summary: string; 'x-role': string }>>
  >;
}

/**
 * Goal: HTTP's guarantees hold at every server, whichever server is primary of the file.
 * Method: rows of requests and answers; each next one goes to the next server of one cluster.
 */
const GROUPS: readonly Group[] = [WHOLE, RANGES, CONDITIONS, DIGESTS, PARTS, NAMES, DIRECTORIES, FORMS, TUS];

/** Much more than a server may hold of it at a time. */
const LARGE_MIB = 512;

const cluster = await RealCluster.start();
after(() => cluster.stop());
await cluster.createVolume('main');
await cluster.createVolume('second');

let asked = 0;
for (const group of GROUPS) {
  test(group.name, async (t) => {
    const kept: Kept = new Map();
    for (const row of group.cases) {
      const base = cluster.urls[asked++ % cluster.urls.length] as string;
      await t.test(titleOf(row), async () => {
        await play(base, row, kept);
      });
    }
  });
}

test('the tables have enough cases', () => {
  assert.ok(asked >= 120, `${asked} cases`);
});

test('every route is described, with the users that may use it', async () => {
  const { paths } = await askJson<Described>(cluster.urls[0] as string, '/openapi.json');
  const operations = Object.values(paths).flatMap((path) => Object.values(path));
  assert.ok(operations.length >= 50, `${operations.length} operations`);
  assert.deepEqual(
    operations.filter(({ summary }) => summary === UNDESCRIBED).map(({ operationId }) => operationId),
    [],
  );
  assert.equal(new Set(operations.map(({ operationId }) => operationId)).size, operations.length);
  for (const operation of operations) assert.match(operation['x-role'], /^(open|read|write|admin)$/);
});

test('of 50 requests that create a name, one succeeds', () => oneCreates(cluster.urls, 50));
test('a counter by compare and swap loses no step', () => counterCounts(cluster.urls, 4, 8));
test('of the requests that change one version, one succeeds', () => oneChanges(cluster.urls, 10));
test('every append exists once', () => appendsAdd(cluster.urls, 40));
test('readers see whole versions only', () => readersSeeWholeVersions(cluster.urls, 30));

test('typical curl commands work', { skip: curlMissing }, () => curlWorks(cluster.urls));
test('a large file needs no memory', async () => {
  // Most of the memory is for copies of the file's bytes.
  await cluster.createVolume('large', isLong ? 3 : 1);
  const { memory } = await largeFile(cluster, 'large', LARGE_MIB);
  for (const [id, { before, most }] of Object.entries(memory)) {
    // Memory that the garbage collector frees later is 250 to 420 MiB at the primary, also for a file ten times as
    // large; a server that kept the file would need its whole size.
    assert.ok(most - before < LARGE_MIB * 0.9, `${id} grew from ${before} to ${most} MiB`);
  }
});
test('watchers of a directory receive its changes', () => watchersAreTold(cluster));
// Last: servers die here.
test('a watch outlives the primary of the catalog', () => watchOutlivesPrimary(cluster));
test('the key of a request outlives the primary', () => keysOutliveServers(cluster));
test('an upload in pieces outlives its client, its server and its primary', () =>
  uploadOutlivesServers(cluster));
