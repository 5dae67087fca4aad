import type { Logger } from 'pino';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { ServerConfig } from '../config/config.ts';
import { type Timing, timingOf } from '../config/timing.ts';
import { WakeQueue } from '../drivers/wake-queue.ts';
import { ServerEvents } from '../live/server-events.ts';
import type { ClusterPlan } from '../membership/cluster-plan.ts';
import type { Bootstrap, KnownServers } from '../membership/known-servers.ts';
import { Clock } from '../process/clock.ts';
import { drawIncarnation } from '../process/incarnation.ts';
import { type Machine, systemMachine } from '../process/machine.ts';
import type { Surroundings } from '../process/surroundings.ts';
import type { Security } from '../security/security.ts';
import type { DataFolder } from '../storage/data-folder.ts';
import { MetricsRegistry } from '../telemetry/metrics.ts';
import { Traffic } from '../telemetry/traffic.ts';

/** What all parts of a server share: settings, clocks, log and measurements. */
export interface Base {
  readonly self: ServerId;
  readonly config: ServerConfig;
  readonly bootstrap: Bootstrap;
  readonly known: KnownServers;
  readonly folder: DataFolder;
  readonly security: Security;
  readonly world: World;
  readonly log: Logger;
  readonly machine: Machine;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly metrics: MetricsRegistry;
  readonly timing: Timing;
  readonly incarnation: Incarnation;
  /** The incarnation in base 36. */
  readonly incarnationText: string;
  readonly events: ServerEvents;
  readonly traffic: Traffic;
  draw(): Incarnation;
  /** Monotonic, in milliseconds. */
  nowMs(): number;
  wallMs(): number;
  fatal(error: unknown): void;
}

export function baseOf(
  { config, bootstrap, known }: ClusterPlan,
  folder: DataFolder,
  security: Security,
  { world, log, fatal, machine = systemMachine }: Surroundings,
): Base {
  const self = config.id;
  const clock = new Clock(world);
  const wakes = new WakeQueue(world, clock);
  const metrics = new MetricsRegistry(world);
  const draw = (): Incarnation => drawIncarnation(world);
  const incarnation = draw();
  const timing = timingOf(config, folder.silences);
  const incarnationText = incarnation.toString(36);
  const nowMs = (): number => world.nowMs();
  const wallMs = (): number => Number(clock.wallNs() / 1_000_000n);
  return {
    ...{ self, config, bootstrap, known, folder, security, world, log, machine, fatal },
    ...{ clock, wakes, metrics, timing, incarnation, incarnationText, draw, nowMs, wallMs },
    events: new ServerEvents({ self, life: incarnationText, nowMs, wallMs }),
    traffic: new Traffic(nowMs),
  };
}
