/**
 * Faults of disks in a replica group, and how many the replicas must tolerate: while only a minority of each member
 * set is affected, no acknowledged operation may be lost; after a loss of power of more, no flushed one.
 */
import type { ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { ReplicaAction } from '../../replica/actions.ts';
import { epochEqual } from '../../replica/epoch.ts';
import type { Trust } from '../../replica/record.ts';
import type { View } from '../../replica/view.ts';
import { viewHasMajority, viewSides, viewVoters } from '../../replica/view.ts';
import type { ReplicaGroup } from './replica-group.ts';

/** The duration of one step of a slow disk, in milliseconds. */
const SLOW_MS = 80;

export class ReplicaFaults {
  readonly counts = {
    powerLosses: 0,
    /** Operations that were applied and not synced when power was lost. */
    unsyncedLost: 0,
    majorityPowerLosses: 0,
    wipes: 0,
    fullDisks: 0,
    slowDisks: 0,
    removals: 0,
    damagedStarts: 0,
    /** Replicas that were created with contents and lost with the power. */
    creationsLost: 0,
  };
  readonly #group: ReplicaGroup;
  readonly #wiped = new Set<ServerId>();
  /** Servers that lost a replica that was created with contents. */
  readonly #missed = new Set<ServerId>();
  /** Servers whose replica moved away and was removed: the view of the move. */
  readonly #departed = new Map<ServerId, View>();
  readonly #fullUntilMs = new Map<ServerId, number>();
  readonly #slowUntilMs = new Map<ServerId, number>();
  /** More than a minority has lost power, and not all are current again. */
  #recovering = false;

  constructor(group: ReplicaGroup) {
    this.#group = group;
  }

  /** The trust of a replica that is created on this server's disk. */
  trustOfNew(server: ServerId): Exclude<Trust, 'damaged'> {
    if (this.#wiped.has(server) || this.#departed.has(server)) return 'lost';
    return this.#missed.has(server) ? 'suspect' : 'intact';
  }

  isFull(server: ServerId): boolean {
    return (this.#fullUntilMs.get(server) ?? 0) > this.#group.world.nowMs;
  }

  /** @returns why the disk refuses a step now, or null */
  refusal(server: ServerId, kind: ReplicaAction['kind']): string | null {
    const disk = this.#group.disks.get(server);
    if (kind !== 'promise' && this.isFull(server)) {
      this.counts.fullDisks++;
      return 'no space';
    }
    if (kind !== 'apply' || disk === undefined || !disk.isDamaged) return null;
    disk.isDamageKnown = true;
    this.counts.damagedStarts++;
    return 'damaged';
  }

  /** The duration of a step of the server's disk. */
  durationMs(server: ServerId): number {
    const { prng, options, world } = this.#group;
    const drawnMs = options.diskMinMs + prng.next() * (options.diskMaxMs - options.diskMinMs);
    return (this.#slowUntilMs.get(server) ?? 0) > world.nowMs ? SLOW_MS : drawnMs;
  }

  fill(server: ServerId, forMs: number): void {
    const { world } = this.#group;
    world.note(server, 'has a full disk');
    this.#fullUntilMs.set(server, world.nowMs + forMs);
  }

  slow(server: ServerId, forMs: number): void {
    const { world } = this.#group;
    world.note(server, 'has a slow disk');
    this.counts.slowDisks++;
    this.#slowUntilMs.set(server, world.nowMs + forMs);
  }

  /** Makes contents unreadable: the next applied operation fails. */
  damage(server: ServerId): void {
    const disk = this.#group.disks.get(server);
    if (disk === undefined || disk.record.seq === 0) return;
    this.#group.world.note(server, 'has damaged contents');
    disk.isDamaged = true;
  }

  end(): void {
    this.#fullUntilMs.clear();
    this.#slowUntilMs.clear();
  }

  /**
   * @returns whether the replicas must tolerate that these servers lose unsynced operations, everything, or a part
   */
  mayDoubt(servers: readonly ServerId[]): boolean {
    const { disks, observer } = this.#group;
    const known = [...disks.values()].map(({ record }) => record.view);
    const views = [observer.view, ...known.filter(({ number }) => number > observer.view.number)];
    const isTrusted = (server: ServerId) => !servers.includes(server) && !this.#isDoubtful(server);
    return views.every((view) =>
      viewSides(view).every((side) => side.filter(isTrusted).length >= majority(side.length)),
    );
  }

  #isDoubtful(server: ServerId): boolean {
    const disk = this.#group.disks.get(server);
    if (disk === undefined) return this.trustOfNew(server) !== 'intact';
    return disk.trust !== 'intact' || disk.isDamaged;
  }

  /** Machines lose power at once, and restart one by one. @param all no unsynced operation survives */
  losePower(servers: readonly ServerId[], downMs: () => number, all = false): void {
    const { world, prng, disks, observer } = this.#group;
    const isTolerable = this.mayDoubt(servers);
    for (const server of servers) world.crashFor(server, downMs());
    for (const server of servers) {
      const disk = disks.get(server);
      const lost = disk?.losePower(all ? null : prng) ?? 0;
      world.note(server, `loses power, and ${lost} operations`);
      this.counts.powerLosses++;
      this.counts.unsyncedLost += lost === 'all' ? (disk?.record.seq ?? 0) : lost;
      if (lost !== 'all') continue;
      this.counts.creationsLost++;
      disks.delete(server);
      this.#missed.add(server);
    }
    if (isTolerable) return;
    this.counts.majorityPowerLosses++;
    this.#recovering = true;
    observer.majorityLostPower();
  }

  /** Replaces the disk by an empty one. */
  wipe(server: ServerId, downMs: number): void {
    const { world, disks } = this.#group;
    world.note(server, 'gets an empty disk');
    this.counts.wipes++;
    world.crashFor(server, downMs);
    disks.delete(server);
    this.#wiped.add(server);
  }

  /**
   * Removes the replica of a server that is no member any more, once a majority of the members has all that it has.
   */
  remove(server: ServerId): void {
    const { world, disks, catalogView, observer } = this.#group;
    const disk = disks.get(server);
    if (disk === undefined || !world.isUp(server)) return;
    // A record that is newer than the catalog decides.
    const own = disk.record.view.number > catalogView.number ? disk.record.view : catalogView;
    if ([catalogView, observer.view, own].some((view) => viewVoters(view).includes(server))) return;
    const hasAll = (member: ServerId) => (disks.get(member)?.record.seq ?? 0) >= disk.record.seq;
    if (!viewHasMajority(catalogView, hasAll)) return;
    world.call(server, () => {
      if (disks.get(server) !== disk || !this.#group.server(server).leave()) return;
      world.note(server, 'removes its replica');
      this.counts.removals++;
      this.#departed.set(server, catalogView);
      disks.delete(server);
    });
  }

  /** @returns the view by which the server's replica moved away; null if it never did */
  departedBy(server: ServerId): View | null {
    return this.#departed.get(server) ?? null;
  }

  /** Called after every step: notices when all voters are current again after a loss of power. */
  check(): void {
    if (!this.#recovering) return;
    const { observer, disks } = this.#group;
    const primary = this.#group.primary();
    const epoch = primary === null ? undefined : disks.get(primary)?.record.installed;
    if (epoch === undefined) return;
    const isCurrent = (server: ServerId): boolean => {
      const record = disks.get(server)?.record;
      if (record === undefined || this.#isDoubtful(server)) return false;
      return epochEqual(record.installed, epoch) && record.seq >= observer.committedSeq;
    };
    if (!viewVoters(observer.view).every(isCurrent)) return;
    this.#recovering = false;
    observer.recovered();
  }
}
