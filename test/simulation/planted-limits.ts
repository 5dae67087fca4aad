/** Known bugs of who votes, of who asks when, and of how clocks are watched; see `planted.ts`. */
import { type Mutation, type Planted, plantedIn } from './planted.ts';

const lease = plantedIn('lease');

const JOINT_MAJORITY =
  'return setHasMajority(group.members, bits) && (group.joint === 0 || setHasMajority(group.joint, bits));';

/** A cell that waits for the attempts of others looks by itself whether they have ended. */
const LOOKS_AGAIN_OFF: Mutation = {
  file: 'lease/cell.ts',
  find: 'work.attemptAtMs = nowMs + parameters.repeatMs;\n      return false;',
  replace: 'work.attemptAtMs = Infinity;\n      return false;',
};

export const PLANTED_LIMITS: readonly Planted[] = [
  lease(
    '46a',
    'while members change, a majority of all of them together counts',
    {
      file: 'lease/group.ts',
      find: JOINT_MAJORITY,
      replace: 'return bitCount(bits) >= majority(group.voters.length);',
    },
    { directed: 'joint-not-of-all', seeds: 400 },
  ),
  lease(
    '46b',
    'while members change, a majority of the new ones counts',
    {
      file: 'lease/group.ts',
      find: JOINT_MAJORITY,
      replace: 'return setHasMajority(group.joint === 0 ? group.members : group.joint, bits);',
    },
    { directed: 'joint-not-of-new', seeds: 400 },
  ),
  lease(
    '46c',
    'while members change, a majority of the old ones counts',
    {
      file: 'lease/group.ts',
      find: JOINT_MAJORITY,
      replace: 'return setHasMajority(group.members, bits);',
    },
    { directed: 'joint-not-of-old', seeds: 400 },
  ),
  lease(
    '46d',
    'an acceptor forgets the newest view it was asked by when its own server opens an older one',
    {
      file: 'lease/acceptor.ts',
      find: 'if (newer !== undefined && newer.view <= view) this.#newerViews.delete(row);',
      replace: 'if (newer !== undefined) this.#newerViews.delete(row);',
    },
    { directed: 'newest-view-stays' },
  ),
  lease(
    '55',
    'a refusal names no ballot, so whoever lags never overtakes',
    {
      file: 'lease/cell.ts',
      find: 'this.#context.ballots.overtake(message.standing);',
      replace: '',
    },
    { directed: 'overtakes' },
  ),
  lease(
    '56',
    'whoever knows the holder READs all the same',
    {
      file: 'lease/cell.ts',
      find: 'return untilMs + parameters.clockSkewMaxMs + aheadMs + this.#jitterMs() + handicapMs;',
      replace: 'return (untilMs > nowMs ? nowMs : untilMs) + aheadMs + this.#jitterMs() + handicapMs;',
    },
    { directed: 'readers-keep-quiet', seeds: 20 },
    {
      also: [
        {
          file: 'lease/cell.ts',
          find: 'if (nowMs <= knownMs) {',
          replace: 'if (nowMs <= knownMs - Infinity) {',
        },
      ],
    },
  ),
  lease(
    '57',
    'nothing about the back-off is random',
    {
      file: 'lease/cell.ts',
      find: 'return work.backoffMs * (1 + 2 * this.#context.prng.next());',
      replace: 'return work.backoffMs;',
    },
    { directed: 'three-in-a-ring' },
  ),
  lease(
    '62a',
    'a first attempt in a new interval is smaller than what stands in its way, and is refused by its own server',
    {
      file: 'lease/cell.ts',
      find: 'ballots.next(nowMs, registerStanding(register)),',
      replace: 'ballots.next(nowMs),',
    },
    { test: { file: 'test/lease/host.test.ts', name: 'learned' } },
  ),
  lease(
    '62b',
    'who has just given a lease back is one of few who are asked for it',
    {
      file: 'lease/cell.ts',
      find: 'if (lease !== null && lease.holder !== parameters.self && lease.claim === null) return groupAll(group);',
      replace: 'if (lease === undefined) return groupAll(group);',
    },
    { test: { file: 'test/lease/host.test.ts', name: 'thrifty' } },
  ),
  lease(
    '62c',
    'an attempt that was refused waits for a server that has gone',
    {
      file: 'lease/attempt.ts',
      find: 'return groupHasVeto(group, nacks | (away & ~acks));',
      replace: 'return groupHasVeto(group, nacks);',
    },
    { test: { file: 'test/lease/host.test.ts', name: 'away' } },
  ),
  lease(
    '62d',
    'that a server has gone is not looked at after the last refusal',
    {
      file: 'lease/cell.ts',
      find: 'if (this.#isLost(attempt.tally)) {',
      replace: 'if (this.#isLost(attempt.tally) && nowMs < 0) {',
    },
    { test: { file: 'test/lease/host.test.ts', name: 'away' } },
  ),
  lease(
    '62e',
    'who was chosen by the holder leaves it to chance when it begins',
    {
      file: 'lease/cell.ts',
      find: 'if (isChosen) this.#attemptIfDue(nowMs, out);',
      replace: 'work.attemptAtMs = nowMs + this.#jitterMs();',
    },
    { test: { file: 'test/lease/host.test.ts', name: 'succeed' } },
  ),
  lease(
    '62f',
    'who gave the wish to lead up is still chosen',
    {
      file: 'lease/cell.ts',
      find: 'work.succeeds = null;\n  }\n\n  /**\n   * Gives the lease back.',
      replace: '}\n\n  /**\n   * Gives the lease back.',
    },
    { test: { file: 'test/lease/host.test.ts', name: 'succeed' } },
  ),
  lease(
    'flow-a',
    'who waits for the attempts of others is never told that it is its turn',
    {
      file: 'lease/flow.ts',
      find: 'if (this.isFull || this.#waiting.size === 0) return null;',
      replace: 'if (this.#waiting.size >= 0) return null;',
    },
    { directed: 'everybody-gets-a-turn' },
    {
      also: [LOOKS_AGAIN_OFF],
      paired: true,
    },
  ),
  lease(
    'flow-d',
    'a cell that waits for its turn and is at rest meanwhile does not take it',
    {
      file: 'lease/cell.ts',
      find: 'const work = this.#begin();\n    work.attemptAtMs = Math.min(work.attemptAtMs, nowMs);',
      replace:
        'const work = this.#work;\n    if (work === null) return;\n    work.attemptAtMs = Math.min(work.attemptAtMs, nowMs);',
    },
    { directed: 'everybody-gets-a-turn' },
    { also: [LOOKS_AGAIN_OFF], paired: true },
  ),
  lease(
    'flow-b',
    'an attempt that has ended is counted as under way for ever',
    { file: 'lease/cell.ts', find: 'this.#context.flow.end();', replace: '' },
    { directed: 'everybody-gets-a-turn' },
  ),
  lease(
    'flow-c',
    'nothing bounds the attempts under way',
    { file: 'lease/flow.ts', find: 'return this.#running >= ATTEMPTS_MAX;', replace: 'return false;' },
    { directed: 'attempts-are-bounded' },
  ),
  lease(
    'clock-a',
    'a clock that runs ahead is not convicted',
    {
      file: 'lease/clock-monitor.ts',
      find: 'if (lowMs > limitMs || highMs < -limitMs) peer.violatedMs = nowMs;',
      replace: 'if (highMs < -limitMs) peer.violatedMs = nowMs;',
    },
    { directed: 'fast-clock-is-convicted' },
  ),
  lease(
    'clock-b',
    'nobody waits for the slowest clock, so the fastest wins what has ended',
    {
      file: 'lease/cell.ts',
      find: 'const aheadMs = rules.comparesClocks ? monitor.aheadMs(nowMs) : 0;',
      replace: 'const aheadMs = rules.comparesClocks && nowMs < 0 ? monitor.aheadMs(nowMs) : 0;',
    },
    { directed: 'fast-clocks-win-no-more' },
  ),
];
