/**
 * Goal: no misfortune of servers, disks, networks and clocks loses an acknowledged operation, does
 * one twice, or shows a client a state that the order of operations does not explain.
 * Method: real `LeaseHost` and real `Replica` cores, glued together as the server does it, over the
 * simulated world; a file in memory as the subject; clients that retry. Observers compare what all
 * servers did after every step.
 */
import { crc32 } from 'node:zlib';
import { assert } from '../../base/assert.ts';
import type { CellId, FileId, Incarnation, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { LeaseHost } from '../../lease/host.ts';
import type { LeaseEnvelope, LeaseMessage } from '../../lease/messages.ts';
import type {
  Epoch,
  Operation,
  Position,
  ReplicaAction,
  ReplicaConfig,
  ReplicaEvent,
  RequestId,
  Role,
  View,
} from '../../replica/actions.ts';
import { decodeReplicaMessage, encodeReplicaMessage } from '../../replica/codec.ts';
import { EPOCH_ZERO, epochEqual, epochFormat, positionFormat } from '../../replica/epoch.ts';
import { DRIFT_MAX } from '../../replica/guard.ts';
import { assertStep } from '../../replica/invariants.ts';
import { messageView, type ReplicaMessage } from '../../replica/messages.ts';
import { Replica } from '../../replica/replica.ts';
import { decodeFileOperation, encodeFileOperation, type FileOperation } from '../../wire/file-operation.ts';
import {
  type FileEntry,
  type RegisterOperation,
  registerViolation,
  sequenceViolation,
} from './linearizable.ts';
import {
  type Contents,
  contentsApply,
  contentsCopy,
  contentsDependsOn,
  contentsEmpty,
  contentsRegister,
  contentsText,
  type Disk,
  type Logged,
  OBJECT_BYTES,
  REGISTERS,
  REGISTERS_BYTES,
  textApply,
} from './system-subject.ts';
import { CALM, type Faults, type Process, World } from './world.ts';

const FILE = 7 as FileId;
const CELL: CellId = FILE;
const NEVER_WRITTEN = '\0'.repeat(OBJECT_BYTES);
const FETCH_TIMEOUT_MS = 150;

export type SystemMessage =
  | { readonly kind: 'lease'; readonly envelope: LeaseEnvelope; readonly messages: readonly LeaseMessage[] }
  | { readonly kind: 'replica'; readonly frame: Frame }
  | { readonly kind: 'fetch'; readonly id: number }
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
    return `${message.kind} ${epochFormat(message.epoch)} ${rest.join(' ')}`;
  }
}

/** A replica's whole state at one moment. */
export class Snapshot {
  readonly disk: Disk;

  constructor(disk: Disk) {
    this.disk = { record: disk.record, contents: contentsCopy(disk.contents) };
  }

  get position(): Position {
    return { epoch: this.disk.record.installed, seq: this.disk.record.seq };
  }

  toJSON(): string {
    return positionFormat(this.position);
  }
}

/** What a client wants. The primary resolves it: the place of an append, the bytes of a truncate. */
export type Wish =
  | { readonly kind: 'write'; readonly object: number; readonly value: string }
  | { readonly kind: 'append'; readonly value: string }
  | { readonly kind: 'truncate'; readonly recordsBytes: number };

export type Answer =
  | { readonly kind: 'done'; readonly seq: number }
  | { readonly kind: 'value'; readonly value: string }
  | { readonly kind: 'flushed' }
  | { readonly kind: 'unknown' }
  /** Certainly nothing happened through this attempt. */
  | { readonly kind: 'refused'; readonly hint: ServerId | null };

/** Where the answer to a client of a script will be. */
export interface Handle {
  answer: Answer | null;
}

export interface SystemOptions {
  readonly seed: number;
  readonly servers: number;
  readonly faults?: Faults;
  /** `scripted`: leases are given by `grant`, so that a script may also give two at once. */
  readonly leases: 'real' | 'scripted';
  readonly leaseMs?: number;
  readonly clockSkewMaxMs?: number;
  readonly readLeaseMs?: number;
  /** Absent: as long as leases promise anything, and none in scripts. */
  readonly startGuardMs?: number;
  readonly appliesAtPrimary?: 'first' | 'last';
  readonly retainedBytesMax?: number;
  /** A disk step takes between these. */
  readonly diskMinMs?: number;
  readonly diskMaxMs?: number;
  /** Probability that a disk step fails, and with it the disk. */
  readonly diskFailure?: number;
  readonly verbose?: boolean;
  readonly aimAtPrimary?: boolean;
}

/** The first violation ends the run. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

/** All servers, their disks, and what the observers know. */
export class SystemWorld {
  readonly world: World<SystemMessage>;
  readonly options: Required<Omit<SystemOptions, 'faults'>>;
  readonly view: View;
  readonly disks = new Map<ServerId, Disk>();
  readonly processes = new Map<ServerId, ServerProcess>();
  readonly marks = new Map<string, number>();
  /** How often something happened that a run is for. */
  readonly counts = {
    epochs: 0,
    fetches: 0,
    unknownRetried: 0,
    acknowledged: 0,
    reads: 0,
    waits: 0,
    declaredFailed: 0,
    /** Moments at which two servers held the lease, or even served: clocks out of bounds may do that. */
    twoHeld: 0,
    twoServed: 0,
  };
  readonly prng: Prng;
  /** Directed runs: how long a disk step of a server takes. Absent: as the options say. */
  diskDelayMs: ((server: ServerId, kind: ReplicaAction['kind']) => number) | null = null;
  /** Directed runs that give leases to two servers at once switch this off. */
  leasesExclude = true;
  /** Where clocks are out of bounds reads may be old. All else holds: writes ask no clock. */
  readsAreFresh = true;
  /** Requests by position, as committed by anybody. */
  readonly sequence: string[] = [];
  readonly #committed: Logged[] = [];
  readonly #files: FileEntry[] = [];
  readonly #registers: RegisterOperation[][] = Array.from({ length: REGISTERS }, () => []);
  readonly #failed = new Set<string>();
  readonly #digests = new Map<string, number>();
  readonly #epochs = new Set<string>();
  /** Directed runs: changes without an answer, with the time of their call. */
  readonly #unanswered = new Map<string, number>();
  #tickets = 0;

  constructor(options: SystemOptions) {
    this.options = {
      leaseMs: 1000,
      clockSkewMaxMs: 50,
      readLeaseMs: (options.leaseMs ?? 1000) / 5,
      startGuardMs: options.leases === 'real' ? (options.leaseMs ?? 1000) * (1 + DRIFT_MAX) : 0,
      appliesAtPrimary: 'first',
      retainedBytesMax: 100_000,
      diskMinMs: 0.2,
      diskMaxMs: 0.2,
      diskFailure: 0,
      verbose: false,
      aimAtPrimary: false,
      ...options,
    };
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
    this.view = { number: 1, members: this.world.ids };
    this.world.start();
  }

  get leaseTiming() {
    return { leaseMs: this.options.leaseMs, clockSkewMaxMs: this.options.clockSkewMaxMs };
  }

  #boot(server: ServerId, incarnation: Incarnation): Process<SystemMessage> {
    const process = new ServerProcess(this, server, incarnation);
    this.processes.set(server, process);
    return process;
  }

  process(server: ServerId): ServerProcess {
    const process = this.processes.get(server);
    assert(process !== undefined, 'Every server was started');
    return process;
  }

  /** @returns the server that acts as primary, if one does */
  primary(): ServerId | null {
    for (const id of this.world.ids) {
      if (this.world.isUp(id) && this.process(id).replica?.status(0).role === 'active') return id;
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
    this.marks.set(mark, (this.marks.get(mark) ?? 0) + 1);
  }

  // Observers --------------------------------------------------------------------------------------

  /** At no moment may two servers serve reads: not even one that is paused, as it may go on any time. */
  #observe(): void {
    if (!this.leasesExclude && this.holders().length > 1) this.counts.twoHeld++;
    let serving: ServerId | null = null;
    for (const id of this.world.ids) {
      if (!this.world.isUp(id)) continue;
      if (this.process(id).replica?.readGate(0, this.world.clockMs(id)) !== 'serve') continue;
      if (serving !== null) {
        this.counts.twoServed++;
        if (this.leasesExclude) throw new Violation(`${serving} and ${id} both serve`);
      }
      serving = id;
    }
  }

  /** A primary says that all operations up to `seq` are committed. */
  committed(server: ServerId, seq: number, contents: Contents): void {
    if (contents.log.length < seq)
      throw new Violation(`${server} commits ${seq} and has ${contents.log.length}`);
    for (let index = 0; index < seq; index++) {
      const logged = contents.log[index] as Logged;
      const before = this.#committed[index];
      if (before === undefined) {
        this.#committed.push(logged);
        this.sequence.push(logged.request);
      } else if (!isSame(before, logged)) {
        throw new Violation(`Position ${index + 1} is ${before.request}, and at ${server} ${logged.request}`);
      }
    }
  }

  /** A backup was told that all operations up to `seq` are committed. */
  heardCommitted(server: ServerId, seq: number, contents: Contents): void {
    for (let index = 0; index < seq; index++) {
      const committed = this.#committed[index];
      const logged = contents.log[index];
      if (committed === undefined || logged === undefined || !isSame(committed, logged)) {
        throw new Violation(`${server} takes ${logged?.request} at ${index + 1} for committed`);
      }
    }
  }

  activated(epoch: Epoch): void {
    const key = epochFormat(epoch) + epoch.incarnation;
    if (this.#epochs.has(key)) throw new Violation(`Epoch ${epochFormat(epoch)} began twice`);
    this.#epochs.add(key);
    this.counts.epochs++;
  }

  /** Replicas at the same position hold the same, byte for byte. */
  stored(server: ServerId, disk: Disk): void {
    const { installed, seq, sessions } = disk.record;
    if (disk.contents.log.length !== seq) throw new Violation(`${server} stores ${seq} out of order`);
    const key = `${epochFormat(installed)}.${installed.incarnation}/${seq}`;
    const last = disk.contents.log.at(-1)?.request ?? '';
    let hash = crc32(disk.contents.buffer.subarray(0, disk.contents.size), disk.contents.size);
    hash = crc32(sessions, crc32(last, hash));
    const before = this.#digests.get(key);
    if (before === undefined) this.#digests.set(key, hash);
    else if (before !== hash) throw new Violation(`${server} differs from another replica at ${key}`);
  }

  // Histories --------------------------------------------------------------------------------------

  /** A change returned (or is open for ever: returnMs Infinity). */
  recordChange(request: string, callMs: number, returnMs: number, seq: number | null): void {
    this.#files.push({ kind: 'change', request, callMs, returnMs, seq });
    if (seq !== null) {
      this.counts.acknowledged++;
      if (this.sequence[seq - 1] !== request) {
        throw new Violation(`${request} was acknowledged at ${seq}, where ${this.sequence[seq - 1]} stands`);
      }
    }
    const wish = requestWish(request);
    if (wish.kind === 'write') {
      this.#registers[wish.object]?.push({ kind: 'write', value: wish.value, callMs, returnMs });
    }
  }

  /** A client was told that its change has not happened and will not. */
  recordFailed(request: string): void {
    this.counts.declaredFailed++;
    this.#failed.add(request);
  }

  recordRead(object: number | null, value: string, callMs: number, returnMs: number): void {
    this.counts.reads++;
    if (!this.readsAreFresh) return;
    if (object === null) this.#files.push({ kind: 'read', content: value, callMs, returnMs });
    else this.#registers[object]?.push({ kind: 'read', value, callMs, returnMs });
  }

  /** Judges the histories. @throws Violation */
  judge(): void {
    for (const [request, callMs] of this.#unanswered) this.recordChange(request, callMs, Infinity, null);
    for (const request of this.#failed) {
      if (this.sequence.includes(request))
        throw new Violation(`${request} failed for its client, and stands`);
    }
    for (const [object, history] of this.#registers.entries()) {
      const violation = registerViolation(history, NEVER_WRITTEN);
      if (violation !== null) throw new Violation(`Object ${object}: ${JSON.stringify(violation)}`);
    }
    const states = [''];
    for (const { operation } of this.#committed) states.push(textApply(states.at(-1) as string, operation));
    const violation = sequenceViolation(this.sequence, states, this.#files);
    if (violation !== null) throw new Violation(`The file: ${violation}`);
  }

  /** Whether all servers hold the same and know it to be committed. */
  hasConverged(): boolean {
    let first: Position | null = null;
    for (const id of this.world.ids) {
      const status = this.process(id).replica?.status(0);
      if (status === undefined || status.committedSeq !== status.seq) return false;
      first ??= status;
      if (!epochEqual(first.epoch, status.epoch) || first.seq !== status.seq) return false;
      if (this.process(id).replica?.inspect().issuedSeq !== status.seq) return false;
    }
    return first !== null && first.seq === this.sequence.length;
  }

  // Directed runs ----------------------------------------------------------------------------------

  /** Gives a server a scripted lease. */
  grant(server: ServerId, durationMs: number): void {
    const process = this.process(server);
    this.world.call(server, () => {
      process.open();
      process.lease(this.world.clockMs(server) + durationMs);
    });
  }

  revoke(server: ServerId): void {
    this.world.call(server, () => this.process(server).lease(0));
  }

  /** A client's change, straight to one server. @returns where its answer will be */
  change(server: ServerId, session: number, wish: Wish): Handle {
    const request = { session, number: 1, since: 0 };
    const key = requestKey(request, wish);
    const callMs = this.world.nowMs;
    const handle: Handle = { answer: null };
    this.#unanswered.set(key, callMs);
    this.world.call(server, () => {
      this.process(server).change(request, wish, (answer) => {
        handle.answer = answer;
        if (answer.kind === 'unknown') return;
        this.#unanswered.delete(key);
        if (answer.kind === 'done') this.recordChange(key, callMs, this.world.nowMs, answer.seq);
        else this.recordFailed(key);
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
  read(server: ServerId, object: number | null = null): Handle {
    const callMs = this.world.nowMs;
    const handle: Handle = { answer: null };
    this.world.call(server, () => {
      this.process(server).read(object, (answer) => {
        handle.answer = answer;
        if (answer.kind === 'value') this.recordRead(object, answer.value, callMs, this.world.nowMs);
      });
    });
    return handle;
  }
}

function isSame(a: Logged, b: Logged): boolean {
  if (a.request !== b.request || a.operation.kind !== b.operation.kind) return false;
  return (
    a.operation.kind !== 'write' || b.operation.kind !== 'write' || a.operation.offset === b.operation.offset
  );
}

type Reply = (answer: Answer) => void;

interface WaitingRead {
  readonly object: number | null;
  readonly reply: Reply;
}

/** One life of a server: the two cores, glued together. */
export class ServerProcess implements Process<SystemMessage> {
  readonly #system: SystemWorld;
  readonly #id: ServerId;
  readonly #config: ReplicaConfig;
  readonly host: LeaseHost | null;
  replica: Replica | null = null;
  /** As the actions tell it: a step may commit and step down. */
  #role: Role = 'backup';
  #open = false;
  #diskFailed = false;
  readonly #tickets = new Map<number, Reply>();
  #reads: WaitingRead[] = [];
  /** Size after the last operation that was sequenced: where the next append goes. */
  #orderedSize = 0;
  #diskBusyUntilMs = 0;
  #diskReportMs = 0;
  #fetches = 0;
  #fetchEpoch: Epoch | null = null;
  #staged: Disk | null = null;
  /** `last`: one operation at a time, because the next is resolved against the applied state. */
  readonly #queue: (() => void)[] = [];
  #underWay: number | null = null;

  constructor(system: SystemWorld, id: ServerId, incarnation: Incarnation) {
    this.#system = system;
    this.#id = id;
    const { options } = system;
    this.#config = {
      self: id,
      incarnation,
      appliesAtPrimary: options.appliesAtPrimary,
      heartbeatMs: options.leaseMs / 10,
      quietHeartbeatMs: options.leaseMs / 4,
      silentMs: options.leaseMs / 2,
      readLeaseMs: options.readLeaseMs,
      startGuardUntilMs: this.#nowMs + options.startGuardMs,
      mayBeginLost: false,
      retainedBytesMax: options.retainedBytesMax,
    };
    this.host =
      options.leases === 'real'
        ? new LeaseHost({ self: id, incarnation, ...system.leaseTiming }, this.#nowMs)
        : null;
    this.#start(null);
  }

  get #nowMs(): number {
    return this.#system.world.clockMs(this.#id);
  }

  // Process ----------------------------------------------------------------------------------------

  message(from: ServerId, message: SystemMessage): void {
    switch (message.kind) {
      case 'lease':
        this.#lease({ kind: 'frame', from, envelope: message.envelope, messages: message.messages });
        return;
      case 'replica': {
        const decoded = decodeReplicaMessage(message.frame.bytes).message;
        if (this.replica === null) this.#start(messageView(decoded));
        this.step({ kind: 'message', from, message: decoded });
        return;
      }
      case 'fetch': {
        const disk = this.#system.disks.get(this.#id);
        if (disk === undefined) return;
        this.#system.world.send(this.#id, from, {
          kind: 'state',
          id: message.id,
          snapshot: new Snapshot(disk),
        });
        return;
      }
      case 'state': {
        const epoch = this.#fetchEpoch;
        if (message.id !== this.#fetches || epoch === null) return;
        this.#fetchEpoch = null;
        const { position, disk } = message.snapshot;
        this.#staged = disk;
        this.#system.counts.fetches++;
        const { view, sessions } = disk.record;
        this.step({ kind: 'state-fetched', epoch, position, view, sessions });
        return;
      }
    }
  }

  tick(): void {
    this.#lease({ kind: 'tick' });
    this.step({ kind: 'tick' });
  }

  nextWakeMs(): number | null {
    const wakes = [this.host?.nextWakeMs() ?? Infinity, this.replica?.nextWakeMs() ?? Infinity];
    const firstMs = Math.min(...wakes);
    return firstMs === Infinity ? null : firstMs;
  }

  /** Makes the replica from what is on disk, or an empty one of a view that was told. */
  #start(view: View | null): void {
    const { disks } = this.#system;
    if (view !== null && !disks.has(this.#id)) {
      const record = {
        view,
        promised: EPOCH_ZERO,
        installed: EPOCH_ZERO,
        seq: 0,
        sessions: new Uint8Array(),
      };
      disks.set(this.#id, { record, contents: contentsEmpty() });
    }
    const disk = disks.get(this.#id);
    if (disk !== undefined)
      this.replica = new Replica(this.#config, FILE, disk.record, 'intact', this.#nowMs);
  }

  /** Somebody uses the file here: this server is willing to be its primary. */
  open(): void {
    if (this.replica === null) this.#start(this.#system.view);
    if (this.#open) return;
    this.#open = true;
    const { number, members } = this.#system.view;
    this.#lease({ kind: 'open', cell: CELL, view: number, members, handicapMs: 0 });
  }

  #lease(event: Parameters<LeaseHost['step']>[0]): void {
    if (this.host === null) return;
    for (const action of this.host.step(event, this.#nowMs)) {
      switch (action.kind) {
        case 'send': {
          const envelope = this.host.envelope(action.to, this.#nowMs);
          this.#system.world.send(this.#id, action.to, {
            kind: 'lease',
            envelope,
            messages: [action.message],
          });
          break;
        }
        case 'held':
          this.step({ kind: 'lease', untilMs: action.untilMs, view: action.view });
          break;
        case 'lost':
          this.step({ kind: 'lease', untilMs: 0, view: 0 });
          break;
        case 'learned':
        case 'trace':
          break;
      }
    }
  }

  /** An orderly end of primaryship; the lease is given back when it is done. */
  stop(): void {
    this.step({ kind: 'stop' });
  }

  /** A scripted lease, decided in the view that this server goes by; 0 ends it. */
  lease(untilMs: number): void {
    const view = this.replica?.status(this.#nowMs).view.number ?? 0;
    this.step({ kind: 'lease', untilMs, view });
  }

  step(event: ReplicaEvent): void {
    const { replica } = this;
    if (replica === null) return;
    const before = replica.inspect();
    const actions = replica.step(event, this.#nowMs);
    assertStep(before, replica.inspect());
    for (const action of actions) this.#act(action);
  }

  // Actions of the replica -------------------------------------------------------------------------

  #act(action: ReplicaAction): void {
    const { world } = this.#system;
    switch (action.kind) {
      case 'send': {
        world.send(this.#id, action.to, { kind: 'replica', frame: new Frame(action.message) });
        return;
      }
      case 'promise':
        this.#disk(action.kind, () => this.#update({ promised: action.epoch }), {
          kind: 'promised',
          epoch: action.epoch,
        });
        return;
      case 'apply':
        this.#noteOrdered(action.operation);
        this.#disk(action.kind, () => this.#apply(action), {
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
        this.#finish(action.ticket, { kind: 'done', seq: action.seq });
        return;
      case 'refused':
        this.#finish(action.ticket, { kind: 'refused', hint: this.#hint() });
        return;
      case 'unknown':
        this.#finish(action.ticket, { kind: 'unknown' });
        return;
      case 'flushed':
        this.#finish(action.ticket, { kind: 'flushed' });
        return;
      case 'advanced':
        this.#onAdvanced(action.committedSeq);
        return;
      case 'role-changed':
        world.note(this.#id, `is ${action.role} of ${epochFormat(action.epoch)}`);
        this.#role = action.role;
        if (action.role === 'active') {
          this.#orderedSize = this.#contents().size;
          this.#system.activated(action.epoch);
        }
        this.#retryReads();
        return;
      case 'view-changed':
      case 'members-changed':
        return;
      case 'stopped':
        // Not from within the step that stopped.
        world.later(this.#id, 0, () => this.#lease({ kind: 'release', cell: CELL }));
        return;
      case 'trace':
        world.note(this.#id, `${action.mark} (${action.detail})`);
        this.#system.mark(action.mark);
        return;
    }
  }

  #onAdvanced(committedSeq: number): void {
    const isPrimary = this.#role === 'active' || this.#role === 'stopping';
    if (isPrimary) this.#system.committed(this.#id, committedSeq, this.#contents());
    else this.#system.heardCommitted(this.#id, committedSeq, this.#contents());
    this.#retryReads();
  }

  #contents(): Contents {
    return this.#disks().contents;
  }

  #disks(): Disk {
    const disk = this.#system.disks.get(this.#id);
    assert(disk !== undefined, 'A replica has a disk');
    return disk;
  }

  // Disk -------------------------------------------------------------------------------------------

  /**
   * Does something to the disk after a while and reports it after another; steps take effect in
   * order. A crash before the first moment loses it, a crash between the two only the report.
   */
  #disk(kind: ReplicaAction['kind'], effect: () => void, event: ReplicaEvent): void {
    const { world, prng, options, diskDelayMs } = this.#system;
    if (prng.chance(options.diskFailure)) {
      this.#failDisk();
      return;
    }
    const drawnMs = options.diskMinMs + prng.next() * (options.diskMaxMs - options.diskMinMs);
    const durationMs = diskDelayMs?.(this.#id, kind) ?? drawnMs;
    const doneMs = Math.max(this.#diskBusyUntilMs, world.nowMs) + durationMs;
    this.#diskBusyUntilMs = doneMs;
    world.later(this.#id, doneMs - world.nowMs, () => {
      if (this.#diskFailed) return;
      effect();
      this.#diskReportMs = Math.max(this.#diskReportMs, world.nowMs + durationMs * prng.next() * 0.5);
      world.later(this.#id, this.#diskReportMs - world.nowMs, () => {
        if (!this.#diskFailed) this.step(event);
      });
    });
  }

  #failDisk(): void {
    const { world } = this.#system;
    this.#diskFailed = true;
    // As a driver reports it: later, and not from within the step that gave the order.
    world.later(this.#id, 1, () => this.step({ kind: 'storage-failed', reason: 'simulated' }));
    world.later(this.#id, 300, () => {
      world.crash(this.#id);
      world.restart(this.#id);
    });
  }

  #update(change: Partial<Disk['record']>): void {
    const disk = this.#disks();
    disk.record = { ...disk.record, ...change };
  }

  #apply(action: Extract<ReplicaAction, { kind: 'apply' }>): void {
    const { epoch, seq, operation, sessions } = action;
    const key = decoder.decode(operation.result);
    contentsApply(this.#contents(), decodeFileOperation(operation.body), { epoch: epoch.counter, seq }, key);
    this.#update({ seq, sessions });
    this.#system.stored(this.#id, this.#disks());
  }

  #install(action: Extract<ReplicaAction, { kind: 'install' }>): void {
    const { epoch, seq, view, sessions, fetched } = action;
    const staged = this.#staged;
    this.#staged = null;
    assert(!fetched || staged !== null, 'What is installed was fetched');
    const effect = () => {
      if (fetched && staged !== null) this.#disks().contents = staged.contents;
      this.#update({ installed: epoch, seq, view, sessions });
      this.#system.stored(this.#id, this.#disks());
    };
    this.#disk(action.kind, effect, { kind: 'installed', epoch, seq });
  }

  #flushLocal(): void {
    const { seq } = this.#disks().record;
    this.#disk('flush-local', () => {}, { kind: 'flush-done', seq });
  }

  #fetch(epoch: Epoch, from: ServerId): void {
    const id = ++this.#fetches;
    this.#fetchEpoch = epoch;
    this.#system.world.send(this.#id, from, { kind: 'fetch', id });
    this.#system.world.later(this.#id, FETCH_TIMEOUT_MS, () => {
      if (id !== this.#fetches || this.#fetchEpoch === null) return;
      this.#fetchEpoch = null;
      this.step({ kind: 'state-failed', epoch, reason: 'no answer' });
    });
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
      const next = this.#queue.shift();
      if (next === undefined) return;
      next();
    }
  }

  #submit(request: RequestId, wish: Wish, reply: Reply): void {
    const ticket = this.#system.ticket();
    this.#tickets.set(ticket, reply);
    if (this.#config.appliesAtPrimary === 'last') this.#underWay = ticket;
    const { size } = this.#disks().contents;
    const sizeBytes = this.#config.appliesAtPrimary === 'first' ? this.#orderedSize : size;
    const body = encodeFileOperation(resolve(wish, sizeBytes));
    const result = new TextEncoder().encode(requestKey(request, wish));
    this.step({ kind: 'submit', ticket, operation: { request, result, body } });
  }

  #noteOrdered(operation: Operation): void {
    const resolved = decodeFileOperation(operation.body);
    if (resolved.kind === 'truncate') this.#orderedSize = resolved.sizeBytes;
    if (resolved.kind === 'write') {
      this.#orderedSize = Math.max(this.#orderedSize, resolved.offset + resolved.bytes.length);
    }
  }

  #finish(ticket: number, answer: Answer): void {
    this.#tickets.get(ticket)?.(answer);
    this.#tickets.delete(ticket);
    if (this.#underWay !== ticket) return;
    this.#underWay = null;
    // Not within the step that answered.
    this.#system.world.later(this.#id, 0, () => this.#nextInQueue());
  }

  flush(reply: Reply): void {
    this.open();
    const ticket = this.#system.ticket();
    this.#tickets.set(ticket, reply);
    this.step({ kind: 'flush', ticket });
  }

  read(object: number | null, reply: Reply): void {
    this.open();
    if (!this.#tryRead(object, reply)) {
      this.#system.counts.waits++;
      this.#reads.push({ object, reply });
    }
  }

  /** Gate and contents in one turn. */
  #tryRead(object: number | null, reply: Reply): boolean {
    const { replica } = this;
    assert(replica !== null, 'An open file has a replica');
    const contents = this.#contents();
    const dependsOn = contentsDependsOn(contents, replica.status(0).epoch.counter, object);
    const gate = replica.readGate(dependsOn, this.#nowMs);
    if (gate === 'wait') return false;
    if (gate === 'not-primary') reply({ kind: 'refused', hint: this.#hint() });
    else
      reply({
        kind: 'value',
        value: object === null ? contentsText(contents) : contentsRegister(contents, object),
      });
    return true;
  }

  #retryReads(): void {
    const reads = this.#reads;
    this.#reads = [];
    for (const { object, reply } of reads)
      if (!this.#tryRead(object, reply)) this.#reads.push({ object, reply });
  }

  #hint(): ServerId | null {
    return this.host?.view(CELL, this.#nowMs).holder ?? null;
  }
}

function resolve(wish: Wish, sizeBytes: number): FileOperation {
  const modifiedNs = 0n;
  switch (wish.kind) {
    case 'write':
      return { kind: 'write', offset: wish.object * OBJECT_BYTES, bytes: valueBytes(wish.value), modifiedNs };
    case 'append':
      return {
        kind: 'write',
        offset: Math.max(sizeBytes, REGISTERS_BYTES),
        bytes: valueBytes(wish.value),
        modifiedNs,
      };
    case 'truncate':
      return { kind: 'truncate', sizeBytes: REGISTERS_BYTES + wish.recordsBytes, modifiedNs };
  }
}

function valueBytes(value: string): Uint8Array {
  assert(value.length === OBJECT_BYTES, 'Values fill an object');
  return new TextEncoder().encode(value);
}

// A request is known to the simulation by a text that says all about it. It travels as the result of
// the operation, and so through every replica.

export function requestKey(request: RequestId, wish: Wish): string {
  return `${request.session}.${request.number} ${JSON.stringify(wish)}`;
}

const decoder = new TextDecoder();

function requestWish(key: string): Wish {
  return JSON.parse(key.slice(key.indexOf(' ') + 1)) as Wish;
}
