import { Command, InvalidArgumentError, Option } from 'commander';
import { ZONE_VARIABLE } from '../../base/environment.ts';
import { isZone, ZONE_FORM } from '../../wire/placement-class.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ClusterClient } from '../cluster/cluster-client.ts';
import { NamedLeaseClient } from '../lease/named-lease-client.ts';
import { serverUrls } from '../mounts/mount-options.ts';
import { CommandFailure, usageFailure } from '../terminal/failure.ts';
import { parseDurationMs, parseSize } from '../terminal/quantities.ts';
import { Access, type AccessFiles, accessFiles } from '../transport/access.ts';
import type { CallOptions } from '../transport/exchange.ts';

export const DEFAULT_SERVERS = 'http://127.0.0.1:7401,http://127.0.0.1:7402,http://127.0.0.1:7403';

class ClusterCommand extends Command {
  /** Whether `--zone` is the client's; else it is an option of the command with another meaning. */
  readonly takesZone: boolean;

  constructor(parent: Command, name: string, description: string, takesZone: boolean) {
    super(name);
    this.takesZone = takesZone;
    this.copyInheritedSettings(parent).description(description);
    parent.addCommand(this);
    for (const [flags, effect] of CLUSTER_OPTIONS) this.option(flags, effect);
    if (takesZone) this.option('--zone <zone>', ZONE_EFFECT, zone);
    this.option('--timeout <duration>', 'how long to try one operation (default: 30s)', duration);
  }

  run<Given extends readonly unknown[]>(
    action: (client: ClusterClient, call: AbortOptions, ...given: Given) => Promise<void>,
  ): this {
    return this.action((...all: readonly unknown[]) =>
      withClient(this, (client, call) => action(client, call, ...(all as unknown as Given))),
    );
  }
}

export function clusterCommand(
  parent: Command,
  name: string,
  description = '',
  { takesZone = true } = {},
): ClusterCommand {
  return new ClusterCommand(parent, name, description, takesZone);
}

const ZONE_EFFECT = `read from servers of this zone where they can answer (default: ${ZONE_VARIABLE}, else from any)`;

const CLUSTER_OPTIONS: readonly (readonly [flags: string, effect: string])[] = [
  [
    '--servers <urls>',
    'base URLs of the servers, with commas between them (default: LEASEHOLD_SERVERS, else ports 7401 to 7403 of this machine)',
  ],
  ['--ca <file>', 'trusted CA certificates (default: LEASEHOLD_CA, else those of the system)'],
  [
    '--token-file <file>',
    'file with the access token (default: LEASEHOLD_TOKEN_FILE, or the token in LEASEHOLD_TOKEN)',
  ],
  ['--client-cert <file>', 'client certificate, instead of a token (default: LEASEHOLD_CLIENT_CERT)'],
  ['--client-key <file>', 'its key (default: LEASEHOLD_CLIENT_KEY)'],
  [
    '--revoked <file>',
    'file of revoked server certificates (default: LEASEHOLD_REVOKED); "cert revoked --out" writes it',
  ],
];

export type AbortOptions = Required<Pick<CallOptions, 'signal'>>;

interface ClusterOptions extends AccessFiles {
  readonly servers?: string;
  readonly timeout?: number;
  readonly zone?: string;
}

/** @returns base URLs from --servers, else the environment, else the default */
export function serversOf(command: Command): string[] {
  const { servers } = command.optsWithGlobals<ClusterOptions>();
  const fromEnvironment = process.env.LEASEHOLD_SERVERS;
  const text =
    servers ?? (fromEnvironment === undefined || fromEnvironment === '' ? DEFAULT_SERVERS : fromEnvironment);
  const urls = serverUrls(text);
  if (urls.length === 0) throw usageFailure('Cannot reach a cluster: --servers names no server');
  return urls;
}

/** @returns the client's credentials, from the options, else from the environment */
export function accessOf(command: Command): Access {
  return new Access(accessFiles(accessOptions(command)));
}

export function accessOptions(command: Command): AccessFiles {
  const { ca, clientCert, clientKey, tokenFile, revoked } = command.optsWithGlobals<ClusterOptions>();
  return { ca, clientCert, clientKey, tokenFile, revoked };
}

/** @returns the client's zone, from --zone, else from the environment; null if it has none */
export function zoneOf(command: Command): string | null {
  const isGiven = command instanceof ClusterCommand && command.takesZone;
  const given = isGiven ? command.optsWithGlobals<ClusterOptions>().zone : undefined;
  const text = given ?? process.env[ZONE_VARIABLE] ?? '';
  if (text === '') return null;
  if (!isZone(text)) throw usageFailure(`Cannot use ${ZONE_VARIABLE} "${text}": a zone ${ZONE_FORM}`);
  return text;
}

export function leaseClientOf(
  command: Command,
  limits: { operationTimeoutMs?: number } = {},
): NamedLeaseClient {
  const [servers, access] = [serversOf(command), accessOf(command)];
  return new NamedLeaseClient({ world: systemWorld, servers, access, ...limits });
}

export function timeoutOf(command: Command): { readonly operationTimeoutMs?: number } {
  const { timeout } = command.optsWithGlobals<ClusterOptions>();
  return timeout === undefined ? {} : { operationTimeoutMs: timeout };
}

/**
 * Runs `action` with a client of the cluster. When the command succeeds, its changes of names survive a power failure
 * of all servers. SIGINT and SIGTERM abort `action`, so that it can clean up; the process then ends by that signal.
 * @param servers base URLs, if not those of the command's own options; the same for `access`
 */
export async function withClient(
  command: Command,
  action: (client: ClusterClient, options: Required<Pick<CallOptions, 'signal'>>) => Promise<void>,
  servers: readonly string[] = serversOf(command),
  access: Access = accessOf(command),
): Promise<void> {
  const limits = timeoutOf(command);
  const client = new ClusterClient({
    ...{ world: systemWorld, servers, access, ...limits },
    zone: zoneOf(command),
  });
  const controller = new AbortController();
  let received: NodeJS.Signals | null = null;
  const onSignal = (signal: NodeJS.Signals) => {
    received = signal;
    controller.abort(new CommandFailure(1, `Stopped by ${signal}`));
  };
  process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
  try {
    const call = { signal: controller.signal };
    try {
      await action(client, call);
    } catch (error) {
      // It has reported its work before it failed, and that work must be durable, too.
      if (error instanceof CommandFailure) await flushIfNeeded(client, call).catch(() => undefined);
      throw error;
    }
    await flushIfNeeded(client, call);
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    await client.close();
    if (received !== null) process.kill(process.pid, received);
  }
}

async function flushIfNeeded(client: ClusterClient, call: CallOptions): Promise<void> {
  if (client.hasUnflushedCommands) await client.flushCatalog(call);
}

export function durationOption(flags: string, description: string, defaultMs: number): Option {
  const shown = defaultMs % 1_000 === 0 ? `${defaultMs / 1_000}s` : `${defaultMs}ms`;
  return new Option(flags, description).argParser(duration).default(defaultMs, shown);
}

/** Parses an option's value. @throws InvalidArgumentError, which commander reports as wrong usage */
export function duration(text: string): number {
  const ms = parseDurationMs(text);
  if (ms === null || ms <= 0) throw new InvalidArgumentError('A duration is written like 5s or 250ms.');
  return ms;
}

export function zone(text: string): string {
  if (isZone(text)) return text;
  throw new InvalidArgumentError(`A zone ${ZONE_FORM}.`);
}

export function size(text: string): number {
  const bytes = parseSize(text);
  if (bytes === null) throw new InvalidArgumentError('A size is written like 4096, 128KiB or 1MiB.');
  return bytes;
}

export function wholeNumber(low: number, high: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= low && value <= high)) {
      throw new InvalidArgumentError(`It must be a whole number from ${low} to ${high}.`);
    }
    return value;
  };
}
