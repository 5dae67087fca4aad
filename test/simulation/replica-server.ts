/** One life of a server in a replica group: the cores of leases and replicas, with a disk and clients. */
import { assert } from '../../base/assert.ts';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { LeaseHost } from '../../lease/host.ts';
import type { ReplicaAction, ReplicaConfig, ReplicaEvent, Role } from '../../replica/actions.ts';
import { decodeReplicaMessage } from '../../replica/codec.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import { epochEqual, epochFormat } from '../../replica/epoch.ts';
import { assertReplica, assertStep } from '../../replica/invariants.ts';
import { messageView, type ReplicaMessage } from '../../replica/messages.ts';
import type { RequestId } from '../../replica/operation.ts';
import { Replica } from '../../replica/replica.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import { Creations } from './replica-creations.ts';
import { type Log, operationOf, type ReplicaDisk, type Write } from './replica-disk.ts';
import type { ReplicaGroup } from './replica-group.ts';
import { FILE, Frame, type GroupMessage, type Reply, State } from './replica-messages.ts';
import { ReplicaReads } from './replica-reads.ts';
import type { Process } from './world.ts';

const FETCH_TIMEOUT_MS = 150;
/** A replica is removed only after it was unused for this many leases. */
const IDLE_LEASES = 0.5;
const FIRST_VIEW = 1;
/** A primary that applies last retries the next change after this time, in milliseconds. */
const ORDER_WAIT_MS = 2;
const RENEWAL_MS = 50;

export class ReplicaServer implements Process<GroupMessage> {
  readonly group: ReplicaGroup;
  readonly id: ServerId;
  readonly incarnation: Incarnation;
  readonly #config: ReplicaConfig;
  readonly creations: Creations;
  readonly reads: ReplicaReads;
  readonly host: LeaseHost | null;
  replica: Replica | null = null;
  /** The role according to the actions: one step may commit and step down. */
  role: Role = 'backup';
  /** The view by which the server requests the lease; null while no client uses the file here. */
  #opened: View | null = null;
  #stopAsked = false;
  #diskFailed = false;
  /** The position at which this process ended an epoch, if no replica here was notified of it. */
  #ended: Position | null = null;
  readonly #tickets = new Map<number, Reply>();
  /** The last operation of each pending flush. */
  readonly #flushes = new Map<number, number>();
  #diskBusyUntilMs = 0;
  #diskReportMs = 0;
  #diskSteps = 0;
  #usedMs = -Infinity;
  /** The bound of the last replica that was removed here. */
  #boundUntilMs = -Infinity;
  #fetches = 0;
  #fetchEpoch: Epoch | null = null;
  #fetched: Log | null = null;
  /** The latest life of each peer that sent a message. */
  readonly #lives = new Map<ServerId, number>();
  #stepping = false;
  readonly #events: ReplicaEvent[] = [];

  constructor(group: ReplicaGroup, id: ServerId, incarnation: Incarnation) {
    this.group = group;
    this.id = id;
    this.incarnation = incarnation;
    const { options } = group;
    this.creations = new Creations(this);
    this.reads = new ReplicaReads(this);
    this.#config = {
      self: id,
      incarnation,
      appliesAtPrimary: options.appliesAtPrimary,
      heartbeatMs: options.leaseMs / 10,
      quietHeartbeatMs: options.leaseMs / 4,
      beatsWithLease: false,
      silentMs: options.leaseMs / 2,
      readLeaseMs: options.readLeaseMs,
      startGuardUntilMs: this.processMs + options.startGuardMs,
      candidatesFrom: options.begins === 'empty' ? 1 : 2,
      mayStartEmptyIfLost: false,
      retainedBytesMax: options.retainedBytesMax,
    };
    this.host = options.leases === 'real' ? this.#makeHost() : null;
    this.start(null);
    if (group.makes(id)) {
      group.world.later(id, 0, () => {
        this.open();
        this.step({ kind: 'created' });
      });
    }
  }

  #makeHost(): LeaseHost {
    const { self, incarnation } = this.#config;
    const knownView = () => {
      const here = this.disk?.record.view;
      const departed = this.group.faults.departedBy(this.id);
      const view = here !== undefined && here.number > (departed?.number ?? 0) ? here : departed;
      return view === null || view.number === FIRST_VIEW ? null : this.#leaseView(view);
    };
    const { leaseMs, clockSkewMaxMs } = this.group.options;
    return new LeaseHost({ self, incarnation, knownView, leaseMs, clockSkewMaxMs }, this.#leaseMs);
  }

  /** The lease clock, which may be wrong in any way. */
  get #leaseMs(): number {
    return this.group.world.clockMs(this.id);
  }

  /** The clock of the process, which counts all durations; only its rate is wrong, within bounds. */
  get processMs(): number {
    return this.group.processMs(this.id);
  }

  get disk(): ReplicaDisk | undefined {
    return this.group.disks.get(this.id);
  }

  get #disk(): ReplicaDisk {
    assert(this.disk !== undefined, 'A replica has a disk');
    return this.disk;
  }

  // Process ----------------------------------------------------------------------------------------

  message(from: ServerId, message: GroupMessage): void {
    switch (message.kind) {
      case 'lease':
        this.#lease({ kind: 'frame', from, envelope: message.envelope, messages: message.messages });
        return;
      case 'replica': {
        const decoded = decodeReplicaMessage(message.frame.bytes).message;
        if (this.#isOver(from, decoded.incarnation)) return;
        // Messages of backups to a primary are no use of the file.
        if (messageView(decoded) !== null) this.#use();
        if (this.replica === null) this.#admit(decoded);
        this.step({ kind: 'message', from, message: decoded });
        return;
      }
      case 'create':
      case 'created': {
        const { incarnation } = message.kind === 'create' ? message.epoch : message;
        if (!this.#isOver(from, incarnation)) this.creations.take(from, message);
        return;
      }
      case 'agree':
      case 'agreed':
        this.reads.take(from, message);
        return;
      case 'fetch': {
        const { disk } = this;
        // A candidate fetches the state only while it does not change.
        if (disk === undefined || !epochEqual(disk.record.promised, message.epoch)) return;
        this.#use();
        this.send(from, { kind: 'state', id: message.id, state: new State(disk) });
        return;
      }
      case 'state': {
        const epoch = this.#fetchEpoch;
        if (message.id !== this.#fetches || epoch === null) return;
        this.#fetchEpoch = null;
        this.group.counts.fetches++;
        // As the catalog's log, which comes in parts, or as a file's objects, which come at once.
        const part = message.id % 2 === 0 ? this.#disk.partOf(message.state.log) : null;
        const { position, view, sessions, log } = part ?? message.state;
        this.#fetched = log;
        this.step({ kind: 'state-fetched', epoch, position, view, sessions, isPart: part !== null });
        return;
      }
    }
  }

  send(to: ServerId, message: GroupMessage): void {
    this.group.world.send(this.id, to, message);
  }

  #use(): void {
    this.#usedMs = this.group.world.nowMs;
  }

  /** The transport delivers no message of an earlier life of a peer after one of a later life. */
  #isOver(from: ServerId, incarnation: Incarnation): boolean {
    const life = this.group.lives.indexOf(incarnation);
    if (life < (this.#lives.get(from) ?? 0)) return true;
    this.#lives.set(from, life);
    return false;
  }

  tick(): void {
    this.#lease({ kind: 'tick' });
    this.step({ kind: 'tick' });
  }

  nextWakeMs(): number | null {
    const replicaMs = this.replica?.nextWakeMs() ?? Infinity;
    const leaseMs = replicaMs === Infinity ? Infinity : this.#leaseMs + (replicaMs - this.processMs);
    const firstMs = Math.min(this.host?.nextWakeMs() ?? Infinity, leaseMs);
    return firstMs === Infinity ? null : firstMs;
  }

  /** Creates a missing replica if a view names this server, or a primary has it learn. */
  #admit(message: ReplicaMessage): void {
    const view = messageView(message);
    if (view === null || this.creations.isStoring) return;
    if (viewVoters(view).includes(this.id) || message.kind === 'install') this.start(view);
  }

  /** Starts the replica from the disk, or an empty one with a view. */
  start(view: View | null): void {
    if (this.disk === undefined && view !== null) this.group.createDisk(this.id, view);
    if (this.disk === undefined) return;
    this.replica = this.#newReplica(this.#boundUntilMs);
    const position = this.#ended;
    this.#ended = null;
    if (position !== null) this.step({ kind: 'ended', position });
  }

  #newReplica(boundUntilMs: number): Replica {
    const startGuardUntilMs = Math.max(this.#config.startGuardUntilMs, boundUntilMs);
    const { record, trust } = this.#disk;
    return new Replica({ ...this.#config, startGuardUntilMs }, FILE, record, trust, this.processMs);
  }

  /** This process has ended an epoch at `position`, with all before it committed. */
  ended(position: Position): void {
    if (this.replica === null) this.#ended = position;
    else this.step({ kind: 'ended', position });
  }

  /** Prepares the removal of the replica. @returns whether that is possible: it is unused, and nothing is pending */
  leave(): boolean {
    const { replica } = this;
    const { world, options } = this.group;
    if (world.nowMs - this.#usedMs < IDLE_LEASES * options.leaseMs) return false;
    if (replica === null || replica.role !== 'backup' || this.#diskSteps > 0 || this.#stepping) return false;
    this.#boundUntilMs = replica.boundUntilMs;
    this.replica = null;
    this.#fetchEpoch = null;
    this.#closeLease();
    return true;
  }

  // Lease ------------------------------------------------------------------------------------------

  /** A client uses the file here: this server requests the lease, if it votes. */
  open(): void {
    this.#use();
    if (this.replica === null) {
      const { catalogView } = this.group;
      if (this.creations.isStoring || !viewVoters(catalogView).includes(this.id)) return;
      this.start(catalogView);
    }
    // A server that knows that it is no member does not request the lease: that would hinder the members.
    if (this.replica === null || this.replica.status(0).outside !== null) return;
    const { view } = this.replica.inspect();
    if (this.#opened === null && viewVoters(view).includes(this.id)) this.#openLease(view);
  }

  #openLease(view: View): void {
    this.#opened = view;
    this.#lease({ kind: 'open', cell: FILE, ...this.#leaseView(view), handicapMs: 0 });
  }

  #closeLease(): void {
    this.#opened = null;
    this.#lease({ kind: 'close', cell: FILE });
  }

  /** Applies the new view to the lease; a server that is no member releases it. */
  #follow(view: View): void {
    if (this.#opened !== null && viewVoters(view).includes(this.id)) {
      this.#openLease(view);
      return;
    }
    if (this.#opened !== null) {
      // A primary that is no member any more releases its lease after it has stopped.
      if (this.host?.view(FILE, this.#leaseMs).own !== false) return;
      this.#closeLease();
    }
    this.#lease({ kind: 'view', cell: FILE, ...this.#leaseView(view) });
  }

  /** A server that is no member by a view still votes by the one before, as the server's lease driver does. */
  #leaseView(of: View) {
    const { number, members, joint } = of;
    if (!viewVoters(of).includes(this.id)) return { view: number - 1, members };
    return { view: number, members, ...(joint === undefined ? {} : { joint }) };
  }

  #lease(event: Parameters<LeaseHost['step']>[0]): void {
    const { host } = this;
    if (host === null) return;
    for (const action of host.step(event, this.#leaseMs)) {
      if (action.kind === 'send') {
        const envelope = host.envelope(action.to, this.#leaseMs);
        this.send(action.to, { kind: 'lease', envelope, messages: [action.message] });
      } else if (action.kind === 'held') {
        const untilMs = this.processMs + (action.untilMs - this.#leaseMs);
        this.step({ kind: 'lease', untilMs, view: action.view });
      } else if (action.kind === 'lost') {
        this.step({ kind: 'lease', untilMs: 0, view: 0 });
      } else if (action.kind === 'trace') {
        this.group.world.note(this.id, `${action.mark} (${action.detail})`);
      }
    }
  }

  /** Gives a scripted lease of this length, decided in the view with this number; 0 ends it. */
  lease(durationMs: number, view: number): void {
    this.step({ kind: 'lease', untilMs: durationMs === 0 ? 0 : this.processMs + durationMs, view });
  }

  /** Ends primaryship in good order; the lease is released after it. */
  stop(): void {
    this.#stopAsked = true;
    this.step({ kind: 'stop' });
  }

  /** No client uses the file here: a primary ends in good order, and the server stops requesting the lease. */
  rest(): void {
    if (['active', 'beginning', 'resumed'].includes(this.role)) this.step({ kind: 'stop' });
    else if (this.role === 'backup' && this.#opened !== null) this.#closeLease();
  }

  /** An event that arrives during actions waits until these have ended. */
  step(event: ReplicaEvent): void {
    this.#events.push(event);
    if (this.#stepping) return;
    this.#stepping = true;
    for (let next = this.#events.shift(); next !== undefined; next = this.#events.shift()) {
      const { replica } = this;
      if (replica === null) continue;
      const before = replica.inspect();
      const actions = replica.step(next, this.processMs);
      // After a majority lost power, operations that were known to be committed may be gone.
      if (this.group.observer.neverForgot) assertStep(before, replica.inspect());
      else assertReplica(replica.inspect());
      for (const action of actions) this.#act(action);
      // At the end: one step may commit more than its first action says.
      this.reads.retryIfDue();
    }
    this.#stepping = false;
  }

  // Actions of the replica -------------------------------------------------------------------------

  #act(action: ReplicaAction): void {
    const { world, observer } = this.group;
    const disk = this.#disk;
    const { kind } = action;
    switch (kind) {
      case 'send':
        this.send(action.to, { kind: 'replica', frame: new Frame(action.message) });
        return;
      case 'promise': {
        const { epoch } = action;
        this.#store(kind, () => disk.promise(epoch), { kind: 'promised', epoch });
        return;
      }
      case 'begin': {
        const { epoch } = action;
        this.#store(kind, () => disk.begin(epoch), { kind: 'begun', epoch });
        return;
      }
      case 'apply': {
        const { epoch, seq, operation, sessions } = action;
        const apply = () => disk.apply(epoch, seq, operation, sessions);
        this.#store(kind, apply, { kind: 'applied', epoch, seq });
        return;
      }
      case 'install': {
        const { epoch, seq, view, sessions, fetched } = action;
        const log = fetched ? this.#fetched : null;
        this.#fetched = null;
        assert(!fetched || log !== null, 'An installed state was fetched');
        const install = () => disk.install({ installed: epoch, seq, view, sessions }, log);
        this.#store(kind, install, { kind: 'installed', epoch, seq });
        return;
      }
      case 'install-part': {
        const { position, view, sessions } = action;
        const log = this.#fetched;
        this.#fetched = null;
        assert(log !== null, 'An installed part was fetched');
        const install = () => disk.installPart(position, view, sessions, log);
        this.#store(kind, install, { kind: 'part-installed', position });
        return;
      }
      case 'flush-local': {
        const { seq, installed } = disk.record;
        this.#store(kind, () => disk.synced(installed, seq), { kind: 'flush-done', seq });
        return;
      }
      case 'fetch-state':
        this.#fetch(action.epoch, action.from);
        return;
      case 'committed':
        this.#finish(action.ticket, { kind: 'done', seq: action.seq });
        return;
      case 'refused':
        this.#finish(action.ticket, { kind: 'refused', hint: this.hint });
        return;
      case 'unknown':
        this.#finish(action.ticket, { kind: 'unknown' });
        return;
      case 'flushed':
        observer.flushed(this.#flushes.get(action.ticket) ?? 0);
        this.#finish(action.ticket, { kind: 'flushed' });
        return;
      case 'members-changed':
        this.#finish(action.ticket, { kind: 'moved' });
        return;
      case 'view-changed':
        this.#follow(action.view);
        return;
      case 'advanced':
        if (['active', 'stopping', 'resumed'].includes(this.role))
          observer.committed(this.id, action.committedSeq, disk.log);
        else observer.backupCommitted(this.id, action.committedSeq, disk.log);
        this.reads.due();
        return;
      case 'role-changed':
        world.note(this.id, `is ${action.role} of ${epochFormat(action.epoch)}`);
        this.role = action.role;
        if (action.role === 'active') observer.activated(action.epoch, disk.log);
        this.reads.due();
        return;
      case 'stopped':
        // Not within the step that stopped.
        world.later(this.id, 0, () => {
          this.#lease({ kind: 'release', cell: FILE });
          if (this.replica === null) return;
          if (!this.#stopAsked) this.#closeLease();
          this.#stopAsked = false;
        });
        return;
      case 'trace':
        world.note(this.id, `${action.mark} (${action.detail})`);
        this.group.mark(action.mark);
        return;
    }
  }

  #fetch(epoch: Epoch, from: ServerId): void {
    const id = ++this.#fetches;
    this.#fetchEpoch = epoch;
    this.send(from, { kind: 'fetch', id, epoch });
    this.group.world.later(this.id, FETCH_TIMEOUT_MS, () => {
      if (id !== this.#fetches || this.#fetchEpoch === null) return;
      this.#fetchEpoch = null;
      this.step({ kind: 'state-failed', epoch, reason: 'no answer' });
    });
  }

  // Disk -------------------------------------------------------------------------------------------

  /**
   * Changes the disk after a time, and reports it after another; steps take effect in order. A crash before the change
   * loses it, a crash between the two only the report.
   */
  #store(kind: ReplicaAction['kind'], effect: () => void, event: ReplicaEvent): void {
    const { world, prng, options, diskDelayMs, faults, observer } = this.group;
    if (prng.chance(options.diskFailure)) {
      this.#failDisk();
      return;
    }
    const durationMs = diskDelayMs?.(this.id, kind) ?? faults.durationMs(this.id);
    const doneMs = Math.max(this.#diskBusyUntilMs, world.nowMs) + durationMs;
    this.#diskBusyUntilMs = doneMs;
    this.#diskSteps++;
    world.later(this.id, doneMs - world.nowMs, () => {
      this.#diskSteps--;
      if (this.#diskFailed) return;
      const refusal = faults.refusal(this.id, kind);
      if (refusal !== null) {
        this.#beginAnew(refusal);
        return;
      }
      effect();
      if (kind === 'apply' || kind === 'install' || kind === 'install-part')
        observer.stored(this.id, this.#disk);
      this.#diskReportMs = Math.max(this.#diskReportMs, world.nowMs + durationMs * prng.next() * 0.5);
      this.#diskSteps++;
      world.later(this.id, this.#diskReportMs - world.nowMs, () => {
        this.#diskSteps--;
        if (!this.#diskFailed) this.step(event);
      });
    });
  }

  /** Executes a change of the disk that the replica did not order. */
  storeBeside(effect: () => void): void {
    const { world, faults } = this.group;
    world.later(this.id, faults.durationMs(this.id), () => {
      if (!this.#diskFailed && faults.refusal(this.id, 'promise') === null) effect();
    });
  }

  #failDisk(): void {
    const { world } = this.group;
    if (this.#diskFailed) return;
    this.#diskFailed = true;
    // As a driver reports it: later, and not within the step that ordered the change.
    world.later(this.id, 1, () => this.step({ kind: 'storage-failed', reason: 'simulated' }));
    world.later(this.id, 300, () => {
      world.crash(this.id);
      world.restart(this.id);
    });
  }

  /** The disk refuses a change: the replica fails, and another one starts in the same process. */
  #beginAnew(reason: string): void {
    const { world, faults } = this.group;
    this.#diskFailed = true;
    world.later(this.id, 1, () => this.step({ kind: 'storage-failed', reason }));
    const renew = () => {
      if (this.#diskSteps > 0 || faults.isFull(this.id)) {
        world.later(this.id, RENEWAL_MS, renew);
        return;
      }
      this.#diskFailed = false;
      this.#fetchEpoch = null;
      this.role = 'backup';
      // The new replica does not know the guard and the read leases of the earlier one.
      this.replica = this.#newReplica(this.replica?.boundUntilMs ?? -Infinity);
      const held = this.host?.view(FILE, this.#leaseMs);
      if (held?.own === true)
        this.step({ kind: 'lease', untilMs: this.processMs + held.remainingMs, view: 0 });
    };
    world.later(this.id, RENEWAL_MS, renew);
  }

  // Clients ----------------------------------------------------------------------------------------

  get #orders(): boolean {
    return this.role === 'beginning' || this.role === 'active' || this.#resumes;
  }

  /** Whether changes are, or may be, ordered here without a lease. */
  get #resumes(): boolean {
    if (!this.group.options.resumes || this.replica === null) return false;
    return this.role === 'resumed' || (this.role === 'backup' && this.replica.resumable !== null);
  }

  /** @param request its unique name */
  change(id: RequestId, request: string, write: Write, reply: Reply): void {
    if (this.replica === null && this.#ended !== null) this.start(null);
    if (this.#resumes) this.#use();
    else this.open();
    this.#submit(id, request, write, reply);
  }

  #submit(id: RequestId, request: string, write: Write, reply: Reply): void {
    const { replica } = this;
    if (replica === null || !this.#orders) {
      reply({ kind: 'refused', hint: this.hint });
      return;
    }
    if (this.#config.appliesAtPrimary === 'last' && replica.orderedSeq > replica.inspect().seq) {
      this.group.world.later(this.id, ORDER_WAIT_MS, () => this.#submit(id, request, write, reply));
      return;
    }
    const ticket = this.#ticket((answer) => {
      if (answer.kind === 'done') this.group.observer.answered(request, answer.seq);
      reply(answer);
    });
    this.step({ kind: 'submit', ticket, operation: operationOf(request, write, id) });
  }

  #ticket(reply: Reply): number {
    const ticket = this.group.ticket();
    this.#tickets.set(ticket, reply);
    return ticket;
  }

  #finish(ticket: number, answer: Parameters<Reply>[0]): void {
    this.#tickets.get(ticket)?.(answer);
    this.#tickets.delete(ticket);
    this.#flushes.delete(ticket);
  }

  flush(reply: Reply): void {
    this.open();
    if (this.replica === null) {
      reply({ kind: 'refused', hint: null });
      return;
    }
    const ticket = this.#ticket(reply);
    this.#flushes.set(ticket, this.replica.status(this.processMs).committedSeq);
    this.step({ kind: 'flush', ticket });
  }

  move(members: readonly ServerId[], reply: Reply): void {
    this.open();
    if (this.replica === null) reply({ kind: 'refused', hint: null });
    else this.step({ kind: 'change-members', ticket: this.#ticket(reply), members });
  }

  /** Whether this server may take part in a quorum read. */
  get isFree(): boolean {
    if (this.replica !== null) return this.replica.isFree(this.processMs);
    const boundUntilMs = Math.max(this.#config.startGuardUntilMs, this.#boundUntilMs);
    return !this.creations.isStoring && this.processMs >= boundUntilMs;
  }

  /** The server that clients should ask. */
  get hint(): ServerId | null {
    return this.host?.view(FILE, this.#leaseMs).holder ?? null;
  }
}
