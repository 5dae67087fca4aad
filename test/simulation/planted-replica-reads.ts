/** Known bugs of reads: by read leases, behind the guard, and how both are given back; see `planted.ts`. */
import { type Mutation, type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const LAGS = 'if (!peer.installed || peer.fetching || peer.ackedSeq < this.#committedSeq) return;';

const ANSWERS_ONE_QUESTION = 'if (!this.#open || nonce !== this.#nonce) return false;';

/** A replica that promises another epoch gives up its read lease. */
const DROPPED_AT_PROMISE_OFF: Mutation = {
  file: 'replica/backup.ts',
  find: '    this.#owesPromise = false;\n    this.#readLease.drop();',
  replace: '    this.#owesPromise = false;',
};

const AGREED = 'test/server/agreed-files.test.ts';

export const PLANTED_READS: readonly Planted[] = [
  replica(
    'agreed-alone',
    'whoever reads without a primary asks nobody',
    {
      file: 'replica/agreement.ts',
      find: 'return view.joint === undefined && viewHasMajority(view, (server) => agreeing.has(server));',
      replace: 'return view.joint === undefined && agreeing.size > 0;',
    },
    { directed: 'agreed reader', seeds: 100 },
  ),
  replica(
    'agreed-forgotten',
    'a replica agrees that may have forgotten what it acknowledged',
    {
      file: 'replica/agreement.ts',
      find: "return trust === 'intact' && installed.counter > 0 ? { epoch: installed, seq } : null;",
      replace: 'return installed.counter > 0 ? { epoch: installed, seq } : null;',
    },
    { directed: 'agreed and forgotten' },
  ),
  replica(
    'agreed-bound',
    'a replica agrees while another may still answer reads without what it has',
    {
      file: 'replica/replica.ts',
      find: 'return nowMs >= Math.max(this.boundUntilMs, this.#config.startGuardUntilMs);',
      replace: 'return nowMs >= this.#config.startGuardUntilMs;',
    },
    { directed: 'agreed with the guard' },
  ),
  replica(
    'agreed-behind',
    'a primary whose guard had lapsed answers without what it has ordered, and others may have shown meanwhile',
    {
      file: 'replica/replica.ts',
      find: "if (!state.order.hasWhatWasShown) return 'wait';",
      replace: '',
    },
    { directed: 'agreed before its primary', says: 'a may answer reads with 0 of 1 operations' },
  ),
  replica(
    'agreed-guard-moves',
    'a primary looks out for quorum reads where its guard lapsed as a whole, not where that of one member did',
    {
      file: 'replica/write-order.ts',
      find: 'if (!wasBound && nowMs < peer.guardUntilMs) {',
      replace: 'if (!wasKept && nowMs < this.guardEndMs()) {',
    },
    { directed: 'agreed while the guard moves', says: 'a may answer reads with 0 of 1 operations' },
  ),
  replica(
    'agreed-guard-moves-twice',
    'the same, of three replicas',
    {
      file: 'replica/write-order.ts',
      find: 'const wasBound = nowMs < peer.guardUntilMs;',
      replace: 'const wasBound = wasKept;',
    },
    { directed: 'agreed while the guard moves twice', says: 'a may answer reads with 0 of 1 operations' },
  ),
  replica(
    'agreed-unsynced',
    'whoever is asked to sync what nobody leads answers without',
    {
      file: 'server/file/agreed-files.ts',
      find: '    await this.#parts.store.flush(file);\n    return this.serve(from, payload);',
      replace: '    return this.serve(from, payload);',
    },
    {
      test: {
        file: AGREED,
        name: 'what nobody leads is synced by a majority that stands at one place, and nobody leads then',
      },
    },
  ),
  replica(
    'agreed-synced-there',
    'whoever has others sync what nobody leads does not sync it itself',
    {
      file: 'server/file/agreed-files.ts',
      find: '      this.#parts.store.flush(file),\n',
      replace: '',
    },
    {
      test: {
        file: AGREED,
        name: 'what nobody leads is synced by a majority that stands at one place, and nobody leads then',
      },
    },
  ),
  replica(
    'agreed-unnamed',
    'what nobody leads is synced, and its name is not',
    { file: 'server/file/agreed-files.ts', find: '      beside(),\n', replace: '' },
    {
      test: {
        file: AGREED,
        name: 'what nobody leads is synced by a majority that stands at one place, and nobody leads then',
      },
    },
  ),
  replica(
    'agreed-synced-before',
    'what came to a replica while it was synced counts as synced',
    {
      file: 'server/file/agreed-files.ts',
      find: '|| !this.#agrees(file, place, viewNumber)) return NO;\n    await',
      replace: ') return NO;\n    await',
    },
    { test: { file: AGREED, name: 'what came to a replica while it was synced may not be on its disk' } },
  ),
  replica(
    'agreed-synced-since',
    'a replica to which something came while it was synced still agrees',
    {
      file: 'server/file/agreed-files.ts',
      find: '    await this.#parts.store.flush(file);\n    return this.serve(from, payload);',
      replace: '    await this.#parts.store.flush(file);\n    return YES;',
    },
    {
      test: {
        file: AGREED,
        name: 'whoever is asked to sync answers when it has, and not where it stands elsewhere then',
      },
    },
  ),
  replica(
    '49',
    'a write does not wait for those who may answer reads',
    {
      file: 'replica/write-order.ts',
      find: 'if (server !== self) atReaders = Math.min(atReaders, Math.max(this.#committedSeq, ackedSeq(server)));',
      replace: '',
    },
    { directed: 'silent reader', conversation: 'read-grants.txt', seeds: 10 },
  ),
  replica(
    '50a',
    'a backup shows what is not known to be committed',
    {
      file: 'replica/backup.ts',
      find: "return dependsOnSeq <= this.#committedSeq ? 'serve' : 'wait';",
      replace: "return dependsOnSeq <= this.#committedSeq ? 'serve' : 'serve';",
    },
    { directed: 'dirty object', conversation: 'read-lease.txt', seeds: 20 },
  ),
  replica(
    '50b',
    'a primary shows what is not committed',
    {
      file: 'replica/replica.ts',
      find: "return dependsOnSeq <= state.order.committedSeq ? 'serve' : 'wait';",
      replace: "return dependsOnSeq <= state.order.committedSeq ? 'serve' : 'serve';",
    },
    { directed: 'lonely primary', seeds: 20 },
  ),
  replica(
    '50c',
    'a backup that takes over a new state keeps what it knew of the old one to be committed',
    {
      file: 'replica/backup.ts',
      find: 'if (this.#replaces) this.#committedSeq = 0;',
      replace: '',
    },
    { directed: 'committed before the power went' },
  ),
  replica(
    '51a',
    'a backup answers reads without a lease',
    {
      file: 'replica/backup.ts',
      find: 'if (!epochEqual(installed, promised) || !this.#readLease.covers(installed, seq, nowMs))',
      replace: 'if (!epochEqual(installed, promised))',
    },
    { directed: 'reader after sleep', conversation: 'read-lease.txt', seeds: 10 },
  ),
  replica(
    '51b',
    'a backup answers reads after it has promised another epoch',
    {
      file: 'replica/backup.ts',
      find: 'if (!epochEqual(installed, promised) || !this.#readLease.covers(installed, seq, nowMs))',
      replace: 'if (promised === null || !this.#readLease.covers(installed, seq, nowMs))',
    },
    { conversation: 'read-lease.txt' },
    { also: [DROPPED_AT_PROMISE_OFF], paired: true },
  ),
  replica(
    '51c',
    'a read lease of an older epoch counts',
    {
      file: 'replica/read-lease.ts',
      find: 'if (this.#epoch === null || !epochEqual(this.#epoch, epoch)) return false;',
      replace: 'if (this.#epoch === null) return false;',
    },
    { conversation: 'read-lease.txt' },
    { also: [DROPPED_AT_PROMISE_OFF], paired: true },
  ),
  replica(
    '52a',
    'a read lease outlives the lease of its grantor',
    {
      file: 'replica/write-order.ts',
      find: 'const endMs = Math.min(this.#lease.untilMs, this.guardEndMs());',
      replace: 'const endMs = nowMs + 1e9;',
    },
    { directed: 'read lease at the end', conversation: 'read-grants-end.txt' },
  ),
  replica(
    '52b',
    'a read lease counts from the last read instead of from when it was asked for',
    {
      file: 'replica/read-lease.ts',
      find: 'const untilMs = this.#askedMs + durationMs * (1 - DRIFT_MAX);',
      replace: 'const untilMs = this.#readMs + durationMs * (1 - DRIFT_MAX);',
    },
    { conversation: 'read-lease.txt' },
  ),
  replica(
    '52c',
    'the holder of a read lease has no margin for the drift of clocks',
    {
      file: 'replica/read-lease.ts',
      find: 'const untilMs = this.#askedMs + durationMs * (1 - DRIFT_MAX);',
      replace: 'const untilMs = this.#askedMs + durationMs;',
    },
    { conversation: 'read-lease.txt' },
  ),
  replica(
    '52d',
    'the grantor of a read lease has no margin for the drift of clocks',
    {
      file: 'replica/read-lease.ts',
      find: 'const untilMs = nowMs + durationMs * (1 + DRIFT_MAX);',
      replace: 'const untilMs = nowMs + durationMs;',
    },
    { conversation: 'read-grants.txt' },
  ),
  replica(
    '52e',
    'any grant answers the open question, also one to an earlier question',
    {
      file: 'replica/read-lease.ts',
      find: ANSWERS_ONE_QUESTION,
      replace: 'if (!this.#open) return false;',
    },
    { directed: 'late grant', conversation: 'read-lease-late.txt', seeds: 80 },
  ),
  replica(
    '52f',
    'a grant answers a question that is open no more',
    {
      file: 'replica/read-lease.ts',
      find: ANSWERS_ONE_QUESTION,
      replace: 'if (nonce !== this.#nonce) return false;',
    },
    { conversation: 'read-lease-late.txt' },
  ),
  replica(
    '52g',
    'every life numbers its questions from the same number on',
    {
      file: 'replica/replica.ts',
      find: 'this.#readLease = new ReadLease(config.readLeaseMs, firstNonce);',
      replace: 'this.#readLease = new ReadLease(config.readLeaseMs, firstNonce - firstNonce);',
    },
    { conversation: 'lives.txt' },
  ),
  replica(
    '53a',
    'a replica that lacks committed operations may answer reads',
    {
      file: 'replica/write-order.ts',
      find: LAGS,
      replace: 'if (!peer.installed || peer.fetching) return;',
    },
    { conversation: 'read-grants.txt' },
  ),
  replica(
    '53b',
    'a read lease holds before the operations are here that came before it',
    {
      file: 'replica/read-lease.ts',
      find: 'return nowMs < this.#untilMs && seq >= this.#startSeq;',
      replace: 'return nowMs < this.#untilMs;',
    },
    { conversation: 'read-lease.txt' },
  ),
  replica(
    '53c',
    'a replica that lacks committed operations may answer reads, and does so at once',
    { file: 'replica/write-order.ts', find: LAGS, replace: 'if (!peer.installed || peer.fetching) return;' },
    { directed: 'lagging reader' },
    {
      also: [
        {
          file: 'replica/read-lease.ts',
          find: 'return nowMs < this.#untilMs && seq >= this.#startSeq;',
          replace: 'return nowMs < this.#untilMs;',
        },
      ],
      paired: true,
    },
  ),
  replica(
    '54a',
    'a read at the primary does not look at the lease',
    {
      file: 'replica/replica.ts',
      find: "return this.#state.kind === 'active' && nowMs < this.#lease.untilMs;",
      replace: "return this.#state.kind === 'active';",
    },
    { conversation: 'reset.txt' },
  ),
  replica(
    '54b',
    'a read at the primary does not look at the guard',
    {
      file: 'replica/replica.ts',
      find: "if (nowMs >= state.order.guardEndMs()) return 'wait';",
      replace: '',
    },
    { directed: 'guard at a primary', conversation: 'guard-reads.txt' },
  ),
  replica(
    '54d',
    'a read at the primary looks neither at the lease nor at the guard',
    {
      file: 'replica/replica.ts',
      find: "return this.#state.kind === 'active' && nowMs < this.#lease.untilMs;",
      replace: "return this.#state.kind === 'active';",
    },
    { directed: 'read after sleep' },
    {
      also: [
        {
          file: 'replica/replica.ts',
          find: "if (nowMs >= state.order.guardEndMs()) return 'wait';",
          replace: '',
        },
      ],
      paired: true,
    },
  ),
  replica(
    '21c',
    'the lease is given back while others may still read by leases that it allowed',
    {
      file: 'replica/replica.ts',
      find: 'if (!order.takeReadsBack(nowMs, asks)) return;',
      replace: 'order.takeReadsBack(nowMs, asks);',
    },
    { directed: 'orderly end', conversation: 'read-revoke.txt' },
  ),
  replica(
    '21d',
    'read leases are granted while they are taken back',
    {
      file: 'replica/replica.ts',
      find: "if (this.#state.kind === 'active') order.readRequested(from, message.nonce, nowMs);",
      replace: 'order.readRequested(from, message.nonce, nowMs);',
    },
    { conversation: 'read-revoke.txt' },
  ),
  replica(
    '21e',
    'a replica says that it answers no more reads, and does',
    {
      file: 'replica/replica.ts',
      find: "        this.#readLease.drop();\n        this.#out.send(from, { kind: 'read-returned'",
      replace: "        this.#out.send(from, { kind: 'read-returned'",
    },
    { conversation: 'read-lease-late.txt' },
  ),
  replica(
    'grant-epochs',
    'a process forgets, when it begins another epoch, who may still read by the one before',
    {
      file: 'replica/replica.ts',
      find: 'if (base === null || !reset.isComplete() || this.#mayBeReadByGrant(reset, nowMs)) return;',
      replace: 'if (base === null || !reset.isComplete()) return;',
    },
    { directed: 'reader of an old epoch', conversation: 'read-grants-epochs.txt' },
  ),
  replica(
    'grant-running',
    'who takes part in an epoch once more has given up what it was allowed in this very epoch',
    {
      file: 'replica/write-order.ts',
      find: 'this.#grants.followed(peer.server, this.epoch);',
      replace: 'this.#grants.returned(peer.server);',
    },
    { directed: 'reader that leaves', conversation: 'view-readers.txt', seeds: 200 },
  ),
  replica(
    'grant-gone',
    'a write waits for a reader whose process is gone',
    {
      file: 'replica/replica.ts',
      find: '    this.#grants.returned(from);',
      replace: '',
    },
    { conversation: 'lives.txt' },
  ),
  replica(
    'grant-late-end',
    'nobody looks again when the read lease that a write waits for is over',
    {
      file: 'replica/write-order.ts',
      find: 'return this.#waitsSinceMs === Infinity ? Infinity : this.#grants.nextEndMs(nowMs);',
      replace: 'return Infinity;',
    },
    { conversation: 'read-grants.txt' },
  ),
  replica(
    'grant-slow',
    'a slow replica may read for ever, and makes all writes as slow',
    { file: 'replica/write-order.ts', find: 'if (isSlow) return;', replace: '' },
    { conversation: 'read-grants.txt' },
  ),
  replica(
    'guard-a',
    'a replica that answered a heartbeat promises the next candidate at once',
    {
      file: 'replica/replica.ts',
      find: "if (message.kind === 'prepare' && nowMs < this.#guard.barsUntilMs(epoch)) {",
      replace: "if (message.kind === 'prepare' && nowMs < 0) {",
    },
    { directed: 'guard at a replica', conversation: 'guard.txt' },
  ),
  replica(
    'guard-b',
    'a heartbeat binds nobody',
    {
      file: 'replica/backup.ts',
      find: 'this.#guard.hold(epoch, nowMs, message.guardMs);',
      replace: '',
    },
    { directed: 'guard at a replica', conversation: 'guard.txt' },
  ),
  replica(
    '60a',
    'a candidate does not keep the guard that it answered to another',
    {
      file: 'replica/replica.ts',
      find: 'return Math.max(this.#retryAtMs, this.#guard.barsUntilMs({ counter: 0, server: self, incarnation }));',
      replace: 'return Math.max(this.#retryAtMs, nowMsOf({ counter: 0, server: self, incarnation }));',
    },
    { directed: 'guard at a candidate', conversation: 'guard-own.txt' },
    {
      also: [
        {
          file: 'replica/replica.ts',
          find: 'const NONCE_LIVES = 2 ** 32;',
          replace: 'const NONCE_LIVES = 2 ** 32;\nconst nowMsOf = (_: Epoch): number => 0;',
        },
      ],
    },
  ),
  replica(
    '60b',
    'a primary that has stepped down does not keep the guard that it asked others for',
    {
      file: 'replica/write-order.ts',
      find: 'this.#guard.hold(this.epoch, nowMs, guardMs);',
      replace: '',
    },
    { conversation: 'guard-reads.txt' },
  ),
  replica(
    'guard-start',
    'a server that just started promises at once, whatever its earlier life has answered',
    {
      file: 'replica/guard.ts',
      find: '    this.#startUntilMs = startUntilMs;',
      replace: '    this.#startUntilMs = startUntilMs - Infinity;',
    },
    { directed: 'guard after a start', conversation: 'guard-own.txt' },
  ),
  replica(
    'guard-life',
    'a server is kept out by the guard of its earlier life no more than by its own',
    {
      file: 'replica/guard.ts',
      find: 'return a.server === b.server && a.incarnation === b.incarnation;',
      replace: 'return a.server === b.server;',
    },
    { conversation: 'guard.txt' },
  ),
  replica(
    'guard-short',
    'a later heartbeat that asks for less shortens the guard',
    {
      file: 'replica/guard.ts',
      find: 'this.#untilMs = Math.max(this.#untilMs, untilMs);',
      replace: 'this.#untilMs = untilMs;',
    },
    { conversation: 'guard-prepare.txt' },
  ),
  replica(
    'guard-drift-a',
    'whoever keeps the guard has no margin for the drift of clocks',
    {
      file: 'replica/guard.ts',
      find: 'const untilMs = nowMs + guardMs * (1 + DRIFT_MAX);',
      replace: 'const untilMs = nowMs + guardMs;',
    },
    { conversation: 'guard.txt' },
  ),
  replica(
    'guard-drift-b',
    'a primary counts with the guard without a margin for the drift of clocks',
    {
      file: 'replica/write-order.ts',
      find: 'beat.sentMs + beat.guardMs * (1 - DRIFT_MAX));',
      replace: 'beat.sentMs + beat.guardMs);',
    },
    { conversation: 'guard-reads.txt' },
  ),
  replica(
    'guard-received',
    'a primary counts the guard from when the answer arrives',
    {
      file: 'replica/write-order.ts',
      find: 'beat.sentMs + beat.guardMs * (1 - DRIFT_MAX));',
      replace: 'nowMs + beat.guardMs * (1 - DRIFT_MAX));',
    },
    { conversation: 'guard-reads.txt' },
  ),
  replica(
    'guard-beat',
    'the answer to an earlier heartbeat counts for the latest',
    {
      file: 'replica/write-order.ts',
      find: 'const beat = this.#beats.get(number);',
      replace: 'const beat = this.#beats.get(number && this.#beat);',
    },
    { conversation: 'guard-reads.txt' },
  ),
  replica(
    'guard-unasked',
    'nobody asks for the guard again where a read needs it',
    {
      file: 'replica/replica.ts',
      find: "    if (state.kind !== 'active' || nowMs < state.order.guardEndMs()) return;",
      replace: '    if (state !== null) return;',
    },
    { conversation: 'view-guard.txt' },
  ),
  replica(
    'guard-unanswered',
    'a candidate that had to wait is never answered',
    {
      file: 'replica/replica.ts',
      find: 'this.#onPrimaryMessage(held.from, held.message, nowMs);',
      replace: '',
    },
    { conversation: 'guard.txt' },
  ),
  replica(
    'yield-epoch',
    'the end of an earlier epoch lifts the guard of a later one',
    {
      file: 'replica/guard.ts',
      find: 'if (held === null || held.counter !== epoch.counter || !isSameLife(held, epoch)) return;',
      replace: 'if (held === null) return;',
    },
    { conversation: 'guard-yield.txt' },
  ),
  replica(
    'yield-stranger',
    'anybody may lift the guard of anybody',
    {
      file: 'replica/replica.ts',
      find: 'if (message.epoch.server === from) this.#guard.lift(message.epoch);',
      replace: 'this.#guard.lift(message.epoch);',
    },
    { conversation: 'guard-yield.txt' },
  ),
  replica(
    'yield-never',
    'nobody is told that a primary has stopped, so that the next one waits for its guard',
    {
      file: 'replica/replica.ts',
      find: '    order.yield();',
      replace: '',
    },
    { directed: 'orderly end', conversation: 'read-revoke.txt' },
  ),
];
