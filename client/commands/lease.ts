import { hostname, userInfo } from 'node:os';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { ServiceError } from '../../base/errors.ts';
import { isLeaseKey, isLeaseName, LEASE_KEY_FORM, LEASE_NAME_FORM } from '../../wire/named-lease.ts';
import type { LeaseEvent, LeaseQueryAnswer } from '../../wire/named-lease-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { HeldLease } from '../lease/held-lease.ts';
import type { NamedLeaseClient } from '../lease/named-lease-client.ts';
import { exitCodeOf, SupervisedCommand, stopMarginMs } from '../lease/supervised-command.ts';
import { CommandFailure, describeFailure, generalFailure } from '../terminal/failure.ts';
import { printable, printJson, printLine, printTable } from '../terminal/output.ts';
import { formatDuration } from '../terminal/quantities.ts';
import { clusterCommand, duration, leaseClientOf, timeoutOf } from './cluster-command.ts';

/** Exit codes about the lease: above those of the catalogue, below those that a shell uses. */
export const EXIT_LEASE_TAKEN = 120;
export const EXIT_LEASE_LOST = 121;

const TTL_MS = 10_000;
/** With a shorter lease, a process that is delayed for a moment loses it. */
const TTL_MS_MIN = 1_000;
/** Kill delay of a command whose lease may already have another holder. */
const LOST_GRACE_MS = 500;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

interface AcquireOptions {
  readonly ttl: number;
  readonly owner?: string;
  readonly wait: boolean;
  readonly key: Readonly<Record<string, string>>;
}

export function addLeaseCommands(program: Command): void {
  const lease = program.command('lease').description('named leases for your programs');

  clusterCommand(lease, 'acquire')
    .description('run a command while holding a lease; it is stopped when the lease is lost')
    .argument('<name>', 'name of the lease', leaseName)
    .argument('<command...>', 'the command and its arguments, after --')
    .addOption(
      new Option('--ttl <duration>', 'how long the lease lasts without a refresh')
        .argParser(ttl)
        .default(TTL_MS, formatDuration(TTL_MS)),
    )
    .option('--owner <text>', 'who holds it, for others to read (default: USER@HOST, process id)')
    .option('--wait', 'wait while another holds it, as it does by default', true)
    .option('--no-wait', `end with exit code ${EXIT_LEASE_TAKEN} if another holds it`)
    .addOption(
      new Option('--key <key=value>', 'attach a value to the lease; may be repeated')
        .argParser(keyValue)
        .default({}, 'none'),
    )
    .action(acquire);

  clusterCommand(lease, 'show', 'show the holder of a lease, as a majority of its servers knows it')
    // Deprecated.
    .alias('look')
    .argument('<name>', 'name of the lease', leaseName)
    .option('--json', 'print it as JSON')
    .action(async (name: string, options: { readonly json?: true }, command: Command) => {
      await withLeases(command, async (client, signal) => {
        const answer = await client.show(name, { signal });
        if (options.json) printJson(answer);
        else printLease(answer);
      });
    });

  clusterCommand(lease, 'ls')
    .alias('list')
    .description('list the held leases that servers know of; may be outdated')
    .argument('[prefix]', 'only names that begin with this', '')
    .option('--json', 'print them as JSON')
    .action(async (prefix: string, options: { readonly json?: true }, command: Command) => {
      await withLeases(command, async (client, signal) => {
        const list = await client.list(prefix, { signal });
        if (options.json) return printJson(list);
        const rows = list.leases.map(({ name, owner, token, remainingMs }) => [
          name,
          `${token}`,
          formatDuration(remainingMs),
          printable(owner),
        ]);
        printTable(rows, ['NAME', 'TOKEN', 'LEFT', 'OWNER']);
        if (list.more) process.stderr.write('leasehold: There are more; give a longer prefix\n');
        if (list.unreachable.length > 0) {
          process.stderr.write(`leasehold: These servers did not answer: ${list.unreachable.join(', ')}\n`);
        }
      });
    });

  clusterCommand(lease, 'watch', 'follow the events of a lease, until Ctrl-C')
    .argument('<name>', 'name of the lease', leaseName)
    .option('--json', 'print each event as a line of JSON')
    .action(async (name: string, options: { readonly json?: true }, command: Command) => {
      await withLeases(command, async (client, signal) => {
        for await (const event of client.watch(name, { signal })) {
          if (options.json) printJson(event);
          else printLine(describeEvent(event));
        }
      });
    });
}

async function acquire(
  name: string,
  argv: readonly string[],
  options: AcquireOptions,
  command: Command,
): Promise<void> {
  const owner = options.owner ?? `${userInfo().username}@${hostname()}, process ${process.pid}`;
  await withLeases(command, async (client, signal, stopHandling) => {
    let held: HeldLease;
    try {
      held = await client.acquire(name, {
        ttlMs: options.ttl,
        owner,
        keys: options.key,
        wait: options.wait,
        signal,
        marginMs: stopMarginMs(options.ttl),
        onTaken: once(({ owner: other, token }) =>
          process.stderr.write(
            `leasehold: Lease "${name}" is held by ${printable(other)} (token ${token}); waiting\n`,
          ),
        ),
      });
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'lease-taken') throw error;
      throw new CommandFailure(EXIT_LEASE_TAKEN, error.message, 'omit --no-wait to wait for it');
    }
    // From here on, signals are for the command.
    stopHandling();
    process.exitCode = await runUnder(held, argv, options.ttl);
  });
}

/** Runs a command while the lease is held, and then releases it. @returns the exit code */
async function runUnder(held: HeldLease, argv: readonly string[], ttlMs: number): Promise<number> {
  const env = {
    ...process.env,
    LEASEHOLD_LEASE_NAME: held.name,
    LEASEHOLD_LEASE_TOKEN: String(held.token),
  };
  const supervised = new SupervisedCommand(systemWorld, argv, env, ttlMs, held.end);
  held.onRefreshed((end) => supervised.extend(end));
  let signals = 0;
  const onSignal = (signal: NodeJS.Signals) => supervised.signal(signals++ === 0 ? signal : 'SIGKILL');
  for (const signal of SIGNALS) process.on(signal, onSignal);
  held.lost.addEventListener('abort', () => {
    const why = describeFailure(held.lost.reason).lines[0];
    process.stderr.write(`${why}; the command is stopped\n`);
    supervised.stop(held.lostEarly ? LOST_GRACE_MS : ttlMs);
  });
  held.watch();
  try {
    const end = await supervised.ended;
    const isLost = held.lost.aborted || (end.kind === 'ended' && end.expired);
    if (end.kind === 'unsupervised' && !end.killed) {
      throw generalFailure(
        'The supervisor process was killed at its start: the command may still run, so its lease is not released',
      );
    }
    await releaseOrWarn(held);
    if (end.kind === 'unsupervised') {
      throw generalFailure('The supervisor process was killed, and the command with it');
    }
    if (end.kind === 'failed') {
      process.stderr.write(`leasehold: Cannot run "${argv[0]}": ${end.message}\n`);
      return exitCodeOf(end);
    }
    return isLost ? EXIT_LEASE_LOST : exitCodeOf(end);
  } finally {
    held.abandon();
    for (const signal of SIGNALS) process.off(signal, onSignal);
  }
}

async function releaseOrWarn(held: HeldLease): Promise<void> {
  try {
    await held.release();
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    process.stderr.write(`${describeFailure(error).lines[0]}; the lease expires by itself\n`);
  }
}

/** Runs `action`. A signal aborts it, unless it calls `stopHandling`; the process then ends by that signal. */
async function withLeases(
  command: Command,
  action: (client: NamedLeaseClient, signal: AbortSignal, stopHandling: () => void) => Promise<void>,
): Promise<void> {
  const client = leaseClientOf(command, timeoutOf(command));
  const controller = new AbortController();
  let received: NodeJS.Signals | null = null;
  const onSignal = (signal: NodeJS.Signals) => {
    received = signal;
    controller.abort(generalFailure(`Stopped by ${signal}`));
  };
  const stopHandling = () => {
    for (const signal of SIGNALS) process.off(signal, onSignal);
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  try {
    await action(client, controller.signal, stopHandling);
  } finally {
    stopHandling();
    await client.close();
    if (received !== null) process.kill(process.pid, received);
  }
}

function once<Value>(action: (value: Value) => void): (value: Value) => void {
  let done = false;
  return (value) => {
    if (!done) action(value);
    done = true;
  };
}

function printLease(lease: LeaseQueryAnswer): void {
  if (!lease.held) {
    printLine(`Lease "${lease.name}" is free`);
    return;
  }
  const rows = [
    ['name', lease.name],
    ['owner', printable(lease.owner ?? '')],
    ['token', `${lease.token}`],
    ['left', `${formatDuration(lease.remainingMs)} unless it is refreshed`],
    ...Object.entries(lease.keys).map(([key, value]) => ['key', `${key}=${printable(value)}`]),
  ];
  printTable(rows);
}

function describeEvent(event: LeaseEvent): string {
  const time = new Date(systemWorld.wallMs()).toISOString();
  if (!event.held) return `${time}  ${event.kind === 'state' ? 'free' : event.kind}  token ${event.token}`;
  const keys = Object.entries(event.keys).map(([key, value]) => ` ${key}=${value}`);
  const kind = event.kind === 'state' ? 'held' : event.kind;
  const left = formatDuration(event.remainingMs);
  return `${time}  ${kind}  token ${event.token}, ${left} left, ${printable((event.owner ?? '') + keys.join(''))}`;
}

function leaseName(text: string): string {
  if (!isLeaseName(text)) throw new InvalidArgumentError(`A name has ${LEASE_NAME_FORM}.`);
  return text;
}

function ttl(text: string): number {
  const ms = duration(text);
  if (ms < TTL_MS_MIN) throw new InvalidArgumentError(`It must be ${formatDuration(TTL_MS_MIN)} or longer.`);
  return ms;
}

function keyValue(text: string, before: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const [, key = '', value = ''] = /^([^=]*)=(.*)$/s.exec(text) ?? [];
  if (!isLeaseKey(key)) throw new InvalidArgumentError(`Write KEY=VALUE; a key has ${LEASE_KEY_FORM}.`);
  return { ...before, [key]: value };
}
