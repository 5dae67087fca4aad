/**
 * One replica, spoken to. The files in `test/testdata/replica` say what reaches it; the answers are
 * the actions it takes, one per line. Server a is the one spoken to unless a file says otherwise.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch, Operation, Position, ReplicaAction, ReplicaEvent } from '../../replica/actions.ts';
import { EPOCH_ZERO, epochFormat, positionFormat } from '../../replica/epoch.ts';
import { assertReplica, assertStep } from '../../replica/invariants.ts';
import type { ReplicaMessage, ReplicaMessageBody } from '../../replica/messages.ts';
import { Replica } from '../../replica/replica.ts';
import { type Handler, playConversations } from '../data-driven.ts';

const FOLDER = fileURLToPath(new URL('../testdata/replica/', import.meta.url));
const marks = new Set<string>();

class Spoken {
  replica: Replica | null = null;
  nowMs = 0;
  members: ServerId[] = [];

  say(words: readonly string[]): string[] {
    const [verb, ...rest] = words;
    const { options, args } = split(rest);
    switch (verb) {
      case 'replica':
        this.#start(args, options);
        return [];
      case 'at':
        this.nowMs = number(args[0]);
        return [];
      case 'gate':
        return [this.#replica.readGate(number(args[0]), this.nowMs)];
      case 'wake':
        return [String(this.#replica.nextWakeMs())];
      case 'status': {
        const { role, epoch, seq, committedSeq, peers } = this.#replica.status(this.nowMs);
        const known = peers.map(({ server, state, seq: at }) => `${server}: ${state} at ${at}`);
        return [`${role} at ${epochFormat(epoch)}/${seq}, committed ${committedSeq}`, ...known];
      }
      default:
        return this.#step(event(verb ?? '', args, options, this.members));
    }
  }

  get #replica(): Replica {
    assert.ok(this.replica !== null, 'A conversation begins with "replica"');
    return this.replica;
  }

  #start(args: readonly string[], options: ReadonlyMap<string, string>): void {
    const [self, of, ...members] = args;
    assert.equal(of, 'of');
    this.members = members as ServerId[];
    const installed = position(options.get('at') ?? '0/0');
    this.replica = new Replica(
      {
        self: self as ServerId,
        incarnation: incarnation(self as ServerId),
        appliesAtPrimary: options.get('applies') === 'last' ? 'last' : 'first',
        heartbeatMs: 100,
        quietHeartbeatMs: 100,
        silentMs: 500,
        retainedBytesMax: number(options.get('retained') ?? '100000'),
      },
      1 as FileId,
      {
        view: { number: 1, members: this.members },
        promised: epoch(options.get('promised') ?? epochFormat(installed.epoch)),
        installed: installed.epoch,
        seq: installed.seq,
        sessions: new Uint8Array(),
      },
      this.nowMs,
    );
    assertReplica(this.replica.inspect());
  }

  #step(what: ReplicaEvent): string[] {
    const before = this.#replica.inspect();
    const actions = this.#replica.step(what, this.nowMs);
    assertStep(before, this.#replica.inspect());
    return actions.map(shown);
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

function event(
  verb: string,
  args: readonly string[],
  options: ReadonlyMap<string, string>,
  members: readonly ServerId[],
): ReplicaEvent {
  switch (verb) {
    case 'lease':
      return { kind: 'lease', untilMs: number(args[0]) };
    case 'tick':
    case 'stop':
      return { kind: verb };
    case 'connected':
      return { kind: 'connected', peer: args[0] as ServerId };
    case 'submit':
      return { kind: 'submit', ticket: number(args[0]), operation: operation(args[1], options) };
    case 'flush':
      return { kind: 'flush', ticket: number(args[0]) };
    case 'promised':
      return { kind: 'promised', epoch: epoch(args[0]) };
    case 'applied':
    case 'installed': {
      const { epoch: of, seq } = position(args[0]);
      return { kind: verb, epoch: of, seq };
    }
    case 'state-fetched': {
      const sessions = new Uint8Array();
      return { kind: 'state-fetched', epoch: epoch(args[0]), position: position(args[1]), sessions };
    }
    case 'state-failed':
      return { kind: 'state-failed', epoch: epoch(args[0]), reason: 'as told' };
    case 'flush-done':
      return { kind: 'flush-done', seq: number(args[0]) };
    case 'storage-failed':
      return { kind: 'storage-failed', reason: 'as told' };
    case 'from': {
      const [from, kind, of, ...rest] = args;
      const body = messageBody(kind ?? '', epoch(of), rest, options, members);
      const life = options.get('life');
      const header = {
        view: number(options.get('view') ?? '1'),
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
  options: ReadonlyMap<string, string>,
  members: readonly ServerId[],
): ReplicaMessageBody {
  switch (kind) {
    case 'prepare':
      return { kind, epoch: of, members };
    case 'promise':
    case 'need-state':
    case 'heartbeat-ack':
      return { kind, epoch: of, position: position(rest[0]) };
    case 'refuse':
      return { kind, epoch: of, promised: epoch(rest[0]) };
    case 'install':
      return { kind, epoch: of, members, base: position(rest[0]) };
    case 'installed':
    case 'ack':
    case 'flush':
    case 'flushed':
      return { kind, epoch: of, seq: number(rest[0]) };
    case 'resend':
      return { kind, epoch: of, fromSeq: number(rest[0]) };
    case 'write': {
      const committedSeq = number(options.get('committed') ?? '0');
      return { kind, epoch: of, seq: number(rest[0]), committedSeq, operation: operation(rest[1], options) };
    }
    case 'heartbeat': {
      const committedSeq = number(options.get('committed') ?? '0');
      return { kind, epoch: of, members, committedSeq, sentSeq: number(options.get('sent') ?? '0') };
    }
    default:
      throw new Error(`"${kind}" is no message`);
  }
}

function operation(body: string | undefined, options: ReadonlyMap<string, string>): Operation {
  const [session, count, since] = (options.get('request') ?? '').split('.').map(Number);
  const request =
    session === undefined || count === undefined ? null : { session, number: count, since: since ?? 0 };
  return { request, result: Buffer.from(`did-${body}`), body: Buffer.from(body ?? '') };
}

function number(word: string | undefined): number {
  const value = Number(word);
  assert.ok(Number.isFinite(value), `"${word}" is a number`);
  return value;
}

/** a lives its first life, b its second, c its third, so that lives differ. */
function incarnation(server: ServerId): Incarnation {
  return (server.charCodeAt(0) - 96) as Incarnation;
}

function epoch(word: string | undefined): Epoch {
  const [counter, server] = (word ?? '').split('@');
  if (server === undefined) return EPOCH_ZERO;
  return {
    counter: number(counter),
    server: server as ServerId,
    incarnation: incarnation(server as ServerId),
  };
}

function position(word: string | undefined): Position {
  const [of, seq] = (word ?? '').split('/');
  return { epoch: epoch(of), seq: number(seq) };
}

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString();

function shown(action: ReplicaAction): string {
  switch (action.kind) {
    case 'send':
      return `→ ${action.to} ${shownMessage(action.message)}`;
    case 'promise':
      return `promise ${epochFormat(action.epoch)}`;
    case 'apply':
      return `apply ${epochFormat(action.epoch)}/${action.seq} ${text(action.operation.body)}`;
    case 'fetch-state':
      return `fetch-state for ${epochFormat(action.epoch)} from ${action.from}`;
    case 'install':
      return `install ${epochFormat(action.epoch)}/${action.seq} ${action.fetched ? 'fetched' : 'stamped'}`;
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
    case 'advanced':
      return `advanced to ${action.committedSeq}`;
    case 'role-changed':
      return `is ${action.role} of ${epochFormat(action.epoch)}`;
    case 'trace':
      marks.add(action.mark);
      return `(${action.mark})`;
  }
}

function shownMessage(message: ReplicaMessage): string {
  const of = `${message.kind} ${epochFormat(message.epoch)}`;
  switch (message.kind) {
    case 'prepare':
      return of;
    case 'promise':
    case 'need-state':
    case 'heartbeat-ack':
      return `${of} at ${positionFormat(message.position)}`;
    case 'refuse':
      return `${of} for ${epochFormat(message.promised)}`;
    case 'install':
      return `${of} base ${positionFormat(message.base)}`;
    case 'installed':
    case 'ack':
    case 'flush':
    case 'flushed':
      return `${of} ${message.seq}`;
    case 'resend':
      return `${of} from ${message.fromSeq}`;
    case 'write':
      return `${of} ${message.seq} ${text(message.operation.body)} committed=${message.committedSeq}`;
    case 'heartbeat':
      return `${of} committed=${message.committedSeq} sent=${message.sentSeq}`;
  }
}

playConversations(FOLDER, (): Handler => {
  const spoken = new Spoken();
  return (commands) => {
    const lines = commands.flatMap((words) => spoken.say(words));
    return lines.length === 0 ? 'ok' : lines.join('\n');
  };
});

test('the conversations cover what simulations cannot', () => {
  for (const mark of ['view-mismatch', 'stranger', 'session-expired', 'storage-failed', 'reset-abandoned']) {
    assert.ok(marks.has(mark), `"${mark}" was heard`);
  }
});
