import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

const HOST = '127.0.0.1';
/**
 * Below the range from which Linux takes ports of outgoing connections: one of those may have it until somebody listens.
 * Above 10,080, which `fetch` and browsers refuse (Fetch Standard, section 2.9: bad ports).
 */
const PORT_FIRST = 10_081;
const PORT_END = 32_000;

/** @returns ports of 127.0.0.1 that nobody uses just now */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  while (ports.size < count) {
    const port = randomInt(PORT_FIRST, PORT_END);
    if (await isFree(port)) ports.add(port);
  }
  return [...ports];
}

/** @returns as many, one after the other */
export async function freePortsInARow(count: number): Promise<number[]> {
  for (;;) {
    const first = randomInt(PORT_FIRST, PORT_END - count);
    const ports = Array.from({ length: count }, (_, place) => first + place);
    if ((await Promise.all(ports.map(isFree))).every(Boolean)) return ports;
  }
}

function isFree(port: number): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(port, HOST, () => server.close(() => resolve(true)));
  });
}
