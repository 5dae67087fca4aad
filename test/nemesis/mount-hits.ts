/** Faults of servers under a mount: one kind, at one or two servers at the same time. */
import { setTimeout as delay } from 'node:timers/promises';
import { unreachable } from '../../base/assert.ts';
import type { Prng } from '../../base/prng.ts';
import type { NemesisCluster } from './cluster.ts';
import type { MountFault } from './mount-arguments.ts';
import type { NamespaceNetwork } from './network.ts';

export interface HitWorld {
  readonly cluster: NemesisCluster;
  readonly network: NamespaceNetwork;
  readonly prng: Prng;
  readonly leaseMs: number;
  readonly clockSkewMs: number;
  say(text: string): void;
}

/** Injects the fault for longer than a lease, and repairs it; does not wait until the servers are ready. */
export async function hit(world: HitWorld, fault: MountFault, victims: readonly string[]): Promise<void> {
  const { cluster, network, prng, say } = world;
  const names = victims.join(' and ');
  const places = victims.map((id) => cluster.place(id));
  switch (fault) {
    case 'kill':
      say(`kill -9 ${names}`);
      for (const id of victims) await cluster.kill(id);
      // Also restarts before any lease has ended.
      if (prng.chance(0.7)) await delay(longMs(world));
      for (const id of victims) cluster.spawn(id);
      return;
    case 'stop':
      say(`SIGSTOP ${names}`);
      for (const id of victims) cluster.signal(id, 'SIGSTOP');
      await delay(longMs(world));
      for (const id of victims) cluster.signal(id, 'SIGCONT');
      return;
    case 'cut':
      // Connected to the mount, they get requests and cannot answer; otherwise they are silent.
      if (prng.chance(0.5)) {
        say(`${names} cut off from the other servers`);
        for (const place of places) cutFromServers(cluster, network, place, places);
      } else {
        say(`${names} cut off from all`);
        for (const place of places) network.unplug(place);
      }
      await delay(longMs(world));
      network.heal();
      return;
    case 'disk-full':
      say(`disks of ${names} full`);
      for (const id of victims) cluster.disk(id).fill(prng.pick([0, 1024 * 1024]));
      await delay(longMs(world));
      for (const id of victims) {
        cluster.disk(id).relieve();
        // A server may end if its disk refuses to write.
        if (!cluster.isRunning(id)) cluster.spawn(id);
      }
      return;
    case 'power':
      say(`power of ${names} lost`);
      for (const id of victims) await cluster.kill(id);
      for (const id of victims) cluster.disk(id).losePower();
      if (prng.chance(0.7)) await delay(longMs(world));
      for (const id of victims) cluster.spawn(id);
      return;
    default:
      unreachable(fault);
  }
}

/** Longer than any lease that may be valid. */
function longMs({ prng, leaseMs, clockSkewMs }: HitWorld): number {
  return leaseMs + 3 * clockSkewMs + prng.integer(0, leaseMs);
}

function cutFromServers(
  cluster: NemesisCluster,
  network: NamespaceNetwork,
  place: number,
  together: readonly number[],
): void {
  for (const id of cluster.ids) {
    const other = cluster.place(id);
    if (together.includes(other)) continue;
    network.cut(place, other);
    network.cut(other, place);
  }
}
