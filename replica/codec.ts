import type { FileId, Incarnation, ServerId } from '../base/ids.ts';
import { isFileId, isServerId } from '../base/ids.ts';
import { ByteReader, ByteWriter, MalformedError } from '../wire/bytes.ts';
import type { Epoch, Position } from './epoch.ts';
import { EPOCH_ZERO } from './epoch.ts';
import type { ReplicaMessage, ReplicaMessageBody } from './messages.ts';
import type { Operation, RequestId } from './operation.ts';
import type { Trust } from './record.ts';
import type { Policy, View } from './view.ts';

// A tag is never reused.
const TAG_PREPARE = 1;
const TAG_PROMISE = 2;
const TAG_REFUSE = 3;
const TAG_INSTALL = 4;
const TAG_INSTALLED = 5;
const TAG_WRITE = 6;
const TAG_ACK = 7;
const TAG_RESEND = 8;
const TAG_NEED_STATE = 9;
const TAG_HEARTBEAT = 10;
const TAG_HEARTBEAT_ACK = 11;
const TAG_FLUSH = 12;
const TAG_FLUSHED = 13;
const TAG_COMMIT = 14;
const TAG_READ_REQUEST = 15;
const TAG_READ_GRANT = 16;
const TAG_READ_REVOKE = 17;
const TAG_READ_RETURNED = 18;
const TAG_YIELD = 19;
const TAG_BEGIN = 20;

const POLICIES: readonly Policy[] = ['quorum', 'all', 'read-only'];
const TRUSTS: readonly Trust[] = ['intact', 'suspect', 'lost', 'damaged'];

const OPERATION_REQUEST = 1;
const OPERATION_VIEW = 2;

export const MEMBERS_MAX = 15;
/** Largest operation: a write of 4 MiB, or a batch of commands, with some reserve. */
export const OPERATION_BYTES_MAX = 8 * 1024 * 1024;
/** Largest result. Large catalog batches return a result per command. */
export const RESULT_BYTES_MAX = 1024 * 1024;

/** From this size the body of an operation travels after its message instead of being copied into it. */
export const BODY_APART_BYTES_MIN = 32 * 1024;

const FIXED_BYTES = 256;

export interface ReplicaFrame {
  readonly file: FileId;
  readonly message: ReplicaMessage;
}

export function encodeReplicaMessage(file: FileId, message: ReplicaMessage): Uint8Array {
  return encodeMessage(file, message, false);
}

/** @returns the message in one piece, or a large operation's message without its body, and the body */
export function encodeReplicaPieces(
  file: FileId,
  message: ReplicaMessage,
): { readonly frame: Uint8Array; readonly tail?: Uint8Array } {
  if (message.kind !== 'write' || message.operation.body.length < BODY_APART_BYTES_MIN) {
    return { frame: encodeReplicaMessage(file, message) };
  }
  return { frame: encodeMessage(file, message, true), tail: message.operation.body };
}

function encodeMessage(file: FileId, message: ReplicaMessage, isBodyApart: boolean): Uint8Array {
  const capacityBytes =
    message.kind === 'write'
      ? FIXED_BYTES + message.operation.result.length + (isBodyApart ? 0 : message.operation.body.length)
      : FIXED_BYTES;
  const writer = new ByteWriter(capacityBytes).uint53(file).uint53(message.incarnation);
  switch (message.kind) {
    case 'prepare':
      writeView(writeEpoch(writer.uint8(TAG_PREPARE), message.epoch), message.view);
      break;
    case 'promise':
      writePosition(writeEpoch(writer.uint8(TAG_PROMISE), message.epoch), message.position);
      writeView(writer, message.view).uint8(TRUSTS.indexOf(message.trust));
      break;
    case 'refuse':
      writeEpoch(writeEpoch(writer.uint8(TAG_REFUSE), message.epoch), message.promised);
      break;
    case 'install':
      writeView(writeEpoch(writer.uint8(TAG_INSTALL), message.epoch), message.view);
      writePosition(writer, message.base)
        .uint53(message.to)
        .uint8(message.urgent ? 1 : 0);
      break;
    case 'begin':
      writeView(writeEpoch(writer.uint8(TAG_BEGIN), message.epoch), message.view);
      break;
    case 'installed':
      writeEpoch(writer.uint8(TAG_INSTALLED), message.epoch).uint53(message.seq);
      break;
    case 'write':
      writeEpoch(writer.uint8(TAG_WRITE), message.epoch).uint53(message.seq).uint53(message.committedSeq);
      writeOperation(writer, message.operation, isBodyApart);
      break;
    case 'ack':
      writeEpoch(writer.uint8(TAG_ACK), message.epoch).uint53(message.seq);
      break;
    case 'resend':
      writeEpoch(writer.uint8(TAG_RESEND), message.epoch).uint53(message.fromSeq);
      break;
    case 'need-state':
      writePosition(writeEpoch(writer.uint8(TAG_NEED_STATE), message.epoch), message.position);
      break;
    case 'heartbeat':
      writeView(writeEpoch(writer.uint8(TAG_HEARTBEAT), message.epoch), message.view);
      writer
        .uint53(message.committedSeq)
        .uint53(message.sentSeq)
        .uint53(message.beat)
        .uint53(message.guardMs);
      break;
    case 'heartbeat-ack':
      writePosition(writeEpoch(writer.uint8(TAG_HEARTBEAT_ACK), message.epoch), message.position);
      writer.uint53(message.beat).uint8(TRUSTS.indexOf(message.trust));
      break;
    case 'flush':
      writeEpoch(writer.uint8(TAG_FLUSH), message.epoch).uint53(message.seq);
      break;
    case 'flushed':
      writeEpoch(writer.uint8(TAG_FLUSHED), message.epoch).uint53(message.seq);
      break;
    case 'commit':
      writeEpoch(writer.uint8(TAG_COMMIT), message.epoch).uint53(message.committedSeq);
      break;
    case 'read-request':
      writeEpoch(writer.uint8(TAG_READ_REQUEST), message.epoch).uint53(message.nonce);
      break;
    case 'read-grant':
      writeEpoch(writer.uint8(TAG_READ_GRANT), message.epoch).uint53(message.nonce);
      writer.uint53(message.durationMs).uint53(message.startSeq);
      break;
    case 'read-revoke':
      writeEpoch(writer.uint8(TAG_READ_REVOKE), message.epoch);
      break;
    case 'read-returned':
      writeEpoch(writer.uint8(TAG_READ_RETURNED), message.epoch);
      break;
    case 'yield':
      writeEpoch(writer.uint8(TAG_YIELD), message.epoch);
      break;
  }
  return writer.finish();
}

/** Decodes the pieces of `encodeReplicaPieces`; an operation's body and result are views. @throws MalformedError */
export function decodeReplicaMessage(frame: Uint8Array, tail?: Uint8Array): ReplicaFrame {
  const reader = new ByteReader(frame);
  const file = readFileId(reader);
  const incarnation = reader.uint53() as Incarnation;
  const body = readBody(reader, tail);
  reader.end();
  if (tail !== undefined && body.kind !== 'write')
    throw new MalformedError('A message has a tail that none has');
  return { file, message: { incarnation, ...body } };
}

function readBody(reader: ByteReader, tail?: Uint8Array): ReplicaMessageBody {
  const tag = reader.uint8();
  const epoch = readEpoch(reader);
  if (epoch.counter === 0) throw new MalformedError('A message belongs to no epoch');
  switch (tag) {
    case TAG_PREPARE:
      return { kind: 'prepare', epoch, view: readView(reader) };
    case TAG_PROMISE:
      return {
        kind: 'promise',
        epoch,
        position: readPosition(reader),
        view: readView(reader),
        trust: readOneOf(reader, TRUSTS),
      };
    case TAG_REFUSE:
      return { kind: 'refuse', epoch, promised: readEpoch(reader) };
    case TAG_INSTALL:
      return {
        kind: 'install',
        epoch,
        view: readView(reader),
        base: readPosition(reader),
        to: reader.uint53() as Incarnation,
        urgent: readOneOf(reader, [false, true]),
      };
    case TAG_BEGIN:
      return { kind: 'begin', epoch, view: readView(reader) };
    case TAG_INSTALLED:
      return { kind: 'installed', epoch, seq: reader.uint53() };
    case TAG_WRITE: {
      const seq = readSeq(reader);
      return {
        kind: 'write',
        epoch,
        seq,
        committedSeq: reader.uint53(),
        operation: readOperation(reader, tail),
      };
    }
    case TAG_ACK:
      return { kind: 'ack', epoch, seq: reader.uint53() };
    case TAG_RESEND:
      return { kind: 'resend', epoch, fromSeq: readSeq(reader) };
    case TAG_NEED_STATE:
      return { kind: 'need-state', epoch, position: readPosition(reader) };
    case TAG_HEARTBEAT:
      return {
        kind: 'heartbeat',
        epoch,
        view: readView(reader),
        committedSeq: reader.uint53(),
        sentSeq: reader.uint53(),
        beat: reader.uint53(),
        guardMs: reader.uint53(),
      };
    case TAG_HEARTBEAT_ACK:
      return {
        kind: 'heartbeat-ack',
        epoch,
        position: readPosition(reader),
        beat: reader.uint53(),
        trust: readOneOf(reader, TRUSTS),
      };
    case TAG_FLUSH:
      return { kind: 'flush', epoch, seq: reader.uint53() };
    case TAG_FLUSHED:
      return { kind: 'flushed', epoch, seq: reader.uint53() };
    case TAG_COMMIT:
      return { kind: 'commit', epoch, committedSeq: reader.uint53() };
    case TAG_READ_REQUEST:
      return { kind: 'read-request', epoch, nonce: reader.uint53() };
    case TAG_READ_GRANT:
      return {
        kind: 'read-grant',
        epoch,
        nonce: reader.uint53(),
        durationMs: reader.uint53(),
        startSeq: reader.uint53(),
      };
    case TAG_READ_REVOKE:
      return { kind: 'read-revoke', epoch };
    case TAG_READ_RETURNED:
      return { kind: 'read-returned', epoch };
    case TAG_YIELD:
      return { kind: 'yield', epoch };
    default:
      throw new MalformedError(`Replica message tag ${tag} is unknown`);
  }
}

export function readFileId(reader: ByteReader): FileId {
  const file = reader.uint53();
  if (!isFileId(file)) throw new MalformedError(`File ${file} cannot be`);
  return file;
}

/** The only encoding of epochs, on disk and on the wire. */
export function writeEpoch(writer: ByteWriter, epoch: Epoch): ByteWriter {
  return writer.uint53(epoch.counter).text(epoch.server).uint53(epoch.incarnation);
}

export function readEpoch(reader: ByteReader): Epoch {
  const counter = reader.uint53();
  const server = reader.text();
  const incarnation = reader.uint53() as Incarnation;
  if (counter === 0 && server === '' && incarnation === 0) return EPOCH_ZERO;
  if (counter === 0 || !isServerId(server))
    throw new MalformedError('An epoch names no server or no counter');
  return { counter, server, incarnation };
}

export function writePosition(writer: ByteWriter, position: Position): ByteWriter {
  return writeEpoch(writer, position.epoch).uint53(position.seq);
}

export function readPosition(reader: ByteReader): Position {
  return { epoch: readEpoch(reader), seq: reader.uint53() };
}

/** The only encoding of views, on disk and on the wire. */
export function writeView(writer: ByteWriter, { number, members, joint, policy }: View): ByteWriter {
  writer.uint53(number).uint8(POLICIES.indexOf(policy ?? 'quorum'));
  writeMembers(writer, members);
  return writeMembers(writer, joint ?? []);
}

export function readView(reader: ByteReader): View {
  const number = reader.uint53();
  const policy = readOneOf(reader, POLICIES);
  const members = readMembers(reader);
  if (members.length === 0) throw new MalformedError('A view has members');
  const joint = readMembers(reader);
  return {
    number,
    members,
    ...(joint.length === 0 ? {} : { joint }),
    ...(policy === 'quorum' ? {} : { policy }),
  };
}

function readOneOf<Value>(reader: ByteReader, values: readonly Value[]): Value {
  const value = values[reader.uint8()];
  if (value === undefined) throw new MalformedError('A value is none of those there are');
  return value;
}

function writeMembers(writer: ByteWriter, members: readonly ServerId[]): ByteWriter {
  writer.uint8(members.length);
  for (const member of members) writer.text(member);
  return writer;
}

function readMembers(reader: ByteReader): ServerId[] {
  const count = reader.uint8();
  if (count > MEMBERS_MAX) throw new MalformedError(`A view of ${count} members`);
  const members: ServerId[] = [];
  for (let index = 0; index < count; index++) {
    const member = reader.text();
    if (!isServerId(member)) throw new MalformedError('A member is not a server id');
    if (members.includes(member)) throw new MalformedError('A member is named twice');
    members.push(member);
  }
  return members;
}

function writeOperation(writer: ByteWriter, operation: Operation, isBodyApart: boolean): void {
  const { request, view } = operation;
  writer.uint8((request === null ? 0 : OPERATION_REQUEST) | (view === undefined ? 0 : OPERATION_VIEW));
  if (view !== undefined) writeView(writer, view);
  if (request !== null) {
    const { session, number, since, answered = 0 } = request;
    writer.uint53(session).uint53(number).uint53(since).uint53(answered);
  }
  writer.bytes(operation.result).uint32(operation.body.length);
  // The last field of its message, so that message and body can simply be concatenated.
  if (!isBodyApart) writer.raw(operation.body);
}

function readRequest(reader: ByteReader): RequestId {
  const session = reader.uint53();
  const number = readSeq(reader);
  const since = reader.uint53();
  const answered = reader.uint53();
  if (answered >= number) throw new MalformedError('A request that its client has the answer to');
  return { session, number, since, ...(answered > 0 && { answered }) };
}

function readOperation(reader: ByteReader, tail?: Uint8Array): Operation {
  const flags = reader.uint8();
  if ((flags & ~(OPERATION_REQUEST | OPERATION_VIEW)) !== 0)
    throw new MalformedError(`An operation with flags ${flags}`);
  const view = (flags & OPERATION_VIEW) === 0 ? undefined : readView(reader);
  const request = (flags & OPERATION_REQUEST) === 0 ? null : readRequest(reader);
  const result = reader.bytes();
  if (result.length > RESULT_BYTES_MAX) throw new MalformedError(`A result of ${result.length} bytes`);
  const bodyBytes = reader.uint32();
  const body = tail ?? reader.raw(bodyBytes);
  if (body.length !== bodyBytes)
    throw new MalformedError('The body of an operation is not as long as it says');
  if (body.length > OPERATION_BYTES_MAX) throw new MalformedError(`An operation of ${body.length} bytes`);
  return { request, result, body, ...(view === undefined ? {} : { view }) };
}

function readSeq(reader: ByteReader): number {
  const seq = reader.uint53();
  if (seq === 0) throw new MalformedError('Numbers begin at 1');
  return seq;
}
