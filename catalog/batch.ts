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
  CREATIONS_VERSION,
  commandAsOf,
  commandVersion,
  FLAGS_VERSION,
  SESSIONS_VERSION,
} from './versions.ts';

/** One command of a batch, as it is replicated. */
export interface BatchCommand extends CommandId {
  /** Sessions are of two kinds, as all members of the catalog know; the same for all commands of a batch. */
  readonly fenced: boolean;
  /** Times of creation are kept, as all members of the catalog do; the same for all commands of a batch. */
  readonly dated: boolean;
  /** Flags are obeyed, as by all members of the catalog once any were set; the same for all commands of a batch. */
  readonly flagged: boolean;
  readonly resolved: ResolvedCommand;
}

/** Commands that are executed in this order in one transaction: an operation of the catalog's sequence. */
export type Batch = readonly BatchCommand[];

/** Commands in one batch at the most. */
export const BATCH_COMMANDS_MAX = 10_000;

/**
 * A batch in bytes: JSON, one array per command. No commands are no bytes. Where a command needs it, the version comes with them: servers of
 * before there were versions then find no list, and refuse it.
 */
export function encodeBatch(batch: Batch): Uint8Array {
  assert(batch.length <= BATCH_COMMANDS_MAX, 'A batch is bounded');
  if (batch.length === 0) return new Uint8Array(0);
  const rows = batch.map(({ session, number, since, resolved }) => [
    session,
    number,
    since,
    resolved.atNs,
    resolved.replicas,
    resolved.command,
  ]);
  const version = Math.max(
    ...batch.map(({ resolved, fenced, dated, flagged }) =>
      Math.max(
        commandVersion(resolved.command),
        fenced ? SESSIONS_VERSION : 1,
        dated ? CREATIONS_VERSION : 1,
        flagged ? FLAGS_VERSION : 1,
      ),
    ),
  );
  return Buffer.from(JSON.stringify(version === 1 ? rows : { version, rows }));
}

/**
 * @returns the commands as whoever has executed them first knew them
 * @throws MalformedError where the bytes are not what `encodeBatch` makes, ServiceError `storage` for a later version
 */
export function decodeBatch(bytes: Uint8Array): Batch {
  if (bytes.length === 0) return [];
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
  return rows.map((row) => decodeCommand(row, version));
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
  const fenced = version >= SESSIONS_VERSION;
  const dated = version >= CREATIONS_VERSION;
  const flagged = version >= FLAGS_VERSION;
  return { session, number, since, fenced, dated, flagged, resolved: { command: known, atNs, replicas } };
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
  const batch: BatchCommand[] = [];
  const touched: number[][] = requests.map(() => []);
  const { sessions, numbers } = tables;
  const fenced = adopted(requests, {
    version: SESSIONS_VERSION,
    isKnown: context.fencesSessions,
    isAdopted: sessions.areFenced,
    adopt: () => sessions.setFenced(),
  });
  const dated =
    fenced &&
    adopted(requests, {
      version: CREATIONS_VERSION,
      isKnown: context.datesCreations,
      isAdopted: numbers.areDated,
      adopt: () => numbers.setDated(),
    });
  // A member that does not obey them would execute what others refuse: from the first flags on all commands are for members that do.
  const flagged =
    dated &&
    adopted(requests, {
      version: FLAGS_VERSION,
      isKnown: false,
      isAdopted: numbers.areFlagged,
      adopt: () => numbers.setFlagged(),
    });
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
    const one = { ...id, fenced, dated, flagged, resolved };
    batch.push(one);
    const outcome = executeOnce(db, tables, seq, one);
    touched[place] = tables.touched();
    return outcome;
  });
  return { batch, outcomes, touched };
}

/**
 * The other replicas' half: executes what the primary executed, inside the caller's transaction. What the primary
 * found in its session table is not in the batch.
 *
 * @returns the outcomes, which are those that the primary had
 */
export function executeBatch(db: CatalogDatabase, seq: number, batch: Batch): Outcome[] {
  const tables = Tables.of(db);
  if (batch.some(({ fenced }) => fenced) && !tables.sessions.areFenced) tables.sessions.setFenced();
  if (batch.some(({ dated }) => dated) && !tables.numbers.areDated) tables.numbers.setDated();
  if (batch.some(({ flagged }) => flagged) && !tables.numbers.areFlagged) tables.numbers.setFlagged();
  return batch.map((command) => executeOnce(db, tables, seq, command));
}

interface Adoption {
  /** By which version of commands it came. */
  readonly version: number;
  /** Whether all members of the catalog are known to do it. Absent: they are. */
  readonly isKnown: boolean | undefined;
  readonly isAdopted: boolean;
  adopt(): void;
}

/** What the members of the catalog do once all of them know it, and from then on. @returns whether they do */
function adopted(
  requests: readonly CommandRequest[],
  { version, isKnown = true, isAdopted, adopt }: Adoption,
): boolean {
  if (isAdopted) return true;
  if (!isKnown && requests.every(({ command }) => commandVersion(command) < version)) return false;
  adopt();
  return true;
}

function executeOnce(
  db: CatalogDatabase,
  tables: Tables,
  seq: number,
  { resolved, fenced, dated, flagged: _, ...id }: BatchCommand,
): Outcome {
  let outcome: Outcome;
  tables.forgetTouched();
  tables.inodes.isDated = dated;
  try {
    outcome = { kind: 'done', result: executeCommand(db, resolved) };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    outcome = outcomeOfError(error);
  }
  sessionRecord(tables, id, { seq, atNs: BigInt(resolved.atNs), fenced }, outcome);
  return outcome;
}
