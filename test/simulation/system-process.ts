/** One life of a server in the system simulation: the two cores, glued together as the server does it. */
import { assert } from '../../base/assert.ts';
import type { CellId, FileId, Incarnation, ServerId } from '../../base/ids.ts';
import { LeaseHost } from '../../lease/host.ts';
import type { LeaseEnvelope, LeaseMessage } from '../../lease/messages.ts';
import type {
  Epoch,
  Position,
  ReplicaAction,
  ReplicaConfig,
  ReplicaEvent,
  RequestId,
  Role,
  View,
} from '../../replica/actions.ts';
import { decodeReplicaMessage, encodeReplicaMessage } from '../../replica/codec.ts';
import { epochEqual, epochFormat, positionFormat } from '../../replica/epoch.ts';
import { assertReplica, assertStep } from '../../replica/invariants.ts';
import { messageView, type ReplicaMessage } from '../../replica/messages.ts';
import { Replica } from '../../replica/replica.ts';
import { viewVoters } from '../../replica/view.ts';
import type { SimulatedDisk } from './disk-simulated.ts';
import {
  type Contents,
  type Orderer,
  requestKey,
  resultAnswer,
  resultEncode,
  type Wish,
} from './system-contents.ts';
import type { SystemWorld } from './system-world.ts';
import type { Process } from './world.ts';

const FILE = 7 as FileId;
export const CELL: CellId = FILE;
const FETCH_TIMEOUT_MS = 150;
/** A read that may not be answered here for so long is sent elsewhere. */
const READ_WAIT_MS = 80;
/** Number of the view in which a subject begins. */
const FIRST_VIEW = 1;

export type SystemMessage =
  | { readonly kind: 'lease'; readonly envelope: LeaseEnvelope; readonly messages: readonly LeaseMessage[] }
  | { readonly kind: 'replica'; readonly frame: Frame }
  | { readonly kind: 'fetch'; readonly id: number; readonly epoch: Epoch }
  | { readonly kind: 'state'; readonly id: number; readonly snapshot: Snapshot };

/** A replica's message as bytes, as it crosses the network; printed as what it says. */
export class Frame {
  readonly message: ReplicaMessage;
  readonly bytes: Uint8Array;

  constructor(message: ReplicaMessage) {
    this.message = message;
    this.bytes = encodeReplicaMessage(FILE, message);
  }

  toJSON(): string {
    const { message } = this;
    const rest: string[] = [];
    if ('position' in message) rest.push(positionFormat(message.position));
    if ('base' in message) rest.push(positionFormat(message.base));
    if ('seq' in message) rest.push(`seq ${message.seq}`);
    if ('committedSeq' in message) rest.push(`committed ${message.committedSeq}`);
    if ('promised' in message) rest.push(`promised ${epochFormat(message.promised)}`);
    if ('trust' in message) rest.push(message.trust);
    if ('guardMs' in message) rest.push(`guard ${message.guardMs}`);
    if ('durationMs' in message) rest.push(`for ${message.durationMs} from ${message.startSeq}`);
    if ('view' in message) rest.push(`view ${viewText(message.view)}`);
    return `${message.kind} ${epochFormat(message.epoch)} ${rest.join(' ')}`;
  }
}

function viewText({ number, members, joint }: View): string {
  return `${number}:${members.join('')}${joint === undefined ? '' : `+${joint.join('')}`}`;
}

/** A replica's whole state at one moment. */
export class Snapshot {
  readonly position: Position;
  readonly view: View;
  readonly sessions: Uint8Array;
  readonly contents: Contents;

  constructor({ position, record, contents }: SimulatedDisk) {
    this.position = position;
    this.view = record.view;
    this.sessions = record.sessions;
    this.contents = contents.copy();
  }

  toJSON(): string {
    return positionFormat(this.position);
  }
}

export type Answer =
  /** `segment`: of the history, as it was when the server answered. */
  | { readonly kind: 'done'; readonly seq: number; readonly answer: string; readonly segment: number }
  | {
      readonly kind: 'value';
      readonly value: string;
      readonly role: 'primary' | 'backup';
      readonly dirty: boolean;
      readonly soon: boolean;
      readonly segment: number;
    }
  | { readonly kind: 'flushed' }
  | { readonly kind: 'moved' }
  | { readonly kind: 'unknown' }
  /** Certainly nothing happened through this attempt. */
  | { readonly kind: 'refused'; readonly hint: ServerId | null };

export type Reply = (answer: Answer) => void;

interface WaitingRead {
  readonly what: string;
  readonly reply: Reply;
  /** It was allowed, but for an operation that is not known to be committed. */
  dirty: boolean;
  over: boolean;
}

export class ServerProcess implements Process<SystemMessage> {
  readonly #system: SystemWorld;
  readonly #id: ServerId;
  readonly #config: ReplicaConfig;
  readonly #startedMs: number;
  host: LeaseHost | null;
  replica: Replica | null = null;
  /** As the actions tell it: a step may commit and step down. */
  #role: Role = 'backup';
  /** By which view the lease is wanted here; null while nobody uses the file here. */
  #opened: View | null = null;
  #diskFailed = false;
  readonly #tickets = new Map<number, Reply>();
  /** What a flush under way is for. */
  readonly #flushes = new Map<number, number>();
  #reads: WaitingRead[] = [];
  /** Those who wait look again at the end of the step. */
  #readsDue = false;
  #orderer: Orderer | null = null;
  #diskBusyUntilMs = 0;
  #diskReportMs = 0;
  /** Steps of the disk under way. */
  #diskSteps = 0;
  /** By what the last replica here was bound that was removed. */
  #boundUntilMs = -Infinity;
  #fetches = 0;
  #fetchEpoch: Epoch | null = null;
  #staged: Snapshot | null = null;
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
    const { options } = system;
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
      mayBeginLost: false,
      retainedBytesMax: options.retainedBytesMax,
    };
    this.host = options.leases === 'real' ? this.#makeHost() : null;
    this.#start(null);
  }

  #makeHost(): LeaseHost {
    const { self, incarnation } = this.#config;
    const knownView = () => {
      const here = this.#system.disks.get(this.#id)?.record.view;
      const departed = this.#system.troubles.departedBy(this.#id);
      const view = here !== undefined && here.number > (departed?.number ?? 0) ? here : departed;
      return view === null || view.number === FIRST_VIEW ? null : leaseView(view);
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
        if (this.replica === null) this.#admit(decoded);
        this.step({ kind: 'message', from, message: decoded });
        return;
      }
      case 'fetch':
        this.#serveState(from, message.id, message.epoch);
        return;
      case 'state':
        this.#takeState(message.id, message.snapshot);
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
    if (view === null) return;
    if (viewVoters(view).includes(this.#id) || message.kind === 'install') this.#start(view);
  }

  /** Makes the replica from what is on disk, or an empty one of a view that was told. */
  #start(view: View | null): void {
    const disk = this.#system.disks.get(this.#id) ?? (view && this.#system.createDisk(this.#id, view));
    if (disk === null || disk === undefined) return;
    this.replica = this.#begin(Math.max(this.#config.startGuardUntilMs, this.#boundUntilMs));
  }

  /** The replica is about to be removed. @returns whether that can be, because nothing is under way */
  leave(): boolean {
    const { replica } = this;
    if (replica === null || replica.role !== 'backup' || this.#diskSteps > 0 || this.#stepping) return false;
    this.#boundUntilMs = replica.boundUntilMs;
    this.replica = null;
    this.#opened = null;
    this.#fetchEpoch = null;
    this.#lease({ kind: 'close', cell: CELL });
    return true;
  }

  #begin(startGuardUntilMs: number): Replica {
    const { record, trust } = this.#disk;
    return new Replica({ ...this.#config, startGuardUntilMs }, FILE, record, trust, this.#processMs);
  }

  // Lease ------------------------------------------------------------------------------------------

  /** Somebody uses the file here: this server is willing to be its primary, if it votes. */
  open(): void {
    if (this.replica === null) {
      const { catalogView } = this.#system;
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
    this.#lease({ kind: 'open', cell: CELL, ...leaseView(view), handicapMs: 0 });
  }

  /** The members change: the lease goes by the new view. */
  #follow(view: View): void {
    if (this.#opened === null) this.#lease({ kind: 'view', cell: CELL, ...leaseView(view) });
    else if (viewVoters(view).includes(this.#id)) this.#openLease(view);
    else this.#opened = view;
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
    this.step({ kind: 'stop' });
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
      if (this.#readsDue) this.#retryReads();
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
        this.#store(action.kind, () => this.#apply(action), {
          kind: 'applied',
          epoch: action.epoch,
          seq: action.seq,
        });
        return;
      case 'install':
        this.#install(action);
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
        if (action.role === 'active') {
          this.#orderer = this.#system.subject.orderer(this.#contents);
          observers.activated(action.epoch, this.#contents);
        }
        this.#readsDue = true;
        return;
      case 'stopped':
        // Not from within the step that stopped.
        world.later(this.#id, 0, () => {
          this.#lease({ kind: 'release', cell: CELL });
          if (this.replica === null || this.replica.status(0).outside === null) return;
          this.#opened = null;
          this.#lease({ kind: 'close', cell: CELL });
        });
        return;
      case 'trace':
        world.note(this.#id, `${action.mark} (${action.detail})`);
        this.#system.mark(action.mark);
        return;
    }
  }

  #onAdvanced(committedSeq: number): void {
    const { observers } = this.#system;
    const isPrimary = this.#role === 'active' || this.#role === 'stopping';
    if (isPrimary) observers.committed(this.#id, committedSeq, this.#contents);
    else observers.heardCommitted(this.#id, committedSeq, this.#contents);
    this.#readsDue = true;
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
  #store(kind: ReplicaAction['kind'], effect: () => void, event: ReplicaEvent): void {
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
        this.#fillDisk();
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

  /** No room: the replica fails, and begins anew in the same process once there may be some. */
  #fillDisk(): void {
    const { world, troubles } = this.#system;
    troubles.counts.fullDisks++;
    this.#diskFailed = true;
    world.later(this.#id, 1, () => this.step({ kind: 'storage-failed', reason: 'no room' }));
    const renew = () => {
      if (this.#diskSteps > 0 || troubles.isFull(this.#id)) {
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
    this.#disk.apply(epoch, seq, operation, sessions);
    this.#system.observers.stored(this.#id, this.#disk);
  }

  #install(action: Extract<ReplicaAction, { kind: 'install' }>): void {
    const { epoch, seq, view, sessions, fetched } = action;
    const staged = this.#staged;
    this.#staged = null;
    assert(!fetched || staged !== null, 'What is installed was fetched');
    const effect = () => {
      const contents = fetched && staged !== null ? staged.contents : null;
      this.#disk.install({ installed: epoch, seq, view, sessions }, contents);
      this.#system.observers.stored(this.#id, this.#disk);
    };
    this.#store(action.kind, effect, { kind: 'installed', epoch, seq });
  }

  #flushLocal(): void {
    const { seq, installed } = this.#disk.record;
    const effect = () => this.#disk.synced(installed, seq);
    this.#store('flush-local', effect, { kind: 'flush-done', seq });
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
    this.#system.world.send(this.#id, to, { kind: 'state', id, snapshot: new Snapshot(disk) });
  }

  #takeState(id: number, snapshot: Snapshot): void {
    const epoch = this.#fetchEpoch;
    if (id !== this.#fetches || epoch === null) return;
    this.#fetchEpoch = null;
    this.#staged = snapshot;
    this.#system.counts.fetches++;
    const { position, view, sessions } = snapshot;
    this.step({ kind: 'state-fetched', epoch, position, view, sessions });
  }

  // Clients ----------------------------------------------------------------------------------------

  change(request: RequestId, wish: Wish, reply: Reply): void {
    this.open();
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
      if (replica !== null && this.#role === 'active' && replica.orderedSeq > replica.inspect().seq) {
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
    if (this.replica === null || this.#orderer === null || this.#role !== 'active') {
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

  /** The replicas are to be at these servers. */
  move(members: readonly ServerId[], reply: Reply): void {
    this.open();
    if (this.replica === null) {
      reply({ kind: 'refused', hint: null });
      return;
    }
    this.step({ kind: 'change-members', ticket: this.#ticket(reply), members });
  }

  read(what: string, reply: Reply): void {
    this.open();
    const { replica } = this;
    if (replica === null || !viewVoters(this.#disk.record.view).includes(this.#id)) {
      reply({ kind: 'refused', hint: null });
      return;
    }
    const read: WaitingRead = { what, reply, dirty: false, over: false };
    if (this.#tryRead(read)) return;
    this.#system.counts.waits++;
    this.#reads.push(read);
    this.step({ kind: 'read-wanted' });
    this.#system.world.later(this.#id, READ_WAIT_MS, () => {
      if (read.over) return;
      this.#reads.splice(this.#reads.indexOf(read), 1);
      reply({ kind: 'refused', hint: this.#hint() });
    });
  }

  /** Gate and contents in one turn. */
  #tryRead(read: WaitingRead): boolean {
    const { replica } = this;
    if (replica === null) return false;
    const { observers } = this.#system;
    const nowMs = this.#processMs;
    replica.noteRead(nowMs);
    const contents = this.#contents;
    const dependsOn = contents.dependsOn(read.what, replica.status(nowMs).epoch.counter);
    const gate = replica.readGate(dependsOn, nowMs);
    if (gate === 'wait' && dependsOn > replica.status(nowMs).committedSeq) read.dirty = true;
    if (gate !== 'serve') return false;
    read.over = true;
    observers.mayShow(this.#id, contents);
    observers.shows(this.#id, dependsOn);
    read.reply({
      kind: 'value',
      value: contents.look(read.what),
      role: this.#role === 'active' ? 'primary' : 'backup',
      dirty: read.dirty,
      soon: observers.isSoon,
      segment: observers.segment,
    });
    return true;
  }

  #retryReads(): void {
    this.#readsDue = false;
    if (this.#reads.length === 0) return;
    const reads = this.#reads;
    this.#reads = [];
    const left = reads.filter((read) => !this.#tryRead(read));
    this.#reads.push(...left);
    if (left.length > 0) this.step({ kind: 'read-wanted' });
  }

  /** Whether reads that depend on nothing new may be answered here, now. */
  mayServe(): boolean {
    return this.replica?.readGate(0, this.#processMs) === 'serve';
  }

  /** Whom clients had better ask. */
  #hint(): ServerId | null {
    return this.host?.view(CELL, this.#leaseMs).holder ?? null;
  }
}

function leaseView({ number, members, joint }: View) {
  return { view: number, members, ...(joint === undefined ? {} : { joint }) };
}
