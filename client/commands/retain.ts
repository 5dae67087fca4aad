import { type Command, InvalidArgumentError } from 'commander';
import { dateOfNs } from '../../base/dates.ts';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { parseRetention, RETENTION_FORM, type Retention } from '../../wire/retention.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { located } from '../cluster/location.ts';
import { parseRemotePath, type RemotePath } from '../cluster/remote-path.ts';
import { preconditionFailure, usageFailure } from '../terminal/failure.ts';
import { printable, printJson, printLine } from '../terminal/output.ts';
import { BoundedTransfers } from '../transfer/bounded-transfers.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { clusterCommand } from './cluster-command.ts';

const RETENTIONS_AT_ONCE = 16;

export const UNTIL = [
  '--until <date>',
  'until this date (UTC), such as 2030-01-31 or 2030-01-31T12:00:00Z',
] as const;
export const FOR = ['--for <duration>', 'for this time from now on, such as 30d'] as const;

export interface RetentionOptions {
  readonly until?: Retention;
  readonly for?: Retention;
}

interface RetainOptions extends RetentionOptions {
  readonly recursive?: true;
  readonly json?: true;
}

/** What a recursive command has done. */
interface Counts {
  retained: number;
  /** Files that are retained longer than wanted. */
  longer: number;
}

export function addRetainCommand(program: Command): void {
  clusterCommand(program, 'retain', 'retain a file: until then no client can change, remove or rename it')
    .argument('<path>', 'VOLUME:/path')
    .option(...UNTIL, retentionDate)
    .option(...FOR, retentionTime)
    .option('-r, --recursive', 'each file in a directory, and below')
    .option('--json', 'print the result as JSON')
    .run(async (client, call, text: string, options: RetainOptions) => {
      const path = await located(client, parseRemotePath(text), call);
      const wanted = wantedRetention(options);
      if (options.recursive) return retainAll(client, path, wanted, options, call);
      const { retainUntilNs } = await retainOrShow(client, path, wanted, call);
      const retainUntil = retainUntilNs === undefined ? null : dateOfNs(retainUntilNs);
      if (options.json) return printJson({ volume: path.volume, path: path.path, retainUntil });
      printLine(retainUntil ?? 'none');
    });
}

/** @returns null if neither option is given */
export function wantedRetention({ until, for: time }: RetentionOptions): Retention | null {
  if (until !== undefined && time !== undefined) throw usageFailure('Give --until or --for, not both');
  return until ?? time ?? null;
}

async function retainOrShow(
  client: ClusterClient,
  { volume, path }: RemotePath,
  wanted: Retention | null,
  call: CallOptions,
): Promise<Attributes> {
  const attributes = await client.resolve(volume, path, call);
  if (wanted === null) return attributes;
  if (attributes.kind === 'directory')
    throw preconditionFailure(
      `Cannot retain ${volume}:${printable(path)}: it is a directory`,
      'use --recursive to retain each file in it',
    );
  await client.useVolume(volume, call);
  return (await client.command({ kind: 'retain', inode: attributes.inode, retain: wanted }, call)).attributes;
}

async function retainAll(
  client: ClusterClient,
  { volume, path }: RemotePath,
  wanted: Retention | null,
  { json }: RetainOptions,
  call: CallOptions,
): Promise<void> {
  if (wanted === null) throw usageFailure('Give --until or --for with --recursive');
  const top = await client.resolve(volume, path, call);
  await client.useVolume(volume, call);
  const counts: Counts = { retained: 0, longer: 0 };
  const retentions = new BoundedTransfers(RETENTIONS_AT_ONCE);
  try {
    await retainBelow(client, top, wanted, { retentions, counts }, call);
  } finally {
    await retentions.end();
  }
  if (json) return printJson({ volume, path, ...counts });
  const longer = counts.longer === 0 ? '' : `; ${counts.longer} are retained longer already`;
  printLine(`retained ${counts.retained} files${longer}`);
}

/** Files only, and not those of attached volumes. */
async function retainBelow(
  client: ClusterClient,
  { inode, kind }: Attributes,
  wanted: Retention,
  state: { readonly retentions: BoundedTransfers; readonly counts: Counts },
  call: CallOptions,
): Promise<void> {
  if (kind === 'file')
    await state.retentions.begin(() => retainFile(client, inode, wanted, state.counts, call));
  if (kind !== 'directory') return;
  for await (const { attributes } of client.list({ inode }, call))
    if (attributes.junction === undefined) await retainBelow(client, attributes, wanted, state, call);
}

async function retainFile(
  client: ClusterClient,
  inode: number,
  wanted: Retention,
  counts: Counts,
  call: CallOptions,
): Promise<void> {
  try {
    await client.command({ kind: 'retain', inode, retain: wanted }, call);
    counts.retained++;
  } catch (error) {
    // It is retained longer, which no command changes.
    if (!(error instanceof ServiceError) || error.code !== 'protected') throw error;
    counts.longer++;
  }
}

/** Parses an option's value: a date or a duration. @throws InvalidArgumentError */
export function retention(text: string): Retention {
  const parsed = parseRetention(text);
  if (parsed === null) throw new InvalidArgumentError(`Write ${RETENTION_FORM}.`);
  return parsed;
}

export function retentionDate(text: string): Retention {
  const parsed = retention(text);
  if ('forMs' in parsed)
    throw new InvalidArgumentError('A date is written like 2030-01-31; --for takes a duration.');
  return parsed;
}

export function retentionTime(text: string): Retention {
  const parsed = retention(text);
  if ('untilNs' in parsed)
    throw new InvalidArgumentError('A duration is written like 30d; --until takes a date.');
  return parsed;
}
