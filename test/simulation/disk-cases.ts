/** Directed runs: replicas whose disks lost something, and members that change. */
import type { ServerId } from '../../base/ids.ts';
import type { Campaign } from './planted.ts';
import { A, B, C, D, directed, E, HEARTBEATS_MS, LONG_MS, X, Y, Z } from './system-script.ts';

const ZERO_MS = () => 0;

export const DISK_CASES: Campaign['scenarios'] = {
  /** b acknowledged, and lost power before its disk had it for good. */
  'loss of power': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.expect(s.write(A, X).answer?.kind === 'done', 'two of three commit');
    s.system.world.crash(A);
    s.system.troubles.losePower([B], ZERO_MS, true);
    s.isolated.clear();
    for (const server of [B, C]) s.system.grant(server, LONG_MS);
    s.run(2 * LONG_MS);
    s.expect(s.role(B) !== 'active' && s.role(C) !== 'active', 'what b says of itself is not enough');
    s.system.world.restart(A);
    s.lead(B);
    s.read(B);
  }),

  /** All lose power at once. What was flushed is there, on two of them. */
  'loss of all power': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.write(A, X);
    const flush = s.system.flush(A);
    s.run();
    s.expect(flush.answer?.kind === 'flushed', 'two of three flush');
    s.write(A, Y);
    s.system.troubles.losePower([A, B, C], ZERO_MS, true);
    s.isolated.clear();
    s.isolated.add(A);
    s.run(10);
    s.lead(C);
    s.expect(s.shown(C) === 'xxxxxxxx', 'what was flushed is there');
  }),

  /** After the loss of power b has everything again, as its primary says, and may be counted on. */
  'trusted again': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.system.troubles.losePower([B], ZERO_MS);
    s.run(2 * HEARTBEATS_MS);
    s.expect(s.system.disks.get(B)?.trust === 'intact', 'b is brought up by its primary');
    s.system.world.crash(A);
    s.lead(B);
    s.expect(s.shown(B) === 'xxxxxxxx', 'nothing is lost');
  }),

  /** b acknowledged, and its disk was replaced by an empty one. */
  'empty disk': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.expect(s.write(A, X).answer?.kind === 'done', 'two of three commit');
    s.system.world.crash(A);
    s.system.troubles.wipe(B, 0);
    s.isolated.clear();
    s.run(10);
    for (const server of [B, C]) s.system.grant(server, LONG_MS);
    s.run(2 * LONG_MS);
    s.expect(s.role(B) !== 'active' && s.role(C) !== 'active', 'b has no say');
    s.system.world.restart(A);
    s.lead(C);
    s.expect(s.shown(C) === 'xxxxxxxx', 'nothing is lost');
  }),

  /** b's disk is empty; the primary brings it up, and then it counts. */
  'empty disk filled': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.system.troubles.wipe(B, 0);
    s.run(3 * HEARTBEATS_MS);
    s.system.world.crash(C);
    s.expect(s.write(A, Y).answer?.kind === 'done', 'b counts again');
    s.system.world.crash(A);
    s.system.world.restart(C);
    s.lead(B);
    s.expect(s.shown(B) === 'yyyyyyyy', 'b has it all');
  }),

  /** c moves the file to itself alone, and its disk is replaced before anybody knows. Then the others hear of it, and they have all of it. */
  'empty disk to come': directed({}, (s) => {
    s.lead(C);
    s.write(C, X);
    s.rule = (_from, _to, message) => (message?.kind === 'write' ? 'hold' : null);
    s.system.move(C, [C]);
    s.run(1);
    s.system.troubles.wipe(C, 0);
    s.rule = () => null;
    s.expect(s.system.world.deliver() === 2, 'a and b hear of the change from a process that is gone');
    s.run(2 * LONG_MS);
    s.lead(A);
    s.expect(s.shown(A) === 'xxxxxxxx', 'nothing is lost');
    s.system.grant(A, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(s.system.observers.view.joint === undefined, 'the change ends');
    s.run(LONG_MS);
    s.lead(C);
    s.expect(s.shown(C) === 'xxxxxxxx', 'c has it all');
  }),

  /** The same while another leads: it need not be asked anew who has what. */
  'empty disk to come, under its primary': directed({}, (s) => {
    s.lead(A);
    s.write(A, X);
    s.rule = (_from, to, message) => (message?.kind === 'write' && to === C ? 'drop' : null);
    const move = s.system.move(A, [C]);
    s.run(5);
    s.system.troubles.wipe(C, 0);
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.system.grant(A, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer?.kind === 'moved', 'the members have changed');
    s.lead(C);
    s.expect(s.shown(C) === 'xxxxxxxx', 'nothing is lost');
  }),

  /** Of two the other leads, and has everything. */
  'empty disk of two': directed({ servers: 2, replicas: 2 }, (s) => {
    s.lead(A);
    s.write(A, X);
    s.system.troubles.wipe(B, 0);
    s.run(3 * HEARTBEATS_MS);
    s.expect(s.write(A, Y).answer?.kind === 'done', 'b counts again');
    s.system.world.crash(A);
    s.run(LONG_MS);
    s.system.world.restart(A);
    s.lead(B);
    s.expect(s.shown(B) === 'yyyyyyyy', 'nothing is lost');
  }),

  /** While members change, a majority of the old ones is not enough. */
  'both majorities': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    s.rule = (_from, to, message) => (message?.kind === 'write' && (to === D || to === E) ? 'drop' : null);
    const move = s.system.move(A, [C, D, E]);
    s.run();
    const write = s.system.change(A, 91, X);
    s.run();
    s.expect(write.answer === null, 'a, b and c alone commit nothing');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.expect(write.answer?.kind === 'done', 'with d or e they do');
    s.system.grant(A, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer?.kind === 'moved', 'the members have changed');
    s.expect(s.role(A) !== 'active', 'a is no member, and leads no longer');
  }),

  /** While members change, a majority of the new ones is not enough either. */
  'both majorities, the other way': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    s.rule = (_from, to, message) => (message?.kind === 'write' && (to === B || to === C) ? 'drop' : null);
    s.system.move(A, [A, D, E]);
    s.run();
    const write = s.system.change(A, 91, X);
    s.run();
    s.expect(write.answer === null, 'a, d and e alone commit nothing');
    s.rule = () => null;
    s.run(HEARTBEATS_MS);
    s.expect(write.answer?.kind === 'done', 'with b or c they do');
  }),

  /** Only a lease that both sets have decided lets the old one go. */
  'lease of both': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    const move = s.system.move(A, [A, D, E]);
    s.run(HEARTBEATS_MS);
    s.system.grant(A, LONG_MS, 1);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer === null, 'the new ones may not know of the lease');
    s.system.grant(A, LONG_MS, 2);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer?.kind === 'moved', 'now they do');
    s.system.world.crash(B);
    s.system.world.crash(C);
    s.expect(s.write(A, X).answer?.kind === 'done', 'the old ones are not needed');
  }),

  /** The primary dies between the two steps of a change; the next one ends it. */
  'change that is inherited': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    s.write(A, X);
    s.system.move(A, [B, D, E]);
    s.run(HEARTBEATS_MS);
    s.system.world.crash(A);
    s.lead(B);
    s.system.grant(B, LONG_MS);
    s.run(HEARTBEATS_MS);
    const { view } = s.system.observers;
    s.expect(view.joint === undefined && view.members.includes(E), 'the members have changed');
    s.system.world.crash(C);
    s.expect(s.shown(B) === 'xxxxxxxx', 'nothing is lost');
    s.expect(s.write(B, Y).answer?.kind === 'done', 'the new ones commit');
  }),

  /** c heard nothing of the change, and asks those it knows of. */
  'old view': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    s.isolated.add(C);
    const move = s.system.move(A, [A, D, E]);
    s.run();
    s.system.grant(A, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer?.kind === 'moved', 'the members have changed');
    s.write(A, X);
    s.isolated.clear();
    s.isolated.add(A);
    s.system.grant(C, 3 * LONG_MS, 1);
    s.run(2 * LONG_MS);
    s.expect(s.role(C) !== 'active', 'b knows better');
    s.lead(D);
    s.expect(s.shown(D) === 'xxxxxxxx', 'nothing is lost');
    s.write(D, Z);
  }),

  /** All move to one server, where nobody asks for anything: the others want the lease no more, and it is there for d. */
  'moved to one': directed({ servers: 4, replicas: 3, leases: 'real' }, (s) => {
    const { world } = s.system;
    s.write(A, X);
    s.expect(
      world.runFor(3 * LONG_MS, () => s.system.primary() !== null),
      'somebody leads',
    );
    const primary = s.system.primary() ?? A;
    s.write(primary, Y);
    // The others would like to lead, too.
    for (const server of [A, B, C]) world.call(server, () => s.system.process(server).open());
    const move = s.system.move(primary, [D]);
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
      'd leads as soon as somebody asks',
    );
    s.expect(s.shown(D) === 'yyyyyyyy', 'nothing is lost');
    s.expect(s.system.hasConverged(), 'd knows all of it to be committed');
  }),

  /**
   * A primary ordered a change that nobody heard of. The others went on without it, to d alone. They are out, and still vote by the view before
   * the last: that is not the one that the first has, by which d is not needed.
   */
  'view that nobody heard of': directed({ servers: 4, replicas: 3, leases: 'real' }, (s) => {
    const { world } = s.system;
    const leads = (servers: readonly ServerId[]): ServerId => {
      for (const server of servers) world.call(server, () => s.system.process(server).open());
      const primary = () => servers.find((server) => s.role(server) === 'active');
      s.expect(
        world.runFor(4 * LONG_MS, () => primary() !== undefined),
        'somebody leads',
      );
      return primary() as ServerId;
    };
    const first = leads([A, B, C]);
    const others = [A, B, C].filter((server) => server !== first);
    s.rule = (_from, to, message) => (message?.kind === 'write' && to !== D ? 'drop' : null);
    s.system.move(first, [A, B, C, D]);
    s.run();
    world.crash(first);
    s.rule = () => null;
    s.isolated.add(first);
    const move = s.system.move(leads(others), [D]);
    s.expect(
      world.runFor(LONG_MS, () => move.answer?.kind === 'moved'),
      'the members have changed',
    );
    leads([D]);
    // The first hears nothing of the file, and nothing of d. The others hear it ask for votes.
    s.isolated.clear();
    s.rule = (from, to, message) => {
      const other = from === first ? to : to === first ? from : null;
      return other !== null && (message !== null || other === D) ? 'drop' : null;
    };
    world.restart(first);
    s.run(LONG_MS);
    for (const server of [first, D]) world.call(server, () => s.system.process(server).open());
    s.run(2 * LONG_MS);
    s.expect(s.role(D) === 'active', 'd leads on');
  }),

  /** a removed b and c, who lose power: that members changed is not forgotten with what was not synced. */
  'change after a loss of power': directed({ servers: 5, replicas: 3 }, (s) => {
    s.lead(A);
    const move = s.system.move(A, [A, D, E]);
    s.run();
    s.system.grant(A, LONG_MS);
    s.run(HEARTBEATS_MS);
    s.expect(move.answer?.kind === 'moved', 'the members have changed');
    s.write(A, X);
    s.system.troubles.losePower([B, C], ZERO_MS, true);
    s.isolated.add(A).add(D).add(E);
    s.run(10);
    s.system.grant(B, 3 * LONG_MS);
    s.system.grant(C, 3 * LONG_MS);
    s.run(2 * LONG_MS);
    s.expect(s.role(B) !== 'active' && s.role(C) !== 'active', 'both are out');
  }),
};
