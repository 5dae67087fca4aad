import { assert, unreachable } from '../base/assert.ts';
import { type CellId, type Incarnation, isServerId, type ServerId } from '../base/ids.ts';
import { ByteReader, ByteWriter, MalformedError } from '../wire/bytes.ts';
import { BALLOT_ZERO, type Ballot, ballotCompare } from './ballot.ts';
import type { Lease } from './lease.ts';
import type { LeaseEnvelope, LeaseMessage, RefusedMessage } from './messages.ts';

/**
 * A frame: version, envelope, a table of the server lives that its ballots and leases name, and any
 * number of messages of any cells. Integers are in groups of seven bits, least first, so that a READ
 * takes about a dozen bytes. A tag is given once and never reused.
 */
const FRAME_VERSION = 1;

const TAGS = {
  read: 1,
  write: 2,
  'ack-read': 3,
  'ack-write': 4,
  'nack-read': 5,
  'nack-write': 6,
  'refused-read': 7,
  'refused-write': 8,
  'wrong-view': 9,
  learn: 10,
  release: 11,
} as const satisfies Record<LeaseMessage['kind'], number>;

const KINDS = new Map<number, LeaseMessage['kind']>(
  Object.entries(TAGS).map(([kind, tag]) => [tag, kind as LeaseMessage['kind']]),
);

const REASONS: readonly RefusedMessage['reason'][] = ['old', 'future', 'still-valid'];

const LEASE_PRESENT = 1;
const LEASE_RELEASED = 2;
/** The lease was set by the ballot beside it: not written twice, and one object after decoding. */
const LEASE_UID_BESIDE = 4;

/** Both buffers are sized for the worst case, so that they are allocated once and never moved. */
const HEADER_BYTES_MAX = 64;
const LIFE_BYTES_MAX = 2 + 32 + 8;
const INTEGER_BYTES_MAX = 8;
const BALLOT_BYTES_MAX = 3 * INTEGER_BYTES_MAX;
const LEASE_BYTES_MAX = 1 + INTEGER_BYTES_MAX + 8 + BALLOT_BYTES_MAX;
const MESSAGE_BYTES_MAX = 2 + 2 * INTEGER_BYTES_MAX + 2 * BALLOT_BYTES_MAX + LEASE_BYTES_MAX;

export interface LeaseFrame {
  readonly envelope: LeaseEnvelope;
  readonly messages: readonly LeaseMessage[];
}

/** Packs messages for one peer. `decodeLeaseFrame` gives the same back. */
export function encodeLeaseFrame(envelope: LeaseEnvelope, messages: readonly LeaseMessage[]): Uint8Array {
  const lives = new LifeTable();
  const body = new ByteWriter(MESSAGE_BYTES_MAX * messages.length);
  for (const message of messages) messageWrite(body, lives, message);
  const frame = new ByteWriter(HEADER_BYTES_MAX + LIFE_BYTES_MAX * lives.entries.length + body.length);
  frame
    .uint8(FRAME_VERSION)
    .uint53(envelope.incarnation)
    .float64(envelope.startedMs)
    .uint32(envelope.parametersHash)
    .float64(envelope.clockMs)
    .float64(envelope.echoMs);
  integerWrite(frame, lives.entries.length);
  for (const { server, incarnation } of lives.entries) frame.text(server).uint53(incarnation);
  integerWrite(frame, messages.length);
  return frame.raw(body.finish()).finish();
}

/** Reads what `encodeLeaseFrame` wrote; throws `MalformedError` on anything else. Keeps no view of `bytes`. */
export function decodeLeaseFrame(bytes: Uint8Array): LeaseFrame {
  const reader = new ByteReader(bytes);
  const version = reader.uint8();
  if (version !== FRAME_VERSION) throw new MalformedError(`Lease frame of version ${version}`);
  const envelope: LeaseEnvelope = {
    incarnation: reader.uint53() as Incarnation,
    startedMs: reader.float64(),
    parametersHash: reader.uint32(),
    clockMs: reader.float64(),
    echoMs: reader.float64(),
  };
  const lives: Life[] = [];
  for (let left = integerRead(reader); left > 0; left--) {
    const server = reader.text();
    if (!isServerId(server)) throw new MalformedError('A server id is malformed');
    lives.push({ server, incarnation: reader.uint53() as Incarnation });
  }
  const messages: LeaseMessage[] = [];
  for (let left = integerRead(reader); left > 0; left--) messages.push(messageRead(reader, lives));
  reader.end();
  return { envelope, messages };
}

function messageWrite(writer: ByteWriter, lives: LifeTable, message: LeaseMessage): void {
  writer.uint8(TAGS[message.kind]);
  integerWrite(writer, message.cell);
  integerWrite(writer, message.view);
  ballotWrite(writer, lives, message.kind === 'release' ? message.uid : message.ballot);
  switch (message.kind) {
    case 'read':
    case 'ack-write':
    case 'wrong-view':
    case 'release':
      break;
    case 'write':
      writer.uint8(message.acquires ? 1 : 0);
      leaseWrite(writer, lives, message.lease, message.ballot);
      break;
    case 'ack-read':
      ballotWrite(writer, lives, message.written);
      leaseWrite(writer, lives, message.lease, message.written);
      break;
    case 'nack-read':
    case 'nack-write':
      ballotWrite(writer, lives, message.standing);
      break;
    case 'refused-read':
    case 'refused-write':
      writer.uint8(REASONS.indexOf(message.reason));
      break;
    case 'learn':
      leaseWrite(writer, lives, message.lease, message.ballot);
      break;
    default:
      unreachable(message);
  }
}

function messageRead(reader: ByteReader, lives: readonly Life[]): LeaseMessage {
  const tag = reader.uint8();
  const kind = KINDS.get(tag);
  if (kind === undefined) throw new MalformedError(`Lease message with tag ${tag}`);
  const cell = integerRead(reader) as CellId;
  const view = integerRead(reader);
  const ballot = ballotRead(reader, lives);
  // Ballots of attempts are larger than zero; the cores assert it.
  if (ballot === BALLOT_ZERO) throw new MalformedError('An attempt without a ballot');
  switch (kind) {
    case 'read':
    case 'ack-write':
    case 'wrong-view':
      return { kind, cell, view, ballot };
    case 'write': {
      const acquires = flagRead(reader);
      return { kind, cell, view, ballot, acquires, lease: leaseReadPresent(reader, lives, ballot) };
    }
    case 'ack-read': {
      const written = ballotRead(reader, lives);
      const lease = leaseRead(reader, lives, written);
      if ((lease === null) !== (written === BALLOT_ZERO)) {
        throw new MalformedError('A register has a lease exactly if it was written');
      }
      return { kind, cell, view, ballot, written, lease };
    }
    case 'nack-read':
    case 'nack-write':
      return { kind, cell, view, ballot, standing: ballotRead(reader, lives) };
    case 'refused-read':
    case 'refused-write': {
      const reason = REASONS[reader.uint8()];
      if (reason === undefined) throw new MalformedError('An unknown reason for a refusal');
      return { kind, cell, view, ballot, reason };
    }
    case 'learn':
      return { kind, cell, view, ballot, lease: leaseReadPresent(reader, lives, ballot) };
    case 'release':
      return { kind, cell, view, uid: ballot };
    default:
      return unreachable(kind);
  }
}

function leaseWrite(writer: ByteWriter, lives: LifeTable, lease: Lease | null, beside: Ballot): void {
  if (lease === null) {
    writer.uint8(0);
    return;
  }
  const shared = ballotCompare(lease.uid, beside) === 0;
  writer.uint8(LEASE_PRESENT | (lease.released ? LEASE_RELEASED : 0) | (shared ? LEASE_UID_BESIDE : 0));
  integerWrite(writer, lives.index(lease.holder, lease.incarnation));
  writer.float64(lease.untilMs);
  if (!shared) ballotWrite(writer, lives, lease.uid);
}

function leaseRead(reader: ByteReader, lives: readonly Life[], beside: Ballot): Lease | null {
  const flags = reader.uint8();
  if (flags === 0) return null;
  if ((flags & LEASE_PRESENT) === 0 || flags > 7) throw new MalformedError('Unknown lease flags');
  const { server: holder, incarnation } = lifeRead(reader, lives);
  const untilMs = reader.float64();
  const uid = (flags & LEASE_UID_BESIDE) !== 0 ? beside : ballotRead(reader, lives);
  if (uid === BALLOT_ZERO) throw new MalformedError('A lease without a ballot');
  return { holder, incarnation, untilMs, uid, released: (flags & LEASE_RELEASED) !== 0 };
}

function leaseReadPresent(reader: ByteReader, lives: readonly Life[], beside: Ballot): Lease {
  const lease = leaseRead(reader, lives, beside);
  if (lease === null) throw new MalformedError('A message without its lease');
  return lease;
}

/** The round comes first: it is 0 in the zero ballot only, which is nothing else. */
function ballotWrite(writer: ByteWriter, lives: LifeTable, k: Ballot): void {
  integerWrite(writer, k.round);
  if (k.round === 0) return;
  integerWrite(writer, k.interval);
  integerWrite(writer, lives.index(k.server, k.incarnation));
}

function ballotRead(reader: ByteReader, lives: readonly Life[]): Ballot {
  const round = integerRead(reader);
  if (round === 0) return BALLOT_ZERO;
  const interval = integerRead(reader);
  return { interval, round, ...lifeRead(reader, lives) };
}

interface Life {
  readonly server: ServerId;
  readonly incarnation: Incarnation;
}

/** Collects the lives a frame names; there are a handful. */
class LifeTable {
  readonly entries: Life[] = [];

  index(server: ServerId, incarnation: Incarnation): number {
    const { entries } = this;
    for (let i = 0; i < entries.length; i++) {
      const life = entries[i] as Life;
      if (life.incarnation === incarnation && life.server === server) return i;
    }
    entries.push({ server, incarnation });
    return entries.length - 1;
  }
}

function lifeRead(reader: ByteReader, lives: readonly Life[]): Life {
  const life = lives[integerRead(reader)];
  if (life === undefined) throw new MalformedError('A life that the frame does not list');
  return life;
}

function flagRead(reader: ByteReader): boolean {
  const value = reader.uint8();
  if (value > 1) throw new MalformedError('A flag is 0 or 1');
  return value === 1;
}

/** A non-negative integer below 2^53 in one to eight bytes. */
function integerWrite(writer: ByteWriter, value: number): void {
  assert(Number.isSafeInteger(value) && value >= 0, 'A non-negative integer below 2^53 is written');
  let rest = value;
  while (rest >= 0x80) {
    writer.uint8(0x80 | (rest % 0x80));
    rest = Math.floor(rest / 0x80);
  }
  writer.uint8(rest);
}

function integerRead(reader: ByteReader): number {
  let value = 0;
  let scale = 1;
  for (let count = 1; count <= 8; count++) {
    const byte = reader.uint8();
    value += (byte & 0x7f) * scale;
    if (byte < 0x80) {
      if (!Number.isSafeInteger(value)) throw new MalformedError('A number is not below 2^53');
      if (byte === 0 && count > 1) throw new MalformedError('A number is longer than it needs to be');
      return value;
    }
    scale *= 0x80;
  }
  throw new MalformedError('A number does not end');
}
