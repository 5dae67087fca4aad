import { type Command, InvalidArgumentError } from 'commander';
import { dateOfNs } from '../../base/dates.ts';
import { ServiceError } from '../../base/errors.ts';
import type { SnapshotInfo } from '../../wire/catalog-api.ts';
import type { Retention } from '../../wire/retention.ts';
import { abandonedSnapshots } from '../backup/own-snapshot.ts';
import { type Retention as KeepRules, keptSnapshots, parseRetention } from '../backup/retention.ts';
import { attachedBelow } from '../cluster/attached-volumes.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { isNeededSnapshot } from '../mirror/mirror-names.ts';
import { usageFailure } from '../terminal/failure.ts';
import { printJson, printLine, printTable } from '../terminal/output.ts';
import { formatTime } from '../terminal/quantities.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { junctionLine } from '../tree/report.ts';
import { clusterCommand, leaseClientOf } from './cluster-command.ts';
import {
  FOR,
  type RetentionOptions,
  retention,
  retentionDate,
  retentionTime,
  UNTIL,
  wantedRetention,
} from './retain.ts';
import { type SnapshotName, snapshotName } from './snapshot-name.ts';
import { volumeName } from './volume.ts';

interface CreateOptions {
  readonly retain?: Retention;
  readonly json?: true;
}

export function addSnapshotCommands(program: Command): void {
  const snapshot = program.command('snapshot').description('make, list and remove snapshots of volumes');

  clusterCommand(snapshot, 'create')
    .description('create a snapshot: the whole volume at one moment, read as VOLUME@NAME')
    .argument('<snapshot>', 'VOLUME@NAME; the name as that of a volume', snapshotName)
    .option('--retain <time>', 'retain it: a duration such as 30d, or a date such as 2030-01-31', retention)
    .option('--json', 'print the snapshot as JSON')
    .run(async (client, call, wanted: SnapshotName, options: CreateOptions) => {
      const top = { volume: wanted.volume, path: '/' };
      const junctions = options.json ? [] : await attachedBelow(client, top, call);
      await client.useVolume(wanted.volume, call);
      const retain = options.retain === undefined ? {} : { retain: options.retain };
      const created = await client.command({ kind: 'snapshot-create', ...wanted, ...retain }, call);
      if (options.json) printJson(created.snapshot);
      else for (const junction of junctions) printLine(junctionLine(junction, 'in the snapshot'));
    });

  clusterCommand(snapshot, 'ls', 'list the snapshots of a volume, the oldest first')
    .argument('<volume>', 'name of the volume', volumeName)
    .option('--json', 'print the snapshots as JSON')
    .run(async (client, call, volume: string, options: { readonly json?: true }, command: Command) => {
      const { snapshots } = await client.query({ kind: 'snapshots', volume }, call);
      const names = snapshots.map(({ name }) => name);
      const abandoned = await abandonedOrNone(volume, names, call, command);
      if (options.json) {
        const marked = snapshots.map((one) =>
          abandoned.includes(one.name) ? { ...one, leftBehind: true } : one,
        );
        return printJson({ snapshots: marked });
      }
      const rows = snapshots.map(({ name, madeNs, retainUntilNs }) => [
        `${volume}@${name}`,
        `${formatTime(madeNs)} UTC`,
        retainUntilNs === undefined ? '' : `retained until ${formatTime(retainUntilNs)} UTC`,
        abandoned.includes(name) ? 'left behind by an aborted backup; the next backup removes it' : '',
      ]);
      printTable(rows);
    });

  clusterCommand(snapshot, 'retain', 'retain a snapshot: until then no client can remove it')
    .argument('<snapshot>', 'VOLUME@NAME', snapshotName)
    .option(...UNTIL, retentionDate)
    .option(...FOR, retentionTime)
    .option('--json', 'print the snapshot as JSON')
    .run(async (client, call, wanted: SnapshotName, options: RetentionOptions & { json?: true }) => {
      const retain = wantedRetention(options);
      if (retain === null) throw usageFailure('Give --until or --for');
      await client.useVolume(wanted.volume, call);
      const { snapshot: retained } = await client.command(
        { kind: 'snapshot-retain', ...wanted, retain },
        call,
      );
      if (options.json) printJson(retained);
      else printLine(dateOfNs(retained.retainUntilNs ?? '0'));
    });

  clusterCommand(snapshot, 'rm', 'remove a snapshot; data that only it shows is deleted in the background')
    .argument('<snapshot>', 'VOLUME@NAME', snapshotName)
    .option('-f, --force', 'succeed if it does not exist')
    .run((client, call, wanted: SnapshotName, options: { readonly force?: true }) =>
      remove(client, wanted, options.force === true, call),
    );

  clusterCommand(
    snapshot,
    'prune',
    'remove all snapshots of a volume but the latest ones, or those of certain periods',
  )
    .argument('<volume>', 'name of the volume', volumeName)
    .requiredOption(
      '--keep <rules>',
      'how many to keep: 24, or some of last=3,hourly=24,daily=7,weekly=4,monthly=12,yearly=2',
      keepRules,
    )
    .option('--prefix <text>', 'consider only snapshots whose names begin with this', '')
    .option('--dry-run', 'remove nothing; print what would be removed, and which rules keep the others')
    .option('--json', 'print what was removed as JSON')
    .run((client, call, volume: string, options: PruneOptions) => runPrune(client, volume, options, call));
}

interface PruneOptions {
  readonly keep: KeepRules;
  readonly prefix: string;
  readonly dryRun?: true;
  readonly json?: true;
}

/** @returns the snapshots of aborted backups; none if that cannot be determined: all snapshots are listed anyway */
async function abandonedOrNone(
  volume: string,
  names: readonly string[],
  call: CallOptions,
  command: Command,
): Promise<string[]> {
  const leases = leaseClientOf(command);
  try {
    return await abandonedSnapshots(leases, volume, names, call);
  } catch (error) {
    if (error instanceof ServiceError) return [];
    throw error;
  } finally {
    await leases.close();
  }
}

async function remove(
  client: ClusterClient,
  wanted: SnapshotName,
  force: boolean,
  call: CallOptions,
): Promise<void> {
  try {
    await client.useVolume(wanted.volume, call);
    await client.command({ kind: 'snapshot-remove', ...wanted }, call);
  } catch (error) {
    if (!force || !(error instanceof ServiceError) || error.code !== 'not-found') throw error;
  }
}

/** Removes the oldest first, so that an abort leaves the latest. */
async function runPrune(
  client: ClusterClient,
  volume: string,
  { keep, prefix, dryRun, json }: PruneOptions,
  call: CallOptions,
): Promise<void> {
  const { snapshots } = await client.query({ kind: 'snapshots', volume }, call);
  // Those of backups and mirrors end with these.
  const matching = snapshots.filter(({ name }) => name.startsWith(prefix) && !isNeededSnapshot(name));
  const kept = keptSnapshots(matching, keep);
  const old = matching.filter((one) => !kept.has(one));
  if (dryRun) {
    printPlan(volume, old, kept, json === true);
    return;
  }
  const removed: SnapshotInfo[] = [];
  const retained: SnapshotInfo[] = [];
  for (const one of old) {
    try {
      await remove(client, { volume, name: one.name }, true, call);
      removed.push(one);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'protected') throw error;
      retained.push(one);
    }
  }
  if (json) return printJson({ removed, retained });
  for (const { name } of removed) printLine(`removed ${volume}@${name}`);
  for (const { name, retainUntilNs = '0' } of retained)
    printLine(`kept ${volume}@${name}: retained until ${formatTime(retainUntilNs)} UTC`);
}

function printPlan(
  volume: string,
  old: readonly SnapshotInfo[],
  kept: ReadonlyMap<SnapshotInfo, readonly string[]>,
  json: boolean,
): void {
  if (json) {
    printJson({ toRemove: old, kept: [...kept].map(([one, keptBy]) => ({ ...one, keptBy })) });
    return;
  }
  for (const { name } of old) printLine(`would remove ${volume}@${name}`);
  for (const [{ name }, keptBy] of kept) printLine(`keeps ${volume}@${name}: ${keptBy.join(', ')}`);
}

function keepRules(text: string): KeepRules {
  const rules = parseRetention(text);
  if (rules !== null) return rules;
  throw new InvalidArgumentError(
    'It is a whole number from 0 to 4096, or rules such as hourly=24,daily=7,weekly=4,monthly=12.',
  );
}
