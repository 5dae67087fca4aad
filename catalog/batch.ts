import { assert } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import { MalformedError } from '../wire/bytes.ts';
import type { Command, CommandRequest } from '../wire/catalog-api.ts';
import { type CommandContext, executeCommand, prepareCommand, type ResolvedCommand } from './command.ts';
import type { CatalogDatabase } from './schema.ts';
import {
  type CommandId,
  type Outcome,
  outcomeOfError,
  sessionRecall,
  sessionRecord,
  sessionRefusal,
} from './sessions.ts';
import { Tables } from './tables.ts';
import {
  assertKnownVersion,
  COMMANDS_VERSION,
  CREATIONS_VERSION,
  commandAsOf,
  commandVersion,
  FLAGS_VERSION,
  SESSIONS_VERSION,
} from './versions.ts';

/** One command of a batch, as it is replicated. */
interface BatchCommand extends CommandId {
  readonly resolved: ResolvedCommand;
}

/** Commands that are executed in this order in one transaction: an operation of the catalog's sequence. */
export interface Batch {
  /** Version of commands that a member has to know to execute the batch. All commands are executed by its rules. */
  readonly version: number;
  readonly commands: readonly BatchCommand[];
}

const EMPTY: Batch = { version: 1, commands: [] };
/** Versions that have changed what every command does; each has the rules of those before it. */
const RULES = [SESSIONS_VERSION, CREATIONS_VERSION, FLAGS_VERSION];

/** Commands in one batch at the most. */
export const BATCH_COMMANDS_MAX = 10_000;

/**
 * A batch in bytes: JSON, one array per command. No commands are no bytes. Where a command needs it, the version comes with them: servers of
 * before there were versions then find no list, and refuse it.
 */
export function encodeBatch({ version, commands }: Batch): Uint8Array {
  assert(commands.length <= BATCH_COMMANDS_MAX, 'A batch is bounded');
  if (commands.length === 0) return new Uint8Array(0);
  const rows = commands.map(({ session, number, since, resolved }) => [
    session,
    number,
    since,
    resolved.atNs,
    resolved.replicas,
    resolved.command,
  ]);
  return Buffer.from(JSON.stringify(version === 1 ? rows : { version, rows }));
}

/**
 * @returns the commands as whoever has executed them first knew them
 * @throws MalformedError where the bytes are not what `encodeBatch` makes, ServiceError `storage` for a later version
 */
export function decodeBatch(bytes: Uint8Array): Batch {
  if (bytes.length === 0) return EMPTY;
  let batch: unknown;
  try {
    batch = JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString());
  } catch (cause) {
    throw new MalformedError('A batch is not JSON', { cause });
  }
  const { version, rows } = Array.isArray(batch) ? { version: 1, rows: batch } : versioned(batch);
  assertKnownVersion(version);
  if (!Array.isArray(rows) || rows.length > BATCH_COMMANDS_MAX)
    throw new MalformedError('A batch is no list');
  return { version, commands: rows.map((row) => decodeCommand(row, version)) };
}

function versioned(batch: unknown): { readonly version: number; readonly rows: unknown } {
  const { version, rows } = (batch ?? {}) as Readonly<Record<string, unknown>>;
  if (!isCount(version)) throw new MalformedError('A batch is no list, and has no version');
  return { version, rows };
}

function decodeCommand(row: unknown, version: number): BatchCommand {
  if (!Array.isArray(row) || row.length !== 6) throw new MalformedError('A command has not its six fields');
  const [session, number, since, atNs, replicas, command] = row as unknown[];
  if (
    !isCount(session) ||
    !isCount(number) ||
    !(since === null || isCount(since)) ||
    typeof atNs !== 'string' ||
    !Array.isArray(replicas) ||
    !replicas.every((replica) => typeof replica === 'string') ||
    typeof command !== 'object' ||
    command === null ||
    !('kind' in command)
  ) {
    throw new MalformedError('A field of a command has not its type');
  }
  // The primary's HTTP face has held the command against its schema.
  const known = commandAsOf(command as Command, version);
  return { session, number, since, resolved: { command: known, atNs, replicas } };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Inodes that one epoch of the catalog may number: more than anybody makes between two failovers. */
const INODES_PER_EPOCH = 2 ** 32;
/** Later epochs number on from where the one before ended: larger numbers would not be exact. */
const EPOCHS_APART_MAX = 2 ** 21;

/**
 * Called before every batch of an epoch: its inodes get numbers of its own. A loss of power can take back that inodes
 * were numbered, of which contents are on disks already, but never an epoch.
 *
 * @param epoch counter of the epoch, from 1
 */
export function inodesBegin(db: CatalogDatabase, epoch: number): void {
  if (epoch <= EPOCHS_APART_MAX) Tables.of(db).numbers.startFrom((epoch - 1) * INODES_PER_EPOCH);
}

/**
 * The primary's half: resolves and executes requests one after the other, inside the transaction that
 * the caller has open, as batch number `seq`.
 *
 * @returns the outcomes in the order of the requests, and the batch that makes other replicas equal.
 *   What needs no execution (a retry, a refusal before execution) is answered and not in the batch.
 *   `touched`: for each request the inodes of which it has written something, rows, names or attributes.
 */
export function executeRequests(
  db: CatalogDatabase,
  seq: number,
  requests: readonly CommandRequest[],
  context: CommandContext,
): {
  readonly batch: Batch;
  readonly outcomes: readonly Outcome[];
  readonly touched: readonly (readonly number[])[];
} {
  const tables = Tables.of(db);
  const commands: BatchCommand[] = [];
  const touched: number[][] = requests.map(() => []);
  const rules = adopt(tables, requests, context);
  const outcomes = requests.map((request, place): Outcome => {
    const { session, number, command } = request;
    const id = { session, number, since: request.since ?? null };
    const recalled = sessionRecall(tables, id, seq) ?? sessionRefusal(tables, id, context.nowNs);
    if (recalled !== null) return recalled;
    // Not kept: a fence that is lost stays lost.
    const refusal = context.refusal?.(request) ?? null;
    if (refusal !== null) return outcomeOfError(refusal);
    let resolved: ResolvedCommand;
    try {
      resolved = prepareCommand(db, command, context);
    } catch (error) {
      if (error instanceof ServiceError) return outcomeOfError(error);
      throw error;
    }
    const one = { ...id, resolved };
    commands.push(one);
    const outcome = executeOnce(db, tables, seq, rules, one);
    touched[place] = tables.touched();
    return outcome;
  });
  const versions = commands.map(({ resolved }) => commandVersion(resolved.command));
  const batch = commands.length === 0 ? EMPTY : { version: Math.max(rules, ...versions), commands };
  return { batch, outcomes, touched };
}

/**
 * The other replicas' half: executes what the primary executed, inside the caller's transaction. What the primary
 * found in its session table is not in the batch.
 *
 * @returns the outcomes, which are those that the primary had
 */
export function executeBatch(db: CatalogDatabase, seq: number, { version, commands }: Batch): Outcome[] {
  const tables = Tables.of(db);
  tables.version.adopt(version);
  return commands.map((command) => executeOnce(db, tables, seq, version, command));
}

/**
 * Members that do not know the rules would execute the same commands to another effect: rules are adopted once all members know them, and from
 * then on. Those of flags are adopted with the first flags: until then a member may still be of the release before.
 *
 * @returns the latest rules that are adopted
 */
function adopt(
  { version }: Tables,
  requests: readonly CommandRequest[],
  { membersVersion = COMMANDS_VERSION }: CommandContext,
): number {
  const needed = requests.map(({ command }) => commandVersion(command));
  const reached = Math.max(...needed, Math.min(membersVersion, CREATIONS_VERSION), version.current);
  const rules = RULES.findLast((rule) => rule <= reached) ?? 1;
  version.adopt(rules);
  return rules;
}

function executeOnce(
  db: CatalogDatabase,
  tables: Tables,
  seq: number,
  version: number,
  { resolved, ...id }: BatchCommand,
): Outcome {
  let outcome: Outcome;
  tables.forgetTouched();
  tables.inodes.isDated = version >= CREATIONS_VERSION;
  try {
    outcome = { kind: 'done', result: executeCommand(db, resolved) };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    outcome = outcomeOfError(error);
  }
  const fenced = version >= SESSIONS_VERSION;
  sessionRecord(tables, id, { seq, atNs: BigInt(resolved.atNs), fenced }, outcome);
  return outcome;
}
