import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { LocalFlush } from '../../replica/local-flush.ts';
import { Outbox } from '../../replica/outbox.ts';
import { ReplicaState } from '../../replica/replica-state.ts';
import { SessionTable } from '../../replica/sessions.ts';

const A = 'a' as ServerId;
const EPOCH: Epoch = { counter: 1, server: A, incarnation: 1 as Incarnation };

function standingAt(out: Outbox, seq: number): ReplicaState {
  const view = { number: 1, members: [A] };
  const record = { view, promised: EPOCH, installed: EPOCH, seq, sessions: SessionTable.EMPTY.encode() };
  return new ReplicaState(out, record, 'intact');
}

test('a flush that covers more than the applied position counts up to that position', () => {
  const out = new Outbox(1 as Incarnation);
  const standing = standingAt(out, 5);
  const flush = new LocalFlush(out, standing);
  flush.want(5);
  flush.advance();
  assert.deepEqual(out.take(), [{ kind: 'flush-local' }]);
  // The store has operation 6, a change of view, whose sync is still under way: it is not applied yet.
  assert.equal(flush.done(6), true);
  assert.equal(flush.flushedSeq, 5);
  flush.want(6);
  flush.advance();
  assert.deepEqual(out.take(), [], 'Operation 6 is flushed once it is applied');
  standing.seq = 6;
  flush.advance();
  assert.deepEqual(out.take(), [{ kind: 'flush-local' }]);
  assert.equal(flush.done(6), true);
  assert.equal(flush.flushedSeq, 6);
});
