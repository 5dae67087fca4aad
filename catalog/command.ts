import { unreachable } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type { ServerId } from '../base/ids.ts';
import type { Command, CommandOf, CommandRequest, CommandResults, ServerInfo } from '../wire/catalog-api.ts';
import { contentsCompare } from './attributes.ts';
import { noteAccesses } from './commands/accesses.ts';
import { createFilesWithContents, reserveInodes, voidInodes } from './commands/create-with-contents.ts';
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
import { rename, renameWhiteout } from './commands/rename.ts';
import { replace, replaceWithContents } from './commands/replace.ts';
import {
  clusterSet,
  followView,
  followViews,
  planFiles,
  planMembers,
  serverAdd,
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
import { snapshotCreate, snapshotRemove, sweep } from './commands/snapshots.ts';
import { trashEmpty, trashRestore } from './commands/trash.ts';
import { volumeCreate, volumeRemove, volumeSet } from './commands/volumes.ts';
import { refuseLeaving } from './leaving-servers.ts';
import type { CatalogDatabase } from './schema.ts';
import { Tables } from './tables.ts';
import { volumeOf } from './tree.ts';
import { placeVolume } from './walk.ts';

export type CommandResult = CommandResults[Command['kind']];

/** Outside inputs of a command: time and placement. */
export interface CommandContext {
  readonly nowNs: bigint;
  /** Chooses servers for a new file. A `ServiceError` refuses the command before it is replicated. */
  readonly placement: (volumeReplicas: number, servers: readonly ServerInfo[]) => readonly ServerId[];
  /** How many servers can hold replicas; absent: not checked. */
  readonly capacity?: (servers: readonly ServerInfo[]) => number;
  /** Refuses a new request whose fence is lost; null allows it. */
  readonly refusal?: (request: CommandRequest) => ServiceError | null;
  /** Command version that all members execute; absent: this release's. */
  readonly membersVersion?: number;
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
  if (command.kind === 'volume-create' || command.kind === 'volume-set') {
    refuseTooManyReplicas(tables, command, context);
  }
  if (command.kind === 'reserve-inodes' && command.members === undefined)
    throw new ServiceError(
      'precondition-failed',
      'Numbers are reserved with the servers that hold their files',
    );
  refuseLeaving(tables, command);
  // Not stored as an outcome: the file gets settled, and the command is repeated.
  if (command.kind === 'set-flags' && tables.inode(command.inode)?.live === 1) throw stillLive(command.inode);
  return {
    command: withCurrentPreservation(tables, command),
    atNs: context.nowNs.toString(),
    replicas: replicasOf(tables, command, context),
  };
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
  const wanted = replicasWanted(tables, command);
  if (wanted === 0) return [];
  const servers = tables.servers.all();
  const chosen = context.placement(wanted, servers);
  if (reserved !== undefined && !servers.every(({ id }) => chosen.includes(id as ServerId))) {
    // Contents may already be stored under this number, at servers that an earlier release chose.
    throw new ServiceError(
      'precondition-failed',
      `Inode ${reserved} was reserved by an earlier release, without the servers that hold its file`,
    );
  }
  return chosen;
}

/** Refuses more replicas than servers, unless more servers are announced with `force`. */
function refuseTooManyReplicas(
  tables: Tables,
  command: CommandOf<'volume-create'> | CommandOf<'volume-set'>,
  context: CommandContext,
): void {
  if (context.capacity === undefined || command.force === true || command.replicas === undefined) return;
  const servers = context.capacity(tables.servers.all());
  if (command.replicas <= servers) return;
  throw new ServiceError(
    'precondition-failed',
    `Cannot keep ${command.replicas} replicas of each file of "${command.name}": there are ${servers} servers. ` +
      'Add servers first, or say with --force ("force": true) that they are to come',
  );
}

/** @returns the replicas to place; 0 if execution will refuse the command */
function replicasWanted(tables: Tables, command: Command): number {
  try {
    if (command.kind === 'create-file') return placeVolume(tables, command.place).replicas;
    if (command.kind === 'create-orphan') return volumeOf(tables, command.volume).replicas;
    return 0;
  } catch (error) {
    // Execution refuses it, and stores the refusal for retries.
    if (error instanceof ServiceError) return 0;
    throw error;
  }
}

/**
 * Executes a command in the caller's transaction. @throws ServiceError for a refusal, which is as deterministic as a
 * result and changes nothing; any other error (say, a full disk) must end the transaction
 */
export function executeCommand(db: CatalogDatabase, resolved: ResolvedCommand): CommandResult {
  const tables = Tables.of(db);
  tables.begin();
  try {
    const result = dispatch(tables, resolved);
    tables.releaseSavepoint();
    return result;
  } catch (error) {
    if (error instanceof ServiceError) tables.undo();
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
    case 'trash-restore':
      return trashRestore(tables, command, atNs);
    case 'trash-empty':
      return trashEmpty(tables, command, atNs);
    case 'snapshot-create':
      return snapshotCreate(tables, command, atNs);
    case 'snapshot-remove':
      return snapshotRemove(tables, command);
    case 'sweep':
      return sweep(tables, command);
    default:
      return unreachable(command);
  }
}
