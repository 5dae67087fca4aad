/** Directed runs: who may show clients what is committed, and for how long. */
import type { ServerId } from '../../base/ids.ts';
import type { Campaign } from './planted.ts';
import { READ_WAIT_MS } from './system-reads.ts';
import { A, B, C, D, directed, E, HEARTBEATS_MS, LONG_MS, SHORT_MS, X, Y } from './system-script.ts';

/** Reads in all of these find the object as it was, or as it is now, or nothing: never what is over. */
export const READ_CASES: Campaign['scenarios'] = {
  /** b may answer reads, and is cut off: a write waits for the end of that. */
  'silent reader': directed({}, (s) => {
    s.lead(A);
    s.read(B);
    s.expect(s.shown(B) !== null, 'b answers reads');
    s.isolated.add(B);
    const write = s.system.change(A, 91, X);
    s.run(100);
    s.expect(write.answer === null, 'the write waits for b');
    s.expect(s.shown(B) !== null, 'b answers reads still');
    s.run(200);
    s.expect(write.answer?.kind === 'done', 'the write waits no longer than a read lease lasts');
    s.expect(s.shown(B) === null, 'b answers no more reads');
    s.expect(s.shown(A) === 'xxxxxxxx', 'a does');
  }),

  /** b has an operation that it does not know to be committed, and may answer reads. */
  'dirty object': directed({}, (s) => {
    s.lead(A);
    s.read(B);
    s.isolated.add(C);
    s.rule = (from, _to, message) =>
      from === B && (message?.kind === 'ack' || message?.kind === 'heartbeat-ack') ? 'drop' : null;
    s.system.change(A, 91, X);
    s.run(20);
    s.expect(s.shown(B) === null, 'b shows neither the old nor the new');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b shows it once it is committed');
  }),

  /** b misses an operation, and would like to answer reads. */
  'lagging reader': directed({}, (s) => {
    s.lead(A);
    s.rule = (from, to, message) => (from === A && to === B && message?.kind === 'write' ? 'drop' : null);
    s.expect(s.write(A, X).answer?.kind === 'done', 'two of three commit');
    s.expect(s.shown(B) === null, 'b answers no reads');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.read(B);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b answers reads when it has what it missed');
  }),

  /** Nobody leads, and nobody is needed to: two of three stand where they stand. */
  'agreed reader': directed({ agrees: true }, (s) => {
    s.lead(A);
    s.expect(s.write(A, X).answer?.kind === 'done', 'it commits');
    s.system.revoke(A);
    s.run(LONG_MS);
    const { counts } = s.system.troubles;
    s.expect(s.shown(B) === X.value && counts.agreedReads === 1, 'b asks one more');
    s.isolated.add(C);
    s.isolated.add(A);
    s.expect(s.shown(B) === null, 'b alone knows nothing');
  }),

  /** b, c and e have an operation that is not committed, for d may still answer reads without it. */
  'agreed with the guard': directed({ agrees: true, servers: 5 }, (s) => {
    s.lead(A);
    s.rule = (from, to, message) => {
      if (from === D && message === null) return 'drop';
      return to === D && message?.kind === 'write' ? 'drop' : null;
    };
    s.read(D);
    s.run(READ_WAIT_MS);
    s.expect(s.system.process(D).reads.mayServe(), 'd may answer reads');
    s.system.change(A, 91, X);
    s.run(20);
    const seen = s.shown(B);
    s.expect(s.shown(D) === null || seen !== X.value, 'd shows nothing that b has outdated');
  }),

  /** b acknowledged, and lost power with it: it stands where c stands, which never had it. */
  'agreed and forgotten': directed({ agrees: true }, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.expect(s.write(A, X).answer?.kind === 'done', 'two of three commit');
    s.system.world.crash(A);
    s.system.troubles.losePower([B], () => 0, true);
    s.isolated.clear();
    s.run(2 * LONG_MS);
    s.expect(s.shown(B) === null && s.shown(C) === null, 'what b says of itself is not enough');
    s.system.world.restart(A);
    s.lead(A);
    s.expect(s.shown(A) === X.value, 'what was committed is there');
  }),

  /** Five servers; all but d lose power, and what they had not synced. d, which slept, takes over what only a has of what came after that. */
  'committed before the power went': directed({ servers: 5 }, (s) => {
    s.lead(A);
    s.expect(s.write(A, X).answer?.kind === 'done', 'all commit');
    s.run(HEARTBEATS_MS);
    s.isolated.add(D);
    s.system.troubles.losePower([A, B, C, E], () => 0, true);
    s.run(HEARTBEATS_MS);
    s.lead(A);
    s.expect(s.shown(A) !== X.value, 'what was not synced is gone');
    s.rule = (from, to, message) => (from === A && to !== D && message?.kind === 'write' ? 'drop' : null);
    s.system.change(A, 91, Y);
    s.isolated.clear();
    s.run(2 * HEARTBEATS_MS);
    s.read(D);
    s.run(READ_WAIT_MS);
    s.expect(s.system.process(D).reads.mayServe(), 'd may answer reads');
    s.expect(s.shown(D) === null, 'd shows nothing that two of five have');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.expect(s.shown(D) === Y.value, 'd shows it once it is committed');
  }),

  /** b and c have an operation that a, which ordered it and is slow to store it, has not, and nobody keeps the guard: then a asks for it again. */
  'agreed before its primary': directed({ agrees: true }, (s) => {
    s.lead(A, SHORT_MS);
    s.rule = (from, _to, message) => (from === A && message?.kind === 'heartbeat' ? 'drop' : null);
    s.system.grant(A, LONG_MS);
    s.run(2 * SHORT_MS);
    s.expect(!s.system.process(A).reads.mayServe(), 'nobody keeps the guard');
    s.system.diskDelayMs = (server) => (server === A ? 200 : 0.2);
    s.system.change(A, 91, X);
    s.run(10);
    s.expect(s.shown(B) === X.value, 'b and c agree');
    s.rule = () => null;
    s.read(A);
    const seen = s.shown(A);
    s.expect(seen === null || seen === X.value, 'a shows nothing that b has outdated');
    s.run(200);
    s.expect(s.shown(A) === X.value, 'a shows it once it has it');
  }),

  /**
   * Five replicas. c agrees, then its guard begins; b's guard lapses, then b agrees. A majority keeps a's guard
   * throughout, and yet e may show what a, which is slow to store, does not have.
   */
  'agreed while the guard moves': directed({ agrees: true, servers: 5 }, (s) => {
    const { system } = s;
    s.lead(A, SHORT_MS);
    // Neither d, which is bound by the guard throughout, nor a, which is primary, agrees.
    let guards: ServerId[] = [];
    let held: ServerId[] = [];
    s.rule = (from, to, message) => {
      if (from === A && message?.kind === 'heartbeat') return guards.includes(to) ? null : 'drop';
      return from === E && message === null && held.includes(to) ? 'hold' : null;
    };
    s.run(2 * SHORT_MS);
    guards = [B, D];
    system.grant(A, 3 * SHORT_MS);
    s.read(A);
    s.expect(system.process(A).reads.mayServe(), 'b and d keep the guard');
    system.diskDelayMs = (server) => (server === A ? 400 : 0.2);
    system.change(A, 91, X);
    s.run(10);
    guards = [];
    s.run(SHORT_MS);
    held = [B];
    const seen = system.read(E, '0');
    s.run(5);
    guards = [C, D];
    system.grant(A, LONG_MS);
    s.run(2 * SHORT_MS - 15);
    s.expect(system.world.deliver() === 1, 'b is asked once it is bound no more');
    s.run(5);
    s.expect(seen.answer?.kind === 'value' && seen.answer.value === X.value, 'e, c and b agree');
    s.expect(system.process(A).reads.mayServe() === false, 'a answers no reads before it has stored it');
    s.run(400);
    s.expect(s.shown(A) === X.value, 'a shows it once it has it');
  }),

  /** The same of three: the guard moves from c to b and back while b asks c. */
  'agreed while the guard moves twice': directed({ agrees: true, leaseMs: 100 }, (s) => {
    const { system } = s;
    let guards: ServerId[] = [];
    let held: [ServerId, ServerId] | null = null;
    s.lead(A, SHORT_MS);
    s.rule = (from, to, message) => {
      if (from === A && message?.kind === 'heartbeat') return guards.includes(to) ? null : 'drop';
      return message === null && held?.[0] === from && held[1] === to ? 'hold' : null;
    };
    s.run(2 * SHORT_MS);
    const moveGuard = (to: ServerId, durationMs: number) => {
      guards = [to];
      system.grant(A, durationMs);
      system.read(A, '0');
      s.run(15);
      s.expect(s.guardMs(A) > 0, `${to} keeps the guard`);
      guards = [];
    };
    moveGuard(C, 50);
    system.diskDelayMs = (server) => (server === A ? 400 : 0.2);
    system.change(A, 91, X);
    s.run(10);
    held = [B, C];
    const seen = system.read(B, '0');
    moveGuard(B, 45);
    s.run(15);
    held = [C, B];
    s.expect(system.world.deliver() === 1, 'c is asked once it is bound no more');
    s.run(5);
    moveGuard(C, LONG_MS);
    s.run(15);
    s.expect(system.world.deliver() === 1, 'b has the answer once it is bound no more');
    s.run(5);
    s.expect(seen.answer?.kind === 'value' && seen.answer.value === X.value, 'b and c agree');
    s.expect(system.process(A).reads.mayServe() === false, 'a answers no reads before it has stored it');
    s.rule = () => null;
    s.run(800);
    s.expect(s.shown(A) === X.value, 'a shows it once it has it');
  }),

  /** The grant comes when the primary counts on its being over. */
  'late grant': directed({}, (s) => {
    s.lead(A);
    let asked = false;
    s.rule = (from, to, message) => {
      if (to === B && message?.kind === 'read-grant') return 'hold';
      if (from !== B || message?.kind !== 'read-request') return null;
      // Once is enough: each grant lets a wait.
      const again = asked;
      asked = true;
      return again ? 'drop' : null;
    };
    s.read(B);
    s.run(165);
    s.expect(s.system.world.deliver() > 0, 'a grant was held back');
    s.isolated.add(B);
    s.run(5);
    s.expect(s.write(A, X).answer?.kind === 'done', 'nobody may answer reads but a');
    s.expect(s.shown(B) === null, 'b answers no reads');
  }),

  /** b sleeps past the end of its read lease, and a read is what wakes it. */
  'reader after sleep': directed({}, (s) => {
    s.lead(A);
    s.read(B);
    s.expect(s.shown(B) !== null, 'b answers reads');
    s.system.world.pause(B, 400);
    s.system.read(B, '0');
    s.run(300);
    s.expect(s.write(A, X).answer?.kind === 'done', 'the read lease is over');
    s.run(200);
  }),

  /** a and b are cut off from three others, who have a primary of their own as soon as they may. */
  'read lease at the end': directed({ servers: 5, readLeaseMs: 1_500 }, (s) => {
    s.lead(A, 500);
    s.read(B);
    s.expect(s.shown(B) !== null, 'b answers reads');
    s.rule = (from, to) => ((from === A || from === B) !== (to === A || to === B) ? 'drop' : null);
    s.lead(C);
    s.write(C, Y);
    s.read(B);
    s.read(A);
  }),

  /** A renewal of the lease that no replica has heard of does not lengthen what they promised. */
  'guard at a primary': directed({}, (s) => {
    s.lead(A, 200);
    s.write(A, X);
    s.isolated.add(A);
    s.system.grant(A, 3 * LONG_MS);
    s.lead(B);
    s.write(B, Y);
    s.expect(s.role(A) === 'active', 'a has not heard of it yet');
    s.expect(s.shown(A) === null, 'a does not answer reads');
  }),

  /** Clocks are wrong: b has the lease while a has it, and asks c, who has answered a's heartbeats. */
  'guard at a replica': directed({}, (s) => {
    s.isolated.add(B);
    s.lead(A);
    s.write(A, X);
    s.isolated.clear();
    s.isolated.add(A);
    s.system.grant(B, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(s.shown(A) === 'xxxxxxxx', 'a answers reads');
    s.expect(s.role(B) !== 'active', 'c promises b nothing yet');
    s.lead(B);
  }),

  /** b has answered a's heartbeats, and c has not: both of them would be a majority. */
  'guard at a candidate': directed({}, (s) => {
    s.isolated.add(C);
    s.lead(A);
    s.write(A, X);
    s.isolated.clear();
    s.isolated.add(A);
    s.system.grant(B, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(s.shown(A) === 'xxxxxxxx', 'a answers reads');
    s.expect(s.role(B) !== 'active', 'b waits for its own guard');
    s.lead(B);
  }),

  /** b has answered a's heartbeats in an earlier life. */
  'guard after a start': directed({ startGuardMs: 1.01 * LONG_MS }, (s) => {
    s.isolated.add(C);
    s.lead(A);
    s.write(A, X);
    s.isolated.clear();
    s.isolated.add(A);
    s.restart(B);
    s.restart(C);
    s.system.process(C).open();
    s.system.grant(C, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(s.shown(A) === 'xxxxxxxx', 'a answers reads');
    s.expect(s.role(C) !== 'active', 'b promises c nothing yet');
    s.lead(C);
  }),

  /** c is primary after a's orderly end, while a's reader b has not heard of it. */
  'orderly end': directed({}, (s) => {
    s.lead(A);
    s.read(B);
    s.expect(s.shown(B) !== null, 'b answers reads');
    s.rule = (_from, to, message) => (to === B && message?.kind === 'read-revoke' ? 'drop' : null);
    s.system.world.call(A, () => s.system.process(A).stop());
    s.run();
    s.expect(s.role(A) === 'stopping', 'a waits for b');
    s.run(HEARTBEATS_MS);
    s.expect(s.role(A) === 'backup', 'a waits no longer than a read lease lasts');
    s.isolated.add(B);
    s.system.grant(C, LONG_MS);
    s.run(50);
    s.expect(s.role(C) === 'active', 'nobody waits for the guard of a primary that stopped');
    s.write(C, Y);
    s.read(B);
  }),

  /** b may answer reads, leaves and comes back within one epoch: it was never asked to stop. */
  'reader that leaves': directed({ servers: 4 }, (s) => {
    s.lead(A);
    s.read(B);
    s.expect(s.shown(B) !== null, 'b answers reads');
    s.system.move(A, [A, C, D]);
    s.run();
    s.system.grant(A, LONG_MS);
    s.run();
    s.rule = (from, to, message) => (from === A && to === B && message?.kind === 'write' ? 'drop' : null);
    s.system.move(A, [A, B, C, D]);
    s.run(20);
    s.write(A, X);
    s.read(B);
    s.run(HEARTBEATS_MS);
  }),

  /** Five servers; a's reader e is not in the majority that promises b. */
  'reader of an old epoch': directed({ servers: 5 }, (s) => {
    s.lead(A);
    s.read(E);
    s.expect(s.shown(E) !== null, 'e answers reads');
    s.system.revoke(A);
    s.isolated.add(E);
    s.lead(A);
    s.expect(s.write(A, X).answer?.kind === 'done', 'the write commits');
    s.read(E);
    s.read(D);
  }),
};
