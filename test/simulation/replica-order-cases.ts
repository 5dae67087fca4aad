/**
 * Goal: schedules that random runs are too unlikely to find, and a name for each.
 * Method: a script controls leases, network and disks of a replica group, and `ReplicaObserver` judges. Each passes on
 * the code as it is and fails on the code with the bug that it is written for (`test/testdata/planted`). Here: the order
 * of operations.
 */
import { A, B, C, type Cases, D, directed, HEARTBEATS_MS, LONG_MS, X, Y, Z } from './replica-script.ts';

export const ORDER_CASES: Cases = {
  /** a is deposed and primary again; an acknowledgement of its first epoch is late. */
  'late acknowledgement': directed({ servers: 5 }, (s) => {
    s.lead(A);
    s.commit(A, Z);
    s.rule = (from, to, message) => {
      if (from === A && to !== B && message?.kind === 'write') return 'drop';
      return from === B && message?.kind === 'ack' ? 'hold' : null;
    };
    s.write(A, X);
    s.group.revoke(A);
    s.isolated.add(A).add(B);
    s.lead(C);
    s.isolated.clear();
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.group.revoke(C);
    s.lead(A);
    s.run(HEARTBEATS_MS);
    s.rule = (from, to, message) => (from === A && to !== D && message?.kind === 'write' ? 'drop' : null);
    s.write(A, Y);
    s.expect(s.deliver() > 0, 'an acknowledgement was held back');
    s.crash(A);
    s.crash(D);
    s.lead(B);
    s.write(B, { ...Z, value: 'another!' });
    s.read(B);
  }),

  /** b promises, and crashes before the promise is on its disk. */
  'forgotten promise': directed({}, (s) => {
    s.group.leasesExclude = false;
    s.lead(A, 200);
    s.run();
    // a's heartbeats are lost, so that no guard binds b and c.
    s.rule = (from, _to, message) => (from === A && message?.kind === 'heartbeat' ? 'drop' : null);
    s.group.grant(A, LONG_MS);
    s.run(300);
    s.group.diskDelayMs = (server, kind) => (server === B && kind === 'promise' ? 20 : 0.2);
    s.rule = (from, to, message) => {
      if ((from === A && to === C) || (from === C && to === A)) return 'drop';
      if (from === A && message?.kind === 'heartbeat') return 'drop';
      if (from === A && message?.kind === 'write') return 'hold';
      return from === C && message?.kind === 'install' ? 'drop' : null;
    };
    const write = s.change(A, 91, X);
    s.group.grant(C, LONG_MS);
    s.run(10);
    s.restart(B);
    s.expect(s.deliver() > 0, 'a write was held back');
    s.run(10);
    s.expect(write.answer?.kind === 'done', 'b acknowledges');
    s.group.revoke(A);
    s.rule = s.between(A, C);
    s.lead(C);
    s.write(C, Y);
    s.read(C);
  }),

  /** a orders in its old epoch after b has begun another. */
  'old epoch': directed({}, (s) => {
    s.group.leasesExclude = false;
    s.lead(A);
    s.isolated.add(A);
    s.group.grant(A, 3 * LONG_MS);
    s.lead(B);
    s.write(B, Y);
    s.isolated.clear();
    s.expect(s.role(A) === 'active', 'a does not know the new epoch');
    s.write(A, X);
    s.run(HEARTBEATS_MS);
  }),

  /** The new primary missed the last write. */
  'lagging candidate': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.commit(A, X);
    s.isolated.clear();
    s.crash(A);
    s.lead(C);
    s.read(C);
  }),

  /** c fetches the base from b: the position of b must not change meanwhile. */
  'base stands still': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.write(A, X);
    s.isolated.clear();
    s.crash(A);
    let fetched = false;
    s.rule = (from, _to, message) => {
      fetched ||= s.group.server(C).replica?.inspect().installed.counter === 2;
      s.expect(
        fetched || from !== C || message?.kind !== 'install',
        'c stamps no replica before it has the base',
      );
      return null;
    };
    s.lead(C);
    s.read(C);
  }),

  /** c does not know a's epoch, and would use the same number. */
  'one epoch a number': directed({}, (s) => {
    s.isolated.add(C);
    s.lead(A);
    s.write(A, X);
    s.group.revoke(A);
    s.isolated.clear();
    s.isolated.add(A);
    s.lead(C);
    s.expect(s.group.server(C).replica?.epoch.counter === 2, 'no two primaries have the same number');
    s.read(C);
  }),

  /** c has made the file. Before it becomes primary a does, with b, which c does not learn. */
  'made, with another primary': directed({ begins: 'made' }, (s) => {
    s.group.leasesExclude = false;
    s.isolated.add(C);
    s.lead(A);
    s.commit(A, X);
    s.isolated.clear();
    s.rule = s.between(A, C);
    s.group.grant(C, LONG_MS);
    s.run(5);
    s.expect(s.role(C) === 'beginning', 'c begins without asking');
    s.write(C, Y);
    s.run(HEARTBEATS_MS);
    s.rule = () => null;
    s.group.revoke(A);
    s.lead(C, 2 * LONG_MS);
    s.write(C, Z);
    s.read(C);
  }),

  /** c has made the file, and learns of another epoch before it has the lease. */
  'made, with another primary before': directed({ begins: 'made' }, (s) => {
    s.lead(A);
    s.write(A, X);
    s.group.revoke(A);
    s.run(HEARTBEATS_MS);
    s.lead(C, 2 * LONG_MS);
    s.read(C);
  }),

  /** c has made the file, and crashes when b alone has its first write. */
  'made, and crashed': directed({ begins: 'made' }, (s) => {
    s.isolated.add(A);
    s.group.grant(C, LONG_MS);
    s.run(5);
    s.commit(C, X);
    s.expect(s.role(C) === 'active', 'by the first acknowledgement c is the primary');
    s.isolated.clear();
    s.crash(C);
    s.lead(A, 2 * LONG_MS);
    s.expect(s.shown(A) === X.value, 'what was committed first is there');
  }),

  /** c creates the file with contents, and no other server stores it: it must not get its name. */
  'created by itself': directed({ begins: 'created' }, (s) => {
    s.isolated.add(C);
    s.create(X);
    s.run();
    s.crash(C);
    s.isolated.clear();
    s.lead(A);
    s.write(A, Y);
    s.read(A);
  }),

  /** c creates the file with b, and crashes. */
  'created, and crashed': directed({ begins: 'created' }, (s) => {
    s.isolated.add(A);
    s.create(X);
    s.run();
    s.expect(s.group.counts.created === 1, 'two of three have it');
    s.isolated.clear();
    s.crash(C);
    s.lead(A);
    s.expect(s.shown(A) === X.value, 'the contents are there');
    s.write(A, Y);
    s.read(A);
  }),

  /** c creates the file with b, which loses it with its power: c alone knows of it. */
  'created, and lost with the power': directed({ begins: 'created' }, (s) => {
    s.isolated.add(A);
    s.create(X);
    s.run();
    s.expect(s.group.counts.created === 1, 'two of three have it');
    s.crash(C);
    s.losePower(B);
    s.expect(!s.group.disks.has(B), 'b has nothing left');
    s.isolated.clear();
    for (const server of [A, B]) s.group.grant(server, LONG_MS);
    s.run(2 * LONG_MS);
    s.expect(s.role(A) !== 'active' && s.role(B) !== 'active', 'what b says of itself is not enough');
    s.start(C);
    s.lead(A);
    s.expect(s.shown(A) === X.value, 'the contents are there');
  }),

  /** c creates the file with b, orders in the same epoch without a lease, and crashes when b alone has its write. */
  'created, and resumed': directed({ begins: 'created', resumes: true }, (s) => {
    s.isolated.add(A);
    s.create(X);
    s.run();
    s.commit(C, Y);
    s.expect(s.group.server(C).replica?.epoch.counter === 1, 'in the epoch of the creation');
    s.expect(s.role(C) === 'resumed', 'c is no primary');
    s.isolated.clear();
    s.crash(C);
    s.lead(A);
    s.expect(s.shown(A) === Y.value, 'the write after the creation is there');
  }),

  /** c is primary, ends in good order, and resumes; a was primary with b meanwhile, which c did not learn. */
  'ended, with another primary since': directed({ resumes: true }, (s) => {
    s.group.leasesExclude = false;
    s.lead(C);
    s.write(C, X);
    s.stop(C);
    s.run(HEARTBEATS_MS);
    s.group.revoke(C);
    s.isolated.add(C);
    s.lead(A);
    s.commit(A, Y);
    s.isolated.clear();
    s.expect(s.write(C, Z).answer?.kind !== 'done', 'a majority has promised more');
    s.group.revoke(A);
    s.lead(C, 2 * LONG_MS);
    s.read(C);
  }),

  /**
   * c resumes alone, and ends that; a is primary with b. c must neither assume its own operation to be committed, nor
   * order another one at its position.
   */
  'resumed alone': directed({ begins: 'created', resumes: true }, (s) => {
    s.create(X);
    s.run();
    s.isolated.add(C);
    const write = s.change(C, 91, Y);
    s.run(HEARTBEATS_MS);
    s.expect(write.answer?.kind === 'unknown', 'c has ended it');
    s.lead(A);
    s.commit(A, Z);
    s.change(C, 91, Y);
    s.run(HEARTBEATS_MS);
    s.isolated.clear();
    s.read(A);
  }),

  /** c creates the file with b and resumes with a, which loses its power: b does not have all. */
  'resumed, and lost with the power': directed({ begins: 'created', resumes: true }, (s) => {
    s.isolated.add(A);
    s.create(X);
    s.run();
    s.isolated.clear();
    s.isolated.add(B);
    s.commit(C, Y);
    s.crash(C);
    s.losePower(A);
    s.isolated.clear();
    for (const server of [A, B]) s.group.grant(server, LONG_MS);
    s.run(2 * LONG_MS);
    s.expect(s.role(A) !== 'active' && s.role(B) !== 'active', 'what b has is not enough');
    s.start(C);
    s.lead(B);
    s.expect(s.shown(B) === Y.value, 'the write after the creation is there');
  }),

  /** c creates the file and resumes with b, which loses the replica with its power. */
  'resumed, and the replica lost': directed({ begins: 'created', resumes: true }, (s) => {
    s.isolated.add(A);
    s.create(X);
    s.run();
    s.commit(C, Y);
    s.losePower(B);
    s.expect(!s.group.disks.has(B), 'b has nothing left');
    s.run(HEARTBEATS_MS);
    s.commit(C, Z);
    s.crash(C);
    s.isolated.clear();
    s.lead(A, 2 * LONG_MS);
    s.expect(s.shown(A) === Z.value, 'b has them');
  }),

  /** c creates the file, and its messages are late: a was primary before, and wrote with b. */
  'created too late': directed({ begins: 'created' }, (s) => {
    s.rule = (_from, _to, message) => (message === null ? 'hold' : null);
    s.create(X);
    s.run(2);
    s.isolated.add(C);
    s.lead(A);
    s.commit(A, Y);
    s.isolated.clear();
    s.rule = s.between(A, C);
    s.expect(s.deliver() > 0, 'creations were held back');
    s.run();
    s.rule = () => null;
    s.expect(s.shown(A) === Y.value, 'what was written first is there');
  }),

  /** Two requests create different contents by one number. */
  'created twice': directed({ begins: 'created' }, (s) => {
    s.isolated.add(C);
    s.create(X);
    s.run();
    s.isolated.clear();
    s.create(Y, 71);
    s.run();
    s.lead(A);
    s.write(A, Z);
    s.read(A);
  }),

  /** a wrote with b, and its disk was replaced; the creation by c is late. */
  'created on another disk': directed({ begins: 'created' }, (s) => {
    s.rule = (_from, _to, message) => (message === null ? 'hold' : null);
    s.create(X);
    s.run(2);
    s.isolated.add(C);
    s.lead(A);
    s.commit(A, Y);
    s.group.faults.wipe(A, 0);
    s.run(2);
    s.isolated.clear();
    s.isolated.add(B);
    s.rule = () => null;
    s.expect(s.deliver() > 0, 'creations were held back');
    s.run();
    s.isolated.clear();
    s.lead(B);
    s.expect(s.shown(B) === Y.value, 'what was written first is there');
  }),

  /** A long tail at one replica, against a shorter one of a later epoch. */
  'long tail': directed({}, (s) => {
    s.lead(B);
    s.isolated.add(B);
    for (const value of ['tail 111', 'tail 222', 'tail 333']) s.write(B, { ...X, value });
    s.group.revoke(B);
    s.lead(A);
    s.write(A, Y);
    s.crash(A);
    s.isolated.clear();
    s.lead(B);
    s.read(B);
  }),

  /** Raft's figure 8: only the stamp tells the newer base from an old tail of the same length. */
  'old tail': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(A);
    s.write(A, X);
    s.group.revoke(A);
    s.lead(B);
    s.commit(B, Y);
    for (const server of [A, B, C]) s.restart(server);
    s.isolated.clear();
    s.lead(A);
    s.read(A);
  }),

  /** A primary that has its base, and is the only one. */
  'base of a minority': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(A);
    s.write(A, X);
    s.group.revoke(A);
    s.isolated.clear();
    s.rule = (from, _to, message) => (from === A && message?.kind === 'install' ? 'drop' : null);
    s.group.grant(A, LONG_MS);
    s.run();
    s.read(A);
    s.crash(A);
    s.lead(C);
    s.read(C);
  }),

  /** One write is lost, the next arrives. */
  'lost write': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    let lost = false;
    s.rule = (from, to, message) => {
      if (lost || from !== A || to !== B || message?.kind !== 'write') return null;
      lost = true;
      return 'drop';
    };
    s.change(A, 91, X);
    s.write(A, { key: '1', value: 'other!!!' });
    s.run(HEARTBEATS_MS);
    s.crash(A);
    s.isolated.clear();
    s.lead(B);
    s.read(B);
  }),

  /** Two and two servers, each half with a lease. */
  'two halves': directed({ servers: 4 }, (s) => {
    s.group.leasesExclude = false;
    s.rule = (from, to) => ((from === A || from === B) !== (to === A || to === B) ? 'drop' : null);
    s.group.grant(A, LONG_MS);
    s.group.grant(C, LONG_MS);
    s.run();
    s.write(A, X);
    s.write(C, Y);
    s.expect(s.role(A) !== 'active' && s.role(C) !== 'active', 'no half is a majority');
  }),

  /** A primary alone. */
  'lonely primary': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(A);
    s.write(A, X);
    s.read(A);
    s.crash(A);
    s.lead(B);
    s.read(B);
  }),

  /** b acknowledges, and crashes before the operation is on its disk. */
  'early acknowledgement': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.group.diskDelayMs = (server, kind) => (server === B && kind === 'apply' ? 1_000 : 0.2);
    s.write(A, X);
    s.crash(A);
    s.restart(B);
    s.isolated.clear();
    s.lead(C);
    s.read(C);
  }),

  /** The answer is lost; the client asks the next primary, after another client wrote. */
  'retry elsewhere': directed({}, (s) => {
    s.lead(A);
    s.commit(A, X);
    s.crash(A);
    s.lead(B);
    s.write(B, Y);
    const again = s.change(B, 1, X);
    s.run();
    s.expect(again.answer?.kind === 'done' && again.answer.seq === 1, 'it is answered, not repeated');
    s.read(B);
  }),

  /** Applied everywhere and acknowledged nowhere when the lease ends. */
  'outcome unknown': directed({}, (s) => {
    s.lead(A);
    s.rule = (_from, _to, message) => (message?.kind === 'ack' ? 'drop' : null);
    s.write(A, X);
    s.group.revoke(A);
    s.rule = () => null;
    s.lead(C);
    s.read(C);
  }),

  /** a's lease ended, another server was primary, and a has the lease again without knowing that. */
  'lease lost and found': directed({}, (s) => {
    s.lead(A, 100);
    s.isolated.add(A);
    s.run(150);
    s.lead(B);
    s.write(B, Y);
    s.group.revoke(B);
    s.group.grant(A, LONG_MS);
    s.read(A);
  }),

  /** Two leases at once; a learns of b's epoch from c. */
  'refused primary': directed({}, (s) => {
    s.group.leasesExclude = false;
    s.lead(A);
    s.isolated.add(A);
    s.group.grant(A, 3 * LONG_MS);
    s.lead(B);
    s.isolated.clear();
    s.rule = s.between(A, B);
    s.write(B, Y);
    s.run(HEARTBEATS_MS);
    s.expect(s.role(A) !== 'active', 'a follows the larger epoch');
    s.read(A);
  }),

  /** a pauses past the end of its lease, and a read is the first event after that. */
  'read after a pause': directed({}, (s) => {
    s.lead(A, 200);
    s.write(A, X);
    s.isolated.add(A);
    s.group.world.pause(A, 1_000);
    s.run(200);
    s.lead(B);
    s.write(B, Y);
    s.read(A);
    s.run(1_000);
  }),
};
