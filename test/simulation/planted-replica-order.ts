/** Known bugs of how a replica's epochs begin and how its operations are ordered; see `planted.ts`. */
import { type Mutation, type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const FURTHEST = 'if (positionCompare(position, base.position) > 0) base = { holder, position };';

/** A process may be primary again in the epoch of an earlier lease. */
export const FORMER_LIVES_HEARD: Mutation = {
  file: 'replica/replica.ts',
  find: 'if (this.#over.get(from)?.has(message.incarnation) === true) {',
  replace: 'if (this.#over.get(from)?.has(message.incarnation) === null) {',
};

export const PLANTED_ORDER: readonly Planted[] = [
  replica(
    '25',
    'an acknowledgement of an older epoch counts',
    {
      file: 'replica/replica.ts',
      find: 'if (own === null || !epochEqual(own, message.epoch)) {',
      replace: 'if (own === null) {',
    },
    { directed: 'late acknowledgement' },
  ),
  replica(
    '26',
    'a promise is given before it survives a crash',
    {
      file: 'replica/standing.ts',
      find: 'return this.atRest && epochEqual(this.stored, this.promised);',
      replace: 'return this.atRest;',
    },
    { directed: 'forgotten promise' },
  ),
  replica(
    '27',
    'a replica listens to an epoch smaller than the promised one',
    { file: 'replica/replica.ts', find: '    if (order < 0) {', replace: '    if (order < -1) {' },
    { directed: 'old epoch', seeds: 20 },
  ),
  replica(
    '28',
    'a new primary takes its own state for the base',
    {
      file: 'replica/reset.ts',
      find: FURTHEST,
      replace: 'if (holder === self) base = { holder, position };',
    },
    { directed: 'lagging candidate', seeds: 20 },
  ),
  replica(
    '29',
    'the base is the longest sequence, whatever its epoch',
    {
      file: 'replica/reset.ts',
      find: FURTHEST,
      replace: 'if (position.seq > base.position.seq) base = { holder, position };',
    },
    { directed: 'long tail' },
  ),
  replica(
    '30a',
    'contents that are the base already keep their old epoch',
    {
      file: 'test/simulation/disk-simulated.ts',
      find: 'this.record = { ...this.record, ...change };',
      replace:
        'this.record = { ...this.record, ...change, ...(contents === null && { installed: this.record.installed }) };',
    },
    { directed: 'old tail' },
  ),
  replica(
    '31',
    'the primary serves before a majority has the base',
    {
      file: 'replica/reset.ts',
      find: 'return viewHasMajority(this.view, (server) => this.#installed.has(server));',
      replace: 'return true;',
    },
    { directed: 'base of a minority' },
  ),
  replica(
    '32',
    'what was fetched is not taken over as a whole: its position is, its contents are not',
    {
      file: 'replica/backup.ts',
      find: 'standing.storeInstall(install, { seq: position.seq, view, sessions }, true);',
      replace: 'standing.storeInstall(install, { seq: position.seq, view, sessions }, false);',
    },
    { directed: 'lagging candidate', seeds: 10 },
  ),
  replica(
    '34',
    'a replica accepts an operation before its predecessor',
    {
      file: 'replica/backup.ts',
      find: 'if (seq > standing.issuedSeq + 1) {',
      replace: 'if (seq > standing.issuedSeq + 1_000_000) {',
    },
    { directed: 'lost write', seeds: 20 },
  ),
  replica(
    '35a',
    'half of the replicas are taken for a majority',
    {
      file: 'base/quorum.ts',
      find: 'return Math.floor(count / 2) + 1;',
      replace: 'return Math.ceil(count / 2);',
    },
    { directed: 'two halves', seeds: 30 },
  ),
  replica(
    '35b',
    'the own copy counts before it is on the disk',
    {
      file: 'replica/write-order.ts',
      find: 'const committedSeq = Math.min(this.#reachedWith(this.#standing.seq, nowMs), this.#standing.seq);',
      replace: 'const committedSeq = this.#reachedWith(this.#lastSeq, nowMs);',
    },
    { conversation: 'write.txt', seeds: 10 },
  ),
  replica(
    '36',
    'the own copy alone commits',
    {
      file: 'replica/write-order.ts',
      find: 'const committedSeq = Math.min(this.#reachedWith(this.#standing.seq, nowMs), this.#standing.seq);',
      replace: 'const committedSeq = this.#standing.seq;',
    },
    { directed: 'lonely primary', seeds: 20 },
  ),
  replica(
    '37a',
    'an operation is acknowledged before it is applied',
    {
      file: 'replica/backup.ts',
      find: 'standing.apply(operation, sessionsAfter(standing.sessions, seq, operation), true);',
      replace:
        "standing.apply(operation, sessionsAfter(standing.sessions, seq, operation), true); this.#out.send(epoch.server, { kind: 'ack', epoch, seq });",
    },
    { directed: 'early acknowledgement', seeds: 10 },
  ),
  replica(
    '39a',
    'nobody remembers which requests were done',
    {
      file: 'replica/standing.ts',
      find: 'return request === null ? sessions : sessions.with(request, seq, result);',
      replace: 'return request === null ? sessions : sessions.with(request, seq, result) && sessions;',
    },
    { directed: 'retry elsewhere', seeds: 20 },
  ),
  replica(
    '39b',
    'which requests were done is not part of the state that is taken over',
    {
      file: 'replica/backup.ts',
      find: 'standing.storeInstall(install, { seq: position.seq, view, sessions }, true);',
      replace:
        'standing.storeInstall(install, { seq: position.seq, view, sessions: standing.sessions }, true);',
    },
    { directed: 'lagging candidate', seeds: 20 },
  ),
  replica(
    '40',
    'a client is told failure where nothing is known',
    {
      file: 'replica/write-order.ts',
      find: "this.#out.push({ kind: 'unknown', ticket });",
      replace: "this.#out.push({ kind: 'refused', ticket, reason: 'not-primary' });",
    },
    { directed: 'outcome unknown', seeds: 400 },
  ),
  replica(
    '41',
    'a primary keeps its epoch after its lease was over for a while',
    {
      file: 'replica/replica.ts',
      find: 'if (this.#lease.untilMs !== 0 && nowMs >= this.#lease.untilMs) this.#endLease();',
      replace: 'if (this.#lease.untilMs !== 0 && nowMs >= this.#lease.untilMs + 1e9) this.#endLease();',
    },
    { conversation: 'reset.txt' },
  ),
  replica(
    '42',
    'a primary ignores a refusal while its lease is valid',
    {
      file: 'replica/replica.ts',
      find: 'if (own === null || !epochEqual(own, epoch) || epochCompare(promised, own) <= 0) {',
      replace: 'if (own === null || this.#lease.untilMs > nowMs || epochCompare(promised, own) <= 0) {',
    },
    { directed: 'refused primary' },
  ),
  replica(
    '48',
    'an operation that is on its way to the disk is applied once more',
    {
      file: 'replica/backup.ts',
      find: 'if (seq <= standing.issuedSeq || standing.install !== null) return;',
      replace: 'if (standing.install !== null) return;',
    },
    { conversation: 'backup.txt', seeds: 10 },
  ),
  replica(
    '58',
    'an epoch is a reading of the clock instead of one more than was promised',
    {
      file: 'replica/replica.ts',
      find: 'const counter = Math.max(candidatesFrom, 1 + heard);',
      replace: 'const counter = Math.max(heard, 1 + Math.floor(nowMs));',
    },
    { conversation: 'reset.txt', seeds: 50 },
  ),
  replica(
    'birth-early',
    'a file that is borne gets its name before a majority has it',
    {
      file: 'replica/birth.ts',
      find: 'return holders !== undefined && viewHasMajority(this.#view, (server) => holders.has(server));',
      replace: 'return holders !== undefined && this.#view.members.some((server) => holders.has(server));',
    },
    { directed: 'borne by itself', seeds: 100 },
  ),
  replica(
    'birth-late',
    'a file is borne where others have led it',
    {
      file: 'replica/birth.ts',
      find: "return here === null && trust === 'intact' && view.joint === undefined && view.members.includes(self);",
      replace: "return trust === 'intact' && view.joint === undefined && view.members.includes(self);",
    },
    { directed: 'borne too late', seeds: 50 },
  ),
  replica(
    'birth-disk',
    'a file is borne on a disk that may have replaced another',
    {
      file: 'replica/birth.ts',
      find: "return here === null && trust === 'intact' && view.joint === undefined && view.members.includes(self);",
      replace: 'return here === null && view.joint === undefined && view.members.includes(self);',
    },
    { directed: 'borne on another disk' },
  ),
  replica(
    'birth-twice',
    'two files are borne by one number',
    {
      file: 'replica/birth.ts',
      find: 'this.#ranges.splice(this.#ranges.indexOf(range), 1, ...left);',
      replace: '',
    },
    { directed: 'borne twice', seeds: 50 },
  ),
  replica(
    'birth-unawaited',
    'whoever asks for a file whose replica is being made is told to come again',
    {
      file: 'server/replica-host.ts',
      find: 'if (storing !== undefined) await Promise.allSettled([storing]);',
      replace: '',
    },
    {
      test: {
        file: 'test/server/births.test.ts',
        name: 'whoever asks for a file whose replica is being made waits for that',
      },
    },
  ),
  replica(
    'made-room',
    'candidates choose epochs below the one of who has made the file',
    {
      file: 'replica/replica.ts',
      find: 'const counter = Math.max(candidatesFrom, 1 + heard);',
      replace: 'const counter = Math.max(candidatesFrom > 1 ? 1 : candidatesFrom, 1 + heard);',
    },
    { directed: 'made, and led by another', conversation: 'made.txt' },
  ),
  replica(
    'made-again',
    'who has made a file leads it by the first epoch again, whatever it has promised since',
    {
      file: 'replica/replica.ts',
      find: 'return this.#firstEpoch !== null && epochEqual(this.#standing.promised, this.#firstEpoch);',
      replace: 'return this.#firstEpoch !== null;',
    },
    { directed: 'made, and led by another before', conversation: 'made.txt' },
  ),
  replica(
    'made-alone',
    'who has made a file is its primary before a majority knows of the epoch',
    {
      file: 'replica/write-order.ts',
      find: '(server) => server === self || this.#peers.get(server)?.installed === true,',
      replace: '(server) => server === self || this.#peers.has(server),',
    },
    { conversation: 'made.txt' },
  ),
  replica(
    '59',
    'a primary without traffic says nothing, and so never hears that it was replaced',
    {
      file: 'replica/replica.ts',
      find: '    if (nowMs < this.#heartbeatAtMs) {',
      replace: '    if (nowMs < this.#heartbeatAtMs || order?.isQuiet) {',
    },
    { conversation: 'guard-reads.txt', seeds: 30 },
  ),
  replica(
    'early-stamp',
    'replicas are stamped while the base is still fetched from one of them, and so moves under the fetch',
    {
      file: 'replica/reset.ts',
      find: 'if (base === null || base.holder !== this.#self || promised === undefined) return false;',
      replace: 'if (base === null || promised === undefined) return false;',
    },
    { directed: 'base stands still' },
  ),
  replica(
    'same-counter',
    'two epochs with the same counter, told apart by server only, lead one after the other',
    {
      file: 'replica/replica.ts',
      find: 'if (counter >= reset.epoch.counter) {',
      replace: 'if (counter > reset.epoch.counter) {',
    },
    { directed: 'one epoch a number' },
  ),
  replica(
    'former-life-a',
    'what a former life of a replica acknowledged counts after the newer one was heard',
    FORMER_LIVES_HEARD,
    { conversation: 'lives.txt' },
  ),
  replica(
    'moved-base',
    'what was fetched is not the base that was promised: its holder has followed another',
    {
      file: 'replica/backup.ts',
      find: '? positionCompare(position, install.base) === 0',
      replace: '? positionCompare(position, install.base) !== 2',
    },
    { conversation: 'reset-fetch.txt' },
  ),
  replica(
    'answered-late',
    'a request that its client has the answer to is done again where it comes late',
    {
      file: 'replica/sessions.ts',
      find: "if (request.number <= session.over) return { kind: 'expired' };",
      replace: "if (request.number <= session.numberMax - SESSION_WINDOW) return { kind: 'expired' };",
    },
    {
      test: {
        file: 'test/replica/sessions.test.ts',
        name: 'what was answered is dropped, and refused where it comes late',
      },
    },
  ),
  replica(
    'answered-back',
    'what was answered is forgotten where a request of before comes later',
    {
      file: 'replica/sessions.ts',
      find: 'const over = Math.max(before?.over ?? 0, request.answered ?? 0, numberMax - SESSION_WINDOW);',
      replace: 'const over = Math.max(0, request.answered ?? 0, numberMax - SESSION_WINDOW);',
    },
    {
      test: {
        file: 'test/replica/sessions.test.ts',
        name: 'what was answered is dropped, and refused where it comes late',
      },
    },
  ),
];
