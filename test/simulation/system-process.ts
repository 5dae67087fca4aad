/** One life of a server in the system simulation: the two cores, glued together as the server does it. */
import { assert } from '../../base/assert.ts';
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import { LeaseHost } from '../../lease/host.ts';
import type { ReplicaAction, ReplicaConfig, ReplicaEvent, Role } from '../../replica/actions.ts';
import { firstEpoch } from '../../replica/birth.ts';
import { decodeReplicaMessage } from '../../replica/codec.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import { epochEqual, epochFormat } from '../../replica/epoch.ts';
import { assertReplica, assertStep } from '../../replica/invariants.ts';
import { messageView, type ReplicaMessage } from '../../replica/messages.ts';
import type { RequestId } from '../../replica/operation.ts';
import { Replica } from '../../replica/replica.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import { BIRTH_LENGTH } from '../../server/file/borne-file.ts';
import { encodeFileOperation, type FileOperation } from '../../wire/file-operation.ts';
import type { SimulatedDisk } from './disk-simulated.ts';
import { AgreementCourse } from './system-agreement.ts';
import { BirthCourse } from './system-birth.ts';
import {
  type Contents,
  type Orderer,
  requestKey,
  resultAnswer,
  resultEncode,
  sealRequest,
  type Wish,
} from './system-contents.ts';
import { FileContents } from './system-file.ts';
import { MarkCourse } from './system-marks.ts';
import { type Answer, FILE, Frame, type Reply, Snapshot, type SystemMessage } from './system-messages.ts';
import { READ_WAIT_MS, ReadCourse } from './system-reads.ts';
import { ObjectCare } from './system-rot.ts';
import { doneBefore, isFinal, SealCourse, type SealedStore } from './system-seal.ts';
import type { SystemWorld } from './system-world.ts';
import type { Process } from './world.ts';

export const CELL: CellId = FILE;
const FETCH_TIMEOUT_MS = 150;
/** A replica that nobody used for so many leases is forgotten until it is used again. */
const IDLE_LEASES = 0.5;
/** Whoever waits for a commit to end a mark looks again after so long. */
const MARK_LOOK_MS = 2;
/** Number of the view in which a subject begins. */
const FIRST_VIEW = 1;

export class ServerProcess implements Process<SystemMessage> {
  readonly #system: SystemWorld;
  readonly #id: ServerId;
  readonly #config: ReplicaConfig;
  readonly #startedMs: number;
  readonly care: ObjectCare;
  readonly births: BirthCourse;
  readonly agreement: AgreementCourse;
  readonly reads: ReadCourse;
  host: LeaseHost | null;
  replica: Replica | null = null;
  /** As the actions tell it: a step may commit and step down. */
  #role: Role = 'backup';
  /** By which view the lease is wanted here; null while nobody uses the file here. */
  #opened: View | null = null;
  /** Otherwise a replica stops because it is out, or cannot lead: then the lease is wanted no more. */
  #stopAsked = false;
  #diskFailed = false;
  /** Where an epoch of this life has ended, of which no replica here was told. */
  #ended: Position | null = null;
  /** Marks that were asked of the catalog. */
  #turns = 0;
  readonly #tickets = new Map<number, Reply>();
  /** What a flush under way is for. */
  readonly #flushes = new Map<number, number>();
  /** Of the epoch that is led from here. */
  #seal: SealCourse | null = null;
  #marks: MarkCourse | null = null;
  #orderer: Orderer | null = null;
  /** The epoch that it is for. */
  #orderedEpoch: Epoch | null = null;
  #diskBusyUntilMs = 0;
  #diskReportMs = 0;
  /** Steps of the disk under way. */
  #diskSteps = 0;
  /** When a client, or a primary or candidate, last used the replica here. */
  #usedMs = -Infinity;
  /** By what the last replica here was bound that was removed. */
  #boundUntilMs = -Infinity;
  #fetches = 0;
  #fetchEpoch: Epoch | null = null;
  #staged: Contents | null = null;
  /** `last`: one operation at a time, because the next is resolved against the applied state. */
  readonly #queue: (() => void)[] = [];
  #underWay: number | null = null;
  #queueWaits = false;
  /** Of each peer, the number of the latest life that it was heard in. */
  readonly #heardLives = new Map<ServerId, number>();
  #stepping = false;
  readonly #events: ReplicaEvent[] = [];

  constructor(system: SystemWorld, id: ServerId, incarnation: Incarnation) {
    this.#system = system;
    this.#id = id;
    this.care = new ObjectCare(system, id);
    const { options } = system;
    this.births = new BirthCourse(system, {
      id,
      incarnation,
      send: (to, message) => system.world.send(id, to, message),
      store: (done) => this.#storeBirth(done),
      named: () => {
        const place = { epoch: firstEpoch(id, incarnation), seq: BIRTH_LENGTH };
        if (this.replica === null) this.#ended = place;
        else this.step({ kind: 'ended', place });
      },
    });
    this.agreement = new AgreementCourse(system, {
      id,
      incarnation,
      send: (to, message) => system.world.send(id, to, message),
      isFree: () => this.#isFree,
      sync: (done) => this.#syncHere(done),
    });
    this.reads = new ReadCourse(system, {
      id,
      care: this.care,
      agreement: this.agreement,
      replica: () => this.replica,
      isPrimary: () => this.#role === 'active',
      nowMs: () => this.#processMs,
      final: () => this.#final,
      open: () => this.open(),
      step: (event) => this.step(event),
      hint: () => this.#hint(),
    });
    this.#startedMs = this.#processMs;
    this.#config = {
      self: id,
      incarnation,
      appliesAtPrimary: system.subject.appliesAtPrimary,
      heartbeatMs: options.leaseMs / 10,
      quietHeartbeatMs: options.leaseMs / 4,
      silentMs: options.leaseMs / 2,
      readLeaseMs: options.readLeaseMs,
      startGuardUntilMs: this.#startedMs + options.startGuardMs,
      candidatesFrom: system.hasMaker ? 2 : 1,
      mayBeginLost: false,
      retainedBytesMax: options.retainedBytesMax,
    };
    this.host = options.leases === 'real' ? this.#makeHost() : null;
    this.#start(null);
    if (system.makes(id)) system.world.later(id, 0, () => this.#make());
  }

  /** The server has made the subject, as the catalog's primary does, and wants to lead it. */
  #make(): void {
    this.open();
    this.step({ kind: 'made' });
  }

  #makeHost(): LeaseHost {
    const { self, incarnation } = this.#config;
    const knownView = () => {
      const here = this.#system.disks.get(this.#id)?.record.view;
      const departed = this.#system.troubles.departedBy(this.#id);
      const view = here !== undefined && here.number > (departed?.number ?? 0) ? here : departed;
      return view === null || view.number === FIRST_VIEW ? null : this.#leaseView(view);
    };
    return new LeaseHost({ self, incarnation, knownView, ...this.#system.leaseTiming }, this.#leaseMs);
  }

  /** The lease clock, which may be wrong in any way. */
  get #leaseMs(): number {
    return this.#system.world.clockMs(this.#id);
  }

  /** The clock of the process, by which all spans are counted. Only its rate is wrong, and within bounds. */
  get #processMs(): number {
    return this.#system.processMs(this.#id);
  }

  // Process ----------------------------------------------------------------------------------------

  message(from: ServerId, message: SystemMessage): void {
    switch (message.kind) {
      case 'lease':
        this.#lease({ kind: 'frame', from, envelope: message.envelope, messages: message.messages });
        return;
      case 'replica': {
        const decoded = decodeReplicaMessage(message.frame.bytes).message;
        if (this.#isOver(from, decoded.incarnation)) return;
        // What a primary hears from its backups is no use of the file.
        if (messageView(decoded) !== null) this.#usedMs = this.#system.world.nowMs;
        if (this.replica === null) this.#admit(decoded);
        this.step({ kind: 'message', from, message: decoded });
        return;
      }
      case 'birth':
      case 'birth-stored': {
        const { incarnation } = message.kind === 'birth' ? message.epoch : message;
        if (!this.#isOver(from, incarnation)) this.births.take(from, message);
        return;
      }
      case 'agree':
      case 'agreed':
        this.agreement.take(from, message);
        return;
      case 'fetch':
        this.#serveState(from, message.id, message.epoch);
        return;
      case 'state':
        this.#takeState(from, message.id, message.snapshot);
        return;
    }
  }

  /** Once the transport has heard a new life of a peer, it brings nothing of a former one any more. */
  #isOver(from: ServerId, incarnation: Incarnation): boolean {
    const life = this.#system.lives.indexOf(incarnation);
    if (life < (this.#heardLives.get(from) ?? 0)) return true;
    this.#heardLives.set(from, life);
    return false;
  }

  tick(): void {
    this.#lease({ kind: 'tick' });
    this.step({ kind: 'tick' });
  }

  nextWakeMs(): number | null {
    const replicaMs = this.replica?.nextWakeMs() ?? Infinity;
    const leaseMs = replicaMs === Infinity ? Infinity : this.#leaseMs + (replicaMs - this.#processMs);
    const firstMs = Math.min(this.host?.nextWakeMs() ?? Infinity, leaseMs);
    return firstMs === Infinity ? null : firstMs;
  }

  /** A replica that does not exist is made where a view names this server, or a primary wants it to learn. */
  #admit(message: ReplicaMessage): void {
    const view = messageView(message);
    if (view === null || this.births.isStoring) return;
    if (viewVoters(view).includes(this.#id) || message.kind === 'install') this.#start(view);
  }

  /** Makes the replica from what is on disk, or an empty one of a view that was told. */
  #start(view: View | null): void {
    const disk = this.#system.disks.get(this.#id) ?? (view && this.#system.createDisk(this.#id, view));
    if (disk === null || disk === undefined) return;
    this.replica = this.#begin(Math.max(this.#config.startGuardUntilMs, this.#boundUntilMs));
    const place = this.#ended;
    this.#ended = null;
    if (place !== null) this.step({ kind: 'ended', place });
  }

  /** The replica is about to be removed. @returns whether that can be: nobody uses it, and nothing is under way */
  leave(): boolean {
    const { replica } = this;
    const { world, options } = this.#system;
    // One that is in use is about to become a member, or others still learn from it.
    if (world.nowMs - this.#usedMs < IDLE_LEASES * options.leaseMs) return false;
    if (replica === null || replica.role !== 'backup' || this.#diskSteps > 0 || this.#stepping) return false;
    this.#boundUntilMs = replica.boundUntilMs;
    this.replica = null;
    this.#fetchEpoch = null;
    this.#closeLease();
    return true;
  }

  #begin(startGuardUntilMs: number): Replica {
    const { record } = this.#disk;
    const trust = this.care.trust(this.#disk.trust);
    return new Replica({ ...this.#config, startGuardUntilMs }, FILE, record, trust, this.#processMs);
  }

  // Lease ------------------------------------------------------------------------------------------

  /** Somebody uses the file here: this server is willing to be its primary, if it votes. */
  open(): void {
    this.#usedMs = this.#system.world.nowMs;
    if (this.replica === null) {
      const { catalogView } = this.#system;
      if (this.births.isStoring) return;
      if (!viewVoters(catalogView).includes(this.#id)) return;
      this.#start(catalogView);
    }
    // It has found out that it is no member any more: asking for the lease would keep it from those who are.
    if (this.replica !== null && this.replica.status(0).outside !== null) return;
    const view = this.replica?.inspect().view;
    if (view !== undefined && this.#opened === null && viewVoters(view).includes(this.#id))
      this.#openLease(view);
  }

  #openLease(view: View): void {
    this.#opened = view;
    this.#lease({ kind: 'open', cell: CELL, ...this.#leaseView(view), handicapMs: 0 });
  }

  #closeLease(): void {
    this.#opened = null;
    this.#lease({ kind: 'close', cell: CELL });
  }

  /** The members change: the lease goes by the new view, and is given up where this server is out. */
  #follow(view: View): void {
    if (this.#opened !== null && viewVoters(view).includes(this.#id)) {
      this.#openLease(view);
      return;
    }
    if (this.#opened !== null) {
      // A primary that is out gives its lease back when it has stopped.
      if (this.host?.view(CELL, this.#leaseMs).own !== false) return;
      this.#closeLease();
    }
    this.#lease({ kind: 'view', cell: CELL, ...this.#leaseView(view) });
  }

  /** Whoever is out by a view still votes by the one before, as the server's lease driver has it. */
  #leaseView({ number, members, joint }: View) {
    if (!viewVoters({ number, members, ...(joint === undefined ? {} : { joint }) }).includes(this.#id)) {
      return { view: number - 1, members };
    }
    return { view: number, members, ...(joint === undefined ? {} : { joint }) };
  }

  #lease(event: Parameters<LeaseHost['step']>[0]): void {
    if (this.host === null) return;
    for (const action of this.host.step(event, this.#leaseMs)) {
      switch (action.kind) {
        case 'send': {
          const envelope = this.host.envelope(action.to, this.#leaseMs);
          this.#system.world.send(this.#id, action.to, {
            kind: 'lease',
            envelope,
            messages: [action.message],
          });
          break;
        }
        case 'held': {
          const untilMs = this.#processMs + (action.untilMs - this.#leaseMs);
          this.step({ kind: 'lease', untilMs, view: action.view });
          break;
        }
        case 'lost':
          this.step({ kind: 'lease', untilMs: 0, view: 0 });
          break;
        case 'trace':
          this.#system.world.note(this.#id, `${action.mark} (${action.detail})`);
          break;
        case 'learned':
        case 'answered':
        case 'claimed':
          break;
      }
    }
  }

  /** A scripted lease of so long, decided in the view with this number; 0 ends it. */
  lease(durationMs: number, view: number): void {
    this.step({ kind: 'lease', untilMs: durationMs === 0 ? 0 : this.#processMs + durationMs, view });
  }

  /** An orderly end of primaryship; the lease is given back when it is done. */
  stop(): void {
    this.#stopAsked = true;
    this.step({ kind: 'stop' });
  }

  /** Nobody uses the file here: a primary gives it back, and nobody wants the lease. */
  rest(): void {
    if (this.#role === 'active' || this.#role === 'beginning' || this.#role === 'resumed')
      this.step({ kind: 'stop' });
    else if (this.#role === 'backup' && this.#opened !== null) this.#closeLease();
  }

  /** What arrives while actions are carried out waits until they are. */
  step(event: ReplicaEvent): void {
    if (this.#stepping) {
      this.#events.push(event);
      return;
    }
    this.#stepping = true;
    let next: ReplicaEvent | undefined = event;
    while (next !== undefined) {
      const { replica } = this;
      const { observers } = this.#system;
      if (replica === null) break;
      const before = replica.inspect();
      const actions = replica.step(next, this.#processMs);
      // After a majority lost power, what was known to be committed may be gone, and no more than that is known.
      if (observers.neverForgot) assertStep(before, replica.inspect());
      else assertReplica(replica.inspect());
      for (const action of actions) this.#act(action);
      // Not before all that the step says has been heard: it may have committed more than its first words say.
      this.reads.retryIfDue();
      next = this.#events.shift();
    }
    this.#stepping = false;
  }

  // Actions of the replica -------------------------------------------------------------------------

  #act(action: ReplicaAction): void {
    const { world, observers } = this.#system;
    switch (action.kind) {
      case 'send':
        world.send(this.#id, action.to, { kind: 'replica', frame: new Frame(action.message) });
        return;
      case 'promise':
        this.#store(action.kind, () => this.#disk.promise(action.epoch), {
          kind: 'promised',
          epoch: action.epoch,
        });
        return;
      case 'apply':
        this.#orderer?.noteOrdered(action.operation);
        if (action.operation.request !== null) this.#marks?.ordered(action.seq);
        this.#store(
          action.kind,
          () => this.#apply(action),
          { kind: 'applied', epoch: action.epoch, seq: action.seq },
          () => this.care.mayApply(action.operation),
        );
        return;
      case 'install':
        this.#install(action);
        return;
      case 'begin':
        this.#store(action.kind, () => this.#disk.begin(action.epoch), {
          kind: 'begun',
          epoch: action.epoch,
        });
        return;
      case 'flush-local':
        this.#flushLocal();
        return;
      case 'fetch-state':
        this.#fetch(action.epoch, action.from);
        return;
      case 'committed':
        this.#finish(action.ticket, {
          kind: 'done',
          seq: action.seq,
          answer: resultAnswer(action.result),
          segment: observers.segment,
        });
        return;
      case 'refused':
        this.#finish(action.ticket, { kind: 'refused', hint: this.#hint() });
        return;
      case 'unknown':
        this.#finish(action.ticket, { kind: 'unknown' });
        return;
      case 'flushed':
        observers.flushed(this.#flushes.get(action.ticket) ?? 0);
        this.#finish(action.ticket, { kind: 'flushed' });
        return;
      case 'members-changed':
        this.#finish(action.ticket, { kind: 'moved' });
        return;
      case 'view-changed':
        this.#follow(action.view);
        return;
      case 'advanced':
        this.#onAdvanced(action.committedSeq);
        return;
      case 'role-changed':
        world.note(this.#id, `is ${action.role} of ${epochFormat(action.epoch)}`);
        this.#role = action.role;
        this.#seal?.close();
        this.#seal = null;
        this.#beginOrder(action.epoch);
        if (action.role === 'active') {
          observers.activated(action.epoch, this.#contents);
          this.#beginSeal();
        }
        this.reads.due();
        return;
      case 'stopped':
        // Not from within the step that stopped.
        world.later(this.#id, 0, () => {
          this.#lease({ kind: 'release', cell: CELL });
          if (this.replica === null) return;
          if (!this.#stopAsked) this.#closeLease();
          this.#stopAsked = false;
        });
        return;
      case 'trace':
        world.note(this.#id, `${action.mark} (${action.detail})`);
        this.#system.mark(action.mark);
        return;
    }
  }

  /** Operations are resolved against those before them in the epoch, also where they began before it was active. */
  #beginOrder(epoch: Epoch): void {
    if (!this.#orders) this.#closeMarks();
    const isNew = this.#orderedEpoch === null || !epochEqual(this.#orderedEpoch, epoch);
    if (this.#orders && isNew) {
      this.#orderedEpoch = epoch;
      this.#orderer = this.#system.subject.orderer(this.#contents);
    }
    if (this.#orders && (isNew || this.#marks === null)) this.#beginMarks(epoch);
  }

  get #orders(): boolean {
    return this.#role === 'beginning' || this.#role === 'active' || this.#goesOn;
  }

  /** Changes are ordered here without a lease, or would be. */
  get #goesOn(): boolean {
    if (!this.#system.options.resumes || this.replica === null) return false;
    return this.#role === 'resumed' || (this.#role === 'backup' && this.replica.resumable !== null);
  }

  /** Whoever uses the file here wants to lead it, unless that is not needed. */
  #openToOrder(): void {
    if (this.replica === null && this.#ended !== null) this.#start(null);
    if (!this.#goesOn || this.replica === null) {
      this.open();
      return;
    }
    this.#usedMs = this.#system.world.nowMs;
    this.#beginOrder(this.replica.epoch);
  }

  #onAdvanced(committedSeq: number): void {
    const { observers } = this.#system;
    const isOrderer = this.#role === 'active' || this.#role === 'stopping' || this.#role === 'resumed';
    if (isOrderer) observers.committed(this.#id, committedSeq, this.#contents);
    else observers.heardCommitted(this.#id, committedSeq, this.#contents);
    this.reads.due();
  }

  get #contents(): Contents {
    return this.#disk.contents;
  }

  get #disk(): SimulatedDisk {
    const disk = this.#system.disks.get(this.#id);
    assert(disk !== undefined, 'A replica has a disk');
    return disk;
  }

  // Disk -------------------------------------------------------------------------------------------

  /**
   * Does something to the disk after a while and reports it after another; steps take effect in
   * order. A crash before the first moment loses it, a crash between the two only the report.
   */
  #store(
    kind: ReplicaAction['kind'],
    effect: () => void,
    event: ReplicaEvent,
    mayBegin: () => boolean = () => true,
  ): void {
    const { world, prng, options, diskDelayMs, troubles } = this.#system;
    if (prng.chance(options.diskFailure)) {
      this.#failDisk();
      return;
    }
    const drawnMs = options.diskMinMs + prng.next() * (options.diskMaxMs - options.diskMinMs);
    const durationMs = diskDelayMs?.(this.#id, kind) ?? troubles.durationMs(this.#id, drawnMs);
    const doneMs = Math.max(this.#diskBusyUntilMs, world.nowMs) + durationMs;
    this.#diskBusyUntilMs = doneMs;
    this.#diskSteps++;
    world.later(this.#id, doneMs - world.nowMs, () => {
      this.#diskSteps--;
      if (this.#diskFailed) return;
      if (kind !== 'promise' && troubles.isFull(this.#id)) {
        troubles.counts.fullDisks++;
        this.#beginAnew('no room', () => !troubles.isFull(this.#id));
        return;
      }
      if (!mayBegin()) {
        this.#beginAnew('damaged', () => true);
        return;
      }
      effect();
      this.#diskReportMs = Math.max(this.#diskReportMs, world.nowMs + durationMs * prng.next() * 0.5);
      this.#diskSteps++;
      world.later(this.#id, this.#diskReportMs - world.nowMs, () => {
        this.#diskSteps--;
        if (!this.#diskFailed) this.step(event);
      });
    });
  }

  /** A replica of its own, of which the core hears when it is taken into use. */
  #storeBirth(done: (works: boolean) => void): void {
    const { world, prng, options, troubles } = this.#system;
    const drawnMs = options.diskMinMs + prng.next() * (options.diskMaxMs - options.diskMinMs);
    world.later(this.#id, troubles.durationMs(this.#id, drawnMs), () => {
      done(!this.#diskFailed && !troubles.isFull(this.#id));
    });
  }

  #failDisk(): void {
    const { world } = this.#system;
    if (this.#diskFailed) return;
    this.#diskFailed = true;
    // As a driver reports it: later, and not from within the step that gave the order.
    world.later(this.#id, 1, () => this.step({ kind: 'storage-failed', reason: 'simulated' }));
    world.later(this.#id, 300, () => {
      world.crash(this.#id);
      world.restart(this.#id);
    });
  }

  /** The disk refuses, because it has no room, say: the replica fails, and begins anew in the same process. */
  #beginAnew(reason: string, isOver: () => boolean): void {
    const { world } = this.#system;
    this.#diskFailed = true;
    world.later(this.#id, 1, () => this.step({ kind: 'storage-failed', reason }));
    const renew = () => {
      if (this.#diskSteps > 0 || !isOver()) {
        world.later(this.#id, 50, renew);
        return;
      }
      this.#diskFailed = false;
      this.#fetchEpoch = null;
      this.#role = 'backup';
      // What the core before it promised by its guard, or let others read, it does not know.
      const boundUntilMs = this.replica?.boundUntilMs ?? -Infinity;
      this.replica = this.#begin(Math.max(this.#config.startGuardUntilMs, boundUntilMs));
      const remainingMs = this.host?.view(CELL, this.#leaseMs);
      if (remainingMs?.own === true) {
        this.step({ kind: 'lease', untilMs: this.#processMs + remainingMs.remainingMs, view: 0 });
      }
    };
    world.later(this.#id, 50, renew);
  }

  #apply(action: Extract<ReplicaAction, { kind: 'apply' }>): void {
    const { epoch, seq, operation, sessions } = action;
    const disk = this.#disk;
    const before = disk.preserved.size;
    disk.apply(epoch, seq, operation, sessions);
    this.#system.observers.stored(this.#id, disk);
    const last = disk.preserved.size > before ? [...disk.preserved.values()].at(-1) : undefined;
    if (last !== undefined) this.#system.snapshots?.stored(this.#id, last.as, last.text);
  }

  #install(action: Extract<ReplicaAction, { kind: 'install' }>): void {
    const { epoch, seq, view, sessions, fetched } = action;
    const staged = this.#staged;
    this.#staged = null;
    assert(!fetched || staged !== null, 'What is installed was fetched');
    const effect = () => {
      const contents = fetched ? staged : null;
      this.#disk.install({ installed: epoch, seq, view, sessions }, contents);
      if (fetched) this.care.tookOver();
      this.#system.observers.stored(this.#id, this.#disk);
    };
    this.#store(action.kind, effect, { kind: 'installed', epoch, seq });
  }

  #flushLocal(): void {
    const { seq, installed } = this.#disk.record;
    const effect = () => this.#disk.synced(installed, seq);
    this.#store('flush-local', effect, { kind: 'flush-done', seq });
  }

  /** Not for the replica, which does not hear of it. */
  #syncHere(done: () => void): void {
    const { seq, installed } = this.#disk.record;
    this.#storeBirth((works) => {
      if (!works) return;
      this.#disk.synced(installed, seq);
      done();
    });
  }

  #fetch(epoch: Epoch, from: ServerId): void {
    const id = ++this.#fetches;
    this.#fetchEpoch = epoch;
    this.#system.world.send(this.#id, from, { kind: 'fetch', id, epoch });
    this.#system.world.later(this.#id, FETCH_TIMEOUT_MS, () => {
      if (id !== this.#fetches || this.#fetchEpoch === null) return;
      this.#fetchEpoch = null;
      this.step({ kind: 'state-failed', epoch, reason: 'no answer' });
    });
  }

  /** A state is told only to whom it was promised to stand still for. */
  #serveState(to: ServerId, id: number, epoch: Epoch): void {
    const disk = this.#system.disks.get(this.#id);
    if (disk === undefined || !epochEqual(disk.record.promised, epoch)) return;
    this.#usedMs = this.#system.world.nowMs;
    this.#system.world.send(this.#id, to, { kind: 'state', id, snapshot: new Snapshot(disk) });
  }

  #takeState(from: ServerId, id: number, snapshot: Snapshot): void {
    const epoch = this.#fetchEpoch;
    if (id !== this.#fetches || epoch === null) return;
    this.#fetchEpoch = null;
    const { position, view, sessions, contents: fetched } = snapshot;
    const contents = fetched instanceof FileContents ? this.care.takeOver(from, fetched) : fetched;
    if (contents === null) {
      this.step({ kind: 'state-failed', epoch, reason: 'no replica has it whole' });
      return;
    }
    this.#staged = contents;
    this.#system.counts.fetches++;
    this.step({ kind: 'state-fetched', epoch, position, view, sessions });
  }

  // Marks and snapshots ----------------------------------------------------------------------------

  #closeMarks(): void {
    this.#marks?.close();
    this.#marks = null;
  }

  #beginMarks(epoch: Epoch): void {
    const { snapshots, world } = this.#system;
    const contents = this.#contents;
    this.#closeMarks();
    if (snapshots === null || !(contents instanceof FileContents)) return;
    const submit = (operation: FileOperation): void => {
      const ticket = this.#ticket(() => undefined);
      const result = resultEncode(`${operation.kind} ${ticket}`, '');
      this.step({
        kind: 'submit',
        ticket,
        operation: { request: null, result, body: encodeFileOperation(operation) },
      });
    };
    const committed = (seq: number, done: (isSo: boolean) => void): void => {
      const { replica } = this;
      if (this.#marks !== marks || replica === null) done(false);
      else if (this.#isCommitted(replica, seq)) done(true);
      else if (!this.#orders) done(false);
      else world.later(this.#id, MARK_LOOK_MS, () => committed(seq, done));
    };
    const marks = new MarkCourse({
      self: this.#id,
      epoch: epoch.counter,
      inheritedFrom: this.replica?.inheritedFrom ?? null,
      attributes: () => (this.#contents as FileContents).attributes,
      orderedSeq: () => this.replica?.orderedSeq ?? 0,
      leads: () => {
        if (this.#role !== 'active') this.open();
        return this.#role === 'active';
      },
      isMoving: () => this.#disk.record.view.joint !== undefined,
      nextTurn: () => ++this.#turns,
      submit,
      committed,
      flush: (done) => this.flush((answer) => done(answer.kind === 'flushed')),
      preserved: (as) => this.#disk.preserved.get(as) ?? null,
      holds: (member, as, done) => snapshots.holds(this.#id, member, as, done),
      ask: (command, done) => snapshots.ask(this.#id, command, done),
      flushCatalog: (done) => snapshots.flush(this.#id, done),
    });
    this.#marks = marks;
  }

  /** The catalog is told all that is known here, and asked before the next change. */
  settle(done: (settled: boolean) => void): void {
    this.#openToOrder();
    if (this.#marks !== null && (this.#role === 'active' || this.#goesOn)) this.#marks.settle(done);
  }

  #isCommitted(replica: Replica, seq: number): boolean {
    if (!this.#goesOn) return replica.readGate(seq, this.#processMs) === 'serve';
    return replica.status(this.#processMs).committedSeq >= seq;
  }

  // Seal -------------------------------------------------------------------------------------------

  #beginSeal(): void {
    if (!(this.#contents instanceof FileContents)) return;
    const course = new SealCourse({
      seal: () => this.#contents.seal,
      submit: (final, done) => this.#submitSeal(final, done),
      flush: (done) => this.flush((answer) => done(answer.kind === 'flushed')),
    });
    this.#seal = course;
    if (this.#contents.seal !== 'sealed') return;
    // The primary before this one ended between the two seals. Not within the step that began this one.
    this.#system.world.later(this.#id, 0, () => {
      if (this.#seal === course) course.run(() => undefined);
    });
  }

  #submitSeal(final: boolean, done: (committed: boolean) => void): void {
    const ticket = this.#ticket((answer) => done(answer.kind === 'done'));
    const name = sealRequest(final ? 'final' : 'sealed', ticket);
    this.step({
      kind: 'submit',
      ticket,
      operation: {
        request: null,
        result: resultEncode(name, ''),
        body: encodeFileOperation({ kind: 'seal', final }),
      },
    });
  }

  /** What lies here, if it is a file that was sealed finally. */
  get #final(): SealedStore | null {
    const disk = this.#system.disks.get(this.#id);
    if (disk === undefined || !(disk.contents instanceof FileContents)) return null;
    const store = { record: disk.record, contents: disk.contents };
    return isFinal(FILE, store) ? store : null;
  }

  #sealed(): Answer {
    return { kind: 'sealed', segment: this.#system.observers.segment };
  }

  /** Nothing changes the file from then on. */
  seal(reply: Reply): void {
    if (this.#final !== null) {
      reply(this.#sealed());
      return;
    }
    this.open();
    if (this.#seal === null) reply({ kind: 'refused', hint: this.#hint() });
    else this.#seal.run((isFinal) => reply(isFinal ? this.#sealed() : { kind: 'unknown' }));
  }

  /** A request to change what is sealed: what was done before is answered once more. */
  #answerSealed(store: SealedStore, request: RequestId, reply: Reply): void {
    const { troubles, observers } = this.#system;
    const before = doneBefore(FILE, store, request);
    if (before?.kind !== 'known') {
      reply(before === null ? this.#sealed() : { kind: 'unknown' });
      return;
    }
    troubles.seal.sealedRetries++;
    const { seq, result } = before;
    reply({ kind: 'done', seq, answer: resultAnswer(result), segment: observers.segment });
  }

  // Clients ----------------------------------------------------------------------------------------

  change(request: RequestId, wish: Wish, reply: Reply): void {
    const final = this.#final;
    if (final !== null) {
      this.#answerSealed(final, request, reply);
      return;
    }
    this.#openToOrder();
    if (this.#config.appliesAtPrimary === 'first') {
      this.#submit(request, wish, reply);
      return;
    }
    this.#queue.push(() => this.#submit(request, wish, reply));
    this.#nextInQueue();
  }

  #nextInQueue(): void {
    while (this.#underWay === null) {
      // A change of members has a place in the order, too: nothing is resolved before it is applied.
      const { replica } = this;
      if (replica !== null && this.#orders && replica.orderedSeq > replica.inspect().seq) {
        this.#waitInQueue();
        return;
      }
      const next = this.#queue.shift();
      if (next === undefined) return;
      next();
    }
  }

  #waitInQueue(): void {
    if (this.#queueWaits) return;
    this.#queueWaits = true;
    this.#system.world.later(this.#id, 2, () => {
      this.#queueWaits = false;
      this.#nextInQueue();
    });
  }

  #submit(request: RequestId, wish: Wish, reply: Reply): void {
    const course = this.#seal;
    if (course === null) {
      this.#submitMarked(request, wish, reply);
      return;
    }
    course.admit((sealed) => {
      const { contents, record } = this.#disk;
      if (sealed === null) {
        reply({ kind: 'unknown' });
      } else if (!sealed) {
        course.began();
        this.#submitMarked(request, wish, (answer) => {
          reply(answer);
          course.ended();
        });
      } else if (contents instanceof FileContents) {
        const before = doneBefore(FILE, { record, contents }, request);
        if (before === null) {
          reply(this.#sealed());
          return;
        }
        this.#system.troubles.seal.sealedRetries++;
        this.#submitAdmitted(request, wish, reply);
      }
    });
  }

  /** Where the catalog has to be asked before the file changes, it is. */
  #submitMarked(request: RequestId, wish: Wish, reply: Reply): void {
    const marks = this.#marks;
    if (marks === null) {
      this.#submitAdmitted(request, wish, reply);
      return;
    }
    marks.admit((admitted) => {
      if (!admitted) {
        reply({ kind: 'refused', hint: this.#hint() });
        return;
      }
      marks.began();
      this.#submitAdmitted(request, wish, (answer) => {
        reply(answer);
        // Not within the step that answered: what follows has to see what it ordered.
        this.#system.world.later(this.#id, 0, () => marks.ended());
      });
    });
  }

  #submitAdmitted(request: RequestId, wish: Wish, reply: Reply): void {
    if (this.replica === null || this.#orderer === null || !this.#orders) {
      reply({ kind: 'refused', hint: this.#hint() });
      return;
    }
    const key = requestKey(request, wish);
    const { body, answer } = this.#orderer.resolve(request, wish, this.#leaseMs);
    if (body === null) {
      this.#answerKnown(key, answer, reply);
      return;
    }
    const ticket = this.#ticket(reply);
    if (this.#config.appliesAtPrimary === 'last') this.#underWay = ticket;
    const named = this.#system.subject.keepsSessions ? null : request;
    this.step({
      kind: 'submit',
      ticket,
      operation: { request: named, result: resultEncode(key, answer), body },
    });
  }

  /** The subject remembers that it was done. */
  #answerKnown(key: string, answer: string, reply: Reply): void {
    const seq = 1 + this.#contents.log.findIndex(({ request }) => request === key);
    if (this.replica?.leads(this.#processMs) !== true || seq === 0) reply({ kind: 'unknown' });
    else reply({ kind: 'done', seq, answer, segment: this.#system.observers.segment });
  }

  #ticket(reply: Reply): number {
    const ticket = this.#system.ticket();
    this.#tickets.set(ticket, reply);
    return ticket;
  }

  #finish(ticket: number, answer: Answer): void {
    this.#tickets.get(ticket)?.(answer);
    this.#tickets.delete(ticket);
    this.#flushes.delete(ticket);
    if (this.#underWay !== ticket) return;
    this.#underWay = null;
    // Not within the step that answered.
    this.#system.world.later(this.#id, 0, () => this.#nextInQueue());
  }

  flush(reply: Reply): void {
    this.open();
    if (this.replica === null) {
      reply({ kind: 'refused', hint: null });
      return;
    }
    const ticket = this.#ticket(reply);
    this.#flushes.set(ticket, this.replica.status(this.#processMs).committedSeq);
    this.step({ kind: 'flush', ticket });
  }

  /** As `flush`, for a client: where nobody leads, a majority syncs what it agrees about. */
  flushAll(reply: Reply): void {
    const { snapshots, options, world } = this.#system;
    const giveUp =
      !options.agrees || snapshots !== null || this.reads.mayServe()
        ? null
        : this.agreement.flush(() => {
            isOver = true;
            this.#flushedAgreed(reply);
          });
    let isOver = giveUp === null;
    if (giveUp === null) {
      this.#flushLed(reply);
      return;
    }
    world.later(this.#id, READ_WAIT_MS, () => {
      if (isOver) return;
      giveUp();
      this.#flushLed(reply);
    });
  }

  #flushedAgreed(reply: Reply): void {
    const { observers, troubles } = this.#system;
    const { contents, record } = this.#disk;
    observers.committed(this.#id, record.seq, contents);
    observers.flushed(record.seq);
    troubles.counts.agreedFlushes++;
    reply({ kind: 'flushed' });
  }

  /** As `flush`: where the catalog marks the file, it is flushed, too. */
  #flushLed(reply: Reply): void {
    const { snapshots, observers } = this.#system;
    this.flush((answer) => {
      const marks = this.#marks;
      if (snapshots === null || answer.kind !== 'flushed') reply(answer);
      else if (marks === null) reply({ kind: 'unknown' });
      else {
        const { flushedSeq } = observers;
        marks.flushName(() => {
          snapshots.flushed(flushedSeq);
          reply(answer);
        });
      }
    });
  }

  /** The replicas are to be at these servers. */
  move(members: readonly ServerId[], reply: Reply): void {
    this.open();
    if (this.replica === null) {
      reply({ kind: 'refused', hint: null });
      return;
    }
    this.step({ kind: 'change-members', ticket: this.#ticket(reply), members });
  }

  get #isFree(): boolean {
    const { replica } = this;
    const nowMs = this.#processMs;
    if (replica !== null) return replica.isFree(nowMs);
    return !this.births.isStoring && nowMs >= Math.max(this.#config.startGuardUntilMs, this.#boundUntilMs);
  }

  /** Whom clients had better ask. */
  #hint(): ServerId | null {
    return this.host?.view(CELL, this.#leaseMs).holder ?? null;
  }
}
