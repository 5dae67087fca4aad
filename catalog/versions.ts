import { ServiceError } from '../base/errors.ts';
import { MalformedError } from '../wire/bytes.ts';
import type { Command, CommandOf } from '../wire/catalog-api.ts';
import type { ExportedTable } from '../wire/volume-moves.ts';

/**
 * Version of the commands' meaning. Replicas stay equal because all execute the same commands to the same effect; a
 * server of another release that ignores a command or field would diverge. So every change of commands increases it
 * and adds a line below; a server refuses a batch of an unknown version.
 *
 * - 1: up to quotas and expectations. 2: reserved numbers, create with contents, trash, snapshots.
 * - 3: unlinks of many files. 4: access times. 5: members of reserved numbers; contents of files unlinked together;
 *   access times not set since; U+FFFD in names; two kinds of sessions, by whether they name their start; pinned
 *   writes; changing voters of named leases; replacement with contents; renames that leave a whiteout.
 * - 6: planned members; ended reservations. 7: holes of settled files. 8: creation times. 9: flags.
 * - 10: attributes that are changed only if the inode is unchanged. 11: settings of the cluster; maintenance of
 *   servers; logs of deletions. 12: volumes with a catalog of their own; labels of servers; labels and zones of
 *   volumes and directories. 13: volumes that are attached in others; moves of volumes to catalogs of their own;
 *   volumes of reserved numbers. 14: directories that become volumes; placement classes of uploads;
 *   extended attributes of new files and directories, and of removed directories; retentions.
 * - 15: quotas of directories. 16: quotas that begin and end at directories with entries; steps of splits
 *   that end within a directory. 17: clones of snapshots.
 */
export const COMMANDS_VERSION = 17;

/** Servers from this version on obey fences. @see CacheOwner.fence */
export const FENCES_VERSION = 5;

export const SESSIONS_VERSION = 5;

export const REPLACEMENTS_VERSION = 5;

/** Servers from this version on serve orders to move many files; `plan-files` and `follow-views`. */
export const MOVES_VERSION = 11;

export const VOTERS_VERSION = 5;

export const PLANS_VERSION = 6;

export const HOLES_VERSION = 7;

export const CREATIONS_VERSION = 8;

export const FLAGS_VERSION = 9;

/** First version that obeys `unchangedNs` of `set-attributes`. */
export const CONDITIONS_VERSION = 10;

/** Servers from this version on compare digests of ranges of replicas. */
export const DIGESTS_VERSION = 11;

/** From this version on, deletions and moves of files are logged for their servers. */
export const DELETIONS_VERSION = 11;

/** From this version on, the root catalog keeps the version of its list of servers and volumes' catalogs. */
export const CATALOGS_VERSION = 12;

/** Servers from this version on know junctions, at which volumes are attached. */
export const JUNCTIONS_VERSION = 13;

/** Servers from this version on know that inodes move to another catalog with their volume. */
export const VOLUME_MOVES_VERSION = 13;

/** Servers from this version on know that a directory becomes a volume. */
export const SPLITS_VERSION = 14;

/** Servers from this version on know that an upload has the placement class of its directory. */
export const UPLOAD_CLASSES_VERSION = 14;

/** From this version on, batches advance the retention clock. */
export const RETENTION_VERSION = 14;

/** From this version on, inodes count against the quotas of directories. */
export const DIRECTORY_QUOTAS_VERSION = 15;

/** Servers from this version on know that a quota begins or ends at a directory with entries. */
export const QUOTA_WALKS_VERSION = 16;

/** From this version on, volumes may be clones of snapshots. */
export const CLONES_VERSION = 17;

/** The version that introduced each command. A new command needs an entry. */
const KINDS: Readonly<Record<Command['kind'], number>> = {
  'volume-create': 1,
  'volume-set': 1,
  'volume-remove': 1,
  'create-file': 1,
  'create-orphan': 1,
  'keep-orphan': 1,
  replace: 1,
  'make-directory': 1,
  'make-node': 1,
  'remove-directory': 1,
  unlink: 1,
  rename: 1,
  symlink: 1,
  link: 1,
  'set-attributes': 1,
  'open-for-write': 1,
  settle: 1,
  'set-xattr': 1,
  'remove-xattr': 1,
  collect: 1,
  'server-register': 1,
  'server-add': 1,
  'server-state': 1,
  'server-zone': 1,
  'server-label': 12,
  'set-placement': 12,
  'inherit-placement': 12,
  'server-remove': 1,
  'follow-view': 1,
  'follow-views': 11,
  'plan-files': 11,
  'set-replicas': 1,
  'set-voters': 5,
  'reserve-inodes': 2,
  bear: 2,
  forgo: 2,
  'trash-restore': 2,
  'trash-empty': 2,
  'snapshot-create': 2,
  'snapshot-remove': 2,
  sweep: 2,
  'unlink-files': 3,
  'note-accesses': 4,
  'pin-write': 5,
  'unlink-fenced': 5,
  'replace-with-contents': 5,
  'rename-whiteout': 5,
  'plan-members': 6,
  'void-inodes': 6,
  'set-flags': 9,
  'cluster-set': 11,
  'server-maintenance': 11,
  'trim-deletions': 11,
  'catalog-create': 12,
  'catalog-report': 12,
  'catalog-begin': 12,
  'catalog-close': 12,
  'follow-servers': 12,
  'extend-numbers': 12,
  'junction-create': 13,
  'junction-remove': 13,
  'volume-attach': 13,
  'volume-detach': 13,
  'volume-move': 13,
  'volume-move-abort': 13,
  'volume-freeze': 13,
  'volume-number': 13,
  'volume-forget': 13,
  'catalog-import': 13,
  'volume-split': 14,
  'volume-part': 14,
  retain: 14,
  'snapshot-retain': 14,
  'set-quota': 15,
  'walk-quotas': 16,
  'clone-create': 17,
  'clone-fill': 17,
  'clone-open': 17,
  'clone-filled': 17,
  'clone-flatten': 17,
};

/**
 * Fields newer than their command. Omitted, because they mean nothing before a newer command: `by` and `trash` of
 * unlinks (without a trash); of `open-for-write` `preserves`, `preserved` (no snapshot), `restricts` (version 9).
 */
const FIELDS: { readonly [Kind in Command['kind']]?: Readonly<Record<string, number>> } = {
  'volume-create': { trashMs: 2, labels: 12, zones: 12 },
  'volume-set': { trashMs: 2, labels: 12, zones: 12 },
  'volume-remove': { lost: 12 },
  'create-file': { reserved: 2 },
  'create-orphan': { placement: 14 },
  replace: { xattrs: 14 },
  'replace-with-contents': { xattrs: 14 },
  'make-directory': { xattrs: 14 },
  'remove-directory': { xattr: 14 },
  'snapshot-create': { retain: 14 },
  'reserve-inodes': { members: 5, volume: 13 },
  'catalog-begin': { moved: 13 },
  bear: { elsewhere: 5 },
  'note-accesses': { unset: 5 },
  'set-attributes': { touches: 9, unchangedNs: 10 },
  'set-quota': { walks: 16 },
  'volume-part': { resumes: 16 },
};

/** Tables of an export that earlier versions do not know. */
const RETENTION_TABLES: ReadonlySet<ExportedTable> = new Set([
  'retentions',
  'retained_snapshots',
  'retention_clock',
]);

/** First version that allows U+FFFD in names and link targets; earlier ones refuse it as invalid UTF-8. */
const REPLACEMENT_CHARACTER_VERSION = 5;
/** Fields with names and paths, which earlier versions checked for U+FFFD. */
const CHECKED_FIELDS: ReadonlySet<string> = new Set(['name', 'path', 'target', 'to']);

/** Commands from which others follow that need this version: what waits for these must not wait for an upgrade. */
const FOLLOWED: { readonly [Kind in Command['kind']]?: number } = {
  // Steps of a split.
  'volume-split': 16,
};

/** @returns the first version that all servers must know before a client may give the command */
export function requiredVersion(command: Command): number {
  return Math.max(commandVersion(command), FOLLOWED[command.kind] ?? 1);
}

/** @returns the first version that executes the command as meant */
export function commandVersion(command: Command): number {
  const versions = Object.entries(FIELDS[command.kind] ?? {})
    .filter(([field]) => field in command)
    .map(([, version]) => version);
  if (hasReplacementCharacter(command)) versions.push(REPLACEMENT_CHARACTER_VERSION);
  if (hasHoles(command)) versions.push(HOLES_VERSION);
  if (concernsRetention(command)) versions.push(RETENTION_VERSION);
  if (bringsQuotas(command)) versions.push(DIRECTORY_QUOTAS_VERSION);
  return Math.max(KINDS[command.kind], ...versions);
}

/** A command as a server of `version` executed it, without unknown fields. @throws MalformedError if it cannot have */
export function commandAsOf(command: Command, version: number): Command {
  const { kind } = command;
  if (!Object.hasOwn(KINDS, kind) || KINDS[kind] > version)
    throw new MalformedError(`A batch of command version ${version} has a command "${kind}"`);
  const later = Object.entries(FIELDS[kind] ?? {}).filter(
    ([field, from]) => from > version && field in command,
  );
  const known = Object.entries(command).filter(([field]) => later.every(([name]) => name !== field));
  const withoutLater = later.length === 0 ? command : (Object.fromEntries(known) as unknown as Command);
  const asKnown = version < HOLES_VERSION ? withoutHoles(withoutLater) : withoutLater;
  if (version >= REPLACEMENT_CHARACTER_VERSION || !hasReplacementCharacter(asKnown)) return asKnown;
  return withRefusedTexts(asKnown, '') as Command;
}

/** Whether the command sets retentions, or brings them from another catalog: its batch has the time. */
export function concernsRetention(command: Command): boolean {
  switch (command.kind) {
    case 'retain':
    case 'snapshot-retain':
      return true;
    case 'snapshot-create':
      return command.retain !== undefined;
    case 'catalog-import':
      return command.tables.some(({ table }) => RETENTION_TABLES.has(table));
    case 'catalog-report':
      return command.report.kind === 'retained';
    default:
      return false;
  }
}

/** Whether the command brings quotas of directories from another catalog. */
function bringsQuotas(command: Command): boolean {
  return (
    command.kind === 'catalog-import' && command.tables.some(({ table }) => table === 'directory_quotas')
  );
}

function hasHoles(command: Command): boolean {
  return command.kind === 'settle' && command.files.some(({ holeBytes }) => holeBytes !== undefined);
}

/** The command for servers before `HOLES_VERSION`: same contents, no known holes. */
export function withoutHoles(command: Command): Command {
  if (command.kind !== 'settle' || !hasHoles(command)) return command;
  return { ...command, files: command.files.map(({ holeBytes: _, ...file }) => file) };
}

/** The command for servers before `UPLOAD_CLASSES_VERSION`, by which the file has its volume's class until linked. */
export function withoutPlacement({ placement: _, ...command }: CommandOf<'create-orphan'>): Command {
  return command;
}

/** The command for servers before `QUOTA_WALKS_VERSION`, which refuse it for a directory with entries. */
export function withoutWalks({ walks: _, ...command }: CommandOf<'set-quota'>): Command {
  return command;
}

/** The command for servers before `VOLUME_MOVES_VERSION`, whose numbers are for any volume. */
export function withoutVolume({ volume: _, ...command }: CommandOf<'reserve-inodes'>): Command {
  return command;
}

function hasReplacementCharacter(command: Command): boolean {
  return command.kind !== 'set-xattr' && command.kind !== 'remove-xattr' && containsReplacement(command, '');
}

function containsReplacement(value: unknown, field: string): boolean {
  if (typeof value === 'string') return CHECKED_FIELDS.has(field) && value.includes('\ufffd');
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(value).some(([key, one]) => containsReplacement(one, key));
}

/** @returns a copy with a lone surrogate, which every version refuses alike, instead of each U+FFFD */
function withRefusedTexts(value: unknown, field: string): unknown {
  if (typeof value === 'string')
    return CHECKED_FIELDS.has(field) ? value.replaceAll('\ufffd', '\ud800') : value;
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, one]) => [key, withRefusedTexts(one, key)]);
  return Array.isArray(value) ? entries.map(([, one]) => one) : Object.fromEntries(entries);
}

/** @throws ServiceError if this release does not know commands of the version */
export function assertKnownVersion(version: number): void {
  if (version <= COMMANDS_VERSION) return;
  throw new ServiceError(
    'storage',
    `Cannot execute commands of version ${version}: this release knows versions up to ${COMMANDS_VERSION}. ` +
      'Start the newer release on this server, as on those that have given the commands',
  );
}
