import { isCatalogCell } from '../../base/ids.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { ReplicaHost } from '../file/replica-host.ts';
import type { ViewConflicts } from '../file/view-conflicts.ts';
import type { Repairer } from '../repair/repairer.ts';
import type { Scrubber } from '../repair/scrubber.ts';
import type { Labels, MetricsRegistry } from '../telemetry/metrics.ts';
import type { Transport } from '../transport/transport.ts';

export interface MeasuredParts {
  readonly scrubber: Pick<Scrubber, 'total' | 'unrepairable'>;
  readonly repairer: Pick<Repairer, 'fetchedCount' | 'failedCount'>;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly transport: Transport;
  readonly conflicts: Pick<ViewConflicts, 'current'>;
}

/** Registers this server's metrics other than those of HTTP. */
export function registerServerMetrics(metrics: MetricsRegistry, parts: MeasuredParts): void {
  const { host, lease, transport, scrubber, repairer, conflicts } = parts;
  metrics.observe(
    'counter',
    'leasehold_scrub_objects_total',
    'Objects checked by the scrubber, by verdict',
    () => {
      const { objects, damaged, repaired } = scrubber.total;
      return [
        [{ verdict: 'read' }, objects],
        [{ verdict: 'damaged' }, damaged],
        [{ verdict: 'repaired' }, repaired],
      ];
    },
    ['verdict'],
  );
  metrics.observe(
    'counter',
    'leasehold_scrub_bytes_total',
    'Bytes the scrubber read',
    () => scrubber.total.bytes,
  );
  metrics.observe(
    'gauge',
    'leasehold_scrub_unrepairable_objects',
    'Objects of the last scrubber pass without an intact copy',
    () => scrubber.unrepairable.length,
  );
  metrics.observe(
    'counter',
    'leasehold_repairs_total',
    'Repairs of damaged objects, by outcome',
    () => [
      [{ fate: 'fetched' }, repairer.fetchedCount],
      [{ fate: 'not-found' }, repairer.failedCount],
    ],
    ['fate'],
  );
  metrics.observe(
    'gauge',
    'leasehold_replicas_in_use',
    'Replicas of files in use here, by role',
    () => {
      const roles = new Map<string, number>([
        ['primary', 0],
        ['backup', 0],
      ]);
      for (const driver of host.all()) {
        if (isCatalogCell(driver.file)) continue;
        const role = driver.isPrimary ? 'primary' : 'backup';
        roles.set(role, (roles.get(role) ?? 0) + 1);
      }
      return [...roles].map(([role, count]): [Labels, number] => [{ role }, count]);
    },
    ['role'],
  );
  metrics.observe(
    'gauge',
    'leasehold_view_conflicts',
    'Files with a replica here that have two member sets for one view',
    () => conflicts.current.length,
  );
  metrics.observe('gauge', 'leasehold_lease_cells', 'Lease cells in memory', () => lease.cellCount);
  metrics.observe(
    'counter',
    'leasehold_lease_events_total',
    'Lease protocol events, by mark',
    () => [...lease.marks()].map(([mark, count]): [Labels, number] => [{ mark }, count]),
    ['mark'],
  );
  metrics.observe(
    'gauge',
    'leasehold_recovering_seconds',
    'Remaining recovery wait after the start, in seconds',
    () => Math.max(0, lease.recoveringMs() / 1000),
  );
  metrics.observe(
    'counter',
    'leasehold_peer_messages_total',
    'Messages between servers, by outcome',
    () => {
      const { messagesSent, messagesReceived, messagesDropped } = transport.stats();
      return [
        [{ fate: 'sent' }, messagesSent],
        [{ fate: 'received' }, messagesReceived],
        [{ fate: 'dropped' }, messagesDropped],
      ];
    },
    ['fate'],
  );
  metrics.observe(
    'counter',
    'leasehold_peer_frames_total',
    'Frames from other servers, which carry messages together',
    () => transport.stats().framesReceived,
  );
  metrics.observe(
    'counter',
    'leasehold_peer_bytes_total',
    'Bytes between servers, by direction',
    () => {
      const { bytesSent, bytesReceived } = transport.stats();
      return [
        [{ direction: 'sent' }, bytesSent],
        [{ direction: 'received' }, bytesReceived],
      ];
    },
    ['direction'],
  );
}
