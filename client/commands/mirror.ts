import { hostname } from 'node:os';
import { type Command, InvalidArgumentError } from 'commander';
import { ERRORS, ServiceError } from '../../base/errors.ts';
import { isVolumeName } from '../../wire/access.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ClusterClient } from '../cluster/cluster-client.ts';
import type { HeldLease } from '../lease/held-lease.ts';
import { NamedLeaseClient } from '../lease/named-lease-client.ts';
import { MirrorEnd } from '../mirror/mirror-end.ts';
import { mirrorMetrics, writeMetrics } from '../mirror/mirror-metrics.ts';
import { MirrorNames, sourceLease, targetLease } from '../mirror/mirror-names.ts';
import {
  behindMs,
  emptyState,
  isPassing,
  Mirror,
  type MirrorState,
  type MirrorStatus,
  mirrorStatus,
  promote,
} from '../mirror/volume-mirror.ts';
import { serverUrls } from '../mounts/mount-options.ts';
import { CommandFailure, usageFailure } from '../terminal/failure.ts';
import { printJson, printLine } from '../terminal/output.ts';
import { formatBytes, formatDuration } from '../terminal/quantities.ts';
import { Access, accessFiles } from '../transport/access.ts';
import type { CallOptions } from '../transport/exchange.ts';
import {
  type AbortOptions,
  accessOf,
  accessOptions,
  clusterCommand,
  durationOption,
  leaseClientOf,
  timeoutOf,
} from './cluster-command.ts';
import { volumeName } from './volume.ts';

const EVERY_MS = 30_000;
/** A mirror that was killed is replaced after this time. */
const TTL_MS = 10_000;
const MIRROR_NAME = /^[a-z0-9]{1,20}$/;

interface MirrorOptions {
  readonly to?: Target;
  readonly name: string;
  readonly every: number;
  readonly once?: true;
  readonly replace?: true;
  readonly status?: true;
  readonly json?: true;
  readonly metricsFile?: string;
  readonly toTokenFile?: string;
  readonly toCa?: string;
}

interface Target {
  readonly servers: readonly string[];
  readonly volume: string | null;
}

export function addMirrorCommand(program: Command): void {
  const mirror = clusterCommand(
    program,
    'mirror',
    'keep a copy of a volume in another cluster: always one complete snapshot, renewed until the command is stopped',
  )
    .argument('<volume>', 'volume to copy', volumeName)
    .option('--to <servers>', 'servers of the other cluster: URL,URL[/VOLUME]; the volume must exist', target)
    .option('--name <name>', 'name of the mirror, in the names of its snapshots', mirrorName, 'main')
    .addOption(
      durationOption('--every <duration>', 'time from the start of a cycle to that of the next', EVERY_MS),
    )
    .option('--once', 'end after one complete copy')
    .option('--replace', 'replace what is in a target that has contents of its own; a snapshot keeps them')
    .option('--status', 'do not copy; show how far the copy is behind')
    .option('--metrics-file <file>', 'file with metrics for the textfile collector of Prometheus')
    .option('--to-token-file <file>', 'token for the other cluster (default: as for this one)')
    .option('--to-ca <file>', 'trusted CA certificates for the other cluster (default: as for this one)')
    .option('--json', 'with --status: print it as JSON');
  mirror.run((client, call, volume: string, options: MirrorOptions) =>
    runMirror(mirror, client, call, volume, options),
  );

  const promotion = clusterCommand(
    mirror,
    'promote',
    'make the copy of a mirror writable, as of its latest complete snapshot; for the cluster of the copy',
  )
    .argument('<volume>', 'volume of the copy', volumeName)
    .option('--name <name>', 'name of the mirror', mirrorName, 'main');
  promotion.run(async (client, call, volume: string, options: { readonly name: string }) => {
    await client.useVolume(volume, call);
    const leases = leaseClientOf(promotion, timeoutOf(promotion));
    try {
      await underLease(leases, targetLease(volume), call, async (limited, lease) => {
        const end = new MirrorEnd(client, volume, new MirrorNames(options.name));
        const { name, madeNs } = await promote(end, limited, () => lease.assertHeld());
        const age = formatDuration(behindMs(client.world.wallMs(), madeNs));
        printLine(`${volume} is writable, as of ${name}: its copy was complete ${age} ago`);
      });
    } finally {
      await leases.close();
    }
  });
}

async function runMirror(
  command: Command,
  client: ClusterClient,
  call: AbortOptions,
  volume: string,
  options: MirrorOptions,
): Promise<void> {
  if (options.to === undefined)
    throw usageFailure(
      'Cannot mirror: --to is missing',
      'name the servers of the other cluster: --to URL,URL/VOLUME',
    );
  const { servers, volume: targetVolume } = options.to;
  const access = targetAccess(command, options);
  const limits = timeoutOf(command);
  const parts = { world: systemWorld, servers, access, ...limits };
  const other = new ClusterClient(parts);
  const [leases, otherLeases] = [leaseClientOf(command, limits), new NamedLeaseClient(parts)];
  const names = new MirrorNames(options.name);
  const source = new MirrorEnd(client, volume, names);
  const target = new MirrorEnd(other, targetVolume ?? volume, names);
  try {
    await client.useVolume(volume, call);
    await other.useVolume(target.volume, call).catch(explainAccess);
    if (options.status) return await showStatus(source, target, otherLeases, options, call);
    const isOne = (await source.root(call)) === (await target.root(call)) && volume === target.volume;
    if (isOne && servers.some((url) => client.servers.includes(url)))
      throw usageFailure(
        `Cannot mirror volume "${volume}" to itself`,
        'name servers of another cluster with --to',
      );
    await mirrorOn(source, target, { leases, otherLeases }, options, call);
  } finally {
    await Promise.all([other.close(), leases.close(), otherLeases.close()]);
  }
}

/** @throws what failed; for missing access to the other cluster, with the options that give it */
function explainAccess(error: unknown): never {
  if (!(error instanceof ServiceError) || error.code !== 'unauthorized') throw error;
  throw new CommandFailure(
    ERRORS[error.code].exit,
    error.message,
    'give a token of the other cluster with --to-token-file, and the CA certificate of its servers with --to-ca',
    { cause: error },
  );
}

interface Leases {
  readonly leases: NamedLeaseClient;
  readonly otherLeases: NamedLeaseClient;
}

async function mirrorOn(
  source: MirrorEnd,
  target: MirrorEnd,
  { leases, otherLeases }: Leases,
  options: MirrorOptions,
  call: AbortOptions,
): Promise<void> {
  const state = emptyState();
  const names = { source: source.volume, target: target.volume, name: options.name };
  const report = (text: string): void => void process.stderr.write(`leasehold: ${text}\n`);
  const changed = async (): Promise<void> => {
    if (options.metricsFile !== undefined)
      await writeMetrics(options.metricsFile, mirrorMetrics(names, state));
  };
  const mirror = new Mirror({ source, target, replace: options.replace === true, state, report, changed });
  for (;;) {
    try {
      await underLease(leases, sourceLease(source.volume, options.name), call, (outer, own) =>
        underLease(otherLeases, targetLease(target.volume), outer, async ({ signal }, other) => {
          for (;;) {
            const startedMs = systemWorld.nowMs();
            await mirror.cycle({ signal }, () => {
              own.assertHeld();
              other.assertHeld();
            });
            reportCycle(state, names, startedMs);
            if (options.once) return;
            await systemWorld.sleep(Math.max(0, startedMs + options.every - systemWorld.nowMs()), { signal });
          }
        }),
      );
      return;
    } catch (error) {
      call.signal.throwIfAborted();
      // A sleep that was aborted fails with the reason of its signal as the cause.
      const reason = error instanceof Error && error.name === 'AbortError' ? error.cause : error;
      if (!isPassing(reason) || options.once) throw error;
      state.failures += 1;
      await changed();
      report(`${reason.message}; the next attempt starts from the latest complete copy`);
      await systemWorld.sleep(Math.min(options.every, TTL_MS), { signal: call.signal });
    }
  }
}

function reportCycle(
  { copied }: MirrorState,
  names: { readonly source: string; readonly target: string },
  startedMs: number,
): void {
  if (copied === null) return;
  const took = formatDuration(systemWorld.nowMs() - startedMs);
  printLine(`${names.source} copied to ${names.target}: snapshot ${copied.number}, in ${took}`);
}

/** Runs `work` under a lease, which another process may hold for a while. Its signal is aborted once it is lost. */
async function underLease(
  leases: NamedLeaseClient,
  name: string,
  call: AbortOptions,
  work: (call: AbortOptions, lease: Pick<HeldLease, 'assertHeld'>) => Promise<void>,
): Promise<void> {
  const owner = `leasehold mirror@${hostname()}, process ${process.pid}`;
  const lease = await leases.acquire(name, { ttlMs: TTL_MS, owner, signal: call.signal });
  try {
    await work({ signal: AbortSignal.any([call.signal, lease.lost]) }, lease);
  } finally {
    await lease.release().catch((error: unknown) => {
      // It ends by itself; what matters is why the work has ended.
      if (!(error instanceof ServiceError)) throw error;
    });
  }
}

async function showStatus(
  source: MirrorEnd,
  target: MirrorEnd,
  otherLeases: NamedLeaseClient,
  { json }: MirrorOptions,
  call: CallOptions,
): Promise<void> {
  const status = await mirrorStatus(source, target, call);
  const { held } = await otherLeases.show(targetLease(target.volume), call);
  if (json) {
    const { behindMs: behind, ...others } = status;
    printJson({ ...others, behindSeconds: behind === null ? null : behind / 1_000, running: held });
  } else for (const line of statusLines(status, held)) printLine(line);
}

function statusLines(
  { copied, behindMs: behind, pendingBytes, isTarget }: MirrorStatus,
  running: boolean,
): string[] {
  const copy =
    copied === null || behind === null
      ? 'no complete copy yet'
      : `snapshot ${copied}, ${formatDuration(behind)} behind`;
  const role = isTarget
    ? ''
    : '; the target is not marked as the copy: it was promoted, or never mirrored to';
  return [
    `Copy: ${copy}${role}`,
    `Pending: ${formatBytes(pendingBytes)} of the snapshot that is being copied`,
    `Mirror: ${running ? 'running' : 'not running'}`,
  ];
}

function targetAccess(command: Command, { toTokenFile, toCa }: MirrorOptions): Access {
  if (toTokenFile === undefined && toCa === undefined) return accessOf(command);
  const { ca, clientCert, clientKey, tokenFile, revoked } = accessOptions(command);
  const token = toTokenFile ?? tokenFile;
  // A token of the other cluster takes the place of the certificate, which is of this one.
  const certificate = toTokenFile === undefined ? { clientCert, clientKey } : {};
  return new Access(accessFiles({ ca: toCa ?? ca, ...certificate, tokenFile: token, revoked }));
}

function target(text: string): Target {
  const [, list = text, volume] = /^(.*[^/])\/([^/:]+)$/.exec(text) ?? [];
  if (volume !== undefined && !isVolumeName(volume))
    throw new InvalidArgumentError('It is URL,URL or URL,URL/VOLUME, such as http://10.1.0.1:7401/main.');
  const servers = serverUrls(list);
  if (servers.length === 0) throw new InvalidArgumentError('It names no server.');
  return { servers, volume: volume ?? null };
}

function mirrorName(text: string): string {
  if (MIRROR_NAME.test(text)) return text;
  throw new InvalidArgumentError('A name of a mirror is 1 to 20 of a-z and 0-9.');
}
