import { type Command, InvalidArgumentError } from 'commander';
import { ServiceError } from '../../base/errors.ts';
import type { QueryResults } from '../../wire/catalog-api.ts';
import type { ClusterStatus, StopCheck } from '../../wire/http-api.ts';
import { classFits, classText, isRestricted, type PlacementClass } from '../../wire/placement-class.ts';
import { MAINTENANCE_MS_MAX } from '../../wire/request-limits.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { EXIT_DEGRADED, EXIT_PRECONDITION, notFoundFailure, usageFailure } from '../terminal/failure.ts';
import { printJson, printLine, printTable } from '../terminal/output.ts';
import { formatBytes, formatDuration, formatTime } from '../terminal/quantities.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { clusterCommand, duration, zone } from './cluster-command.ts';
import { labelsOption } from './placement-options.ts';

const POLL_MS = 500;
/** The primary of a catalog looks every five seconds whether a draining server is empty. */
const CONFIRMATION_MS_MAX = 15_000;
const STOP_POLL_MS = 1_000;
const STUCK_MS = 15_000;

type ListedServer = QueryResults['servers']['servers'][number];
type Call = CallOptions & { readonly signal: AbortSignal };

/** For the help only: the launcher runs the server itself, since `client/` does not import `server/`. */
export function addServerCommand(program: Command): void {
  const server = program
    .command('server')
    .description(
      'run one server of a cluster ("leasehold server --help" shows its options); list and change servers',
    )
    .allowUnknownOption()
    .allowExcessArguments()
    .action(() => {
      throw usageFailure('Cannot run a server from here', 'start it with "npx leasehold server …"');
    });

  clusterCommand(server, 'ls', 'list the servers with address, replicas and free space')
    .option('--all', 'include removed servers')
    .option('--json', 'print the servers as JSON')
    .run(async (client, call, options: { readonly all?: true; readonly json?: true }) => {
      const { servers, unavailable = [] } = await client.query({ kind: 'servers', counts: true }, call);
      const status = await client.status(call);
      const shown = servers.filter(({ state, replicas }) => options.all || state !== 'out' || replicas !== 0);
      if (unavailable.length > 0) process.exitCode = EXIT_DEGRADED;
      if (options.json) return printJson({ servers: shown, moving: status.moving ?? null, unavailable });
      printTable(
        shown.map((one) => rowOf(one, status)),
        HEADER,
      );
      const { moving } = status;
      if (moving !== undefined && moving.done < moving.total) printLine(`Moving: ${describeMoving(moving)}`);
      for (const name of unavailable)
        printLine(`Files of volume ${name} are not counted: its catalog does not answer`);
    });

  clusterCommand(server, 'drain')
    .description('move everything that a server holds to others; waits until nothing is left')
    .argument('<id>', 'id of the server')
    .option('--no-wait', 'begin it, and do not wait')
    .option('--json', 'print the server as JSON at the end')
    .run(async (client, call, id: string, options: { readonly wait: boolean; readonly json?: true }) => {
      await client.command({ kind: 'server-state', id, state: 'draining' }, call);
      const drained = options.wait
        ? await waitUntilEmpty(client, id, call, true)
        : (await findServer(client, id, call)).server;
      if (options.json) printJson(drained);
      else if (options.wait) printLine(`Server ${id} is drained: it can be stopped or removed`);
      else printLine(`Server ${id} is being drained: it holds ${drained.replicas ?? 0} files`);
    });

  clusterCommand(server, 'undrain', 'let a server that was being drained take replicas again')
    .argument('<id>', 'id of the server')
    .run(async (client, call, id: string, _options: unknown) => {
      await client.command({ kind: 'server-state', id, state: 'in' }, call);
      printLine(`Server ${id} takes replicas again`);
    });

  clusterCommand(server, 'maintenance')
    .description(
      'keep the replicas of a server for a time, also if it is away for longer than --replace-after',
    )
    .argument('<id>', 'id of the server')
    .option('--for <duration>', 'from now on, such as 2h; at most 7d', maintenanceDuration)
    .option('--end', 'end it')
    .run(async (client, call, id: string, options: MaintenanceOptions) => {
      const command = { kind: 'server-maintenance', id, forMs: maintenanceMs(options) } as const;
      const { maintenanceNs } = (await client.command(command, call)).server;
      printLine(
        maintenanceNs === undefined
          ? `Server ${id} is not in maintenance`
          : `Server ${id} is in maintenance until ${formatTime(maintenanceNs)} UTC`,
      );
    });

  clusterCommand(server, 'ok-to-stop')
    .description('say whether stopping a server now makes anything unavailable, and what; exit code 4 if so')
    .argument('<id>', 'id of the server')
    .option('--wait <duration>', 'wait for this time until it can be stopped', duration)
    .option('--json', 'print the answer as JSON')
    .run(async (client, call, id: string, options: { readonly wait?: number; readonly json?: true }) => {
      const check = await stopCheck(client, id, call, options.wait ?? 0);
      if (options.json) printJson(check);
      else if (check.ok) printLine(`Server ${id} can be stopped`);
      else
        for (const line of [`Server ${id} is needed:`, ...check.reasons.map((one) => `  ${one}`)])
          printLine(line);
      if (!check.ok) process.exitCode = EXIT_PRECONDITION;
    });

  clusterCommand(server, 'add', '', { takesZone: false })
    .description('admit a server: before its first start without --join, or after it was removed')
    .argument('<id>', 'id of the server')
    .argument('<url>', 'its base URL, as the other servers reach it', baseUrl)
    .option('--zone <label>', 'its failure zone', zone)
    .run(async (client, call, id: string, url: string, options: { readonly zone?: string }) => {
      await client.command({ kind: 'server-add', id, url, ...options }, call);
      printLine(`Added server ${id} at ${url}`);
    });

  clusterCommand(server, 'remove')
    .description('remove a server that is drained, or that is lost')
    .argument('<id>', 'id of the server')
    .option(
      '--dead',
      'the server and its data are lost: other servers get new replicas; waits until they have them',
    )
    .run(async (client, call, id: string, options: { readonly dead?: true }) => {
      await removeServer(client, id, options.dead === true, call);
      if (options.dead) await waitUntilEmpty(client, id, call, false);
      printLine(`Server ${id} is removed`);
    });

  clusterCommand(server, 'zone', 'set the failure zone of a server; replicas go to different zones')
    .argument('<id>', 'id of the server')
    .argument('<label>', 'name of the zone; "-" for none', zone)
    .run(async (client, call, id: string, label: string, _options: unknown) => {
      await client.command({ kind: 'server-zone', id, zone: label === '-' ? '' : label }, call);
      printLine(label === '-' ? `Server ${id} has no zone` : `Server ${id} is in zone ${label}`);
    });

  clusterCommand(server, 'label')
    .description('replace the labels of a server, which volumes can require; without labels, remove them')
    .argument('<id>', 'id of the server')
    .argument('[labels...]', 'labels, such as ssd: 1 to 32 of a-z, 0-9 and hyphens')
    .run(async (client, call, id: string, given: string[], _options: unknown) => {
      const labels = given.flatMap(labelsOption);
      const { server: changed } = await client.command({ kind: 'server-label', id, labels }, call);
      printLine(
        changed.labels === undefined
          ? `Server ${id} has no labels`
          : `Server ${id} has the labels ${changed.labels.join(' and ')}`,
      );
    });
}

interface MaintenanceOptions {
  readonly for?: number;
  readonly end?: true;
}

function maintenanceMs(options: MaintenanceOptions): number | null {
  if ((options.for === undefined) === (options.end === undefined))
    throw usageFailure('Cannot change the maintenance', 'give either --for, with a duration, or --end');
  return options.for ?? null;
}

const HEADER = ['SERVER', 'URL', 'ZONE', 'LABELS', 'IS', 'REACHABLE', 'FILES', 'FREE', 'TOTAL'];

function rowOf(server: ListedServer, status: ClusterStatus): string[] {
  const reachable = status.servers.find(({ id }) => id === server.id)?.reachable === true;
  return [
    server.id,
    server.url,
    server.zone === '' ? '-' : server.zone,
    (server.labels ?? []).join(', ') || '-',
    [server.state, ...(isInMaintenance(server.id, status) ? ['in maintenance'] : [])].join(', '),
    reachable ? 'yes' : 'no',
    `${server.replicas ?? 0}`,
    server.totalBytes === 0 ? '-' : formatBytes(server.freeBytes),
    server.totalBytes === 0 ? '-' : formatBytes(server.totalBytes),
  ];
}

function isInMaintenance(id: string, { servers }: ClusterStatus): boolean {
  return servers.find((server) => server.id === id)?.maintenanceUntil !== undefined;
}

/** @param moving of a server of this release or an earlier one, which reports only files */
export function describeMoving(moving: NonNullable<ClusterStatus['moving']>): string {
  const { total, done, failed, current, currentCount = current.length } = moving;
  const { doneBytes, filesPerS = 0, bytesPerS = 0, etaS = null } = moving;
  return [
    `${done} of ${total} files${doneBytes === undefined ? '' : ` (${formatBytes(doneBytes)})`}`,
    `${currentCount} at this moment`,
    ...(filesPerS > 0 ? [`${filesPerS} files/s`, `${formatBytes(bytesPerS)}/s`] : []),
    ...(etaS === null ? [] : [`about ${formatDuration(etaS * 1_000)} left`]),
    ...(failed === 0 ? [] : [`${failed} attempts failed and are repeated`]),
  ].join(', ');
}

/** @returns the first answer that allows the stop, or the last one in `waitMs` */
async function stopCheck(client: ClusterClient, id: string, call: Call, waitMs: number): Promise<StopCheck> {
  const deadlineMs = systemWorld.nowMs() + waitMs;
  for (;;) {
    const check = await client.admin.okToStop(id, call);
    const remainingMs = deadlineMs - systemWorld.nowMs();
    if (check.ok || remainingMs <= 0) return check;
    await pause(Math.min(STOP_POLL_MS, remainingMs), call);
  }
}

async function pause(ms: number, { signal }: Call): Promise<void> {
  await systemWorld.sleep(ms, { signal }).catch((error: unknown) => {
    throw signal.aborted ? signal.reason : error;
  });
}

/** Retries for a time while a drained server is refused: the catalogs of volumes confirm a little later that it is. */
async function removeServer(client: ClusterClient, id: string, dead: boolean, call: Call): Promise<void> {
  const deadlineMs = systemWorld.nowMs() + CONFIRMATION_MS_MAX;
  for (;;) {
    try {
      await client.command({ kind: 'server-remove', id, dead }, call);
      return;
    } catch (error) {
      const isRefused = error instanceof ServiceError && error.code === 'precondition-failed';
      if (!isRefused || systemWorld.nowMs() >= deadlineMs || !(await isDrained(client, id, call)))
        throw error;
    }
    await pause(POLL_MS, call);
  }
}

async function isDrained(client: ClusterClient, id: string, call: Call): Promise<boolean> {
  const { server, unavailable } = await findServer(client, id, call);
  return server.state === 'draining' && whatIsLeft(server, await client.status(call), unavailable) === null;
}

/** Polls until a server holds nothing, and shows the progress. @param votes whether a vote on named leases counts */
async function waitUntilEmpty(
  client: ClusterClient,
  id: string,
  call: Call,
  votes: boolean,
): Promise<ListedServer> {
  let fewest = Number.POSITIVE_INFINITY;
  let movedMs = systemWorld.nowMs();
  let explained = false;
  for (;;) {
    const { server, unavailable } = await findServer(client, id, call);
    const status = await client.status(call);
    const { moving } = status;
    const replicasLeft = server.replicas ?? 0;
    const isLastVote = async (): Promise<boolean> => votes && (await isVoter(client, id, call));
    const what =
      whatIsLeft(server, status, unavailable) ??
      ((await isLastVote()) ? 'only a vote on named leases remains' : null);
    if (what === null) {
      clearProgress();
      return server;
    }
    if (replicasLeft < fewest) {
      fewest = replicasLeft;
      movedMs = systemWorld.nowMs();
    }
    showProgress(`${what} on ${id}${moving === undefined ? '' : `; moved ${describeMoving(moving)}`}`);
    if (!explained && systemWorld.nowMs() - movedMs > STUCK_MS) {
      explained = true;
      clearProgress();
      process.stderr.write(
        `leasehold: ${what} on ${id}, without progress for a while: ${await whyStuck(client, id, call)}\n`,
      );
    }
    await pause(POLL_MS, call);
  }
}

/**
 * @param unavailable volumes whose catalogs do not say how many files they have there
 * @returns why the server is not empty, or null if it is
 */
export function whatIsLeft(
  { id, replicas = 0 }: ListedServer,
  { catalog, catalogs = [] }: ClusterStatus,
  unavailable: readonly string[],
): string | null {
  if (replicas > 0) return `${replicas} files left`;
  if (unavailable.length > 0)
    return `unknown files of ${unavailable.join(', ')}, whose catalogs do not answer,`;
  const names = catalogs.filter(({ members }) => members.includes(id)).map(({ name }) => name);
  if (names.length > 0) return `only the catalogs of ${names.join(', ')} remain`;
  return catalog.members.includes(id) ? 'only the catalog remains' : null;
}

async function isVoter(client: ClusterClient, id: string, call: Call): Promise<boolean> {
  try {
    const { view } = await client.query({ kind: 'voters' }, call);
    return [view?.members, view?.joint].some((set) => set?.servers.includes(id));
  } catch (error) {
    // Servers of an earlier release do not know the query: their voters never change.
    if (error instanceof ServiceError && error.code === 'bad-request') return false;
    throw error;
  }
}

async function whyStuck(client: ClusterClient, id: string, call: Call): Promise<string> {
  const { servers } = await client.query({ kind: 'servers', counts: false }, call);
  const others = servers.filter((server) => server.state === 'in' && server.id !== id);
  const lacking = (await placementClasses(client, call)).find(
    (one) => others.filter((server) => classFits(one, server)).length < one.replicas,
  );
  if (lacking === undefined) return '"leasehold status" shows unreachable servers and failed attempts';
  const { what, replicas } = lacking;
  if (isRestricted(lacking))
    return `there are too few other servers ${classText(lacking)} for ${what}. Label or add a server`;
  return `there are ${others.length} other servers for ${what} with ${replicas} replicas. Add a server, or lower "volume set NAME --replicas"`;
}

interface NamedClass extends PlacementClass {
  readonly what: string;
  readonly replicas: number;
}

async function placementClasses(client: ClusterClient, call: Call): Promise<readonly NamedClass[]> {
  const { volumes } = await client.query({ kind: 'volumes' }, call);
  const { classes } = await client
    .query({ kind: 'placement-classes', paths: true }, call)
    .catch((error: unknown) => {
      // Servers of an earlier release do not know the query: no directory has a class.
      if (error instanceof ServiceError && error.code === 'bad-request') return { classes: [] };
      throw error;
    });
  const counts = new Map(volumes.map(({ name, replicas }) => [name, replicas]));
  return [
    ...volumes.map((volume) => ({ ...volume, what: `the volume ${volume.name}` })),
    ...classes.map((one) => ({
      ...one,
      what: `the directory ${one.volume}:${one.path ?? ''}`,
      replicas: one.replicas ?? counts.get(one.volume) ?? 0,
    })),
  ];
}

async function findServer(
  client: ClusterClient,
  id: string,
  call: Call,
): Promise<{ readonly server: ListedServer; readonly unavailable: readonly string[] }> {
  const { servers, unavailable = [] } = await client.query({ kind: 'servers', counts: true }, call);
  const server = servers.find((one) => one.id === id);
  if (server === undefined) throw notFoundFailure(`There is no server ${id}`);
  return { server, unavailable };
}

function showProgress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}

function clearProgress(): void {
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
}

function baseUrl(text: string): string {
  const url = URL.parse(/^[a-z]+:\/\//i.test(text) ? text : `http://${text}`);
  if (url === null || !/^https?:$/.test(url.protocol) || url.port === '') {
    throw new InvalidArgumentError('It is a base URL with a port, such as https://10.0.0.4:7401.');
  }
  return url.origin;
}

function maintenanceDuration(text: string): number {
  const ms = Math.round(duration(text));
  if (ms < 1 || ms > MAINTENANCE_MS_MAX) throw new InvalidArgumentError('It is a duration of at most 7d.');
  return ms;
}
