/** The process that breaks servers lives in the network of their clients, where it is not to be brought by hand. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { NamespaceNetwork } from './network.ts';

/** Tells the process among the clients how its network is called. */
const NETWORK = 'NEMESIS_NETWORK';
const ENDS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** @returns the network that this process lives in, or null where `amongClients` did not start it */
export function ownNetwork(servers: number): NamespaceNetwork | null {
  const name = process.env[NETWORK];
  return name === undefined ? null : new NamespaceNetwork(name, servers);
}

/**
 * Runs a program where the clients live, and takes the network away behind it: this process's own stays as it is.
 *
 * @param network its name, as `NamespaceNetwork.make` answered it
 * @returns the exit code
 */
export async function amongClients(
  network: string,
  program: string,
  args: readonly string[],
): Promise<number> {
  try {
    const [command = '', ...rest] = NamespaceNetwork.amongClients(network, [
      process.execPath,
      program,
      ...args,
    ]);
    const child = spawn(command, rest, { stdio: 'inherit', env: { ...process.env, [NETWORK]: network } });
    // It ends the servers, and then there is nothing left to wait for.
    const pass = (signal: NodeJS.Signals): boolean => child.kill(signal);
    for (const signal of ENDS) process.on(signal, pass);
    const [code] = (await once(child, 'exit')) as [number | null];
    return code ?? 1;
  } finally {
    NamespaceNetwork.remove(network);
  }
}

/** The end of the process ends servers and mounts and takes disks away; a signal is to be such an end. */
export function endOnSignals(): void {
  for (const signal of ENDS) process.on(signal, () => process.exit(1));
}
