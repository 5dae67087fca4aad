/**
 * The servers that replicate one file, with the real cores of leases and replicas, their disks, and their observer.
 */
import { assert } from '../../base/assert.ts';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import type { ReplicaAction } from '../../replica/actions.ts';
import { epochEqual } from '../../replica/epoch.ts';
import { DRIFT_MAX } from '../../replica/guard.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import { ClockCourse } from './clock-course.ts';
import { ReplicaDisk } from './replica-disk.ts';
import { ReplicaFaults } from './replica-faults.ts';
import { FILE, type GroupMessage } from './replica-messages.ts';
import { ReplicaObserver } from './replica-observer.ts';
import { ReplicaServer } from './replica-server.ts';
import { Violation } from './violation.ts';
import { CALM, type Faults, type Process, START_MS, World } from './world.ts';

/** The largest error of a process clock's rate: two of them differ by less than the cores allow for. */
const RATE_ERROR_MAX = DRIFT_MAX * 0.9;

/**
 * How the file begins: as an empty replica at each member, created by the last member, which is the primary; or
 * created with contents at the last member.
 */
export type Beginning = 'empty' | 'made' | 'created';

export interface GroupOptions {
  readonly seed: number;
  readonly servers: number;
  /** The first number of members. Absent: all servers. */
  readonly replicas?: number;
  readonly faults?: Faults;
  /** `scripted`: `grant` gives leases, so that a script can also give two at once. */
  readonly leases: 'real' | 'scripted';
  readonly begins?: Beginning;
  /** Without a primary reads ask a majority first. */
  readonly agrees?: boolean;
  /** A resumed primary orders changes without a lease if possible. */
  readonly resumes?: boolean;
  /** @see ReplicaConfig.appliesAtPrimary */
  readonly appliesAtPrimary?: 'first' | 'last';
  /** Lease clocks may show anything, and only process clocks keep their rate. Otherwise they are one clock. */
  readonly clocksBroken?: boolean;
  readonly leaseMs?: number;
  readonly clockSkewMaxMs?: number;
  readonly readLeaseMs?: number;
  /** Absent: as long as a lease; none in scripts. */
  readonly startGuardMs?: number;
  readonly retainedBytesMax?: number;
  /** The duration of a disk step is between these. */
  readonly diskMinMs?: number;
  readonly diskMaxMs?: number;
  /** The probability that a disk step fails, and with it the disk. */
  readonly diskFailure?: number;
  readonly verbose?: boolean;
  readonly aimAtPrimary?: boolean;
}

export class ReplicaGroup {
  readonly world: World<GroupMessage>;
  readonly options: Required<Omit<GroupOptions, 'faults'>>;
  readonly disks = new Map<ServerId, ReplicaDisk>();
  readonly faults: ReplicaFaults;
  readonly observer: ReplicaObserver;
  /** Lives of all servers, in the order of their begin. */
  readonly lives: Incarnation[] = [];
  /** How often the cores traced each mark. */
  readonly marks = new Map<string, number>();
  readonly counts = {
    fetches: 0,
    unknownRetried: 0,
    moves: 0,
    agreedFlushes: 0,
    created: 0,
    creationsRefused: 0,
    /** Moments at which two servers held the lease. */
    twoHeld: 0,
  };
  readonly prng: Prng;
  readonly firstView: View;
  /** The servers with replicas according to the catalog. */
  catalogView: View;
  /** Directed runs: the duration of a server's disk step. */
  diskDelayMs: ((server: ServerId, kind: ReplicaAction['kind']) => number) | null = null;
  /** Two holders of the lease are a violation. */
  leasesExclude = true;
  readonly #servers = new Map<ServerId, ReplicaServer>();
  readonly #processClocks: readonly ClockCourse[];
  #tickets = 0;

  constructor(options: GroupOptions) {
    const leaseMs = options.leaseMs ?? 1000;
    this.options = {
      replicas: options.servers,
      begins: 'empty',
      agrees: false,
      resumes: false,
      appliesAtPrimary: 'first',
      clocksBroken: false,
      leaseMs,
      clockSkewMaxMs: 50,
      readLeaseMs: leaseMs / 5,
      startGuardMs: options.leases === 'real' ? leaseMs * (1 + DRIFT_MAX) : 0,
      retainedBytesMax: 100_000,
      diskMinMs: 0.2,
      diskMaxMs: 0.2,
      diskFailure: 0,
      verbose: false,
      aimAtPrimary: false,
      ...options,
    };
    this.prng = new Prng(options.seed * 17 + 5);
    this.world = new World<GroupMessage>({
      seed: options.seed,
      servers: options.servers,
      boot: (server, incarnation) => this.#boot(server, incarnation),
      faults: options.faults ?? CALM,
      observe: () => this.#observe(),
      aim: () => (this.options.aimAtPrimary ? this.primary() : null),
      verbose: this.options.verbose,
    });
    const { ids } = this.world;
    const limits = { offsetMaxMs: Infinity, slewMax: RATE_ERROR_MAX };
    this.#processClocks = ids.map((_, index) => new ClockCourse(options.seed * 47 + index, limits, START_MS));
    this.firstView = { number: 1, members: ids.slice(0, this.options.replicas) };
    this.catalogView = this.firstView;
    this.observer = new ReplicaObserver(this.firstView, () => this.world.nowMs);
    this.faults = new ReplicaFaults(this);
    this.world.start();
  }

  /** The process clock of a server. It differs from the lease clock, so that a mix-up of both is noticed. */
  processMs(server: ServerId): number {
    const { world } = this;
    if (!this.options.clocksBroken) return world.clockMs(server) - START_MS / 2;
    const clock = this.#processClocks[world.ids.indexOf(server)];
    assert(clock !== undefined, 'Every server has a clock');
    return clock.readMs(world.nowMs);
  }

  /** The server that creates the file, empty or with contents. */
  get creator(): ServerId {
    const last = this.firstView.members.at(-1);
    assert(last !== undefined, 'A view has members');
    return last;
  }

  /** Called at each start of a server: the file is created once, by one life. */
  makes(server: ServerId): boolean {
    return (
      this.options.begins === 'made' && this.lives.length <= this.world.ids.length && server === this.creator
    );
  }

  #boot(id: ServerId, incarnation: Incarnation): Process<GroupMessage> {
    this.lives.push(incarnation);
    const server = new ReplicaServer(this, id, incarnation);
    this.#servers.set(id, server);
    return server;
  }

  server(id: ServerId): ReplicaServer {
    const server = this.#servers.get(id);
    assert(server !== undefined, 'Every server was started');
    return server;
  }

  createDisk(server: ServerId, view: View): ReplicaDisk {
    const disk = new ReplicaDisk(view, this.faults.trustOfNew(server));
    this.disks.set(server, disk);
    return disk;
  }

  ticket(): number {
    return ++this.#tickets;
  }

  mark(mark: string): void {
    assert(mark !== 'view-conflict', 'One number of a view has one member set');
    this.marks.set(mark, (this.marks.get(mark) ?? 0) + 1);
  }

  /** @returns the server that acts as primary, or null */
  primary(): ServerId | null {
    const { world } = this;
    return world.ids.find((id) => world.isUp(id) && this.server(id).replica?.role === 'active') ?? null;
  }

  /** Servers that hold the file's lease by their own clocks. */
  holders(): ServerId[] {
    const { world } = this;
    return world.ids.filter((id) => world.isUp(id) && this.server(id).host?.owns(FILE, world.clockMs(id)));
  }

  /**
   * Asserts that no two servers act as primary at this moment, and that no server that may answer reads lacks a
   * committed operation: not even a paused one, which may continue at any time.
   */
  #observe(): void {
    if (this.options.leases === 'real' && this.holders().length > 1) {
      this.counts.twoHeld++;
      if (this.leasesExclude) throw new Violation('Two hold the lease');
    }
    let primary: ServerId | null = null;
    for (const id of this.world.ids) {
      if (!this.world.isUp(id)) continue;
      const { reads, disk, replica } = this.server(id);
      if (!reads.mayServe) continue;
      assert(disk !== undefined, 'A server that may serve has a disk');
      this.observer.mayShow(id, disk.log);
      if (replica?.role !== 'active') continue;
      if (primary !== null) throw new Violation(`${primary} and ${id} both serve`);
      primary = id;
    }
    this.faults.check();
  }

  /** @returns whether all voters have the same operations and know that all are committed */
  hasConverged(): boolean {
    const all = viewVoters(this.observer.view).map((id) => {
      const { replica, processMs } = this.server(id);
      return replica === null ? null : { ...replica.status(processMs), issuedSeq: replica.issuedSeq };
    });
    const [first] = all;
    if (first === null || first === undefined || first.seq !== this.observer.committedSeq) return false;
    return all.every((one) => {
      if (one === null || one.committedSeq !== one.seq || one.issuedSeq !== one.seq) return false;
      return one.seq === first.seq && epochEqual(one.epoch, first.epoch);
    });
  }

  // Leases that a script gives ---------------------------------------------------------------------

  /** @param view number of the view in which the lease was decided; absent: that of the server */
  grant(id: ServerId, durationMs: number, view?: number): void {
    const server = this.server(id);
    this.world.call(id, () => {
      server.open();
      server.lease(durationMs, view ?? server.replica?.inspect().view.number ?? 0);
    });
  }

  revoke(id: ServerId): void {
    this.world.call(id, () => this.server(id).lease(0, 0));
  }
}
