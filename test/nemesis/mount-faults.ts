/** `npm run nemesis:mount`: see `--help`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mountObstacle } from '../../client/mount.ts';
import { UsageError } from './arguments.ts';
import { ImageDisk } from './disk.ts';
import { MOUNT_HELP, type MountArguments, mountArgumentsParse } from './mount-arguments.ts';
import { MountRun } from './mount-run.ts';
import { NamespaceNetwork } from './network.ts';
import { canRun } from './system.ts';

/** Tells the process among the clients how its network is called. */
const NETWORK = 'NEMESIS_NETWORK';

async function main(args: readonly string[]): Promise<number> {
  let options: MountArguments;
  try {
    options = mountArgumentsParse(args);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    process.stderr.write(`nemesis:mount: ${error.message}\n`);
    return 2;
  }
  if (options.help) {
    process.stdout.write(`${MOUNT_HELP}\n`);
    return 0;
  }
  const name = process.env[NETWORK];
  if (name !== undefined) return judged(options, new NamespaceNetwork(name, options.servers));
  const obstacle = await findObstacle();
  if (obstacle !== null) {
    process.stderr.write(`nemesis:mount: ${obstacle}\n`);
    return 2;
  }
  return amongClients(NamespaceNetwork.make(options.servers), args);
}

/** @returns why nothing of this can be done here, or null */
async function findObstacle(): Promise<string | null> {
  return (
    NamespaceNetwork.obstacle() ??
    (canRun('fio', ['--version']) ? null : 'there is no "fio" (Debian: apt-get install fio)') ??
    (await mountObstacle()) ??
    ImageDisk.obstacle() ??
    ImageDisk.powerObstacle()
  );
}

/** This program again, where the mount lives: its own network stays as it is. */
async function amongClients(name: string, args: readonly string[]): Promise<number> {
  try {
    const again = [process.execPath, import.meta.filename, ...args];
    const [program = '', ...rest] = NamespaceNetwork.amongClients(name, again);
    const child = spawn(program, rest, { stdio: 'inherit', env: { ...process.env, [NETWORK]: name } });
    const pass = (signal: NodeJS.Signals): boolean => child.kill(signal);
    process.on('SIGTERM', pass).on('SIGINT', pass).on('SIGHUP', pass);
    const [code] = (await once(child, 'exit')) as [number | null];
    return code ?? 1;
  } finally {
    NamespaceNetwork.remove(name);
  }
}

async function judged(options: MountArguments, network: NamespaceNetwork): Promise<number> {
  // The end of the process ends the servers and mounts and takes the disks away.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => process.exit(1));
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

process.exitCode = await main(process.argv.slice(2));
