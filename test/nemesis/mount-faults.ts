/** `npm run nemesis:mount`: see `--help`. */
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { amongClients, endOnSignals, ownNetwork } from './among-clients.ts';
import { programRun } from './command-line.ts';
import { ImageDisk } from './disk.ts';
import { MOUNT_HELP, type MountArguments, mountArgumentsParse } from './mount-arguments.ts';
import { MountRun } from './mount-run.ts';
import { NamespaceNetwork } from './network.ts';
import { canRun } from './system.ts';

const EXIT_OBSTACLE = 2;

async function run(options: MountArguments, args: readonly string[]): Promise<number> {
  const own = ownNetwork(options.servers);
  if (own !== null) return judged(options, own);
  const obstacle = await findObstacle();
  if (obstacle !== null) {
    process.stderr.write(`nemesis:mount: ${obstacle}\n`);
    return EXIT_OBSTACLE;
  }
  return amongClients(NamespaceNetwork.make(options.servers), import.meta.filename, args);
}

/** @returns why this machine cannot run it, or null */
async function findObstacle(): Promise<string | null> {
  return (
    NamespaceNetwork.obstacle() ??
    (canRun('fio', ['--version']) ? null : 'there is no "fio" (Debian: apt-get install fio)') ??
    (await mountObstacle()) ??
    ImageDisk.obstacle() ??
    ImageDisk.powerObstacle()
  );
}

async function judged(options: MountArguments, network: NamespaceNetwork): Promise<number> {
  endOnSignals();
  const run = await MountRun.start(options, network);
  let isRight = false;
  try {
    isRight = await run.rounds();
    process.stdout.write(`${run.table()}\n`);
    process.stdout.write(isRight ? 'passed\n' : `FAILED, seed ${options.seed}\n`);
  } finally {
    await run.end();
    if (isRight && !options.keep) run.remove();
    else process.stdout.write(`The servers' disks and all logs are in ${run.folder}\n`);
  }
  return isRight ? 0 : 1;
}

const PROGRAM = { name: 'nemesis:mount', help: MOUNT_HELP, parse: mountArgumentsParse, run };
process.exitCode = await programRun(PROGRAM, process.argv.slice(2));
