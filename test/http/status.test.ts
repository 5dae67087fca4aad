import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import { MetricsRegistry } from '../../server/telemetry/metrics.ts';
import type { ClusterStatus, FileInfo, ServerStatus } from '../../wire/http-api.ts';
import { patientWorld } from '../patient-world.ts';
import { ask, askJson, problemIn } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

const S2 = 's2' as ServerId;
const S3 = 's3' as ServerId;

describe('status over HTTP', () => {
  let cluster: FakeCluster;
  let base: string;

  beforeEach(async () => {
    cluster = await FakeCluster.start({ operationTimeoutMs: 1_500 });
    base = cluster.server(0).url;
  });
  afterEach(() => cluster.close());

  test('a healthy cluster', async () => {
    const status = await askJson<ClusterStatus>(base, '/v1/status');
    assert.equal(status.verdict, 'healthy');
    assert.deepEqual(status.reasons, []);
    assert.equal(status.cluster, 'test');
    assert.deepEqual(status.timing, { leaseMs: 2000, clockSkewMaxMs: 100 });
    assert.equal(status.catalog.primary, 's1');
    assert.deepEqual(
      status.servers.map(({ id, state, reachable }) => [id, state, reachable]),
      [
        ['s1', 'serving', true],
        ['s2', 'serving', true],
        ['s3', 'serving', true],
      ],
    );
    const self = await askJson<ServerStatus>(cluster.server(2).url, '/v1/status/self');
    assert.equal(self.id, 's3');
  });

  test('what moves is the sum over the primaries of all catalogs', async () => {
    for (const [place, total] of [
      [0, 5],
      [2, 7],
    ] as const) {
      const server = cluster.server(place) as { status: Partial<ServerStatus> };
      server.status = { moving: { total, done: 1, failed: 0, current: [total] } };
    }
    const { moving } = await askJson<ClusterStatus>(base, '/v1/status');
    assert.deepEqual([moving?.total, moving?.done, moving?.current], [12, 2, [5, 7]]);
  });

  test('the catalogs of volumes, with the primaries that report themselves', async (t) => {
    const own = await FakeCluster.start({ catalog: 3 as CatalogNumber });
    t.after(() => own.close());
    const statusOf = () => askJson<ClusterStatus>(own.server(1).url, '/v1/status');
    const listed = { number: 3, name: 'main', state: 'ready', members: ['s1', 's2', 's3'] };
    const waiting = await statusOf();
    assert.deepEqual(waiting.catalogs, [{ ...listed, primary: null }]);
    assert.equal(waiting.verdict, 'degraded');
    assert.deepEqual(waiting.reasons, ['The catalog of volume main currently has no primary']);
    own.server(2).status = { primaryOfCatalogs: [3] };
    const serving = await statusOf();
    assert.deepEqual([serving.verdict, serving.catalogs], ['healthy', [{ ...listed, primary: 's3' }]]);
    own.server(0).status = { state: 'recovering' };
    own.server(2).status = { state: 'clock-fault' };
    const { reasons } = await statusOf();
    assert.ok(reasons.includes("No majority of the catalog's servers serves volume main: start s1, s3"));
  });

  const cases: readonly {
    readonly name: string;
    readonly arrange: (cluster: FakeCluster) => void | Promise<void>;
    readonly verdict: ClusterStatus['verdict'];
    readonly reason: RegExp;
    readonly labels?: readonly (readonly string[] | undefined)[];
  }[] = [
    {
      name: 'one server is gone',
      arrange: async ({ servers }) => servers[2]?.app.close(),
      verdict: 'degraded',
      reason: /^Server s3 does not answer$/m,
    },
    {
      name: 'one server hangs',
      arrange: (target) => {
        target.intercept = ({ server, method }) => {
          if (server === S3 && method === 'self') return new Promise(() => {});
          return;
        };
      },
      verdict: 'degraded',
      reason: /^Server s3 does not answer$/m,
    },
    {
      name: 'one server recovers',
      arrange: ({ servers }) => {
        (servers[1] as { status: object }).status = { state: 'recovering', recoveringMs: 4200 };
      },
      verdict: 'degraded',
      reason: /^Server s2 is in its recovery wait for another 4\.2 s,/m,
    },
    {
      name: 'a clock is wrong',
      arrange: ({ servers }) => {
        (servers[1] as { status: object }).status = { state: 'clock-fault' };
      },
      verdict: 'degraded',
      reason: /^Server s2 takes part in no lease: its clock jumped/m,
    },
    {
      name: 'two servers are gone',
      arrange: async ({ servers }) => {
        await servers[1]?.app.close();
        await servers[2]?.app.close();
      },
      verdict: 'down',
      reason: /^Only 1 of the catalog's 3 servers are available, and 2 are needed: start the missing ones$/m,
    },
    {
      name: 'the catalog has no primary',
      arrange: (target) => {
        target.catalogPrimary = null;
      },
      verdict: 'degraded',
      reason: /^The catalog currently has no primary/m,
    },
    {
      name: 'replicas are behind',
      arrange: ({ servers }) => {
        (servers[0] as { status: object }).status = { underReplicated: [7, 5] };
        (servers[1] as { status: object }).status = { underReplicated: [5] };
      },
      verdict: 'degraded',
      reason: /^2 files are under-replicated/m,
    },
    {
      name: 'a member of the catalog has no replica of it',
      arrange: ({ servers }) => {
        (servers[1] as { status: object }).status = { catalogReplica: 'missing' };
      },
      verdict: 'degraded',
      reason: /^The catalog replica of server s2 is still being created/m,
    },
    {
      name: 'two members of the catalog have no replica of it',
      arrange: ({ servers }) => {
        for (const at of [0, 1]) (servers[at] as { status: object }).status = { catalogReplica: 'missing' };
      },
      verdict: 'down',
      reason: /^Only 1 of the catalog's 3 servers are available, and 2 are needed/m,
    },
    {
      name: 'leases under names have one voter',
      arrange: ({ servers }) => {
        const namedLeases = { known: 1, voters: 1, recoveringMs: 0 };
        (servers[0] as { status: object }).status = { namedLeases };
      },
      verdict: 'degraded',
      reason: /^Named leases have only one voter/m,
    },
    {
      name: 'names are on fewer servers than the setting says',
      arrange: (target) => {
        target.known.catalogReplicas = 5;
      },
      verdict: 'degraded',
      reason: /^Names are on 3 of 3 servers: two failures make them unavailable; add 2 servers$/m,
    },
    {
      name: 'a server in maintenance is gone',
      arrange: async (target) => {
        target.known.maintenanceUntilMs = (id) => (id === S3 ? 1_800_000_000_000 : null);
        await target.servers[2]?.app.close();
      },
      verdict: 'degraded',
      reason: /^Server s3 does not answer; it is in maintenance, and its .* until 2027-01-15T08:00:00.000Z$/m,
    },
    {
      name: 'a server has too few descriptors',
      arrange: ({ servers }) => {
        (servers[1] as { status: object }).status = { shortages: ['has nearly all 10 descriptors'] };
      },
      verdict: 'degraded',
      reason: /^Server s2 has nearly all 10 descriptors/m,
    },
    {
      name: 'a counter of the catalog is wrong',
      arrange: ({ servers }) => {
        (servers[0] as { status: object }).status = { wrongCounters: ['files of server s2: 3 instead of 4'] };
      },
      verdict: 'degraded',
      reason:
        /^A counter of the catalog is wrong \(found by server s1: files of server s2: 3 instead of 4\)/m,
    },
    {
      name: 'a volume lacks servers for its files',
      arrange: (target) => {
        target.known.labelsOf = (id) => (id === S3 ? ['ssd'] : []);
        (target.servers[1] as { status: object }).status = {
          placementShortages: ['Volume "fast" lacks servers for 3 replicas'],
        };
      },
      verdict: 'degraded',
      reason: /^Volume "fast" lacks servers for 3 replicas$/m,
      labels: [undefined, undefined, ['ssd']],
    },
    {
      name: 'unused replicas are behind',
      arrange: ({ servers }) => {
        (servers[1] as { status: object }).status = { lag: { files: 2, versions: 3, bytes: 0 } };
      },
      verdict: 'degraded',
      reason: /^Replicas of idle files are behind/m,
    },
  ];
  for (const { name, arrange, verdict, reason, labels } of cases) {
    test(`${name}: ${verdict}`, async () => {
      await arrange(cluster);
      const startMs = performance.now();
      const status = await askJson<ClusterStatus>(base, '/v1/status');
      assert.ok(performance.now() - startMs < 20_000, 'A status is returned in bounded time');
      assert.equal(status.verdict, verdict);
      assert.match(status.reasons.join('\n'), reason);
      assert.equal(status.servers.length, 3);
      if (labels !== undefined)
        assert.deepEqual(
          status.servers.map((server) => server.labels),
          labels,
        );
      if (name === 'replicas are behind') assert.deepEqual(status.underReplicated, [5, 7]);
    });
  }

  test('alive is not the same as ready', async () => {
    assert.equal((await ask(base, 'GET', '/livez')).status, 200);
    assert.equal((await ask(base, 'GET', '/readyz')).status, 200);
    cluster.catalogPrimary = S2;
    assert.equal((await ask(base, 'GET', '/readyz')).status, 200);
    cluster.disconnect(S2);
    const cut = await ask(base, 'GET', '/readyz');
    assert.equal(cut.status, 503);
    assert.equal(problemIn(cut).code, 'no-majority');
    cluster.server(0).status = { state: 'recovering', recoveringMs: 3100 };
    const silent = await ask(base, 'GET', '/readyz');
    assert.equal(problemIn(silent).code, 'recovering');
    assert.equal(silent.headers['retry-after'], '4');
    assert.equal((await ask(base, 'GET', '/livez')).status, 200);
  });

  test('readiness reports each check when all are requested', async () => {
    const all = ['storage', 'clock', 'leases', 'catalog', 'catalog-replica', 'registration'];
    const ready = await ask(base, 'GET', '/readyz?verbose');
    assert.equal(ready.status, 200);
    assert.deepEqual(ready.text.split('\n'), [...all.map((name) => `[+]${name} ok`), 'ready', '']);
    cluster.server(0).status = {
      state: 'recovering',
      recoveringMs: 3100,
      registered: false,
      catalogReplica: 'missing',
    };
    const silent = await ask(base, 'GET', '/readyz?verbose');
    assert.equal(silent.status, 503);
    assert.match(silent.text, /^\[\+\]storage ok$/m);
    assert.match(silent.text, /^\[-\]leases failed: Server s1 is in its recovery wait for another 3\.1 s,/m);
    assert.match(
      silent.text,
      /^\[-\]catalog-replica failed: This server's replica of the catalog is still being created/m,
    );
    assert.match(
      silent.text,
      /^\[-\]registration failed: This server is not yet registered with the catalog/m,
    );
    assert.match(silent.text, /\nnot ready\n$/);
  });

  test('metrics are counted and reported', async () => {
    await ask(base, 'GET', '/livez');
    const answer = await ask(base, 'GET', '/metrics');
    assert.match(answer.headers['content-type'] ?? '', /^text\/plain; version=0\.0\.4/);
    assert.match(answer.text, /^# TYPE leasehold_http_requests_total counter$/m);
    assert.match(
      answer.text,
      /^leasehold_http_requests_total\{method="GET",route="\/livez",status="200"\} 1$/m,
    );
  });

  test('info returns the primary, the replicas and the position of each', async () => {
    const stored = await ask(cluster.server(1).url, 'PUT', '/v1/files/main/file', { body: 'contents' });
    for (const { url, id } of cluster.servers) {
      const answer = await ask(url, 'GET', '/v1/info/main/file');
      assert.equal(answer.headers['leasehold-role'], id === 's2' ? 'primary' : 'backup');
      const info = JSON.parse(answer.text) as FileInfo;
      assert.equal(info.primary, 's2');
      assert.equal(info.size, 8);
      assert.equal(info.etag, stored.headers.etag);
      assert.equal(info.epoch, 1);
      assert.deepEqual(info.lease, { holder: 's2', remainingMs: 1234 });
      assert.deepEqual([...info.view.members].sort(), ['s1', 's2', 's3']);
      assert.deepEqual(
        info.replicas
          .map(({ server, role, state, version, reachable }) => [server, role, state, version, reachable])
          .sort(),
        [
          ['s1', 'backup', 'current', 1, true],
          ['s2', 'primary', 'current', 1, true],
          ['s3', 'backup', 'current', 1, true],
        ],
      );
    }
  });

  test('info opens a file that is not open, and says so if it cannot', async () => {
    await ask(base, 'PUT', '/v1/files/main/file', { body: 'contents' });
    for (const file of cluster.files.values()) file.primary = null;
    const opened = await askJson<FileInfo>(cluster.server(2).url, '/v1/info/main/file');
    assert.equal(opened.primary, 's3');
    cluster.intercept = ({ method }) => {
      if (method === 'state') throw new ServiceError('no-majority', 'Alone', { unreachable: ['s2'] });
    };
    cluster.away.add(S2);
    for (const file of cluster.files.values()) file.primary = null;
    const closed = await askJson<FileInfo>(base, '/v1/info/main/file');
    assert.equal(closed.primary, null);
    assert.equal(closed.lease.holder, null);
    assert.deepEqual(closed.replicas.map(({ server, reachable }) => [server, reachable]).sort(), [
      ['s1', true],
      ['s2', false],
      ['s3', true],
    ]);
  });

  test('info of a directory, and of a missing path', async () => {
    const info = await askJson<FileInfo>(base, '/v1/info/main/');
    assert.equal(info.attributes.kind, 'directory');
    assert.equal(info.primary, null);
    assert.deepEqual(info.replicas, []);
    assert.equal((await ask(base, 'GET', '/v1/info/main/missing')).status, 404);
    assert.equal((await ask(base, 'GET', '/v1/info/main/../x')).status, 400);
  });
});

test('metrics in the text form of Prometheus', async () => {
  const metrics = new MetricsRegistry(patientWorld);
  metrics.counter('leasehold_a_total', 'Things\nwith \\ in it').add();
  const labelled = metrics.counter('leasehold_b_total', 'Things of a kind', ['kind']);
  labelled.add(2, { kind: 'x"y\\z\n' });
  labelled.add(3, { kind: 'x"y\\z\n' });
  let servers = ['s1', 's2'];
  metrics.observe(
    'gauge',
    'leasehold_c',
    'Read when asked',
    async () => servers.map((server, place) => [{ server }, place + 1]),
    ['server'],
  );
  metrics.observe('counter', 'leasehold_d_total', 'One number', () => 9);
  const durations = metrics.durations('leasehold_e_duration_seconds', 'Time', ['of']);
  durations.observe(0.02, { of: 'files' });
  durations.begin({ of: 'files' })();
  const text = await metrics.text();
  assert.deepEqual(
    text.split('\n').filter((line) => !/^$|_bucket|_sum/.test(line)),
    [
      '# HELP leasehold_a_total Things\\nwith \\\\ in it',
      '# TYPE leasehold_a_total counter',
      'leasehold_a_total 1',
      '# HELP leasehold_b_total Things of a kind',
      '# TYPE leasehold_b_total counter',
      'leasehold_b_total{kind="x\\"y\\\\z\\n"} 5',
      '# HELP leasehold_c Read when asked',
      '# TYPE leasehold_c gauge',
      'leasehold_c{server="s1"} 1',
      'leasehold_c{server="s2"} 2',
      '# HELP leasehold_d_total One number',
      '# TYPE leasehold_d_total counter',
      'leasehold_d_total 9',
      '# HELP leasehold_e_duration_seconds Time',
      '# TYPE leasehold_e_duration_seconds histogram',
      'leasehold_e_duration_seconds_count{of="files"} 2',
    ],
  );
  assert.match(text, /^leasehold_e_duration_seconds_bucket\{le="0.01",of="files"\} 1$/m);
  assert.match(text, /^leasehold_e_duration_seconds_bucket\{le="0.025",of="files"\} 2$/m);
  servers = ['s2'];
  assert.match(
    await metrics.text(),
    /gauge\nleasehold_c\{server="s2"\} 1\n/,
    'A removed peer is no longer reported',
  );
  assert.throws(() => metrics.counter('leasehold_a_total', 'Again'), /already been registered/);
  assert.throws(() => metrics.counter('not-a-name', 'x'), /cannot name a metric/);
  assert.throws(() => metrics.counter('leasehold_things', 'x'), /does not end in _total/);
  assert.throws(() => metrics.durations('leasehold_wait_ms', 'x'), /does not end in _duration_seconds/);
});
