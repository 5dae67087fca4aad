import { createServer, type ListenOptions } from 'node:net';
import { systemWorld } from '../../world/system-world.ts';

const HOST = '127.0.0.1';
/**
 * Below the range from which Linux takes ports of outgoing connections, which may occupy one before the server listens.
 * Above 10,080, which `fetch` and browsers refuse (Fetch Standard, section 2.9: bad ports).
 */
const PORT_FIRST = 10_081;
const PORT_END = 32_000;

/** @returns free ports of 127.0.0.1, which no other process gets from this function while this process lives */
export async function freePorts(
  count: number,
  drawn: () => number = () => portFrom(PORT_FIRST, PORT_END),
): Promise<number[]> {
  const ports = new Set<number>();
  while (ports.size < count) {
    const port = drawn();
    if ((await isFree(port)) && (await reserve(port))) ports.add(port);
  }
  return [...ports];
}

export async function freePortsInARow(count: number): Promise<number[]> {
  for (;;) {
    const first = portFrom(PORT_FIRST, PORT_END - count);
    const ports = Array.from({ length: count }, (_, place) => first + place);
    const areFree = (await Promise.all(ports.map(isFree))).every(Boolean);
    if (areFree && (await Promise.all(ports.map(reserve))).every(Boolean)) return ports;
  }
}

function isFree(port: number): Promise<boolean> {
  return tryListen({ port, host: HOST }, { keep: false });
}

/**
 * Reserves a port until this process ends. A server that gets the port listens on it later, in a process of its own;
 * until then others would find it free. A socket in the abstract namespace (unix(7)) belongs to one process, ends with
 * it in any case, and is visible to all that share the ports.
 */
function reserve(port: number): Promise<boolean> {
  return tryListen({ path: `\0leasehold-port-${port}` }, { keep: true });
}

/** Listens on an address. @returns whether it was free; with `keep`, this process then listens until it ends */
function tryListen(address: ListenOptions, { keep }: { readonly keep: boolean }): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(address, () => {
      if (!keep) {
        server.close(() => resolve(true));
        return;
      }
      server.unref();
      resolve(true);
    });
  });
}

function portFrom(first: number, end: number): number {
  return first + Math.floor(systemWorld.random() * (end - first));
}
