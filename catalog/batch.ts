import { assert } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import { ROOT_NUMBERS_END } from '../base/ids.ts';
import { MalformedError } from '../wire/bytes.ts';
import type { Command, CommandRequest } from '../wire/catalog-api.ts';
import { UnfilledDirectory } from './clone-tables.ts';
import { type CommandContext, executeCommand, prepareCommand, type ResolvedCommand } from './command.ts';
import type { CatalogDatabase } from './schema.ts';
import {
  type CommandId,
  type Outcome,
  outcomeOfError,
  sessionFind,
  sessionRefusal,
  sessionStore,
} from './sessions.ts';
import { Tables } from './tables.ts';
import {
  assertKnownVersion,
  CATALOGS_VERSION,
  CLONES_VERSION,
  COMMANDS_VERSION,
  CREATIONS_VERSION,
  commandAsOf,
  commandVersion,
  concernsRetention,
  DELETIONS_VERSION,
  DIRECTORY_QUOTAS_VERSION,
  FLAGS_VERSION,
  JUNCTIONS_VERSION,
  QUOTA_WALKS_VERSION,
  RETENTION_VERSION,
  SESSIONS_VERSION,
  SPLITS_VERSION,
} from './versions.ts';

interface BatchCommand extends CommandId {
  readonly resolved: ResolvedCommand;
}

/** Commands executed in this order in one transaction: one operation of the catalog's log. */
export interface Batch {
  /** The command version that members need; its rules apply to all commands. */
  readonly version: number;
  readonly commands: readonly BatchCommand[];
  /** The primary's lease clock, if the batch advances that of retentions: decimal nanoseconds. */
  readonly leaseNs?: string;
}

const EMPTY: Batch = { version: 1, commands: [] };
/** Versions that changed what every command does; each includes the rules of earlier ones. */
const RULES = [
  ...[SESSIONS_VERSION, CREATIONS_VERSION, FLAGS_VERSION, DELETIONS_VERSION, CATALOGS_VERSION],
  ...[JUNCTIONS_VERSION, SPLITS_VERSION, DIRECTORY_QUOTAS_VERSION, QUOTA_WALKS_VERSION, CLONES_VERSION],
];

export const BATCH_COMMANDS_MAX = 10_000;

/**
 * Encodes a batch as JSON, one array per command; an empty batch has no bytes. From version 2 on an object with the
 * version, which servers without versions refuse because it is no list.
 */
export function encodeBatch({ version, commands, leaseNs }: Batch): Uint8Array {
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
  return Buffer.from(JSON.stringify(version === 1 ? rows : { version, rows, leaseNs }));
}

/** Decodes commands as their first executor knew them. @throws MalformedError, ServiceError `storage` if too new */
export function decodeBatch(bytes: Uint8Array): Batch {
  if (bytes.length === 0) return EMPTY;
  let batch: unknown;
  try {
    batch = JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString());
  } catch (cause) {
    throw new MalformedError('A batch is not JSON', { cause });
  }
  const { version, rows, ...more } = Array.isArray(batch) ? { version: 1, rows: batch } : versioned(batch);
  assertKnownVersion(version);
  if (!Array.isArray(rows) || rows.length > BATCH_COMMANDS_MAX)
    throw new MalformedError('A batch is no list');
  return { version, commands: rows.map((row) => decodeCommand(row, version)), ...more };
}

/** When the primary executed a batch, in milliseconds since 1970; 0 if it has no commands. */
export function batchAtMs({ commands }: Batch): number {
  const last = commands.at(-1);
  return last === undefined ? 0 : Number(BigInt(last.resolved.atNs) / 1_000_000n);
}

function versioned(
  batch: unknown,
): Pick<Batch, 'leaseNs'> & { readonly version: number; readonly rows: unknown } {
  const { version, rows, leaseNs } = (batch ?? {}) as Readonly<Record<string, unknown>>;
  if (!isCount(version)) throw new MalformedError('A batch is no list, and has no version');
  if (leaseNs === undefined || version < RETENTION_VERSION) return { version, rows };
  if (typeof leaseNs !== 'string' || !/^\d{1,19}$/.test(leaseNs))
    throw new MalformedError('The lease clock of a batch is no time');
  return { version, rows, leaseNs };
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
  // The primary's HTTP interface validated the command against its schema.
  const known = commandAsOf(command as Command, version);
  return { session, number, since, resolved: { command: known, atNs, replicas } };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Inode numbers per epoch of the catalog: more than are created between two failovers. */
const INODES_PER_EPOCH = 2 ** 32;
/**
 * Later epochs continue after the previous one: larger numbers are those of other catalogs. No cluster has so many
 * epochs, each at least a lease apart; so members of releases that counted further assign the same numbers.
 */
const EPOCHS_APART_MAX = ROOT_NUMBERS_END / INODES_PER_EPOCH;

/**
 * Continues inode numbers in a range of the epoch's own; call before every batch. A power loss can revert that a number
 * was used, while its contents are already on disks, but never an epoch. A volume's catalog continues at the limit,
 * which is flushed before numbers up to it are given out. @param epoch counter, from 1
 */
export function startEpochInodes(db: CatalogDatabase, epoch: number): void {
  const { own, numbers } = Tables.of(db);
  if (!own.isRoot) numbers.startAtLimit(epoch);
  else if (epoch <= EPOCHS_APART_MAX) numbers.startFrom((epoch - 1) * INODES_PER_EPOCH);
}

/**
 * At the primary: resolves and executes requests in order, in the caller's transaction, as batch number `seq`.
 *
 * @returns outcomes in request order, and the batch for the other replicas, without requests that need no execution
 *   (retries, early refusals). `touched`: per request the inodes with changed rows, entries or attributes. `unfilled`:
 *   by place, a directory that has to be filled before the request is executed; it is not part of the batch, and is to
 *   be repeated then.
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
  readonly unfilled: ReadonlyMap<number, number>;
} {
  const tables = Tables.of(db);
  const commands: BatchCommand[] = [];
  const unfilled = new Map<number, number>();
  const touched: number[][] = requests.map(() => []);
  const rules = adopt(tables, requests, context);
  const { leaseNs = context.nowNs } = context;
  const advances =
    requests.some(({ command }) => concernsRetention(command)) || tables.retentions.isDue(leaseNs);
  if (advances) tables.retentions.advance(leaseNs);
  const outcomes = requests.map((request, index): Outcome => {
    const { session, number, command } = request;
    const id = { session, number, since: request.since ?? null };
    const known = sessionFind(tables, id, seq) ?? sessionRefusal(tables, id, context.nowNs);
    if (known !== null) return known;
    // Not stored as an outcome: a retry finds the fence lost again.
    const refusal = context.refusal?.(request) ?? null;
    if (refusal !== null) return outcomeOfError(refusal);
    try {
      const batchCommand = { ...id, resolved: prepareCommand(db, command, context) };
      const outcome = executeAndStore(db, tables, seq, rules, batchCommand);
      commands.push(batchCommand);
      touched[index] = tables.touched();
      return outcome;
    } catch (error) {
      if (error instanceof UnfilledDirectory) unfilled.set(index, error.inode);
      else if (!(error instanceof ServiceError)) throw error;
      return outcomeOfError(error instanceof ServiceError ? error : beingFilled(error));
    }
  });
  const versions = commands.map(({ resolved }) => commandVersion(resolved.command));
  const time = advances ? { leaseNs: `${leaseNs}` } : {};
  const batch = commands.length === 0 ? EMPTY : { version: Math.max(rules, ...versions), commands, ...time };
  return { batch, outcomes, touched, unfilled };
}

function beingFilled({ message }: UnfilledDirectory): ServiceError {
  return new ServiceError('busy', message);
}

/** Executes a batch at another replica, by the primary's rules, in the caller's transaction. @returns equal outcomes */
export function executeBatch(
  db: CatalogDatabase,
  seq: number,
  { version: rules, commands, leaseNs }: Batch,
): Outcome[] {
  const tables = Tables.of(db);
  tables.version.adopt(rules);
  if (leaseNs !== undefined) tables.retentions.advance(BigInt(leaseNs));
  const outcomes = commands.map((command) => executeAndStore(db, tables, seq, rules, command));
  const { next, limit } = tables.numbers.position();
  assert(next <= limit, 'The primary gives out numbers below the limit only');
  return outcomes;
}

/**
 * At the primary: chooses the rules (a version) of a batch, which all members execute, and stores them. They are the
 * latest that all members know; others would execute commands differently. Flags' rules start with the first flags, or
 * with those of deletions; those of volumes' catalogs and of junctions with the first one. @returns the rules
 */
function adopt(
  { version }: Tables,
  requests: readonly CommandRequest[],
  { membersVersion = COMMANDS_VERSION }: CommandContext,
): number {
  const needed = requests.map(({ command }) => commandVersion(command));
  const known = membersVersion >= DELETIONS_VERSION ? DELETIONS_VERSION : CREATIONS_VERSION;
  const reached = Math.max(...needed, Math.min(membersVersion, known), version.current);
  const rules = RULES.findLast((rule) => rule <= reached) ?? 1;
  version.adopt(rules);
  return rules;
}

/** Executes a command of a batch, and stores its outcome, also a refusal, for retries. */
function executeAndStore(
  db: CatalogDatabase,
  tables: Tables,
  seq: number,
  rules: number,
  { resolved, ...id }: BatchCommand,
): Outcome {
  let outcome: Outcome;
  tables.forgetTouched();
  tables.inodes.storesCreationTimes = rules >= CREATIONS_VERSION;
  tables.deletions.isWritten = rules >= DELETIONS_VERSION;
  tables.catalogs.isVersioned = rules >= CATALOGS_VERSION;
  try {
    outcome = { kind: 'done', result: executeCommand(db, resolved) };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    outcome = outcomeOfError(error);
  }
  // Another catalog executes the command: a retry, which may come here again, must hear the same.
  if (outcome.kind === 'refused' && outcome.elsewhere === true) return outcome;
  const fenced = rules >= SESSIONS_VERSION;
  sessionStore(tables, id, { seq, atNs: BigInt(resolved.atNs), fenced }, outcome);
  return outcome;
}
