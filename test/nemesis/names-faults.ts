/** `npm run nemesis:names`: see `--help`. */
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { amongClients, endOnSignals, ownNetwork } from './among-clients.ts';
import { programRun } from './command-line.ts';
import { NAMES_HELP, type NamesArguments, namesArgumentsParse } from './names-arguments.ts';
import { NamesRun, programObstacle } from './names-run.ts';
import { NamespaceNetwork } from './network.ts';

const EXIT_OBSTACLE = 2;

async function run(options: NamesArguments, args: readonly string[]): Promise<number> {
  const own = ownNetwork(NamesRun.places(options));
  if (own !== null) return judged(options, own);
  const obstacle = NamespaceNetwork.obstacle() ?? programObstacle() ?? (await mountObstacle());
  if (obstacle !== null) {
    process.stderr.write(`nemesis:names: ${obstacle}\n`);
    return EXIT_OBSTACLE;
  }
  return amongClients(NamespaceNetwork.make(NamesRun.places(options)), import.meta.filename, args);
}

async function judged(options: NamesArguments, network: NamespaceNetwork): Promise<number> {
  endOnSignals();
  const names = await NamesRun.start(options, network);
  let isRight = false;
  try {
    isRight = await names.judge();
    process.stdout.write(`${names.summary()}\n`);
    process.stdout.write(isRight ? 'passed\n' : `FAILED, seed ${options.seed}\n`);
  } finally {
    await names.end();
    if (isRight && !options.keep) names.remove();
    else process.stdout.write(`The servers' disks and all logs are in ${names.folder}\n`);
  }
  return isRight ? 0 : 1;
}

const PROGRAM = { name: 'nemesis:names', help: NAMES_HELP, parse: namesArgumentsParse, run };
process.exitCode = await programRun(PROGRAM, process.argv.slice(2));
