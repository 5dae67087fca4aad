import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerId } from '../../base/ids.ts';
import {
  fullServers,
  missingServers,
  type StopCheckInput,
  stopCheck,
} from '../../server/status/stop-check.ts';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import type { ServerStatus } from '../../wire/http-api.ts';

const IDS = ['s1', 's2', 's3', 's4', 's5'] as ServerId[];

function serverOf(id: string, more: Partial<ServerStatus> = {}): ServerStatus {
  const namedLeases = { known: 0, recoveringMs: 0 };
  return {
    id,
    reachable: true,
    state: 'serving',
    replicas: 9,
    underReplicated: [],
    namedLeases,
    connected: [],
    ...more,
  } as ServerStatus;
}

interface Course {
  readonly count?: number;
  readonly catalog?: number;
  readonly volumeCatalogs?: StopCheckInput['volumeCatalogs'];
  readonly voters?: StopCheckInput['voters'];
  readonly needing?: Partial<StopCheckInput['needing']>;
  readonly needingSpace?: Partial<StopCheckInput['needing']>;
  readonly policy?: VolumeInfo['policy'];
  /** Statuses that differ from a server that is well. */
  readonly servers?: Readonly<Record<string, Partial<ServerStatus>>>;
}

/** What speaks against stopping s1. */
function reasons(course: Course = {}): string {
  const ids = IDS.slice(0, course.count ?? 3);
  const members = IDS.slice(0, course.catalog ?? ids.length);
  const none = { files: 0, examples: [], planned: 0 };
  const check = stopCheck({
    server: 's1',
    servers: ids.map((id) => serverOf(id, course.servers?.[id])),
    catalogMembers: members,
    volumeCatalogs: course.volumeCatalogs ?? [],
    voters: course.voters ?? { number: 2, members: { servers: members, perCell: 5 }, clockMs: 0 },
    volumes: [{ name: 'main', policy: course.policy ?? 'quorum' } as VolumeInfo],
    needing: { ...none, ...course.needing },
    needingSpace: course.needingSpace === undefined ? null : { ...none, ...course.needingSpace },
  });
  assert.equal(check.ok, check.reasons.length === 0);
  return check.reasons.join('\n');
}

const DOWN = {
  reachable: false,
  state: 'unreachable',
  namedLeases: undefined,
  connected: undefined,
} as never;

test('one of three servers that are well can be stopped', () => {
  assert.equal(reasons(), '');
});

test('a member of a volume catalog is needed if no majority would be left of its members', () => {
  const volumeCatalogs = [
    { volume: 'own', members: ['s1', 's2', 's3'] },
    { volume: 'elsewhere', members: ['s2'] },
  ];
  assert.equal(reasons({ count: 5, volumeCatalogs }), '');
  assert.equal(
    reasons({ count: 5, volumeCatalogs, servers: { s3: { state: 'recovering' } } }),
    "Names of the volume own would be unavailable: 1 of the catalog's 3 servers would be left, and 2 are needed",
  );
});

test('the only server, and one of two, are needed', () => {
  assert.match(
    reasons({ count: 1 }),
    /^Names would be unavailable: 0 of the catalog's 1 servers .* 1 are needed/,
  );
  assert.match(reasons({ count: 2 }), /^Names .*\nNamed leases would be unavailable/);
});

test('while another server is missing, names and named leases need this one', () => {
  for (const s2 of [DOWN, { state: 'recovering' }, { state: 'clock-fault' }] as const) {
    const said = reasons({ servers: { s2 } });
    assert.match(
      said,
      /^Names would be unavailable: 1 of the catalog's 3 servers would be left, and 2 are needed$/m,
    );
    assert.match(said, /^Named leases would be unavailable/m);
  }
  for (const s2 of [{ catalogReplica: 'missing' }, {}] as const)
    assert.match(reasons({ servers: { s2, s3: { catalogBehind: ['s2'] } } }), /^Names would be unavailable/);
  const silent = { namedLeases: { known: 1, recoveringMs: 900 } };
  assert.match(reasons({ servers: { s2: silent } }), /^Named leases would be unavailable: .* their voters$/);
  assert.equal(reasons({ count: 5, servers: { s2: DOWN } }), '', 'Five survive two failures');
  assert.equal(reasons({ count: 5, catalog: 3, servers: { s4: DOWN } }), '');
});

test('of five voters with three for each name, some names need this one while another is missing', () => {
  const voters = { number: 1, members: { servers: IDS, perCell: 3 }, clockMs: 0 };
  assert.equal(reasons({ count: 5, voters }), '');
  assert.match(reasons({ count: 5, voters, servers: { s2: DOWN } }), /^Named leases would be unavailable/);
  const joint = { servers: ['s1', 's2'] as ServerId[], perCell: 5 };
  assert.match(
    reasons({ count: 5, voters: { ...voters, joint } }),
    /^Named leases/,
    'The next voters count, too',
  );
});

test('files that would lack a majority are counted, with examples and missing servers', () => {
  const needing = { files: 2, examples: [7, 9] };
  assert.equal(reasons({ needing }), '2 files would lack a majority of their servers (for example 7, 9)');
  assert.match(
    reasons({ count: 5, needing, servers: { s4: DOWN } }),
    /^2 files would lack a majority of their servers while s4 is missing \(for example 7, 9\)$/,
  );
  assert.equal(reasons({ needing: { planned: 1 } }), '1 file is being moved to this server');
});

test('replicas of others that are behind, or not yet compared, are waited for; those of this server are not', () => {
  assert.equal(
    reasons({ servers: { s2: { behind: { s3: 4 } }, s1: { behind: { s3: 3 } } } }),
    '4 replicas are behind on server s3: wait until they have caught up',
  );
  assert.equal(
    reasons({ servers: { s1: { uncompared: ['s2'] }, s3: { uncompared: ['s2'] } } }),
    'Server s2 has just connected, and s1, s3 must compare its replicas first: wait',
  );
  assert.equal(reasons({ servers: { s2: { behind: { s1: 4 }, uncompared: ['s1'] } } }), '');
});

test('what servers of earlier releases, and those that reach fewer servers, report counts, too', () => {
  const said = 'Server s3 reports 2 files with replicas that are unreachable or behind';
  assert.equal(reasons({ servers: { s3: { underReplicated: [5, 7] } } }), said);
  assert.equal(reasons({ servers: { s3: { lag: { files: 2, versions: 1, bytes: 0 } } } }), said);
  const s4 = { underReplicated: [5], behind: { s1: 1 } };
  assert.equal(reasons({ count: 5, servers: { s4 } }), '', 'Only this server is behind');
  assert.equal(reasons({ count: 5, servers: { s2: DOWN, s4: { underReplicated: [5] } } }), '', 'It is on s2');
});

test('a policy that needs all replicas speaks against any stop of a server that has some', () => {
  assert.match(reasons({ policy: 'all' }), /^Files of volume main with a replica here could not be changed/);
  assert.equal(reasons({ policy: 'all', servers: { s1: { replicas: 0 } } }), '');
});

test('a server that is down already can be stopped', () => {
  assert.equal(reasons({ servers: { s1: DOWN, s2: DOWN }, needing: { files: 3 } }), '');
  const earlier = { connected: undefined } as never;
  assert.match(reasons({ servers: { s1: DOWN, s2: earlier } }), /^Server s1 does not report its state: /);
  assert.deepEqual(missingServers('s1', [serverOf('s1', DOWN), serverOf('s2', DOWN), serverOf('s3')]), [
    's2',
  ]);
});

test('a server that is slow, or that only the asked one cannot reach, is not down', () => {
  const said = reasons({ servers: { s1: DOWN, s2: { connected: ['s1'] }, s3: DOWN }, needing: { files: 3 } });
  assert.match(said, /^Server s1 does not report its state, although s2 can reach it: .* is unknown$/m);
  assert.match(said, /^Names would be unavailable: 1 of .*\nNamed leases .*\n3 files would lack a majority/m);
  assert.match(
    reasons({ servers: { s1: DOWN, s2: { connected: ['s1'] } } }),
    /^Server s1 .*$/,
    'Not ok without its answer, even if nothing else speaks against it',
  );
});

test('a removed server that still votes is missing', () => {
  const voters = {
    number: 1,
    members: { servers: ['s1', 's2', 's9'] as ServerId[], perCell: 5 },
    clockMs: 0,
  };
  assert.match(reasons({ voters }), /^Named leases would be unavailable/);
});

test('files that only servers with full disks would be left for are counted', () => {
  const needingSpace = { files: 2, examples: [7, 9] };
  const s3 = { diskFull: true } as const;
  assert.equal(
    reasons({ servers: { s3 }, needingSpace }),
    '2 files could not be changed, because the disk of s3 is full (for example 7, 9)',
  );
  assert.equal(reasons({ servers: { s3 }, needingSpace: {} }), '');
  assert.match(
    reasons({ servers: { s3 }, needing: needingSpace, needingSpace }),
    /^2 files would lack a majority of their servers \(for example 7, 9\)$/,
    'The full disk changes nothing for them',
  );
  const down = serverOf('s4', { diskFull: true, state: 'recovering' });
  assert.deepEqual(fullServers('s1', [serverOf('s1', s3), serverOf('s2'), serverOf('s3', s3), down]), ['s3']);
});
