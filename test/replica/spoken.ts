/**
 * One replica in a conversation: commands in, the actions it takes out, one per line. It plays the conversations of
 * `test/testdata/replica`, in the tests and with planted bugs.
 *
 * A view is written `2:a,b,c`, with future members `2:a,b,c+c,d`, with its policy `1:a,b/all`.
 */
import assert from 'node:assert/strict';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { ReplicaAction, ReplicaEvent } from '../../replica/actions.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import { EPOCH_ZERO, epochFormat, positionFormat } from '../../replica/epoch.ts';
import { assertReplica, assertStep } from '../../replica/invariants.ts';
import type { ReplicaMessage, ReplicaMessageBody } from '../../replica/messages.ts';
import type { Operation } from '../../replica/operation.ts';
import type { Trust } from '../../replica/record.ts';
import { Replica } from '../../replica/replica.ts';
import type { Policy, View } from '../../replica/view.ts';

const HEARTBEAT_MS = 100;
const READ_LEASE_MS = 300;
const NONCE_NEVER = Number.MAX_SAFE_INTEGER;

type Options = ReadonlyMap<string, string>;

/** Fields of a message unless the conversation says otherwise: the first view, and this incarnation as its receiver. */
interface Usual {
  readonly view: View;
  readonly life: Incarnation;
}

/** A conversation's state: the replica, the time, the view that messages name unless they say otherwise. */
export class Spoken {
  /** All trace marks of the replica. */
  readonly marks: Set<string>;
  #spokenTo: Replica | null = null;
  #nowMs = 0;
  /** Whether messages that may leave later are marked as such. */
  #showsDeferred = false;
  #usual: Usual = { view: { number: 1, members: [] }, life: 0 as Incarnation };
  /** Number of requests for read leases, by all incarnations of the server. */
  readonly #nonces: number[] = [];

  constructor(marks = new Set<string>()) {
    this.marks = marks;
  }

  /** @returns the replica's actions, one per line */
  say(words: readonly string[]): string[] {
    const [verb, ...rest] = words;
    const { options, args } = split(rest);
    switch (verb) {
      case 'replica':
        this.#start(args, options);
        return [];
      case 'show-deferred':
        this.#showsDeferred = true;
        return [];
      case 'at':
        assert.ok(number(args[0]) >= this.#nowMs, 'Time does not go back');
        this.#nowMs = number(args[0]);
        return [];
      case 'gate':
        return [this.#replica.readGate(number(args[0]), this.#nowMs)];
      case 'wake':
        return [String(this.#replica.nextWakeMs())];
      case 'status':
        return this.#status();
      case 'age':
        return [this.#age()];
      case 'lead':
        this.#lead(number(args[0]), args.slice(1) as ServerId[], options);
        return [];
      default:
        return this.#step(event(verb ?? '', args, options, this.#usual));
    }
  }

  get #replica(): Replica {
    assert.ok(this.#spokenTo !== null, 'A conversation begins with "replica"');
    return this.#spokenTo;
  }

  /** Also a later incarnation of the same server: `life` distinguishes it from the earlier one. */
  #start(args: readonly string[], options: Options): void {
    const [self, of, ...members] = args;
    assert.equal(of, 'of');
    const given = options.get('view');
    this.#usual = {
      view: given === undefined ? { number: 1, members: members as ServerId[] } : view(given),
      life: count(options, 'life', incarnation(self as ServerId)) as Incarnation,
    };
    const installed = position(options.get('at') ?? '0/0');
    this.#spokenTo = new Replica(
      {
        self: self as ServerId,
        incarnation: this.#usual.life,
        appliesAtPrimary: options.get('applies') === 'last' ? 'last' : 'first',
        heartbeatMs: HEARTBEAT_MS,
        quietHeartbeatMs: count(options, 'quiet', HEARTBEAT_MS),
        beatsWithLease: options.get('beats') === 'with-lease',
        readLeaseMs: READ_LEASE_MS,
        startGuardUntilMs: this.#nowMs + count(options, 'start-guard'),
        candidatesFrom: count(options, 'candidates-from', 1),
        mayStartEmptyIfLost: options.get('begin') === 'lost',
        silentMs: 5 * HEARTBEAT_MS,
        retainedBytesMax: count(options, 'retained', 100_000),
      },
      1 as FileId,
      {
        view: this.#usual.view,
        promised: epoch(options.get('promised') ?? epochFormat(installed.epoch)),
        installed: installed.epoch,
        seq: installed.seq,
        sessions: new Uint8Array(),
      },
      trust(options),
      this.#nowMs,
    );
    assertReplica(this.#replica.inspect());
  }

  /** Makes it the primary with the help of `others`, which have its position; `reset.txt` has the steps. */
  #lead(untilMs: number, others: readonly ServerId[], options: Options): void {
    const lease = { kind: 'lease', untilMs, view: count(options, 'view', this.#usual.view.number) } as const;
    this.#step(lease);
    const { ownEpoch, installed, seq, view: by } = this.#replica.inspect();
    assert.ok(ownEpoch !== null, 'It begins a reset');
    const position = { epoch: installed, seq };
    const base = { epoch: ownEpoch, seq };
    const hear = (from: ServerId, body: ReplicaMessageBody): void => {
      this.#step({ kind: 'message', from, message: { incarnation: incarnation(from), ...body } });
    };
    this.#step({ kind: 'promised', epoch: ownEpoch });
    for (const from of others) {
      hear(from, { kind: 'promise', epoch: ownEpoch, position, view: by, trust: 'intact' });
    }
    this.#step({ kind: 'installed', epoch: ownEpoch, seq });
    for (const from of others) hear(from, { kind: 'installed', epoch: ownEpoch, seq });
    for (const from of others) {
      hear(from, { kind: 'heartbeat-ack', epoch: ownEpoch, position: base, beat: 1, trust: 'intact' });
    }
    assert.equal(this.#replica.role, 'active');
  }

  #status(): string[] {
    const { role, epoch: of, seq, committedSeq, view: by, trust } = this.#replica.status(this.#nowMs);
    const peers = this.#replica.peers(this.#nowMs);
    const whole = [`${role} at ${epochFormat(of)}/${seq}, committed ${committedSeq}`];
    if (by.number !== 1) whole.push(`by ${viewText(by)}`);
    if (trust !== 'intact') whole.push(trust);
    const known = peers.map(({ server, role: part, state, seq: at, behindMs }) => {
      const behind = behindMs === 0 ? '' : `, behind for ${behindMs} ms`;
      return `${server}: ${part === 'learner' ? 'learner, ' : ''}${state} at ${at}${behind}`;
    });
    return [whole.join(', '), ...known];
  }

  /** How old the state here may be, in milliseconds. */
  #age(): string {
    const { currentAtMs } = this.#replica.status(this.#nowMs);
    return currentAtMs === -Infinity ? 'unknown' : String(this.#nowMs - currentAtMs);
  }

  #step(what: ReplicaEvent): string[] {
    const before = this.#replica.inspect();
    const actions = this.#replica.step(this.#withNonce(what), this.#nowMs);
    assertStep(before, this.#replica.inspect());
    for (const action of actions) if (action.kind === 'trace') this.marks.add(action.mark);
    return actions.map((action) => {
      const line = shown(this.#withCount(action));
      const isDeferred = this.#showsDeferred && action.kind === 'send' && action.deferrable === true;
      return isDeferred ? `${line} (deferrable)` : line;
    });
  }

  /** The replica's requests are numbered in their order, whatever their nonces are. */
  #withCount(action: ReplicaAction): ReplicaAction {
    if (action.kind !== 'send' || action.message.kind !== 'read-request') return action;
    const { nonce } = action.message;
    if (!this.#nonces.includes(nonce)) this.#nonces.push(nonce);
    return { ...action, message: { ...action.message, nonce: this.#nonces.indexOf(nonce) + 1 } };
  }

  /** The grant of such a number names its nonce; of another number a nonce that was never sent. */
  #withNonce(what: ReplicaEvent): ReplicaEvent {
    if (what.kind !== 'message' || what.message.kind !== 'read-grant') return what;
    const nonce = this.#nonces[what.message.nonce - 1] ?? NONCE_NEVER;
    return { ...what, message: { ...what.message, nonce } };
  }
}

function split(words: readonly string[]): { options: Map<string, string>; args: string[] } {
  const options = new Map<string, string>();
  const args: string[] = [];
  for (const word of words) {
    const at = word.indexOf('=');
    if (at > 0) options.set(word.slice(0, at), word.slice(at + 1));
    else args.push(word);
  }
  return { options, args };
}

function event(verb: string, args: readonly string[], options: Options, usual: Usual): ReplicaEvent {
  switch (verb) {
    case 'lease':
      return { kind: 'lease', untilMs: number(args[0]), view: count(options, 'view', 1) };
    case 'made':
      return { kind: 'created' };
    case 'tick':
    case 'stop':
    case 'read-wanted':
      return { kind: verb };
    case 'ended':
      return { kind: 'ended', position: position(args[0]) };
    case 'connected':
      return { kind: 'connected', peer: args[0] as ServerId };
    case 'submit':
      return { kind: 'submit', ticket: number(args[0]), operation: operation(args[1], options) };
    case 'flush':
      return { kind: 'flush', ticket: number(args[0]) };
    case 'change': {
      const [ticket, ...members] = args;
      return { kind: 'change-members', ticket: number(ticket), members: members as ServerId[] };
    }
    case 'promised':
    case 'begun':
      return { kind: verb, epoch: epoch(args[0]) };
    case 'applied':
    case 'installed': {
      const { epoch: of, seq } = position(args[0]);
      return { kind: verb, epoch: of, seq };
    }
    case 'state-fetched': {
      const sessions = new Uint8Array(0);
      const at = position(args[1]);
      return {
        kind: 'state-fetched',
        epoch: epoch(args[0]),
        position: at,
        view: viewOf(options, usual),
        sessions,
        isPart: options.get('part') === 'yes',
      };
    }
    case 'part-installed':
      return { kind: 'part-installed', position: position(args[0]) };
    case 'state-failed':
      return { kind: 'state-failed', epoch: epoch(args[0]), reason: 'as told' };
    case 'flush-done':
      return { kind: 'flush-done', seq: number(args[0]) };
    case 'storage-failed':
      return { kind: 'storage-failed', reason: 'as told' };
    case 'from': {
      const [from, kind, of, ...rest] = args;
      const body = messageBody(kind ?? '', epoch(of), rest, options, usual);
      const life = options.get('life');
      const header = {
        incarnation: life === undefined ? incarnation(from as ServerId) : (number(life) as Incarnation),
      };
      return { kind: 'message', from: from as ServerId, message: { ...header, ...body } as ReplicaMessage };
    }
    default:
      throw new Error(`"${verb}" is no event`);
  }
}

function messageBody(
  kind: string,
  of: Epoch,
  rest: readonly string[],
  options: Options,
  usual: Usual,
): ReplicaMessageBody {
  switch (kind) {
    case 'prepare':
    case 'begin':
      return { kind, epoch: of, view: viewOf(options, usual) };
    case 'promise':
      return {
        kind,
        epoch: of,
        position: position(rest[0]),
        view: viewOf(options, usual),
        trust: trust(options),
      };
    case 'need-state':
      return { kind, epoch: of, position: position(rest[0]) };
    case 'refuse':
      return { kind, epoch: of, promised: epoch(rest[0]) };
    case 'install':
      return {
        kind,
        epoch: of,
        view: viewOf(options, usual),
        base: position(rest[0]),
        to: count(options, 'to', usual.life) as Incarnation,
        urgent: options.get('urgent') === 'yes',
      };
    case 'installed':
    case 'ack':
    case 'flush':
    case 'flushed':
      return { kind, epoch: of, seq: number(rest[0]) };
    case 'resend':
      return { kind, epoch: of, fromSeq: number(rest[0]) };
    case 'write': {
      const committedSeq = count(options, 'committed');
      return { kind, epoch: of, seq: number(rest[0]), committedSeq, operation: operation(rest[1], options) };
    }
    case 'heartbeat':
      return {
        kind,
        epoch: of,
        view: viewOf(options, usual),
        committedSeq: count(options, 'committed'),
        sentSeq: count(options, 'sent'),
        beat: count(options, 'beat'),
        guardMs: count(options, 'guard'),
      };
    case 'heartbeat-ack':
      return {
        kind,
        epoch: of,
        position: position(rest[0]),
        beat: count(options, 'beat'),
        trust: trust(options),
      };
    case 'commit':
      return { kind, epoch: of, committedSeq: number(rest[0]) };
    case 'read-request':
      return { kind, epoch: of, nonce: number(rest[0]) };
    case 'read-grant': {
      const [nonce, durationMs, startSeq] = rest.map(Number) as [number, number, number];
      return { kind, epoch: of, nonce, durationMs, startSeq };
    }
    case 'read-revoke':
    case 'read-returned':
    case 'yield':
      return { kind, epoch: of };
    default:
      throw new Error(`"${kind}" is no message`);
  }
}

/** A change of view has no body and no request. */
function operation(body: string | undefined, options: Options): Operation {
  const change = options.get('view');
  const nothing = new Uint8Array(0);
  if (change !== undefined) return { request: null, result: nothing, body: nothing, view: view(change) };
  const [session, count, since, answered] = (options.get('request') ?? '').split('.').map(Number);
  const request =
    session === undefined || count === undefined
      ? null
      : { session, number: count, since: since ?? 0, ...(answered !== undefined && { answered }) };
  return { request, result: Buffer.from(`did-${body}`), body: Buffer.from(body ?? '') };
}

function number(word: string | undefined): number {
  const value = Number(word);
  assert.ok(Number.isFinite(value), `"${word}" is a number`);
  return value;
}

function count(options: Options, name: string, usual = 0): number {
  const given = options.get(name);
  return given === undefined ? usual : number(given);
}

function trust(options: Options): Trust {
  return (options.get('trust') ?? 'intact') as Trust;
}

function viewOf(options: Options, usual: Usual): View {
  const given = options.get('view');
  return given === undefined ? usual.view : view(given);
}

function view(word: string): View {
  const [name, rest] = word.split(':') as [string, string];
  const [sides, policy] = rest.split('/') as [string, string | undefined];
  const [members, joint] = sides.split('+').map((side) => side.split(',') as ServerId[]) as [
    ServerId[],
    ServerId[] | undefined,
  ];
  return {
    number: number(name),
    members,
    ...(joint === undefined ? {} : { joint }),
    ...(policy === undefined ? {} : { policy: policy as Policy }),
  };
}

function viewText({ number: name, members, joint, policy }: View): string {
  const sides = joint === undefined ? members.join() : `${members.join()}+${joint.join()}`;
  return `${name}:${sides}${policy === undefined ? '' : `/${policy}`}`;
}

/** Nothing for the first view, which most conversations never leave. */
function byView(by: View): string {
  return by.number === 1 ? '' : ` by ${viewText(by)}`;
}

/** Nothing for an intact store. */
function ofTrust(how: Trust): string {
  return how === 'intact' ? '' : ` ${how}`;
}

/** Nothing if it is meant for any incarnation. */
function toLife(life: Incarnation): string {
  return life === 0 ? '' : ` to life ${life}`;
}

/** The first incarnations of a, b and c are 1, 2 and 3, so that they differ. */
function incarnation(server: ServerId): Incarnation {
  return (server.charCodeAt(0) - 96) as Incarnation;
}

/** `3@a`, or `3@a#20` for another incarnation of a than the usual one. */
function epoch(word: string | undefined): Epoch {
  const [counter, name] = (word ?? '').split('@');
  if (name === undefined) return EPOCH_ZERO;
  const [server, life] = name.split('#') as [ServerId, string | undefined];
  return {
    counter: number(counter),
    server,
    incarnation: life === undefined ? incarnation(server) : (number(life) as Incarnation),
  };
}

function position(word: string | undefined): Position {
  const [of, seq] = (word ?? '').split('/');
  return { epoch: epoch(of), seq: number(seq) };
}

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString();

function operationText({ view: change, body }: Operation): string {
  return change === undefined ? text(body) : viewText(change);
}

function shown(action: ReplicaAction): string {
  switch (action.kind) {
    case 'send':
      return `→ ${action.to} ${shownMessage(action.message)}`;
    case 'promise':
      return `promise ${epochFormat(action.epoch)}`;
    case 'apply':
      return `apply ${epochFormat(action.epoch)}/${action.seq} ${operationText(action.operation)}`;
    case 'fetch-state':
      return `fetch-state for ${epochFormat(action.epoch)} from ${action.from}`;
    case 'install-part':
      return `install-part ${positionFormat(action.position)}${byView(action.view)}`;
    case 'install':
      return `install ${epochFormat(action.epoch)}/${action.seq} ${action.fetched ? 'fetched' : 'stamped'}${byView(action.view)}`;
    case 'begin':
      return `begin ${epochFormat(action.epoch)}${byView(action.view)}`;
    case 'flush-local':
    case 'stopped':
      return action.kind;
    case 'committed':
      return `committed ticket ${action.ticket} at ${action.seq}: ${text(action.result)}`;
    case 'refused':
      return `refused ticket ${action.ticket}: ${action.reason}`;
    case 'unknown':
    case 'flushed':
      return `${action.kind} ticket ${action.ticket}`;
    case 'members-changed':
      return `members-changed ticket ${action.ticket}: ${viewText(action.view)}`;
    case 'view-changed':
      return `view-changed ${viewText(action.view)}`;
    case 'advanced':
      return `advanced to ${action.committedSeq}`;
    case 'role-changed':
      return `is ${action.role} of ${epochFormat(action.epoch)}`;
    case 'trace':
      return `(${action.mark})`;
  }
}

function shownMessage(message: ReplicaMessage): string {
  const of = `${message.kind} ${epochFormat(message.epoch)}`;
  switch (message.kind) {
    case 'prepare':
    case 'begin':
      return `${of}${byView(message.view)}`;
    case 'promise':
      return `${of} at ${positionFormat(message.position)}${byView(message.view)}${ofTrust(message.trust)}`;
    case 'need-state':
      return `${of} at ${positionFormat(message.position)}`;
    case 'heartbeat-ack':
      return `${of} at ${positionFormat(message.position)} beat=${message.beat}${ofTrust(message.trust)}`;
    case 'refuse':
      return `${of} for ${epochFormat(message.promised)}`;
    case 'install':
      return `${of} base ${positionFormat(message.base)}${byView(message.view)}${toLife(message.to)}`;
    case 'installed':
    case 'ack':
    case 'flush':
    case 'flushed':
      return `${of} ${message.seq}`;
    case 'resend':
      return `${of} from ${message.fromSeq}`;
    case 'write':
      return `${of} ${message.seq} ${operationText(message.operation)} committed=${message.committedSeq}`;
    case 'heartbeat': {
      const { committedSeq, sentSeq, beat, guardMs } = message;
      return `${of} committed=${committedSeq} sent=${sentSeq} beat=${beat} guard=${guardMs}${byView(message.view)}`;
    }
    case 'commit':
      return `${of} ${message.committedSeq}`;
    case 'read-request':
      return `${of} nonce=${message.nonce}`;
    case 'read-grant':
      return `${of} nonce=${message.nonce} for ${message.durationMs} from operation ${message.startSeq}`;
    case 'read-revoke':
    case 'read-returned':
    case 'yield':
      return of;
  }
}
