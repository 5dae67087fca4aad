/**
 * Goal: no misfortune of servers, disks, networks and clocks loses an acknowledged operation, does
 * one twice, or shows a client a state that the order of operations does not explain.
 * Method: real `LeaseHost` and real `Replica` cores, glued together as the server does it, over the
 * simulated world; a file or a catalog in memory as the subject; clients that retry. Observers compare
 * what all servers did after every step.
 */
import { assert } from '../../base/assert.ts';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import type { ReplicaAction } from '../../replica/actions.ts';
import type { Position } from '../../replica/epoch.ts';
import { epochEqual } from '../../replica/epoch.ts';
import { DRIFT_MAX } from '../../replica/guard.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import { ClockCourse } from './clock-course.ts';
import { SimulatedDisk } from './disk-simulated.ts';
import { DiskTroubles } from './disk-troubles.ts';
import type { BirthCourse } from './system-birth.ts';
import { requestKey, type Subject, type Wish } from './system-contents.ts';
import type { Preserved } from './system-file.ts';
import type { Answer, SystemMessage } from './system-messages.ts';
import { Observers } from './system-observers.ts';
import { CELL, ServerProcess } from './system-process.ts';
import { SnapshotCatalog } from './system-snapshots.ts';
import { fileSubject } from './system-subject.ts';
import { Violation } from './violation.ts';
import { CALM, type Faults, type Process, START_MS, World } from './world.ts';

/** How far the rate of a process's clock is off. Two of them are never further apart than what the cores allow for. */
const RATE_ERROR_MAX = DRIFT_MAX * 0.9;

/** Where the answer to a client of a script will be. */
export interface Handle {
  answer: Answer | null;
}

export interface SystemOptions {
  readonly seed: number;
  readonly servers: number;
  /** How many of them hold the subject at first. Absent: all. */
  readonly replicas?: number;
  readonly faults?: Faults;
  /** `scripted`: leases are given by `grant`, so that a script may also give two at once. */
  readonly leases: 'real' | 'scripted';
  /** The last of its first servers has made the subject. */
  readonly isMade?: boolean;
  /** The last of its first servers bears the subject, when it is told. */
  readonly isBorne?: boolean;
  /** Reads are tried without a primary first. */
  readonly agrees?: boolean;
  /** Who has ordered last goes on without a lease where nobody leads, and now and then nobody wants to. */
  readonly resumes?: boolean;
  /** Absent: a file. */
  readonly subject?: Subject;
  /**
   * Lease clocks may do what they like, and only the clocks of processes keep to their rate. Otherwise the lease
   * clock is the process's, set once.
   */
  readonly clocksBroken?: boolean;
  readonly leaseMs?: number;
  readonly clockSkewMaxMs?: number;
  readonly readLeaseMs?: number;
  /** Absent: as long as leases promise anything, and none in scripts. */
  readonly startGuardMs?: number;
  readonly retainedBytesMax?: number;
  /** A disk step takes between these. */
  readonly diskMinMs?: number;
  readonly diskMaxMs?: number;
  /** Probability that a disk step fails, and with it the disk. */
  readonly diskFailure?: number;
  readonly verbose?: boolean;
  readonly aimAtPrimary?: boolean;
  /** The file is one of the catalog's, which marks it and makes snapshots of it. */
  readonly hasSnapshots?: boolean;
}

/** All servers, their disks, and what the observers know. */
export class SystemWorld {
  readonly world: World<SystemMessage>;
  readonly options: Required<Omit<SystemOptions, 'faults'>>;
  readonly subject: Subject;
  readonly disks = new Map<ServerId, SimulatedDisk>();
  readonly troubles: DiskTroubles;
  readonly observers: Observers;
  readonly snapshots: SnapshotCatalog | null;
  readonly processes = new Map<ServerId, ServerProcess>();
  /** Lives of all servers, in the order in which they began. */
  readonly lives: Incarnation[] = [];
  readonly marks = new Map<string, number>();
  /** How often something happened that a run is for. */
  readonly counts = {
    fetches: 0,
    unknownRetried: 0,
    /** Reads that were not answered at once. */
    waits: 0,
    moves: 0,
    /** Moments at which two servers held the lease: clocks out of bounds may do that. */
    twoHeld: 0,
  };
  readonly prng: Prng;
  /** Where the subject begins. */
  readonly firstView: View;
  /** Where the catalog would say that the replicas are. */
  catalogView: View;
  /** Directed runs: how long a disk step of a server takes. Absent: as the options say. */
  diskDelayMs: ((server: ServerId, kind: ReplicaAction['kind']) => number) | null = null;
  /** Directed runs: whether calls that happen at once get through. */
  reaches = (from: ServerId, to: ServerId): boolean => !this.world.isCut(from, to);
  /** The storm is over. */
  calm = false;
  /** Two holders of the lease are a violation. */
  leasesExclude = true;
  readonly #leftBehind = new Map<ServerId, Map<FileId, Preserved>>();
  readonly #processClocks: readonly ClockCourse[];
  #tickets = 0;

  constructor(options: SystemOptions) {
    const leaseMs = options.leaseMs ?? 1000;
    this.options = {
      replicas: options.servers,
      subject: fileSubject('first'),
      isMade: false,
      isBorne: false,
      agrees: false,
      resumes: false,
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
      hasSnapshots: false,
      ...options,
    };
    this.subject = this.options.subject;
    this.prng = new Prng(options.seed * 17 + 5);
    this.world = new World<SystemMessage>({
      seed: options.seed,
      servers: options.servers,
      boot: (server, incarnation) => this.#boot(server, incarnation),
      faults: options.faults ?? CALM,
      observe: () => this.#observe(),
      aim: () => (this.options.aimAtPrimary ? this.primary() : null),
      verbose: this.options.verbose,
    });
    const { ids } = this.world;
    this.#processClocks = ids.map(
      (_, index) =>
        new ClockCourse({
          seed: options.seed * 47 + index,
          limits: { offsetMaxMs: Infinity, slewMax: RATE_ERROR_MAX },
          beganMs: START_MS,
          given: null,
          record: null,
        }),
    );
    this.firstView = { number: 1, members: ids.slice(0, this.options.replicas) };
    this.catalogView = this.firstView;
    this.observers = new Observers(this.subject, this.catalogView, () => this.world.nowMs);
    this.troubles = new DiskTroubles(this);
    this.snapshots = this.options.hasSnapshots ? new SnapshotCatalog(this) : null;
    const { snapshots } = this;
    if (snapshots !== null) this.observers.onAcknowledged = (...change) => snapshots.acknowledged(...change);
    this.world.start();
  }

  get leaseTiming() {
    return { leaseMs: this.options.leaseMs, clockSkewMaxMs: this.options.clockSkewMaxMs };
  }

  /**
   * The clock by which a server's process counts spans. Shows something else than the lease clock, so that nobody
   * takes one for the other.
   */
  processMs(server: ServerId): number {
    const { world } = this;
    if (!this.options.clocksBroken) return world.clockMs(server) - START_MS / 2;
    const clock = this.#processClocks[world.ids.indexOf(server)];
    assert(clock !== undefined, 'Every server has a clock');
    return clock.readMs(world.nowMs);
  }

  /** Epochs of candidates leave room for the one of who has made or borne the subject. */
  get hasMaker(): boolean {
    return this.options.isMade || this.options.isBorne;
  }

  /** Who bears the subject, where anybody does. */
  get bearer(): ServerId {
    const last = this.firstView.members.at(-1);
    assert(last !== undefined, 'A subject is somewhere');
    return last;
  }

  /** To be asked at each start of a server: the subject is made once, by one life. */
  makes(server: ServerId): boolean {
    return this.options.isMade && this.#isFirstLife && server === this.bearer;
  }

  /** The same: where a catalog reserves numbers, the subject's is one life's. */
  hasNumber(): boolean {
    return this.snapshots === null || this.#isFirstLife;
  }

  get #isFirstLife(): boolean {
    return this.lives.length <= this.world.ids.length;
  }

  #boot(server: ServerId, incarnation: Incarnation): Process<SystemMessage> {
    this.lives.push(incarnation);
    const process = new ServerProcess(this, server, incarnation);
    this.processes.set(server, process);
    return process;
  }

  process(server: ServerId): ServerProcess {
    const process = this.processes.get(server);
    assert(process !== undefined, 'Every server was started');
    return process;
  }

  createDisk(server: ServerId, view: View): SimulatedDisk {
    const trust = this.troubles.trustOfNew(server);
    const disk = new SimulatedDisk(view, this.subject.empty(), trust, this.preservedAt(server));
    this.disks.set(server, disk);
    return disk;
  }

  /** The replica of the file goes, and nothing else that lies there. */
  removeDisk(server: ServerId): void {
    this.#leftBehind.set(server, this.preservedAt(server));
    this.disks.delete(server);
  }

  /** What a server has preserved of the file, also where it has no replica of it any more. */
  preservedAt(server: ServerId): Map<FileId, Preserved> {
    return this.disks.get(server)?.preserved ?? this.#leftBehind.get(server) ?? new Map();
  }

  preservesForGood(server: ServerId, as: FileId): boolean {
    return this.disks.get(server)?.preservesForGood(as) ?? this.preservedAt(server).has(as);
  }

  /** @returns the server that acts as primary, if one does */
  primary(): ServerId | null {
    for (const id of this.world.ids) {
      if (this.world.isUp(id) && this.process(id).replica?.role === 'active') return id;
    }
    return null;
  }

  /** Servers that hold the file's lease by their own clocks. */
  holders(): ServerId[] {
    return this.world.ids.filter(
      (id) => this.world.isUp(id) && this.process(id).host?.owns(CELL, this.world.clockMs(id)),
    );
  }

  ticket(): number {
    return ++this.#tickets;
  }

  mark(mark: string): void {
    assert(mark !== 'view-conflict', 'For one number of a view there is one member set');
    this.marks.set(mark, (this.marks.get(mark) ?? 0) + 1);
  }

  /**
   * At no moment may two servers act as primary, nor anybody answer reads that has not everything that is
   * committed: not even one that is paused, as it may go on any time. However wrong clocks are.
   */
  #observe(): void {
    if (this.options.leases === 'real') {
      const holders = this.holders().length;
      if (holders > 1) {
        this.counts.twoHeld++;
        if (this.leasesExclude) throw new Violation('Two hold the lease');
      }
    }
    let primary: ServerId | null = null;
    for (const id of this.world.ids) {
      if (!this.world.isUp(id)) continue;
      const process = this.process(id);
      if (!process.reads.mayServe()) continue;
      const disk = this.disks.get(id);
      assert(disk !== undefined, 'Who serves has a disk');
      this.observers.mayShow(id, disk.contents);
      if (process.replica?.role !== 'active') continue;
      if (primary !== null) throw new Violation(`${primary} and ${id} both serve`);
      primary = id;
    }
    this.troubles.look();
  }

  /** Whether all servers that vote hold the same and know it to be committed. */
  hasConverged(): boolean {
    let first: Position | null = null;
    for (const id of viewVoters(this.observers.view)) {
      const status = this.process(id).replica?.status(this.processMs(id));
      if (status === undefined || status.committedSeq !== status.seq) return false;
      first ??= status;
      if (!epochEqual(first.epoch, status.epoch) || first.seq !== status.seq) return false;
      if (this.process(id).replica?.inspect().issuedSeq !== status.seq) return false;
    }
    return first !== null && first.seq === this.observers.committedSeq;
  }

  // Directed runs ----------------------------------------------------------------------------------

  /**
   * Gives a server a scripted lease, or a longer one.
   *
   * @param view number of the view in which it was decided; absent: the one that the server goes by
   */
  grant(server: ServerId, durationMs: number, view?: number): void {
    const process = this.process(server);
    this.world.call(server, () => {
      process.open();
      process.lease(durationMs, view ?? process.replica?.inspect().view.number ?? 0);
    });
  }

  revoke(server: ServerId): void {
    this.world.call(server, () => this.process(server).lease(0, 0));
  }

  /** A client's change, straight to one server. @returns where its answer will be */
  change(server: ServerId, session: number, wish: Wish): Handle {
    const request = { session, number: 1, since: 0 };
    const key = requestKey(request, wish);
    const handle: Handle = { answer: null };
    this.observers.called(key, wish);
    this.world.call(server, () => {
      this.process(server).change(request, wish, (answer) => {
        handle.answer = answer;
        if (answer.kind === 'done') this.observers.answered(key, answer.answer, answer.seq, answer.segment);
        else if (answer.kind === 'refused') this.observers.refused(key);
      });
    });
    return handle;
  }

  /** The same request again, of which the history knows already. */
  retry(server: ServerId, session: number, wish: Wish): Handle {
    const handle: Handle = { answer: null };
    this.world.call(server, () => {
      this.process(server).change({ session, number: 1, since: 0 }, wish, (answer) => {
        handle.answer = answer;
      });
    });
    return handle;
  }

  /** A client's read, straight to one server. */
  read(server: ServerId, what: string): Handle {
    const callMs = this.world.nowMs;
    const handle: Handle = { answer: null };
    this.world.call(server, () => {
      this.process(server).reads.read(what, (answer) => {
        handle.answer = answer;
        if (answer.kind === 'value') this.observers.looked(what, answer.value, callMs, answer);
      });
    });
    return handle;
  }

  /** The subject comes as a whole, to who is to bear it. */
  bear(wish: Parameters<BirthCourse['bear']>[0], session: number): void {
    const { bearer, world } = this;
    if (world.isUp(bearer)) world.call(bearer, () => this.process(bearer).births.bear(wish, session));
  }

  flush(server: ServerId): Handle {
    return this.#ask(server, (process, reply) => process.flushAll(reply));
  }

  seal(server: ServerId): Handle {
    return this.#ask(server, (process, reply) => process.seal(reply));
  }

  /** An order to move the replicas, straight to one server. */
  move(server: ServerId, members: readonly ServerId[]): Handle {
    return this.#ask(server, (process, reply) => process.move(members, reply));
  }

  #ask(server: ServerId, ask: (process: ServerProcess, reply: (answer: Answer) => void) => void): Handle {
    const handle: Handle = { answer: null };
    this.world.call(server, () => {
      ask(this.process(server), (answer) => {
        handle.answer = answer;
      });
    });
    return handle;
  }
}
