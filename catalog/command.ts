import { unreachable } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type { ServerId } from '../base/ids.ts';
import type { Command, CommandOf, CommandRequest, CommandResults, ServerInfo } from '../wire/catalog-api.ts';
import { contentsCompare } from './attributes.ts';
import { noteAccesses } from './commands/accesses.ts';
import { removeXattr, setAttributes, setFlags, setXattr, stillLive } from './commands/attributes.ts';
import { bear, reserveInodes, voidInodes } from './commands/births.ts';
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
  followView,
  planMembers,
  serverAdd,
  serverRegister,
  serverRemove,
  serverState,
  serverZone,
  setReplicas,
  setVoters,
} from './commands/servers.ts';
import { snapshotCreate, snapshotRemove, sweep } from './commands/snapshots.ts';
import { trashEmpty, trashRestore } from './commands/trash.ts';
import { volumeCreate, volumeRemove, volumeSet } from './commands/volumes.ts';
import { refuseLeaving } from './leaving-servers.ts';
import type { CatalogDatabase } from './schema.ts';
import { Tables } from './tables.ts';
import { volumeOf } from './tree.ts';
import { placeVolume } from './walk.ts';

export type CommandResult = CommandResults[Command['kind']];

/** What the world adds to a command: the time, and where new replicas shall be. */
export interface CommandContext {
  readonly nowNs: bigint;
  /**
   * Chooses servers for a new file of a volume that wants so many replicas, from those that the catalog knows.
   * A `ServiceError` refuses the command before anybody hears of it.
   */
  readonly placement: (volumeReplicas: number, servers: readonly ServerInfo[]) => readonly ServerId[];
  /** How many servers can hold replicas. Absent: nobody asks for more than there are. */
  readonly capacity?: (servers: readonly ServerInfo[]) => number;
  /** Why a request that was not executed before must not be executed now, as its fence is lost; null where it may be. */
  readonly refusal?: (request: CommandRequest) => ServiceError | null;
  /** Version of commands that all members of the catalog are known to execute. Absent: this release's. */
  readonly membersVersion?: number;
}

/**
 * A command with everything in it that is not determined by the catalog's state: executing it gives
 * the same state and the same result on every replica. Survives JSON.
 */
export interface ResolvedCommand {
  readonly command: Command;
  readonly atNs: string;
  /** Servers for the file that the command makes, if it makes one. */
  readonly replicas: readonly string[];
}

/** Done by the catalog's primary, in the transaction in which it then executes the command. */
export function prepareCommand(
  db: CatalogDatabase,
  command: Command,
  context: CommandContext,
): ResolvedCommand {
  const tables = Tables.of(db);
  if (command.kind === 'volume-create' || command.kind === 'volume-set') {
    refuseTooMany(tables, command, context);
  }
  if (command.kind === 'reserve-inodes' && command.members === undefined)
    throw new ServiceError(
      'precondition-failed',
      'Numbers are reserved with the servers that hold their files',
    );
  refuseLeaving(tables, command);
  // Not an outcome that is kept: the file is settled, and the command is given again.
  if (command.kind === 'set-flags' && tables.inode(command.inode)?.live === 1) throw stillLive(command.inode);
  return {
    command: preservedNow(tables, command),
    atNs: context.nowNs.toString(),
    replicas: replicasOf(tables, command, context),
  };
}

/**
 * A report of preserved contents that comes late. If the file has other contents by now, it says nothing about those: `lost` would end what a
 * later snapshot shows. If the members of the file have changed, it names servers that may have left the cluster: the contents are preserved
 * once more. The primary decides it, so that members of all releases execute the same.
 */
function preservedNow(tables: Tables, command: Command): Command {
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

/** Chooses servers for the file that the command makes, if it makes one; those of a reserved number were chosen with it. */
function replicasOf(tables: Tables, command: Command, context: CommandContext): readonly string[] {
  const reserved = command.kind === 'create-file' ? command.reserved?.inode : undefined;
  const members = reserved === undefined ? [] : tables.numbers.reservedMembers(reserved);
  // By a number that is not reserved, or used already, no file is made.
  if (members === null) return [];
  if (members.length > 0) return members;
  const wanted = replicasWanted(tables, command);
  if (wanted === 0) return [];
  const servers = tables.servers.all();
  const chosen = context.placement(wanted, servers);
  if (reserved !== undefined && !servers.every(({ id }) => chosen.includes(id as ServerId))) {
    // Contents may have been stored by this number already, at servers that an earlier release chose.
    throw new ServiceError(
      'precondition-failed',
      `Inode ${reserved} was reserved by an earlier release, without the servers that hold its file`,
    );
  }
  return chosen;
}

/** More replicas than servers would be a promise that nobody keeps, unless servers are still to come. */
function refuseTooMany(
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

/** @returns how many replicas the command needs servers for; 0 where execution is going to refuse it */
function replicasWanted(tables: Tables, command: Command): number {
  try {
    if (command.kind === 'create-file') return placeVolume(tables, command.place).replicas;
    if (command.kind === 'create-orphan') return volumeOf(tables, command.volume).replicas;
    return 0;
  } catch (error) {
    // The refusal is said by the execution, so that it has its place in the order of commands.
    if (error instanceof ServiceError) return 0;
    throw error;
  }
}

/**
 * Executes a command inside the transaction that the caller has open.
 *
 * @throws ServiceError where the command is refused: it has changed nothing then, and the refusal is
 *   as deterministic as a result. Any other error (a full disk, say) ends the whole transaction.
 */
export function executeCommand(db: CatalogDatabase, resolved: ResolvedCommand): CommandResult {
  const tables = Tables.of(db);
  tables.begin();
  try {
    const result = dispatch(tables, resolved);
    tables.keep();
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
      return bear(tables, command, atNs);
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
    case 'server-remove':
      return serverRemove(tables, command);
    case 'follow-view':
      return followView(tables, command);
    case 'plan-members':
      return planMembers(tables, command);
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
