/**
 * Goal: a client uses what it has cached only while no other client can have changed it.
 * Method: the rules of the primary alone, with times that the test sets. Random runs of the service, sessions and
 * caches are those of `test/simulation/cluster`, with `cache=leases`.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ClientCaches } from '../../server/catalog/client-caches.ts';

const LEASE = 1_000;
const FOREVER = 1_000_000;

function caches(limits: { session?: number; all?: number } = {}): ClientCaches {
  let drawn = 0;
  return new ClientCaches({
    leaseMsMax: LEASE,
    sessionGrantsMax: limits.session ?? 100,
    grantsMax: limits.all ?? 1_000,
    draw: () => ++drawn,
  });
}

function begin(core: ClientCaches, client: number, nowMs = 0): number {
  const { session } = core.poll({ client, session: null, acked: 0 }, nowMs, FOREVER);
  assert.ok(session !== null);
  return session;
}

const change = (...inodes: number[]) => ({ inodes, owner: null });

describe('which clients may cache what', () => {
  test('a change waits for the sessions with a grant, until they have dropped it', () => {
    const core = caches();
    const [a, b] = [begin(core, 1), begin(core, 2)];
    assert.deepEqual(core.grant(a, [5, 6], 1), []);
    assert.deepEqual(core.grant(b, [6], 1), []);
    assert.equal(core.isCached(change(7), 1), false);
    assert.equal(core.isCached(change(5), 1), true);
    core.block(change(5));
    assert.deepEqual(core.recall(change(5), 1), [a]);
    const { recalls, through } = core.takePending(a);
    assert.deepEqual(recalls, [5]);
    assert.equal(core.isCached(change(5), 2), true);
    core.poll({ client: 1, session: a, acked: through }, 2, FOREVER);
    assert.equal(core.isCached(change(5), 2), false);
    assert.equal(core.isCached(change(6), 2), true);
  });

  test('a silent client delays a change until its session has ended, and no longer', () => {
    const core = caches();
    const a = begin(core, 1);
    core.grant(a, [5], 0);
    core.block(change(5));
    core.recall(change(5), 10);
    assert.equal(core.isCached(change(5), LEASE), true);
    assert.ok(core.cachedUntilMs(change(5)) <= LEASE * 1.01);
    assert.equal(core.isCached(change(5), LEASE * 1.01), false);
    assert.deepEqual(core.counts(), { sessions: 0, grants: 0, expired: 1 });
    assert.equal(core.grant(a, [6], LEASE * 1.01), null);
  });

  test('a client that polls and does not drop its grants delays a change no longer than a silent one', () => {
    const core = caches();
    const a = begin(core, 1);
    core.grant(a, [5], 0);
    core.block(change(5));
    core.recall(change(5), 10);
    for (let nowMs = 20; nowMs < 2 * LEASE; nowMs += 20) {
      core.poll({ client: 1, session: a, acked: 0 }, nowMs, FOREVER);
    }
    assert.equal(core.isCached(change(5), 10 + LEASE * 1.02), false);
  });

  test('nothing of a change under way is granted, until it is over', () => {
    const core = caches();
    const a = begin(core, 1);
    core.block(change(5));
    core.block(change(5, 6));
    assert.deepEqual(core.grant(a, [5, 6, 7], 1), [5, 6]);
    core.release(change(5, 6));
    assert.deepEqual(core.grant(a, [5, 6], 1), [5]);
    core.release(change(5));
    assert.deepEqual(core.grant(a, [5], 1), []);
  });

  test('every session with a grant of the inode receives a read, until it has acknowledged it; no change waits for that', () => {
    const core = caches();
    const [a, b, c] = [begin(core, 1), begin(core, 2), begin(core, 3)];
    for (const session of [a, b]) core.grant(session, [5, 6], 1);
    core.grant(c, [6], 1);
    const read = (accessedNs: string) => ({ inode: 5, accessedNs, changedNs: '1' });
    assert.deepEqual(core.noteAccess(read('7'), 2), [a, b]);
    assert.deepEqual(
      [a, b, c].map((session) => core.mustAnswerPoll(session, 2)),
      [true, true, false],
    );
    assert.deepEqual(core.takePending(a).reads, [read('7')]);
    const lost = core.poll({ client: 1, session: a, acked: 0 }, 3, FOREVER);
    assert.deepEqual([lost.reads, lost.validMs], [[read('7')], 0], 'A lost answer is repeated');
    core.noteAccess(read('8'), 4);
    const later = core.poll({ client: 1, session: a, acked: lost.through }, 5, FOREVER);
    assert.deepEqual(later.reads, [read('8')], 'It was read again meanwhile');
    const last = core.poll({ client: 1, session: a, acked: later.through }, 6, FOREVER);
    assert.deepEqual([last.reads, last.recalls], [undefined, []]);
    assert.ok(last.validMs > 0);
    assert.deepEqual(core.grant(a, [5], 7), [], 'It is granted all the time');
  });

  test('a session that does not fetch reads gets recalls of their inodes', () => {
    const core = caches({ session: 5_000, all: 5_000 });
    const a = begin(core, 1);
    const inodes = Array.from({ length: 1_001 }, (_, at) => at);
    core.grant(a, inodes, 1);
    for (const inode of inodes) core.noteAccess({ inode, accessedNs: '7', changedNs: '1' }, 2);
    const { recalls, reads = [], through } = core.takePending(a);
    assert.deepEqual([recalls, reads.length], [[1_000], 1_000]);
    core.poll({ client: 1, session: a, acked: through }, 3, FOREVER);
    assert.equal(core.mustAnswerPoll(a, 4), false);
  });

  test('reads that follow more recalls than one answer has are sent with the rest of these', () => {
    const core = caches({ session: 20_000, all: 20_000 });
    const a = begin(core, 1);
    const inodes = Array.from({ length: 6_000 }, (_, at) => at);
    core.grant(a, inodes, 1);
    core.block(change(...inodes.slice(1)));
    core.recall(change(...inodes.slice(1)), 2);
    core.noteAccess({ inode: 0, accessedNs: '7', changedNs: '1' }, 2);
    const first = core.takePending(a);
    assert.deepEqual([first.recalls.length, first.reads], [5_000, undefined]);
    const second = core.poll({ client: 1, session: a, acked: first.through }, 3, FOREVER);
    assert.deepEqual([second.recalls.length, second.reads?.length], [999, 1]);
    core.poll({ client: 1, session: a, acked: second.through }, 3, FOREVER);
    assert.equal(core.isCached(change(...inodes.slice(1)), 4), false);
    assert.equal(core.mustAnswerPoll(a, 4), false);
  });

  test('a late poll, through a server that was stopped, does not affect a later session', () => {
    const core = caches();
    const a = begin(core, 1);
    core.grant(a, [5], 1);
    for (const session of [null, 4711]) {
      const late = core.poll({ client: 1, session, acked: 0 }, 2, FOREVER);
      assert.notEqual(late.session, a);
      assert.equal(core.isCached(change(5), 2), true);
    }
    core.poll({ client: 2, session: null, left: a, acked: 0 }, 2, FOREVER);
    assert.equal(core.isCached(change(5), 2), true, 'It is not of that client');
    core.poll({ client: 1, session: null, left: a, acked: 0 }, 2, FOREVER);
    assert.equal(core.isCached(change(5), 2), false);
  });

  test('a recalled grant is not granted again before its acknowledgement', () => {
    const core = caches({ session: 2 });
    const a = begin(core, 1);
    core.grant(a, [1, 2, 3], 0);
    const { recalls, through } = core.takePending(a);
    assert.deepEqual(recalls, [1], 'the oldest is dropped');
    assert.deepEqual(core.grant(a, [1], 1), [1]);
    core.poll({ client: 1, session: a, acked: through }, 2, FOREVER);
    assert.deepEqual(core.grant(a, [1], 2), []);
  });

  test("a change recalls its own client's grant if that has not dropped it, or names no session", () => {
    const core = caches();
    const a = begin(core, 1);
    core.grant(a, [5, 6], 0);
    const owner = { client: 1, forgets: [5], under: a };
    assert.equal(core.isCached({ inodes: [5], owner }, 1), false);
    assert.equal(core.isCached({ inodes: [5, 6], owner }, 1), true);
    assert.equal(core.isCached({ inodes: [5], owner: { ...owner, client: 2 } }, 1), true);
    assert.equal(core.isCached({ inodes: [5], owner: { client: 1, forgets: [5] } }, 1), true);
  });

  test('a command whose client no longer waits for it recalls later grants of the same client', () => {
    const core = caches();
    const a = begin(core, 1);
    core.grant(a, [5], 0);
    const late = { inodes: [5], owner: { client: 1, forgets: [5], under: a } };
    // The client ends its session, and queries under another one before the command arrives.
    const renewed = begin(core, 1, 1);
    assert.deepEqual(core.grant(renewed, [5], 2), []);
    core.block(late);
    assert.equal(core.isCached(late, 3), true);
    assert.deepEqual(core.recall(late, 3), [renewed]);
  });

  test('a fence is valid while the very delegation that it names is held', () => {
    const core = caches();
    const a = begin(core, 1);
    const generation = core.delegate(a, 5, 1) ?? 0;
    assert.equal(core.delegate(a, 5, 1), generation, 'It is the same delegation');
    const stands = (of: number, nowMs = 2) => core.hasDelegation(a, { inode: 5, generation: of }, nowMs);
    assert.deepEqual([stands(generation), stands(generation + 1)], [true, false]);
    assert.equal(
      core.hasDelegation(begin(core, 1), { inode: 5, generation }, 2),
      false,
      'Another session has no delegation',
    );
    core.block(change(5));
    core.recall(change(5), 2);
    assert.equal(stands(generation), true, 'It is recalled, and not returned yet');
    core.poll({ client: 1, session: a, acked: core.takePending(a).through }, 3, FOREVER);
    core.release(change(5));
    assert.equal(stands(generation), false);
    const again = core.delegate(a, 5, 3) ?? 0;
    assert.deepEqual([stands(generation), stands(again)], [false, true], 'A new delegation is another one');
    assert.equal(stands(again, 2 * LEASE), false, 'The session has ended');
  });

  test('a client that does not name its session gets no grants', () => {
    const core = caches();
    assert.equal(core.poll({ client: 1, session: null, acked: 0, fenced: false }, 0, FOREVER).session, null);
  });

  test('a session is not renewed once fences are no longer obeyed', () => {
    const core = caches();
    const session = begin(core, 1);
    const generation = core.delegate(session, 5, 1) ?? 0;
    const holds = (nowMs: number) => core.hasDelegation(session, { inode: 5, generation }, nowMs);
    const poll = { client: 1, session, acked: 0, fenced: false };
    assert.equal(core.poll(poll, LEASE / 2, FOREVER).session, null);
    assert.deepEqual([holds(LEASE / 2), holds(2 * LEASE)], [true, false]);
  });

  test('no grant is valid longer than the primary may answer', () => {
    const core = caches();
    const polled = core.poll({ client: 1, session: null, acked: 0 }, 0, 300);
    assert.ok(polled.validMs <= 300);
    assert.equal(core.poll({ client: 2, session: null, acked: 0 }, 0, 0).session, null);
    assert.equal(core.poll({ client: 1, session: polled.session, acked: 0 }, 10, 0).validMs, 0);
  });

  test('a lost answer is repeated, and what it recalled is valid no longer than before', () => {
    const core = caches();
    const a = begin(core, 1);
    core.grant(a, [5], 0);
    core.block(change(5));
    core.recall(change(5), 1);
    const lost = core.takePending(a);
    const again = core.poll({ client: 1, session: a, acked: 0 }, 10, FOREVER);
    assert.deepEqual(again.recalls, lost.recalls);
    assert.equal(again.validMs, 0);
  });

  test('a directory is delegated to one client, and all others drop their grants', () => {
    const core = caches();
    const [a, b] = [begin(core, 1), begin(core, 2)];
    core.grant(b, [5], 1);
    assert.equal(core.delegate(a, 5, 1), null, 'Another client has cached its entries');
    assert.deepEqual(core.changeOfInode(a, 5), { inodes: [5], owner: { client: 1, forgets: [5], under: a } });
    core.block(core.changeOfInode(a, 5));
    assert.equal(core.delegate(a, 5, 1), null, 'It is about to change');
    core.recall(core.changeOfInode(a, 5), 1);
    core.poll({ client: 2, session: b, acked: core.takePending(b).through }, 2, FOREVER);
    core.release(core.changeOfInode(a, 5));
    assert.notEqual(core.delegate(a, 5, 2), null);
    assert.deepEqual(core.grant(b, [5, 6], 3), [5], 'No other client is granted it');
    assert.equal(core.delegate(b, 5, 3), null);
    assert.deepEqual(
      [core.isDelegated(5, null), core.isDelegated(5, b), core.isDelegated(5, a)],
      [true, true, false],
    );
    assert.equal(
      core.isCached(core.changeOfInode(a, 5), 3),
      false,
      'Its own changes wait for no other client',
    );
    assert.equal(core.isCached(change(5), 3), true);
  });

  test('a delegation ends with its recall, with its session, and with nothing else', () => {
    const core = caches();
    const [a, b] = [begin(core, 1), begin(core, 2)];
    assert.deepEqual([core.delegate(a, 5, 1), core.delegate(a, 6, 1)], [1, 2]);
    core.block(change(5));
    core.recall(change(5), 2);
    assert.equal(core.delegate(b, 5, 2), null);
    core.poll({ client: 1, session: a, acked: core.takePending(a).through }, 3, FOREVER);
    core.release(change(5));
    assert.equal(core.isDelegated(5, null), false);
    assert.equal(core.delegate(b, 5, 3), 3);
    assert.equal(core.isDelegated(6, b), true);
    core.poll({ client: 2, session: b, acked: 0 }, LEASE, FOREVER);
    assert.equal(core.isCached(change(6), LEASE * 1.02), false);
    assert.equal(core.isDelegated(6, b), false);
    assert.equal(core.delegate(a, 7, LEASE * 1.02), null, 'The session has ended');
  });

  test('memory is bounded also if clients do not answer', () => {
    const core = caches({ session: 100, all: 200 });
    for (let client = 1; client <= 5; client++) {
      const session = begin(core, client);
      for (let inode = 1; inode <= 1_000; inode++) core.grant(session, [inode], 0);
    }
    assert.ok(core.counts().grants <= 250);
  });

  test('before an orderly end every client acknowledges that it has cached nothing', () => {
    const core = caches();
    const a = begin(core, 1);
    core.grant(a, [5], 0);
    core.close();
    assert.equal(core.mustAnswerPoll(a, 1), true);
    assert.equal(core.poll({ client: 1, session: a, acked: 0 }, 1, FOREVER).session, null);
    assert.equal(core.counts().sessions, 1);
    assert.equal(core.poll({ client: 1, session: null, left: a, acked: 0 }, 2, FOREVER).session, null);
    assert.equal(core.counts().sessions, 0);
  });
});
