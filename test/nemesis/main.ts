/** `npm run nemesis`: see `--help`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type Arguments, argumentsParse, HELP, UsageError } from './arguments.ts';
import { LoopbackNetwork, NamespaceNetwork, type Network } from './network.ts';
import { runFaults, runText } from './report.ts';
import { nemesisRun } from './run.ts';

/** Tells the process among the clients how its network is called. */
const NETWORK = 'NEMESIS_NETWORK';

async function main(args: readonly string[]): Promise<number> {
  let options: Arguments;
  try {
    options = argumentsParse(args);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    process.stderr.write(`nemesis: ${error.message}\n`);
    return 2;
  }
  if (options.help) {
    process.stdout.write(`${HELP}\n`);
    return 0;
  }
  const name = process.env[NETWORK];
  if (name !== undefined) return judged(options, new NamespaceNetwork(name, options.servers));
  const obstacle = options.loopback ? '--loopback was asked for' : NamespaceNetwork.obstacle();
  if (obstacle !== null) return judged(options, new LoopbackNetwork(obstacle));
  let made: string;
  try {
    made = NamespaceNetwork.make(options.servers);
  } catch (error) {
    // Root in a container may make namespaces, or may not.
    return judged(options, new LoopbackNetwork(error instanceof Error ? error.message : String(error)));
  }
  return amongClients(made, ['--seed', String(options.seed), ...args]);
}

/** This program again, where the clients live: its own network stays as it is. */
async function amongClients(name: string, args: readonly string[]): Promise<number> {
  try {
    const again = [process.execPath, import.meta.filename, ...args];
    const [program = '', ...rest] = NamespaceNetwork.amongClients(name, again);
    const child = spawn(program, rest, { stdio: 'inherit', env: { ...process.env, [NETWORK]: name } });
    // It ends the servers, and then there is nothing left to wait for.
    const pass = (signal: NodeJS.Signals): boolean => child.kill(signal);
    process.on('SIGTERM', pass).on('SIGINT', pass);
    const [code] = (await once(child, 'exit')) as [number | null];
    return code ?? 1;
  } finally {
    NamespaceNetwork.remove(name);
  }
}

async function judged(options: Arguments, network: Network): Promise<number> {
  // The end of the process ends the servers and takes their disks away.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1));
  const result = await nemesisRun(options, network);
  const wrong = runFaults(result);
  process.stdout.write(`${runText(result)}\n`);
  for (const one of wrong) process.stdout.write(`WRONG        ${one}\n`);
  process.stdout.write(wrong.length === 0 ? 'passed\n' : `FAILED, seed ${options.seed}\n`);
  if (wrong.length === 0 && !options.keep) result.cluster.remove();
  else process.stdout.write(`The servers' disks and logs are in ${result.cluster.folder}\n`);
  return wrong.length === 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
