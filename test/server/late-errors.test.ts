/**
 * Goal: the reports of mounts make no more series of the metric than there are operations. Method: the reports by
 * themselves.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import { LateErrorReports } from '../../server/live/late-errors.ts';
import { MetricsRegistry } from '../../server/telemetry/metrics.ts';
import { patientWorld } from '../patient-world.ts';

test('operations that this release does not know count together', async () => {
  const metrics = new MetricsRegistry(patientWorld);
  const parts = {
    self: 's1' as ServerId,
    log: pino({ level: 'silent' }),
    events: { add: () => undefined },
  };
  const reports = new LateErrorReports({ ...parts, metrics });
  for (const operation of ['unlink', 'create', 'made-up', 'made-up-too'])
    reports.report({ operation, path: 'v:/f', error: 'lost' });
  const series = (await metrics.text()).match(/^leasehold_late_errors_total\{.*$/gm);
  assert.deepEqual(series?.sort(), [
    'leasehold_late_errors_total{operation="create"} 1',
    'leasehold_late_errors_total{operation="other"} 2',
    'leasehold_late_errors_total{operation="unlink"} 1',
  ]);
});
