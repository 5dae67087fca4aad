import type { ServerId } from '../../base/ids.ts';
import type { LateErrorReport } from '../../wire/late-errors.ts';
import type { NewServerEvent } from './server-events.ts';

/** How the lease before a primary's own ended. */
export type FormerLease =
  | { readonly kind: 'none' }
  | { readonly kind: 'own' }
  | { readonly kind: 'ended'; readonly holder: ServerId; readonly agoMs: number }
  | { readonly kind: 'given-back'; readonly holder: ServerId };

/** One sentence for each event, with the reason why it loses nothing. The dashboard replaces `{file}` by the name. */
export const EVENT_TEXTS = {
  started: (self: ServerId, silenceMs: number): NewServerEvent => ({
    kind: 'started',
    mood: 'neutral',
    text:
      silenceMs > 0
        ? `${self} has started; for ${seconds(silenceMs)} it has no say in leases, until every one that it may have forgotten is over.`
        : `${self} has started.`,
  }),
  takesPart: (self: ServerId): NewServerEvent => ({
    kind: 'takes-part',
    mood: 'good',
    text: `${self} has a say in leases again: all that it may have forgotten are over.`,
  }),
  elected: (
    self: ServerId,
    file: number,
    epoch: number,
    former: FormerLease,
    resetMs: number,
  ): NewServerEvent => ({
    kind: 'primary-elected',
    mood: 'good',
    file,
    epoch,
    text: `${self} is the primary of {file} now, epoch ${epoch}: ${formerText(former)}, and a majority promised; the reset took ${milliseconds(resetMs)}.`,
  }),
  ended: (self: ServerId, file: number, epoch: number): NewServerEvent => ({
    kind: 'primary-ended',
    mood: 'neutral',
    file,
    epoch,
    text: `${self} is not the primary of {file} any more: its lease ended by its own clock, so it answers nothing until it holds one again.`,
  }),
  deposed: (self: ServerId, file: number, epoch: number, why: string): NewServerEvent => ({
    kind: 'fenced',
    mood: 'good',
    file,
    epoch,
    text: `${self} was the primary of {file} and steps down, ${why}: nothing of epoch ${epoch} is acknowledged any more.`,
  }),
  refusedOld: (self: ServerId, file: number, what: string): NewServerEvent => ({
    kind: 'refused-old',
    mood: 'good',
    file,
    text: `${self} has refused a message of a primary before for {file} (${what}): it has promised a newer epoch to another.`,
  }),
  certificateEnds: (self: ServerId, whose: 'server' | 'authority', leftMs: number): NewServerEvent => ({
    kind: 'certificate-ends',
    mood: 'bad',
    text:
      whose === 'server'
        ? `The certificate of ${self} ends in ${daysText(leftMs)}: nobody can connect to it after that, unless it gets another before.`
        : `The certificate of the authority that ${self} believes ends in ${daysText(leftMs)}: nobody can connect to anybody after that, unless there is another before.`,
  }),
  behind: (self: ServerId, file: number, what: string): NewServerEvent => ({
    kind: 'behind',
    mood: 'neutral',
    file,
    text: `${self} has missed changes of {file} (${what}): it acknowledges nothing behind the gap, and asks for them.`,
  }),
  caughtUp: (self: ServerId, file: number, what: string): NewServerEvent => ({
    kind: 'caught-up',
    mood: 'good',
    file,
    text: `${self} has caught up with {file} (${what}): only what differed was fetched.`,
  }),
  silent: (self: ServerId, about: ServerId, leaseMs: number): NewServerEvent => ({
    kind: 'silent',
    mood: 'bad',
    about,
    text: `${about} is silent, as ${self} notices: files that it leads wait until its leases have surely ended, ${seconds(leaseMs)} at the most.`,
  }),
  back: (self: ServerId, about: ServerId): NewServerEvent => ({
    kind: 'back',
    mood: 'good',
    about,
    text: `${about} is back, as ${self} notices: what it missed is brought to it before it counts.`,
  }),
  noMajority: (self: ServerId, reached: number, all: number): NewServerEvent => ({
    kind: 'no-majority',
    mood: 'bad',
    text: `${self} reaches ${reached} of ${all} servers, itself included: without a majority nothing is acknowledged, so nothing can be lost.`,
  }),
  majority: (self: ServerId, reached: number, all: number): NewServerEvent => ({
    kind: 'majority',
    mood: 'good',
    text: `${self} reaches a majority again, ${reached} of ${all} servers: everything goes on from the newest acknowledged state.`,
  }),
  stoodStill: (self: ServerId, stillMs: number): NewServerEvent => ({
    kind: 'stood-still',
    mood: 'bad',
    text: `${self} stood still for ${seconds(stillMs)}: it looks at its clock before it answers anything, and what ended meanwhile it has no more.`,
  }),
  clockFault: (self: ServerId): NewServerEvent => ({
    kind: 'clock-fault',
    mood: 'bad',
    text: `The clock of ${self} is out of bounds: it takes part in no lease, and epochs keep what is stored in order.`,
  }),
  diskFull: (self: ServerId): NewServerEvent => ({
    kind: 'disk-full',
    mood: 'bad',
    text: `The disk of ${self} is nearly full: its files are left to servers with room, and its reserve keeps its promises.`,
  }),
  diskHasRoom: (self: ServerId): NewServerEvent => ({
    kind: 'disk-has-room',
    mood: 'good',
    text: `The disk of ${self} has room again.`,
  }),
  lateError: (_self: ServerId, { operation, path, error }: LateErrorReport): NewServerEvent => ({
    kind: 'late-error',
    mood: 'bad',
    text: `A mount had acknowledged "${operation}" of ${path}, which was dropped: ${error}. Nothing that other clients did is lost by it.`,
  }),
  viewConflict: (self: ServerId, file: number, what: string): NewServerEvent => ({
    kind: 'view-conflict',
    mood: 'bad',
    file,
    text: `{file} has two member sets for one view, as ${self} finds: ${what}; each refuses the other, and an operator has to decide.`,
  }),
  shortage: (self: ServerId, shortages: readonly string[]): NewServerEvent => ({
    kind: 'shortage',
    mood: 'bad',
    text: `${self} ${shortages.join('; it ')}: clients that have proved who they are keep theirs, others may be refused.`,
  }),
  shortageEnds: (self: ServerId): NewServerEvent => ({
    kind: 'shortage-ends',
    mood: 'good',
    text: `${self} has enough connections and descriptors again.`,
  }),
  diskFailed: (self: ServerId, reason: string): NewServerEvent => ({
    kind: 'disk-failed',
    mood: 'bad',
    text: `The disk of ${self} has failed (${reason}): it lets its leases end and serves nothing more, the others have every acknowledged write.`,
  }),
  repaired: (self: ServerId, file: number, object: number): NewServerEvent => ({
    kind: 'repaired',
    mood: 'good',
    file,
    text: `Object ${object} of {file} was damaged on the disk of ${self}: its checksum told, nobody was given it, and whole bytes came from another server.`,
  }),
  catalogDamaged: (self: ServerId): NewServerEvent => ({
    kind: 'catalog-damaged',
    mood: 'bad',
    text: `A page of the catalog is damaged on the disk of ${self}: another server serves the catalog, and ${self} fetches a copy of it.`,
  }),
  catalogReplaced: (self: ServerId): NewServerEvent => ({
    kind: 'repaired',
    mood: 'good',
    text: `The damaged catalog on the disk of ${self} was replaced by a copy of another server's.`,
  }),
  draining: (self: ServerId): NewServerEvent => ({
    kind: 'draining',
    mood: 'neutral',
    about: self,
    text: `${self} is being drained: each of its replicas stays until another server has it whole.`,
  }),
  drained: (self: ServerId): NewServerEvent => ({
    kind: 'drained',
    mood: 'good',
    about: self,
    text: `${self} holds nothing any more and may be switched off: every file has its replicas elsewhere.`,
  }),
} as const;

function formerText(former: FormerLease): string {
  switch (former.kind) {
    case 'none':
      return 'nobody held its lease';
    case 'own':
      return 'its own lease before was over';
    case 'ended':
      return `the lease of ${former.holder} had ended ${milliseconds(former.agoMs)} before`;
    case 'given-back':
      return `${former.holder} had given its lease back`;
  }
}

function milliseconds(ms: number): string {
  return `${Math.max(0, Math.round(ms))} ms`;
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

function daysText(leftMs: number): string {
  const days = Math.max(0, Math.floor(leftMs / 86_400_000));
  return days === 1 ? '1 day' : `${days} days`;
}
