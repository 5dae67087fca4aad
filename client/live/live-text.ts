import type { LiveFile, LiveServer, LiveState, ServerEvent } from '../../wire/live-api.ts';
import { formatTable } from '../terminal/output.ts';
import { formatBytes, formatDuration } from '../terminal/quantities.ts';

const BAR_WIDTH = 20;
const SIGNS = { good: '+', neutral: ' ', bad: '!' } as const;

export function eventLine({ atMs, mood, text, path, file }: ServerEvent): string {
  const name = path ?? `file ${file}`;
  return `${new Date(atMs).toISOString().slice(11, 23)}Z ${SIGNS[mood]} ${text.replaceAll('{file}', name)}`;
}

export function stateLines(state: LiveState, leaseMs: number): string[] {
  const header = ['SERVER', 'STATE', 'PRIMARY OF', 'BACKUP OF', 'WRITES/S', 'READS/S', 'CLOCK', 'FREE'];
  const lines = formatTable([header, ...state.servers.map(serverRow)]);
  return state.file === null ? lines : [...lines, '', ...fileLines(state.file, leaseMs)];
}

function serverRow(server: LiveServer): string[] {
  const isReachable = server.state !== 'unreachable';
  const { clock } = server;
  const states = [
    server.state === 'recovering' ? `recovering, ${formatDuration(server.recoveringMs)} left` : server.state,
    ...(server.membership === 'in' ? [] : [server.membership]),
    ...(server.maintenanceUntilMs === undefined ? [] : ['in maintenance']),
    ...(server.diskFull ? ['disk full'] : []),
  ];
  return [
    server.id,
    states.join(', '),
    isReachable ? `${server.primaries}` : '-',
    isReachable ? `${server.backups}` : '-',
    isReachable ? server.writesPerS.toFixed(0) : '-',
    isReachable ? server.readsPerS.toFixed(0) : '-',
    clock === null ? '-' : `${clock.offsetMs.toFixed(1)} ms`,
    isReachable ? formatBytes(server.freeBytes) : '-',
  ];
}

function fileLines({ path, file, primary, epoch, lease, replicas }: LiveFile, leaseMs: number): string[] {
  if (file === null) return [`${path}: there is no such file, or the catalog is not available`];
  const filled = Math.round((BAR_WIDTH * Math.min(lease.remainingMs, leaseMs)) / leaseMs);
  const bar = `[${'#'.repeat(filled).padEnd(BAR_WIDTH, '.')}]`;
  const leaseText =
    lease.holder === null
      ? 'no lease'
      : `lease of ${lease.holder} ${bar} ${formatDuration(lease.remainingMs)}`;
  const rows = [...replicas]
    .sort((a, b) => (a.server < b.server ? -1 : 1))
    .map(({ server, role, state, version, lagOperations }) => [
      `  ${server}`,
      role,
      state,
      version === null ? '-' : `version ${version}`,
      lagOperations === null || lagOperations === 0 ? '' : `${lagOperations} behind`,
    ]);
  return [`${path}: primary ${primary ?? 'none'}, epoch ${epoch}, ${leaseText}`, ...formatTable(rows)];
}
