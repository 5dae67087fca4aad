import type { Labels, MetricsRegistry } from '../metrics.ts';
import { ownCertificates } from './certificate-watch.ts';
import type { TlsMaterial } from './tls-material.ts';

const MS_PER_S = 1000;

/** Registers when what this server shows to others ends: what an alert goes by. */
export function registerSecurityMetrics(metrics: MetricsRegistry, tls: TlsMaterial): void {
  metrics.observe(
    'gauge',
    'leasehold_certificate_end_timestamp_seconds',
    'When a certificate ends: this server’s, and that of the authority that it believes',
    () => ownCertificates(tls).map(({ whose, untilMs }): [Labels, number] => [{ whose }, untilMs / MS_PER_S]),
    ['whose'],
  );
}
