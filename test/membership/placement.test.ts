import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerId } from '../../base/ids.ts';
import { type Candidate, chooseServers, Placement } from '../../server/process/placement.ts';
import type { ServerInfo } from '../../wire/catalog-api.ts';
import type { PlacementClass } from '../../wire/placement-class.ts';

function candidate(id: string, more: Partial<Candidate> = {}): Candidate {
  return {
    id: id as ServerId,
    zone: '',
    freeBytes: 50,
    totalBytes: 100,
    reachable: true,
    registered: true,
    ...more,
  };
}

const CHOICES = 600;

/** How often each server is among `count` chosen ones. */
function shares(count: number, candidates: readonly Candidate[]): Record<string, number> {
  const found: Record<string, number> = Object.fromEntries(candidates.map(({ id }) => [id, 0]));
  for (let seed = 0; seed < CHOICES; seed++) {
    const chosen = chooseServers(count, candidates, seed);
    assert.equal(new Set(chosen).size, Math.min(count, candidates.length));
    for (const id of chosen) found[id] = (found[id] ?? 0) + 1;
  }
  return found;
}

test('servers with less load come first, but not before another zone', () => {
  const servers = [
    candidate('a1', { zone: 'a', freeBytes: 100 }),
    candidate('a2', { zone: 'a', freeBytes: 10 }),
    candidate('b1', { zone: 'b' }),
    candidate('away', { zone: 'c', reachable: false }),
  ];
  const loads = new Map([
    ['a1', 2],
    ['b1', 9],
  ]);
  for (let seed = 0; seed < CHOICES; seed++)
    assert.deepEqual(chooseServers(2, servers, seed, [], loads), ['a2', 'b1']);
});

test('unreachable servers come last, and before them those that are nearly full', () => {
  const servers = [
    candidate('away', { reachable: false, freeBytes: 100 }),
    candidate('full', { freeBytes: 4 }),
    candidate('silent', { registered: false }),
    candidate('a', { freeBytes: 10 }),
    candidate('b', { freeBytes: 10 }),
  ];
  const found = shares(2, servers);
  assert.deepEqual([found.away, found.full, found.silent], [0, 0, 0]);
  assert.deepEqual(chooseServers(3, servers, 1).at(-1), 'full');
  assert.deepEqual(
    chooseServers(9, servers, 1).slice(2),
    ['full', 'silent', 'away'],
    'And then the available ones',
  );
});

test('replicas are placed in different zones as long as there are any', () => {
  const servers = ['a1', 'a2', 'a3', 'b1', 'c1'].map((id) => candidate(id, { zone: id.slice(0, 1) }));
  for (let seed = 0; seed < CHOICES; seed++) {
    const zones = chooseServers(3, servers, seed).map((id) => id.slice(0, 1));
    assert.deepEqual(zones.toSorted(), ['a', 'b', 'c']);
    assert.deepEqual(chooseServers(1, servers, seed, ['a', 'b']), ['c1']);
  }
  const found = shares(3, servers);
  for (const id of ['a1', 'a2', 'a3'])
    assert.ok((found[id] ?? 0) > CHOICES / 5, 'Within a zone they alternate');
});

test('a server without a label is a zone of its own', () => {
  const servers = [
    candidate('r1', { zone: 'r' }),
    candidate('r2', { zone: 'r' }),
    candidate('x'),
    candidate('y'),
  ];
  for (let seed = 0; seed < CHOICES; seed++) {
    const chosen = chooseServers(3, servers, seed);
    assert.ok(chosen.includes('x' as ServerId) && chosen.includes('y' as ServerId));
  }
});

test('a server with more free space is chosen more often; one that has not reported counts as empty', () => {
  const found = shares(1, [
    candidate('small', { freeBytes: 10 }),
    candidate('big', { freeBytes: 30 }),
    candidate('new', { freeBytes: 0, totalBytes: 0 }),
  ]);
  const { small = 0, big = 0, new: fresh = 0 } = found;
  assert.ok(big > 2 * small && fresh > 2 * small, JSON.stringify(found));
  assert.ok(small > 0, 'But every server gets some');
});

test('equal servers get equal shares', () => {
  const found = shares(
    2,
    ['a', 'b', 'c', 'd'].map((id) => candidate(id)),
  );
  for (const share of Object.values(found))
    assert.ok(Math.abs(share - CHOICES / 2) < CHOICES / 8, JSON.stringify(found));
});

test('configured servers may get files before they register; draining and removed ones may not', () => {
  const info = (id: string, state: ServerInfo['state']): ServerInfo => ({
    ...{ id, state, url: `http://${id}:1`, zone: '', storageId: 'x', bornAt: 1 },
    ...{ freeBytes: 1, totalBytes: 2, registeredNs: '1' },
  });
  const configured = ['s1', 's2', 's3', 's4'] as ServerId[];
  const placement = new Placement({ configured, isConnected: () => true });
  assert.equal(placement.candidates([]).length, 4);
  const servers = [info('s1', 'in'), info('s2', 'draining'), info('s3', 'out'), info('s5', 'in')];
  // A volume's catalog knows it from the list.
  servers.push({ ...info('s6', 'in'), registeredNs: '0' });
  const chosen = placement.choose(9, servers, {});
  assert.deepEqual(chosen.toSorted(), ['s1', 's4', 's5', 's6']);
  const firsts = new Set(Array.from({ length: 40 }, () => placement.choose(1, servers, {})[0]));
  assert.deepEqual(
    [...firsts].toSorted(),
    ['s1', 's5'],
    'Each in its turn; s4 and s6 have not registered yet',
  );
});

test('files go only to servers with the labels and in a zone of their volume', () => {
  const info = (id: string, zone: string, labels: readonly string[]): ServerInfo => ({
    ...{ id, zone, labels, state: 'in', url: `http://${id}:1`, storageId: 'x', bornAt: 1 },
    ...{ freeBytes: 1, totalBytes: 2, registeredNs: '1' },
  });
  const placement = new Placement({ configured: ['s9' as ServerId], isConnected: () => true });
  const servers = [
    info('s1', 'a', ['fast', 'ssd']),
    info('s2', 'b', ['ssd']),
    info('s3', 'c', ['ssd']),
    info('s4', 'a', ['hdd']),
  ];
  const chosen = (required: PlacementClass) => placement.choose(3, servers, required).toSorted();
  assert.deepEqual(chosen({ labels: ['ssd'] }), ['s1', 's2', 's3']);
  assert.deepEqual(chosen({ labels: ['fast', 'ssd'] }), ['s1'], 'All labels');
  assert.deepEqual(chosen({ labels: ['ssd'], zones: ['a', 'b'] }), ['s1', 's2'], 'Any zone');
  assert.deepEqual(chosen({ labels: ['tape'] }), [], 'Nor a server whose labels are not known yet');
  assert.equal(placement.capacity(servers, { zones: ['a'] }), 2);
  const isOutdated = (required: PlacementClass) =>
    placement.isOutdated(['s1', 's4'] as ServerId[], servers, required);
  assert.deepEqual([isOutdated({ zones: ['a'] }), isOutdated({ labels: ['ssd'] })], [false, true]);
});
