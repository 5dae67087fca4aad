/** What servers of the system simulation send each other, and what they answer clients. */
import type { FileId, ServerId } from '../../base/ids.ts';
import type { LeaseEnvelope, LeaseMessage } from '../../lease/messages.ts';
import { encodeReplicaMessage } from '../../replica/codec.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import { epochFormat, positionFormat } from '../../replica/epoch.ts';
import type { ReplicaMessage } from '../../replica/messages.ts';
import type { View } from '../../replica/view.ts';
import type { SimulatedDisk } from './disk-simulated.ts';
import type { AgreementMessage } from './system-agreement.ts';
import type { BirthMessage } from './system-birth.ts';
import type { Contents } from './system-contents.ts';

export const FILE = 7 as FileId;

export type SystemMessage =
  | { readonly kind: 'lease'; readonly envelope: LeaseEnvelope; readonly messages: readonly LeaseMessage[] }
  | { readonly kind: 'replica'; readonly frame: Frame }
  | { readonly kind: 'fetch'; readonly id: number; readonly epoch: Epoch }
  | { readonly kind: 'state'; readonly id: number; readonly snapshot: Snapshot }
  | AgreementMessage
  | BirthMessage;

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

/** By what right a server answers a read: its lease, a read lease, or because nothing changes any more, or a majority stands where it stands. */
export type ReaderRole = 'primary' | 'backup' | 'final' | 'agreed';

export type Answer =
  /** `segment`: of the history, as it was when the server answered. */
  | { readonly kind: 'done'; readonly seq: number; readonly answer: string; readonly segment: number }
  | {
      readonly kind: 'value';
      readonly value: string;
      readonly role: ReaderRole;
      readonly dirty: boolean;
      readonly soon: boolean;
      readonly segment: number;
    }
  /** The contents are of another version than the one that was asked for. */
  | { readonly kind: 'moved-on' }
  | { readonly kind: 'flushed' }
  | { readonly kind: 'moved' }
  /** Asked to seal the file: it is, for ever. Asked to change it: it was not done, and never will be. */
  | { readonly kind: 'sealed'; readonly segment: number }
  | { readonly kind: 'unknown' }
  /** A part of what was looked at is damaged, and nobody in reach has it whole. */
  | { readonly kind: 'integrity' }
  /** Certainly nothing happened through this attempt. */
  | { readonly kind: 'refused'; readonly hint: ServerId | null };

export type Reply = (answer: Answer) => void;
