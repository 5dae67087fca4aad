import type { Command } from 'commander';
import { ServiceError } from '../../base/errors.ts';
import type { ClusterStatus, FileInfo, ServerStatus } from '../../wire/http-api.ts';
import type { LockList } from '../../wire/lock-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { parseRemotePath } from '../cluster/remote-path.ts';
import { EXIT_DEGRADED, EXIT_TEMPORARY } from '../terminal/failure.ts';
import { printable, printJson, printLine, printTable } from '../terminal/output.ts';
import { formatBytes, formatDuration } from '../terminal/quantities.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { clusterCommand, timeoutOf } from './cluster-command.ts';
import { describeMoving } from './server.ts';

const STATUS_TIMEOUT_MS = 10_000;
const LOCKS_TIMEOUT_MS = 3_000;

export function addStateCommands(program: Command): void {
  clusterCommand(program, 'info', 'show the view, primary, lease and replicas of a file')
    .argument('<path>', 'VOLUME:/path')
    .option('--json', 'print it as JSON')
    .run(async (client, call, path: string, options: { json?: true }) => {
      const place = parseRemotePath(path);
      const info = await client.info(place.volume, place.path, call);
      const locks = info.primary === null ? null : await locksOrNull(client, info.file, call);
      if (options.json) printJson({ ...info, locks });
      else printInfo(info, locks);
    });

  clusterCommand(
    program,
    'status',
    'show the servers and current problems; exit code 7 if degraded, 5 if down',
  )
    .option('--json', 'print it as JSON')
    .run(async (client, call, options: { json?: true }, command: Command) => {
      const { operationTimeoutMs: timeoutMs = STATUS_TIMEOUT_MS } = timeoutOf(command);
      const status = await statusOrDown(client, { timeoutMs, failFast: true, ...call });
      if (options.json) printJson(status);
      else printStatus(status);
      if (status.verdict === 'degraded') process.exitCode = EXIT_DEGRADED;
      if (status.verdict === 'down') process.exitCode = EXIT_TEMPORARY;
    });
}

type StatusOrDown =
  | ClusterStatus
  | {
      readonly verdict: 'down';
      readonly reasons: readonly string[];
      readonly servers: readonly DownServer[];
    };

type DownServer = Pick<ServerStatus, 'url' | 'reachable' | 'state'>;

/** @returns the cluster's status; `down`, with the reason, if no server answers */
async function statusOrDown(client: ClusterClient, call: CallOptions): Promise<StatusOrDown> {
  try {
    return await client.status(call);
  } catch (error) {
    if (!(error instanceof ServiceError) || error.remedy !== 'retry') throw error;
    return {
      verdict: 'down',
      reasons: [error.message],
      servers: client.servers.map((url) => ({ url, reachable: false, state: 'unreachable' })),
    };
  }
}

function printStatus(status: StatusOrDown): void {
  printLine(`The cluster is ${status.verdict}`);
  for (const reason of status.reasons) printLine(`  ${reason}`);
  if (!('catalog' in status)) return;
  const areLabelled = status.servers.some(({ labels }) => labels !== undefined);
  const rows = status.servers.map((server) => [
    server.id,
    server.url,
    describeState(server),
    server.reachable ? `${server.primaries}` : '-',
    server.reachable ? `${server.backups}` : '-',
    server.namedLeases === undefined ? '-' : `${server.namedLeases.known}`,
    server.reachable ? formatBytes(server.freeBytes) : '-',
    server.reachable ? `${server.pid}` : '-',
    server.reachable ? formatDuration(server.uptimeMs) : '-',
    ...(areLabelled ? [(server.labels ?? []).join(', ') || '-'] : []),
  ]);
  printLine('');
  const header = ['SERVER', 'URL', 'STATE', 'PRIMARY OF', 'BACKUP OF', 'LEASES', 'FREE', 'PID', 'UP'];
  if (areLabelled) header.push('LABELS');
  printTable(rows, header);
  const { primary, epoch, members, replicasWanted = members.length } = status.catalog;
  const wanted = members.length < replicasWanted ? ` (${replicasWanted} wanted)` : '';
  printLine('');
  printLine(`Catalog: primary ${primary ?? 'none'}, epoch ${epoch}, on ${members.join(', ')}${wanted}`);
  if (status.moving !== undefined && status.moving.done < status.moving.total) {
    printLine(`Moving: ${describeMoving(status.moving)}`);
  }
  if (status.lag.files > 0) {
    const { files, versions, bytes } = status.lag;
    printLine(
      `Lagging replicas: ${files}, by ${versions} changes; ${formatBytes(bytes)} are missing entirely`,
    );
  }
  if (status.underReplicated.length > 0) {
    printLine(`Files in use with too few current replicas, by number: ${status.underReplicated.join(', ')}`);
  }
}

function describeState(server: ServerStatus): string {
  const state =
    server.state === 'recovering' ? `recovering, ${formatDuration(server.recoveringMs)} left` : server.state;
  return server.maintenanceUntil === undefined ? state : `${state}, in maintenance`;
}

/** @returns null if the primary does not answer: it has just changed, or its release knows no locks */
async function locksOrNull(client: ClusterClient, file: number, call: CallOptions): Promise<LockList | null> {
  try {
    return await client.admin.locks(file, { ...call, timeoutMs: LOCKS_TIMEOUT_MS });
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    return null;
  }
}

function describeLocks({ locks, waiting, graceMs }: LockList): string {
  const count = `${locks.length} of ${new Set(locks.map(({ client }) => client)).size} clients, ${waiting} waiting`;
  return graceMs > 0
    ? `${count}; clients may reclaim locks from the new primary for ${formatDuration(graceMs)} more`
    : count;
}

function printInfo(info: FileInfo, locks: LockList | null): void {
  const { lease } = info;
  const leaseText =
    lease.holder === null ? 'none' : `${lease.holder}, ${formatDuration(lease.remainingMs)} left`;
  const rows = [
    ['path', `${info.volume}:${printable(info.path)}`],
    ['file', `${info.file}`],
    ['size', `${info.size} (${formatBytes(info.size)})`],
    ['etag', info.etag],
    ['view', `${info.view.number}: ${info.view.members.join(', ')}`],
    ['primary', info.primary ?? 'none'],
    ['epoch', `${info.epoch}`],
    ['lease', leaseText],
    ...(locks === null ? [] : [['locks', describeLocks(locks)]]),
  ];
  printTable(rows);
  printLine('');
  const replicas = info.replicas.map((replica) => [
    replica.server,
    replica.role,
    replica.state,
    `${replica.version}`,
    replica.reachable ? 'yes' : 'no',
  ]);
  const header = ['REPLICA', 'ROLE', 'STATE', 'VERSION', 'REACHABLE'];
  printTable(replicas, header);
}
