/**
 * The process that injects faults runs in the network namespace of the clients; a user would not enter that by hand.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { NamespaceNetwork } from './network.ts';

/** The environment variable that passes the network's name to that process. */
const NETWORK = 'NEMESIS_NETWORK';
const ENDS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** @returns the network of this process, or null if `amongClients` did not start it */
export function ownNetwork(servers: number): NamespaceNetwork | null {
  const name = process.env[NETWORK];
  return name === undefined ? null : new NamespaceNetwork(name, servers);
}

/**
 * Runs a program in the clients' namespace, and removes the network afterwards. This process stays in its own.
 *
 * @param network its name, as `NamespaceNetwork.make` returned it
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
    // Then the program ends its servers, and exits.
    const pass = (signal: NodeJS.Signals): boolean => child.kill(signal);
    for (const signal of ENDS) process.on(signal, pass);
    const [code] = (await once(child, 'exit')) as [number | null];
    return code ?? 1;
  } finally {
    NamespaceNetwork.remove(network);
  }
}

/** Exits on signals, as the exit of the process ends servers and mounts and removes disks. */
export function endOnSignals(): void {
  for (const signal of ENDS) process.on(signal, () => process.exit(1));
}
