/**
 * One server, `a`, of a, b and c, as conversations. Leases last 1000 ms, clocks differ by at most 100 ms, so ballot
 * intervals are 900 ms and the recovery wait is 1200 ms. The server starts at 9000.
 *
 *     10300 open 5 view=1 members=abc handicap=0       events, at a reading of the lease clock
 *     10302 b ack-read 11.1@a written=⊥ lease=⊥         a message of peer b
 *     10400 tick | owns | view | wake | claim           the timer; queries
 *     10300 ask 1 acquire session=7 span=500 note=x     a client's request; members=bcd, deadline=11000
 *     9000 algorithm paxoslease                         starts again with the other algorithm
 *     9000 thrifty                                      starts again, and sends no more requests than it must
 *     9000 former 12000                                 starts again, after a process whose clock had shown so much
 *
 * `parameters=`, `life=` and `clock=` change what the frame's envelope says.
 */
import { fileURLToPath } from 'node:url';
import { type CellId, type Incarnation, isServerId, type ServerId } from '../../base/ids.ts';
import type { ClaimedLease, LeaseAction, LeaseOrder } from '../../lease/actions.ts';
import { BALLOT_ZERO, type Ballot } from '../../lease/ballot.ts';
import { LeaseHost } from '../../lease/host.ts';
import { assertCellStep } from '../../lease/invariants.ts';
import type { Claim, Lease } from '../../lease/lease.ts';
import type { LeaseEnvelope, LeaseMessage } from '../../lease/messages.ts';
import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import { leaseParameters } from '../../lease/parameters.ts';
import { type Handler, playConversations } from '../data-driven.ts';

const SELF = 'a' as ServerId;
const START_MS = 9000;
const CONFIG = {
  leaseMs: 1000,
  clockSkewMaxMs: 100,
  self: SELF,
  incarnation: 1 as Incarnation,
  // So that every request is in the conversation; `thrifty` starts again without it.
  thrifty: false,
};
const PARAMETERS = leaseParameters(CONFIG);

/** `11.1@a`, or `11.1@a'` for the earlier incarnation. */
function ballotParse(text: string): Ballot {
  if (text === '⊥') return BALLOT_ZERO;
  const match = /^(\d+)\.(\d+)@([0-9a-z]+)('?)$/.exec(text);
  if (match === null) throw new Error(`Not a ballot: ${text}`);
  const [, interval, round, server, earlier] = match;
  return {
    interval: Number(interval),
    round: Number(round),
    server: server as ServerId,
    incarnation: (earlier === "'" ? 9 : 1) as Incarnation,
  };
}

function ballotPrint(k: Ballot): string {
  if (k.round === 0) return '⊥';
  return `${k.interval}.${k.round}@${k.server}${k.incarnation === 9 ? "'" : ''}`;
}

/** `b/12000/11.3@b`, followed by `/released` if so, and by a client's claim as `+7:100:note`. */
function leaseParse(text: string): Lease | null {
  if (text === '⊥') return null;
  const [main = '', claim] = text.split('+');
  const [holder = '', until, uidText = '', released] = main.split('/');
  const uid = ballotParse(uidText);
  return {
    holder: holder as ServerId,
    incarnation: uid.incarnation,
    untilMs: Number(until),
    uid,
    released: released === 'released',
    claim: claimParse(claim),
  };
}

/** `7:100:x`: session, token, note. */
function claimParse(text: string | undefined): Claim | null {
  if (text === undefined) return null;
  const [session, token, note = ''] = text.split(':');
  return { session: Number(session), token: Number(token), note };
}

function leasePrint(lease: Lease | null): string {
  if (lease === null) return '⊥';
  const { holder, untilMs, uid, released, claim } = lease;
  const claimed = claim === null ? '' : `+${claim.session}:${claim.token}:${claim.note}`;
  return `${holder}/${untilMs}/${ballotPrint(uid)}${released ? '/released' : ''}${claimed}`;
}

function messagePrint(message: LeaseMessage): string {
  const view = message.view === 1 ? '' : ` view=${message.view}`;
  switch (message.kind) {
    case 'read':
    case 'query':
    case 'ack-write':
    case 'wrong-view':
      return `${message.kind} ${ballotPrint(message.ballot)}${view}`;
    case 'write':
      return `write ${ballotPrint(message.ballot)} lease=${leasePrint(message.lease)}${message.acquires ? ' acquires' : ''}${view}`;
    case 'ack-read':
      return `ack-read ${ballotPrint(message.ballot)} written=${ballotPrint(message.written)} lease=${leasePrint(message.lease)}${view}`;
    case 'nack-read':
    case 'nack-write':
      return `${message.kind} ${ballotPrint(message.ballot)} standing=${ballotPrint(message.largestBallot)}${view}`;
    case 'refused-read':
    case 'refused-write':
      return `${message.kind} ${ballotPrint(message.ballot)} ${message.reason}${view}`;
    case 'learn':
      return `learn ${ballotPrint(message.ballot)} lease=${leasePrint(message.lease)}${view}`;
    case 'release':
      return `release ${ballotPrint(message.uid)}${view}`;
  }
}

function claimPrint({ session, token, remainingMs, note }: ClaimedLease): string {
  return `session=${session} token=${token} remaining=${remainingMs} note=${note}`;
}

function actionPrint(action: LeaseAction): string {
  switch (action.kind) {
    case 'send':
      return `send ${action.to} ${messagePrint(action.message)}`;
    case 'held':
      return `held until ${action.untilMs}`;
    case 'lost':
      return 'lost';
    case 'learned':
      return `learned ${action.holder} until ${action.untilMs}`;
    case 'answered': {
      const { outcome } = action;
      const lease = 'lease' in outcome ? outcome.lease : null;
      return `answered ${action.ask} ${outcome.kind}${lease === null ? '' : ` ${claimPrint(lease)}`}`;
    }
    case 'claimed':
      return 'claimed';
    case 'trace':
      return `# ${action.mark}`;
  }
}

/** The same message to several peers takes one line. */
function actionsPrint(actions: readonly LeaseAction[]): string {
  const lines: string[] = [];
  for (const line of actions.map(actionPrint)) {
    const last = lines.at(-1);
    const [, to, what] = /^send (\S+) (.*)$/.exec(line) ?? [];
    if (last !== undefined && what !== undefined && last.endsWith(` ${what}`) && last.startsWith('send ')) {
      lines[lines.length - 1] = last.replace(/^send (\S+)/, `send $1,${to}`);
    } else lines.push(line);
  }
  return lines.length === 0 ? 'ok' : lines.join('\n');
}

function options(words: readonly string[]): Map<string, string> {
  return new Map(words.map((word) => word.split('=') as [string, string]));
}

function messageParse(cell: CellId, words: readonly string[]): LeaseMessage {
  const [kind, ballotText = '', ...rest] = words;
  const given = options(rest);
  const ballot = ballotParse(ballotText);
  const view = Number(given.get('view') ?? 1);
  const lease = leaseParse(given.get('lease') ?? '⊥');
  switch (kind) {
    case 'read':
    case 'query':
    case 'ack-write':
    case 'wrong-view':
      return { kind, cell, view, ballot };
    case 'ack-read':
      return { kind, cell, view, ballot, lease, written: ballotParse(given.get('written') ?? '⊥') };
    case 'nack-read':
    case 'nack-write':
      return { kind, cell, view, ballot, largestBallot: ballotParse(given.get('standing') ?? '') };
    case 'refused-read':
    case 'refused-write':
      return { kind, cell, view, ballot, reason: 'still-valid' };
    case 'release':
      return { kind, cell, view, uid: ballot };
    case 'write':
    case 'learn':
      if (lease === null) throw new Error(`${kind} needs a lease`);
      if (kind === 'learn') return { kind, cell, view, ballot, lease };
      return { kind, cell, view, ballot, lease, acquires: given.has('acquires') };
    default:
      throw new Error(`Unknown message ${kind}`);
  }
}

function noteParse(given: ReadonlyMap<string, string>): Extract<LeaseOrder, { kind: 'refresh' }>['note'] {
  const text = given.get('note');
  return text === undefined ? null : { text, before: given.get('before') ?? '' };
}

function orderParse(kind: string, given: ReadonlyMap<string, string>): LeaseOrder {
  const session = Number(given.get('session'));
  const spanMs = Number(given.get('span') ?? 500);
  switch (kind) {
    case 'acquire':
      return { kind, session, spanMs, note: given.get('note') ?? '' };
    case 'refresh':
      return { kind, session, spanMs, note: noteParse(given) };
    case 'release':
      return { kind, session };
    case 'look':
      return { kind: 'query' };
    default:
      throw new Error(`Unknown order ${kind}`);
  }
}

function start(): Handler {
  let host = new LeaseHost(CONFIG, START_MS);
  let parameters = PARAMETERS;
  const cell = 5 as CellId;

  const event = (nowMs: number, verb: string, words: readonly string[]): LeaseAction[] => {
    const given = options(words);
    switch (verb) {
      case 'open': {
        const members = [...(given.get('members') ?? 'abc')] as ServerId[];
        const view = Number(given.get('view') ?? 1);
        const joint = given.has('joint') ? { joint: [...(given.get('joint') ?? '')] as ServerId[] } : {};
        return host.step(
          { kind: 'open', cell, view, members, ...joint, handicapMs: Number(given.get('handicap') ?? 0) },
          nowMs,
        );
      }
      case 'ask': {
        const members = [...(given.get('members') ?? 'abc')] as ServerId[];
        const deadlineMs = Number(given.get('deadline') ?? nowMs + 500);
        const order = orderParse(words[1] ?? '', given);
        return host.step(
          { kind: 'ask', ask: Number(words[0]), cell, view: 1, members, order, deadlineMs },
          nowMs,
        );
      }
      case 'close':
      case 'release':
        return host.step({ kind: verb, cell }, nowMs);
      case 'succeed':
        return host.step({ kind: 'succeed', cell, from: words[0] as ServerId }, nowMs);
      case 'away':
        return host.step({ kind: 'disconnected', peer: words[0] as ServerId }, nowMs);
      case 'tick':
      case 'clock-fault':
        return host.step({ kind: verb }, nowMs);
      default: {
        if (!isServerId(verb)) throw new Error(`Unknown command ${verb}`);
        const envelope: LeaseEnvelope = {
          incarnation: Number(given.get('life') ?? 1) as Incarnation,
          startedMs: START_MS + Number(given.get('life') ?? 1),
          parametersHash: parameters.hash + Number(given.get('parameters') ?? 0),
          clockMs: nowMs + Number(given.get('clock') ?? 0),
          echoMs: 0,
        };
        return host.step(
          { kind: 'frame', from: verb, envelope, messages: [messageParse(cell, words)] },
          nowMs,
        );
      }
    }
  };

  const play = ([time, verb = '', ...words]: readonly string[]): string => {
    const nowMs = Number(time);
    switch (verb) {
      case 'owns':
        return `${host.owns(cell, nowMs)}`;
      case 'view': {
        const { holder, own, remainingMs } = host.view(cell, nowMs);
        return `holder=${holder ?? '⊥'} own=${own} remaining=${remainingMs}`;
      }
      case 'wake':
        return `${host.nextWakeMs()?.toFixed(1) ?? 'never'}`;
      case 'claim': {
        const claim = host.claim(cell, nowMs);
        return claim === null ? 'none' : claimPrint(claim);
      }
      case 'thrifty':
      case 'algorithm': {
        const algorithm = (words[0] ?? 'flease') as LeaseAlgorithm;
        const config = { ...CONFIG, algorithm, thrifty: verb === 'thrifty' };
        host = new LeaseHost(config, nowMs);
        parameters = leaseParameters(config);
        return 'ok';
      }
      case 'former':
        host = new LeaseHost({ ...CONFIG, earlierClockMs: Number(words[0]) }, nowMs);
        return 'ok';
      case 'cells':
        return `${host.cellCount}`;
      default: {
        const before = host.inspect(cell);
        const actions = event(nowMs, verb, words);
        assertCellStep(before, host.inspect(cell), nowMs, parameters);
        return actionsPrint(actions);
      }
    }
  };
  return (commands) => commands.map(play).join('\n');
}

playConversations(fileURLToPath(new URL('../testdata/lease/host', import.meta.url)), start);
