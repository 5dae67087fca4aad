import type { ServerId } from '../../base/ids.ts';
import type { LateErrorReport } from '../../wire/late-errors.ts';
import type { NewServerEvent } from './server-events.ts';

/** How the lease before a primary's own ended. */
export type EarlierLease =
  | { readonly kind: 'none' }
  | { readonly kind: 'own' }
  | { readonly kind: 'ended'; readonly holder: ServerId; readonly agoMs: number }
  | { readonly kind: 'released'; readonly holder: ServerId };

/** One sentence for each event, with the reason why it loses nothing. The dashboard replaces `{file}` by the name. */
export const EVENT_TEXTS = {
  started: (self: ServerId, silenceMs: number): NewServerEvent => ({
    kind: 'started',
    mood: 'neutral',
    text:
      silenceMs > 0
        ? `${self} has started; for ${seconds(silenceMs)} it votes on no lease, ` +
          'until all leases from before its start have ended.'
        : `${self} has started.`,
  }),
  takesPart: (self: ServerId): NewServerEvent => ({
    kind: 'takes-part',
    mood: 'good',
    text: `${self} votes on leases again: all leases from before its start have ended.`,
  }),
  elected: (
    self: ServerId,
    file: number,
    epoch: number,
    earlier: EarlierLease,
    resetMs: number,
  ): NewServerEvent => ({
    kind: 'primary-elected',
    mood: 'good',
    file,
    epoch,
    text:
      `${self} became primary of {file} in epoch ${epoch}: ` +
      `${earlierLeaseText(earlier)}; the reset took ${milliseconds(resetMs)}.`,
  }),
  ended: (self: ServerId, file: number, epoch: number): NewServerEvent => ({
    kind: 'primary-ended',
    mood: 'neutral',
    file,
    epoch,
    text:
      `${self} is no longer primary of {file}: its lease expired, so it ` +
      'answers no request until it holds one again.',
  }),
  deposed: (self: ServerId, file: number, epoch: number, why: string): NewServerEvent => ({
    kind: 'fenced',
    mood: 'good',
    file,
    epoch,
    text: `${self} stepped down as primary of {file} (${why}); no write of epoch ${epoch} is acknowledged any more.`,
  }),
  refusedOld: (self: ServerId, file: number, what: string): NewServerEvent => ({
    kind: 'refused-old',
    mood: 'good',
    file,
    text: `${self} refused a message of an earlier primary of {file} (${what}): it has promised a newer epoch.`,
  }),
  certificateEnds: (self: ServerId, whose: 'server' | 'authority', remainingMs: number): NewServerEvent => ({
    kind: 'certificate-ends',
    mood: 'bad',
    text:
      whose === 'server'
        ? `The certificate of ${self} expires in ${daysText(remainingMs)}: then no client or server can connect ` +
          'to it; create a new one, and send SIGHUP.'
        : `The certificate authority of ${self} expires in ${daysText(remainingMs)}: then no connection succeeds; ` +
          'create a new one and new certificates.',
  }),
  behind: (self: ServerId, file: number, what: string): NewServerEvent => ({
    kind: 'behind',
    mood: 'neutral',
    file,
    text: `${self} missed operations of {file} (${what}); it fetches them before it acknowledges later ones.`,
  }),
  caughtUp: (self: ServerId, file: number, what: string): NewServerEvent => ({
    kind: 'caught-up',
    mood: 'good',
    file,
    text: `${self} has caught up with {file} (${what}), fetching only objects that differ.`,
  }),
  disconnected: (self: ServerId, about: ServerId, leaseMs: number): NewServerEvent => ({
    kind: 'silent',
    mood: 'bad',
    about,
    text:
      `${self} lost its connection to ${about}: files whose primary is ${about} are unavailable until ` +
      `its leases expire, at most ${seconds(leaseMs)}.`,
  }),
  reconnected: (self: ServerId, about: ServerId): NewServerEvent => ({
    kind: 'back',
    mood: 'good',
    about,
    text: `${self} is connected to ${about} again; its replicas catch up before they count.`,
  }),
  noMajority: (self: ServerId, reached: number, all: number): NewServerEvent => ({
    kind: 'no-majority',
    mood: 'bad',
    text:
      `${self} reaches ${reached} of ${all} servers, itself included, which is no majority: it ` +
      'acknowledges no write until it reaches one.',
  }),
  majority: (self: ServerId, reached: number, all: number): NewServerEvent => ({
    kind: 'majority',
    mood: 'good',
    text:
      `${self} reaches a majority again (${reached} of ${all} servers); ` +
      'service continues with all acknowledged writes.',
  }),
  paused: (self: ServerId, stillMs: number): NewServerEvent => ({
    kind: 'stood-still',
    mood: 'bad',
    text: `${self} was paused for ${seconds(stillMs)}: it checks its clock and its leases before it answers.`,
  }),
  clockFault: (self: ServerId): NewServerEvent => ({
    kind: 'clock-fault',
    mood: 'bad',
    text:
      `The clock of ${self} jumped, or differs from most others by more than --clock-skew: it takes part ` +
      'in no lease. Stored data stays consistent; check NTP.',
  }),
  diskFull: (self: ServerId): NewServerEvent => ({
    kind: 'disk-full',
    mood: 'bad',
    text:
      `The disk of ${self} is nearly full: other servers become primary of its files; delete files or ` +
      'add space. Its reserve stays free for names and promises.',
  }),
  diskHasSpace: (self: ServerId): NewServerEvent => ({
    kind: 'disk-has-room',
    mood: 'good',
    text: `The disk of ${self} has free space again.`,
  }),
  lateError: (_self: ServerId, { operation, path, error }: LateErrorReport): NewServerEvent => ({
    kind: 'late-error',
    mood: 'bad',
    text:
      `A mount dropped the acknowledged "${operation}" of ${path}: ` +
      `${error}. Changes of other clients are unaffected.`,
  }),
  viewConflict: (self: ServerId, file: number, what: string): NewServerEvent => ({
    kind: 'view-conflict',
    mood: 'bad',
    file,
    text:
      `{file} has two member sets for one view at ${self} (${what}): each set refuses the other, so an ` +
      'operator must decide; run "leasehold check".',
  }),
  shortage: (self: ServerId, shortages: readonly string[]): NewServerEvent => ({
    kind: 'shortage',
    mood: 'bad',
    text: `${self} ${shortages.join('; it ')}: authenticated clients keep their connections, others may be refused.`,
  }),
  shortageEnds: (self: ServerId): NewServerEvent => ({
    kind: 'shortage-ends',
    mood: 'good',
    text: `${self} has enough connections and descriptors again.`,
  }),
  diskFailed: (self: ServerId, reason: string): NewServerEvent => ({
    kind: 'disk-failed',
    mood: 'bad',
    text:
      `The disk of ${self} failed (${reason}): it lets its leases expire and serves no request; other ` +
      'servers have every acknowledged write. Check the disk, and restart.',
  }),
  repaired: (self: ServerId, file: number, object: number): NewServerEvent => ({
    kind: 'repaired',
    mood: 'good',
    file,
    text:
      `Object ${object} of {file} was damaged on the disk of ${self}: the checksum revealed it, no ` +
      'client got it, and it was repaired from another server.',
  }),
  catalogDamaged: (self: ServerId): NewServerEvent => ({
    kind: 'catalog-damaged',
    mood: 'bad',
    text:
      `The catalog on the disk of ${self} has a damaged page: another ` +
      `server is its primary, and ${self} fetches a copy.`,
  }),
  catalogReplaced: (self: ServerId): NewServerEvent => ({
    kind: 'repaired',
    mood: 'good',
    text: `The damaged catalog on the disk of ${self} was replaced by a copy of another server's.`,
  }),
  volumeFrozen: (volume: string): NewServerEvent => ({
    kind: 'volume-moves',
    mood: 'neutral',
    text:
      `The volume ${volume} moves to a catalog of its own: its changes wait until its names are copied, ` +
      'and reads are answered.',
  }),
  volumeMoved: (volume: string): NewServerEvent => ({
    kind: 'volume-moved',
    mood: 'good',
    text: `The volume ${volume} has a catalog of its own, which executes the changes that waited.`,
  }),
  countersWrong: (self: ServerId, what: readonly string[]): NewServerEvent => ({
    kind: 'counters-wrong',
    mood: 'bad',
    text:
      `${self} has counted what is in the catalog, and ${what.length === 1 ? 'a counter is' : `${what.length} counters are`} wrong: ` +
      `${what[0]}. Files are as they were; usage and quotas may not be.`,
  }),
  draining: (self: ServerId): NewServerEvent => ({
    kind: 'draining',
    mood: 'neutral',
    about: self,
    text: `${self} is draining: each of its replicas stays until another server has a complete one.`,
  }),
  drained: (self: ServerId): NewServerEvent => ({
    kind: 'drained',
    mood: 'good',
    about: self,
    text: `${self} has no replica left and can be switched off.`,
  }),
} as const;

function earlierLeaseText(earlier: EarlierLease): string {
  switch (earlier.kind) {
    case 'none':
      return 'the lease had no holder';
    case 'own':
      return 'its own earlier lease had expired';
    case 'ended':
      return `the lease of ${earlier.holder} had ended ${milliseconds(earlier.agoMs)} before`;
    case 'released':
      return `${earlier.holder} had released its lease`;
  }
}

function milliseconds(ms: number): string {
  return `${Math.max(0, Math.round(ms))} ms`;
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

function daysText(remainingMs: number): string {
  const days = Math.max(0, Math.floor(remainingMs / 86_400_000));
  return days === 1 ? '1 day' : `${days} days`;
}
