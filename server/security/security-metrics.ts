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
    'End of validity of the certificate of this server, and of the certificate authority, in seconds since 1970',
    () => ownCertificates(tls).map(({ whose, untilMs }): [Labels, number] => [{ whose }, untilMs / MS_PER_S]),
    ['whose'],
  );
}

export function registerConnectionMetrics(metrics: MetricsRegistry, connections: Connections): void {
  metrics.observe(
    'gauge',
    'leasehold_connections',
    'Open connections, by whether the client is authenticated',
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
    'Connections refused, or closed in favour of others, by the exceeded limit',
    () => connections.refused(),
    ['because'],
  );
}
