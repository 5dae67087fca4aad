import { unreachable } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type { ServerId } from '../base/ids.ts';
import type {
  Command,
  CommandOf,
  CommandRequest,
  CommandResults,
  Place,
  ServerInfo,
} from '../wire/catalog-api.ts';
import { classText, isRestricted, type PlacementClass } from '../wire/placement-class.ts';
import { contentsCompare } from './attributes.ts';
import { UnfilledDirectory } from './clone-tables.ts';
import { noteAccesses } from './commands/accesses.ts';
import { volumeAttach, volumeDetach } from './commands/attachments.ts';
import { catalogBegin, catalogClose, extendNumbers, followServers } from './commands/catalog-lifecycle.ts';
import { cloneCreate, cloneFill, cloneFilled, cloneFlatten, cloneOpen } from './commands/clones.ts';
import { createFilesWithContents, reserveInodes, voidInodes } from './commands/create-with-contents.ts';
import { setQuota } from './commands/directory-quotas.ts';
import {
  link,
  makeDirectory,
  makeNode,
  removeDirectory,
  symlink,
  unlink,
  unlinkFiles,
} from './commands/entries.ts';
import { collect, createFile, createOrphan, keepOrphan, openForWrite, settle } from './commands/files.ts';
import { junctionCreate, junctionRemove } from './commands/junctions.ts';
import { inheritPlacement, setPlacement } from './commands/placement.ts';
import { walkQuotas } from './commands/quota-walks.ts';
import { rename, renameWhiteout } from './commands/rename.ts';
import { replace, replaceWithContents } from './commands/replace.ts';
import { retain } from './commands/retain.ts';
import {
  clusterSet,
  followView,
  followViews,
  planFiles,
  planMembers,
  serverAdd,
  serverLabel,
  serverMaintenance,
  serverRegister,
  serverRemove,
  serverState,
  serverZone,
  setReplicas,
  setVoters,
  trimDeletions,
} from './commands/servers.ts';
import { removeXattr, setAttributes, setFlags, setXattr, stillLive } from './commands/set-attributes.ts';
import { snapshotCreate, snapshotRemove, snapshotRetain, sweep } from './commands/snapshots.ts';
import { trashEmpty, trashRestore } from './commands/trash.ts';
import {
  CATALOG_MEMBERS,
  catalogCreate,
  catalogReport,
  refuseWhileRemoved,
} from './commands/volume-catalogs.ts';
import { catalogImport } from './commands/volume-import.ts';
import {
  volumeForget,
  volumeFreeze,
  volumeMove,
  volumeMoveAbort,
  volumeNumber,
  volumePart,
} from './commands/volume-moves.ts';
import { volumeSplit } from './commands/volume-splits.ts';
import { volumeCreate, volumeRemove, volumeSet } from './commands/volumes.ts';
import { refuseCounted } from './counted-directories.ts';
import { assertPlaced, type FileClass, placementClassOf } from './file-class.ts';
import { refuseLeaving } from './leaving-servers.ts';
import { refuseMoving } from './moving-volumes.ts';
import { refuseOutdatedServer } from './outdated-servers.ts';
import type { CatalogDatabase } from './schema.ts';
import { refuseElsewhere } from './scopes.ts';
import { Tables } from './tables.ts';
import { volumeOf } from './tree.ts';
import { placeVolume, resolvePlace } from './walk.ts';

/** Of a server's memberships beside its first memberships: these count, unless they are equal. */
const TIE_BREAK = 1e-6;

/** Commands that list a new catalog, with the members that they name, or that the primary chooses. */
const NEW_CATALOGS: ReadonlySet<Command['kind']> = new Set(['catalog-create', 'volume-move', 'volume-split']);

/** Commands that set a volume's number of replicas. */
const SETTING_REPLICAS = ['volume-create', 'volume-set', 'catalog-create'] as const;
type ReplicasCommand = CommandOf<(typeof SETTING_REPLICAS)[number]>;

export type CommandResult = CommandResults[Command['kind']];

/** Outside inputs of a command: time and placement. */
export interface CommandContext {
  readonly nowNs: bigint;
  /** The lease clock, which never steps and advances retentions; absent: `nowNs`. */
  readonly leaseNs?: bigint;
  /**
   * Chooses servers for a new file, or a new catalog. A `ServiceError` refuses the command before it is replicated.
   * @param loads by server: those with less come first, before those with more free space
   */
  readonly placement: (
    replicas: number,
    servers: readonly ServerInfo[],
    required: PlacementClass,
    loads?: ReadonlyMap<string, number>,
  ) => readonly ServerId[];
  /** How many servers can hold replicas; absent: not checked. */
  readonly capacity?: (servers: readonly ServerInfo[], required: PlacementClass) => number;
  /** Refuses a new request whose fence is lost; null allows it. */
  readonly refusal?: (request: CommandRequest) => ServiceError | null;
  /** Command version that all members execute; absent: this release's. */
  readonly membersVersion?: number;
  /** Command version that a server was last seen with; null: not since the start. Absent: not checked. */
  readonly seenVersion?: (server: string) => number | null;
}

/** A command with all that the state does not determine: its execution is deterministic. Survives JSON. */
export interface ResolvedCommand {
  readonly command: Command;
  readonly atNs: string;
  readonly replicas: readonly string[];
}

/** Resolves a command at the catalog's primary, in the transaction that then executes it. */
export function prepareCommand(
  db: CatalogDatabase,
  command: Command,
  context: CommandContext,
): ResolvedCommand {
  const tables = Tables.of(db);
  // Not stored as outcomes: a volume's catalog may begin, and the command be repeated.
  refuseElsewhere(tables, command);
  refuseMoving(tables, command);
  refuseCounted(tables, command);
  if (
    command.kind === 'volume-create' ||
    command.kind === 'catalog-create' ||
    command.kind === 'clone-create'
  )
    refuseWhileRemoved(tables, command.name);
  if (setsReplicas(command)) refuseTooManyReplicas(tables, command, context);
  if (command.kind === 'set-placement') refuseTooSmallClass(tables, command, context);
  if (command.kind === 'reserve-inodes' && command.members === undefined)
    throw new ServiceError(
      'precondition-failed',
      'Numbers are reserved with the servers that hold their files',
    );
  refuseLeaving(tables, command);
  refuseOutdatedServer(tables, command, context.seenVersion);
  // Not stored as an outcome: the file gets settled, and the command is repeated.
  if (isProtecting(command) && tables.inode(command.inode)?.live === 1) throw stillLive(command.inode);
  return {
    command: withCurrentPreservation(tables, command),
    atNs: context.nowNs.toString(),
    replicas: replicasOf(tables, command, context),
  };
}

function isProtecting(command: Command): command is CommandOf<'set-flags' | 'retain'> {
  return command.kind === 'set-flags' || command.kind === 'retain';
}

/**
 * Handles a late report of preserved contents. If the file has other contents by now, the report is dropped: `lost`
 * would void what a later snapshot shows. If the file's members changed, it may name removed members: the contents
 * are preserved again. The primary decides, so that members of all releases execute the same.
 */
function withCurrentPreservation(tables: Tables, command: Command): Command {
  if (command.kind !== 'open-for-write') return command;
  const { contents, preserved, ...rest } = command;
  const file = preserved === undefined ? undefined : tables.inode(command.inode);
  if (preserved === undefined || file === undefined) return rest;
  const { contentsEpoch, contentsSeq, preserving, view } = file;
  const { epoch, seq } = contents ?? { epoch: contentsEpoch, seq: contentsSeq };
  if (contentsCompare(epoch, seq, contentsEpoch, contentsSeq) !== 0) return rest;
  const isElsewhere =
    typeof preserved === 'object' && preserved.inode === preserving && preserved.view.number < view;
  return { ...rest, preserved: isElsewhere ? 'again' : preserved };
}

/** Servers for a new file; a reserved number already has them. */
function replicasOf(tables: Tables, command: Command, context: CommandContext): readonly string[] {
  const reserved = command.kind === 'create-file' ? command.reserved?.inode : undefined;
  const members = reserved === undefined ? [] : tables.numbers.reservedMembers(reserved);
  // An unreserved or used number creates no file.
  if (members === null) return [];
  if (members.length > 0) return members;
  if (NEW_CATALOGS.has(command.kind) && (command as { readonly members?: unknown }).members === undefined)
    return membersOfNewCatalog(tables, context);
  const files = classOfNewFile(tables, command);
  if (files === null) return [];
  const servers = tables.servers.all();
  const chosen = context.placement(files.replicas, servers, placementClassOf(files));
  if (command.kind === 'create-orphan') assertPlaced(command.volume, files, chosen);
  if (reserved !== undefined && !servers.every(({ id }) => chosen.includes(id as ServerId))) {
    // Contents may already be stored under this number, at servers that an earlier release chose.
    throw new ServiceError(
      'precondition-failed',
      `Inode ${reserved} was reserved by an earlier release, without the servers that hold its file`,
    );
  }
  return chosen;
}

/**
 * Members, and first members, are spread over the servers.
 *
 * Servers of the configuration may be chosen before they have registered: the catalog gets them as members later.
 * @throws ServiceError `busy`, not stored as an outcome, while they are the majority
 */
function membersOfNewCatalog(tables: Tables, { placement }: CommandContext): readonly ServerId[] {
  const servers = tables.servers.all();
  const [firsts, members] = [tables.catalogs.firstMemberships(), tables.catalogs.memberships()];
  const ofFirst = new Map([...members].map(([id, count]) => [id, (firsts.get(id) ?? 0) + count * TIE_BREAK]));
  const [first] = placement(1, servers, {}, ofFirst);
  if (first === undefined) return [];
  // With no load at all it is chosen again, before all others.
  const chosen = placement(CATALOG_MEMBERS, servers, {}, new Map(members).set(first, -1));
  const present = chosen.filter((id) => servers.some((one) => one.id === id && one.storageId !== ''));
  if (present.length * 2 > chosen.length) return present;
  const awaited = chosen.filter((id) => !present.includes(id));
  throw new ServiceError('busy', `A new catalog needs ${awaited.join(', ')}, not registered yet`);
}

function setsReplicas(command: Command): command is ReplicasCommand {
  return SETTING_REPLICAS.some((kind) => kind === command.kind);
}

/** Refuses more replicas than servers that may hold them, unless more are announced with `force`. */
function refuseTooManyReplicas(tables: Tables, command: ReplicasCommand, context: CommandContext): void {
  const { replicas, labels, zones } = command;
  if (replicas === undefined && labels === undefined && zones === undefined) return;
  const before = tables.volumes.byName(command.name);
  const required = {
    ...(before === undefined ? {} : placementClassOf(before)),
    ...(labels === undefined ? {} : { labels }),
    ...(zones === undefined ? {} : { zones }),
  };
  const files = { name: `"${command.name}"`, replicas: replicas ?? before?.replicas ?? 0, required };
  refuseTooFewServers(tables, command, files, context);
}

function refuseTooSmallClass(
  tables: Tables,
  command: CommandOf<'set-placement'>,
  context: CommandContext,
): void {
  const directory = tables.inode(command.inode);
  // Execution refuses it, or has nothing to place.
  if (directory === undefined || command.class === null) return;
  const { replicas, ...required } = command.class;
  const name = `directory ${directory.id} of "${directory.volumeName}"`;
  const files = { name, replicas: replicas ?? tables.volumes.row(directory.volume).replicas, required };
  refuseTooFewServers(tables, command, files, context);
}

function refuseTooFewServers(
  tables: Tables,
  { force = false }: Pick<ReplicasCommand, 'force'>,
  files: { readonly name: string; readonly replicas: number; readonly required: PlacementClass },
  { capacity }: CommandContext,
): void {
  if (capacity === undefined || force) return;
  const { name, replicas, required } = files;
  const servers = capacity(tables.servers.all(), required);
  if (replicas <= servers) return;
  const which = isRestricted(required) ? `${servers} servers ${classText(required)}` : `${servers} servers`;
  throw new ServiceError(
    'precondition-failed',
    `Cannot keep ${replicas} replicas of each file of ${name}: there are ${which}. ` +
      'Add servers first, or say with --force ("force": true) that they are to come',
  );
}

/** @returns null if the command creates no file that needs servers, or execution will refuse it */
function classOfNewFile(tables: Tables, command: Command): FileClass | null {
  try {
    if (command.kind === 'create-file') return classAt(tables, command.place, !command.exclusive);
    return command.kind === 'create-orphan' ? classOfUpload(tables, command) : null;
  } catch (error) {
    // Execution refuses it, and stores the refusal for retries.
    if (error instanceof ServiceError) return null;
    throw error;
  }
}

/** The class at the place to be linked if there is such a directory now; its linking may still be refused. */
function classOfUpload(tables: Tables, { volume: name, place }: CommandOf<'create-orphan'>): FileClass {
  const volume = volumeOf(tables, name);
  if (place === undefined) return volume;
  try {
    return placeVolume(tables, place).id === volume.id ? classAt(tables, place, true) : volume;
  } catch (error) {
    if (error instanceof ServiceError) return volume;
    throw error;
  }
}

/** The class of a new file at the place. Walks its path only if there are directories with a class. */
function classAt(tables: Tables, place: Place, follow: boolean): FileClass {
  const volume = placeVolume(tables, place);
  if (tables.classes.isEmpty) return volume;
  const placement = resolvePlace(tables, place, follow)?.directory.placement ?? 0;
  return tables.classes.of(volume, placement);
}

/**
 * Executes a command in the caller's transaction. @throws ServiceError for a refusal, which is as deterministic as a
 * result and changes nothing; UnfilledDirectory, at the primary alone, which changes nothing either; any other error
 * (say, a full disk) must end the transaction
 */
export function executeCommand(db: CatalogDatabase, resolved: ResolvedCommand): CommandResult {
  const tables = Tables.of(db);
  tables.begin();
  try {
    const result = dispatch(tables, resolved);
    tables.releaseSavepoint();
    return result;
  } catch (error) {
    if (error instanceof ServiceError || error instanceof UnfilledDirectory) tables.undo();
    throw error;
  }
}

function dispatch(tables: Tables, { command, atNs, replicas }: ResolvedCommand): CommandResult {
  switch (command.kind) {
    case 'volume-create':
      return volumeCreate(tables, command, atNs);
    case 'volume-set':
      return volumeSet(tables, command);
    case 'volume-remove':
      return volumeRemove(tables, command);
    case 'create-file':
      return createFile(tables, command, atNs, replicas);
    case 'create-orphan':
      return createOrphan(tables, command, atNs, replicas);
    case 'keep-orphan':
      return keepOrphan(tables, command, atNs);
    case 'replace':
      return replace(tables, command, atNs);
    case 'replace-with-contents':
      return replaceWithContents(tables, command, atNs);
    case 'make-directory':
      return makeDirectory(tables, command, atNs);
    case 'make-node':
      return makeNode(tables, command, atNs);
    case 'remove-directory':
      return removeDirectory(tables, command, atNs);
    case 'unlink':
      return unlink(tables, command, atNs);
    case 'unlink-files':
    case 'unlink-fenced':
      return unlinkFiles(tables, command, atNs);
    case 'rename':
      return rename(tables, command, atNs);
    case 'rename-whiteout':
      return renameWhiteout(tables, command, atNs);
    case 'symlink':
      return symlink(tables, command, atNs);
    case 'link':
      return link(tables, command, atNs);
    case 'set-attributes':
      return setAttributes(tables, command, atNs);
    case 'set-flags':
      return setFlags(tables, command, atNs);
    case 'retain':
      return retain(tables, command, atNs);
    case 'note-accesses':
      return noteAccesses(tables, command, atNs);
    case 'open-for-write':
      return openForWrite(tables, command, atNs);
    case 'settle':
      return settle(tables, command);
    case 'set-xattr':
      return setXattr(tables, command, atNs);
    case 'remove-xattr':
      return removeXattr(tables, command, atNs);
    case 'collect':
      return collect(tables, command, atNs);
    case 'reserve-inodes':
      return reserveInodes(tables, command, atNs);
    case 'void-inodes':
      return voidInodes(tables, command);
    case 'bear':
      return createFilesWithContents(tables, command, atNs);
    case 'forgo':
      return {};
    case 'pin-write': {
      const { inode, since, session, number } = command;
      return { inode, since, session, number };
    }
    case 'server-register':
      return serverRegister(tables, command, atNs);
    case 'server-add':
      return serverAdd(tables, command, atNs);
    case 'server-state':
      return serverState(tables, command);
    case 'server-zone':
      return serverZone(tables, command);
    case 'server-label':
      return serverLabel(tables, command);
    case 'server-maintenance':
      return serverMaintenance(tables, command, atNs);
    case 'cluster-set':
      return clusterSet(tables, command);
    case 'server-remove':
      return serverRemove(tables, command);
    case 'plan-files':
      return planFiles(tables, command);
    case 'follow-view':
      return followView(tables, command);
    case 'follow-views':
      return followViews(tables, command);
    case 'plan-members':
      return planMembers(tables, command);
    case 'trim-deletions':
      return trimDeletions(tables, command);
    case 'set-voters':
      return setVoters(tables, command);
    case 'set-replicas':
      return setReplicas(tables, command);
    case 'catalog-begin':
      return catalogBegin(tables, command, atNs);
    case 'catalog-close':
      return catalogClose(tables, command);
    case 'follow-servers':
      return followServers(tables, command);
    case 'extend-numbers':
      return extendNumbers(tables, command);
    case 'catalog-create':
      return catalogCreate(tables, command, replicas);
    case 'catalog-report':
      return catalogReport(tables, command, atNs);
    case 'junction-create':
      return junctionCreate(tables, command, atNs);
    case 'junction-remove':
      return junctionRemove(tables, command, atNs);
    case 'volume-attach':
      return volumeAttach(tables, command);
    case 'volume-detach':
      return volumeDetach(tables, command);
    case 'volume-move':
      return volumeMove(tables, command, replicas);
    case 'volume-split':
      return volumeSplit(tables, command, replicas);
    case 'volume-move-abort':
      return volumeMoveAbort(tables, command, atNs);
    case 'volume-freeze':
      return volumeFreeze(tables, command, atNs);
    case 'volume-part':
      return volumePart(tables, command, atNs);
    case 'volume-number':
      return volumeNumber(tables, command, atNs);
    case 'volume-forget':
      return volumeForget(tables, command);
    case 'catalog-import':
      return catalogImport(tables, command);
    case 'set-quota':
      return setQuota(tables, command);
    case 'walk-quotas':
      return walkQuotas(tables, command);
    case 'set-placement':
      return setPlacement(tables, command);
    case 'inherit-placement':
      return inheritPlacement(tables, command);
    case 'trash-restore':
      return trashRestore(tables, command, atNs);
    case 'trash-empty':
      return trashEmpty(tables, command, atNs);
    case 'snapshot-create':
      return snapshotCreate(tables, command, atNs);
    case 'snapshot-remove':
      return snapshotRemove(tables, command);
    case 'snapshot-retain':
      return snapshotRetain(tables, command);
    case 'clone-create':
      return cloneCreate(tables, command);
    case 'clone-fill':
      return cloneFill(tables, command);
    case 'clone-open':
      return cloneOpen(tables, command);
    case 'clone-filled':
      return cloneFilled(tables, command);
    case 'clone-flatten':
      return cloneFlatten(tables, command);
    case 'sweep':
      return sweep(tables, command);
    default:
      return unreachable(command);
  }
}
