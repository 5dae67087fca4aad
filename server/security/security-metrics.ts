import type { Labels, MetricsRegistry } from '../telemetry/metrics.ts';
import { ownCertificates } from './certificate-watch.ts';
import type { Connections } from './connections.ts';
import type { TlsMaterial } from './tls-material.ts';

const MS_PER_S = 1000;

/** Registers the ends of certificates, for alerts. */
export function registerSecurityMetrics(metrics: MetricsRegistry, tls: TlsMaterial): void {
  metrics.observe(
    'gauge',
    'leasehold_certificate_end_timestamp_seconds',
    'When a certificate ends: this server’s, and that of the authority that it believes',
    () => ownCertificates(tls).map(({ whose, untilMs }): [Labels, number] => [{ whose }, untilMs / MS_PER_S]),
    ['whose'],
  );
}

export function registerConnectionMetrics(metrics: MetricsRegistry, connections: Connections): void {
  metrics.observe(
    'gauge',
    'leasehold_connections',
    'Connections of clients and servers, by whether they have proved who they are',
    () => [
      [{ proven: 'yes' }, connections.count - connections.unprovenCount],
      [{ proven: 'no' }, connections.unprovenCount],
    ],
    ['proven'],
  );
  metrics.observe(
    'gauge',
    'leasehold_connections_limit',
    'Connections that this server accepts at a time',
    () => connections.bounds.all,
  );
  metrics.observe(
    'counter',
    'leasehold_connections_refused_total',
    'Connections that were refused, or ended for others, by the bound that they met',
    () => connections.refused(),
    ['because'],
  );
}
