/** Directed runs of a replica group: disks that lose something, and changes of members. */
import type { ServerId } from '../../base/ids.ts';
import { A, B, C, type Cases, D, directed, E, HEARTBEATS_MS, LONG_MS, X, Y, Z } from './replica-script.ts';

export const DISK_CASES: Cases = {
  /** b acknowledged, and lost power before it synced. */
  'loss of power': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.commit(A, X);
    s.crash(A);
    s.losePower(B);
    s.isolated.clear();
    for (const server of [B, C]) s.group.grant(server, LONG_MS);
    s.run(2 * LONG_MS);
    s.expect(s.role(B) !== 'active' && s.role(C) !== 'active', 'the position of b does not count');
    s.start(A);
    s.lead(B);
    s.read(B);
  }),

  /** All lose power at once. What was flushed survives on two of them. */
  'loss of all power': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.write(A, X);
    const flush = s.flush(A);
    s.run();
    s.expect(flush.answer?.kind === 'flushed', 'two of three flush');
    s.write(A, Y);
    s.losePower(A, B, C);
    s.isolated.clear();
    s.isolated.add(A);
    s.run(10);
    s.lead(C);
    s.expect(s.shown(C) === 'xxxxxxxx', 'what was flushed is there');
  }),

  /** a alone has synced the write when all lose power: the flush must not be answered. */
  'flush of a minority': directed({}, (s) => {
    s.lead(A);
    s.commit(A, X);
    s.rule = (_from, _to, message) => (message?.kind === 'flush' ? 'drop' : null);
    const flush = s.flush(A);
    s.run(HEARTBEATS_MS);
    s.expect(flush.answer === null, 'the flush waits for b or c');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.expect(flush.answer?.kind === 'flushed', 'b and c flush');
  }),

  /** A primary may continue under a mark of the epoch before, unless all lost power since. */
  'epoch after a loss of all power': directed({}, (s) => {
    const inheritedAt = (server: ServerId) => s.group.server(server).replica?.inheritedFrom?.counter ?? null;
    s.lead(A);
    s.commit(A, X);
    const first = s.group.server(A).replica?.epoch.counter;
    s.crash(A);
    s.lead(B);
    s.expect(inheritedAt(B) === first, 'b begins with all that a ordered');
    s.start(A);
    s.run(2 * LONG_MS);
    s.losePower(A, B, C);
    s.run(10);
    s.lead(C);
    s.expect(inheritedAt(C) === null, 'c does not know all that b ordered');
  }),

  /** After the loss of power b gets everything from its primary, and counts again. */
  'trusted again': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.losePower(B);
    s.run(2 * HEARTBEATS_MS);
    s.expect(s.group.disks.get(B)?.trust === 'intact', 'b is current again');
    s.crash(A);
    s.lead(B);
    s.expect(s.shown(B) === 'xxxxxxxx', 'nothing is lost');
  }),

  /** b acknowledged, and its disk was replaced by an empty one. */
  'empty disk': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.commit(A, X);
    s.crash(A);
    s.group.faults.wipe(B, 0);
    s.isolated.clear();
    s.run(10);
    for (const server of [B, C]) s.group.grant(server, LONG_MS);
    s.run(2 * LONG_MS);
    s.expect(s.role(B) !== 'active' && s.role(C) !== 'active', 'b has no say');
    s.start(A);
    s.lead(C);
    s.expect(s.shown(C) === 'xxxxxxxx', 'nothing is lost');
  }),

  /** b's disk is empty; the primary fills it, and b counts again. */
  'empty disk filled': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.group.faults.wipe(B, 0);
    s.run(3 * HEARTBEATS_MS);
    s.crash(C);
    s.commit(A, Y);
    s.crash(A);
    s.start(C);
    s.lead(B);
    s.expect(s.shown(B) === 'yyyyyyyy', 'b has it all');
  }),

  /**
   * c moves the file to itself alone, and its disk is replaced before the others know. Then they learn of the change,
   * and they have all operations.
   */
  'empty disk to come': directed({}, (s) => {
    s.lead(C);
    s.write(C, X);
    s.rule = (_from, _to, message) => (message?.kind === 'write' ? 'hold' : null);
    s.move(C, [C]);
    s.run(1);
    s.group.faults.wipe(C, 0);
    s.rule = () => null;
    s.expect(s.deliver() === 2, 'a and b learn of the change from a process that has ended');
    s.run(2 * LONG_MS);
    s.lead(A);
    s.expect(s.shown(A) === 'xxxxxxxx', 'nothing is lost');
    s.group.grant(A, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(s.group.observer.view.joint === undefined, 'the change ends');
    s.run(LONG_MS);
    s.lead(C);
    s.expect(s.shown(C) === 'xxxxxxxx', 'c has it all');
  }),

  /** The same under another primary, without a reset. */
  'empty disk to come, under its primary': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.rule = (_from, to, message) => (message?.kind === 'write' && to === C ? 'drop' : null);
    const move = s.move(A, [C]);
    s.run(5);
    s.group.faults.wipe(C, 0);
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.group.grant(A, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer?.kind === 'moved', 'the members have changed');
    s.lead(C);
    s.expect(s.shown(C) === 'xxxxxxxx', 'nothing is lost');
  }),

  /** One of two; the other is primary, and has everything. */
  'empty disk of two': directed({ servers: 2, replicas: 2 }, (s) => {
    s.lead(A);
    s.write(A, X);
    s.group.faults.wipe(B, 0);
    s.run(3 * HEARTBEATS_MS);
    s.commit(A, Y);
    s.crash(A);
    s.run(LONG_MS);
    s.start(A);
    s.lead(B);
    s.expect(s.shown(B) === 'yyyyyyyy', 'nothing is lost');
  }),

  /** While members change, a majority of the old ones is not enough. */
  'both majorities': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    s.rule = (_from, to, message) => (message?.kind === 'write' && (to === D || to === E) ? 'drop' : null);
    const move = s.move(A, [C, D, E]);
    s.run();
    const write = s.change(A, 91, X);
    s.run();
    s.expect(write.answer === null, 'a, b and c alone commit nothing');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.expect(write.answer?.kind === 'done', 'with d or e they do');
    s.group.grant(A, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer?.kind === 'moved', 'the members have changed');
    s.expect(s.role(A) !== 'active', 'a is neither member nor primary');
  }),

  /** While members change, a majority of the new ones is not enough. */
  'both majorities, the other way': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    s.rule = (_from, to, message) => (message?.kind === 'write' && (to === B || to === C) ? 'drop' : null);
    s.move(A, [A, D, E]);
    s.run();
    const write = s.change(A, 91, X);
    s.run();
    s.expect(write.answer === null, 'a, d and e alone commit nothing');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.expect(write.answer?.kind === 'done', 'with b or c they do');
  }),

  /** The change ends once both member sets have decided the lease. */
  'lease of both': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    const move = s.move(A, [A, D, E]);
    s.run(HEARTBEATS_MS);
    s.group.grant(A, LONG_MS, 1);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer === null, 'the new ones may not know the lease');
    s.group.grant(A, LONG_MS, 2);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer?.kind === 'moved', 'now they do');
    s.crash(B);
    s.crash(C);
    s.commit(A, X);
  }),

  /** The primary crashes between the two steps of a change; the next one completes it. */
  'change that is inherited': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    s.write(A, X);
    s.move(A, [B, D, E]);
    s.run(HEARTBEATS_MS);
    s.crash(A);
    s.lead(B);
    s.group.grant(B, LONG_MS);
    s.run(HEARTBEATS_MS);
    const { view } = s.group.observer;
    s.expect(view.joint === undefined && view.members.includes(E), 'the members have changed');
    s.crash(C);
    s.expect(s.shown(B) === 'xxxxxxxx', 'nothing is lost');
    s.commit(B, Y);
  }),

  /** c does not know the change, and asks the former members. */
  'old view': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    s.isolated.add(C);
    const move = s.move(A, [A, D, E]);
    s.run();
    s.group.grant(A, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer?.kind === 'moved', 'the members have changed');
    s.write(A, X);
    s.isolated.clear();
    s.isolated.add(A);
    s.group.grant(C, 3 * LONG_MS, 1);
    s.run(2 * LONG_MS);
    s.expect(s.role(C) !== 'active', 'b knows better');
    s.lead(D);
    s.expect(s.shown(D) === 'xxxxxxxx', 'nothing is lost');
    s.write(D, Z);
  }),

  /** All move to one server, where no client asks for anything: the others ask for the lease no more, and d gets it. */
  'moved to one': directed({ servers: 4, replicas: 3, leases: 'real' }, (s) => {
    const { world } = s.group;
    s.write(A, X);
    s.expect(
      world.runFor(3 * LONG_MS, () => s.group.primary() !== null),
      'there is a primary',
    );
    const primary = s.group.primary() ?? A;
    s.write(primary, Y);
    // The others ask for the lease, too.
    s.open(A, B, C);
    const move = s.move(primary, [D]);
    s.expect(
      world.runFor(LONG_MS, () => move.answer !== null),
      'the change comes to an end',
    );
    s.expect(move.answer?.kind === 'moved', 'the members have changed');
    s.run(LONG_MS);
    s.rule = (from, _to, message) => {
      s.expect(message !== null || from === D, `${from} is out, and asks for no lease`);
      return null;
    };
    s.run(LONG_MS);
    s.rule = () => null;
    s.read(D);
    s.expect(
      world.runFor(LONG_MS, () => s.role(D) === 'active'),
      'd is primary as soon as a client asks',
    );
    s.expect(s.shown(D) === 'yyyyyyyy', 'nothing is lost');
    s.expect(s.group.hasConverged(), 'd knows all of it to be committed');
  }),

  /**
   * A primary ordered a change of members that reached no other server. The others continued without it, to d alone. They
   * are out, and still vote by the view before the last: that is another one than the first server has, which excludes d.
   */
  'view that reached no other server': directed({ servers: 4, replicas: 3, leases: 'real' }, (s) => {
    const { world } = s.group;
    const becomesPrimary = (servers: readonly ServerId[]): ServerId => {
      s.open(...servers);
      const primary = () => servers.find((server) => s.role(server) === 'active');
      s.expect(
        world.runFor(4 * LONG_MS, () => primary() !== undefined),
        'there is a primary',
      );
      return primary() as ServerId;
    };
    const first = becomesPrimary([A, B, C]);
    const others = [A, B, C].filter((server) => server !== first);
    s.rule = (_from, to, message) => (message?.kind === 'write' && to !== D ? 'drop' : null);
    s.move(first, [A, B, C, D]);
    s.run();
    world.crash(first);
    s.rule = () => null;
    s.isolated.add(first);
    const move = s.move(becomesPrimary(others), [D]);
    s.expect(
      world.runFor(LONG_MS, () => move.answer?.kind === 'moved'),
      'the members have changed',
    );
    becomesPrimary([D]);
    // No message of the file, and none of d, reaches the first. Its requests for votes reach the others.
    s.isolated.clear();
    s.rule = (from, to, message) => {
      const other = from === first ? to : to === first ? from : null;
      return other !== null && (message !== null || other === D) ? 'drop' : null;
    };
    world.restart(first);
    s.run(LONG_MS);
    s.open(first, D);
    s.run(2 * LONG_MS);
    s.expect(s.role(D) === 'active', 'd is still primary');
  }),

  /** a removed b and c, which lose power: the change of members is synced, and survives. */
  'change after a loss of power': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    const move = s.move(A, [A, D, E]);
    s.run();
    s.group.grant(A, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer?.kind === 'moved', 'the members have changed');
    s.write(A, X);
    s.losePower(B, C);
    s.isolated.add(A).add(D).add(E);
    s.run(10);
    s.group.grant(B, 3 * LONG_MS);
    s.group.grant(C, 3 * LONG_MS);
    s.run(2 * LONG_MS);
    s.expect(s.role(B) !== 'active' && s.role(C) !== 'active', 'both are out');
  }),
};
