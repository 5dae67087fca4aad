import { execFileSync } from 'node:child_process';

interface Socket {
  readonly local: string;
  readonly remote: string;
  readonly pid: number;
  readonly bytesSent: number;
}

/**
 * @returns bytes that processes have sent each other by TCP over their present connections, as the kernel counts them:
 * all frames and requests with their headers, without headers of packets; null if the kernel's counts are not
 * available
 */
export function bytesBetween(pids: readonly number[]): number | null {
  let listing: string;
  try {
    listing = execFileSync('ss', ['-tinpHO'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
  return bytesBetweenIn(listing, pids);
}

/** @param listing the output of `ss -tinpHO`: one line per socket, for each of the two ends */
export function bytesBetweenIn(listing: string, pids: readonly number[]): number {
  const sockets = listing.split('\n').flatMap(socketOf);
  const owners = new Map(sockets.map(({ local, remote, pid }) => [`${local} ${remote}`, pid]));
  let bytes = 0;
  for (const { local, remote, pid, bytesSent } of sockets) {
    const other = owners.get(`${remote} ${local}`);
    if (other === undefined || other === pid) continue;
    if (pids.includes(pid) && pids.includes(other)) bytes += bytesSent;
  }
  return bytes;
}

function socketOf(line: string): Socket[] {
  const [state, , , local, remote] = line.trim().split(/\s+/);
  const pid = /pid=(\d+)/.exec(line)?.[1];
  if (state !== 'ESTAB' || local === undefined || remote === undefined || pid === undefined) return [];
  return [{ local, remote, pid: Number(pid), bytesSent: Number(/bytes_sent:(\d+)/.exec(line)?.[1] ?? 0) }];
}
