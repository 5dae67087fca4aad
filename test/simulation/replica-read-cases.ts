/** Directed runs of a replica group: which replicas may answer reads, and for how long. */
import type { ServerId } from '../../base/ids.ts';
import { READ_WAIT_MS } from './replica-reads.ts';
import {
  A,
  B,
  C,
  type Cases,
  D,
  directed,
  E,
  HEARTBEATS_MS,
  LONG_MS,
  SHORT_MS,
  X,
  Y,
} from './replica-script.ts';

/** A read returns the newest committed value, or none; never an older one. */
export const READ_CASES: Cases = {
  /** b may answer reads, and is isolated: a write waits until it may not. */
  'silent reader': directed({}, (s) => {
    s.lead(A);
    s.read(B);
    s.expect(s.shown(B) !== null, 'b answers reads');
    s.isolated.add(B);
    const write = s.change(A, 91, X);
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
    s.change(A, 91, X);
    s.run(20);
    s.expect(s.shown(B) === null, 'b shows neither the old nor the new value');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b shows it once it is committed');
  }),

  /** b lacks an operation, and a client reads there. */
  'lagging reader': directed({}, (s) => {
    s.lead(A);
    s.rule = (from, to, message) => (from === A && to === B && message?.kind === 'write' ? 'drop' : null);
    s.commit(A, X);
    s.expect(s.shown(B) === null, 'b answers no reads');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.read(B);
    s.expect(s.shown(B) === 'xxxxxxxx', 'b answers reads when it has what it missed');
  }),

  /** Without a primary: two of three are at one position. */
  'agreed read': directed({ agrees: true }, (s) => {
    s.lead(A);
    s.commit(A, X);
    s.group.revoke(A);
    s.run(LONG_MS);
    const { counts } = s.group.observer;
    s.expect(s.shown(B) === X.value && counts.agreedReads === 1, 'b asks another replica');
    s.isolated.add(C);
    s.isolated.add(A);
    s.expect(s.shown(B) === null, 'b alone knows nothing');
  }),

  /** b, c and e have an operation that is not committed, because d may still answer reads without it. */
  'agreed with the guard': directed({ agrees: true, servers: 5 }, (s) => {
    s.lead(A);
    s.rule = (from, to, message) => {
      if (from === D && message === null) return 'drop';
      return to === D && message?.kind === 'write' ? 'drop' : null;
    };
    s.read(D);
    s.run(READ_WAIT_MS);
    s.expect(s.mayServe(D), 'd may answer reads');
    s.change(A, 91, X);
    s.run(20);
    const seen = s.shown(B);
    s.expect(s.shown(D) === null || seen !== X.value, 'd shows nothing that b has outdated');
  }),

  /** b acknowledged, and lost the operation with its power: it is at the position of c, which never had it. */
  'agreed and forgotten': directed({ agrees: true }, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.commit(A, X);
    s.crash(A);
    s.losePower(B);
    s.isolated.clear();
    s.run(2 * LONG_MS);
    s.expect(s.shown(B) === null && s.shown(C) === null, 'what b says of itself is not enough');
    s.start(A);
    s.lead(A);
    s.expect(s.shown(A) === X.value, 'what was committed is there');
  }),

  /** All but d of five lose power, and what they had not synced. d was isolated, and gets a later write that only a has. */
  'committed before the power went': directed({ servers: 5 }, (s) => {
    s.lead(A);
    s.commit(A, X);
    s.run(HEARTBEATS_MS);
    s.isolated.add(D);
    s.losePower(A, B, C, E);
    s.run(HEARTBEATS_MS);
    s.lead(A);
    s.expect(s.shown(A) !== X.value, 'what was not synced is lost');
    s.rule = (from, to, message) => (from === A && to !== D && message?.kind === 'write' ? 'drop' : null);
    s.change(A, 91, Y);
    s.isolated.clear();
    s.run(2 * HEARTBEATS_MS);
    s.read(D);
    s.run(READ_WAIT_MS);
    s.expect(s.mayServe(D), 'd may answer reads');
    s.expect(s.shown(D) === null, 'd shows nothing that two of five have');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.expect(s.shown(D) === Y.value, 'd shows it once it is committed');
  }),

  /** a orders an operation and stores it slowly; b and c have it, and keep no guard. Then a asks for the guard again. */
  'agreed before its primary': directed({ agrees: true }, (s) => {
    s.lead(A, SHORT_MS);
    s.rule = (from, _to, message) => (from === A && message?.kind === 'heartbeat' ? 'drop' : null);
    s.group.grant(A, LONG_MS);
    s.run(2 * SHORT_MS);
    s.expect(!s.mayServe(A), 'no replica keeps the guard');
    s.group.diskDelayMs = (server) => (server === A ? 200 : 0.2);
    s.change(A, 91, X);
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
   * throughout, and yet e may show what a, which stores slowly, does not have.
   */
  'agreed while the guard moves': directed({ agrees: true, servers: 5 }, (s) => {
    s.lead(A, SHORT_MS);
    // Neither d, which the guard binds throughout, nor a, which is primary, agrees.
    let guards: ServerId[] = [];
    let held: ServerId[] = [];
    s.rule = (from, to, message) => {
      if (from === A && message?.kind === 'heartbeat') return guards.includes(to) ? null : 'drop';
      return from === E && message === null && held.includes(to) ? 'hold' : null;
    };
    s.run(2 * SHORT_MS);
    guards = [B, D];
    s.group.grant(A, 3 * SHORT_MS);
    s.read(A);
    s.expect(s.mayServe(A), 'b and d keep the guard');
    s.group.diskDelayMs = (server) => (server === A ? 400 : 0.2);
    s.change(A, 91, X);
    s.run(10);
    guards = [];
    s.run(SHORT_MS);
    held = [B];
    const seen = s.ask(E);
    s.run(5);
    guards = [C, D];
    s.group.grant(A, LONG_MS);
    s.run(2 * SHORT_MS - 15);
    s.expect(s.deliver() === 1, 'b gets the question when its guard has ended');
    s.run(5);
    s.expect(seen.answer?.kind === 'value' && seen.answer.value === X.value, 'e, c and b agree');
    s.expect(s.mayServe(A) === false, 'a answers no reads before it has stored it');
    s.run(400);
    s.expect(s.shown(A) === X.value, 'a shows it once it has it');
  }),

  /** The same of three: the guard moves from c to b and back while b asks c. */
  'agreed while the guard moves twice': directed({ agrees: true, leaseMs: 100 }, (s) => {
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
      s.group.grant(A, durationMs);
      s.ask(A);
      s.run(15);
      s.expect(s.guardMs(A) > 0, `${to} keeps the guard`);
      guards = [];
    };
    moveGuard(C, 50);
    s.group.diskDelayMs = (server) => (server === A ? 400 : 0.2);
    s.change(A, 91, X);
    s.run(10);
    held = [B, C];
    const seen = s.ask(B);
    moveGuard(B, 45);
    s.run(15);
    held = [C, B];
    s.expect(s.deliver() === 1, 'c gets the question when its guard has ended');
    s.run(5);
    moveGuard(C, LONG_MS);
    s.run(15);
    s.expect(s.deliver() === 1, 'b gets the answer when its guard has ended');
    s.run(5);
    s.expect(seen.answer?.kind === 'value' && seen.answer.value === X.value, 'b and c agree');
    s.expect(s.mayServe(A) === false, 'a answers no reads before it has stored it');
    s.rule = () => null;
    s.run(800);
    s.expect(s.shown(A) === X.value, 'a shows it once it has it');
  }),

  /** The grant arrives when the primary counts it as over. */
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
    s.expect(s.deliver() > 0, 'a grant was held back');
    s.isolated.add(B);
    s.run(5);
    s.commit(A, X);
    s.expect(s.shown(B) === null, 'b answers no reads');
  }),

  /** b pauses past the end of its read lease, and a read is the first event after that. */
  'reader after a pause': directed({}, (s) => {
    s.lead(A);
    s.read(B);
    s.expect(s.shown(B) !== null, 'b answers reads');
    s.group.world.pause(B, 400);
    s.ask(B);
    s.run(300);
    s.commit(A, X);
    s.run(200);
  }),

  /** Nothing passes between a and b and three others, which have a primary of their own as soon as they may. */
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

  /** A renewal of the lease that no replica knows does not lengthen their promises. */
  'guard at a primary': directed({}, (s) => {
    s.lead(A, 200);
    s.write(A, X);
    s.isolated.add(A);
    s.group.grant(A, 3 * LONG_MS);
    s.lead(B);
    s.write(B, Y);
    s.expect(s.role(A) === 'active', 'a does not know it yet');
    s.expect(s.shown(A) === null, 'a does not answer reads');
  }),

  /** Clocks are wrong: b has the lease while a has it, and asks c, which has answered a's heartbeats. */
  'guard at a replica': directed({}, (s) => {
    s.isolated.add(B);
    s.lead(A);
    s.write(A, X);
    s.isolated.clear();
    s.isolated.add(A);
    s.group.grant(B, LONG_MS);
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
    s.group.grant(B, LONG_MS);
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
    s.open(C);
    s.group.grant(C, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(s.shown(A) === 'xxxxxxxx', 'a answers reads');
    s.expect(s.role(C) !== 'active', 'b promises c nothing yet');
    s.lead(C);
  }),

  /** c is primary after a's orderly end, which a's reader b does not know. */
  'orderly end': directed({}, (s) => {
    s.lead(A);
    s.read(B);
    s.expect(s.shown(B) !== null, 'b answers reads');
    s.rule = (_from, to, message) => (to === B && message?.kind === 'read-revoke' ? 'drop' : null);
    s.stop(A);
    s.run();
    s.expect(s.role(A) === 'stopping', 'a waits for b');
    s.run(HEARTBEATS_MS);
    s.expect(s.role(A) === 'backup', 'a waits no longer than a read lease lasts');
    s.isolated.add(B);
    s.group.grant(C, LONG_MS);
    s.run(50);
    s.expect(s.role(C) === 'active', 'the guard of a primary that stopped has ended');
    s.write(C, Y);
    s.read(B);
  }),

  /** b may answer reads, leaves and joins again within one epoch: no message revoked its read lease. */
  'reader that leaves': directed({ servers: 4 }, (s) => {
    s.lead(A);
    s.read(B);
    s.expect(s.shown(B) !== null, 'b answers reads');
    s.move(A, [A, C, D]);
    s.run();
    s.group.grant(A, LONG_MS);
    s.run();
    s.rule = (from, to, message) => (from === A && to === B && message?.kind === 'write' ? 'drop' : null);
    s.move(A, [A, B, C, D]);
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
    s.group.revoke(A);
    s.isolated.add(E);
    s.lead(A);
    s.commit(A, X);
    s.read(E);
    s.read(D);
  }),
};
