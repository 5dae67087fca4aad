import { ServiceError } from '../base/errors.ts';
import { MalformedError } from '../wire/bytes.ts';
import type { Command } from '../wire/catalog-api.ts';

/**
 * Version of what commands mean. Replicas stay equal because each of them executes the same commands to the same effect; a server of
 * another release, which does not know a command, or passes over a field of it, would not. So whatever is added to commands, or changes
 * what they do, makes this number larger, and has its line below; a server that does not know the version of a batch refuses it.
 *
 * 1: up to quotas and expectations. 2: numbers that are reserved, births, the trash, snapshots. 3: removals of many files at once.
 * 4: access times. 5: members of reserved numbers; the contents of files that are removed together; access times
 * that were not set since; U+FFFD in names; sessions of two kinds, by whether they name when they began; pinned
 * writes; voters of named leases that change; files that are created with contents in place of others; renames that leave a
 * whiteout. 6: members of files that are planned; reservations that are ended. 7: holes of files that are settled. 8: times of
 * creation. 9: flags.
 */
export const COMMANDS_VERSION = 9;

/** A server that knows this version of commands obeys fences. @see CacheOwner.fence */
export const FENCES_VERSION = 5;

/** The first version whose servers keep sessions of two kinds. */
export const SESSIONS_VERSION = 5;

/** The first version whose servers know `replace-with-contents`. */
export const REPLACEMENTS_VERSION = 5;

/** The first version whose servers go by views of the voters of named leases. */
export const VOTERS_VERSION = 5;

/** The first version whose servers keep which servers are to become members of files, and end reservations of numbers. */
export const PLANS_VERSION = 6;

/** The first version whose servers keep how many bytes of a file are holes. */
export const HOLES_VERSION = 7;

/** The first version whose servers keep when inodes are created. */
export const CREATIONS_VERSION = 8;

/** The first version whose servers obey flags of inodes. */
export const FLAGS_VERSION = 9;

/** By which version a command came. A new command needs a line here. */
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
  'server-remove': 1,
  'follow-view': 1,
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
};

/**
 * Fields that came later than their command. Not here: `by` and `trash` of what removes a name, which mean nothing in a volume without
 * a trash, and no volume has one before a command of version 2 gave it one; `preserves` and `preserved` of `open-for-write`, which mean
 * nothing before a command of version 2 has made a snapshot, and its `restricts`, which means nothing before a command of version 9.
 */
const FIELDS: { readonly [Kind in Command['kind']]?: Readonly<Record<string, number>> } = {
  'volume-create': { trashMs: 2 },
  'volume-set': { trashMs: 2 },
  'create-file': { reserved: 2 },
  'reserve-inodes': { members: 5 },
  bear: { elsewhere: 5 },
  'note-accesses': { unset: 5 },
  'set-attributes': { touches: 9 },
};

/** The first version whose servers take U+FFFD in names and link texts; those before refuse it, as what is not UTF-8. */
const REPLACEMENT_CHARACTER_VERSION = 5;
/** Fields with texts that servers before that version judged so. Names of attributes were never among them. */
const JUDGED_FIELDS: ReadonlySet<string> = new Set(['name', 'path', 'target', 'to']);

/** @returns the first version that executes the command as it is meant */
export function commandVersion(command: Command): number {
  const versions = Object.entries(FIELDS[command.kind] ?? {})
    .filter(([field]) => field in command)
    .map(([, version]) => version);
  if (hasReplacementCharacter(command)) versions.push(REPLACEMENT_CHARACTER_VERSION);
  if (hasHoles(command)) versions.push(HOLES_VERSION);
  return Math.max(KINDS[command.kind], ...versions);
}

/**
 * A command as it was executed by a server of `version`, which passed over what it did not know.
 *
 * @throws MalformedError where that server cannot have executed it
 */
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

function hasHoles(command: Command): boolean {
  return command.kind === 'settle' && command.files.some(({ holeBytes }) => holeBytes !== undefined);
}

/** The command as servers before `HOLES_VERSION` understand it: files have the same contents and no known holes. */
export function withoutHoles(command: Command): Command {
  if (command.kind !== 'settle' || !hasHoles(command)) return command;
  return { ...command, files: command.files.map(({ holeBytes: _, ...file }) => file) };
}

function hasReplacementCharacter(command: Command): boolean {
  return command.kind !== 'set-xattr' && command.kind !== 'remove-xattr' && hasIn(command, '');
}

function hasIn(value: unknown, field: string): boolean {
  if (typeof value === 'string') return JUDGED_FIELDS.has(field) && value.includes('\ufffd');
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(value).some(([key, one]) => hasIn(one, key));
}

/** @returns a copy with a lone surrogate, which every version refuses in the same words, in place of each U+FFFD */
function withRefusedTexts(value: unknown, field: string): unknown {
  if (typeof value === 'string')
    return JUDGED_FIELDS.has(field) ? value.replaceAll('\ufffd', '\ud800') : value;
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, one]) => [key, withRefusedTexts(one, key)]);
  return Array.isArray(value) ? entries.map(([, one]) => one) : Object.fromEntries(entries);
}

/** @throws ServiceError where this release does not know what commands of the version mean */
export function assertKnownVersion(version: number): void {
  if (version <= COMMANDS_VERSION) return;
  throw new ServiceError(
    'storage',
    `Cannot execute commands of version ${version}: this release knows versions up to ${COMMANDS_VERSION}. ` +
      'Start the newer release on this server, as on those that have given the commands',
  );
}
