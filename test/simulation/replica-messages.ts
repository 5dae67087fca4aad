/** Messages between servers of a replica group, and their answers to clients. */
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { LeaseEnvelope, LeaseMessage } from '../../lease/messages.ts';
import { encodeReplicaMessage } from '../../replica/codec.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import { epochFormat, positionFormat } from '../../replica/epoch.ts';
import type { ReplicaMessage } from '../../replica/messages.ts';
import type { Operation } from '../../replica/operation.ts';
import type { View } from '../../replica/view.ts';
import type { Log, ReplicaDisk } from './replica-disk.ts';

export const FILE = 7 as FileId;

export type GroupMessage =
  | { readonly kind: 'lease'; readonly envelope: LeaseEnvelope; readonly messages: readonly LeaseMessage[] }
  | { readonly kind: 'replica'; readonly frame: Frame }
  | { readonly kind: 'fetch'; readonly id: number; readonly epoch: Epoch }
  | { readonly kind: 'state'; readonly id: number; readonly state: State }
  /** Asks whether the replica is at a position. `synced`: once it survives a loss of power there. */
  | {
      readonly kind: 'agree';
      readonly id: string;
      readonly position: Position;
      readonly view: number;
      readonly synced: boolean;
    }
  | { readonly kind: 'agreed'; readonly id: string }
  /** Create the replica with contents. */
  | { readonly kind: 'create'; readonly epoch: Epoch; readonly view: View; readonly operation: Operation }
  | { readonly kind: 'created'; readonly epoch: Epoch; readonly incarnation: Incarnation };

/** A message of a replica as bytes, as on the network; printed as its contents. */
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
    if ('view' in message) rest.push(`view ${JSON.stringify(message.view)}`);
    return `${message.kind} ${epochFormat(message.epoch)} ${rest.join(' ')}`;
  }
}

/** The whole state of a replica at one moment. */
export class State {
  readonly position: Position;
  readonly view: View;
  readonly sessions: Uint8Array;
  readonly log: Log;

  constructor({ position, record, log }: ReplicaDisk) {
    this.position = position;
    this.view = record.view;
    this.sessions = record.sessions;
    this.log = [...log];
  }

  toJSON(): string {
    return positionFormat(this.position);
  }
}

export type Answer =
  | { readonly kind: 'done'; readonly seq: number }
  | { readonly kind: 'value'; readonly value: string }
  | { readonly kind: 'flushed' }
  | { readonly kind: 'moved' }
  | { readonly kind: 'unknown' }
  /** This attempt had no effect. `hint`: the server to ask. */
  | { readonly kind: 'refused'; readonly hint: ServerId | null };

export type Reply = (answer: Answer) => void;
