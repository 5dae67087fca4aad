import { assert } from '../../base/assert.ts';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type {
  CommandOf,
  CommandResults,
  Expectation,
  NodeKind,
  Place,
  UnlinkedFile,
} from '../../wire/catalog-api.ts';
import { attributesOf, kindNumber } from '../attributes.ts';
import { charge, chargeOf } from '../charges.ts';
import { assertPlaced } from '../file-class.ts';
import { assertMayGain, assertMayLose, assertUnprotected } from '../flags.ts';
import { inheritedQuota } from '../inherited-quota.ts';
import type { InodeRow } from '../inode-rows.ts';
import { assertNotAttached } from '../junction-refusals.ts';
import { targetCheck } from '../names.ts';
import { allowedOfNew, assertInodesAllowed, quotasOf } from '../quota.ts';
import { KIND_DIRECTORY, KIND_FILE } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { inodeOf } from '../tree.ts';
import { type ResolvedName, resolvePlace } from '../walk.ts';
import { inheritAcl } from './acls.ts';
import { countsAlike } from './directory-quotas.ts';
import { assertExpected, assertUnwritten } from './expectation.ts';
import { moveToTrash, type Removal } from './removal.ts';
import { assertHasXattr, setNewXattrs } from './set-attributes.ts';

export const LINKS_MAX = 65_000;

/** Setgid of a directory: new entries get its group, new directories the bit too. */
export const MODE_SETGID = 0o2000;

export function resolveName(
  tables: Tables,
  place: Place,
  codeIfNoEntry: ErrorCode,
  follow = false,
): ResolvedName {
  const spot = resolvePlace(tables, place, follow);
  if (spot === null)
    throw new ServiceError(codeIfNoEntry, 'Cannot change the name of a directory that has none here');
  return spot;
}

function resolveFreeName(tables: Tables, place: Place): ResolvedName {
  const spot = resolveName(tables, place, 'exists');
  if (spot.inode !== undefined) throw new ServiceError('exists', `There is a "${spot.name}" already`);
  return spot;
}

export function resolveExistingName(
  tables: Tables,
  place: Place,
  codeIfNoEntry: ErrorCode,
): ResolvedName & { inode: InodeRow } {
  const { directory, name, inode } = resolveName(tables, place, codeIfNoEntry);
  if (inode === undefined) throw new ServiceError('not-found', `There is no "${name}"`);
  return { directory, name, inode };
}

interface Node {
  readonly kind: NodeKind;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly target?: string;
  readonly device?: number;
  readonly replicas?: readonly string[];
  /** Mode bits to clear, unless the directory's default list applies. */
  readonly umask?: number | undefined;
  readonly id?: number;
}

export function nodeCreate(tables: Tables, spot: ResolvedName, node: Node, atNs: string): InodeRow {
  assert(spot.inode === undefined, 'A new inode gets a name that is free');
  const { directory } = spot;
  assertMayGain(tables, directory);
  const isDirectory = node.kind === 'directory';
  const isFile = node.kind === 'file';
  const inherits = (directory.mode & MODE_SETGID) !== 0;
  const target = node.target ?? '';
  const kind = kindNumber(node.kind);
  const { mode, storeAcl } = inheritAcl(tables, directory, { mode: node.mode, umask: node.umask, kind });
  const volume = tables.volumes.row(directory.volume);
  const { placement } = directory;
  const quota = inheritedQuota(tables, directory);
  const quotas = quotasOf(tables, volume, quota);
  assertInodesAllowed(quotas);
  if (isFile) assertPlaced(volume.name, tables.classes.of(volume, placement), node.replicas ?? []);
  const id = tables.inodes.insert({
    volume: directory.volume,
    kind,
    mode: inherits && isDirectory ? mode | MODE_SETGID : mode,
    uid: node.uid,
    gid: inherits ? directory.gid : node.gid,
    links: isDirectory ? 2 : 1,
    sizeBytes: Buffer.byteLength(target),
    atNs,
    target,
    device: node.device ?? 0,
    replicas: (node.replicas ?? []).join(','),
    view: isFile ? 1 : 0,
    objectBytes: isFile ? volume.objectBytes : 0,
    live: isFile ? 1 : 0,
    parent: isDirectory ? directory.id : null,
    orphanedNs: null,
    policy: isFile ? volume.policy : 0,
    allowed: isFile ? allowedOfNew(quotas) : null,
    ...(isFile || isDirectory ? { placement } : {}),
    quota,
    ...(node.id === undefined ? {} : { id: node.id }),
  });
  storeAcl(id);
  tables.entries.insert(directory.id, spot.name, id);
  tables.inodes.touchDirectory(directory.id, isDirectory ? 1 : 0, atNs);
  return tables.inodes.existing(id);
}

/**
 * Handles the loss of an inode's directory entry. A file's last one makes it an orphan, because it may be open; other
 * inodes have no open contents and are deleted.
 * @param removal what the command says about it
 * @returns the remaining links
 */
export function removeLink(
  tables: Tables,
  inode: InodeRow,
  name: Pick<ResolvedName, 'directory' | 'name'>,
  removal: Removal,
  atNs: string,
): number {
  if (inode.kind === KIND_DIRECTORY) {
    tables.inodes.delete(inode);
    return 0;
  }
  const links = inode.links - 1;
  assert(links >= 0, 'An inode with a name counts a link');
  if (links === 0 && inode.kind !== KIND_FILE) tables.inodes.delete(inode);
  else if (links > 0) tables.inodes.setLinks(inode.id, links, null, atNs);
  else if (!moveToTrash(tables, inode, name, removal, atNs)) {
    charge(tables, inode, -1, -chargeOf(inode));
    tables.inodes.setLinks(inode.id, 0, atNs, atNs);
  }
  return links;
}

export function makeDirectory(
  tables: Tables,
  command: CommandOf<'make-directory'>,
  atNs: string,
): CommandResults['make-directory'] {
  const { mode, uid, gid, umask, xattrs } = command;
  const spot = resolveFreeName(tables, command.place);
  const node = { kind: 'directory', mode, uid, gid, umask } as const;
  const directory = nodeCreate(tables, spot, node, atNs);
  if (xattrs === undefined) return { attributes: attributesOf(directory) };
  setNewXattrs(tables, directory.id, xattrs);
  return { attributes: attributesOf(tables.inodes.existing(directory.id)) };
}

export function makeNode(
  tables: Tables,
  command: CommandOf<'make-node'>,
  atNs: string,
): CommandResults['make-node'] {
  const { type: kind, mode, uid, gid, umask } = command;
  const device = kind === 'character' || kind === 'block' ? command.device : 0;
  const spot = resolveFreeName(tables, command.place);
  const node = { kind, mode, uid, gid, device, umask };
  return { attributes: attributesOf(nodeCreate(tables, spot, node, atNs)) };
}

export function symlink(
  tables: Tables,
  command: CommandOf<'symlink'>,
  atNs: string,
): CommandResults['symlink'] {
  const { target, uid, gid } = command;
  targetCheck(target);
  const spot = resolveFreeName(tables, command.place);
  const node = { kind: 'symlink', mode: 0o777, uid, gid, target } as const;
  return { attributes: attributesOf(nodeCreate(tables, spot, node, atNs)) };
}

export function link(tables: Tables, command: CommandOf<'link'>, atNs: string): CommandResults['link'] {
  const inode = inodeOf(tables, command.inode);
  if (inode.kind === KIND_DIRECTORY) {
    throw new ServiceError('is-directory', `Cannot give directory ${inode.id} a second name`);
  }
  if (inode.links === 0) {
    throw new ServiceError('not-found', `Cannot link inode ${inode.id}: its last name is gone`);
  }
  const spot = resolveFreeName(tables, command.place);
  if (spot.directory.volume !== inode.volume) {
    throw new ServiceError('cross-volume', `Cannot link inode ${inode.id} of volume "${inode.volumeName}"`);
  }
  if (!countsAlike(tables, inode, spot.directory)) {
    throw new ServiceError(
      'cross-volume',
      `Cannot link inode ${inode.id}: another quota of a directory counts there`,
    );
  }
  assertUnprotected(tables, inode);
  assertMayGain(tables, spot.directory);
  if (inode.links >= LINKS_MAX) {
    throw new ServiceError('too-many-links', `Inode ${inode.id} has ${LINKS_MAX} names already`);
  }
  tables.entries.insert(spot.directory.id, spot.name, inode.id);
  tables.inodes.touchDirectory(spot.directory.id, 0, atNs);
  tables.inodes.setLinks(inode.id, inode.links + 1, null, atNs);
  return { attributes: attributesOf(tables.inodes.existing(inode.id)) };
}

export function removeDirectory(
  tables: Tables,
  command: CommandOf<'remove-directory'>,
  atNs: string,
): CommandResults['remove-directory'] {
  const { directory, name, inode } = resolveExistingName(tables, command.place, 'bad-request');
  if (inode.kind !== KIND_DIRECTORY) throw new ServiceError('not-directory', `"${name}" is no directory`);
  if (tables.entries.hasChildren(inode.id))
    throw new ServiceError('not-empty', `Directory "${name}" is not empty`);
  assertNotAttached(inode, name);
  if (command.xattr !== undefined) assertHasXattr(tables, inode, command.xattr);
  removeEmptyDirectory(tables, inode, { directory, name }, atNs);
  return {};
}

export function removeEmptyDirectory(
  tables: Tables,
  inode: InodeRow,
  { directory, name }: Pick<ResolvedName, 'directory' | 'name'>,
  atNs: string,
): void {
  assertMayLose(tables, directory, inode);
  tables.entries.delete(directory.id, name, inode.id);
  tables.inodes.touchDirectory(directory.id, -1, atNs);
  tables.inodes.delete(inode);
}

export function unlink(tables: Tables, command: CommandOf<'unlink'>, atNs: string): CommandResults['unlink'] {
  const { directory, inode, links } = removeEntry(tables, command.place, command.expect, command, atNs);
  tables.inodes.touchDirectory(directory, 0, atNs);
  return { inode, links };
}

/** Removes entries in order; each directory's times change once, at the end. */
export function unlinkFiles(
  tables: Tables,
  command: CommandOf<'unlink-files' | 'unlink-fenced'>,
  atNs: string,
): CommandResults['unlink-files'] {
  const directories = new Set<number>();
  const files = command.files.map(({ inode, ...place }, index): UnlinkedFile => {
    try {
      const expect = { kind: 'inode', inode } as const;
      const contents = ('contents' in command ? command.contents[index] : null) ?? null;
      const { directory, links } = removeEntry(tables, place, expect, command, atNs, (row) => {
        if (contents !== null) assertUnwritten(place.name, row, contents);
      });
      directories.add(directory);
      return links;
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      return { code: error.code, message: error.message };
    }
  });
  for (const directory of directories) tables.inodes.touchDirectory(directory, 0, atNs);
  return { files };
}

/** Removes a non-directory's entry, after all checks; the caller updates the directory's times. */
function removeEntry(
  tables: Tables,
  place: Place,
  expect: Expectation | undefined,
  removal: Removal,
  atNs: string,
  check: (inode: InodeRow) => void = () => undefined,
): { readonly directory: number; readonly inode: number; readonly links: number } {
  const { directory, name, inode } = resolveExistingName(tables, place, 'is-directory');
  if (inode.kind === KIND_DIRECTORY) throw new ServiceError('is-directory', `"${name}" is a directory`);
  if (expect !== undefined) assertExpected(expect, name, inode);
  check(inode);
  assertMayLose(tables, directory, inode);
  tables.entries.delete(directory.id, name, inode.id);
  const links = removeLink(tables, inode, { directory, name }, removal, atNs);
  return { directory: directory.id, inode: inode.id, links };
}
