/**
 * Goal: the schedules that random runs are too unlikely to find, and a name for each.
 * Method: servers whose leases, network and disks a script controls. A script says what happens;
 * the observers of `SystemWorld` say what is wrong. Each passes on the code as it is and fails on
 * the code with the bug that it is written for (`planted-replica.ts`). Here: who orders operations;
 * beside it, who may show them, and what members and disks have to do with it.
 */
import { DISK_CASES } from './disk-cases.ts';
import type { Campaign } from './planted.ts';
import { ROT_CASES } from './rot-cases.ts';
import { SEAL_CASES } from './seal-cases.ts';
import { SNAPSHOT_CASES } from './snapshot-cases.ts';
import { WHOLE_FILE } from './system-file.ts';
import { READ_CASES } from './system-read-cases.ts';
import { runSystem } from './system-run.ts';
import { A, B, C, D, directed, HEARTBEATS_MS, LONG_MS, X, Y, Z } from './system-script.ts';

const ORDER_CASES: Record<string, () => string | null> = {
  /** a is deposed and primary again; an acknowledgement of its first epoch comes late. */
  'late acknowledgement': directed({ servers: 5 }, (s) => {
    s.lead(A);
    s.expect(s.write(A, Z).answer?.kind === 'done', 'the first write commits');
    s.rule = (from, to, message) => {
      if (from === A && to !== B && message?.kind === 'write') return 'drop';
      return from === B && message?.kind === 'ack' ? 'hold' : null;
    };
    s.write(A, X);
    s.system.revoke(A);
    s.isolated.add(A).add(B);
    s.lead(C);
    s.isolated.clear();
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.system.revoke(C);
    s.lead(A);
    s.run(HEARTBEATS_MS);
    s.rule = (from, to, message) => (from === A && to !== D && message?.kind === 'write' ? 'drop' : null);
    s.write(A, Y);
    s.expect(s.system.world.deliver() > 0, 'an acknowledgement was held back');
    s.system.world.crash(A);
    s.system.world.crash(D);
    s.lead(B);
    s.write(B, { ...Z, value: 'another!' });
    s.read(B);
  }),

  /** b promises, and dies before the promise is on its disk. */
  'forgotten promise': directed({}, (s) => {
    s.system.leasesExclude = false;
    s.lead(A, 200);
    s.run();
    // a's heartbeats are lost, so that nobody is bound by them any more.
    s.rule = (from, _to, message) => (from === A && message?.kind === 'heartbeat' ? 'drop' : null);
    s.system.grant(A, LONG_MS);
    s.run(300);
    s.system.diskDelayMs = (server, kind) => (server === B && kind === 'promise' ? 20 : 0.2);
    s.rule = (from, to, message) => {
      if ((from === A && to === C) || (from === C && to === A)) return 'drop';
      if (from === A && message?.kind === 'heartbeat') return 'drop';
      if (from === A && message?.kind === 'write') return 'hold';
      return from === C && message?.kind === 'install' ? 'drop' : null;
    };
    const write = s.system.change(A, 91, X);
    s.system.grant(C, LONG_MS);
    s.run(10);
    s.restart(B);
    s.expect(s.system.world.deliver() > 0, 'a write was held back');
    s.run(10);
    s.expect(write.answer?.kind === 'done', 'nobody keeps b from acknowledging');
    s.system.revoke(A);
    s.rule = (from, to) => ((from === A && to === C) || (from === C && to === A) ? 'drop' : null);
    s.lead(C);
    s.write(C, Y);
    s.read(C);
  }),

  /** a goes on in its old epoch after b has begun another. */
  'old epoch': directed({}, (s) => {
    s.system.leasesExclude = false;
    s.lead(A);
    s.isolated.add(A);
    s.system.grant(A, 3 * LONG_MS);
    s.lead(B);
    s.write(B, Y);
    s.isolated.clear();
    s.expect(s.role(A) === 'active', 'a has not heard of it yet');
    s.write(A, X);
    s.run(HEARTBEATS_MS);
  }),

  /** The new primary missed the last write. */
  'lagging candidate': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.expect(s.write(A, X).answer?.kind === 'done', 'two of three commit');
    s.isolated.clear();
    s.system.world.crash(A);
    s.lead(C);
    s.read(C);
  }),

  /** c leads from b's state: while it fetches that, b must stand still, or the fetch is of another state. */
  'base stands still': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.write(A, X);
    s.isolated.clear();
    s.system.world.crash(A);
    let fetched = false;
    s.rule = (from, _to, message) => {
      fetched ||= s.system.process(C).replica?.inspect().installed.counter === 2;
      s.expect(
        fetched || from !== C || message?.kind !== 'install',
        'nobody is stamped before the base is there',
      );
      return null;
    };
    s.lead(C);
    s.read(C);
  }),

  /** c heard nothing of a's epoch, and would count up to the same number. */
  'one epoch a number': directed({}, (s) => {
    s.isolated.add(C);
    s.lead(A);
    s.write(A, X);
    s.system.revoke(A);
    s.isolated.clear();
    s.isolated.add(A);
    s.lead(C);
    s.expect(s.system.process(C).replica?.epoch.counter === 2, 'no two primaries have the same number');
    s.read(C);
  }),

  /** c has made the file. Before it leads it, a does, with b; nobody tells c. */
  'made, and led by another': directed({ isMade: true }, (s) => {
    s.system.leasesExclude = false;
    s.isolated.add(C);
    s.lead(A);
    s.expect(s.write(A, X).answer?.kind === 'done', 'two of three commit');
    s.isolated.clear();
    s.rule = (from, to) => ((from === A && to === C) || (from === C && to === A) ? 'drop' : null);
    s.system.grant(C, LONG_MS);
    s.run(5);
    s.expect(s.role(C) === 'beginning', 'c begins without asking');
    s.write(C, Y);
    s.run(HEARTBEATS_MS);
    s.rule = () => null;
    s.system.revoke(A);
    s.lead(C, 2 * LONG_MS);
    s.write(C, Z);
    s.read(C);
  }),

  /** c has made the file, and hears of another's epoch before it has the lease. */
  'made, and led by another before': directed({ isMade: true }, (s) => {
    s.lead(A);
    s.write(A, X);
    s.system.revoke(A);
    s.run(HEARTBEATS_MS);
    s.lead(C, 2 * LONG_MS);
    s.read(C);
  }),

  /** c has made the file, and dies when b alone has what it wrote first. */
  'made, and dead': directed({ isMade: true }, (s) => {
    s.isolated.add(A);
    s.system.grant(C, LONG_MS);
    s.run(5);
    s.expect(s.write(C, X).answer?.kind === 'done', 'two of three commit');
    s.expect(s.role(C) === 'active', 'by the first acknowledgement c is the primary');
    s.isolated.clear();
    s.system.world.crash(C);
    s.lead(A, 2 * LONG_MS);
    s.expect(s.shown(A) === X.value, 'what was committed first is there');
  }),

  /** c bears the file, and nobody hears of it: it must not get its name. */
  'borne by itself': directed({ isBorne: true }, (s) => {
    s.isolated.add(C);
    s.system.bear(X, 70_000);
    s.run();
    s.system.world.crash(C);
    s.isolated.clear();
    s.lead(A);
    s.write(A, Y);
    s.read(A);
  }),

  /** c bears the file with b, and dies. */
  'borne, and dead': directed({ isBorne: true }, (s) => {
    s.isolated.add(A);
    s.system.bear(X, 70_000);
    s.run();
    s.expect(s.system.troubles.births.borne === 1, 'two of three have it');
    s.isolated.clear();
    s.system.world.crash(C);
    s.lead(A);
    s.expect(s.shown(A) === X.value, 'what was borne is there');
    s.write(A, Y);
    s.read(A);
  }),

  /** c bears the file with b, which loses its power, and all of it: c alone knows that there was something. */
  'borne, and gone with the power': directed({ isBorne: true }, (s) => {
    s.isolated.add(A);
    s.system.bear(X, 70_000);
    s.run();
    s.expect(s.system.troubles.births.borne === 1, 'two of three have it');
    s.system.world.crash(C);
    s.system.troubles.losePower([B], () => 0, true);
    s.expect(!s.system.disks.has(B), 'b has nothing left');
    s.isolated.clear();
    for (const server of [A, B]) s.system.grant(server, LONG_MS);
    s.run(2 * LONG_MS);
    s.expect(s.role(A) !== 'active' && s.role(B) !== 'active', 'what b says of itself is not enough');
    s.system.world.restart(C);
    s.lead(A);
    s.expect(s.shown(A) === X.value, 'what was borne is there');
  }),

  /** c bears the file with b, goes on by the same epoch without a lease, and dies when b alone has what it wrote. */
  'borne, and gone on with': directed({ isBorne: true, resumes: true }, (s) => {
    s.isolated.add(A);
    s.system.bear(X, 70_000);
    s.run();
    s.expect(s.write(C, Y).answer?.kind === 'done', 'two of three commit');
    s.expect(s.system.process(C).replica?.epoch.counter === 1, 'in the epoch of the birth');
    s.expect(s.role(C) === 'resumed', 'c does not lead');
    s.isolated.clear();
    s.system.world.crash(C);
    s.lead(A);
    s.expect(s.shown(A) === Y.value, 'what was written behind the birth is there');
  }),

  /** c leads, ends that in good order, and goes on; a has led with b meanwhile, which nobody has told c. */
  'ended, and led by another': directed({ resumes: true }, (s) => {
    s.system.leasesExclude = false;
    s.lead(C);
    s.write(C, X);
    s.system.world.call(C, () => s.system.process(C).stop());
    s.run(HEARTBEATS_MS);
    s.system.revoke(C);
    s.isolated.add(C);
    s.lead(A);
    s.expect(s.write(A, Y).answer?.kind === 'done', 'two of three commit');
    s.isolated.clear();
    s.expect(s.write(C, Z).answer?.kind !== 'done', 'a majority has promised more');
    s.system.revoke(A);
    s.lead(C, 2 * LONG_MS);
    s.read(C);
  }),

  /** c goes on by itself alone, and gives up; a leads with b. What c has ordered it must not take for committed, nor order something else there. */
  'gone on with alone': directed({ isBorne: true, resumes: true }, (s) => {
    s.system.bear(X, 70_000);
    s.run();
    s.isolated.add(C);
    const write = s.system.change(C, 91, Y);
    s.run(HEARTBEATS_MS);
    s.expect(write.answer?.kind === 'unknown', 'c has given it up');
    s.lead(A);
    s.expect(s.write(A, Z).answer?.kind === 'done', 'two of three commit');
    s.system.change(C, 91, Y);
    s.run(HEARTBEATS_MS);
    s.isolated.clear();
    s.read(A);
  }),

  /** c bears the file with b and goes on with a, which had nothing; a loses its power. What b has is not all. */
  'gone on with, and gone with the power': directed({ isBorne: true, resumes: true }, (s) => {
    s.isolated.add(A);
    s.system.bear(X, 70_000);
    s.run();
    s.isolated.clear();
    s.isolated.add(B);
    s.expect(s.write(C, Y).answer?.kind === 'done', 'two of three commit');
    s.system.world.crash(C);
    s.system.troubles.losePower([A], () => 0, true);
    s.isolated.clear();
    for (const server of [A, B]) s.system.grant(server, LONG_MS);
    s.run(2 * LONG_MS);
    s.expect(s.role(A) !== 'active' && s.role(B) !== 'active', 'what b has is not enough');
    s.system.world.restart(C);
    s.lead(B);
    s.expect(s.shown(B) === Y.value, 'what was written behind the birth is there');
  }),

  /** c bears the file and goes on with b, which loses its power, and the replica with it. */
  'gone on with, and the replica gone': directed({ isBorne: true, resumes: true }, (s) => {
    s.isolated.add(A);
    s.system.bear(X, 70_000);
    s.run();
    s.expect(s.write(C, Y).answer?.kind === 'done', 'two of three commit');
    s.system.troubles.losePower([B], () => 0, true);
    s.expect(!s.system.disks.has(B), 'b has nothing left');
    s.run(HEARTBEATS_MS);
    s.expect(s.write(C, Z).answer?.kind === 'done', 'b is given what there is');
    s.system.world.crash(C);
    s.isolated.clear();
    s.lead(A, 2 * LONG_MS);
    s.expect(s.shown(A) === Z.value, 'what b was given it has');
  }),

  /** c bears the file, and what it sends is late: a has led by then, and wrote with b. */
  'borne too late': directed({ isBorne: true }, (s) => {
    s.rule = (_from, _to, message) => (message === null ? 'hold' : null);
    s.system.bear(X, 70_000);
    s.run(2);
    s.isolated.add(C);
    s.lead(A);
    s.expect(s.write(A, Y).answer?.kind === 'done', 'two of three commit');
    s.isolated.clear();
    s.rule = (from, to) => ((from === A && to === C) || (from === C && to === A) ? 'drop' : null);
    s.expect(s.system.world.deliver() > 0, 'births were held back');
    s.run();
    s.rule = () => null;
    s.expect(s.shown(A) === Y.value, 'what was written first is there');
  }),

  /** c is asked twice by one number, for different contents. */
  'borne twice': directed({ isBorne: true }, (s) => {
    s.isolated.add(C);
    s.system.bear(X, 70_000);
    s.run();
    s.isolated.clear();
    s.system.bear(Y, 70_001);
    s.run();
    s.lead(A);
    s.write(A, Z);
    s.read(A);
  }),

  /** a wrote with b, and lost its disk; what c bears comes late. */
  'borne on another disk': directed({ isBorne: true }, (s) => {
    s.rule = (_from, _to, message) => (message === null ? 'hold' : null);
    s.system.bear(X, 70_000);
    s.run(2);
    s.isolated.add(C);
    s.lead(A);
    s.expect(s.write(A, Y).answer?.kind === 'done', 'two of three commit');
    s.system.troubles.wipe(A, 0);
    s.run(2);
    s.isolated.clear();
    s.isolated.add(B);
    s.rule = () => null;
    s.expect(s.system.world.deliver() > 0, 'births were held back');
    s.run();
    s.isolated.clear();
    s.lead(B);
    s.expect(s.shown(B) === Y.value, 'what was written first is there');
  }),

  /** A long tail that nobody else has, against a shorter one of a later epoch. */
  'long tail': directed({}, (s) => {
    s.lead(B);
    s.isolated.add(B);
    for (const value of ['tail 111', 'tail 222', 'tail 333']) s.write(B, { ...X, value });
    s.system.revoke(B);
    s.lead(A);
    s.write(A, Y);
    s.system.world.crash(A);
    s.isolated.clear();
    s.lead(B);
    s.read(B);
  }),

  /** Raft's figure 8: only the stamp tells the newer base from an old tail of the same length. */
  'old tail': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(A);
    s.write(A, X);
    s.system.revoke(A);
    s.lead(B);
    s.expect(s.write(B, Y).answer?.kind === 'done', 'two of three commit');
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
    s.system.revoke(A);
    s.isolated.clear();
    s.rule = (from, _to, message) => (from === A && message?.kind === 'install' ? 'drop' : null);
    s.system.grant(A, LONG_MS);
    s.run();
    s.read(A);
    s.system.world.crash(A);
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
    s.system.change(A, 91, X);
    s.write(A, { kind: 'write', object: 1, value: 'other!!!' });
    s.run(HEARTBEATS_MS);
    s.system.world.crash(A);
    s.isolated.clear();
    s.lead(B);
    s.read(B);
  }),

  /** Two and two servers, each half with a lease. */
  'two halves': directed({ servers: 4 }, (s) => {
    s.system.leasesExclude = false;
    s.rule = (from, to) => ((from === A || from === B) !== (to === A || to === B) ? 'drop' : null);
    s.system.grant(A, LONG_MS);
    s.system.grant(C, LONG_MS);
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
    s.system.world.crash(A);
    s.lead(B);
    s.read(B);
  }),

  /** b acknowledges, and dies before the operation is on its disk. */
  'early acknowledgement': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.system.diskDelayMs = (server, kind) => (server === B && kind === 'apply' ? 1_000 : 0.2);
    s.write(A, X);
    s.system.world.crash(A);
    s.restart(B);
    s.isolated.clear();
    s.lead(C);
    s.read(C);
  }),

  /** The answer is lost; the client asks the next primary, after somebody else wrote. */
  'retry elsewhere': directed({}, (s) => {
    s.lead(A);
    s.expect(s.write(A, X).answer?.kind === 'done', 'the first write commits');
    s.system.world.crash(A);
    s.lead(B);
    s.write(B, Y);
    const again = s.system.retry(B, 1, X);
    s.run();
    s.expect(again.answer?.kind === 'done' && again.answer.seq === 1, 'it is answered, not repeated');
    s.read(B);
  }),

  /** Applied everywhere and acknowledged nowhere when the lease ends. */
  'outcome unknown': directed({}, (s) => {
    s.lead(A);
    s.rule = (_from, _to, message) => (message?.kind === 'ack' ? 'drop' : null);
    s.write(A, X);
    s.system.revoke(A);
    s.rule = () => null;
    s.lead(C);
    s.read(C);
  }),

  /** a's lease ended, another was primary, and a has the lease again without having heard of it. */
  'lease lost and found': directed({}, (s) => {
    s.lead(A, 100);
    s.isolated.add(A);
    s.run(150);
    s.lead(B);
    s.write(B, Y);
    s.system.revoke(B);
    s.system.grant(A, LONG_MS);
    s.read(A);
  }),

  /** Two leases at once; a hears of b's epoch from c. */
  'refused primary': directed({}, (s) => {
    s.system.leasesExclude = false;
    s.lead(A);
    s.isolated.add(A);
    s.system.grant(A, 3 * LONG_MS);
    s.lead(B);
    s.isolated.clear();
    s.rule = (from, to) => ((from === A && to === B) || (from === B && to === A) ? 'drop' : null);
    s.write(B, Y);
    s.run(HEARTBEATS_MS);
    s.expect(s.role(A) !== 'active', 'a follows the larger epoch');
    s.read(A);
  }),

  /** A file cut in the middle of an object, and made longer again. */
  'cut and extended': directed({}, (s) => {
    s.lead(A);
    s.write(A, { kind: 'append', value: 'appended' });
    s.write(A, { kind: 'truncate', recordsBytes: 4 });
    s.write(A, { kind: 'truncate', recordsBytes: 16 });
    s.read(A, WHOLE_FILE);
    s.run(HEARTBEATS_MS);
    s.expect(s.system.hasConverged(), 'all replicas hold the same');
  }),

  /** a sleeps past the end of its lease, and a read is what wakes it. */
  'read after sleep': directed({}, (s) => {
    s.lead(A, 200);
    s.write(A, X);
    s.isolated.add(A);
    s.system.world.pause(A, 1_000);
    s.run(200);
    s.lead(B);
    s.write(B, Y);
    s.read(A);
    s.run(1_000);
  }),
};

export const campaign: Campaign = {
  scenarios: {
    ...ORDER_CASES,
    ...READ_CASES,
    ...DISK_CASES,
    ...ROT_CASES,
    ...SEAL_CASES,
    ...SNAPSHOT_CASES,
  },
  runSeed: (seed) => runSystem(seed).violation,
  seedsPlayed: 600,
};
