import { unreachable } from '../base/assert.ts';
import { type CellId, type Incarnation, isServerId, type ServerId } from '../base/ids.ts';
import { ByteReader, ByteWriter, MalformedError } from '../wire/bytes.ts';
import { CLAIM_NOTE_MAX } from './actions.ts';
import { BALLOT_ZERO, type Ballot, ballotCompare, INTERVALS_MAX } from './ballot.ts';
import type { ServerIncarnation } from './incarnations.ts';
import type { Claim, Lease } from './lease.ts';
import type { LeaseEnvelope, LeaseMessage, RefusedMessage } from './messages.ts';

/**
 * Version of the frame. A frame consists of version, envelope, a table of the server incarnations that its ballots and
 * leases refer to by index, and messages of any cells. Integers are varints of seven-bit groups, least first, so that
 * a READ takes about a dozen bytes. A tag is never reused.
 */
const FRAME_VERSION = 2;

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
  query: 12,
} as const satisfies Record<LeaseMessage['kind'], number>;

/** Kinds by tag. */
const KINDS: (LeaseMessage['kind'] | undefined)[] = [];
for (const [kind, tag] of Object.entries(TAGS)) KINDS[tag] = kind as LeaseMessage['kind'];

const REASONS: readonly RefusedMessage['reason'][] = ['old', 'future', 'still-valid'];

const LEASE_PRESENT = 1;
const LEASE_RELEASED = 2;
/** The lease was set by the adjacent ballot: not encoded twice, and one shared object after decoding. */
const LEASE_UID_BESIDE = 4;
const LEASE_CLAIMED = 8;
const LEASE_FLAGS = 15;

const ROUND_MAX = 0xffff_ffff;

const HEADER_BYTES_MAX = 64;
const INCARNATION_BYTES_MAX = 2 + 32 + 8;

export interface LeaseFrame {
  readonly envelope: LeaseEnvelope;
  readonly messages: readonly LeaseMessage[];
}

/** Packs messages for one peer one by one, so that they need not be kept until the frame is full. */
export class LeaseFrameWriter {
  #incarnations = new FrameIncarnations();
  readonly #body = new ByteWriter(128);
  #count = 0;

  get sizeBytes(): number {
    return this.#body.length;
  }

  add(message: LeaseMessage): void {
    messageWrite(this.#body, this.#incarnations, message);
    this.#count++;
  }

  /** @returns the frame; the writer is empty afterwards */
  finish(envelope: LeaseEnvelope): Uint8Array {
    const { entries } = this.#incarnations;
    const frame = new ByteWriter(
      HEADER_BYTES_MAX + INCARNATION_BYTES_MAX * entries.length + this.#body.length,
    );
    frame
      .uint8(FRAME_VERSION)
      .uint53(envelope.incarnation)
      .float64(envelope.startedMs)
      .uint32(envelope.parametersHash)
      .float64(envelope.clockMs)
      .float64(envelope.echoMs);
    frame.varint(entries.length);
    for (const { server, incarnation } of entries) frame.text(server).uint53(incarnation);
    frame.varint(this.#count);
    const bytes = frame.raw(this.#body.finish()).finish();
    this.#body.clear();
    this.#incarnations = new FrameIncarnations();
    this.#count = 0;
    return bytes;
  }
}

/** Reads a frame in batches, from a view of `bytes`. Throws `MalformedError`; messages read before stay valid. */
export class LeaseFrameReader {
  readonly envelope: LeaseEnvelope;
  readonly #reader: ByteReader;
  readonly #incarnations: readonly ServerIncarnation[];
  #remaining: number;

  constructor(bytes: Uint8Array) {
    const reader = new ByteReader(bytes);
    const version = reader.uint8();
    if (version !== FRAME_VERSION) throw new MalformedError(`Lease frame of version ${version}`);
    this.envelope = {
      incarnation: reader.uint53() as Incarnation,
      startedMs: reader.float64(),
      parametersHash: reader.uint32(),
      clockMs: reader.float64(),
      echoMs: reader.float64(),
    };
    const incarnations: ServerIncarnation[] = [];
    for (let left = reader.varint(); left > 0; left--) {
      const server = serverIdOf(reader.text());
      incarnations.push({ server, incarnation: reader.uint53() as Incarnation });
    }
    this.#reader = reader;
    this.#incarnations = incarnations;
    this.#remaining = reader.varint();
    if (this.#remaining === 0) reader.end();
  }

  /** @returns the next messages, at most `max`; empty at the end */
  next(max: number): LeaseMessage[] {
    const messages: LeaseMessage[] = [];
    for (; this.#remaining > 0 && messages.length < max; this.#remaining--) {
      messages.push(messageRead(this.#reader, this.#incarnations));
      if (this.#remaining === 1) this.#reader.end();
    }
    return messages;
  }
}

export function encodeLeaseFrame(envelope: LeaseEnvelope, messages: readonly LeaseMessage[]): Uint8Array {
  const writer = new LeaseFrameWriter();
  for (const message of messages) writer.add(message);
  return writer.finish(envelope);
}

export function decodeLeaseFrame(bytes: Uint8Array): LeaseFrame {
  const reader = new LeaseFrameReader(bytes);
  return { envelope: reader.envelope, messages: reader.next(Infinity) };
}

function messageWrite(writer: ByteWriter, incarnations: FrameIncarnations, message: LeaseMessage): void {
  const { kind, cell, view } = message;
  writer.uint8(TAGS[kind]).varint(cell).varint(view);
  if (kind === 'release') {
    ballotWrite(writer, incarnations, message.uid);
    return;
  }
  const { ballot } = message;
  ballotWrite(writer, incarnations, ballot);
  switch (kind) {
    case 'read':
    case 'query':
    case 'ack-write':
    case 'wrong-view':
      break;
    case 'write':
      writer.uint8(message.acquires ? 1 : 0);
      leaseWrite(writer, incarnations, message.lease, ballot);
      break;
    case 'ack-read':
      ballotWrite(writer, incarnations, message.written);
      leaseWrite(writer, incarnations, message.lease, message.written);
      break;
    case 'nack-read':
    case 'nack-write':
      ballotWrite(writer, incarnations, message.largestBallot);
      break;
    case 'refused-read':
    case 'refused-write':
      writer.uint8(REASONS.indexOf(message.reason));
      break;
    case 'learn':
      leaseWrite(writer, incarnations, message.lease, ballot);
      break;
    default:
      unreachable(kind);
  }
}

function messageRead(reader: ByteReader, incarnations: readonly ServerIncarnation[]): LeaseMessage {
  const tag = reader.uint8();
  const kind = KINDS[tag];
  if (kind === undefined) throw new MalformedError(`Lease message with tag ${tag}`);
  const cell = reader.varint() as CellId;
  const view = reader.varint();
  const ballot = ballotRead(reader, incarnations);
  // The cores assert that ballots of attempts are larger than zero.
  if (ballot === BALLOT_ZERO) throw new MalformedError('An attempt without a ballot');
  switch (kind) {
    case 'read':
    case 'query':
    case 'ack-write':
    case 'wrong-view':
      return { kind, cell, view, ballot };
    case 'write': {
      const acquires = flagRead(reader);
      return { kind, cell, view, ballot, lease: leaseReadPresent(reader, incarnations, ballot), acquires };
    }
    case 'ack-read': {
      const written = ballotRead(reader, incarnations);
      const lease = leaseRead(reader, incarnations, written);
      if (lease !== null && written === BALLOT_ZERO) {
        throw new MalformedError('A register has a lease only if it was written');
      }
      return { kind, cell, view, ballot, written, lease };
    }
    case 'nack-read':
    case 'nack-write':
      return { kind, cell, view, ballot, largestBallot: ballotRead(reader, incarnations) };
    case 'refused-read':
    case 'refused-write': {
      const reason = REASONS[reader.uint8()];
      if (reason === undefined) throw new MalformedError('An unknown reason for a refusal');
      return { kind, cell, view, ballot, reason };
    }
    case 'learn':
      return { kind, cell, view, ballot, lease: leaseReadPresent(reader, incarnations, ballot) };
    case 'release':
      return { kind, cell, view, uid: ballot };
    default:
      return unreachable(kind);
  }
}

function leaseWrite(
  writer: ByteWriter,
  incarnations: FrameIncarnations,
  lease: Lease | null,
  beside: Ballot,
): void {
  if (lease === null) {
    writer.uint8(0);
    return;
  }
  const { claim, untilMs, uid } = lease;
  const shared = ballotCompare(uid, beside) === 0;
  writer.uint8(
    LEASE_PRESENT |
      (lease.released ? LEASE_RELEASED : 0) |
      (shared ? LEASE_UID_BESIDE : 0) |
      (claim === null ? 0 : LEASE_CLAIMED),
  );
  writer.float64(untilMs);
  if (!shared) ballotWrite(writer, incarnations, uid);
  if (claim !== null) writer.uint53(claim.session).uint53(claim.token).text(claim.note);
}

function leaseRead(
  reader: ByteReader,
  incarnations: readonly ServerIncarnation[],
  beside: Ballot,
): Lease | null {
  const flags = reader.uint8();
  if (flags === 0) return null;
  if ((flags & LEASE_PRESENT) === 0 || flags > LEASE_FLAGS) throw new MalformedError('Unknown lease flags');
  const untilMs = reader.float64();
  if (!Number.isFinite(untilMs)) throw new MalformedError('A lease without an end');
  const uid = (flags & LEASE_UID_BESIDE) !== 0 ? beside : ballotRead(reader, incarnations);
  if (uid === BALLOT_ZERO) throw new MalformedError('A lease without a ballot');
  return {
    holder: uid.server,
    incarnation: uid.incarnation,
    untilMs,
    uid,
    released: (flags & LEASE_RELEASED) !== 0,
    claim: (flags & LEASE_CLAIMED) !== 0 ? claimRead(reader) : null,
  };
}

function claimRead(reader: ByteReader): Claim {
  const claim = { session: reader.uint53(), token: reader.uint53(), note: reader.text() };
  if (claim.note.length > CLAIM_NOTE_MAX) throw new MalformedError('A note is too long');
  return claim;
}

function leaseReadPresent(
  reader: ByteReader,
  incarnations: readonly ServerIncarnation[],
  beside: Ballot,
): Lease {
  const lease = leaseRead(reader, incarnations, beside);
  if (lease === null) throw new MalformedError('A message without its lease');
  return lease;
}

/** The round comes first: only the zero ballot has round 0, and it has no other field. */
function ballotWrite(writer: ByteWriter, incarnations: FrameIncarnations, k: Ballot): void {
  writer.varint(k.round);
  if (k.round === 0) return;
  writer.varint(k.interval).varint(incarnations.index(k.server, k.incarnation));
}

function ballotRead(reader: ByteReader, incarnations: readonly ServerIncarnation[]): Ballot {
  const round = reader.varint();
  if (round === 0) return BALLOT_ZERO;
  const interval = reader.varint();
  if (round > ROUND_MAX || interval >= INTERVALS_MAX) throw new MalformedError('A ballot out of range');
  const { server, incarnation } = incarnationRead(reader, incarnations);
  return { interval, round, server, incarnation };
}

/** The table of a frame that is being written. `index` adds a server incarnation that is not in it yet. */
class FrameIncarnations {
  readonly entries: ServerIncarnation[] = [];

  index(server: ServerId, incarnation: Incarnation): number {
    const { entries } = this;
    for (let i = 0; i < entries.length; i++) {
      const entry = entries[i] as ServerIncarnation;
      if (entry.incarnation === incarnation && entry.server === server) return i;
    }
    entries.push({ server, incarnation });
    return entries.length - 1;
  }
}

/** Servers of earlier frames: the same text as the same object, so that comparisons look at no characters. */
const knownServers = new Map<string, ServerId>();
const KNOWN_SERVERS_MAX = 1024;

function serverIdOf(text: string): ServerId {
  const known = knownServers.get(text);
  if (known !== undefined) return known;
  if (!isServerId(text)) throw new MalformedError('A server id is malformed');
  if (knownServers.size < KNOWN_SERVERS_MAX) knownServers.set(text, text);
  return text;
}

function incarnationRead(reader: ByteReader, incarnations: readonly ServerIncarnation[]): ServerIncarnation {
  const found = incarnations[reader.varint()];
  if (found === undefined) throw new MalformedError('An incarnation that the frame does not list');
  return found;
}

function flagRead(reader: ByteReader): boolean {
  const value = reader.uint8();
  if (value > 1) throw new MalformedError('A flag is 0 or 1');
  return value === 1;
}
