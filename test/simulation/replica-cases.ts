/**
 * Directed runs of a replica group that depend on the primary or on each message; all others are scripts
 * (`replica-script.ts`).
 */
import type { ServerId } from '../../base/ids.ts';
import { directed, LONG_MS, REPLICA_SCRIPTS, type Script } from './replica-script.ts';
import type { Cases } from './script-cases.ts';

const [A, B, C, D] = ['a', 'b', 'c', 'd'] as unknown as readonly [ServerId, ServerId, ServerId, ServerId];
const X = { key: '0', value: 'xxxxxxxx' };
const Y = { key: '0', value: 'yyyyyyyy' };

/** Waits until a condition holds. */
function awaitThat(s: Script, forMs: number, holds: () => boolean, claim: string): void {
  s.expect(s.group.world.runFor(forMs, holds), claim);
}

export const REPLICA_CASES: Cases = {
  ...REPLICA_SCRIPTS,

  /** c fetches the base from b: the position of b must not change meanwhile. */
  'base stands still': directed({}, (s) => {
    s.lead(A);
    s.isolated.add(C);
    s.write(A, X);
    s.isolated.clear();
    s.group.world.crash(A);
    let fetched = false;
    s.rules = [
      (from, _to, message) => {
        fetched ||= s.group.server(C).replica?.inspect().installed.counter === 2;
        const stamps = from === C && message?.kind === 'install';
        s.expect(fetched || !stamps, 'c stamps no replica before it has the base');
        return null;
      },
    ];
    s.lead(C);
    s.shown(C);
  }),

  /** All replicas move to one server that no client uses: the others stop requesting the lease, and d gets it. */
  'moved to one': directed({ servers: 4, replicas: 3, leases: 'real' }, (s) => {
    s.write(A, X);
    awaitThat(s, 3 * LONG_MS, () => s.group.primary() !== null, 'there is a primary');
    const primary = s.group.primary() ?? A;
    s.write(primary, Y);
    // The others request the lease, too.
    s.open(A, B, C);
    const move = s.move(primary, [D]);
    awaitThat(s, LONG_MS, () => move.answer !== null, 'the change comes to an end');
    s.expect(move.answer?.kind === 'moved', 'the members have changed');
    s.run(LONG_MS);
    s.rules = [
      (from, _to, message) => {
        s.expect(message !== null || from === D, `${from} is out, and asks for no lease`);
        return null;
      },
    ];
    s.run(LONG_MS);
    s.rules = [];
    s.shown(D);
    awaitThat(s, LONG_MS, () => s.role(D) === 'active', 'd is primary as soon as a client asks');
    s.expect(s.shown(D) === Y.value, 'nothing is lost');
    s.expect(s.group.hasConverged(), 'd knows all of it to be committed');
  }),

  /**
   * A primary ordered a change of members that reached no other server. The others continued without it, to d alone.
   * They are no members now, and still vote by the view before the last: that is another one than the first server
   * has, which excludes d.
   */
  'view that reached no other server': directed({ servers: 4, replicas: 3, leases: 'real' }, (s) => {
    const { world } = s.group;
    const becomesPrimary = (servers: readonly ServerId[]): ServerId => {
      s.open(...servers);
      const primary = () => servers.find((server) => s.role(server) === 'active');
      awaitThat(s, 4 * LONG_MS, () => primary() !== undefined, 'there is a primary');
      return primary() as ServerId;
    };
    const first = becomesPrimary([A, B, C]);
    const others = [A, B, C].filter((server) => server !== first);
    s.rules = [(_from, to, message) => (message?.kind === 'write' && to !== D ? 'drop' : null)];
    s.move(first, [A, B, C, D]);
    s.run();
    world.crash(first);
    s.rules = [];
    s.isolated.add(first);
    const move = s.move(becomesPrimary(others), [D]);
    awaitThat(s, LONG_MS, () => move.answer?.kind === 'moved', 'the members have changed');
    becomesPrimary([D]);
    // No message of the file, and none of d, reaches the first server. Its requests for votes reach the others.
    s.isolated.clear();
    s.rules = [
      (from, to, message) => {
        const other = from === first ? to : to === first ? from : null;
        return other !== null && (message !== null || other === D) ? 'drop' : null;
      },
    ];
    world.restart(first);
    s.run(LONG_MS);
    s.open(first, D);
    s.run(2 * LONG_MS);
    s.expect(s.role(D) === 'active', 'd is still primary');
  }),
};
