import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { CATALOG_CELL, type ServerId } from '../../base/ids.ts';
import { firstVoters, leaseCell, leaseMembers, NameVotersByView } from '../../server/named/name-voters.ts';
import {
  isLeaseKey,
  isLeaseName,
  isLeaseOwner,
  leaseNoteParse,
  leaseNoteText,
} from '../../wire/named-lease.ts';

const NAMES = 20_000;
const names = Array.from({ length: NAMES }, (_, number) => `jobs/nightly-${number}`);
const serversOf = (count: number): ServerId[] =>
  Array.from({ length: count }, (_, place) => `s${place + 1}` as ServerId);

test('a cell is a number below 2^53, the same every time, and one bit of the text changes half of its bits', () => {
  let flipped = 0;
  let compared = 0;
  for (const name of names.slice(0, 2_000)) {
    const hash = leaseCell(name);
    assert.ok(Number.isSafeInteger(hash) && hash > 0 && hash < 2 ** 53);
    assert.equal(leaseCell(name), hash);
    const other = leaseCell(String.fromCharCode(name.charCodeAt(0) ^ 1) + name.slice(1));
    const difference = BigInt(hash) ^ BigInt(other);
    flipped += [...difference.toString(2)].filter((bit) => bit === '1').length;
    compared += 53;
  }
  assert.ok(Math.abs(flipped / compared - 0.5) < 0.01, `${flipped / compared} of the bits change`);
});

test('a cell is the beginning of SHA-256, so that no attacker finds a name with the cell of another name', () => {
  assert.equal(leaseCell('jobs/nightly'), 5180766918522439);
  const digest = createHash('sha256').update('a').digest('hex');
  assert.equal(BigInt(leaseCell('a')), BigInt(`0x${digest.slice(0, 16)}`) >> 11n);
});

test('the cached value of a name equals the computed one', () => {
  const servers = serversOf(5);
  const places = new NameVotersByView(firstVoters(servers));
  for (const name of [...names.slice(0, 1_500), ...names.slice(0, 100)]) {
    const members = leaseMembers(name, servers);
    assert.deepEqual(places.of(name), { cell: leaseCell(name), members, voters: members });
  }
  assert.equal(places.serversHash, new NameVotersByView(firstVoters(servers.toReversed())).serversHash);
  assert.notEqual(places.serversHash, new NameVotersByView(firstVoters(serversOf(4))).serversHash);
});

test('every bit of a cell is set for half of all texts that differ in their last digits only', () => {
  const counts = Array.from({ length: 53 }, () => 0);
  for (const name of names) {
    const hash = BigInt(leaseCell(name));
    for (let bit = 0; bit < 53; bit++) counts[bit] = (counts[bit] ?? 0) + Number((hash >> BigInt(bit)) & 1n);
  }
  for (const [bit, count] of counts.entries()) {
    // Six standard deviations of a fair coin.
    assert.ok(Math.abs(count - NAMES / 2) < 6 * Math.sqrt(NAMES / 4), `bit ${bit} is set ${count} times`);
  }
});

test('names have different cells, and none has that of the server as a whole', () => {
  const cells = new Set(names.map(leaseCell));
  assert.equal(cells.size, NAMES);
  assert.ok(!cells.has(CATALOG_CELL));
});

test('members are three different servers, or all there are, in whatever order the servers are given', () => {
  for (const count of [1, 2, 3, 5, 9]) {
    const servers = serversOf(count);
    for (const name of names.slice(0, 200)) {
      const members = leaseMembers(name, servers);
      assert.equal(new Set(members).size, Math.min(3, count));
      assert.ok(members.every((member) => servers.includes(member)));
      assert.deepEqual(leaseMembers(name, servers.toReversed()), members);
    }
  }
});

test('names are spread evenly over the servers', () => {
  const count = 7;
  const loads = new Map<string, number>();
  for (const name of names) {
    for (const member of leaseMembers(name, serversOf(count)))
      loads.set(member, (loads.get(member) ?? 0) + 1);
  }
  const fair = (3 * NAMES) / count;
  for (const [server, load] of loads) {
    assert.ok(Math.abs(load / fair - 1) < 0.05, `${server} votes on ${load} names, ${fair} would be fair`);
  }
  assert.equal(loads.size, count);
});

test('a server that joins becomes a member of its share of names, and nothing else moves', () => {
  const before = serversOf(6);
  const after = serversOf(7);
  let moved = 0;
  for (const name of names) {
    const [old, now] = [leaseMembers(name, before), leaseMembers(name, after)];
    const left = old.filter((member) => !now.includes(member));
    const joined = now.filter((member) => !old.includes(member));
    if (left.length === 0) continue;
    moved++;
    assert.equal(left.length, 1);
    assert.deepEqual(joined, ['s7'], 'Names move only to the new server');
  }
  assert.ok(Math.abs(moved / NAMES - 3 / 7) < 0.02, `${moved} of ${NAMES} names have a new member`);
});

test('valid names of leases, keys and owners', () => {
  for (const name of ['a', 'jobs/nightly', 'a:b', 'A.b_c-d@e/f', '0'.repeat(255)])
    assert.ok(isLeaseName(name), name);
  for (const name of ['', '/a', '.', '..', '.a', 'a b', 'ä', 'a\n', 'a%', 'a?b', 'a;b', '0'.repeat(256)]) {
    assert.ok(!isLeaseName(name), JSON.stringify(name));
  }
  assert.ok(isLeaseKey('endpoint') && isLeaseKey('constructor') && isLeaseKey('k'.repeat(64)));
  assert.ok(!isLeaseKey('__proto__') && !isLeaseKey('') && !isLeaseKey('k'.repeat(65)));
  assert.ok(isLeaseOwner('Köln, Rechner 7') && !isLeaseOwner('') && !isLeaseOwner('a\u001b[2J'));
  assert.ok(!isLeaseOwner('x'.repeat(256)));
});

test('a note is read as it was written, in one form whatever the order of its keys', () => {
  const keys = fc.dictionary(
    fc.string({ minLength: 1, maxLength: 8 }).filter((key) => isLeaseKey(key)),
    fc.string(),
    { noNullPrototype: true },
  );
  const fields = { name: fc.string(), owner: fc.string(), ttlMs: fc.integer({ min: 1 }), keys };
  const note = fc.record(fields, { noNullPrototype: true });
  fc.assert(
    fc.property(note, (given) => {
      const text = leaseNoteText(given);
      assert.deepEqual(leaseNoteParse(text), given);
      const turned = { ...given, keys: Object.fromEntries(Object.entries(given.keys).toReversed()) };
      assert.equal(leaseNoteText(turned), text);
    }),
  );
  for (const text of [
    '',
    '{',
    '[]',
    'null',
    '{"name":"a"}',
    '{"name":"a","owner":"b","ttlMs":1,"keys":{"a":1}}',
  ]) {
    assert.equal(leaseNoteParse(text), null, text);
  }
});
