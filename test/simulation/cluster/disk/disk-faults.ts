import { ANYWHERE, type Fault, fault } from '../fault.ts';
import type { Access } from './private-disk.ts';

const SLOW_TIMES_MAX = 60;
/** The free space of a full disk: none, a little, or less than servers reserve. */
const FREE_BYTES = [0, 0, 200_000, 40 * 1024 * 1024];
const CALLS: readonly Access[] = ['sync', 'write', 'read'];

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

export const DISK_FAULTS: readonly Fault[] = [
  fault('slow-disk', 1, ANYWHERE, (cluster, draw, durationMs) => {
    const { id, disk } = draw.pick(cluster.servers);
    disk.slowness = 1 + draw.next() * SLOW_TIMES_MAX;
    cluster.tell(
      `the disk of ${id} takes ${disk.slowness.toFixed(0)} times as long for ${seconds(durationMs)}`,
    );
    cluster.later(durationMs, () => {
      disk.slowness = 1;
    });
    return true;
  }),
  fault('full-disk', 1, ANYWHERE, (cluster, draw, durationMs) => {
    const { id, disk } = draw.pick(cluster.servers);
    const freeBytes = draw.pick(FREE_BYTES);
    disk.fill(freeBytes);
    cluster.tell(`the disk of ${id} has ${freeBytes} bytes free for ${seconds(durationMs)}`);
    cluster.later(durationMs, () => disk.fill(null));
    return true;
  }),
  // The store fails then, or may fail: an operator restarts the server. The others have what it acknowledged, as after
  // a loss of power.
  fault('failing-disk', 2, ANYWHERE, (cluster, draw, durationMs) => {
    const { weak } = cluster;
    if (!weak.hasStarted) return false;
    const access = draw.pick(CALLS);
    weak.disk.failNext(access);
    cluster.tell(`the next ${access} of ${weak.id} fails, and it starts again after ${seconds(durationMs)}`);
    cluster.later(durationMs, () => {
      if (!weak.runs) return;
      weak.kill();
      cluster.restartLater(weak, 0);
    });
    return true;
  }),
  fault('rot', 1, ANYWHERE, (cluster, draw) => {
    const { id, disk } = cluster.weak;
    const name = disk.rotContainer(draw);
    if (name === null) return false;
    cluster.tell(`a bit of ${name} of ${id} flips`);
    return true;
  }),
  fault('damaged-database', 1, ANYWHERE, (cluster, draw, durationMs) => {
    const { weak } = cluster;
    if (cluster.servers.some((server) => !server.hasStarted)) return false;
    weak.kill();
    const name = weak.disk.rotDatabase(draw);
    weak.rebuilds = true;
    cluster.tell(`${weak.id} is killed for ${seconds(durationMs)}, and a page of ${name} is damaged`);
    cluster.restartLater(weak, durationMs);
    return name !== null;
  }),
];
