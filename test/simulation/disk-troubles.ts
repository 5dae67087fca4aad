/**
 * What befalls disks: machines lose power, disks are replaced by empty ones, are full, or slow. Knows how much of
 * it the replicas have to bear: as long as a minority of each set of members is in doubt, nothing that was
 * acknowledged may be lost; and after a loss of power of more of them, nothing that was flushed.
 */
import type { ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import { epochEqual } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { viewHasMajority, viewSides, viewVoters } from '../../replica/view.ts';
import type { NewTrust } from '../../server/storage/store.ts';
import type { BirthCounts } from './system-birth.ts';
import { FileContents, type Preserved } from './system-file.ts';
import { type RotCounts, rotCountsNone } from './system-rot.ts';
import { type SealCounts, sealCountsNone } from './system-seal.ts';
import type { SystemWorld } from './system-world.ts';

/** A step of a slow disk takes so long, in milliseconds. */
const SLOW_MS = 80;

export class DiskTroubles {
  readonly counts = {
    powerLosses: 0,
    /** Operations that were applied and not synced when power was lost. */
    unsyncedLost: 0,
    majorityPowerLosses: 0,
    wipes: 0,
    fullDisks: 0,
    slowDisks: 0,
    removals: 0,
    /** Reads that a majority made good by standing at one place. */
    agreedReads: 0,
    agreedFlushes: 0,
  };
  readonly rot: RotCounts = rotCountsNone();
  readonly seal: SealCounts = sealCountsNone();
  readonly births: BirthCounts = { borne: 0, birthsRefused: 0, birthsForgotten: 0 };
  readonly #system: SystemWorld;
  readonly #replaced = new Set<ServerId>();
  /** Where a replica that was borne is gone with the power. */
  readonly #missed = new Set<ServerId>();
  /** Where a replica moved away and was removed: the view by which it did. */
  readonly #departed = new Map<ServerId, View>();
  readonly #fullUntilMs = new Map<ServerId, number>();
  readonly #slowUntilMs = new Map<ServerId, number>();
  /** More than a minority has lost power, and not all are what they were. */
  #recovering = false;

  constructor(system: SystemWorld) {
    this.#system = system;
  }

  /** What a replica is to be thought of that is made on this server's disk. */
  trustOfNew(server: ServerId): NewTrust {
    if (this.#replaced.has(server) || this.#departed.has(server)) return 'lost';
    return this.#missed.has(server) ? 'suspect' : 'intact';
  }

  isFull(server: ServerId): boolean {
    return (this.#fullUntilMs.get(server) ?? 0) > this.#system.world.nowMs;
  }

  /** @returns how long a step of the server's disk takes that would take `usualMs` */
  durationMs(server: ServerId, usualMs: number): number {
    const isSlow = (this.#slowUntilMs.get(server) ?? 0) > this.#system.world.nowMs;
    return isSlow ? SLOW_MS : usualMs;
  }

  fill(server: ServerId, forMs: number): void {
    const { world } = this.#system;
    world.note(server, 'has a full disk');
    this.#fullUntilMs.set(server, world.nowMs + forMs);
  }

  slow(server: ServerId, forMs: number): void {
    const { world } = this.#system;
    world.note(server, 'has a slow disk');
    this.counts.slowDisks++;
    this.#slowUntilMs.set(server, world.nowMs + forMs);
  }

  /** A bit flips in an object of the file that lies on the server's disk. */
  flip(server: ServerId, index: number): void {
    const { world, disks } = this.#system;
    const contents = disks.get(server)?.contents;
    if (!(contents instanceof FileContents) || contents.entry(index) === null) return;
    world.note(server, `has object ${index} damaged`);
    contents.rot(index);
    this.rot.rotted++;
  }

  /** A bit flips in an object of what a server has preserved for snapshots. */
  flipPreserved(server: ServerId, { as, contents }: Preserved, index: number): void {
    this.#system.world.note(server, `has object ${index} of file ${as} damaged`);
    contents.rot(index);
    this.rot.rottedPreserved++;
  }

  /** The object rots on all disks, but for one, if one is spared. */
  flipAll(index: number, spared: ServerId | null): void {
    for (const server of this.#system.disks.keys()) if (server !== spared) this.flip(server, index);
    if (spared === null) this.rot.rottedEverywhere++;
    else this.rot.rottedButOne++;
  }

  /** Whether a part of what is shown is whole on no disk: only objects that are written whole may come to that. */
  isLost(what: string): boolean {
    const files = this.#files();
    return files.some((file) =>
      file.shownBy(what).some((index) => {
        const entry = file.entry(index);
        return entry !== null && files.every((other) => other.soundBytes(entry) === null);
      }),
    );
  }

  /** Somebody brings one copy of each object back that is whole nowhere, from wherever it was kept. */
  restoreLost(): void {
    for (const files of [this.#files(), ...this.#preserved()]) this.#restoreLostOf(files);
  }

  /** @param files copies of the same contents */
  #restoreLostOf(files: readonly FileContents[]): void {
    for (const file of files) {
      for (const index of file.indices) {
        const entry = file.entry(index);
        if (entry === null || files.some((other) => other.soundBytes(entry) !== null)) continue;
        file.restore(index);
        this.rot.restored++;
      }
    }
  }

  #files(): FileContents[] {
    return [...this.#system.disks.values()].flatMap(({ contents }) =>
      contents instanceof FileContents ? [contents] : [],
    );
  }

  /** What servers have preserved for snapshots: the copies of each, which members may leave to one that has rotted. */
  #preserved(): FileContents[][] {
    const { world } = this.#system;
    const all = world.ids.flatMap((server) => [...this.#system.preservedAt(server).values()]);
    return [...Map.groupBy(all, ({ as }) => as).values()].map((copies) =>
      copies.map(({ contents }) => contents),
    );
  }

  #hasRot(server: ServerId): boolean {
    const { contents } = this.#system.disks.get(server) ?? {};
    const preserved = [...this.#system.preservedAt(server).values()].map((one) => one.contents);
    const files = contents instanceof FileContents ? [contents, ...preserved] : preserved;
    return files.some((file) => file.indices.some((index) => file.isDamaged(index)));
  }

  /** From now on disks are as they should be. */
  end(): void {
    this.#fullUntilMs.clear();
    this.#slowUntilMs.clear();
  }

  /** Whether the replicas have to bear that these servers lose what they did not sync, or everything, or a bit. */
  mayDoubt(servers: readonly ServerId[]): boolean {
    return this.#views().every((view) =>
      viewSides(view).every((side) => {
        const doubted = side.filter(
          (server) => servers.includes(server) || this.#isDoubtful(server) || this.#hasRot(server),
        );
        return side.length - doubted.length >= majority(side.length);
      }),
    );
  }

  #isDoubtful(server: ServerId): boolean {
    const trust = this.#system.disks.get(server)?.trust ?? this.trustOfNew(server);
    return trust !== 'intact';
  }

  /** The views that count, or may come to count. */
  #views(): View[] {
    const { disks, observers } = this.#system;
    const known = [...disks.values()].map(({ record }) => record.view);
    const preserving = this.#system.world.ids.flatMap((server) =>
      [...this.#system.preservedAt(server).values()].map(({ state }) => state.record.view),
    );
    return [observers.view, ...known.filter(({ number }) => number > observers.view.number), ...preserving];
  }

  /**
   * Machines go dark at once, and come back one by one.
   *
   * @param everything nothing that was not synced is left, for scripts; else chance decides
   */
  losePower(servers: readonly ServerId[], downMs: () => number, everything = false): void {
    const { world, prng, disks, observers } = this.#system;
    const isBearable = this.mayDoubt(servers);
    if (observers.seal === 'sealed') {
      this.seal.sealPowerLosses++;
      if (servers.length === world.ids.length) this.seal.sealAllPowerLosses++;
    }
    for (const server of servers) world.crashFor(server, downMs());
    for (const server of servers) {
      const disk = disks.get(server);
      const lost = disk?.losePower(everything ? null : prng) ?? 0;
      this.#system.snapshots?.siblings.losePower(server, everything);
      world.note(server, `loses power, and ${lost} operations`);
      this.counts.powerLosses++;
      if (lost === 'all') {
        this.births.birthsForgotten++;
        disks.delete(server);
        this.#missed.add(server);
      }
      this.counts.unsyncedLost += lost === 'all' ? (disk?.record.seq ?? 0) : lost;
    }
    if (isBearable) return;
    this.counts.majorityPowerLosses++;
    this.#recovering = true;
    observers.majorityLostPower();
    if (servers.length === world.ids.length) this.#system.snapshots?.losePower(everything);
    else this.#system.snapshots?.noteLoss();
  }

  /** The disk is replaced by an empty one. */
  wipe(server: ServerId, downMs: number): void {
    const { world, disks } = this.#system;
    world.note(server, 'gets an empty disk');
    this.counts.wipes++;
    world.crashFor(server, downMs);
    disks.delete(server);
    this.#replaced.add(server);
  }

  /**
   * The replica of a server that is no member any more is removed, as the catalog tells and a majority of the
   * present members have all it has. What it is out of is remembered.
   */
  remove(server: ServerId): void {
    const { world, disks, catalogView, observers } = this.#system;
    const disk = disks.get(server);
    // A record that is newer than what the catalog has decides.
    const own =
      disk !== undefined && disk.record.view.number > catalogView.number ? disk.record.view : catalogView;
    const views = [catalogView, observers.view, own];
    if (disk === undefined || views.some((view) => viewVoters(view).includes(server))) return;
    const hasAll = (member: ServerId) => (disks.get(member)?.record.seq ?? 0) >= disk.record.seq;
    if (!viewHasMajority(catalogView, hasAll) || !world.isUp(server)) return;
    world.call(server, () => {
      if (disks.get(server) !== disk || !this.#system.process(server).leave()) return;
      world.note(server, 'removes its replica');
      this.counts.removals++;
      this.#departed.set(server, catalogView);
      this.#system.removeDisk(server);
    });
  }

  /** @returns the view by which the server's replica moved away; null where it never did */
  departedBy(server: ServerId): View | null {
    return this.#departed.get(server) ?? null;
  }

  /** To be called after every step: notices when all that was in doubt is what it was. */
  look(): void {
    if (!this.#recovering) return;
    const { observers, disks } = this.#system;
    const primary = this.#system.primary();
    const epoch = primary === null ? undefined : disks.get(primary)?.record.installed;
    if (epoch === undefined) return;
    // Who slept meanwhile may have more, of an epoch of before, and believe of it what was true when it was told.
    const hasAll = (server: ServerId): boolean => {
      const record = disks.get(server)?.record;
      if (record === undefined || this.#isDoubtful(server)) return false;
      return epochEqual(record.installed, epoch) && record.seq >= observers.committedSeq;
    };
    if (!viewVoters(observers.view).every(hasAll)) return;
    this.#recovering = false;
    observers.recovered();
  }
}
