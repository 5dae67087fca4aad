/** `npm run nemesis`: see `--help`. */
import { amongClients, endOnSignals, ownNetwork } from './among-clients.ts';
import { type Arguments, argumentsParse, HELP } from './arguments.ts';
import { programRun } from './command-line.ts';
import { LoopbackNetwork, NamespaceNetwork, type Network } from './network.ts';
import { runFaults, runText } from './report.ts';
import { nemesisRun } from './run.ts';

async function run(options: Arguments, args: readonly string[]): Promise<number> {
  const own = ownNetwork(options.servers);
  if (own !== null) return judged(options, own);
  const obstacle = options.loopback ? '--loopback was asked for' : NamespaceNetwork.obstacle();
  if (obstacle !== null) return judged(options, new LoopbackNetwork(obstacle));
  let made: string;
  try {
    made = NamespaceNetwork.make(options.servers);
  } catch (error) {
    // Root in a container may or may not create namespaces.
    return judged(options, new LoopbackNetwork(error instanceof Error ? error.message : String(error)));
  }
  return amongClients(made, import.meta.filename, ['--seed', String(options.seed), ...args]);
}

async function judged(options: Arguments, network: Network): Promise<number> {
  endOnSignals();
  const result = await nemesisRun(options, network);
  const wrong = runFaults(result);
  process.stdout.write(`${runText(result)}\n`);
  for (const one of wrong) process.stdout.write(`WRONG        ${one}\n`);
  process.stdout.write(wrong.length === 0 ? 'passed\n' : `FAILED, seed ${options.seed}\n`);
  if (wrong.length === 0 && !options.keep) result.cluster.remove();
  else process.stdout.write(`The servers' disks and logs are in ${result.cluster.folder}\n`);
  return wrong.length === 0 ? 0 : 1;
}

const PROGRAM = { name: 'nemesis', help: HELP, parse: argumentsParse, run };
process.exitCode = await programRun(PROGRAM, process.argv.slice(2));
